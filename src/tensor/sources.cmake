set(TENSOR_SOURCES
  src/tensor/dtype.c
  src/tensor/quant.c
)
