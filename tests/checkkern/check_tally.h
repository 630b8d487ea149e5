/* What checkkern --cpu counts: one for each kernel, format and level. A kernel is compared hundreds of times with a format; all of that is one
 * count, which fails when any comparison does. */
#ifndef MLXCEL_TESTS_CHECK_TALLY_H
#define MLXCEL_TESTS_CHECK_TALLY_H

#include <stdbool.h>

/* Comparisons from here on are of this level. `isa` is kept. */
void tally_begin(const char *isa);

/* One comparison of a kernel with a format ("": it knows none); the rest, as for printf, names the comparison when it fails. */
void tally_check(bool ok, const char *kernel, const char *format, const char *where, ...) __attribute__((format(printf, 4, 5)));

/* Ends the level and prints how it went. */
void tally_end(void);

/* Prints the last line of all levels and returns the exit status. */
int tally_finish(void);

#endif
