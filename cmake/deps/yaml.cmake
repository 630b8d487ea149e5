# YAML, for files of edits.
mlxcel_recipe(yaml
  VERSION 0.2.5
  LICENCE MIT
  PKG_CONFIG yaml-0.1
  PACKAGE libyaml-dev
  PLACES apt:bookworm/libyaml_0.2.5.orig.tar.gz fa240dbf262be053f3898006d502d514936c818e422afdcf33921c63bed9bf2e
  CMAKE_ARGS -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF
  LIBRARY libyaml.a
  DEFINES YAML_DECLARE_STATIC
)
