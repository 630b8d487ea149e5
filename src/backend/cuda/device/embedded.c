/* The pack of kernels inside this program. It is not in image.c because tools/kernelc reads packs but contains none. */
#include "backend/cuda/device/image.h"

extern const unsigned char mlxcel_kernels_begin[], mlxcel_kernels_end[]; /* kernels.S */

int cuda_pack_embedded(struct cuda_pack *pack, struct err *err) {
    return cuda_pack_open(pack, mlxcel_kernels_begin, (size_t)(mlxcel_kernels_end - mlxcel_kernels_begin), "the embedded kernels", err);
}
