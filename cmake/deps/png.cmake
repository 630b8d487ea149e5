# PNG pictures.
mlxcel_recipe(png
  VERSION 1.6.48
  LICENCE libpng-2.0
  PKG_CONFIG libpng
  PACKAGE libpng-dev
  PLACES apt:trixie/libpng1.6_1.6.48.orig.tar.gz b17e99026055727e8cba99160c3a9a7f9af788e9f786daeadded5a42243f1dd0
  PROJECT ${CMAKE_SOURCE_DIR}/cmake/deps/png
  LIBRARY libpng.a
  LINK zlib
)
