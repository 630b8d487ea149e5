/* The true driver, but of a smaller GPU: LIMIT_CUDA="sms=28;shared=101376" is what it says of multiprocessors and of shared memory for a block.
 * With kernels compiled to match (as_geforce.sh) a large GPU then runs what a GeForce runs. With "lost", launches of kernels/one.cu in graphs are
 * a block short, for which the others then wait. Every other function is the true driver's, which lies beside this library as
 * libcuda-true.so.1. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { SMS = 16, SHARED = 97, FUNCTIONS = 64 }; /* CU_DEVICE_ATTRIBUTE_ MULTIPROCESSOR_COUNT, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */

typedef int get_attribute(int *value, int attribute, int device);
typedef int get_function(void **function, void *module, const char *name);
struct node_params { /* the beginning of CUDA_KERNEL_NODE_PARAMS */
    void *function;
    unsigned grid_x;
};
typedef int add_node(void **node, void *graph, const void *before, size_t n_before, struct node_params *params);

static void *true_function(const char *name) {
    void *library = dlopen("libcuda-true.so.1", RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}

static void *ones[FUNCTIONS]; /* of kernels/one.cu */
static int n_ones;

int cuModuleGetFunction(void **function, void *module, const char *name) {
    get_function *ask;
    *(void **)&ask = true_function("cuModuleGetFunction");
    int code = ask ? ask(function, module, name) : 999;
    if (code == 0 && !strncmp(name, "one_", 4) && n_ones < FUNCTIONS) ones[n_ones++] = *function;
    return code;
}

int cuGraphAddKernelNode_v2(void **node, void *graph, const void *before, size_t n_before, struct node_params *params) {
    const char *limits = getenv("LIMIT_CUDA");
    add_node *add;
    unsigned all = params->grid_x;
    *(void **)&add = true_function("cuGraphAddKernelNode_v2");
    for (int i = 0; i < n_ones; i++)
        if (params->function == ones[i] && limits && strstr(limits, "lost") && all > 1) params->grid_x = all - 1;
    int code = add ? add(node, graph, before, n_before, params) : 999;
    params->grid_x = all;
    return code;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const char *limits = getenv("LIMIT_CUDA"), *at = NULL;
    get_attribute *ask;
    *(void **)&ask = true_function("cuDeviceGetAttribute");
    if (!ask) return 999;
    int code = ask(value, attribute, device);
    if (limits && attribute == SMS) at = strstr(limits, "sms=");
    if (limits && attribute == SHARED) at = strstr(limits, "shared=");
    int most = at ? atoi(strchr(at, '=') + 1) : *value;
    if (code == 0 && *value > most) *value = most;
    return code;
}
