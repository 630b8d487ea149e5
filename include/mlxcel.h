/* mlxcel: the public C interface.
 *
 * Everything here is prefixed mlxcel_ / MLXCEL_. Option structs begin with struct_size, set by the caller to sizeof the
 * struct, so that they can grow. There is no promise of binary compatibility before 1.0.
 */
#ifndef MLXCEL_H
#define MLXCEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__ELF__)
#define MLXCEL_API __attribute__((visibility("default")))
#else
#define MLXCEL_API
#endif

/* "0.1.0" */
MLXCEL_API const char *mlxcel_version(void);

#ifdef __cplusplus
}
#endif

#endif
