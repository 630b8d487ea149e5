/* Drawing progress. The rate is a moving mean over a few seconds, so that the time left neither jumps nor lags. */
#include "hub/meter.h"

#include "base/log.h"
#include "hub/names.h"
#include "os/os.h"

#include <stdio.h>

enum { BAR_MOST = 30, DRAW_MS = 100, TELL_S = 10 };

const char *meter_time(double seconds, char out[32]) {
    if (!(seconds >= 0 && seconds < 1e6)) snprintf(out, 32, "?");
    else if (seconds < 100) snprintf(out, 32, "%.0f s", seconds);
    else if (seconds < 3600) snprintf(out, 32, "%d:%02d", (int)seconds / 60, (int)seconds % 60);
    else snprintf(out, 32, "%d:%02d:%02d", (int)seconds / 3600, (int)seconds / 60 % 60, (int)seconds % 60);
    return out;
}

void meter_line(struct sb *out, uint64_t have, uint64_t total, double rate, int width) {
    char a[32], b[32], c[32], d[32];
    double share = total ? (double)have / (double)total : 1;
    struct sb tail = {0};
    sb_fmt(&tail, " %s of %s", hub_size_text(have, a), hub_size_text(total, b));
    if (rate > 0) sb_fmt(&tail, ", %s/s, %s left", hub_size_text((uint64_t)rate, c), meter_time((double)(total - have) / rate, d));
    sb_fmt(out, "%3d %%", (int)(share * 100));
    int room = width - 8 - (int)tail.n;
    if (room > BAR_MOST) room = BAR_MOST;
    if (room >= 5) {
        sb_puts(out, " [");
        for (int i = 0; i < room - 2; i++) sb_putc(out, i < (int)(share * (room - 2)) ? '#' : '.');
        sb_putc(out, ']');
    }
    sb_put(out, sb_str(&tail));
    sb_free(&tail);
}

static void draw(struct meter *p, uint64_t have) {
    struct sb line = {0};
    size_t width = (size_t)os_console_width();
    sb_putc(&line, '\r');
    meter_line(&line, have, p->total, p->rate, (int)width - 1);
    if (line.n > width) line.n = width; /* what runs over into the next row would stay there */
    size_t n = line.n - 1;
    for (size_t i = n; i < p->n_columns; i++) sb_putc(&line, ' ');
    p->n_columns = n;
    os_write(OS_STDERR, sb_str(&line), NULL);
    sb_free(&line);
}

static void tell(struct meter *p, uint64_t have) {
    struct sb line = {0};
    meter_line(&line, have, p->total, p->rate, 0);
    log_info("%s", line.p);
    sb_free(&line);
}

void meter_begin(struct meter *p, uint64_t total, uint64_t have, bool quiet) {
    *p = (struct meter){.total = total, .start_bytes = have, .begin_ns = os_clock_ns(), .quiet = quiet, .rate_bytes = have};
    p->is_terminal = os_is_terminal(OS_STDERR);
    p->rate_ns = p->drawn_ns = p->begin_ns;
    p->told_percent = total ? (int)(have * 100.0 / (double)total) : 0;
}

static void measure(struct meter *p, uint64_t now, uint64_t have) {
    double seconds = (double)(now - p->rate_ns) * 1e-9;
    if (seconds < 0.5) return;
    double rate = have > p->rate_bytes ? (double)(have - p->rate_bytes) / seconds : 0;
    double keep = p->rate > 0 ? 1 / (1 + seconds / 3) : 0;
    p->rate = p->rate * keep + rate * (1 - keep);
    p->rate_ns = now;
    p->rate_bytes = have;
}

void meter_update(struct meter *p, uint64_t have) {
    uint64_t now = os_clock_ns();
    if (p->quiet) return;
    measure(p, now, have);
    if (p->is_terminal) {
        if (now - p->drawn_ns < DRAW_MS * UINT64_C(1000000)) return;
        draw(p, have);
        p->drawn_ns = now;
        return;
    }
    int percent = p->total ? (int)((double)have * 100 / (double)p->total) : 100;
    bool is_tenth = percent / 10 > p->told_percent / 10 && now - p->drawn_ns > UINT64_C(1000000000);
    if (!is_tenth && now - p->drawn_ns < TELL_S * UINT64_C(1000000000)) return;
    tell(p, have);
    p->told_percent = percent;
    p->drawn_ns = now;
}

void meter_clear(struct meter *p) {
    struct sb line = {0};
    if (!p->n_columns) return;
    sb_putc(&line, '\r');
    for (size_t i = 0; i < p->n_columns; i++) sb_putc(&line, ' ');
    sb_putc(&line, '\r');
    os_write(OS_STDERR, sb_str(&line), NULL);
    sb_free(&line);
    p->n_columns = 0;
}

void meter_end(struct meter *p, uint64_t have) {
    if (!p->quiet && p->is_terminal && p->n_columns) draw(p, have);
    if (p->n_columns) os_write(OS_STDERR, STR("\n"), NULL);
    p->n_columns = 0;
}
