/* Ctrl-C while a command works: a flag that the work looks at now and then. Without it the program ends at once. */
#ifndef MLXCEL_CLI_INTERRUPT_H
#define MLXCEL_CLI_INTERRUPT_H

#include <stdatomic.h>
#include <stdbool.h>

/* From here on an interrupt sets the flag, which begins as false. */
_Atomic bool *interrupt_begin(void);
void interrupt_end(void);
bool interrupt_came(void); /* between begin and end, and after it */

#endif
