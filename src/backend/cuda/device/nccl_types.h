/* The types and constants of NVIDIA's nccl.h that we use, under its names: no header of NVIDIA is needed to build. The interface of NCCL 2 keeps
 * their values. A CUDA stream of the runtime, which NCCL's functions take, is one of the driver. */
#ifndef MLXCEL_BACKEND_CUDA_DEVICE_NCCL_TYPES_H
#define MLXCEL_BACKEND_CUDA_DEVICE_NCCL_TYPES_H

#include "backend/cuda/device/driver_types.h"

typedef struct ncclComm *ncclComm_t;

/* What rank 0 makes up and all ranks hand in: by it NCCL brings them together. Passed by value. */
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;

typedef enum ncclResult {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;

typedef enum ncclDataType { ncclInt8 = 0, ncclFloat32 = 7 } ncclDataType_t;
typedef enum ncclRedOp { ncclSum = 0 } ncclRedOp_t;

#endif
