set(TENSOR_SOURCES
  src/tensor/block.c
  src/tensor/block_iq.c
  src/tensor/block_join.c
  src/tensor/dtype.c
  src/tensor/quant.c
)
