# unit_tests: one program made of the suites in tests/unit/sources.cmake; extra test programs from other folders' sources.cmake join by name.
include(tests/unit/sources.cmake)
set(suite_externs "")
set(suite_rows "")
set(suite_files "")
foreach(suite ${UNIT_SUITES})
  string(APPEND suite_externs "extern const struct unit_suite unit_${suite};\n")
  string(APPEND suite_rows "    &unit_${suite},\n")
  list(APPEND suite_files tests/unit/test_${suite}.c)
endforeach()
file(CONFIGURE OUTPUT unit_suites.c CONTENT "#include \"unit.h\"
${suite_externs}extern const struct unit_suite *const unit_suites[];
const struct unit_suite *const unit_suites[] = {
${suite_rows}    0};
")
add_executable(unit_tests tests/unit/unit_main.c ${suite_files} ${CMAKE_BINARY_DIR}/unit_suites.c)
target_include_directories(unit_tests PRIVATE tests/unit)
target_compile_definitions(unit_tests PRIVATE MLXCEL_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_link_libraries(unit_tests PRIVATE mlxcel_core)
if(WIN32 AND TARGET mlxcel)
  # The manifest makes the runtime speak UTF-8, as in the program itself.
  target_sources(unit_tests PRIVATE ${CMAKE_BINARY_DIR}/mlxcel.rc)
endif()

# Test programs besides the unit tests (checkkern and the like): tests/NAME/sources.cmake appends "NAME=file.c file.c" to TEST_PROGRAMS.
set(TEST_PROGRAMS "")
foreach(folder checkkern conform cuda golden server platform)
  if(EXISTS ${CMAKE_SOURCE_DIR}/tests/${folder}/sources.cmake)
    include(tests/${folder}/sources.cmake)
  endif()
endforeach()
foreach(entry IN LISTS TEST_PROGRAMS)
  if(NOT entry MATCHES "^([^=]+)=(.*)$")
    message(FATAL_ERROR "TEST_PROGRAMS: \"${entry}\" is not NAME=FILES")
  endif()
  set(name ${CMAKE_MATCH_1})
  separate_arguments(files UNIX_COMMAND "${CMAKE_MATCH_2}")
  add_executable(${name} ${files})
  target_compile_definitions(${name} PRIVATE MLXCEL_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE mlxcel_core)
endforeach()

# Fuzz targets: tests/fuzz/fuzz_NAME.c defines LLVMFuzzerTestOneInput; its seeds lie in tests/fuzz/seeds/NAME.
if(MLXCEL_FUZZ AND EXISTS ${CMAKE_SOURCE_DIR}/tests/fuzz/sources.cmake)
  include(tests/fuzz/sources.cmake)
  add_custom_target(fuzz_targets)
  foreach(name ${FUZZ_TARGETS})
    add_executable(fuzz_${name} tests/fuzz/fuzz_${name}.c)
    target_link_libraries(fuzz_${name} PRIVATE mlxcel_core)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz_targets fuzz_${name})
  endforeach()
endif()
