/* A progress bar on standard error, where that is a terminal; nothing elsewhere. */
#ifndef MLXCEL_CLI_PROGRESS_H
#define MLXCEL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    uint64_t start_ns, last_ns;
    bool shown;
};

/* Draws at most ten times a second. Amounts are bytes. */
void progress_show(struct progress *p, uint64_t done, uint64_t total);
void progress_end(struct progress *p); /* takes the bar away */

#endif
