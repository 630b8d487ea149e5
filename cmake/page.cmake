# The scripts of the chat page, its libraries and its own files, which webui.S puts into the program.
find_program(MLXCEL_PYTHON NAMES python3 python REQUIRED)
set(page_folder ${CMAKE_BINARY_DIR}/page)
set(page_scripts ${page_folder}/lib.js ${page_folder}/page.js)
set(page_sources tools/bundle_page.py)
foreach(name markdown basics chats thread files ask page)
  list(APPEND page_sources src/server/webui/${name}.js)
endforeach()
list(TRANSFORM page_sources PREPEND ${CMAKE_SOURCE_DIR}/)
file(MAKE_DIRECTORY ${page_folder})
add_custom_command(OUTPUT ${page_scripts}
  COMMAND ${MLXCEL_PYTHON} ${CMAKE_SOURCE_DIR}/tools/bundle_page.py ${MLXCEL_MARKDOWNIT_DIR} ${MLXCEL_KATEX_DIR} ${MLXCEL_PRISM_DIR}
    ${CMAKE_SOURCE_DIR}/src/server/webui ${page_folder}
  DEPENDS ${page_sources} ${MLXCEL_KATEX_DIR}/katex.js
  VERBATIM)
set_source_files_properties(src/server/webui.S PROPERTIES
  OBJECT_DEPENDS "${CMAKE_SOURCE_DIR}/src/server/webui/index.html;${page_scripts}" COMPILE_OPTIONS "-I${CMAKE_BINARY_DIR}")
