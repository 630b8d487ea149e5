# libmlxcel for other programs: shared, static, and what their build systems find it by. src/lib is its interface; mlxcel_core has the rest.
#
# The static library is one object in which all names but mlxcel_* are local, so that it meets nobody else's. Libraries of the system that
# it needs are in the .pc file.
include(GNUInstallDirs)
set(MLXCEL_ABI 0) # as in include/mlxcel.h: a test compares

# A shared library with the interface: the public one, and that of the Python package.
function(mlxcel_add_shared name)
  add_library(${name} SHARED ${LIB_SOURCES} ${ARGN})
  target_link_libraries(${name} PRIVATE mlxcel_core)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME mlxcel VERSION ${MLXCEL_ABI}.${MLXCEL_VERSION} SOVERSION ${MLXCEL_ABI})
  if(WIN32)
    target_compile_definitions(${name} PRIVATE "MLXCEL_API=__declspec(dllexport)")
    set_target_properties(${name} PROPERTIES PREFIX "" RUNTIME_OUTPUT_NAME mlxcel ARCHIVE_OUTPUT_NAME mlxcel)
  elseif(NOT APPLE)
    target_link_options(${name} PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/src/lib/libmlxcel.map)
    set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS ${CMAKE_SOURCE_DIR}/src/lib/libmlxcel.map)
    if(NOT MLXCEL_SANITIZE)
      target_link_options(${name} PRIVATE -Wl,-z,defs)
    endif()
  endif()
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_link_options(${name} PRIVATE -s)
  endif()
endfunction()

mlxcel_add_shared(mlxcel_shared)
install(TARGETS mlxcel_shared RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/mlxcel.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# ---- for the Python package ------------------------------------------------------------------------------------------------------------
# In the folder wheel: a library that has the command, too, and the command as a small program beside it. Otherwise the package would hold everything twice.
set(wheel ${CMAKE_BINARY_DIR}/wheel)
mlxcel_add_shared(mlxcel_wheel packaging/command.c)
add_executable(mlxcel_beside packaging/program.c)
target_include_directories(mlxcel_beside PRIVATE include)
target_link_libraries(mlxcel_beside PRIVATE mlxcel_wheel)
set_target_properties(mlxcel_beside PROPERTIES OUTPUT_NAME mlxcel BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
set_target_properties(mlxcel_wheel mlxcel_beside PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${wheel} LIBRARY_OUTPUT_DIRECTORY ${wheel} ARCHIVE_OUTPUT_DIRECTORY ${wheel})
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_link_options(mlxcel_beside PRIVATE -s)
endif()
if(MLXCEL_SANITIZE) # the library beside it wants them from the program
  target_link_options(mlxcel_beside PRIVATE -fsanitize=${MLXCEL_SANITIZE})
endif()

# ---- static ----------------------------------------------------------------------------------------------------------------------------
# What is compiled here or built from source goes in; what the system has stays outside.
set(static_in $<TARGET_FILE:mlxcel_core>)
set(static_out "")
foreach(dep yyjson llhttp libuv openssl curl pcre2 utf8proc zstd zlib png jpeg webp yaml)
  if(TARGET ${dep})
    list(APPEND static_in $<TARGET_FILE:${dep}>)
  elseif(TARGET PkgConfig::${dep})
    list(APPEND static_out ${${dep}_LDFLAGS})
  endif()
endforeach()
if(TARGET openssl) # two libraries; the target is the first
  list(APPEND static_in ${MLXCEL_DEPS_DIR}/lib/libcrypto.a)
endif()
list(APPEND static_out ${CMAKE_THREAD_LIBS_INIT})
foreach(lib ${CMAKE_DL_LIBS} m)
  list(APPEND static_out -l${lib})
endforeach()
list(REMOVE_DUPLICATES static_out)
if(NOT WIN32 AND NOT APPLE AND NOT MLXCEL_SANITIZE)
  set(static ${CMAKE_BINARY_DIR}/libmlxcel.a)
  set(object ${CMAKE_BINARY_DIR}/libmlxcel.o)
  set(lib_archive $<TARGET_FILE:mlxcel_lib_archive>)
  add_library(mlxcel_lib_archive STATIC ${LIB_SOURCES})
  target_link_libraries(mlxcel_lib_archive PRIVATE mlxcel_flags mlxcel_deps mlxcel_version)
  add_custom_command(OUTPUT ${static}
    COMMAND ${CMAKE_LINKER} -r -o ${object} --whole-archive ${lib_archive} --no-whole-archive --start-group ${static_in} --end-group
    COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=mlxcel_* --keep-global-symbol=!mlxcel_kernels_* ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${static}
    COMMAND ${CMAKE_AR} qcsD ${static} ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${object}
    DEPENDS mlxcel_core mlxcel_lib_archive VERBATIM)
  add_custom_target(mlxcel_static ALL DEPENDS ${static})
  install(FILES ${static} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

# ---- how others find it ----------------------------------------------------------------------------------------------------------------
file(RELATIVE_PATH MLXCEL_UP /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p) # from there to the prefix, wherever that is moved
string(REGEX REPLACE "/$" "" MLXCEL_UP "${MLXCEL_UP}")
list(JOIN static_out " " MLXCEL_LIBS_PRIVATE)
configure_file(cmake/mlxcel.pc.in mlxcel.pc @ONLY)
configure_file(cmake/mlxcel-config.cmake.in mlxcel-config.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/mlxcel-config-version.cmake VERSION ${MLXCEL_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/mlxcel.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/mlxcel-config.cmake ${CMAKE_BINARY_DIR}/mlxcel-config-version.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/mlxcel)
