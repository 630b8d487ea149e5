/* Keys one by one and the cursor on POSIX terminals: termios, and the escape sequences that every terminal of today knows. */
#include "os/os_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <termios.h>
#include <unistd.h>

enum { ESC = 27, ESC_WAIT_MS = 40 };

static struct termios cooked;
static volatile bool is_raw;

bool os_term_begin(void) {
    if (!os_is_terminal(OS_STDIN) || !os_is_terminal(OS_STDOUT) || os_term_is_dumb()) return false;
    if (tcgetattr(STDIN_FILENO, &cooked)) return false;
    struct termios raw = cooked;
    raw.c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
    raw.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    os_guard_terminal(true);
    is_raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    if (is_raw) os_write(OS_STDOUT, STR(OS_PASTE_ON), NULL);
    else os_guard_terminal(false);
    return is_raw;
}

/* Also from a signal handler. */
void os_term_end(void) {
    if (!is_raw) return;
    is_raw = false;
    os_write(OS_STDOUT, STR(OS_PASTE_OFF), NULL);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked);
    os_guard_terminal(false);
}

/* The next byte; -1 at the end, -2 when none comes in time. A negative time waits. */
static int next_byte(int wait_ms) {
    unsigned char c;
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    if (wait_ms >= 0 && poll(&p, 1, wait_ms) == 0) return -2;
    ssize_t n;
    do n = read(STDIN_FILENO, &c, 1);
    while (n < 0 && errno == EINTR);
    return n == 1 ? c : -1;
}

static int next_of_sequence(void) {
    return next_byte(ESC_WAIT_MS);
}

uint32_t os_term_key(void) {
    int first = next_byte(-1);
    char bytes[4] = {(char)first};
    uint32_t code;
    if (first < 0) return OS_KEY_CLOSED;
    if (first == ESC) return os_term_escape(next_of_sequence);
    if (first < 0x80) return (uint32_t)first;
    size_t n = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    for (size_t i = 1; i < n; i++) {
        int c = next_byte(ESC_WAIT_MS);
        if (c < 0) return UTF8_INVALID;
        bytes[i] = (char)c;
    }
    utf8_decode(bytes, n, &code);
    return code;
}

bool os_term_key_waits(void) {
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

void os_term_move(int up, int column) {
    char text[48];
    int n = snprintf(text, sizeof text, "\r");
    if (up) n += snprintf(text + n, sizeof text - (size_t)n, "\x1b[%d%c", up > 0 ? up : -up, up > 0 ? 'A' : 'B');
    if (column > 0) n += snprintf(text + n, sizeof text - (size_t)n, "\x1b[%dC", column);
    os_write(OS_STDOUT, str_n(text, (size_t)n), NULL);
}

void os_term_clear_below(void) {
    os_write(OS_STDOUT, STR("\x1b[J"), NULL);
}
