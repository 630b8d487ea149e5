/* The kernels inside this program: choosing the image that fits a device and unpacking it.
 *
 * An image is one .cu file compiled for one architecture (pack.h). Machine code is preferred; PTX is the last resort. Whether
 * the driver can load an image is part of the choice, so that what is chosen here loads. Any thread; nothing is cached. */
#ifndef MLXCEL_BACKEND_CUDA_DEVICE_IMAGE_H
#define MLXCEL_BACKEND_CUDA_DEVICE_IMAGE_H

#include "backend/cuda/device/arch.h"
#include "backend/cuda/device/pack.h"
#include "base/err.h"
#include "base/str.h"

struct cuda_pack {
    const unsigned char *data; /* at a multiple of 8 bytes */
    size_t bytes;
    const struct pack_row *rows;
    int n_rows; /* 0: no kernels in it */
    int toolkit;
};

/* Checks every row; the data must stay where it is. Zero bytes are an empty pack. name is for messages. */
int cuda_pack_open(struct cuda_pack *pack, const void *data, size_t bytes, const char *name, struct err *err);
/* The one in this program. It is ours, so a defect in it is an internal error. */
int cuda_pack_embedded(struct cuda_pack *pack, struct err *err);

/* The image of file `name` (without ".cu") for a device (10 * major + minor) and a driver; NULL when there is none. */
const struct pack_row *cuda_image_find(const struct cuda_pack *pack, struct str name, int device, int driver_version);
/* The raw image on the heap (mem_free), a NUL after it, as cuModuleLoadDataEx wants PTX. */
int cuda_image_unpack(const struct cuda_pack *pack, const struct pack_row *row, void **out, size_t *out_bytes, struct err *err);

/* Whether any image runs on the device with this driver; *out_arch is the best one (suffix 'p' means PTX). */
bool cuda_pack_covers(const struct cuda_pack *pack, int device, int driver_version, struct cuda_arch *out_arch);
/* "75 80 86 89 90a 100 120 and PTX 75", or "none". */
void cuda_pack_describe(const struct cuda_pack *pack, struct sb *out);

#endif
