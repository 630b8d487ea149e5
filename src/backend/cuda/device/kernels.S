/* The compiled kernels, byte for byte. The build puts the folder of kernels.bin on the include path. */
#include "base/embed.inc"

    EMBED SYMBOL(mlxcel_kernels_begin), SYMBOL(mlxcel_kernels_end), "kernels.bin"
