list(APPEND TEST_PROGRAMS "golden_tests=tests/golden/golden_main.c")
