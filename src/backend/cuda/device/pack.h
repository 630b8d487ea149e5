/* kernels.bin: the file that tools/kernelc writes and image.c reads, embedded in the program.
 *
 * A header, one row per image sorted by (name, kind, arch), then the images, each a zstd frame at a multiple of 64 bytes.
 * Little-endian, fixed width, no times and no paths: the same sources and compiler give the same bytes. An empty file is a
 * program without kernels. Shared with tools/kernelc, so nothing but types is here. */
#ifndef MLXCEL_BACKEND_CUDA_DEVICE_PACK_H
#define MLXCEL_BACKEND_CUDA_DEVICE_PACK_H

#include <assert.h>
#include <stdint.h>

#define PACK_MAGIC "mlxcelK1"
enum { PACK_NAME_BYTES = 48, PACK_ALIGN = 64, PACK_MAX_IMAGES = 4096, PACK_MAX_RAW_BYTES = 256 << 20 };

enum pack_kind { PACK_CUBIN, PACK_PTX };

struct pack_header {
    char magic[8];
    uint32_t n_images;
    uint32_t toolkit; /* of nvcc: 1000 * major + 10 * minor */
    uint64_t bytes;   /* of the whole file */
    uint64_t hash;    /* hash_bytes of everything after the header */
};

struct pack_row {
    char name[PACK_NAME_BYTES]; /* of the .cu file, without ".cu"; NUL at the end */
    uint16_t arch;              /* 10 * major + minor */
    uint8_t suffix;             /* 'a', 'f' or 0 */
    uint8_t kind;               /* enum pack_kind */
    uint32_t min_driver;        /* oldest CUDA version of a driver that can load it */
    uint64_t offset, packed_bytes, raw_bytes;
    uint64_t hash; /* hash_bytes of the raw image */
};

static_assert(sizeof(struct pack_header) == 32, "written to files");
static_assert(sizeof(struct pack_row) == 88, "written to files");

#endif
