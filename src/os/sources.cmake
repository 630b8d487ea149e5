set(OS_SOURCES
  src/os/cgroup.c
  src/os/cpu.c
  src/os/file_common.c
  src/os/random.c
  src/os/socket_common.c
  src/os/tcp_common.c
  src/os/term_common.c
)
if(WIN32)
  set(os_system win32)
  list(APPEND OS_SOURCES src/os/text_win32.c)
else()
  set(os_system posix)
endif()
foreach(part console dl env file machine process socket tcp term thread time)
  list(APPEND OS_SOURCES src/os/${part}_${os_system}.c)
endforeach()
