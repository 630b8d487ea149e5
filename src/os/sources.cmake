# What needs the system alone; kernelc is built from these.
set(OS_LOCAL_SOURCES
  src/os/cgroup.c
  src/os/cpu.c
  src/os/file_common.c
  src/os/term_common.c
)
# What needs libuv or the system's sockets.
set(os_network_sources
  src/os/random.c
  src/os/socket_common.c
  src/os/tcp_common.c
)
if(WIN32)
  set(os_system win32)
  list(APPEND OS_LOCAL_SOURCES src/os/text_win32.c)
else()
  set(os_system posix)
endif()
foreach(part console dl env file machine process term thread time)
  list(APPEND OS_LOCAL_SOURCES src/os/${part}_${os_system}.c)
endforeach()
foreach(part socket tcp)
  list(APPEND os_network_sources src/os/${part}_${os_system}.c)
endforeach()
set(OS_SOURCES ${OS_LOCAL_SOURCES} ${os_network_sources})
