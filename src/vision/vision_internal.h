/* What the files of src/vision share. */
#ifndef MLXCEL_VISION_VISION_INTERNAL_H
#define MLXCEL_VISION_VISION_INTERNAL_H

#include "vision/vision.h"

enum vision_resize {
    RESIZE_TO_AREA /* whole tokens, and an area between two limits */,
    RESIZE_TO_SQUARE /* whatever its sides */,
    RESIZE_AND_CROP /* the shorter side to a length, then the middle of it */,
    RESIZE_TO_FIT /* no side longer than a length, then whole tokens */,
    RESIZE_TO_BUDGET /* as many whole tokens as a picture may have */,
    RESIZE_AND_PAD /* never larger; so many patches at most, then black on the right and below to whole tokens */,
    TILES_BY_RATIO /* the grid of tiles whose sides differ most alike, and the whole behind them */,
    TILES_IF_LARGE /* likewise, but a picture that is small enough stays whole, by RESIZE_TO_AREA */,
    TILES_BY_LIST /* the whole, then tiles of the best of a list of sizes, the picture in the middle of it */,
    TILES_BY_SIDE /* the longest side to a length, then as many tiles as that takes, and the whole behind them */,
    TILES_ON_CANVAS /* the grid that a picture fits without much enlarging, black on the right and below; the whole behind it */,
};
enum vision_area {
    AREA_AS_IS,
    AREA_ONE_TOKEN /* a side rounds to one token at least */,
    AREA_WHOLE /* a side below one token's becomes that long first, the other one in proportion */,
    AREA_FRAMES /* likewise, cut to whole pixels; and limits count every frame */,
};
enum vision_rope {
    VISION_ROPE_NONE,
    VISION_ROPE_HALVES /* rows turn the first half of the pairs, columns the second, by the same frequencies */,
    VISION_ROPE_IN_TURN /* likewise, but frequencies are dealt to rows and columns in turn */,
    VISION_ROPE_APART /* columns turn the first half of a head, rows the second */,
    VISION_ROPE_PAIRS /* pairs of neighbours: columns turn the first half of them, rows the second */,
    VISION_ROPE_MIXED /* pairs of neighbours: columns and rows turn them in turn, by the same frequencies */,
};
enum vision_positions {
    POSITIONS_NONE,
    POSITIONS_STRETCHED /* a square table, stretched over the picture's patches corner to corner */,
    POSITIONS_SMOOTH /* likewise by cells, with a filter that widens where the table shrinks */,
    POSITIONS_CUBIC /* likewise by cells, through four of them */,
    POSITIONS_FIXED /* a row for each patch, behind that of the class token where there is one */,
    POSITIONS_BUCKETS /* the table's cell that a patch begins in */,
    POSITIONS_AXES /* a table of columns and one of rows */,
};

/* Names of tensors, with '|' between those that checkpoints use; '#' stands for the number of a block or a merger. */
struct vision_names {
    const char *patch, *positions;
    const char *class_row, *pre_norm, *post_norm;
    const char *norm1, *norm2, *qkv, *q, *k, *v, *out, *gate, *up, *down;
    const char *q_norm, *k_norm, *post1, *post2; /* norms of queries and keys, and behind both halves of a block */
    const char *scale1, *scale2;                 /* what both halves are multiplied by */
    const char *shift, *stretch;                 /* merged rows: (x - shift) * stretch */
    const char *merge_norm, *merge_join, *merge_in, *merge_mid_norm, *merge_mid, *merge_gate, *merge_up, *merge_out;
    const char *deep_norm, *deep_in, *deep_out;
    const char *newline;       /* a row behind each row of a picture's tokens */
    const char *gate1, *gate2; /* of both halves of a global block */
    const char *tile_before, *tile_positions,
        *tile_behind; /* tables by the arrangement of tiles: added to patches, to all rows, behind the first blocks */
    const char *tile_before_gate, *position_gate, *tile_behind_gate;
};

/* Keys of vision_config; a family without any has those that most have (tower.c). */
struct vision_keys {
    const char *hidden, *heads, *depth, *inner, *out;
    const char *more; /* global blocks */
};

/* Text around a picture's tokens, besides the tokens themselves. {r} and {c} stand for the row and the column of a tile, from 1. */
struct vision_words {
    const char *placeholder;   /* what the template writes, where it is not the token itself */
    const char *open, *close;  /* before and behind it all */
    const char *tile;          /* before a tile */
    const char *between;       /* behind every tile but a row's last */
    const char *tiles_end;     /* behind a row of tiles */
    const char *whole, *alone; /* before the whole picture beside tiles, and where there are none */
    const char *prompt_end;    /* at the end of a prompt with pictures */
    const char *row_end, *end; /* behind each row of tokens but the last, and behind that */
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
    float eps;       /* 0: 1e-6 */
    const char *act; /* of the feed-forward, where vision_config does not name it */
    bool is_gated;   /* the feed-forward */
    const char *
        global; /* before names of blocks behind the others; the tower sees all tiles at once, and the text model looks at its states (tiled.c) */
    bool has_windows; /* blocks see windows, but for those in fullatt_block_indexes */
    enum vision_positions positions;
    enum vision_rope rope;
    float rope_theta;          /* where vision_config does not name it */
    int32_t first_place;       /* number of the first row and column for rope */
    float score_scale;         /* 0: by the width of a head */
    bool norms_values;         /* values of a head, without a weight */
    bool is_class_last;        /* the class token stands behind the patches */
    bool has_colours_last;     /* columns of the patches' matrix count rows, columns, colours */
    bool has_positions_after;  /* positions are added behind the first norm */
    bool is_centred;           /* the model itself makes 2 x - 1 of pixels */
    bool merges_by_channel;    /* columns of merge_join count the patches of a token within each channel */
    bool is_out_transposed;    /* merge_out is stored [in, out] */
    bool pools;                /* a token is the mean of its patches */
    bool is_pool_scaled;       /* times the root of the tower's width */
    bool is_merge_norm_joined; /* the merger's norm is that of joined patches */
    bool is_merge_norm_bare;   /* it has no weight */
    struct norm_row_of_merger {
        enum norm_kind kind;
        float offset;
        float eps;         /* 0: the tower's */
        bool has_text_eps; /* the text model's */
    } merge_norm;
    const char *merge_key; /* patches of a token's side, or one over that; NULL: spatial_merge_size */
    const char *size_key;  /* where config.json has the tokens of a picture, whose root counts those of a side instead */
    struct vision_words words;
    const char *open_key, *close_key; /* where config.json has the ids of tokens around it */
    bool is_open_placeholder;         /* the first of them is the placeholder */
    enum vision_resize resize;
    enum vision_area area;
    bool is_torch;        /* resized with torchvision's arithmetic instead of Pillow's */
    bool is_bf16;         /* pixels are made in bf16 */
    bool has_places;      /* tokens lie in time, height and width */
    bool has_frames;      /* patches count frames, too: temporal_patch_size */
    bool sees_both_ways;  /* the text model's rows of one picture see each other */
    const char *sees_key; /* of text_config: they do where it is "vision" */
    bool adds_bos;        /* the first token of text comes before a prompt that has none, but behind pictures at its very beginning */
    bool is_prefix;       /* everything in the prompt sees everything, and the first token of text comes behind the pictures */
};
extern const struct vision_family vision_table[];
extern const int32_t vision_n_families;

/* '#' in a name stands for a number. Vectors have 0 rows. */
struct shape_tensor {
    const char *name;
    int64_t rows, columns;
};

struct tower_shape {
    const char *name, *config, *processor;
    const char *depth; /* what stands before the number of layers in config */
    int32_t text_hidden;
    struct shape_tensor tensors[24];
};
extern const struct tower_shape vision_shapes[];
extern const int32_t vision_n_shapes;

/* Limits of a product's input or output. */
struct tower_clip {
    struct weight *minus, *plus; /* the middle, off and on again; NULL: it is 0 */
    float half;                  /* 0: no limits */
};

struct tower_matrix {
    struct bound b;
    struct tower_clip before, after;
};

struct tower_block {
    struct bound norm1, norm2, post1, post2, q_norm, k_norm, scale1, scale2;
    struct tower_matrix qkv, k, v, out, gate, up, down; /* qkv holds queries alone where k is there */
    bool sees_all;
};

/* Joins patches and makes them as wide as the text model. */
struct tower_merger {
    struct bound norm, mid_norm, shift, stretch;
    struct tower_matrix join, in, mid, gate, up, out;
    bool norms_joined; /* the norm is that of joined patches */
};

/* What a tower that sees all tiles at once has beside others. Tables are multiplied by their gates. */
struct tower_tiled {
    int32_t n_global, tiles, cells;       /* blocks behind the others; tiles at most; rows of a tile, with its class token */
    int32_t (*ratios)[2], n_ratios;       /* arrangements of tiles, rows and columns, that tables have a row for, from 1 on */
    float *before, *positions, *behind;   /* [n_ratios + 1][tiles][hidden], [n_ratios + 1][tiles][cells][hidden], as the first */
    float before_gate, gate, behind_gate; /* behind their tanh */
};

struct tower_rope {
    struct weight *inv_freq;
    int8_t *axes;
    int32_t first, n;
};

enum {
    TOWER_LAYERS_MAX = 256,
    MERGERS_MAX = GIVEN_SETS,
    TAPS_MAX = 8,
    TILES_MAX = 256,
    ROPES_MAX = 2,
    POSITION_TAPS = 64 /* cells of a table that one patch is made of along a side */
};

struct vision {
    struct arena arena;
    const struct vision_family *family;
    yyjson_val *config; /* config.json, while it is opened */
    struct backend *backend;
    struct model_weights weights;
    /* the tower */
    int32_t hidden, heads, head, layers, inner, text_hidden; /* head: numbers of one */
    int32_t patch, frames, merge;   /* pixels of a patch's side, times that a picture counts, patches of a token's side */
    int32_t window;                 /* of blocks that see one: tokens of its side; 0: none do */
    int32_t taps[TAPS_MAX], n_taps; /* blocks behind which states are taken; several are put beside each other */
    struct bound pre_norm, post_norm;
    struct tower_matrix patches;
    float *class_row; /* [hidden] NULL: none */
    float *newline;   /* [text_hidden] NULL: none */
    float eps, merge_eps;
    int32_t open_token, close_token, bos_token; /* -1: none */
    struct tower_block *blocks;
    struct tower_merger mergers[MERGERS_MAX]; /* the last one's, then those behind blocks */
    int32_t n_mergers, deep_at[MERGERS_MAX];  /* block behind which each of the others reads */
    enum act_kind act, merge_act;
    bool is_quick_gelu;
    struct tower_rope ropes[ROPES_MAX];
    int32_t n_ropes;
    float *positions; /* [rows][hidden] */
    struct tower_tiled tiled;
    int32_t positions_side;
    /* the processor: sides in pixels, and counts */
    int32_t square, crop, longest, tile, min_tiles, max_tiles, max_tokens, max_patches;
    int32_t (*list)[2]; /* [n_list] heights and widths */
    int32_t n_list;
    double tolerance; /* how much larger than max_pixels a picture may be and stay whole */
    bool has_whole;   /* beside tiles */
    bool is_max_canvas;
    int64_t min_pixels, max_pixels;
    float mean[3], std[3];
    double rescale;
    enum image_filter filter;
    int32_t image_token;
    int32_t most_tiles; /* beyond which the tokens of a picture's tiles are shrunk; 0: never */
    bool sees_both_ways;
    int64_t seen[2]; /* by set of spans: rows that all rows of the last tile saw */
    float row_scale; /* of the text model's embeddings where it multiplies them, and what stands in their place, behind the embedding */
};

/* A picture as the tower takes it: whole, or as tiles that it sees one by one. */
struct tiles {
    struct image *images; /* [n], resized */
    int32_t n;
    int32_t rows, columns; /* of the tiles; 0: the picture is whole */
    bool is_whole_first;   /* where it stands beside them, else behind them */
    bool has_whole;
    int32_t height, width; /* of the picture as it came */
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
int processor_load(struct arena *a, const struct checkpoint *c, yyjson_val **out, struct err *err);
int processor_open(struct vision *v, yyjson_val *root, struct err *err);
int processor_cut(const struct vision *v, struct arena *a, const struct image *tile, struct patches *out, struct err *err);

/* tiles.c. */
int tiles_make(const struct vision *v, struct arena *a, const struct image *image, struct tiles *out, struct err *err);
void tiles_free(struct tiles *t);

/* layout.c: the rows of all tiles, in the order of the prompt, and the text between them. rows[i] are those of tile i, [n_tokens[i]][text_hidden]. */
struct tile_rows {
    float *rows[GIVEN_SETS];
    int32_t n, height, width; /* tokens */
};
int layout_rows(const struct vision *v, const struct tiles *t, const struct tile_rows *rows, struct vision_picture *out, struct err *err);

/* vision.c: the tower of a config, with the processor's own, or NULL: that of the checkpoint. */
struct vision_source {
    const struct config *config;
    const struct checkpoint *checkpoint; /* NULL: `processor` */
    yyjson_val *processor;
    const struct tensor_store *store;
    int32_t text_hidden;
};
int vision_open_source(const struct vision_source *source, struct backend *be, struct vision **out, struct err *err);

/* tiled.c: a picture through a tower that sees all its tiles at once; and its step. */
int tiled_open(struct vision *v, const struct config_part *config, struct err *err);
int32_t tiled_rows(const struct vision *v); /* of a step */
int tiled_encode(struct vision *v, const struct tiles *t, struct vision_picture *out, struct err *err);

/* vision.c: runs the tower over a step; the rows of every set can be read then. */
int vision_run(struct vision *v, const struct step *step, struct tensor *out_sets, struct err *err);

/* vision.c: what the files of a checkpoint say, without weights; its arena is the caller's to free. */
int vision_open_files(const struct checkpoint *c, int32_t text_hidden, struct vision *out, struct err *err);

/* tower.c: what vision_config says, then the weights. */
int tower_sizes(struct vision *v, const struct config_part *config, struct err *err);
int tower_bind(struct vision *v, const struct config_part *config, const struct tensor_store *store, struct err *err);
/* tower_forward.c: emits the tower for the rows of the list; fills the merged rows of every set. */
void tower_forward(const struct vision *v, struct oplist *l, struct tensor *out_sets);
/* tower_positions.c: rows of learned positions for these patches, [n][hidden], with the class token's. */
void tower_positions(const struct vision *v, const struct patches *p, float *out);

#endif
