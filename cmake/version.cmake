# "build_info.h": MLXCEL_COMMIT, MLXCEL_COMPILER and MLXCEL_TARGET as strings. The commit is looked up at every build and the header
# rewritten only when it changed, so that a commit does not recompile what does not print it.
set(info_dir ${CMAKE_BINARY_DIR}/generated)
set(info_args -DOUT=${info_dir}/build_info.h -DSOURCE=${CMAKE_SOURCE_DIR} -DTARGET=${MLXCEL_TARGET}
  "-DCOMPILER=${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}" -P ${CMAKE_SOURCE_DIR}/cmake/build_info.cmake)
execute_process(COMMAND ${CMAKE_COMMAND} ${info_args})
add_custom_target(build_info COMMAND ${CMAKE_COMMAND} ${info_args} BYPRODUCTS ${info_dir}/build_info.h VERBATIM)
add_library(mlxcel_version INTERFACE)
add_dependencies(mlxcel_version build_info)
target_include_directories(mlxcel_version INTERFACE ${info_dir})
