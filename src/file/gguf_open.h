/* A model in GGUF files, for checkpoint.c. */
#ifndef MLXCEL_FILE_GGUF_OPEN_H
#define MLXCEL_FILE_GGUF_OPEN_H

#include "file/gguf_arch.h"

/* "NAME-00002-of-00005.gguf": NAME, and how many there are; false for other names. */
bool gguf_split_name(struct str name, struct str *out_stem, int64_t *out_n);
/* The name of part i of a model of which `name` is one part; *out_n: how many there are. A file that is no part is the only one. */
struct str gguf_part_name(struct arena *a, struct str name, size_t i_part, size_t *out_n);
/* The GGUF file of a folder; ERR_ENOTFOUND: none, ERR_EFORMAT: several. */
int gguf_find(struct arena *a, const char *dir, struct str *out, struct err *err);
/* Whether the parts say of themselves what their names do. */
int gguf_check_parts(const struct gguf_set *s, struct err *err);

/* Side files made of the metadata: config.json, tokenizer.json and those beside it. */
bool gguf_file_exists(const struct gguf_set *s, const char *name);
int gguf_file_make(struct arena *a, const struct gguf_set *s, const char *name, struct str *out, struct err *err);

/* gguf_tokenizer.c */
int gguf_tokenizer(const struct gguf *g, struct sb *out, struct err *err);
int gguf_tokenizer_config(const struct gguf *g, struct sb *out, struct err *err);
int gguf_generation_config(const struct gguf *g, struct sb *out, struct err *err);

#endif
