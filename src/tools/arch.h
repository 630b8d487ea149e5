/* The model families that this program knows, for people. */
#ifndef MLXCEL_TOOLS_ARCH_H
#define MLXCEL_TOOLS_ARCH_H

#include "base/str.h"

struct arch {
    const char *model_type; /* as config.json names it */
    const char *title;      /* the models that have it */
};

size_t arch_count(void);
struct arch arch_get(size_t i);
/* What the row says of the architecture: "sliding and full attention, experts, norms before and after". */
void arch_describe(size_t i, struct sb *out);
/* docs/families.md. */
void arch_markdown(struct sb *out);

#endif
