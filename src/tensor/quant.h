/* Every weight format, once: how a row of numbers lies in its planes, with reference packing and unpacking.
 *
 * A row is one output row of a matrix, n elements along the input dimension. Its values plane is a little-endian bit
 * stream of `bits` per element, lowest bits first (which is what MLX's uint32 words are, for every width); the scales
 * and biases planes hold one entry per group. Planes may lie at any alignment. Nothing here allocates or fails: the
 * caller has checked the format with format_valid and n against the group.
 */
#ifndef MLXCEL_TENSOR_QUANT_H
#define MLXCEL_TENSOR_QUANT_H

#include "tensor/dtype.h"

#include <stddef.h>
#include <stdint.h>

/* One row's planes as the checkpoint stores them; scales and biases are NULL where the format has none. */
struct quant_row {
    const void *values, *scales, *biases;
};

/* Dequantise elements [first, first + n) of a row to f32; first and n are multiples of the group (anything for plain
 * f32, f16, bf16). Affine: q * scale + bias in f32 from the stored scale and bias, two roundings. */
void quant_unpack(const struct format *f, const struct quant_row *row, int64_t first, int64_t n, float *out);

/* Bytes of each plane for a row of n elements; 0 for a plane that the format does not have. */
size_t quant_values_bytes(const struct format *f, int64_t n);
size_t quant_scales_bytes(const struct format *f, int64_t n);
size_t quant_biases_bytes(const struct format *f, int64_t n);

/* Quantise one row of n f32 elements as MLX does: same bytes. The planes are sized by the functions above; scales and
 * biases may be NULL where the format has none. format.dtype is the type of the weights that x came from (x must be
 * exact in it): affine stores scales and biases in it, and the fp modes round in it on the way, as MLX does. */
void quant_pack(const struct format *f, const float *x, int64_t n, void *values, void *scales, void *biases);

/* Only the codes of an affine or fp row, one byte each (for backends that repack); first and n as in quant_unpack. */
void quant_codes(const struct format *f, const void *values, int64_t first, int64_t n, uint8_t *out);

/* The other way: n codes of f->bits each, packed. */
void quant_put_codes(const struct format *f, const uint8_t *codes, int64_t n, void *values);

/* Plain elements to and from f32. False, and nothing written, for a dtype other than F32, F16, BF16. */
bool plain_to_f32(enum dtype dt, const void *src, int64_t n, float *out);
bool plain_from_f32(enum dtype dt, const float *src, int64_t n, void *out);

#endif
