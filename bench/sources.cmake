# Programs that bench/*.py time; built with everything else, not installed.
list(APPEND TEST_PROGRAMS "bench_tokenizer=bench/bench_tokenizer.c")
list(APPEND TEST_PROGRAMS "bench_sampler=bench/bench_sampler.c")
