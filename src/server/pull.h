/* Models that are on their way into the store, each on a thread of its own, and the requests that watch them.
 *
 * (1) Everything here runs on the loop's thread, but for the download itself.
 * (2) Requests for the same model watch one download. When the last of them leaves, it ends; what has arrived stays for the next one.
 */
#ifndef MLXCEL_SERVER_PULL_H
#define MLXCEL_SERVER_PULL_H

#include "server/route.h"

/* How a protocol tells of a download. */
struct pull_form {
    void (*progress)(struct call *c, struct str name, uint64_t done, uint64_t total, struct sb *out); /* a frame of its stream */
    struct str success;                                                                               /* the last frame, or the answer */
};

/* The call is answered when the model is served, or with the reason why it is not; where it streams, with frames on the way. form outlives it. */
void pull_start(struct call *c, struct str name, bool streams, const struct pull_form *form);
/* Answers those whose download is over. From the loop, when it is woken. */
void pull_turn(struct server *s);
/* Ends all of them; those that watch are answered by the next turns. */
void pull_stop(struct server *s);
/* When the loop is at its end: waits for the threads. */
void pull_close(struct server *s);

#endif
