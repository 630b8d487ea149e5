/* What the files of os/ share with one another and with nobody else. */
#ifndef MLXCEL_OS_INTERNAL_H
#define MLXCEL_OS_INTERNAL_H

#include "os/os.h"

/* "cannot VERB PATH: reason". A long path loses its front, so that the reason always fits. path may be NULL. */
int os_fail_text(struct err *err, int code, const char *verb, const char *path, const char *reason);

/* The same with the system's reason: errno here, GetLastError() on Windows. Gives the code that fits the reason. */
int os_fail(struct err *err, int system_code, const char *verb, const char *path);

/* "cannot open PATH: ..." for what is neither a file nor a folder. */
int os_fail_special(struct err *err, const char *path);

const char *os_file_path(const struct os_file *f);
/* Offsets are signed in both systems. */
int os_file_check_range(const struct os_file *f, size_t n, uint64_t offset, struct err *err);

/* Up to n bytes from offset; fewer only at the end. On something that cannot seek (a pipe), the next bytes. */
int os_file_read_some(struct os_file *f, void *data, size_t n, uint64_t offset, size_t *out_n, struct err *err);

/* What a terminal has asked for to mark pasted text, and no more. */
#define OS_PASTE_ON "\x1b[?2004h"
#define OS_PASTE_OFF "\x1b[?2004l"
/* The key whose sequence begins with the ESC that was read. next: the next character, below 0 when none comes in time. */
uint32_t os_term_escape(int (*next)(void));

/* TERM says that escape sequences would be shown as they are; of the POSIX files. */
bool os_term_is_dumb(void);

/* For the end of the program: the terminal as it was, then the function of os_on_end. */
void os_put_away(void);
/* Whether an interrupt has a terminal to put back; of os_term_begin and os_term_end. */
void os_guard_terminal(bool is_changed);

/* Makes a rename in this file's folder durable where the system needs to be told. */
void os_dir_sync_of(const char *path);

/* A list of names that grows on the heap; os_list_dir copies it into the arena. */
struct os_names {
    struct str *items;
    size_t n, capacity;
};
void os_names_add(struct os_names *list, struct str name); /* name is copied */
void os_names_free(struct os_names *list);
/* Moves the sorted names into the arena and frees the list. */
void os_names_take(struct arena *a, struct os_names *list, struct str **out_names, size_t *out_n);

#endif
