# What mlxcel links, one recipe per library in cmake/deps/.
#
# A native build takes the system's libraries through pkg-config; a cross build, or -DMLXCEL_STATIC_DEPS=ON, builds each from source
# into build/deps-TARGET, once for all presets. A recipe with SOURCES has no usable package on Debian 12 and is always compiled with the
# program. Every archive is checked against its sha256; no third-party source is part of the repository. docs/dependencies.md explains.
include(cmake/fetch.cmake)

option(MLXCEL_STATIC_DEPS "build every library from source and link it statically" ${CMAKE_CROSSCOMPILING})
set(MLXCEL_DEPS_DIR ${CMAKE_SOURCE_DIR}/build/deps-${MLXCEL_TARGET})

add_library(mlxcel_deps INTERFACE)
find_package(PkgConfig QUIET)

# Compiled here, without our warnings. Address and thread sanitizers see it; the one for undefined behaviour and the fuzzer's coverage do
# not, since they make yyjson take minutes to compile.
function(mlxcel_dep_compile name)
  mlxcel_unpack(${name} ${MLXCEL_DEPS_DIR}/src dir)
  list(TRANSFORM R_SOURCES PREPEND ${dir}/)
  add_library(${name} STATIC ${R_SOURCES})
  target_include_directories(${name} SYSTEM PUBLIC ${dir}/${R_INCLUDE})
  target_compile_options(${name} PRIVATE -w)
  string(REPLACE ",undefined" "" sanitize "${MLXCEL_SANITIZE}")
  if(sanitize)
    target_compile_options(${name} PRIVATE -fsanitize=${sanitize})
  endif()
  if(MLXCEL_FUZZ)
    target_compile_options(${name} PRIVATE -fno-sanitize=fuzzer-no-link)
  endif()
  target_link_libraries(mlxcel_deps INTERFACE ${name})
endfunction()

# Built by its own CMake project at configure time, so that what follows is an ordinary static library.
function(mlxcel_dep_build name)
  file(MAKE_DIRECTORY ${MLXCEL_DEPS_DIR}/include)
  file(LOCK ${MLXCEL_DEPS_DIR} DIRECTORY GUARD FUNCTION TIMEOUT 900)
  set(stamp ${MLXCEL_DEPS_DIR}/${name}-${R_VERSION}.done)
  file(SHA256 ${CMAKE_SOURCE_DIR}/cmake/deps/${name}.cmake recipe)
  set(built "")
  if(EXISTS ${stamp})
    file(READ ${stamp} built)
  endif()
  if(NOT built STREQUAL recipe)
    message(STATUS "building ${name} ${R_VERSION} for ${MLXCEL_TARGET}")
    mlxcel_unpack(${name} ${MLXCEL_DEPS_DIR}/src dir)
    set(work ${MLXCEL_DEPS_DIR}/work/${name})
    file(REMOVE_RECURSE ${work})
    set(project ${dir})
    if(R_PROJECT)
      set(project ${R_PROJECT})
    endif()
    set(toolchain "")
    if(CMAKE_TOOLCHAIN_FILE)
      set(toolchain -DCMAKE_TOOLCHAIN_FILE=${CMAKE_TOOLCHAIN_FILE})
    endif()
    mlxcel_dep_step(${name} ${CMAKE_COMMAND} -S ${project} -B ${work} -G ${CMAKE_GENERATOR} ${toolchain}
      -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=${MLXCEL_DEPS_DIR} -DCMAKE_INSTALL_LIBDIR=lib
      -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DDEP_SOURCE=${dir} ${R_CMAKE_ARGS})
    mlxcel_dep_step(${name} ${CMAKE_COMMAND} --build ${work} --target install)
    file(REMOVE_RECURSE ${work})
    file(WRITE ${stamp} ${recipe})
  endif()
  add_library(${name} STATIC IMPORTED)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${MLXCEL_DEPS_DIR}/lib/${R_LIBRARY})
  target_include_directories(${name} SYSTEM INTERFACE ${MLXCEL_DEPS_DIR}/include)
  target_compile_definitions(${name} INTERFACE ${R_DEFINES})
  if(WIN32)
    target_link_libraries(${name} INTERFACE ${R_WINDOWS_LIBS})
  endif()
  target_link_libraries(mlxcel_deps INTERFACE ${name})
endfunction()

function(mlxcel_dep_step name)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE log ERROR_VARIABLE log RESULT_VARIABLE rc)
  if(NOT rc EQUAL 0)
    message(FATAL_ERROR "building ${name} failed:\n${log}")
  endif()
endfunction()

function(mlxcel_dep_system name)
  if(NOT PKG_CONFIG_FOUND)
    message(FATAL_ERROR "mlxcel needs pkg-config: install the package pkgconf (Debian, Ubuntu: apt-get install pkgconf)")
  endif()
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${R_PKG_CONFIG})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "mlxcel needs ${name}: install the package ${R_PACKAGE} (Debian, Ubuntu: apt-get install ${R_PACKAGE})")
  endif()
  target_link_libraries(mlxcel_deps INTERFACE PkgConfig::${name})
endfunction()

# Reads one recipe; the variables R_* hold its fields while one of the functions above runs.
macro(mlxcel_recipe name)
  cmake_parse_arguments(R "" "VERSION;LICENCE;PKG_CONFIG;PACKAGE;PROJECT;LIBRARY;INCLUDE"
    "PLACES;SUBDIRS;SOURCES;CMAKE_ARGS;DEFINES;WINDOWS_LIBS" ${ARGN})
  if(R_SOURCES)
    mlxcel_dep_compile(${name})
  elseif(MLXCEL_STATIC_DEPS)
    mlxcel_dep_build(${name})
  else()
    mlxcel_dep_system(${name})
  endif()
endmacro()

# libcurl joins this list with its first user, the model downloader.
foreach(dep yyjson llhttp libuv openssl pcre2 utf8proc zstd)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/deps/${dep}.cmake)
  include(cmake/deps/${dep}.cmake)
endforeach()

find_package(Threads REQUIRED)
target_link_libraries(mlxcel_deps INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
if(NOT WIN32)
  target_link_libraries(mlxcel_deps INTERFACE m)
endif()
