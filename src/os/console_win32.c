/* Standard input and output on Windows. Consoles speak UTF-16, pipes and files carry our UTF-8 bytes unchanged.
 * Input is read by one thread only. */
#include "os/win32.h"

#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef ENABLE_VIRTUAL_TERMINAL_PROCESSING
#define ENABLE_VIRTUAL_TERMINAL_PROCESSING 0x0004
#endif

enum { WRITE_PIECE = 8192, CTRL_Z = 26, CLOSE_GRACE_MS = 10000 };

static struct sb input; /* what was read from standard input and not yet given out, from i_input on */
static size_t i_input;
static wchar_t high_surrogate; /* half a character at the end of the last console read */
static void (*interrupt_fn)(void), (*end_fn)(void);
static bool terminal_is_changed;
static bool vt_works[3];
static UINT old_codepage;

static HANDLE stream_handle(enum os_stream s) {
    static const DWORD ids[] = {STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
    return GetStdHandle(ids[s]);
}

static void restore_codepage(void) {
    if (old_codepage) SetConsoleOutputCP(old_codepage);
}

/* Whether a console that takes the mode also knows sequences: Wine's takes it, and counts a sequence as text, so that lines break too early.
 * Tried on a screen that is never shown; one that does not move the cursor was understood. */
static bool knows_sequences(void) {
    HANDLE hidden = CreateConsoleScreenBuffer(GENERIC_READ | GENERIC_WRITE, 0, NULL, CONSOLE_TEXTMODE_BUFFER, NULL);
    if (hidden == INVALID_HANDLE_VALUE) return true;
    CONSOLE_SCREEN_BUFFER_INFO before, behind;
    DWORD mode, put;
    bool ok = GetConsoleMode(hidden, &mode) && SetConsoleMode(hidden, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    ok = ok && GetConsoleScreenBufferInfo(hidden, &before) && WriteConsoleW(hidden, L"\x1b[0m", 4, &put, NULL) &&
         GetConsoleScreenBufferInfo(hidden, &behind);
    CloseHandle(hidden);
    return ok && behind.dwCursorPosition.X == before.dwCursorPosition.X;
}

/* The code page serves what goes through stdio (log lines); it belongs to the console, so it is put back at the end. */
void os_console_init(void) {
    bool is_tried = false, knows = false;
    SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOOPENFILEERRORBOX);
    _setmode(_fileno(stdout), _O_BINARY);
    _setmode(_fileno(stderr), _O_BINARY);
    old_codepage = GetConsoleOutputCP();
    if (old_codepage && SetConsoleOutputCP(CP_UTF8)) atexit(restore_codepage);
    for (int s = OS_STDOUT; s <= OS_STDERR; s++) {
        HANDLE h = stream_handle((enum os_stream)s);
        DWORD mode;
        if (!GetConsoleMode(h, &mode)) continue;
        if (!is_tried) knows = knows_sequences();
        is_tried = true;
        vt_works[s] = knows && SetConsoleMode(h, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
}

bool os_is_terminal(enum os_stream s) {
    DWORD mode;
    return GetConsoleMode(stream_handle(s), &mode) != 0;
}

static bool is_plain;

bool os_has_color(enum os_stream s) {
    return !is_plain && os_is_terminal(s) && vt_works[s] && !os_env("NO_COLOR");
}

bool os_has_screen(enum os_stream s) {
    return os_is_terminal(s);
}

void os_no_color(void) {
    is_plain = true;
}

int os_console_width(void) {
    CONSOLE_SCREEN_BUFFER_INFO info;
    for (int s = OS_STDOUT; s <= OS_STDERR; s++)
        if (GetConsoleScreenBufferInfo(stream_handle((enum os_stream)s), &info)) {
            int width = info.srWindow.Right - info.srWindow.Left + 1;
            if (width > 0) return width;
        }
    return 80;
}

int os_console_height(void) {
    CONSOLE_SCREEN_BUFFER_INFO info;
    int height = GetConsoleScreenBufferInfo(stream_handle(OS_STDOUT), &info) ? info.srWindow.Bottom - info.srWindow.Top + 1 : 0;
    return height > 0 ? height : 24;
}

bool win32_takes_sequences(enum os_stream s) {
    return vt_works[s];
}

/* A piece that ends between characters. */
static DWORD write_console(HANDLE h, struct str text, size_t *out_n) {
    struct str piece = str_sub(text, 0, WRITE_PIECE);
    size_t whole = utf8_complete_prefix(piece);
    if (whole) piece.n = whole;
    size_t n;
    wchar_t *wide = win32_wide(piece, &n);
    DWORD reason = 0;
    for (size_t done = 0; done < n && !reason;) {
        DWORD put = 0;
        if (!WriteConsoleW(h, wide + done, (DWORD)(n - done), &put, NULL)) reason = GetLastError();
        done += put;
    }
    mem_free(wide);
    *out_n = piece.n;
    return reason;
}

static DWORD write_bytes(HANDLE h, struct str text, size_t *out_n) {
    DWORD put = 0, piece = (DWORD)(text.n > 1 << 20 ? 1 << 20 : text.n);
    BOOL ok = WriteFile(h, text.p, piece, &put, NULL);
    *out_n = put;
    return ok ? 0 : GetLastError();
}

int os_write(enum os_stream s, struct str text, struct err *err) {
    static const char *const names[] = {"standard input", "standard output", "standard error"};
    HANDLE h = stream_handle(s);
    bool is_console = os_is_terminal(s);
    if (!h || h == INVALID_HANDLE_VALUE) return os_fail_text(err, ERR_EIO, "write to", names[s], "it is not open");
    while (text.n) {
        size_t n = 0;
        DWORD reason = is_console ? write_console(h, text, &n) : write_bytes(h, text, &n);
        if (reason) return os_fail(err, (int)reason, "write to", names[s]);
        text = str_from(text, n);
    }
    return 0;
}

/* One read of a console, as UTF-8 into `input`. Ctrl-Z at the start of a line ends the input. */
static bool fill_from_console(HANDLE h) {
    wchar_t text[1026];
    DWORD n = 0;
    text[0] = high_surrogate;
    size_t kept = high_surrogate != 0;
    high_surrogate = 0;
    if (!ReadConsoleW(h, text + kept, 1024, &n, NULL) || n == 0 || text[kept] == CTRL_Z) return false;
    size_t total = kept + n;
    if (text[total - 1] >= 0xD800 && text[total - 1] < 0xDC00) high_surrogate = text[--total];
    for (size_t from = 0, i = 0; i <= total; i++) {
        if (i < total && text[i] != L'\r') continue;
        win32_put_utf8(&input, text + from, i - from);
        from = i + 1;
    }
    return true;
}

/* More bytes into `input`; false at the end, on an interrupt, or on failure, whose reason is in *out_reason. */
static bool input_fill(DWORD *out_reason) {
    HANDLE h = stream_handle(OS_STDIN);
    *out_reason = 0;
    sb_clear(&input);
    i_input = 0;
    if (!h || h == INVALID_HANDLE_VALUE) return false;
    if (os_is_terminal(OS_STDIN)) {
        do
            if (!fill_from_console(h)) return false;
        while (input.n == 0);
        return true;
    }
    DWORD n = 0;
    sb_reserve(&input, WRITE_PIECE);
    if (!ReadFile(h, input.p, WRITE_PIECE, &n, NULL)) {
        DWORD reason = GetLastError();
        if (reason != ERROR_BROKEN_PIPE && reason != ERROR_HANDLE_EOF) *out_reason = reason;
        return false;
    }
    input.n = n;
    return n > 0;
}

int os_read_stdin(struct arena *a, uint64_t max_bytes, struct str *out, struct err *err) {
    struct sb text = {0};
    int code = 0;
    DWORD reason = 0;
    do {
        sb_put(&text, str_from(sb_str(&input), i_input));
        if (text.n > max_bytes) code = err_set(err, ERR_ELIMIT, "standard input is longer than %llu bytes", (unsigned long long)max_bytes);
    } while (code == 0 && input_fill(&reason));
    if (reason) code = os_fail(err, (int)reason, "read", "standard input");
    if (code == 0) *out = str_copy(a, sb_str(&text));
    sb_free(&text);
    return code;
}

int os_read_line(struct sb *out, bool *out_is_there, struct err *err) {
    DWORD reason = 0;
    sb_clear(out);
    for (;;) {
        bool is_more = i_input < input.n || input_fill(&reason);
        if (reason) return os_fail(err, (int)reason, "read", "standard input");
        *out_is_there = out->n > 0 || is_more;
        if (!is_more) return 0;
        struct str rest = str_from(sb_str(&input), i_input);
        size_t end = str_find_char(rest, '\n', 0);
        sb_put(out, str_sub(rest, 0, end));
        if (end == STR_NONE) {
            i_input = input.n;
            continue;
        }
        i_input += end + 1;
        if (out->n && out->p[out->n - 1] == '\r') out->p[--out->n] = 0;
        return 0;
    }
}

void os_put_away(void) {
    os_term_end();
    if (end_fn) end_fn();
}

/* Runs in a thread of its own. After a close event the process ends when this returns: leave time to clean up. */
static BOOL WINAPI on_control(DWORD type) {
    if (!interrupt_fn) {
        os_put_away();
        return FALSE; /* the next handler, or the end */
    }
    interrupt_fn();
    if (type != CTRL_C_EVENT && type != CTRL_BREAK_EVENT) Sleep(CLOSE_GRACE_MS);
    return TRUE;
}

static void set_handler(void) {
    SetConsoleCtrlHandler(on_control, FALSE); /* never twice in the list */
    if (interrupt_fn || end_fn || terminal_is_changed) SetConsoleCtrlHandler(on_control, TRUE);
}

void os_on_interrupt(void (*fn)(void)) {
    interrupt_fn = fn;
    set_handler();
}

void os_on_end(void (*fn)(void)) {
    end_fn = fn;
    set_handler();
}

void os_guard_terminal(bool is_changed) {
    terminal_is_changed = is_changed;
    set_handler();
}

/* Those that were taken are over, and the next one ends the program as it would any other. */
void os_hold_interrupts(void) {}

void os_let_interrupts(void) {}

bool os_signal_was_ignored(int number) {
    (void)number;
    return false;
}
