/* How much of a model folder is read. SECURITY.md lists these limits with the others; tests/unit/test_limits.c holds them.
 *
 * Each is several times what the largest known model has. JSON takes up to eight times its length in memory while it is looked at. */
#ifndef MLXCEL_FILE_LIMITS_H
#define MLXCEL_FILE_LIMITS_H

enum {
    CONFIG_MAX_BYTES = 16 << 20,    /* config.json and every other side file but the two below */
    TOKENIZER_MAX_BYTES = 64 << 20, /* tokenizer.json, tokenizer.model, files of ranks */
    INDEX_MAX_BYTES = 64 << 20,     /* model.safetensors.index.json */
    SHARDS_MAX = 4096,              /* files that hold the weights of one model */
    CONFIG_KEYS_MAX = 4096,         /* keys of config.json and of each object in it that is searched for one key at a time */
    EOS_IDS_MAX = 1024,             /* ids in one eos_token_id */
    ST_DIMS_MAX = 64,               /* dimensions of one tensor */
    GGUF_HEADER_MAX = 256 << 20,    /* metadata and descriptions of tensors in one GGUF file */
    GGUF_KEYS_MAX = 1 << 16,        /* keys of its metadata */
    GGUF_TENSORS_MAX = 1 << 20,     /* tensors that it describes */
    ST_VALUES_MAX = 16 << 20,       /* numbers, names and brackets in the header of one safetensors file */
};

#endif
