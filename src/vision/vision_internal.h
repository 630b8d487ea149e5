/* What the files of src/vision share. */
#ifndef MLXCEL_VISION_VISION_INTERNAL_H
#define MLXCEL_VISION_VISION_INTERNAL_H

#include "vision/vision.h"

enum vision_resize {
    RESIZE_TO_AREA /* whole merged patches, and an area between two limits */,
    RESIZE_TO_SQUARE /* whatever its sides */,
    RESIZE_AND_CROP /* the shorter side to a length, then the middle of it */,
    RESIZE_TO_FIT /* no side longer than a length, then whole merged patches */,
};
enum vision_rope {
    VISION_ROPE_NONE,
    VISION_ROPE_HALVES /* rows turn the first half of the pairs, columns the second, by the same frequencies */,
    VISION_ROPE_IN_TURN /* likewise, but frequencies are dealt to rows and columns in turn */,
};
enum vision_positions {
    POSITIONS_NONE,
    POSITIONS_STRETCHED /* a square table, stretched over the picture's patches */,
    POSITIONS_FIXED /* a row for each patch, behind that of the class token where there is one */,
};

/* Names of tensors, with '|' between those that checkpoints use; '#' stands for the number of a block or a merger. */
struct vision_names {
    const char *patch, *positions;
    const char *class_row, *pre_norm, *post_norm;
    const char *norm1, *norm2, *qkv, *q, *k, *v, *out, *gate, *up, *down;
    const char *merge_norm, *merge_join, *merge_in, *merge_out;
    const char *deep_norm, *deep_in, *deep_out;
};

/* Keys of vision_config. */
struct vision_keys {
    const char *hidden, *heads, *depth, *inner, *out;
};

/* A family: what its files do not say. */
struct vision_family {
    const char *type;   /* model_type */
    const char *vision; /* model_type of vision_config; NULL: any */
    const char *title;
    const char *prefixes; /* before the names, with '|' between them */
    struct vision_names names;
    struct vision_keys keys;
    enum norm_kind norm;
    float eps;
    const char *act;  /* of the feed-forward, where vision_config does not name it */
    bool is_gated;    /* the feed-forward */
    bool has_windows; /* blocks see windows, but for those in fullatt_block_indexes */
    enum vision_positions positions;
    enum vision_rope rope;
    bool merges_by_channel; /* columns of merge_join count the patches of a token within each channel */
    bool is_out_transposed; /* merge_out is stored [in, out] */
    bool pools;             /* a token is the mean of its patches */
    struct norm_row_of_merger {
        enum norm_kind kind;
        float offset;
    } merge_norm;
    const char *size_key; /* where config.json has the tokens of a picture, whose root counts those of a side; NULL: spatial_merge_size */
    const char *open, *close;         /* text around the tokens of a picture, besides the tokens themselves */
    const char *open_key, *close_key; /* where config.json has the ids of tokens around it; the first one is the placeholder then */
    const char *row_end, *end;        /* text behind each row of tokens but the last, and behind that */
    enum vision_resize resize;
    bool has_places;
    bool has_frames;     /* patches count frames, too: temporal_patch_size */
    bool sees_both_ways; /* the text model's rows of one picture see each other */
};
extern const struct vision_family vision_table[];
extern const int32_t vision_n_families;

struct tower_block {
    struct bound norm1, norm2, qkv, k, v, out, gate, up, down; /* qkv holds queries alone where k is there */
    bool sees_all;
};

/* Joins patches and makes them as wide as the text model. */
struct tower_merger {
    struct bound norm, join, in, out;
    bool norms_joined; /* the norm is that of joined patches */
};

enum { TOWER_LAYERS_MAX = 256, MERGERS_MAX = GIVEN_SETS };

struct vision {
    struct arena arena;
    const struct vision_family *family;
    yyjson_val *config; /* config.json, while it is opened */
    struct backend *backend;
    struct model_weights weights;
    /* the tower */
    int32_t hidden, heads, layers, inner, text_hidden;
    int32_t patch, frames, merge; /* pixels of a patch's side, times that a picture counts, patches of a token's side */
    int32_t window;               /* of blocks that see one: tokens of its side; 0: none do */
    struct bound patches, pre_norm, post_norm;
    float *class_row; /* [hidden] NULL: none */
    float eps, merge_eps;
    int32_t square, crop, longest;   /* of the processor: sides in pixels */
    int32_t open_token, close_token; /* -1: none */
    struct tower_block *blocks;
    struct tower_merger mergers[MERGERS_MAX]; /* the last one's, then those behind blocks */
    int32_t n_mergers, deep_at[MERGERS_MAX];  /* block behind which each of the others reads */
    enum act_kind act;
    bool is_quick_gelu;
    struct weight *inv_freq;
    int8_t *axes;
    float *positions; /* [side * side][hidden] */
    int32_t positions_side;
    /* the processor */
    int64_t min_pixels, max_pixels;
    float mean[3], std[3];
    double rescale;
    enum image_filter filter;
    int32_t image_token;
};

/* A picture cut into patches, in the order in which the tower takes them. */
struct patches {
    int32_t n, height, width; /* patches; of the picture's sides */
    int32_t numbers;          /* of a patch */
    float *pixels;            /* [n][numbers] */
    int32_t *cells;           /* [n / (merge * merge)] which token, counted row by row, comes as the i-th */
    int32_t *places;          /* [n][STEP_AXES] */
    int32_t *spans[2];        /* [n][2] all of the picture, and the window */
};

/* processor.c: from preprocessor_config.json. */
int processor_open(struct vision *v, const struct checkpoint *c, struct err *err);
int processor_cut(const struct vision *v, struct arena *a, const struct image *image, struct patches *out, struct err *err);

/* tower.c. */
int tower_bind(struct vision *v, const struct config_part *config, const struct tensor_store *store, struct err *err);
/* Emits the tower for the rows of the list; fills the merged rows of every set. */
void tower_forward(const struct vision *v, struct oplist *l, struct tensor *out_sets);
/* Rows of learned positions for these patches, [n][hidden]. */
void tower_positions(const struct vision *v, const struct patches *p, float *out);

#endif
