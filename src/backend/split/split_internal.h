/* Inside the split: its state, shared by its files. */
#ifndef MLXCEL_BACKEND_SPLIT_SPLIT_INTERNAL_H
#define MLXCEL_BACKEND_SPLIT_SPLIT_INTERNAL_H

#include "backend/split/cut.h"

enum { LAYOUT_NAME = 16, PIECE_VALUES = 12 };

/* Where a layer of a cache class, or a recurrent state, is. */
struct split_at {
    int32_t side;
    int32_t index; /* there */
};

struct split {
    struct backend base;
    struct backend *sides[SIDES_MAX]; /* [n_sides]; that of the host may be NULL */
    int32_t n_sides;
    struct split_plan plan;
    uint64_t weight_bytes[SIDES_MAX];
    bool cannot_borrow; /* a matrix of the host has a form that a card does not know */
    bool borrows;       /* the step that is being cut runs the host's products on cards */
    bool visits;        /* and computes there with the host's cache */
    bool may_visit;     /* the first card may still read the host's cache, or write there */

    struct kv_layout layouts[SIDES_MAX];
    struct split_at *kv[KV_CLASSES_MAX];
    bool lends[KV_CLASSES_MAX]; /* the first card can compute with the host's layers of the class */
    struct split_at states[STATES_MAX];
    char layout_name[LAYOUT_NAME];

    struct step_key key;
    bool is_cut; /* the list is that of the last step, and `cut` belongs to it */
    struct cut cut;
    int32_t *op_sides; /* [op_sides_capacity] */
    int32_t op_sides_capacity;
    void **slots; /* [n_slots] memory of the host */
    size_t *slot_bytes;
    int32_t n_slots, slots_capacity;
    bool runs[SIDES_MAX]; /* what was launched there may still read slots */
};

/* ---- places (place.c) ---- */

/* Sides that there are: of the one with the first layer's input, and of the one with the head. */
int32_t split_first_side(const struct split *s);
int32_t split_last_side(const struct split *s);
/* The parts of a cache; maps may be NULL. */
int split_kv_maps(struct split *s, const struct kv_layout *layout, struct err *err);
void split_kv_maps_free(struct split *s);
/* The layout of what is on a side. */
void split_layout(const struct split *s, const struct kv_layout *layout, int32_t side, struct kv_layout *out);
int split_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err);
void split_weight_release(struct backend *be, struct weight *w);
/* Whether cards may run the host's products in a step of the key. */
bool split_may_borrow(const struct split *s);
/* Whether the first card can compute with the host's cache, of any class. */
bool split_may_visit(const struct split *s);
/* Where each op of the list runs, into s->op_sides; s->borrows says which way. */
void split_find_sides(struct split *s);
/* Makes weights, cache and state of an op those of its side; an error where they are not there. */
int split_move_op(const struct split *s, struct op *op, int32_t side, struct err *err);

/* ---- steps (split_run.c) ---- */
int split_reserve(struct backend *be, struct err *err);
int split_end(struct backend *be, const struct step *step, struct err *err);
int split_read(struct backend *be, struct tensor t, void *dst, struct err *err);
void split_run_close(struct split *s);
/* What the first card does with the host's cache is done. */
int split_end_visit(struct split *s, struct err *err);
/* The cards before the last one, whose failures a result of that one does not show. */
int split_wait_for_others(struct split *s, struct err *err);
/* Returns code. After an error it notes whether a side is lost: then so is all of it. */
int split_note_lost(struct split *s, int code);

#endif
