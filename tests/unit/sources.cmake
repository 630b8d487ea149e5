# One suite per file: test_NAME.c defines unit_NAME.
set(UNIT_SUITES
  args
  base
  bits
  checkpoint
  config
  engine
  kern
  ops_moe
  ops_recur
  os
  quant
  safetensors
  template
  tokenizer
)
