# A PJRT plugin that the unit tests steer, beside the unit tests.
add_library(fake_pjrt MODULE tests/xla/fake_plugin.c)
target_link_libraries(fake_pjrt PRIVATE mlxcel_flags)
target_include_directories(fake_pjrt PRIVATE ${CMAKE_SOURCE_DIR}/src)
set_target_properties(fake_pjrt PROPERTIES PREFIX "" SUFFIX ".so" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake-pjrt)
add_dependencies(unit_tests fake_pjrt)
