/* Where a test program lies and where it may write, on any system. */
#ifndef MLXCEL_TESTS_TEST_PATHS_H
#define MLXCEL_TESTS_TEST_PATHS_H

enum { TEST_PATH_MAX = 4096 };

/* Absolute; "" where the system does not tell. */
const char *test_exe_path(void); /* this program */
const char *test_temp_dir(void); /* for files that nobody keeps */
const char *test_work_dir(void); /* where paths that are not absolute begin */

#endif
