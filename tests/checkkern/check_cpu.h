/* checkkern --cpu: the innermost loops of every instruction set that this machine has. */
#ifndef MLXCEL_TESTS_CHECK_CPU_H
#define MLXCEL_TESTS_CHECK_CPU_H

#include <stdbool.h>

/* Every level against the plain C kernels, on random and extreme inputs; timed: how fast each one is, too. Returns the
 * exit status. */
int check_cpu(const char *level, bool timed);

#endif
