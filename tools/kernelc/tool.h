/* Running other people's programs so that a failure always explains itself.
 *
 * The classic failure of build scripts is an empty message: the compiler wrote its words to the stream nobody kept. Here every
 * program runs with both streams captured apart, and an explanation shows command, exit code and all that was said. */
#ifndef KERNELC_TOOL_H
#define KERNELC_TOOL_H

#include "base/str.h"
#include "os/os.h"

enum { MAX_ARGS = 64 };

/* An argument list that grows; NULL at the end. */
struct args_list {
    const char *v[MAX_ARGS + 1];
    int n;
};
void args_add(struct args_list *args, const char *arg);

/* As it would be typed: words with blanks or quotes are quoted. */
void tool_put_command(struct sb *out, const char *const *argv);
/* "exit code 3", "ended by signal 11 (exit code 139)", "crashed (exit code 0xC0000005)" */
void tool_put_exit(struct sb *out, int exit_code);
/* Command, exit code, both streams ("nothing" where one is empty), and what is known about such words. */
void tool_explain(struct sb *out, const char *const *argv, const struct os_run_result *result);

/* The first line of text that is not blank. */
struct str first_line(struct str text);
/* Path pieces joined by '/'. */
char *path_join(struct arena *a, const char *folder, const char *name);
/* The folder of a path; "." when it has none. */
char *path_parent(struct arena *a, const char *path);

void say(const char *fmt, ...) MLXCEL_PRINTF(1, 2);      /* one line to standard output */
void complain(const char *fmt, ...) MLXCEL_PRINTF(1, 2); /* one line to standard error */

#endif
