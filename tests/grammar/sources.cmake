list(APPEND TEST_PROGRAMS "grammar_walk=tests/grammar/walk_main.c tests/grammar/complete.c")
