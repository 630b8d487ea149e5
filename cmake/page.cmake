# The libraries of the chat page and its own renderer, in one script that webui.S puts into the program.
find_program(MLXCEL_PYTHON NAMES python3 python REQUIRED)
set(page_script ${CMAKE_BINARY_DIR}/page/lib.js)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/page)
add_custom_command(OUTPUT ${page_script}
  COMMAND ${MLXCEL_PYTHON} ${CMAKE_SOURCE_DIR}/tools/bundle_page.py ${MLXCEL_MARKDOWNIT_DIR} ${MLXCEL_KATEX_DIR} ${MLXCEL_PRISM_DIR}
    ${CMAKE_SOURCE_DIR}/src/server/webui/markdown.js ${page_script}
  DEPENDS ${CMAKE_SOURCE_DIR}/tools/bundle_page.py ${CMAKE_SOURCE_DIR}/src/server/webui/markdown.js ${MLXCEL_KATEX_DIR}/katex.js
  VERBATIM)
set_source_files_properties(src/server/webui.S PROPERTIES
  OBJECT_DEPENDS "${CMAKE_SOURCE_DIR}/src/server/webui/index.html;${page_script}" COMPILE_OPTIONS "-I${CMAKE_BINARY_DIR}")
