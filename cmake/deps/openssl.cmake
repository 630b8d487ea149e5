# TLS of the server: the system's OpenSSL, where there is one. Static and cross builds go without, and refuse the options by name.
set(MLXCEL_TLS OFF)
if(NOT MLXCEL_STATIC_DEPS AND PKG_CONFIG_FOUND)
  pkg_check_modules(openssl QUIET IMPORTED_TARGET openssl>=3.0)
  if(openssl_FOUND)
    set(MLXCEL_TLS ON)
    target_link_libraries(mlxcel_deps INTERFACE PkgConfig::openssl)
  endif()
endif()
