list(APPEND TEST_PROGRAMS "draft_tests=tests/speculate/draft_main.c tests/speculate/draft_jobs.c")
list(APPEND TEST_PROGRAMS "head_tests=tests/speculate/head_main.c tests/speculate/draft_jobs.c tests/golden/figures.c")
