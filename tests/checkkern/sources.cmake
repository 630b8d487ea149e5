list(APPEND TEST_PROGRAMS "checkkern=tests/checkkern/checkkern_main.c tests/checkkern/check_cuda.c tests/checkkern/check_cases.c tests/checkkern/check_shapes.c tests/checkkern/check_cpu.c")
