/* The hub: what a repository holds, and getting it into a folder.
 *
 * (1) A file appears under its name only when it is whole, and its sha256 is the hub's where the hub gives one.
 * (2) What was received stays: the same download goes on where the last one ended, however it ended.
 * (3) One process at a time works on a folder; another one waits, and then finds the files there.
 */
#ifndef MLXCEL_HUB_HUB_H
#define MLXCEL_HUB_HUB_H

#include "hub/http.h"
#include "hub/names.h"
#include "hub/patience.h"
#include "hub/watch.h"

struct hub_options {
    const char *endpoint;   /* "https://huggingface.co"; a mirror */
    const char *cacert;     /* NULL: the system's authorities */
    bool offline;           /* no request is ever made */
    const char *token;      /* NULL: that of the file */
    const char *token_path; /* the file; NULL: token in hf_home */
    const char *hf_home;    /* where the hub's own tools keep their cache and the token; NULL: nobody knows */
    bool insecure_token;    /* the token is sent over plain http, too */
    /* 0: the defaults. n_tries: of failures in a row, the first one too; max_wait_s: see patience.h */
    int32_t n_connections, n_tries, stall_s, max_wait_s;
    const atomic_bool *stop; /* when it becomes true, what is asked of the hub ends with ERR_ECANCELLED; NULL: Ctrl-C does that */
};

struct hub_file {
    struct str name; /* safe, with '/' */
    uint64_t size;
    char sha256[65]; /* "": nobody knows it */
};

struct hub_repo {
    const char *id;
    struct str commit; /* what the revision stands for */
    struct hub_file *files;
    size_t n_files;
    uint64_t total_bytes;
};

struct hub; /* endpoint, token and a connection */

int hub_open(struct arena *a, const struct hub_options *options, struct hub **out, struct err *err);
void hub_close(struct hub *h); /* NULL is fine */

/* The files of a revision that are needed, or those that the globs name (n_globs 0: what hub_file_wanted says). */
struct hub_query {
    const struct repo_name *repo;
    const char *revision;
    const struct str *globs;
    size_t n_globs;
};
/* What the hub has to say about it must be here within max_wait_s. */
int hub_list(struct arena *a, struct hub *h, const struct hub_query *query, struct hub_repo *out, struct err *err);

/* Models whose names or tags hold the words, the most downloaded first (search.c). */
struct hub_wish {
    struct str words;        /* "": any */
    const char *owner, *tag; /* NULL: any; tag: "mlx", "gguf" */
    int32_t most;
};
struct hub_found {
    struct str id;
    int64_t n_downloads, n_likes;
    bool gated; /* its terms have to be accepted first */
};
int hub_search(struct arena *a, struct hub *h, const struct hub_wish *wish, struct hub_found **out, size_t *out_n, struct err *err);

struct fetch_options {
    const char *dir;     /* where the files go; partial ones to dir/.mlxcel */
    const bool *trusted; /* [n_files] known to be the right ones if their size is; NULL: none. Others are hashed, or fetched again */
    bool quiet;          /* no progress on standard error */
    struct watch
        *watch; /* told how far it is, from the caller's thread; NULL: nobody. Whether it wants the rest is not asked (hub_options.stop) */
    /* A file is in place now; may come from another thread, one at a time. */
    void (*on_file)(void *user, size_t i_file);
    void *user;
};
struct fetch_result {
    uint64_t received_bytes, present_bytes;
    size_t n_received, n_present;
    double seconds;
};
/* The file in a folder against what is known of it, its size and, with a watch, its hash: 0, ERR_ENOTFOUND, ERR_EFORMAT with what
 * differs, or ERR_ECANCELLED by the watch. */
int hub_file_check(const char *path, const struct hub_file *file, struct watch *watch, struct err *err);
/* Brings every file of the repository into the folder. The caller holds the folder's lock. */
int hub_fetch(struct hub *h, const struct hub_repo *repo, const struct fetch_options *options, struct fetch_result *out, struct err *err);

/* From here on Ctrl-C ends what is asked of the hub with ERR_ECANCELLED; when that takes too long, a second one ends the program. */
void hub_interrupts_begin(void);
void hub_interrupts_end(void);

/* ---- for the files of this folder ----------------------------------------------------------------------------------------- */

const struct hub_options *hub_options_of(const struct hub *h);
const char *hub_token(const struct hub *h); /* NULL: none, or not to be sent */
/* What an address of the hub answers, a text of limited length; tried again while a failure may pass. `what` names it in errors. */
int hub_ask(struct hub *h, const char *url, const char *what, struct http_reply *out, struct err *err);
/* The address of a file at a commit. */
void hub_file_url(const struct hub *h, const struct hub_repo *repo, struct str name, struct sb *out);
/* The error that a refusal stands for. */
int hub_refusal(const struct hub *h, const struct http_reply *reply, const char *what, struct err *err);
struct patience hub_patience(const struct hub *h);
/* Whether the caller has ended the work. When it was ended by Ctrl-C, the next Ctrl-C ends the program. */
bool hub_stopped(const struct hub *h);

#endif
