/* How far a download is: one line that is drawn again on a terminal, a line now and then elsewhere. Standard error. */
#ifndef MLXCEL_HUB_METER_H
#define MLXCEL_HUB_METER_H

#include "base/str.h"

struct meter {
    uint64_t total, start_bytes; /* start_bytes: there before this download */
    uint64_t begin_ns, drawn_ns;
    double rate; /* bytes per second, smoothed */
    uint64_t rate_ns, rate_bytes;
    size_t n_columns; /* of the line that stands on the terminal; 0: none */
    bool is_terminal, quiet;
    int told_percent;
};

void meter_begin(struct meter *p, uint64_t total, uint64_t have, bool quiet);
void meter_update(struct meter *p, uint64_t have);
/* Takes the line off the terminal, so that something else can be printed. */
void meter_clear(struct meter *p);
void meter_end(struct meter *p, uint64_t have);

/* The line itself; width is the terminal's. */
void meter_line(struct sb *out, uint64_t have, uint64_t total, double rate, int width);
/* "18 s", "3:05", "1:02:30" */
const char *meter_time(double seconds, char out[32]);

#endif
