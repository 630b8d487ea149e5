/* What a GGUF file of an architecture says in the words of config.json and of tensors as Hugging Face names them.
 *
 * Keys and names that mean the same everywhere are in gguf_config.c and gguf_names.c. A row has what is particular to an architecture. The
 * rows name families, so they stand in src/model/families.c with all others that do.
 */
#ifndef MLXCEL_FILE_GGUF_ARCH_H
#define MLXCEL_FILE_GGUF_ARCH_H

#include "file/gguf.h"

/* A key or a name as the file has it, and as we do. A key of ours that is NULL has no meaning here; a key of theirs may stand for several. */
struct gguf_word {
    const char *theirs, *ours;
};

enum gguf_flag {
    GGUF_PAIRED = 1 << 0,         /* rows of queries and keys lie in pairs: those of the two halves of a head by turns */
    GGUF_NORMS_PLUS_ONE = 1 << 1, /* norms' weights have the 1 that is added elsewhere here */
    GGUF_SPLIT_QKV = 1 << 2,      /* the fused projection is q, k, v one behind the other, and the family has it otherwise */
    GGUF_UP_IS_BOTH = 1 << 3,     /* ffn_up holds gate and up */
    GGUF_YARN_UNCUT = 1 << 4,     /* the ends of a yarn ramp are not rounded */
    GGUF_WRITTEN = 1 << 5,        /* such files are written, too */
};

struct gguf_arch {
    const char *name;                       /* general.architecture */
    const char *type;                       /* model_type */
    const char *also;                       /* another one that is written as this; NULL: none */
    const char *moe_type, *moe_ffn;         /* where the file has experts; NULL: type, ffn */
    const char *sigmoid_type;               /* where their scores are sigmoids; NULL: the same */
    const char *root, *layers, *attn, *ffn; /* of names; NULL: "model.", "layers", "self_attn", "mlp" */
    const struct gguf_word *keys, *names;   /* end with {NULL, NULL}; NULL: none */
    const char *config;                     /* members of config.json that files do not say; NULL: none */
    int32_t depth_with_own_scale;           /* with so many layers query_pre_attn_scalar is embedding_length / head_count; 0: never */
    uint32_t flags;
};

extern const struct gguf_arch gguf_arch_table[];
extern const int32_t gguf_arch_count;

/* What cuts a text before byte-level BPE, by tokenizer.ggml.pre: parts of a tokenizer.json. */
struct gguf_pre {
    const char *name;
    const char *parts;      /* pre_tokenizer */
    const char *normalizer; /* NULL: none */
    bool ignores_merges;    /* words that are tokens are taken as such */
    bool adds_bos;          /* where the file does not say */
};
extern const struct gguf_pre gguf_arch_pres[]; /* ends with a NULL name */

/* tokenizer.ggml.model: byte-level BPE, pieces of SentencePiece, WordPiece, and pieces of which a text has the likeliest. */
enum gguf_vocab { GGUF_BYTES, GGUF_PIECES, GGUF_WORDS, GGUF_UNIGRAM, N_GGUF_VOCABS };
extern const char *const gguf_arch_vocabs[N_GGUF_VOCABS];

/* The row of the file's architecture. */
int gguf_arch_of(const struct gguf *g, const struct gguf_arch **out, struct err *err);
/* The value of "ARCHITECTURE.key". */
const struct gguf_value *gguf_arch_get(const struct gguf *g, const struct gguf_arch *arch, const char *key);

/* All parts of a model, the one with the metadata first. */
struct gguf_set {
    const struct gguf_arch *arch;
    struct gguf *parts;
    size_t n_parts;
    struct str config; /* config.json */
    bool has_experts;
};

/* gguf_config.c: config.json. */
int gguf_config(struct arena *a, struct gguf_set *s, struct err *err);
const struct gguf_tensor *gguf_find_tensor(const struct gguf_set *s, struct str name, const struct gguf **out_part);

/* gguf_names.c: a tensor's name here. */
struct str gguf_our_name(struct arena *a, const struct gguf_set *s, struct str name);
/* The other way: their names, as C strings, by ours. */
void gguf_their_names(struct arena *a, const struct gguf_set *s, int64_t n_layers, struct map *out);

/* gguf_view.c: the tensors of one part as if a safetensors file held them, packed ones as values, scales and biases. Their formats are
 * added to `formats` by path. */
int gguf_view(struct arena *a, const struct gguf_set *s, size_t part, struct map *formats, struct safetensors *out, struct err *err);

#endif
