list(APPEND TEST_PROGRAMS "golden_tests=tests/golden/golden_main.c tests/golden/encoder.c tests/golden/figures.c tests/golden/router.c")
list(APPEND TEST_PROGRAMS "trace_tests=tests/golden/trace_main.c tests/golden/described.c")
list(APPEND TEST_PROGRAMS "spec_text=tests/golden/spec_main.c")
