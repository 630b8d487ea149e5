set(FILE_SOURCES
  src/file/builtin.S
  src/file/builtin.c
  src/file/checkpoint.c
  src/file/config.c
  src/file/gguf.c
  src/file/gguf_config.c
  src/file/gguf_names.c
  src/file/gguf_open.c
  src/file/gguf_pieces.c
  src/file/gguf_tokenizer.c
  src/file/gguf_view.c
  src/file/quant_config.c
  src/file/safetensors.c
  src/file/shards.c
)
set_source_files_properties(src/file/builtin.S PROPERTIES OBJECT_DEPENDS
  "${CMAKE_SOURCE_DIR}/models/tiny/config.json;${CMAKE_SOURCE_DIR}/models/tiny/generation_config.json;${CMAKE_SOURCE_DIR}/models/tiny/model.safetensors;${CMAKE_SOURCE_DIR}/models/tiny/tokenizer.json;${CMAKE_SOURCE_DIR}/models/tiny/tokenizer_config.json")
