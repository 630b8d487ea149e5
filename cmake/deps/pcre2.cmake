# Regular expressions with look-ahead, Unicode classes and JIT, for tokenizers.
mlxcel_recipe(pcre2
  VERSION 10.46
  LICENCE BSD-3-Clause
  PKG_CONFIG libpcre2-8
  PACKAGE libpcre2-dev
  PLACES
    debian:pool/main/p/pcre2/pcre2_10.46.orig.tar.gz 8d28d7f2c3b970c3a4bf3776bcbb5adfc923183ce74bc8df1ebaad8c1985bd07
    https://github.com/PCRE2Project/pcre2/releases/download/pcre2-10.46/pcre2-10.46.tar.gz 8d28d7f2c3b970c3a4bf3776bcbb5adfc923183ce74bc8df1ebaad8c1985bd07
  CMAKE_ARGS -DPCRE2_SUPPORT_JIT=ON -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_BUILD_TESTS=OFF -DPCRE2_STATIC_PIC=ON -DBUILD_SHARED_LIBS=OFF
    -DPCRE2_SUPPORT_LIBBZ2=OFF -DPCRE2_SUPPORT_LIBZ=OFF -DPCRE2_SUPPORT_LIBEDIT=OFF -DPCRE2_SUPPORT_LIBREADLINE=OFF
  LIBRARY libpcre2-8.a
  DEFINES PCRE2_STATIC
)
