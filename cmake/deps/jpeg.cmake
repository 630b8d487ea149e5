# JPEG pictures. Without its assembler: that takes nasm, and a picture is read once.
mlxcel_recipe(jpeg
  VERSION 2.1.5
  LICENCE IJG
  PKG_CONFIG libjpeg
  PACKAGE libjpeg-dev
  PLACES apt:trixie/libjpeg-turbo_2.1.5.orig.tar.gz 254f3642b04e309fee775123133c6464181addc150499561020312ec61c1bf7c
  CMAKE_ARGS -DENABLE_SHARED=OFF -DENABLE_STATIC=ON -DWITH_SIMD=OFF -DWITH_TURBOJPEG=OFF -DWITH_ARITH_ENC=OFF
  LIBRARY libjpeg.a
)
