# Inflates PNG; nothing but libpng asks for it.
mlxcel_recipe(zlib
  VERSION 1.3.1
  LICENCE Zlib
  PKG_CONFIG zlib
  PACKAGE zlib1g-dev
  PLACES apt:trixie/zlib_1.3.dfsg+really1.3.1.orig.tar.gz 60dd315c07f616887caa029408308a018ace66e3d142726a97db164b3b8f69fb
  PROJECT ${CMAKE_SOURCE_DIR}/cmake/deps/zlib
  LIBRARY libz.a
)
