# One target per line: fuzz_NAME.c, its seeds in seeds/NAME, words for it in NAME.dict.
set(FUZZ_TARGETS
  charsmap
  config
  gbnf
  generation
  gguf
  http
  output
  regex
  safetensors
  scanner
  schema
  template
  tokenizer_json
  tokenizer_parts
  toml
)
