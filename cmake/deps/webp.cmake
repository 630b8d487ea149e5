# WebP pictures: the decoder alone.
mlxcel_recipe(webp
  VERSION 1.5.0
  LICENCE BSD-3-Clause
  PKG_CONFIG libwebp
  PACKAGE libwebp-dev
  PLACES apt:trixie/libwebp_1.5.0.orig.tar.gz 7d6fab70cf844bf6769077bd5d7a74893f8ffd4dfb42861745750c63c2a5c92c
  PROJECT ${CMAKE_SOURCE_DIR}/cmake/deps/webp
  LIBRARY libwebpdecoder.a
)
