/* The progress bar: share, bar, amount, time that is left. */
#include "cli/progress.h"

#include "os/os.h"

enum { BAR = 30, PAUSE_NS = 100 * 1000 * 1000, PROMPT_SHORT = 512 };

void progress_show(struct progress *p, uint64_t done, uint64_t total) {
    uint64_t now = os_clock_ns();
    if (!os_is_terminal(OS_STDERR)) return;
    if (p->start_ns == 0) p->start_ns = now;
    if (p->shown && now - p->last_ns < PAUSE_NS && done < total) return;
    double share = total ? (double)done / (double)total : 1, seconds = (double)(now - p->start_ns) * 1e-9;
    struct sb line = {0};
    sb_fmt(&line, "\r%3.0f%% [", 100 * share);
    for (int i = 0; i < BAR; i++) sb_putc(&line, i < (int)(share * BAR) ? '#' : '.');
    if (p->unit) sb_fmt(&line, "] %llu of %llu %s", (unsigned long long)done, (unsigned long long)total, p->unit);
    else sb_fmt(&line, "] %.2f of %.2f GB", (double)done * 1e-9, (double)total * 1e-9);
    if (seconds > 1 && share > 0.01) sb_fmt(&line, ", %.0f s left  ", seconds / share * (1 - share));
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
    struct sb line = {0};
    p->start_ns = 0;
    if (!p->shown) return;
    sb_fmt(&line, "\r%*s\r", os_console_width() - 1, "");
    os_write(OS_STDERR, sb_str(&line), NULL);
    sb_free(&line);
    p->shown = false;
}
