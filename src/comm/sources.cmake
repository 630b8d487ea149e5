set(COMM_SOURCES
  src/comm/comm.c
  src/comm/comm_threads.c
)
