/* The families' table, without what only the forward pass needs. */
#include "api/arch.h"

#include "model/families.h"

size_t arch_count(void) {
    return (size_t)n_families;
}

struct arch arch_get(size_t i) {
    return (struct arch){families[i].type, families[i].title};
}
