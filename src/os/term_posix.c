/* Keys one by one and the cursor on POSIX terminals: termios, and the escape sequences that every terminal of today knows. */
#include "os/os_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <termios.h>
#include <unistd.h>

enum { ESC = 27, ESC_WAIT_MS = 40 };

static struct termios cooked;
static volatile bool is_raw, is_hushed; /* either: the terminal is not as it was, and `cooked` is how it was */
static int size_pipe[2] = {-1, -1};     /* a byte for each new size of the window: the signal may meet any thread */

static void on_resize(int number) {
    (void)number;
    int saved = errno;
    ssize_t n = write(size_pipe[1], "", 1);
    (void)n;
    errno = saved;
}

static void watch_size(void) {
    struct sigaction action = {.sa_handler = on_resize, .sa_flags = SA_RESTART};
    if (size_pipe[0] >= 0 || pipe(size_pipe)) return;
    for (int i = 0; i < 2; i++) {
        fcntl(size_pipe[i], F_SETFL, O_NONBLOCK);
        fcntl(size_pipe[i], F_SETFD, FD_CLOEXEC);
    }
    sigemptyset(&action.sa_mask);
    sigaction(SIGWINCH, &action, NULL);
}

/* Whether the window has another size than when this was last asked. */
static bool take_resize(void) {
    char bytes[64];
    return size_pipe[0] >= 0 && read(size_pipe[0], bytes, sizeof bytes) > 0;
}

static bool remember(void) {
    return is_raw || is_hushed || tcgetattr(STDIN_FILENO, &cooked) == 0;
}

void os_term_hush(void) {
    if (!os_is_terminal(OS_STDIN) || os_term_is_dumb() || !remember()) return;
    struct termios quiet = cooked;
    quiet.c_iflag &= ~(tcflag_t)ICRNL;
    quiet.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    quiet.c_lflag |= NOFLSH; /* Ctrl-C does not take what was typed before it */
    os_guard_terminal(true);
    is_hushed = tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet) == 0;
    if (!is_hushed) os_guard_terminal(false);
}

bool os_term_begin(void) {
    if (!os_is_terminal(OS_STDIN) || !os_is_terminal(OS_STDOUT) || os_term_is_dumb() || !remember()) return false;
    struct termios raw = cooked;
    raw.c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
    raw.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    os_guard_terminal(true);
    is_raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    if (is_raw) {
        os_write(OS_STDOUT, STR(OS_PASTE_ON), NULL);
        watch_size();
    } else {
        os_guard_terminal(false);
    }
    return is_raw;
}

/* Also from a signal handler. */
void os_term_end(void) {
    bool marks = is_raw;
    if (!is_raw && !is_hushed) return;
    is_raw = is_hushed = false;
    if (marks) os_write(OS_STDOUT, STR(OS_PASTE_OFF), NULL);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked);
    os_guard_terminal(false);
}

/* The next byte; -1 at the end, -2 when none comes in time, -3 when the window has another size. A negative time waits. */
static int next_byte(int wait_ms) {
    unsigned char c;
    struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = size_pipe[0], .events = POLLIN}};
    if (wait_ms >= 0 && poll(p, 1, wait_ms) == 0) return -2;
    if (wait_ms < 0) {
        while (poll(p, 2, -1) < 0 && errno == EINTR) continue; /* by the signal of a new size */
        if (take_resize()) return -3;                          /* before any key, also one that ended the poll before the signal was seen */
    }
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
    if (first == -3) return OS_KEY_RESIZE;
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
