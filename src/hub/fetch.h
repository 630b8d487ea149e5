/* Inside of a download, for its three files alone: fetch.c plans it and starts the threads, fetch_receive.c asks for chunks, receives and
 * writes them, fetch_finish.c hashes behind that and puts whole files in place. fetch.c says what holds for all of them. */
#ifndef MLXCEL_HUB_FETCH_H
#define MLXCEL_HUB_FETCH_H

#include "hub/digest.h"
#include "hub/hub.h"
#include "hub/http.h"
#include "hub/part.h"
#include "hub/pieces.h"
#include "os/os.h"

/* Pieces beside those that are being filled: so many of a span may wait for the writer, and so much be kept for the hash. */
enum { QUEUED_MAX = 2, PIECES_KEPT = 16, KEPT_BYTES = PIECES_KEPT * PIECE_BYTES };

enum item_state { ITEM_WAITING, ITEM_OPEN, ITEM_CLOSING /* whole and right: the finisher alone touches it */, ITEM_DONE };

struct item {
    const struct hub_file *file;
    size_t i_file;
    const char *path; /* where it will lie */
    const char *part_path;
    enum item_state state;
    struct part part;
    bool *taken; /* [n_chunks] */
    int n_workers;
    bool restart; /* to be emptied */
    bool single;  /* its server knows no ranges: one request for all of it */
    int n_restarts;
    uint64_t
        most_bytes; /* the most bytes that have ever been here; a file without ranges starts again, and only bytes beyond this count as progress */
    char *url;    /* where the redirects of an earlier request ended; NULL: ask the hub */
    bool hashing; /* the finisher reads it: not to be emptied */
    struct sha256 sha;
    uint64_t hashed;
    uint64_t old_bytes; /* that were here when it was opened, and are not hashed */
};

struct fetch {
    struct hub *hub;
    const struct hub_repo *repo;
    const struct fetch_options *options;
    struct arena arena; /* under the mutex */
    struct os_mutex *mutex;
    struct os_cond *tasks, *room, *writes, *bytes, *over; /* for workers without work, with; the writer; the finisher; the one who draws */
    struct pieces pieces;
    struct piece *first, *last; /* those that are to be written */
    bool writing;               /* the writer is at work */
    bool closing;               /* no more of them will come */
    struct item *items;
    size_t n_items, n_finished;
    uint64_t before_bytes; /* of files that were in place, and of parts when this began */
    uint64_t received;
    atomic_ullong gathered; /* in pieces, and not in their files */
    uint64_t in_flight;     /* bytes that were asked for and have not arrived */
    bool hungry;            /* several connections are in use, because the hash waits for bytes */
    struct {
        uint64_t begin_ns, hash_ns, write_ns, n_bytes; /* of this round; hash_ns, write_ns: how long the two waited */
        double single_rate;                            /* of the last round with one connection; 0: there was none */
        int pause, next_pause; /* rounds until several connections may be tried again; the next such pause is longer */
    } hunger;
    bool holds;   /* a worker waits for the hash with its next span */
    bool crowded; /* one waits for room */
    atomic_bool stop;
    int code;
    struct err err;
    struct sb notes; /* lines for the one who draws */
    int32_t n_threads;
};

struct worker {
    struct fetch *f;
    struct http *http;
    struct http_reply reply;
    struct patience patience;
    struct os_thread *thread;
};

/* Ends all threads with the first reason that is given; a line for the one who draws. */
void fetch_stop_all(struct fetch *f, int code, const struct err *why);
void fetch_note(struct fetch *f, const char *text);
/* Under the mutex. */
void fetch_wake_all(struct fetch *f);
bool fetch_must_wait_for_hash(struct fetch *f);

/* The threads: of a struct worker; of a struct fetch. */
void fetch_run_worker(void *user);
void fetch_run_writer(void *user);
void fetch_run_finisher(void *user);

#endif
