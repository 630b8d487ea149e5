# JSON parser and writer. Debian 12 has no package; compiled with the program. The Python package carries 0.10.0 with some later commits, for
# machines whose apt knows no Debian.
mlxcel_recipe(yyjson
  VERSION 0.10.0
  LICENCE MIT
  PLACES
    apt:trixie/yyjson_0.10.0+ds.orig.tar.xz ae6fde69a193e10afab426ef13f113d6903446405f9db9ee98bfb572bd6c961a
    pip:yyjson-4.0.6.tar.gz fcd4dc15c1e39a30bf9fa85d56903029111506860fc3080ab0d81c6c6dacaa8c
  SUBDIRS src yyjson
  SOURCES yyjson.c
  INCLUDE .
)
