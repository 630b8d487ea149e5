# Compiler and linker flags of everything that is ours. Floating point is never contracted: the reference kernels give the same bits on
# every platform, and kernels that want a fused multiply-add say so.

# ccache keeps objects where it is installed: another folder or another day compiles what has changed. -DCMAKE_C_COMPILER_LAUNCHER= leaves it out.
find_program(MLXCEL_CCACHE ccache)
if(MLXCEL_CCACHE AND NOT DEFINED CMAKE_C_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${MLXCEL_CCACHE})
endif()
add_library(mlxcel_flags INTERFACE)
target_compile_options(mlxcel_flags INTERFACE -Wall -Wextra -Wpedantic -ffp-contract=off $<$<BOOL:${MLXCEL_WERROR}>:-Werror>)
target_compile_definitions(mlxcel_flags INTERFACE MLXCEL_VERSION="${MLXCEL_VERSION}")
target_include_directories(mlxcel_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
# .incbin finds its file from the repository's root.
target_compile_options(mlxcel_flags INTERFACE $<$<COMPILE_LANGUAGE:ASM>:-I${CMAKE_SOURCE_DIR}>)
if(WIN32)
  # Windows 10; C99 printf formats from the C runtime; no DLL of the compiler's own; guard AVX code against 16-byte aligned stacks.
  target_compile_definitions(mlxcel_flags INTERFACE _WIN32_WINNT=0x0A00 WINVER=0x0A00 UNICODE _UNICODE __USE_MINGW_ANSI_STDIO=1)
  target_compile_options(mlxcel_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Wa,-muse-unaligned-vector-move>)
  target_link_options(mlxcel_flags INTERFACE -static -Wl,--no-insert-timestamp)
elseif(NOT APPLE)
  target_compile_definitions(mlxcel_flags INTERFACE _GNU_SOURCE)
  target_link_options(mlxcel_flags INTERFACE -Wl,-z,relro,-z,now)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # the same bytes from any folder
  target_compile_options(mlxcel_flags INTERFACE -ffile-prefix-map=${CMAKE_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_BINARY_DIR}=build)
  target_compile_options(mlxcel_flags INTERFACE -ffunction-sections -fdata-sections)
  target_link_options(mlxcel_flags INTERFACE $<IF:$<PLATFORM_ID:Darwin>,-Wl$<COMMA>-dead_strip,-Wl$<COMMA>--gc-sections>)
  target_compile_options(mlxcel_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-fstack-protector-strong>)
  target_link_options(mlxcel_flags INTERFACE -fstack-protector-strong)
endif()
if(MLXCEL_SANITIZE)
  target_compile_options(mlxcel_flags INTERFACE -fsanitize=${MLXCEL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(mlxcel_flags INTERFACE -fsanitize=${MLXCEL_SANITIZE})
endif()
if(MLXCEL_FUZZ)
  target_compile_options(mlxcel_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(mlxcel_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
