# Event loop, processes and the portable part of the operating system.
#
# QEMU 7.2 (Debian 12; containers for amd64 on ARM hosts) calls signal handlers of x86_64 programs with a stack that is not aligned as the
# ABI says. GCC trusts it, and a server would end by a segmentation fault at SIGTERM. Debian's own libuv is not ours to change.
set(aligned "")
if(MLXCEL_TARGET STREQUAL "linux-x86_64")
  set(aligned "-DCMAKE_C_FLAGS_RELEASE=-O3 -DNDEBUG -mstackrealign")
endif()
mlxcel_recipe(libuv
  VERSION 1.50.0
  LICENCE MIT
  PKG_CONFIG libuv
  PACKAGE libuv1-dev
  PLACES apt:trixie/libuv1_1.50.0.orig.tar.gz ec9de6ecf2a780fd2afb3b007947d2cd57c3bb17f3b9e721a66774980d35cd4d
  CMAKE_ARGS -DLIBUV_BUILD_SHARED=OFF -DLIBUV_BUILD_TESTS=OFF -DLIBUV_BUILD_BENCH=OFF -DBUILD_TESTING=OFF "${aligned}"
  LIBRARY libuv.a
  WINDOWS_LIBS ws2_32 iphlpapi psapi userenv user32 dbghelp ole32 shell32 advapi32
)
