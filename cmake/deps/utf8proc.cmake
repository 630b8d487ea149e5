# Unicode normalisation and categories.
mlxcel_recipe(utf8proc
  VERSION 2.8.0
  LICENCE MIT
  PKG_CONFIG libutf8proc
  PACKAGE libutf8proc-dev
  PLACES apt:bookworm/utf8proc_2.8.0.orig.tar.gz a0a60a79fe6f6d54e7d411facbfcc867a6e198608f2cd992490e46f04b1bcecc
  CMAKE_ARGS -DBUILD_SHARED_LIBS=OFF -DUTF8PROC_ENABLE_TESTING=OFF
  LIBRARY libutf8proc.a
  DEFINES UTF8PROC_STATIC
)
