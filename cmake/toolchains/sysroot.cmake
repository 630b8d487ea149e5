# -DMLXCEL_SYSROOT=DIR compiles and links against the C library unpacked there (packaging/linux/sysroot.sh), for programs that must run
# on older systems. gcc's own folders hold the host's libraries, so the sysroot's come first on every command line.
if(MLXCEL_SYSROOT)
  list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MLXCEL_SYSROOT)
  string(REPLACE "linux-" "" triplet ${MLXCEL_TARGET})
  string(APPEND triplet -linux-gnu)
  set(CMAKE_SYSROOT ${MLXCEL_SYSROOT})
  set(CMAKE_FIND_ROOT_PATH ${MLXCEL_SYSROOT})
  set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
  set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
  set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
  set(CMAKE_C_FLAGS_INIT "-isystem ${MLXCEL_SYSROOT}/usr/include/${triplet} -isystem ${MLXCEL_SYSROOT}/usr/include")
  set(CMAKE_EXE_LINKER_FLAGS_INIT "-B${MLXCEL_SYSROOT}/usr/lib/${triplet} -L${MLXCEL_SYSROOT}/usr/lib/${triplet} -L${MLXCEL_SYSROOT}/lib/${triplet}")
endif()
