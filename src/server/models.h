/* The models of a server: those that it may serve, and those of them that are loaded.
 *
 * One model alone is loaded at the start and stays. Of several, each is loaded when a request names it, on a thread of its own, and requests
 * for it wait in line. Where there is no room, another model goes: the one that nobody has asked for the longest time, or, where all have
 * requests, the one that was loaded first; its requests are finished before, and new ones for it wait.
 *
 * (1) Everything here runs on the loop's thread, but for the closing of a model, which waits for the model's thread and runs on a worker.
 * (2) A call holds its model from models_ask until models_leave: such a model is never closed.
 */
#ifndef MLXCEL_SERVER_MODELS_H
#define MLXCEL_SERVER_MODELS_H

#include "server/route.h"
#include "server/server.h"

struct served {
    struct served *next; /* models_next */
    struct server *server;
    const struct server_model *given;
    struct service *service; /* NULL: not loaded */
    struct sb name;
    bool is_leaving, is_closing;       /* goes as soon as nobody holds it; a worker closes it */
    bool is_removed;                   /* it is served no more; only its figures are still counted */
    void (*on_free)(struct served *m); /* of models_remove */
    void *user;
    int32_t n_calls;            /* that hold it */
    struct call *first, **last; /* the line of those that wait */
    uint64_t loaded_ns, used_ns;
    int64_t keep_ms; /* how long it stays when nobody asks for it: as its settings say, or the last request that does; -1: for ever */
    int64_t n_loads, n_unloads, n_failed;
    int64_t n_closed;   /* server.n_closed when the load began */
    struct err why;     /* the last load that failed */
    struct slot *slots; /* [n_slots] slots.h; NULL: none was asked for */
    int32_t n_slots;
    uv_work_t work;
};

enum models_state { SERVED_UNLOADED, SERVED_LOADING, SERVED_LOADED, SERVED_LEAVING, SERVED_FAILED, N_SERVED_STATES };
extern const char *const models_state_names[N_SERVED_STATES];

/* Makes the list; a single model begins to load, as do those that are wanted from the start. */
int models_open(struct server *s, struct err *err);
/* When the loop is at its end: closes what is loaded, and waits. */
void models_close(struct server *s);
/* Looks after all of them: who waits is served, who is idle for long goes. When a service says something, a call leaves, a second has passed. */
void models_turn(struct server *s);

/* One model alone, which is loaded at the start and stays. */
bool models_is_one(const struct server *s);
/* Those that are served, in the order in which they came. */
struct served *models_first(const struct server *s);
struct served *models_next(const struct served *m);
size_t models_count(const struct server *s);
/* One more. A server of one model becomes one of several. */
void models_add(struct server *s, const struct server_model *given);
/* No request finds it any more. on_free is called when those that run are answered and its files are closed; then it may be put back by clearing
 * is_removed. Not where there is one model alone. */
void models_remove(struct served *m, void (*on_free)(struct served *m), void *user);
/* By its name, another name of it, or the last part of its name; "hf.co/" or "huggingface.co/" before it and ":latest" behind it are passed over. {NULL, 0}: the first.
 * NULL: there is none of this name. */
struct served *models_find(struct server *s, struct str name);
/* One that is loaded: the first of them; NULL: none is. */
struct served *models_any(struct server *s);
enum models_state models_state(const struct served *m);
/* The call goes on by route_go_on when the model is loaded, or is answered with the reason. */
void models_ask(struct served *m, struct call *c);
/* The call is at its end, or its client left the line. */
void models_leave(struct call *c);
/* It goes when its requests are answered. */
void models_unload(struct served *m);

#endif
