# Event loop, processes and the portable part of the operating system.
mlxcel_recipe(libuv
  VERSION 1.50.0
  LICENCE MIT
  PKG_CONFIG libuv
  PACKAGE libuv1-dev
  PLACES
    debian:pool/main/libu/libuv1/libuv1_1.50.0.orig.tar.gz ec9de6ecf2a780fd2afb3b007947d2cd57c3bb17f3b9e721a66774980d35cd4d
    https://github.com/libuv/libuv/archive/refs/tags/v1.50.0.tar.gz b1ec56444ee3f1e10c8bd3eed16ba47016ed0b94fe42137435aaf2e0bd574579
  CMAKE_ARGS -DLIBUV_BUILD_SHARED=OFF -DLIBUV_BUILD_TESTS=OFF -DLIBUV_BUILD_BENCH=OFF -DBUILD_TESTING=OFF
  LIBRARY libuv.a
  WINDOWS_LIBS ws2_32 iphlpapi psapi userenv user32 dbghelp ole32 shell32 advapi32
)
