/* Shared by the Windows files of os/: the one place that includes windows.h, and conversions between UTF-8 and UTF-16.
 *
 * Text that is not valid UTF-8 or UTF-16 loses the bad parts to U+FFFD; a path that is not valid UTF-8 is refused. */
#ifndef MLXCEL_OS_WIN32_H
#define MLXCEL_OS_WIN32_H

#undef _WIN32_WINNT
#undef NTDDI_VERSION
#define _WIN32_WINNT 0x0A00
#define NTDDI_VERSION 0x0A000006
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include "os/os_internal.h"

/* On the heap, NUL at the end; freed by mem_free. */
wchar_t *win32_wide(struct str utf8, size_t *out_n);
void win32_put_utf8(struct sb *out, const wchar_t *text, size_t n);
char *win32_utf8(struct arena *a, const wchar_t *text); /* until NUL */

/* Absolute, with backslashes and the \\?\ prefix, which lifts the limit of 260 characters. NULL on failure. */
wchar_t *win32_path(const char *path, const char *verb, struct err *err);
/* Absolute without the prefix: for the few calls that do not know it. */
wchar_t *win32_plain_path(const char *path, const char *verb, struct err *err);

/* Whether a console understands escape sequences in what is written to it. */
bool win32_takes_sequences(enum os_stream s);

/* A function that older systems lack, from a library that is always loaded. */
bool win32_symbol(const wchar_t *module, const char *name, void *out_function_pointer);

#endif
