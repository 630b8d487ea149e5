/* One sequence: its tokens, how far they are computed, and the cache that holds them. Belongs to the engine's thread. */
#ifndef MLXCEL_ENGINE_SEQUENCE_H
#define MLXCEL_ENGINE_SEQUENCE_H

#include "engine/kv.h"

/* Tokens of a prompt that stand for a picture, or a part of one. */
struct picture_rows {
    int32_t first, n;
    const float *rows[GIVEN_SETS]; /* [n][hidden] numbers that stand for them, and those that are added behind the first layers */
    uint64_t hash;                 /* of the picture */
    bool both_ways;                /* the tokens see each other */
};

/* Tokens from this one on, up to the next mark, see these of the states. */
struct picture_mark {
    int32_t first, from, to;
};

/* Pictures that are not among the tokens: layers of the text model look at what a tower has made of them. Tokens before the first mark see all states. */
struct picture_states {
    const float *const *rows; /* [n] of as many numbers as the model's rows have */
    int32_t n;
    const struct picture_mark *marks; /* [n_marks] in the order of their tokens */
    int32_t n_marks;
    uint64_t hash;
};

struct sequence {
    int32_t *tokens;
    int32_t n_tokens, n_prompt, capacity; /* prompt first, then what was generated */
    int32_t n_done;                       /* positions whose keys, values and state are in the cache */
    int32_t *tables[KV_CLASSES_MAX]; /* [n_blocks] table[i] is the block of positions 64 i to 64 i + 63; -1: they have left the window */
    int32_t n_blocks[KV_CLASSES_MAX];
    int32_t slot;                        /* of recurrent state; -1: none */
    const float *adapters;               /* [n_adapters] scale of each; NULL: none is used */
    int32_t tree;                        /* of the prefix cache: sequences of one use the same adapters; -1: it is kept out */
    const struct picture_rows *pictures; /* [n_pictures] in the order of their tokens */
    int32_t n_pictures;
    const struct picture_states *states; /* NULL: none */
    bool has_states;                     /* their keys and values are in the cache */
    const int32_t *places;               /* [n_prompt][STEP_AXES] where the prompt's tokens lie; NULL: by position */
    int32_t place_shift;                 /* later ones: their position plus this, on every axis */
    int32_t rope_len;                    /* rope tables that depend on the length are made for this length or a longer one */
};

/* Room for `capacity` tokens; a slot is taken where the model has recurrent state. False when none is free. */
bool sequence_init(struct sequence *s, struct kv *kv, int32_t capacity);
void sequence_free(struct sequence *s, struct kv *kv);
void sequence_append(struct sequence *s, int32_t token);
/* Pictures of the prompt that was appended. Their tokens get numbers beyond any vocabulary, made of the picture's content: so the prefix cache
 * tells pictures apart. */
void sequence_place_pictures(struct sequence *s, const struct picture_rows *pictures, int32_t n, const int32_t *places);
/* Pictures that the model looks at, whose tokens are marked as theirs; and blocks for their keys and values: false, and nothing taken, when there are too few. */
void sequence_see(struct sequence *s, struct kv *kv, const struct picture_states *states);
bool sequence_reserve_states(struct sequence *s, struct kv *kv);
/* The picture whose rows see each other and that would be cut if the sequence were computed up to here; NULL: none. */
const struct picture_rows *sequence_cut_picture(const struct sequence *s, int32_t n_done);
/* Blocks for positions up to n_done + n_rows - 1. False, and nothing taken, when the pools are short. */
bool sequence_reserve(struct sequence *s, struct kv *kv, int32_t n_rows);
/* n_rows more positions are computed: blocks that left a window go back. */
void sequence_advance(struct sequence *s, struct kv *kv, int32_t n_rows);
struct spec;
/* Call it before the next row. If a rope table changes at this length, it drops everything that was computed, so that it is computed again with the
 * new table. Long-context tables switch once. Dynamic tables change with every row; only `exact` follows them. Without it old keys keep the table
 * that they were made with, as in the reference's cache. */
void sequence_follow_rope(struct sequence *s, struct kv *kv, const struct spec *spec, bool exact);
/* How many of the next n rows may share one step's rope tables. It matters when rows are computed again after preemption and old keys keep their
 * tables: each row must get the table that it had before. All rows of the prompt had the table of the prompt's length. Each row of the answer
 * had the table of the sequence's length at that row, so it runs alone. */
int32_t sequence_rows_alike(const struct sequence *s, const struct spec *spec, bool exact, int32_t n);
/* Forget everything computed (preemption): tokens stay, blocks go back. */
void sequence_drop(struct sequence *s, struct kv *kv);

#endif
