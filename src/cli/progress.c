/* The progress bar: share, bar, amount, time that is left. */
#include "cli/progress.h"

#include "base/log.h"
#include "os/os.h"

enum { BAR = 30, BAR_LEAST = 5, PAUSE_NS = 100 * 1000 * 1000, PROMPT_SHORT = 512, COLUMNS_MAX = 500 };

/* Takes whatever bar there is away. Kept here for those who cannot ask: a signal handler, the log. */
static char wipe[COLUMNS_MAX + 3];

static void take_away(void) {
    os_write(OS_STDERR, str_of(wipe), NULL);
}

void progress_line(struct sb *out, const struct progress *p, uint64_t done, uint64_t total, double seconds, int width) {
    double share = total ? (double)done / (double)total : 1;
    struct sb tail = {0};
    if (p->unit) sb_fmt(&tail, " %llu of %llu %s", (unsigned long long)done, (unsigned long long)total, p->unit);
    else sb_fmt(&tail, " %.2f of %.2f GB", (double)done * 1e-9, (double)total * 1e-9);
    if (seconds > 1 && share > 0.01) sb_fmt(&tail, ", %.0f s left", seconds / share * (1 - share));
    size_t start = out->n;
    sb_fmt(out, "%3.0f%%", 100 * share);
    int room = width - (int)(out->n - start) - 3 - (int)tail.n; /* a blank and two brackets */
    if (room > BAR) room = BAR;
    if (room >= BAR_LEAST) {
        sb_puts(out, " [");
        for (int i = 0; i < room; i++) sb_putc(out, i < (int)(share * room) ? '#' : '.');
        sb_putc(out, ']');
    }
    sb_put(out, sb_str(&tail));
    if ((int)(out->n - start) > width) {
        out->n = start + (size_t)(width > 0 ? width : 0);
        out->p[out->n] = 0;
    }
    sb_free(&tail);
}

void progress_show(struct progress *p, uint64_t done, uint64_t total) {
    uint64_t now = os_clock_ns();
    if (!os_is_terminal(OS_STDERR)) return;
    if (p->start_ns == 0) p->start_ns = now;
    if (p->shown && now - p->last_ns < PAUSE_NS && done < total) return;
    int width = os_console_width() - 1;
    if (width > COLUMNS_MAX) width = COLUMNS_MAX;
    struct sb line = {0};
    sb_putc(&line, '\r');
    progress_line(&line, p, done, total, (double)(now - p->start_ns) * 1e-9, width);
    while ((int)line.n - 1 < width) sb_putc(&line, ' ');
    memset(wipe + 1, ' ', (size_t)width);
    wipe[0] = wipe[width + 1] = '\r';
    wipe[width + 2] = 0;
    os_on_end(take_away);
    log_gap(wipe);
    os_write(OS_STDERR, sb_str(&line), NULL);
    sb_free(&line);
    p->last_ns = now;
    p->shown = true;
}

void progress_prompt(struct progress *p, int32_t done, int32_t total) {
    if (total <= PROMPT_SHORT) return;
    p->unit = "tokens of the prompt";
    progress_show(p, (uint64_t)done, (uint64_t)total);
}

void progress_end(struct progress *p) {
    p->start_ns = 0;
    if (!p->shown) return;
    p->shown = false;
    take_away();
    os_on_end(NULL);
    log_gap(NULL);
}
