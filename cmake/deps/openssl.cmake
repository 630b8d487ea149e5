# TLS. A native build takes the system's OpenSSL for the server, where there is one, and the downloader's libcurl brings its own. Releases for
# Linux (-DMLXCEL_STATIC_TLS=ON) link it, with libcurl, so that they need nothing of the system but certificates. Windows builds link it for the
# server alone: downloads use Schannel there, with the system's certificates. Other static builds have no TLS in the server and refuse its options by
# name.
set(MLXCEL_TLS OFF)
if(MLXCEL_STATIC_TLS)
  set(MLXCEL_TLS ON)
  mlxcel_recipe(openssl
    VERSION 3.5.7
    LICENCE Apache-2.0
    PLACES apt:trixie/openssl_3.5.7.orig.tar.gz a8c0d28a529ca480f9f36cf5792e2cd21984552a3c8e4aa11a24aa31aeac98e8
    PROJECT ${CMAKE_SOURCE_DIR}/cmake/deps/openssl
    LIBRARY libssl.a
    LINK ${MLXCEL_DEPS_DIR}/lib/libcrypto.a
    WINDOWS_LIBS ws2_32 crypt32
  )
elseif(NOT MLXCEL_STATIC_DEPS AND PKG_CONFIG_FOUND)
  pkg_check_modules(openssl QUIET IMPORTED_TARGET openssl>=3.0)
  if(openssl_FOUND)
    set(MLXCEL_TLS ON)
    target_link_libraries(mlxcel_deps INTERFACE PkgConfig::openssl)
  endif()
endif()
