/* Calling a PJRT plugin. */
#include "backend/xla/pjrt.h"

#include "backend/xla/pjrt_abi.h"
#include "os/os.h"

#include <assert.h>

enum slot_use { UNUSED, OPTIONAL, NEEDED };

static const struct {
    const char *name;
    enum slot_use use;
} slots[N_PJRT_SLOTS] = {
#define SLOT(name, use) {#name, use},
#include "backend/xla/pjrt.def"
#undef SLOT
};

static pjrt_fn *function_of(const struct pjrt_table *t, enum pjrt_slot slot) {
    size_t known = (t->struct_size - offsetof(struct pjrt_table, fn)) / sizeof(pjrt_fn *);
    return (size_t)slot < known ? t->fn[slot] : NULL;
}

/* ---- errors ------------------------------------------------------------------------------------------------------- */

/* One line of at most `max` bytes: what XLA says may be pages. */
static struct str first_line(struct str s, size_t max) {
    size_t end = str_find_char(s, '\n', 0);
    if (end != STR_NONE) s.n = end;
    if (s.n > max) s.n = max;
    s.n = utf8_complete_prefix(s);
    return s;
}

/* Turns the plugin's error into ours and frees it. */
static int fail(const struct pjrt *p, void *error, const char *what, struct err *err) {
    struct pjrt_code_args code = {.struct_size = sizeof code, .error = error};
    struct pjrt_text_args text = {.struct_size = sizeof text, .object = error};
    function_of(p->table, PJRT_SLOT_Error_GetCode)(&code);
    function_of(p->table, PJRT_SLOT_Error_Message)(&text);
    int ours = code.code == PJRT_RESOURCE_EXHAUSTED ? ERR_EMEMORY : code.code == PJRT_UNIMPLEMENTED ? ERR_EUNSUPPORTED : ERR_EDEVICE;
    err_set(err, ours, "%s: %.*s", what, STR_ARG(first_line(str_n(text.text, text.size), 300)));
    struct pjrt_object_args gone = {.struct_size = sizeof gone, .object = error};
    function_of(p->table, PJRT_SLOT_Error_Destroy)(&gone);
    return ours;
}

/* Calls a function with its struct of arguments, which must be an lvalue. */
#define CALL(p, slot, args, what, err)                                            \
    do {                                                                          \
        void *error_ = call((p)->table, PJRT_SLOT_##slot, &(args), sizeof(args)); \
        if (error_) return fail((p), error_, (what), (err));                      \
    } while (0)

static void *call(const struct pjrt_table *t, enum pjrt_slot slot, void *args, size_t size) {
    memcpy(args, &size, sizeof size);
    return function_of(t, slot)(args);
}

static void drop(const struct pjrt *p, enum pjrt_slot slot, void *object) {
    struct pjrt_object_args args = {.object = object};
    if (!object || !function_of(p->table, slot)) return;
    void *error = call(p->table, slot, &args, sizeof args);
    if (error) fail(p, error, slots[slot].name, NULL);
}

/* Waits for an event and frees it. */
static int await(const struct pjrt *p, void *event, const char *what, struct err *err) {
    struct pjrt_object_args args = {.object = event};
    if (!event) return ERR_OK;
    void *error = call(p->table, PJRT_SLOT_Event_Await, &args, sizeof args);
    int code = error ? fail(p, error, what, err) : ERR_OK;
    drop(p, PJRT_SLOT_Event_Destroy, event);
    return code;
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

static int check_table(struct pjrt *p, struct err *err) {
    const struct pjrt_table *t = p->table;
    if (!t || t->struct_size < offsetof(struct pjrt_table, fn) || t->version.struct_size < 24)
        return err_set(err, ERR_EUNSUPPORTED, "%s is no PJRT plugin: its function table is %zu bytes long", p->path,
                       t ? t->struct_size : (size_t)0);
    p->major = t->version.major;
    p->minor = t->version.minor;
    if (p->major != PJRT_MAJOR || p->minor < PJRT_MINOR_MIN)
        return err_set(err, ERR_EUNSUPPORTED, "%s speaks PJRT %d.%d; mlxcel needs %d.%d or later: install a newer plugin", p->path,
                       p->major, p->minor, PJRT_MAJOR, PJRT_MINOR_MIN);
    for (int i = 0; i < N_PJRT_SLOTS; i++)
        if (slots[i].use == NEEDED && !function_of(t, (enum pjrt_slot)i))
            return err_set(err, ERR_EUNSUPPORTED, "%s (PJRT %d.%d) lacks the function %s", p->path, p->major, p->minor, slots[i].name);
    return ERR_OK;
}

static int open_library(struct pjrt *p, const char *path, struct err *err) {
    const struct pjrt_table *(*get)(void);
    p->path = path;
    TRY(os_dl_open(path, OS_DL_ANY, &p->lib, err));
    if (!os_dl_symbol(p->lib, "GetPjrtApi", &get))
        return err_set(err, ERR_EUNSUPPORTED, "%s is no PJRT plugin: it has no function GetPjrtApi", path);
    p->table = get();
    return check_table(p, err);
}

static void copy_text(char *out, size_t size, const struct pjrt_text_args *from) {
    size_t n = from->size < size - 1 ? from->size : size - 1;
    if (n) memcpy(out, from->text, n);
    out[n] = 0;
}

static struct pjrt_named_value named(const char *name) {
    return (struct pjrt_named_value){
        .struct_size = sizeof(struct pjrt_named_value), .name = name, .name_size = strlen(name), .value_size = 1};
}

/* Options are given only where the user asked: a plugin refuses those that it does not know. */
static int create_client(struct pjrt *p, const struct pjrt_options *o, struct err *err) {
    struct pjrt_named_value values[2];
    struct pjrt_client_create_args args = {.options = values};
    if (o->memory_fraction > 0) {
        values[args.n_options] = named("memory_fraction");
        values[args.n_options].type = PJRT_VALUE_FLOAT;
        values[args.n_options++].value.float_value = (float)o->memory_fraction;
    }
    if (o->no_preallocate) {
        values[args.n_options] = named("preallocate");
        values[args.n_options].type = PJRT_VALUE_BOOL;
        values[args.n_options++].value.bool_value = false;
    }
    CALL(p, Client_Create, args, "starting the plugin's client", err);
    p->client = args.client;
    return ERR_OK;
}

static int pick_devices(struct pjrt *p, const struct pjrt_options *o, struct err *err) {
    int first = o->device < 0 ? 0 : o->device, n = o->n_used > 1 ? o->n_used : 1;
    struct pjrt_devices_args devices = {.client = p->client};
    struct pjrt_text_args text = {.object = p->client};
    CALL(p, Client_AddressableDevices, devices, "listing devices", err);
    p->n_devices = (int)devices.n_devices;
    if (p->n_devices == 0) return err_set(err, ERR_ENOTFOUND, "%s finds no device here", p->path);
    if (first + n > p->n_devices)
        return err_set(err, ERR_ENOTFOUND, "there is no device %d: %s has %d", first + n - 1, p->path, p->n_devices);
    p->n_used = n;
    for (int i = 0; i < n; i++) p->devices[i] = devices.devices[first + i];
    p->device = p->devices[0];
    CALL(p, Client_PlatformName, text, "asking for the platform", err);
    copy_text(p->platform, sizeof p->platform, &text);
    CALL(p, Client_PlatformVersion, text, "asking for the platform's version", err);
    copy_text(p->platform_version, sizeof p->platform_version, &text);
    struct pjrt_pair_args description = {.object = p->device};
    CALL(p, Device_GetDescription, description, "asking for the device", err);
    struct pjrt_text_args kind = {.object = description.result};
    CALL(p, DeviceDescription_Kind, kind, "asking for the device's kind", err);
    copy_text(p->device_kind, sizeof p->device_kind, &kind);
    return ERR_OK;
}

int pjrt_open(const struct pjrt_options *options, struct pjrt *out, struct err *err) {
    *out = (struct pjrt){0};
    struct pjrt_none_args none = {0};
    TRY(open_library(out, options->plugin, err));
    CALL(out, Plugin_Initialize, none, "starting the plugin", err);
    TRY(create_client(out, options, err));
    int code = pick_devices(out, options, err);
    if (code) pjrt_close(out);
    return code;
}

void pjrt_close(struct pjrt *p) {
    if (p->client) drop(p, PJRT_SLOT_Client_Destroy, p->client);
    p->client = NULL;
}

/* ---- buffers ------------------------------------------------------------------------------------------------------ */

static const unsigned char buffer_types[N_DTYPES] = {
    [DT_F32] = PJRT_F32, [DT_F16] = PJRT_F16, [DT_BF16] = PJRT_BF16, [DT_F64] = PJRT_F64, [DT_I8] = PJRT_S8,   [DT_I16] = PJRT_S16,
    [DT_I32] = PJRT_S32, [DT_I64] = PJRT_S64, [DT_U8] = PJRT_U8,     [DT_U16] = PJRT_U16, [DT_U32] = PJRT_U32, [DT_U64] = PJRT_U64,
};

/* With several devices, a pjrt_buffer is a group: one buffer of the plugin's for each of them. With one it is the plugin's own. */
struct group {
    void *parts[PJRT_DEVICES_MAX];
};

static struct group *new_group(void) {
    const char *guard = mem_guard_pause(); /* results of every run are new ones */
    struct group *g = mem_alloc(sizeof *g);
    mem_guard_resume(guard);
    return g;
}

static int upload_to(struct pjrt *p, void *device, const void *data, const struct pjrt_shape *shape, void **out, struct err *err) {
    struct pjrt_upload_args args = {.client = p->client,
                                    .data = data,
                                    .type = buffer_types[shape->dtype],
                                    .dims = shape->dims,
                                    .n_dims = (size_t)shape->rank,
                                    .semantics = PJRT_COPY_DURING_CALL,
                                    .device = device};
    CALL(p, Client_BufferFromHostBuffer, args, "copying to the device", err);
    int code = await(p, args.done, "copying to the device", err);
    if (code) drop(p, PJRT_SLOT_Buffer_Destroy, args.buffer);
    *out = code ? NULL : args.buffer;
    return code;
}

/* Rows [n_rows, row_bytes] of which each has its part k: behind each other in `out`. */
static void gather_part(const unsigned char *data, int64_t n_rows, size_t row_bytes, size_t part_bytes, int k, unsigned char *out) {
    for (int64_t i = 0; i < n_rows; i++)
        memcpy(out + (size_t)i * part_bytes, data + (size_t)i * row_bytes + (size_t)k * part_bytes, part_bytes);
}

static int upload_parts(struct pjrt *p, const void *data, const struct pjrt_shape *shape, struct group *g, struct err *err) {
    struct pjrt_shape part = *shape;
    size_t bytes = (size_t)dtype_bits(shape->dtype) / 8;
    for (int i = 0; i < shape->rank; i++) bytes *= (size_t)shape->dims[i];
    if (shape->cut) part.dims[shape->cut - 1] /= p->n_used;
    size_t part_bytes = shape->cut ? bytes / (size_t)p->n_used : 0;
    unsigned char *stage = shape->cut == 2 ? mem_try(part_bytes ? part_bytes : 1) : NULL;
    if (shape->cut == 2 && !stage) return err_set(err, ERR_EMEMORY, "no memory for a part of %zu bytes", part_bytes);
    int code = ERR_OK;
    for (int k = 0; k < p->n_used && !code; k++) {
        const unsigned char *from = (const unsigned char *)data + (size_t)k * part_bytes;
        if (stage) gather_part(data, shape->dims[0], bytes / (size_t)shape->dims[0], part_bytes / (size_t)shape->dims[0], k, stage);
        code = upload_to(p, p->devices[k], stage ? stage : from, &part, &g->parts[k], err);
    }
    mem_free(stage);
    return code;
}

int pjrt_upload(struct pjrt *p, const void *data, const struct pjrt_shape *shape, struct pjrt_buffer **out, struct err *err) {
    assert(buffer_types[shape->dtype] && shape->cut <= 2 && (!shape->cut || shape->dims[shape->cut - 1] % p->n_used == 0));
    *out = NULL;
    if (p->n_used == 1) return upload_to(p, p->device, data, shape, (void **)out, err);
    struct group *g = new_group();
    int code = upload_parts(p, data, shape, g, err);
    if (code) pjrt_buffer_free(p, (struct pjrt_buffer *)g);
    else *out = (struct pjrt_buffer *)g;
    return code;
}

int pjrt_download(struct pjrt *p, struct pjrt_buffer *b, void *dst, size_t bytes, struct err *err) {
    struct pjrt_download_args args = {.buffer = p->n_used == 1 ? (void *)b : ((struct group *)b)->parts[0], .dst = dst, .dst_size = bytes};
    CALL(p, Buffer_ToHostBuffer, args, "reading from the device", err);
    return await(p, args.event, "running on the device", err);
}

void pjrt_buffer_free(struct pjrt *p, struct pjrt_buffer *b) {
    struct group *g = (struct group *)b;
    if (p->n_used == 1 || !b) {
        drop(p, PJRT_SLOT_Buffer_Destroy, b);
        return;
    }
    for (int k = 0; k < p->n_used; k++) drop(p, PJRT_SLOT_Buffer_Destroy, g->parts[k]);
    mem_free(g);
}

/* ---- programs ----------------------------------------------------------------------------------------------------- */

#define TRITON_OPTION "xla_gpu_enable_triton_gemm"

/* CompileOptionsProto as wire bytes: executable_build_options (3) with device_ordinal (1) -1, num_replicas (4) 1, num_partitions (5) and, where there
 * are several, use_spmd_partitioning (6). library: an entry of env_option_overrides (7): the option's name (1), and as its value (2) false as
 * bool_field (2). */
static void put_options(struct sb *out, int n_partitions, bool library) {
    bool many = n_partitions > 1;
    sb_put(out, many ? STR("\x1a\x11") : STR("\x1a\x0f"));
    sb_put(out, STR("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28"));
    sb_putc(out, (char)n_partitions);
    if (many) sb_put(out, STR("\x30\x01"));
    if (library) sb_put(out, STR("\x3a\x20\x0a\x1a" TRITON_OPTION "\x12\x02\x10\x00"));
}

static int compile_with(struct pjrt *p, struct str program, bool library, struct pjrt_executable **out, struct err *err) {
    struct sb options = {0};
    put_options(&options, p->n_used, library);
    struct pjrt_program code = {
        .struct_size = sizeof code, .code = (char *)(uintptr_t)program.p, .code_size = program.n, .format = "mlir", .format_size = 4};
    struct pjrt_compile_args args = {.client = p->client, .program = &code, .options = options.p, .options_size = options.n};
    void *error = call(p->table, PJRT_SLOT_Client_Compile, &args, sizeof args);
    sb_free(&options);
    if (error) return fail(p, error, "compiling a program", err);
    *out = args.executable;
    return ERR_OK;
}

int pjrt_compile(struct pjrt *p, struct str program, bool *library, struct pjrt_executable **out, struct err *err) {
    if (*library) {
        struct err refused;
        int code = compile_with(p, program, true, out, &refused);
        if (!code || str_find(str_of(refused.msg), STR(TRITON_OPTION), 0) == STR_NONE) {
            if (code && err) *err = refused;
            return code;
        }
        *library = false; /* a plugin that has no such option */
    }
    return compile_with(p, program, false, out, err);
}

static int execute(struct pjrt *p, struct pjrt_executable *e, void *const *const *args, size_t n_args, void **const *results,
                   struct err *err) {
    struct pjrt_execute_options options = {.struct_size = sizeof options};
    struct pjrt_execute_args run = {.executable = e,
                                    .options = &options,
                                    .argument_lists = args,
                                    .n_devices = (size_t)p->n_used,
                                    .n_args = n_args,
                                    .output_lists = results};
    CALL(p, LoadedExecutable_Execute, run, "running a program", err);
    return ERR_OK;
}

/* Lists for each device from groups, and groups from what comes out. */
static int execute_all(struct pjrt *p, struct pjrt_executable *e, struct group *const *args, size_t n_args, struct group **out,
                       size_t n_results, struct err *err) {
    const char *guard = mem_guard_pause();
    size_t n = (size_t)p->n_used;
    void **lists = mem_alloc(n * (n_args + n_results + 2) * sizeof *lists), **at = lists + 2 * n;
    mem_guard_resume(guard);
    for (size_t k = 0; k < n; k++) {
        lists[k] = at;
        for (size_t i = 0; i < n_args; i++) *at++ = args[i]->parts[k];
        lists[n + k] = at;
        at += n_results;
    }
    int code = execute(p, e, (void *const *const *)lists, n_args, (void **const *)(lists + n), err);
    for (size_t i = 0; i < n_results && !code; i++) {
        out[i] = new_group();
        for (size_t k = 0; k < n; k++) out[i]->parts[k] = ((void **)lists[n + k])[i];
    }
    mem_free(lists);
    return code;
}

int pjrt_execute(struct pjrt *p, struct pjrt_executable *e, struct pjrt_buffer *const *args, size_t n_args,
                 struct pjrt_buffer **out_results, size_t n_results, struct err *err) {
    if (p->n_used > 1)
        return execute_all(p, e, (struct group *const *)(uintptr_t)args, n_args, (struct group **)(uintptr_t)out_results, n_results, err);
    void *const *argument_list = (void *const *)(uintptr_t)args;
    void **result_list = (void **)(uintptr_t)out_results;
    return execute(p, e, &argument_list, n_args, &result_list, err);
}

void pjrt_executable_free(struct pjrt *p, struct pjrt_executable *e) {
    drop(p, PJRT_SLOT_LoadedExecutable_Destroy, e);
}

int pjrt_serialize(struct pjrt *p, struct pjrt_executable *e, struct sb *out, struct err *err) {
    if (!function_of(p->table, PJRT_SLOT_LoadedExecutable_GetExecutable) || !function_of(p->table, PJRT_SLOT_Executable_Serialize) ||
        !function_of(p->table, PJRT_SLOT_Executable_DeserializeAndLoad))
        return err_set(err, ERR_EUNSUPPORTED, "the plugin cannot save compiled programs");
    struct pjrt_pair_args get = {.object = e};
    CALL(p, LoadedExecutable_GetExecutable, get, "saving a program", err);
    struct pjrt_serialize_args args = {.executable = get.result};
    void *error = call(p->table, PJRT_SLOT_Executable_Serialize, &args, sizeof args);
    int code = error ? fail(p, error, "saving a program", err) : ERR_OK;
    if (!code) {
        sb_put(out, str_n(args.bytes, args.size));
        if (args.owner_free) args.owner_free(args.owner);
    }
    drop(p, PJRT_SLOT_Executable_Destroy, get.result);
    return code;
}

int pjrt_deserialize(struct pjrt *p, struct str bytes, struct pjrt_executable **out, struct err *err) {
    if (!function_of(p->table, PJRT_SLOT_Executable_DeserializeAndLoad))
        return err_set(err, ERR_EUNSUPPORTED, "the plugin cannot load compiled programs");
    struct pjrt_deserialize_args args = {.client = p->client, .bytes = bytes.p, .size = bytes.n};
    CALL(p, Executable_DeserializeAndLoad, args, "loading a saved program", err);
    *out = args.executable;
    return ERR_OK;
}

bool pjrt_memory(struct pjrt *p, uint64_t *out_used, uint64_t *out_total) {
    struct pjrt_stats_args args = {.device = p->device};
    if (!function_of(p->table, PJRT_SLOT_Device_MemoryStats)) return false;
    void *error = call(p->table, PJRT_SLOT_Device_MemoryStats, &args, sizeof args);
    if (error) return fail(p, error, "asking for memory", NULL), false;
    if (!args.limit.is_set || args.limit.value <= 0) return false;
    *out_used = (uint64_t)args.bytes_in_use;
    *out_total = (uint64_t)args.limit.value;
    return true;
}
