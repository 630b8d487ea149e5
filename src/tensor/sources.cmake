set(TENSOR_SOURCES
  src/tensor/dtype.c
)
