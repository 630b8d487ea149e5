/* The unit test runner's contract.
 *
 * Each tests/unit/test_NAME.c defines `const struct unit_suite unit_NAME`, a table of cases; the build collects the
 * suites from tests/unit/sources.cmake. A case calls CHECK...; the first failed check ends the case, and one that checks
 * nothing has failed, too. A case that cannot run here calls unit_skip with the reason.
 */
#ifndef MLXCEL_TESTS_UNIT_H
#define MLXCEL_TESTS_UNIT_H

#include "base/str.h"

#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>

struct unit_case {
    const char *name;
    void (*run)(void);
};

struct unit_suite {
    const char *name;
    const struct unit_case *cases; /* ends with a zeroed one */
};

/* End the running case. In a thread that a case started, a failure ends the program: a case that failed there could not go on. */
_Noreturn void unit_fail(const char *file, int line, const char *fmt, ...) MLXCEL_PRINTF(3, 4);
_Noreturn void unit_skip(const char *fmt, ...) MLXCEL_PRINTF(1, 2);

/* What the runner does instead of its cases when one of them starts it as `unit_tests --child ...`; gets what follows,
 * gives the exit code. In test_os.c. */
int unit_child(int argc, char **argv);

/* The folder of large test material (MLXCEL_TEST_DATA, else ../shared beside the checkout), or NULL. */
const char *unit_data_dir(void);
struct unit_model {
    const char *name, *path;
    bool rope_by_length; /* its positions depend on the sequence's length */
};
/* The small models of the test material, without those whose weights are quantised. Returns how many; skips the case where there are none. */
size_t unit_golden_models(struct arena *a, struct unit_model **out);
/* The repository's own folder, for small fixtures under tests/. */
const char *unit_source_dir(void);
/* A fresh, empty folder for files that the case writes; removed at the end unless a case failed. */
const char *unit_scratch_dir(void);

extern _Atomic int64_t unit_n_checks; /* of the running case, in all threads */

#define CHECK(cond)                                              \
    do {                                                         \
        unit_n_checks++;                                         \
        if (!(cond)) unit_fail(__FILE__, __LINE__, "%s", #cond); \
    } while (0)
/* A check with words of its own, in the form of printf. */
#define FAIL_IF(cond, ...)                                    \
    do {                                                      \
        unit_n_checks++;                                      \
        if (cond) unit_fail(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)
#define CHECK_INT(got, want) unit_check_int(__FILE__, __LINE__, #got, (int64_t)(got), (int64_t)(want))
#define CHECK_STR(got, want) unit_check_str(__FILE__, __LINE__, #got, (got), (want))
#define CHECK_NEAR(got, want, tolerance) unit_check_near(__FILE__, __LINE__, #got, (got), (want), (tolerance))
/* The call must succeed; its message is shown when it does not. `err` must be the struct that the call fills. */
#define CHECK_OK(call, err_)                                                         \
    do {                                                                             \
        unit_n_checks++;                                                             \
        if ((call) != 0) unit_fail(__FILE__, __LINE__, "%s: %s", #call, (err_).msg); \
    } while (0)

void unit_check_int(const char *file, int line, const char *what, int64_t got, int64_t want);
void unit_check_str(const char *file, int line, const char *what, struct str got, struct str want);
void unit_check_near(const char *file, int line, const char *what, double got, double want, double tolerance);

#endif
