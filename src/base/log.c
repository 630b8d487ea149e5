/* Logging: one formatted line at a time, written by a single fwrite so that threads do not mix their lines. */
#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Atomic int level_limit = LOG_INFO;
static _Atomic bool colors;
static const char *_Atomic gap;
static log_sink_fn *sink_fn;
static void *sink_user;

void log_set_level(enum log_level level) {
    atomic_store(&level_limit, (int)level);
}

void log_set_color(bool has_color) {
    atomic_store(&colors, has_color);
}

void log_gap(const char *text) {
    atomic_store(&gap, text);
}

void log_set_sink(log_sink_fn *sink, void *user) {
    sink_fn = sink;
    sink_user = user;
}

/* Messages quote names from files and requests: whatever could start a new line or steer a terminal becomes '?'. */
static void make_printable(char *line) {
    for (; *line; line++)
        if (((unsigned char)*line < 0x20 && *line != '\t') || *line == 0x7F) *line = '?';
}

void log_line(enum log_level level, const char *fmt, ...) {
    static const char *const names[2][4] = {{"error: ", "warning: ", "", "debug: "},
                                            {"\x1b[1;31merror:\x1b[0m ", "\x1b[33mwarning:\x1b[0m ", "", "\x1b[2mdebug:\x1b[0m "}};
    if ((int)level > atomic_load(&level_limit)) return;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, args);
    va_end(args);
    if (n < 0) return;
    make_printable(line);
    const char *before = atomic_exchange(&gap, NULL);
    if (before) fwrite(before, 1, strlen(before), stderr);
    if (sink_fn) {
        sink_fn(level, line, sink_user);
        return;
    }
    char whole[1100];
    n = snprintf(whole, sizeof whole, "mlxcel: %s%s\n", names[atomic_load(&colors)][level], line);
    fwrite(whole, 1, (size_t)n, stderr);
}
