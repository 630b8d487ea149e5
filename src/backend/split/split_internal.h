/* Inside the split: its state, shared by its files. */
#ifndef MLXCEL_BACKEND_SPLIT_SPLIT_INTERNAL_H
#define MLXCEL_BACKEND_SPLIT_SPLIT_INTERNAL_H

#include "backend/split/cut.h"

enum { LAYOUT_NAME = 16, PIECE_VALUES = 12 };

/* Where a layer of a cache class, or a recurrent state, is. */
struct split_at {
    int8_t side;
    int32_t index; /* there */
};

struct split {
    struct backend base;
    struct backend *sides[N_SIDES];
    struct split_plan plan;
    uint64_t weight_bytes[N_SIDES];
    bool cannot_borrow; /* a matrix of the host has a form that the card does not know */
    bool borrows;       /* the step that is being cut runs the host's products on the card */

    struct kv_layout layouts[N_SIDES];
    struct split_at *kv[KV_CLASSES_MAX];
    struct split_at states[STATES_MAX];
    char layout_names[KV_CLASSES_MAX][LAYOUT_NAME];

    struct step_key key;
    struct cut cut;
    int8_t *op_sides; /* [op_sides_capacity] */
    int32_t op_sides_capacity;
    void **slots; /* [n_slots] memory of the host */
    size_t *slot_bytes;
    int32_t n_slots, slots_capacity;
    bool card_runs; /* what was launched there may still read slots */
};

/* ---- places (place.c) ---- */

/* Where a layer runs; of its experts, where they do. */
enum split_side split_layer_side(const struct split *s, int32_t layer);
/* The parts of a cache; maps may be NULL. */
int split_kv_maps(struct split *s, const struct kv_layout *layout, struct err *err);
void split_kv_maps_free(struct split *s);
/* The layout of what is on a side. */
void split_layout(const struct split *s, const struct kv_layout *layout, enum split_side side, struct kv_layout *out);
int split_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err);
void split_weight_release(struct backend *be, struct weight *w);
/* Whether the card may run the host's products in a step of the key. */
bool split_may_borrow(const struct split *s);
/* Where each op of the list runs, into s->op_sides; s->borrows says which way. */
void split_find_sides(struct split *s);
/* Makes weights, cache and state of an op those of its side; an error where they are not there. */
int split_move_op(const struct split *s, struct op *op, enum split_side side, struct err *err);

/* ---- steps (split_run.c) ---- */
int split_reserve(struct backend *be, struct err *err);
int split_end(struct backend *be, const struct step *step, struct err *err);
int split_read(struct backend *be, struct tensor t, void *dst, struct err *err);
void split_run_close(struct split *s);

#endif
