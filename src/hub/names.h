/* Names from the command line and from the network: which are acceptable, which files a model needs. Strings only. */
#ifndef MLXCEL_HUB_NAMES_H
#define MLXCEL_HUB_NAMES_H

#include "base/str.h"

enum { REPO_NAME_BYTES = 200 };

struct repo_name {
    struct str owner, name;
    char id[REPO_NAME_BYTES]; /* "owner/name" */
    struct str variant;       /* of "owner/name:variant"; {NULL, 0}: none */
    char tag[64];             /* where that lies */
};

/* "OWNER/NAME", or a bare NAME of the default owner; ERR_EARG says what is wrong. The parts point into out->id. */
int repo_name_parse(struct str text, struct str default_owner, struct repo_name *out, struct err *err);
/* The same, or "OWNER/NAME:VARIANT": one of the GGUF files of a repository, such as Q4_K_M. */
int repo_name_parse_variant(struct str text, struct str default_owner, struct repo_name *out, struct err *err);
/* Whether a text could be meant as such a name, rather than as a path. */
bool repo_name_likely(struct str text);
/* An address from a browser: neither a name nor a path. */
bool repo_name_is_url(struct str text);

/* A file's name from the network that stays inside its folder on every system: relative, plain parts, none of them ours. */
bool hub_path_safe(struct str path);
/* What it takes to run a model: weights, configuration, tokenizer, templates; not the copies in other formats beside them. */
bool hub_file_wanted(struct str path);
/* Weights in a second layout that some repositories carry beside the model's own. */
bool hub_file_is_copy(struct str path);
/* A GGUF file with a model, or the first part of one. */
bool hub_file_is_gguf(struct str path);
/* Whether a GGUF file, or a part of one, is the variant: its name ends so, "model-Q4_K_M.gguf". */
bool hub_file_is_variant(struct str path, struct str variant);
/* The path of a GGUF file without ".gguf" and without the number of a part. */
struct str hub_gguf_stem(struct str path);
/* The part after the last separator of any system. */
struct str hub_last_part(struct str path);
bool hub_same_ignoring_case(struct str a, struct str b);

/* "1.23 GB", decimal as hubs and disks count. */
const char *hub_size_text(uint64_t bytes, char out[32]);

#endif
