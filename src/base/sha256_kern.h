/* SHA-256 by the processor's own instructions; which of them may be called is the caller's to know (os/cpu.h). */
#ifndef MLXCEL_BASE_SHA256_KERN_H
#define MLXCEL_BASE_SHA256_KERN_H

#include "base/sha256.h"

/* NULL where this build has none. The flag CPU_SHA says whether it runs. */
extern sha256_blocks_fn *const sha256_blocks_fast;

#endif
