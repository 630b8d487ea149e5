# macOS by zig's clang, which brings headers and link stubs of the C library, but no SDK: tools/macos_check.sh compiles with it, releases are not
# made so. The including file sets MLXCEL_TARGET, CMAKE_SYSTEM_PROCESSOR and zig_target.
set(CMAKE_SYSTEM_NAME Darwin)
get_filename_component(zig ${CMAKE_CURRENT_LIST_DIR}/../../build/zig/bin ABSOLUTE)
set(CMAKE_C_COMPILER ${zig}/zig-cc-${zig_target})
set(CMAKE_AR ${zig}/zig-ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${zig}/zig-ranlib CACHE FILEPATH "")
set(CMAKE_INSTALL_NAME_TOOL ${zig}/none CACHE FILEPATH "") # CMake insists on a name; it is never called
set(CMAKE_FIND_ROOT_PATH ${zig}/none)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
