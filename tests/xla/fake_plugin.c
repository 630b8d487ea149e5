/* A PJRT plugin that computes nothing: every way in which a plugin can be wrong or fail, chosen by fake_pjrt_set.
 * Buffers are memory of the host. A program's results are those that its text declares: where an argument lends a result
 * its memory, that argument's bytes, and the argument may not be used again; else zeros. */
#include "backend/xla/pjrt_abi.h"

#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

struct fake_error {
    int code;
    const char *text;
};

struct fake_buffer {
    size_t bytes;
    int is_given_away; /* a result has its memory */
    unsigned char data[];
};

enum { RESULTS_MAX = 64 };

struct fake_program {
    size_t n_results, bytes[RESULTS_MAX];
    int lender[RESULTS_MAX]; /* number of the argument, or -1 */
};

static const unsigned char type_bytes[] = {
    [PJRT_S32] = 4, [PJRT_U8] = 1, [PJRT_U16] = 2, [PJRT_U32] = 4, [PJRT_F16] = 2, [PJRT_F32] = 4, [PJRT_BF16] = 2};
static char mode[32];
static int n_compiled;
static int n_alive; /* buffers, programs, events and errors that nobody freed */
static struct pjrt_table table;

EXPORT void fake_pjrt_set(const char *wanted);
EXPORT int fake_pjrt_alive(void);
EXPORT int fake_pjrt_compiled(void); /* programs, since it was loaded */
EXPORT const struct pjrt_table *GetPjrtApi(void);

void fake_pjrt_set(const char *wanted) {
    strncpy(mode, wanted, sizeof mode - 1);
}

int fake_pjrt_alive(void) {
    return n_alive;
}

int fake_pjrt_compiled(void) {
    return n_compiled;
}

static int is(const char *wanted) {
    return strcmp(mode, wanted) == 0;
}

static void *fail(int code, const char *text) {
    struct fake_error *e = malloc(sizeof *e);
    e->code = code;
    e->text = text;
    n_alive++;
    return e;
}

/* As plugins do: a struct that is smaller than the one known here is refused. */
#define SIZED(type, args)  \
    struct type *a = args; \
    if (a->struct_size < sizeof *a - sizeof a->spare) return fail(3, "unexpected struct size")

static void *object_free(void *args) {
    SIZED(pjrt_object_args, args);
    free(a->object);
    n_alive--;
    return NULL;
}

static void *error_text(void *args) {
    SIZED(pjrt_text_args, args);
    a->text = ((struct fake_error *)a->object)->text;
    a->size = strlen(a->text);
    return NULL;
}

static void *error_code(void *args) {
    SIZED(pjrt_code_args, args);
    a->code = ((struct fake_error *)a->error)->code;
    return NULL;
}

static void *nothing(void *args) {
    (void)args;
    return NULL;
}

static void *event(void) {
    n_alive++;
    return malloc(1);
}

static void *await(void *args) {
    SIZED(pjrt_object_args, args);
    return is("await") ? fail(13, "the device stopped\nand pages of detail") : NULL;
}

static void *create(void *args) {
    SIZED(pjrt_client_create_args, args);
    if (is("client")) return fail(9, "no driver for this device");
    if (is("large structs")) return fail(3, "unexpected struct size: expected 4096");
    if (a->n_options && is("options") && a->options[0].struct_size != sizeof *a->options) return fail(3, "options");
    a->client = &table;
    return NULL;
}

static void *devices(void *args) {
    static void *const all[] = {&mode, &n_alive};
    SIZED(pjrt_devices_args, args);
    a->devices = all;
    a->n_devices = is("no device") ? 0 : 2;
    return NULL;
}

static void *text(void *args) {
    SIZED(pjrt_text_args, args);
    a->text = "fake";
    a->size = 4;
    return NULL;
}

static void *version(void *args) {
    SIZED(pjrt_text_args, args);
    a->text = is("version 2") ? "fake 2" : "fake 1";
    a->size = 6;
    return NULL;
}

static void *pair(void *args) {
    SIZED(pjrt_pair_args, args);
    a->result = a->object;
    return NULL;
}

static struct fake_buffer *new_buffer(size_t bytes) {
    struct fake_buffer *b = calloc(1, sizeof *b + bytes);
    b->bytes = bytes;
    n_alive++;
    return b;
}

static void *upload(void *args) {
    SIZED(pjrt_upload_args, args);
    if (is("memory")) return fail(PJRT_RESOURCE_EXHAUSTED, "out of memory allocating 17 bytes");
    size_t n = type_bytes[a->type];
    for (size_t i = 0; i < a->n_dims; i++) n *= (size_t)a->dims[i];
    struct fake_buffer *b = new_buffer(n);
    memcpy(b->data, a->data, n);
    a->buffer = b;
    a->done = event();
    return NULL;
}

static void *download(void *args) {
    SIZED(pjrt_download_args, args);
    struct fake_buffer *b = a->buffer;
    if (a->dst_size > b->bytes) return fail(3, "too many bytes");
    memcpy(a->dst, b->data, a->dst_size);
    a->event = event();
    return NULL;
}

/* Bytes of "tensor<2x3xf32>", of which `at` points behind the "<". */
static size_t tensor_bytes(const char *at) {
    size_t n = 1;
    for (; *at >= '0' && *at <= '9'; at++) n *= (size_t)strtoull(at, (char **)(uintptr_t)&at, 10);
    return n * (strncmp(at, "ui8", 3) == 0 ? 1 : strncmp(at, "bf16", 4) == 0 || strncmp(at, "f16", 3) == 0 ? 2 : 4);
}

/* Arguments that lend their memory say so in the program's head, results are listed behind the arrow. */
static void read_signature(struct fake_program *p, const char *text) {
    const char *arrow = strstr(text, "\n    -> ("), *end = arrow ? strstr(arrow, ") {\n") : NULL;
    for (int i = 0; i < RESULTS_MAX; i++) p->lender[i] = -1;
    if (!end) return;
    int argument = -1;
    for (const char *at = strstr(text, "@main("); at < arrow; at++) {
        if (strncmp(at, ": tensor<", 9) == 0) argument++;
        if (strncmp(at, "tf.aliasing_output = ", 21) == 0) p->lender[strtol(at + 21, NULL, 10)] = argument;
    }
    for (const char *at = arrow; (at = strstr(at, "tensor<")) && at < end; at += 7) p->bytes[p->n_results++] = tensor_bytes(at + 7);
}

static struct fake_program *new_program(const char *text, size_t n) {
    struct fake_program *p = calloc(1, sizeof *p);
    char *copy = calloc(1, n + 1);
    memcpy(copy, text, n);
    read_signature(p, copy);
    free(copy);
    n_alive++;
    return p;
}

static void *compile(void *args) {
    SIZED(pjrt_compile_args, args);
    if (is("compile")) return fail(3, "line 3: unknown operation");
    if (is("option") && a->options_size > 40) return fail(3, "No such compile option: 'xla_gpu_enable_triton_gemm'");
    a->executable = new_program(a->program->code, a->program->code_size);
    n_compiled++;
    return NULL;
}

static void *execute(void *args) {
    SIZED(pjrt_execute_args, args);
    if (is("run")) return fail(13, "the device is lost");
    const struct fake_program *p = a->executable;
    for (size_t k = 0; k < a->n_devices; k++)
        for (size_t i = 0; i < a->n_args; i++)
            if (((struct fake_buffer *)a->argument_lists[k][i])->is_given_away) return fail(3, "an argument was given away");
    for (size_t k = 0; k < a->n_devices; k++) {
        struct fake_buffer *const *in = (struct fake_buffer *const *)a->argument_lists[k];
        for (size_t i = 0; i < p->n_results; i++) {
            struct fake_buffer *from = p->lender[i] >= 0 ? in[p->lender[i]] : NULL, *b = new_buffer(p->bytes[i]);
            if (from && from->bytes == b->bytes) memcpy(b->data, from->data, b->bytes);
            if (from) from->is_given_away = 1;
            a->output_lists[k][i] = b;
        }
    }
    return NULL;
}

/* A saved program is its signature. */
static void *serialize(void *args) {
    SIZED(pjrt_serialize_args, args);
    a->bytes = a->executable;
    a->size = sizeof(struct fake_program);
    return NULL;
}

static void *deserialize(void *args) {
    SIZED(pjrt_deserialize_args, args);
    if (a->size != sizeof(struct fake_program) || is("load")) return fail(15, "damaged program");
    struct fake_program *p = new_program("", 0);
    memcpy(p, a->bytes, sizeof *p);
    a->executable = p;
    return NULL;
}

static void *stats(void *args) {
    SIZED(pjrt_stats_args, args);
    if (is("no stats")) return fail(PJRT_UNIMPLEMENTED, "no statistics");
    a->bytes_in_use = 100;
    a->limit.value = (int64_t)16 << 30;
    a->limit.is_set = true;
    return NULL;
}

static const struct {
    enum pjrt_slot slot;
    pjrt_fn *fn;
} functions[] = {
    {PJRT_SLOT_Error_Destroy, object_free},
    {PJRT_SLOT_Error_Message, error_text},
    {PJRT_SLOT_Error_GetCode, error_code},
    {PJRT_SLOT_Plugin_Initialize, nothing},
    {PJRT_SLOT_Event_Destroy, object_free},
    {PJRT_SLOT_Event_Await, await},
    {PJRT_SLOT_Client_Create, create},
    {PJRT_SLOT_Client_Destroy, nothing},
    {PJRT_SLOT_Client_PlatformName, text},
    {PJRT_SLOT_Client_PlatformVersion, version},
    {PJRT_SLOT_Client_AddressableDevices, devices},
    {PJRT_SLOT_Client_Compile, compile},
    {PJRT_SLOT_Client_BufferFromHostBuffer, upload},
    {PJRT_SLOT_DeviceDescription_Kind, text},
    {PJRT_SLOT_Device_GetDescription, pair},
    {PJRT_SLOT_Device_MemoryStats, stats},
    {PJRT_SLOT_Executable_Destroy, nothing},
    {PJRT_SLOT_Executable_Serialize, serialize},
    {PJRT_SLOT_LoadedExecutable_Destroy, object_free},
    {PJRT_SLOT_LoadedExecutable_GetExecutable, pair},
    {PJRT_SLOT_LoadedExecutable_Execute, execute},
    {PJRT_SLOT_Executable_DeserializeAndLoad, deserialize},
    {PJRT_SLOT_Buffer_Destroy, object_free},
    {PJRT_SLOT_Buffer_ToHostBuffer, download},
};

const struct pjrt_table *GetPjrtApi(void) {
    memset(&table, 0, sizeof table);
    table.struct_size = is("small table")   ? 16
                        : is("short table") ? offsetof(struct pjrt_table, fn) + 10 * sizeof(pjrt_fn *)
                                            : sizeof table;
    table.version.struct_size = is("small version") ? 8 : 24;
    table.version.major = is("new major") ? 1 : 0;
    table.version.minor = is("old") ? PJRT_MINOR_MIN - 1 : 115;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) table.fn[functions[i].slot] = functions[i].fn;
    if (is("missing")) table.fn[PJRT_SLOT_Buffer_ToHostBuffer] = NULL;
    if (is("no saving")) table.fn[PJRT_SLOT_Executable_Serialize] = NULL;
    return is("no table") ? NULL : &table;
}
