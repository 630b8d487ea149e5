/* Paths of the process, as libuv tells them. Apart from the tests, since its header brings every name of the system with it. */
#include "test_paths.h"

#include <uv.h>

static const char *ask(int (*get)(char *, size_t *), char path[TEST_PATH_MAX]) {
    size_t n = TEST_PATH_MAX;
    if (!path[0] && get(path, &n)) path[0] = 0;
    return path;
}

const char *test_exe_path(void) {
    static char path[TEST_PATH_MAX];
    return ask(uv_exepath, path);
}

const char *test_temp_dir(void) {
    static char path[TEST_PATH_MAX];
    return ask(uv_os_tmpdir, path);
}

const char *test_work_dir(void) {
    static char path[TEST_PATH_MAX];
    return ask(uv_cwd, path);
}
