/* A progress bar on standard error, where that is a terminal; nothing elsewhere. It is no longer than a row of the terminal, and whatever
 * comes next takes it away: the end of the work, a line of the log, an error, an interrupt. */
#ifndef MLXCEL_CLI_PROGRESS_H
#define MLXCEL_CLI_PROGRESS_H

#include "base/str.h"

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

/* The bar itself, within so many columns. */
void progress_line(struct sb *out, const struct progress *p, uint64_t done, uint64_t total, double seconds, int width);

#endif
