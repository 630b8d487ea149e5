# One target per line: fuzz_NAME.c, its seeds in seeds/NAME, words for it in NAME.dict.
set(FUZZ_TARGETS
  charsmap
  config
  generation
  http
  output
  safetensors
  scanner
  template
  tokenizer_json
  tokenizer_parts
)
