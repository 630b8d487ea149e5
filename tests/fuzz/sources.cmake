# One target per line: fuzz_NAME.c, its seeds in seeds/NAME, words for it in NAME.dict.
set(FUZZ_TARGETS
  adapter
  charsmap
  config
  gbnf
  generation
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
