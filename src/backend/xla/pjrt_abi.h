/* The part of the PJRT C API's ABI that we use, in our own declarations.
 *
 * (1) Every struct begins with its own size and a pointer to extensions (we pass none).
 * (2) Plugins refuse a struct smaller than the one that they know, and ignore what lies behind it. Structs only grow at
 *     the end, and new fields mean nothing when zero: so ours end in spare zeros and serve newer plugins too.
 *     PJRT_NamedValue stands in arrays and has no spare room.
 * (3) Functions are found by their index in the table; one beyond the table's size, or NULL, is absent.
 */
#ifndef MLXCEL_BACKEND_XLA_PJRT_ABI_H
#define MLXCEL_BACKEND_XLA_PJRT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJRT_MAJOR = 0, PJRT_MINOR_MIN = 40, PJRT_SPARE = 8 };

#define PJRT_HEAD       \
    size_t struct_size; \
    void *extension_start
#define PJRT_TAIL uintptr_t spare[PJRT_SPARE]

enum pjrt_slot {
#define SLOT(name, use) PJRT_SLOT_##name,
#include "backend/xla/pjrt.def"
#undef SLOT
    N_PJRT_SLOTS
};

typedef void *pjrt_fn(void *args); /* returns an error, or NULL */

struct pjrt_table {
    PJRT_HEAD;
    struct {
        PJRT_HEAD;
        int major, minor;
    } version;
    pjrt_fn *fn[N_PJRT_SLOTS];
};

enum pjrt_type {
    PJRT_PRED = 1,
    PJRT_S8,
    PJRT_S16,
    PJRT_S32,
    PJRT_S64,
    PJRT_U8,
    PJRT_U16,
    PJRT_U32,
    PJRT_U64,
    PJRT_F16,
    PJRT_F32,
    PJRT_F64,
    PJRT_BF16
};

enum { PJRT_RESOURCE_EXHAUSTED = 8, PJRT_UNIMPLEMENTED = 12 };
enum { PJRT_VALUE_STRING, PJRT_VALUE_INT64, PJRT_VALUE_INT64_LIST, PJRT_VALUE_FLOAT, PJRT_VALUE_BOOL };
enum { PJRT_COPY_DURING_CALL = 0 };

struct pjrt_named_value {
    PJRT_HEAD;
    const char *name;
    size_t name_size;
    int type;
    union {
        const char *string_value;
        int64_t int64_value;
        const int64_t *int64_list;
        float float_value;
        bool bool_value;
    } value;
    size_t value_size;
};

/* One object in, nothing or a piece of text out. */
struct pjrt_object_args {
    PJRT_HEAD;
    void *object;
    PJRT_TAIL;
};
struct pjrt_text_args {
    PJRT_HEAD;
    void *object;
    const char *text;
    size_t size;
    PJRT_TAIL;
};
struct pjrt_code_args {
    PJRT_HEAD;
    void *error;
    int code;
    PJRT_TAIL;
};
struct pjrt_none_args {
    PJRT_HEAD;
    PJRT_TAIL;
};
struct pjrt_client_create_args {
    PJRT_HEAD;
    const struct pjrt_named_value *options;
    size_t n_options;
    void *kv_get, *kv_get_user, *kv_put, *kv_put_user;
    void *client; /* out */
    void *kv_try_get, *kv_try_get_user;
    PJRT_TAIL;
};
struct pjrt_devices_args {
    PJRT_HEAD;
    void *client;
    void *const *devices; /* out */
    size_t n_devices;     /* out */
    PJRT_TAIL;
};
struct pjrt_program {
    PJRT_HEAD;
    char *code;
    size_t code_size;
    const char *format;
    size_t format_size;
    PJRT_TAIL;
};
struct pjrt_compile_args {
    PJRT_HEAD;
    void *client;
    const struct pjrt_program *program;
    const char *options;
    size_t options_size;
    void *executable; /* out */
    PJRT_TAIL;
};
struct pjrt_upload_args {
    PJRT_HEAD;
    void *client;
    const void *data;
    int type;
    const int64_t *dims;
    size_t n_dims;
    const int64_t *byte_strides;
    size_t n_byte_strides;
    int semantics;
    void *device, *memory, *layout;
    void *done;   /* out: event */
    void *buffer; /* out */
    PJRT_TAIL;
};
struct pjrt_pair_args { /* one object in, one out */
    PJRT_HEAD;
    void *object;
    void *result; /* out */
    PJRT_TAIL;
};
struct pjrt_stats_args {
    PJRT_HEAD;
    void *device;
    int64_t bytes_in_use;
    struct {
        int64_t value;
        bool is_set;
    } peak_in_use, n_allocs, largest_alloc, limit, reserved, peak_reserved, reservable_limit, largest_free, pool, peak_pool;
    PJRT_TAIL;
};
struct pjrt_execute_options {
    PJRT_HEAD;
    void *send_callbacks, *recv_callbacks;
    size_t n_send, n_recv;
    int launch_id;
    const int64_t *non_donatable;
    size_t n_non_donatable;
    void *context;
    const char *call_location;
    size_t n_tasks;
    int *task_ids;
    int64_t *incarnation_ids;
    PJRT_TAIL;
};
struct pjrt_execute_args {
    PJRT_HEAD;
    void *executable;
    struct pjrt_execute_options *options;
    void *const *const *argument_lists;
    size_t n_devices, n_args;
    void **const *output_lists;
    void **complete_events;
    void *device;
    PJRT_TAIL;
};
struct pjrt_serialize_args {
    PJRT_HEAD;
    const void *executable;
    const char *bytes;             /* out */
    size_t size;                   /* out */
    void *owner;                   /* out */
    void (*owner_free)(void *own); /* out */
    PJRT_TAIL;
};
struct pjrt_deserialize_args {
    PJRT_HEAD;
    void *client;
    const char *bytes;
    size_t size;
    void *executable; /* out */
    const char *options;
    size_t options_size;
    PJRT_TAIL;
};
struct pjrt_download_args {
    PJRT_HEAD;
    void *buffer;
    void *layout;
    void *dst;
    size_t dst_size;
    void *event; /* out */
    PJRT_TAIL;
};

#endif
