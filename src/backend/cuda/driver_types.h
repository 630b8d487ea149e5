/* The part of the CUDA driver's binary interface that we use, declared by ourselves: no toolkit is needed to build the host program.
 *
 * Names are NVIDIA's, so that its manual can be searched for them; tests/cuda/abi.c compares every size, offset, constant and
 * signature with cuda.h where a toolkit is at hand. Types only: the functions are in driver.def. */
#ifndef MLXCEL_BACKEND_CUDA_DRIVER_TYPES_H
#define MLXCEL_BACKEND_CUDA_DRIVER_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint64_t CUflags64; /* ours: what cuda.h spells "unsigned long long" */
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUkern_st *CUkernel;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUarray_st *CUarray;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphDeviceUpdatableNode_st *CUgraphDeviceNode;

typedef struct CUuuid_st {
    char bytes[16];
} CUuuid;

/* Every result that the driver names: code and what it means to a user. driver.c prints them; the driver's own words come after. */
#define CUDA_RESULTS(X)                                                                                                                    \
    X(CUDA_SUCCESS, 0, "")                                                                                                                 \
    X(CUDA_ERROR_INVALID_VALUE, 1, "a defect of this program")                                                                             \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2, "the GPU has no memory left")                                                                           \
    X(CUDA_ERROR_NOT_INITIALIZED, 3, "a defect of this program")                                                                           \
    X(CUDA_ERROR_DEINITIALIZED, 4, "the driver is shutting down")                                                                          \
    X(CUDA_ERROR_STUB_LIBRARY, 34, "this libcuda is the toolkit's stub, not a driver: take its folder out of LD_LIBRARY_PATH")             \
    X(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, 36, "update the NVIDIA driver")                                                               \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46, "another process uses this GPU exclusively, or its compute mode is Prohibited")                   \
    X(CUDA_ERROR_NO_DEVICE, 100, "the driver sees no GPU (check nvidia-smi and CUDA_VISIBLE_DEVICES)")                                     \
    X(CUDA_ERROR_INVALID_DEVICE, 101, "no GPU has this number")                                                                            \
    X(CUDA_ERROR_DEVICE_NOT_LICENSED, 102, "the virtual GPU has no licence")                                                               \
    X(CUDA_ERROR_INVALID_IMAGE, 200, "this driver cannot read the kernel image: it is older than the toolkit that made it")                \
    X(CUDA_ERROR_INVALID_CONTEXT, 201, "a defect of this program")                                                                         \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, "no kernel image fits this GPU")                                                                  \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214, "the GPU's memory is faulty")                                                                     \
    X(CUDA_ERROR_INVALID_PTX, 218, "the driver's compiler refused the kernel")                                                             \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220, "a link between GPUs is faulty")                                                               \
    X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221, "the driver's compiler library is missing: reinstall the driver")                            \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222, "the driver is older than the toolkit that made the kernel: update the driver")             \
    X(CUDA_ERROR_JIT_COMPILATION_DISABLED, 223, "CUDA_DISABLE_PTX_JIT is set")                                                             \
    X(CUDA_ERROR_CONTAINED, 226, "a fault on the GPU was contained; this process must restart")                                            \
    X(CUDA_ERROR_OPERATING_SYSTEM, 304, "the operating system refused (in a container: are the NVIDIA device files there?)")               \
    X(CUDA_ERROR_INVALID_HANDLE, 400, "a defect of this program")                                                                          \
    X(CUDA_ERROR_NOT_FOUND, 500, "the kernel image lacks a name that it should have")                                                      \
    X(CUDA_ERROR_NOT_READY, 600, "work is still running")                                                                                  \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "a kernel read or wrote outside its memory")                                                        \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701, "a kernel wants more registers or shared memory than the GPU has")                          \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, 702, "the system stopped a kernel that ran too long on a GPU with a display")                             \
    X(CUDA_ERROR_ASSERT, 710, "a check inside a kernel failed")                                                                            \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714, "a kernel's call stack is broken")                                                             \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715, "a kernel met an instruction that the GPU does not know")                                       \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716, "a kernel used an unaligned address")                                                            \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717, "a kernel used an address of the wrong kind")                                                 \
    X(CUDA_ERROR_INVALID_PC, 718, "a kernel jumped outside its code")                                                                      \
    X(CUDA_ERROR_LAUNCH_FAILED, 719, "a kernel failed")                                                                                    \
    X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 720, "a cooperative kernel has more blocks than fit at once")                               \
    X(CUDA_ERROR_NOT_PERMITTED, 800, "the driver forbids it")                                                                              \
    X(CUDA_ERROR_NOT_SUPPORTED, 801, "the driver does not support it on this GPU")                                                         \
    X(CUDA_ERROR_SYSTEM_NOT_READY, 802, "the system is not ready: is nvidia-fabricmanager running?")                                       \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803, "the driver's library and its kernel module have different versions: restart the machine")   \
    X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804, "the cuda-compat package does not support this GPU: remove it or update the driver") \
    X(CUDA_ERROR_MPS_CONNECTION_FAILED, 805, "the MPS server does not answer")                                                             \
    X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910, "a graph cannot be updated in place")                                                     \
    X(CUDA_ERROR_INVALID_CLUSTER_SIZE, 912, "a cluster is too large for this GPU")                                                         \
    X(CUDA_ERROR_UNKNOWN, 999, "the driver does not say why (on Linux: is the nvidia_uvm module loaded?)")

typedef enum cudaError_enum {
#define X(name, value, meaning) name = value,
    CUDA_RESULTS(X)
#undef X
} CUresult;

typedef enum CUdevice_attribute_enum {
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT = 17,
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
    CU_DEVICE_ATTRIBUTE_TCC_DRIVER = 35,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120
} CUdevice_attribute;

enum { CU_COMPUTEMODE_DEFAULT = 0, CU_COMPUTEMODE_PROHIBITED = 2, CU_COMPUTEMODE_EXCLUSIVE_PROCESS = 3 };
enum { CU_CTX_SCHED_AUTO = 0, CU_CTX_SCHED_SPIN = 1, CU_CTX_SCHED_YIELD = 2, CU_CTX_SCHED_BLOCKING_SYNC = 4 };
enum { CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_DEFAULT = 0, CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_MEMHOSTALLOC_PORTABLE = 1, CU_MEMHOSTALLOC_DEVICEMAP = 2, CU_MEMHOSTALLOC_WRITECOMBINED = 4 };

typedef enum CUfunction_attribute_enum {
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
    CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
} CUfunction_attribute;

typedef enum CUjit_option_enum {
    CU_JIT_MAX_REGISTERS = 0,
    CU_JIT_INFO_LOG_BUFFER = 3,
    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    CU_JIT_OPTIMIZATION_LEVEL = 7
} CUjit_option;

typedef enum CUmemorytype_enum {
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,
    CU_MEMORYTYPE_ARRAY = 3,
    CU_MEMORYTYPE_UNIFIED = 4
} CUmemorytype;

typedef struct CUDA_MEMCPY3D_st {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void *reserved0;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void *reserved1;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef struct CUDA_MEMSET_NODE_PARAMS_st {
    CUdeviceptr dst;
    size_t pitch;
    unsigned int value, elementSize; /* of 1, 2 or 4 bytes */
    size_t width, height;            /* elements, rows */
} CUDA_MEMSET_NODE_PARAMS;

typedef struct CUDA_KERNEL_NODE_PARAMS_v2_st {
    CUfunction func;
    unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra;
    CUkernel kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef enum CUlaunchAttributeID_enum {
    CU_LAUNCH_ATTRIBUTE_IGNORE = 0,
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW = 1,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 5,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT = 7,
    CU_LAUNCH_ATTRIBUTE_PRIORITY = 8
} CUlaunchAttributeID;

typedef union CUlaunchAttributeValue_union {
    char pad[64]; /* the driver's own size of it */
    int cooperative, priority;
    struct {
        unsigned int x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
    struct {
        CUevent event;
        int flags, triggerAtBlockStart;
    } programmaticEvent;
    uint64_t align_; /* as strict as the strictest of the driver's members */
} CUlaunchAttributeValue;

typedef struct CUlaunchAttribute_st {
    CUlaunchAttributeID id;
    char pad[8 - sizeof(CUlaunchAttributeID)];
    CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig_st {
    unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;

typedef CUlaunchAttributeID CUkernelNodeAttrID;
typedef CUlaunchAttributeValue CUkernelNodeAttrValue;

/* Edges of a graph: type 1 with from_port 1 lets the later kernel start before the earlier one has ended (programmatic launch). */
typedef struct CUgraphEdgeData_st {
    unsigned char from_port, to_port, type, reserved[5];
} CUgraphEdgeData;
enum { CU_GRAPH_DEPENDENCY_TYPE_DEFAULT = 0, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC = 1 };
enum { CU_GRAPH_KERNEL_NODE_PORT_DEFAULT = 0, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER = 2 };

typedef enum CUgraphExecUpdateResult_enum {
    CU_GRAPH_EXEC_UPDATE_SUCCESS = 0,
    CU_GRAPH_EXEC_UPDATE_ERROR = 1,
    CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2
} CUgraphExecUpdateResult;

typedef struct CUgraphExecUpdateResultInfo_st {
    CUgraphExecUpdateResult result;
    CUgraphNode errorNode, errorFromNode;
} CUgraphExecUpdateResultInfo;

/* An address map for the copy engine of capability 9.0 and later; passed to kernels by value. */
typedef struct CUtensorMap_st {
    _Alignas(64) uint64_t opaque[16];
} CUtensorMap;
typedef enum CUtensorMapDataType_enum {
    CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
    CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1,
    CU_TENSOR_MAP_DATA_TYPE_UINT32 = 2,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9
} CUtensorMapDataType;
typedef enum CUtensorMapInterleave_enum { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 } CUtensorMapInterleave;
typedef enum CUtensorMapSwizzle_enum {
    CU_TENSOR_MAP_SWIZZLE_NONE = 0,
    CU_TENSOR_MAP_SWIZZLE_32B = 1,
    CU_TENSOR_MAP_SWIZZLE_64B = 2,
    CU_TENSOR_MAP_SWIZZLE_128B = 3
} CUtensorMapSwizzle;
typedef enum CUtensorMapL2promotion_enum {
    CU_TENSOR_MAP_L2_PROMOTION_NONE = 0,
    CU_TENSOR_MAP_L2_PROMOTION_L2_64B = 1,
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3
} CUtensorMapL2promotion;
typedef enum CUtensorMapFloatOOBfill_enum { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 } CUtensorMapFloatOOBfill;

#endif
