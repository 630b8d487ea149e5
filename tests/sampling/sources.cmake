list(APPEND TEST_PROGRAMS "sampler_draws=tests/sampling/draws_main.c")
