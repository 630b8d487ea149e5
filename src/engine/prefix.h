/* The prefix cache keeps blocks of the KV cache under the tokens that they were computed from. A prompt that begins like an earlier one takes the
 * blocks of the common beginning and computes only the rest.
 *
 * An entry is one block of 64 tokens behind its parent, the block before it: a tree. It is found by a hash and believed only
 * when the parent is the same entry and all 64 ids are equal.
 *
 * (1) The cache is a reader of its blocks like any other; a full block is never written again, so sharing needs no copy. Where
 *     two prompts part inside a block, the common part is copied into a block of the new sequence's own.
 * (2) Entries are given up from the leaves, least recently used first, and only when blocks, entries or slots run out.
 * (3) Recurrent state cannot be cut: such a model begins at a snapshot, taken at the last block's end inside a prompt.
 * (4) Once the rope tables of a sequence depend on its length, it neither takes blocks from the cache nor leaves any.
 * (5) Nothing allocates after prefix_open, but for the places of options.spare.
 * (6) A block that is not full has NO_TOKEN in the place of its missing tokens. Sequences do not share such a block; they copy its part.
 * (7) With options.spare blocks are not given up at once: their numbers go to the host's memory, and come back when a prompt begins with their tokens.
 */
#ifndef MLXCEL_ENGINE_PREFIX_H
#define MLXCEL_ENGINE_PREFIX_H

#include "engine/sequence.h"

struct spec;
struct spare;
struct prefix;

struct prefix_options {
    struct kv *kv;
    struct backend *backend;
    const struct spec *spec;
    int32_t n_snapshots; /* slots of recurrent state that the cache may hold */
    struct spare *spare; /* for what the device has no room for; NULL: that is given up. It outlives the cache */
};

struct prefix *prefix_open(const struct prefix_options *options);
void prefix_close(struct prefix *p); /* gives everything back; NULL is fine */

/* Gives an empty sequence the blocks that are known of its tokens; returns how many positions. The last token is never among them, since its row must be computed. */
int32_t prefix_attach(struct prefix *p, struct sequence *s);
/* Keeps the full blocks of the positions that are computed. */
void prefix_keep(struct prefix *p, const struct sequence *s);
/* The same for a sequence whose blocks came from elsewhere: also the last one, where it is not full. */
void prefix_put(struct prefix *p, const struct sequence *s);
/* Whether the cache may keep what is computed of the sequence. */
bool prefix_takes(const struct prefix *p, const struct sequence *s);
/* Gives up what is kept of these tokens and of what goes on behind them. Blocks that other prompts share, or that somebody reads, stay. */
void prefix_erase(struct prefix *p, int32_t tree, const int32_t *tokens, int32_t n);
/* The position at which the computation of a prompt should pause, so that prefix_keep can take a snapshot of recurrent state; 0: none. */
int32_t prefix_pause(const struct prefix *p, const struct sequence *s);
/* Blocks of tokens that are in the host's memory now, and tokens that have come back from there. */
int32_t prefix_away(const struct prefix *p);
int64_t prefix_returned(const struct prefix *p);
/* Frees a block of the class that nobody but the cache reads; false when there is none. */
bool prefix_evict(struct prefix *p, int32_t kv_class);

#endif
