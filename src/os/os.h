/* The operating system, as a contract: each function has two implementations in sibling files (X_posix.c, X_win32.c),
 * chosen by the build. This is the only folder that knows which system it is on. docs/os.md tells the rest; sockets and
 * event loops are libuv's.
 *
 * (1) Paths and arguments are UTF-8 with '/' or the system's separator; on Windows they are converted to wide
 *     characters with the \\?\ prefix, so that long names, spaces and any letters work. What this layer gives, and what
 *     os_path has made of somebody else's path, has '/' alone: paths are shown in one form.
 * (2) Failures say what was attempted on which path and the system's own reason; nobody above reads errno.
 * (3) Sizes and offsets are 64 bits wide.
 * (4) Safe from any thread, except where it says otherwise.
 */
#ifndef MLXCEL_OS_OS_H
#define MLXCEL_OS_OS_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- files ---------------------------------------------------------------------------------------------------- */

struct os_stat {
    uint64_t size;
    int64_t mtime_ns; /* since 1970 */
    bool is_dir, is_file;
};

enum os_open_mode {
    OS_READ,    /* regular files only, opened so that neither opening nor reading can wait for anybody */
    OS_INPUT,   /* what a user or the system offers to be read: pipes and devices, too */
    OS_WRITE,   /* create or truncate */
    OS_UPDATE,  /* create or keep; read and write */
    OS_PRIVATE, /* the same; what is created nobody else may read */
};

struct os_file; /* opened with delete-sharing on Windows: the file can be replaced while it is open */

int os_stat(const char *path, struct os_stat *out, struct err *err); /* ERR_ENOTFOUND when absent */
int os_file_open(const char *path, enum os_open_mode mode, struct os_file **out, struct err *err);
void os_file_close(struct os_file *f); /* NULL is fine */
int os_file_size(struct os_file *f, uint64_t *out, struct err *err);
/* Positioned: exactly n bytes or an error ("... ends at byte N"). Safe from several threads at once. */
int os_file_read_at(struct os_file *f, void *data, size_t n, uint64_t offset, struct err *err);
int os_file_write_at(struct os_file *f, const void *data, size_t n, uint64_t offset, struct err *err);
int os_file_sync(struct os_file *f, struct err *err);
int os_file_truncate(struct os_file *f, uint64_t size, struct err *err);
/* Exclusive advisory lock on the whole file, released on close; it binds every other opening of the file, also in this
 * process. With wait == false: ERR_EBUSY when somebody else holds it. */
int os_file_lock(struct os_file *f, bool wait, struct err *err);

/* A whole regular file into the arena, NUL after the end; max_bytes 0 means 1 GiB, more than that is ERR_ELIMIT. One that says it is empty
 * is not read: files that the kernel makes up say so and may wait for ever. */
int os_file_load(struct arena *a, const char *path, uint64_t max_bytes, struct str *out, struct err *err);
/* The same for what a user named on the command line, and for what the system tells in files: pipes such as <(command), devices, anything
 * until it ends. */
int os_input_load(struct arena *a, const char *path, uint64_t max_bytes, struct str *out, struct err *err);
/* Writes to a temporary name in the same folder, syncs, and renames over path. */
int os_file_save(const char *path, struct str data, struct err *err);

int os_rename(const char *from, const char *to, struct err *err); /* replaces `to` */
int os_remove(const char *path, struct err *err);                 /* a file, an empty folder, or a link itself */
int os_remove_tree(const char *path, struct err *err);            /* absent is fine; links are removed, never followed */
int os_make_dirs(const char *path, struct err *err);              /* with parents; existing is fine */
/* Names (not paths) in a folder, sorted by bytes, without "." and "..". */
int os_list_dir(struct arena *a, const char *path, struct str **out_names, size_t *out_n, struct err *err);
int os_disk_free(const char *path, uint64_t *out_bytes, struct err *err);
bool os_can_write(const char *dir); /* whether this process may make a file in a folder that exists */
/* A path that somebody wrote with the system's separators, with '/' between its parts: the form in which paths are joined and shown. */
char *os_path(struct arena *a, struct str path);
/* Large, aligned memory with a huge-page hint; zeroed. Fails politely. */
void *os_pages_alloc(size_t bytes, struct err *err);
void os_pages_free(void *p, size_t bytes);

/* Makes way for a socket of this path: one that nobody listens on any more is removed. An error where somebody does, where another kind of
 * file lies there, and on Windows, whose clients know none. */
int os_socket_file_clear(const char *path, struct err *err);
/* A socket of the system's own numbers, as its struct sockaddr has them; -1: none can be had. For who is called by a library that wants one. */
intptr_t os_socket_open(int family, int type, int protocol);
/* 4 or 6 for the system's number of IPv4 or IPv6; 0: another kind. */
int os_socket_family(int family);
/* The address in a struct sockaddr of this family: 4 bytes of IPv4, 16 of IPv6, in the order of the network; 0: it is of another kind. */
int os_socket_address(int family, const void *sockaddr, unsigned char out[16]);

/* ---- environment, identity ------------------------------------------------------------------------------------ */

const char *os_env(const char *name); /* NULL when unset or empty; UTF-8; valid until the next call for that name */
int os_process_id(void);
const char *os_home_dir(void);                      /* NULL when unknown */
const char *os_cache_root(void);                    /* ~/.cache or %LOCALAPPDATA%; NULL when unknown */
const char *os_state_root(void);                    /* ~/.local/state or %LOCALAPPDATA%; NULL when unknown */
const char *os_config_root(void);                   /* ~/.config or %APPDATA%; NULL when unknown */
void os_describe(struct arena *a, struct str *out); /* "Debian GNU/Linux 12, kernel 6.1" */

/* A string of the machine's part of the Windows registry (HKEY_LOCAL_MACHINE, 64-bit view); NULL when absent, and elsewhere. */
char *os_registry_string(struct arena *a, const char *key, const char *value);

/* argv as UTF-8, whatever the system passes to main, with a NULL after the last; returns how many there are. */
int os_args(struct arena *a, int argc, char **argv, char ***out_argv);

/* ---- memory and CPU ------------------------------------------------------------------------------------------- */

struct os_memory {
    uint64_t total, available; /* the smaller of the machine's and the control group's limits */
    uint64_t resident;         /* of this process */
};
void os_memory(struct os_memory *out);

int os_cpu_count(void);  /* usable by this process: affinity and control-group quota counted */
int os_core_count(void); /* physical cores among them */
const char *os_cpu_name(void);

/* ---- time ----------------------------------------------------------------------------------------------------- */

uint64_t os_clock_ns(void); /* monotonic */
uint64_t os_cpu_ns(void);   /* processor time that all threads of this process have used */
int64_t os_wall_ns(void);   /* since 1970 */
void os_sleep_ms(int ms);
/* Broken-down time of a wall clock value, for strftime. */
struct tm;
void os_local_time(int64_t wall_ns, struct tm *out);
void os_utc_time(int64_t wall_ns, struct tm *out);

/* ---- threads -------------------------------------------------------------------------------------------------- */

struct os_thread;
struct os_mutex;
struct os_cond;

int os_thread_start(struct os_thread **out, void (*run)(void *), void *user, const char *name, struct err *err);
void os_thread_join(struct os_thread *t);
void os_thread_yield(void);
struct os_mutex *os_mutex_create(void);
void os_mutex_destroy(struct os_mutex *m);
void os_mutex_lock(struct os_mutex *m);
void os_mutex_unlock(struct os_mutex *m);
struct os_cond *os_cond_create(void);
void os_cond_destroy(struct os_cond *c);
void os_cond_wait(struct os_cond *c, struct os_mutex *m);
bool os_cond_wait_ms(struct os_cond *c, struct os_mutex *m, int ms); /* false on time-out */
void os_cond_signal(struct os_cond *c);
void os_cond_broadcast(struct os_cond *c);
/* Sleep while *word == expected (futex / WaitOnAddress); may wake early. A negative time-out means none. Change the word
 * before os_wake_all. */
void os_wait_on(_Atomic uint32_t *word, uint32_t expected, int timeout_ms);
void os_wake_all(_Atomic uint32_t *word);

/* ---- processes ------------------------------------------------------------------------------------------------ */

struct os_run_result {
    int exit_code;  /* 128 + signal when it was killed; on Windows whatever the system says */
    struct str out; /* standard output */
    struct str err; /* standard error, captured apart from it */
};
/* Runs argv[0] (searched in PATH, never in the current folder; batch files are refused) to its end. dir NULL: here. env
 * NULL: inherited; else "NAME=value" additions. input may be empty. A program that cannot be started is an error that
 * names it. */
int os_run(struct arena *a, const char *const *argv, const char *dir, const char *const *env, struct str input, struct os_run_result *out,
           struct err *err);
char *os_find_program(struct arena *a, const char *name); /* in PATH; NULL when absent */
/* Ends this process at once, whatever its other threads do; nothing is put away but what stands on the terminal (os_on_end). */
void os_leave(int exit_code);

/* ---- dynamic libraries ---------------------------------------------------------------------------------------- */

struct os_dl;
enum os_dl_where { OS_DL_ANY, OS_DL_SYSTEM_ONLY /* Windows: System32 and nothing else */ };
int os_dl_open(const char *name, enum os_dl_where where, struct os_dl **out, struct err *err);
/* Copies the address into a function pointer of the caller's type; false when the name is absent. */
bool os_dl_symbol(struct os_dl *lib, const char *name, void *out_function_pointer);

/* ---- console -------------------------------------------------------------------------------------------------- */

enum os_stream { OS_STDIN, OS_STDOUT, OS_STDERR };

void os_console_init(void); /* UTF-8 output, once at start */
bool os_is_terminal(enum os_stream s);
bool os_has_color(enum os_stream s);  /* a terminal, NO_COLOR unset */
void os_no_color(void);               /* from here on none has */
bool os_has_screen(enum os_stream s); /* a terminal that is more than paper: lines can be as long as the window */
int os_console_width(void);           /* 80 when unknown */
int os_console_height(void);          /* 24 when unknown */
/* Writes all of it; consoles get wide characters on Windows, pipes raw UTF-8. A pipe that its reader
 * closed is ERR_ECANCELLED. */
int os_write(enum os_stream s, struct str text, struct err *err);
/* All of standard input. */
int os_read_stdin(struct arena *a, uint64_t max_bytes, struct str *out, struct err *err);
/* One line without its newline; *out_is_there is false at the end, and when an interrupt came. One thread reads standard input. */
int os_read_line(struct sb *out, bool *out_is_there, struct err *err);
/* Calls fn on Ctrl-C / termination, from a signal handler or a foreign thread: it may only set flags. NULL undoes it. */
void os_on_interrupt(void (*fn)(void));
/* Calls fn when os_leave, or an interrupt that nobody else takes, ends the program: it may only write, since it runs in a signal handler or
 * a foreign thread. NULL undoes it. What os_term_begin changed is put back without it. */
void os_on_end(void (*fn)(void));
/* SIGINT, SIGTERM or SIGHUP was ignored when the program began, and must stay so. */
bool os_signal_was_ignored(int number);
/* No interrupt reaches this thread, nor those that it starts from now on; until they are let through again. At the end of the program: one that comes now does
 * not change its exit code. */
void os_hold_interrupts(void);
void os_let_interrupts(void);

/* ---- keys and cursor, for the line editor --------------------------------------------------------------------- */

/* What os_term_key gives besides characters (Enter is 13, Ctrl-A 1, Backspace 8 or 127). */
enum os_key {
    OS_KEY_CLOSED = 0x200000,
    OS_KEY_LEFT,
    OS_KEY_RIGHT,
    OS_KEY_UP,
    OS_KEY_DOWN,
    OS_KEY_HOME,
    OS_KEY_END,
    OS_KEY_DELETE,
    OS_KEY_WORD_LEFT,
    OS_KEY_WORD_RIGHT,
    OS_KEY_PASTE_BEGIN, /* what comes until the end is pasted text, and no keys */
    OS_KEY_PASTE_END,
    OS_KEY_RESIZE, /* the window has another size now */
    OS_KEY_OTHER,  /* one without a meaning here */
};

/* Keys come one by one and are not shown, Ctrl-C among them, until os_term_end. Terminals that can are asked to mark pasted text. False
 * where standard input or output is no terminal, or one that cannot move its cursor. */
bool os_term_begin(void);
void os_term_end(void);
/* What is typed is not shown and waits for os_term_begin; Ctrl-C interrupts. Until os_term_end. */
void os_term_hush(void);
uint32_t os_term_key(void);   /* waits; a Unicode character or an os_key */
bool os_term_key_waits(void); /* a key can be read at once */
/* Moves the cursor so many rows up (below 0: down) and to this column. */
void os_term_move(int up, int column);
void os_term_clear_below(void); /* from the cursor to the end of the screen */

#endif
