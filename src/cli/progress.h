/* A progress bar on standard error, where that is a terminal; nothing elsewhere. */
#ifndef MLXCEL_CLI_PROGRESS_H
#define MLXCEL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *unit; /* of the amounts; NULL: bytes */
    uint64_t start_ns, last_ns;
    bool shown;
};

/* Draws at most ten times a second. */
void progress_show(struct progress *p, uint64_t done, uint64_t total);
/* A prompt that is being read, in tokens. A short one is not worth a bar. */
void progress_prompt(struct progress *p, int32_t done, int32_t total);
void progress_end(struct progress *p); /* takes the bar away */

#endif
