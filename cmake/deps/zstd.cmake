# Compression of embedded kernels and data. Its own CMake project wants a C++ compiler without using one, so ours in zstd/ builds it.
mlxcel_recipe(zstd
  VERSION 1.5.7
  LICENCE BSD-3-Clause
  PKG_CONFIG libzstd
  PACKAGE libzstd-dev
  PLACES apt:trixie/libzstd_1.5.7+dfsg.orig.tar.xz 0c092ef267edce57ba7f3f2645c861f72eaf5e76273c6c3632869423464b90a5
  PROJECT ${CMAKE_SOURCE_DIR}/cmake/deps/zstd
  LIBRARY libzstd.a
)
