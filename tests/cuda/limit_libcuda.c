/* The true driver, but of a smaller GPU: LIMIT_CUDA="sms=28;shared=101376" is what it says of multiprocessors and of shared memory for a block.
 * With kernels compiled to match (as_geforce.sh) a large GPU then runs what a GeForce runs. Every other function is the true driver's, which
 * lies beside this library as libcuda-true.so.1. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { SMS = 16, SHARED = 97 }; /* CU_DEVICE_ATTRIBUTE_ MULTIPROCESSOR_COUNT, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */

typedef int get_attribute(int *value, int attribute, int device);

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const char *limits = getenv("LIMIT_CUDA"), *at = NULL;
    void *library = dlopen("libcuda-true.so.1", RTLD_NOW);
    get_attribute *ask;
    if (!library) return 999;
    *(void **)&ask = dlsym(library, "cuDeviceGetAttribute");
    int code = ask(value, attribute, device);
    if (limits && attribute == SMS) at = strstr(limits, "sms=");
    if (limits && attribute == SHARED) at = strstr(limits, "shared=");
    int most = at ? atoi(strchr(at, '=') + 1) : *value;
    if (code == 0 && *value > most) *value = most;
    return code;
}
