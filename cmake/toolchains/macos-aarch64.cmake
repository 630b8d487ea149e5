# macOS on Apple silicon, which Apple calls arm64.
set(MLXCEL_TARGET macos-aarch64)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(zig_target aarch64-macos)
include(${CMAKE_CURRENT_LIST_DIR}/macos.cmake)
