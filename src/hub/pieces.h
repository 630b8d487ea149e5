/* Pieces of files on their way from the threads that receive them to the one that hashes; memory of a fixed size.
 *
 * (1) Every call is made under the mutex of the pool's owner. The bytes of a piece belong to the thread that took it.
 * (2) A piece that is kept is in its file as well: it may be forgotten at any time, and is then read again.
 * (3) The pool has at least one piece more than there are threads that take. So pieces_take always finds one that is free or can be forgotten.
 */
#ifndef MLXCEL_HUB_PIECES_H
#define MLXCEL_HUB_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PIECE_BYTES = 256 << 10 };

enum piece_state { PIECE_FREE, PIECE_TAKEN, PIECE_KEPT };

struct piece {
    char *data;        /* [PIECE_BYTES] */
    const void *owner; /* whose bytes these are */
    uint64_t at;       /* the first one's place in the file */
    uint32_t n;
    enum piece_state state;
    void *user;         /* of the thread that took it */
    struct piece *next; /* in that thread's queue */
};

struct pieces {
    struct piece *all;
    size_t n;
};

void pieces_init(struct pieces *p, size_t n);
void pieces_free(struct pieces *p);
/* A free one, else the kept one that is needed last; NULL when all are taken. */
struct piece *pieces_take(struct pieces *p);
void piece_keep(struct piece *piece);
void piece_give_back(struct piece *piece); /* NULL is fine */
/* Takes the one that is kept and holds this byte of the owner's; NULL: there is none. */
struct piece *pieces_find(struct pieces *p, const void *owner, uint64_t at);
void pieces_forget(struct pieces *p, const void *owner);

#endif
