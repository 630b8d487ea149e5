/* A processor family without SHA-256 instructions that we know. */
#include "base/sha256_kern.h"

sha256_blocks_fn *const sha256_blocks_fast = 0;
