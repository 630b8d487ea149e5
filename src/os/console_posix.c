/* Standard input and output on POSIX systems, unbuffered by stdio. Input is read by one thread only. */
#include "os/os_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <unistd.h>

static char input[4096]; /* what was read from standard input and not yet given out */
static size_t i_input, n_input;
static void (*interrupt_fn)(void), (*end_fn)(void);
static bool terminal_is_changed, is_plain;
static _Atomic bool is_interrupted;
static const int interrupts[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_INTERRUPTS = sizeof interrupts / sizeof *interrupts };
static bool was_ignored[N_INTERRUPTS]; /* when we began: nohup and shells that start us in the background mean it */

/* A stream that was closed before we began keeps its number, or the next file would get it, and the log with it. What stands there cannot
 * be used in the stream's direction, so that using it is still an error. */
static void fill_closed_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
}

/* A closed pipe is reported by the write that met it, not by the end of the process. */
void os_console_init(void) {
    fill_closed_streams();
    for (int i = 0; i < N_INTERRUPTS; i++) {
        struct sigaction before;
        was_ignored[i] = sigaction(interrupts[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
    }
    signal(SIGPIPE, SIG_IGN);
}

bool os_is_terminal(enum os_stream s) {
    return isatty((int)s) == 1;
}

bool os_term_is_dumb(void) {
    const char *term = os_env("TERM");
    return !term || strcmp(term, "dumb") == 0;
}

bool os_has_color(enum os_stream s) {
    return !is_plain && os_is_terminal(s) && !os_env("NO_COLOR") && !os_term_is_dumb();
}

bool os_has_screen(enum os_stream s) {
    return os_is_terminal(s) && !os_term_is_dumb();
}

void os_no_color(void) {
    is_plain = true;
}

int os_console_width(void) {
    struct winsize size;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

int os_console_height(void) {
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

int os_write(enum os_stream s, struct str text, struct err *err) {
    static const char *const names[] = {"standard input", "standard output", "standard error"};
    while (text.n) {
        ssize_t n = write((int)s, text.p, text.n);
        if (n >= 0) {
            text = str_from(text, (size_t)n);
        } else if (errno == EAGAIN) {
            struct pollfd wait = {.fd = (int)s, .events = POLLOUT};
            poll(&wait, 1, -1);
        } else if (errno != EINTR) {
            return os_fail(err, errno, "write to", names[s]);
        }
    }
    return 0;
}

/* More bytes into `input`: none at the end or on an interrupt. */
static int input_fill(struct err *err) {
    ssize_t n;
    i_input = n_input = 0;
    while ((n = read(STDIN_FILENO, input, sizeof input)) < 0) {
        struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
        bool is_signal = errno == EINTR || (errno == EAGAIN && poll(&wait, 1, -1) < 0 && errno == EINTR);
        if (is_signal && atomic_exchange(&is_interrupted, false)) return 0;
        if (errno != EINTR && errno != EAGAIN) return os_fail(err, errno, "read", "standard input");
    }
    n_input = (size_t)n;
    return 0;
}

int os_read_stdin(struct arena *a, uint64_t max_bytes, struct str *out, struct err *err) {
    struct sb text = {0};
    int code = 0;
    do {
        sb_put(&text, str_n(input + i_input, n_input - i_input));
        if (text.n > max_bytes) code = err_set(err, ERR_ELIMIT, "standard input is longer than %llu bytes", (unsigned long long)max_bytes);
        if (code == 0) code = input_fill(err);
    } while (code == 0 && n_input);
    if (code == 0) *out = str_copy(a, sb_str(&text));
    sb_free(&text);
    return code;
}

int os_read_line(struct sb *out, bool *out_is_there, struct err *err) {
    sb_clear(out);
    for (;;) {
        if (i_input == n_input) TRY(input_fill(err));
        *out_is_there = out->n > 0 || n_input > 0;
        if (n_input == 0) return 0;
        struct str rest = str_n(input + i_input, n_input - i_input);
        size_t end = str_find_char(rest, '\n', 0);
        sb_put(out, str_sub(rest, 0, end));
        if (end == STR_NONE) {
            i_input = n_input;
            continue;
        }
        i_input += end + 1;
        if (out->n && out->p[out->n - 1] == '\r') out->p[--out->n] = 0;
        return 0;
    }
}

static void on_signal(int number) {
    (void)number;
    int saved = errno;
    atomic_store(&is_interrupted, true);
    if (interrupt_fn) interrupt_fn();
    errno = saved;
}

void os_put_away(void) {
    os_term_end();
    if (end_fn) end_fn();
}

/* The signal comes again when this returns, and then ends the program as if there had been no handler. */
static void on_last_signal(int number) {
    os_put_away();
    raise(number);
}

/* Without SA_RESTART: a wait for input ends when the user wants to leave. Handlers of others (an event loop's) are not ours to replace. */
static void set_handlers(bool replaces_others) {
    bool has_end = end_fn || terminal_is_changed;
    struct sigaction action = {.sa_handler = interrupt_fn ? on_signal : has_end ? on_last_signal : SIG_DFL}, now;
    if (action.sa_handler == on_last_signal) action.sa_flags = (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < N_INTERRUPTS; i++) {
        if (was_ignored[i] || sigaction(interrupts[i], NULL, &now)) continue;
        bool is_ours = now.sa_handler == SIG_DFL || now.sa_handler == on_signal || now.sa_handler == on_last_signal;
        if (is_ours || replaces_others) sigaction(interrupts[i], &action, NULL);
    }
}

void os_on_interrupt(void (*fn)(void)) {
    interrupt_fn = fn;
    set_handlers(true);
}

void os_on_end(void (*fn)(void)) {
    end_fn = fn;
    set_handlers(false);
}

void os_guard_terminal(bool is_changed) {
    terminal_is_changed = is_changed;
    set_handlers(false);
}

static void mask_interrupts(int how) {
    sigset_t held;
    sigemptyset(&held);
    for (int i = 0; i < N_INTERRUPTS; i++) sigaddset(&held, interrupts[i]);
    pthread_sigmask(how, &held, NULL); /* other threads do so from their beginning */
}

void os_hold_interrupts(void) {
    mask_interrupts(SIG_BLOCK);
}

void os_let_interrupts(void) {
    mask_interrupts(SIG_UNBLOCK);
}

bool os_signal_was_ignored(int number) {
    for (int i = 0; i < N_INTERRUPTS; i++)
        if (interrupts[i] == number) return was_ignored[i];
    return false;
}
