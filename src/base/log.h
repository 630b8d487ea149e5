/* Logging: lines to stderr (or a sink that the server installs). Prompts, keys and tokens never go here.
 * Control characters in a message are replaced, so that a quoted name cannot forge a line. */
#ifndef MLXCEL_BASE_LOG_H
#define MLXCEL_BASE_LOG_H

#include "base/err.h"

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* A sink gets one line without its newline; it may be called from any thread. */
typedef void log_sink_fn(enum log_level level, const char *line, void *user);

void log_set_level(enum log_level level);
void log_set_color(bool has_color);               /* the words error and warning stand out */
void log_set_sink(log_sink_fn *sink, void *user); /* NULL: back to stderr */
/* What stands on the terminal that the log goes to, too: the text that must be written before the next line of the log, such as a newline
 * after half a line of an answer, or what takes a progress bar away. It is written once, and stays the caller's; NULL: nothing. */
void log_gap(const char *text);
void log_line(enum log_level level, const char *fmt, ...) MLXCEL_PRINTF(2, 3);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
