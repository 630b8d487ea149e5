list(APPEND TEST_PROGRAMS "draft_tests=tests/speculate/draft_main.c")
