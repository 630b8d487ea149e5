# JSON parser and writer. Debian 12 has no package; compiled with the program.
mlxcel_recipe(yyjson
  VERSION 0.10.0
  LICENCE MIT
  PLACES
    debian:pool/main/y/yyjson/yyjson_0.10.0+ds.orig.tar.xz ae6fde69a193e10afab426ef13f113d6903446405f9db9ee98bfb572bd6c961a
    https://github.com/ibireme/yyjson/archive/refs/tags/0.10.0.tar.gz 0d901cb2c45c5586e3f3a4245e58c2252d6b24bf4b402723f6179523d389b165
  SOURCES src/yyjson.c
  INCLUDE src
)
