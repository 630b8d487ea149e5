/* checkkern --cpu: the innermost loops of every instruction set that this machine has. */
#ifndef MLXCEL_TESTS_CHECK_CPU_H
#define MLXCEL_TESTS_CHECK_CPU_H

#include "backend/cpu/kern.h"

/* Every level against the plain C kernels, on random and extreme inputs; timed: how fast each one is, too. Returns the
 * exit status. */
int check_cpu(const char *level, bool timed);

/* The part of it that is about plain weights. */
void check_cpu_plain(const struct kernels *k);
void time_cpu_plain(const struct kernels *k);
/* Prints the speed of products with 1 to 256 rows; a has everything but the rows. */
void time_panel_rows(const struct kernels *k, const char *name, struct panel_args a);
/* The part that is about a cache of 8 or 4 bits. */
void check_kv(const struct kernels *k, const struct kernels *plain);

#endif
