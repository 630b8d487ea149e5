/* A PJRT plugin that computes nothing itself: every call goes through a pair of pipes to the process that started this
 * one, which answers with the results of its own XLA (tests/xla/test_jax.py). So the whole backend, and whatever runs on
 * it, runs on jaxlib's client.
 *
 * PIPE_PLUGIN=READ,WRITE names the two descriptors, PIPE_DEVICES the number of devices where there are several. A request is a letter and numbers of 64 bits, then bytes; a reply
 * begins with 0, or with the length of an error message and the message.
 */
#include "backend/xla/pjrt_abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((visibility("default"))) const struct pjrt_table *GetPjrtApi(void);

enum { ARGS_MAX = 4096, DEVICES_MAX = 64 };

struct handle {
    int64_t id;
    int64_t n_results; /* of a program */
};

static int from_server = -1, to_server = -1;

/* ---- the wire ------------------------------------------------------------------------------------------------------ */

static void move_all(ssize_t (*step)(int fd, void *p, size_t n), int fd, void *p, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t got = step(fd, (char *)p + done, n - done);
        if (got <= 0) {
            fprintf(stderr, "pipe plugin: the other side is gone\n");
            exit(3);
        }
        done += (size_t)got;
    }
}

static ssize_t write_step(int fd, void *p, size_t n) {
    return write(fd, p, n);
}

static void put(const void *p, size_t n) {
    move_all(write_step, to_server, (void *)(uintptr_t)p, n);
}

static void get(void *p, size_t n) {
    move_all(read, from_server, p, n);
}

static void ask(char letter, const int64_t *numbers, size_t n) {
    put(&letter, 1);
    put(numbers, n * sizeof *numbers);
}

/* NULL, or the error that the other side reports: its message in a block of its own. */
static void *reply(void) {
    int64_t n;
    get(&n, sizeof n);
    if (n == 0) return NULL;
    char *text = calloc(1, (size_t)n + 1);
    get(text, (size_t)n);
    return text;
}

static struct handle *new_handle(void) {
    struct handle *h = calloc(1, sizeof *h);
    get(&h->id, sizeof h->id);
    return h;
}

/* ---- errors and events: nothing is ever pending -------------------------------------------------------------------- */

static void *error_free(void *args) {
    free(((struct pjrt_object_args *)args)->object);
    return NULL;
}

static void *error_text(void *args) {
    struct pjrt_text_args *a = args;
    a->text = a->object;
    a->size = strlen(a->text);
    return NULL;
}

static void *error_code(void *args) {
    ((struct pjrt_code_args *)args)->code = 13;
    return NULL;
}

static void *nothing(void *args) {
    (void)args;
    return NULL;
}

/* ---- the client ---------------------------------------------------------------------------------------------------- */

static void *create(void *args) {
    static int client;
    const char *pipes = getenv("PIPE_PLUGIN");
    if (!pipes || sscanf(pipes, "%d,%d", &from_server, &to_server) != 2) {
        char *text = calloc(1, 64);
        snprintf(text, 64, "PIPE_PLUGIN=READ,WRITE is not set");
        return text;
    }
    ((struct pjrt_client_create_args *)args)->client = &client;
    return NULL;
}

static char all_devices[DEVICES_MAX];

static void *devices(void *args) {
    static void *all[DEVICES_MAX];
    struct pjrt_devices_args *a = args;
    const char *number = getenv("PIPE_DEVICES");
    for (int i = 0; i < DEVICES_MAX; i++) all[i] = &all_devices[i];
    a->devices = all;
    a->n_devices = number ? (size_t)atoi(number) : 1;
    return NULL;
}

static void *text(void *args) {
    struct pjrt_text_args *a = args;
    a->text = "cpu";
    a->size = 3;
    return NULL;
}

static void *pair(void *args) {
    struct pjrt_pair_args *a = args;
    a->result = a->object;
    return NULL;
}

/* ---- buffers and programs ------------------------------------------------------------------------------------------ */

static void *object_free(void *args) {
    struct handle *h = ((struct pjrt_object_args *)args)->object;
    ask('F', &h->id, 1);
    free(h);
    return NULL;
}

static void *upload(void *args) {
    static const unsigned char sizes[] = {
        [PJRT_S32] = 4, [PJRT_U8] = 1, [PJRT_U16] = 2, [PJRT_U32] = 4, [PJRT_F16] = 2, [PJRT_F32] = 4, [PJRT_BF16] = 2};
    struct pjrt_upload_args *a = args;
    int64_t head[] = {a->type, (int64_t)a->n_dims, (char *)a->device - all_devices}, bytes = sizes[a->type];
    for (size_t i = 0; i < a->n_dims; i++) bytes *= a->dims[i];
    ask('U', head, 3);
    put(a->dims, a->n_dims * sizeof *a->dims);
    put(&bytes, sizeof bytes);
    put(a->data, (size_t)bytes);
    void *error = reply();
    if (!error) a->buffer = new_handle();
    return error;
}

static void *download(void *args) {
    struct pjrt_download_args *a = args;
    int64_t head[] = {((struct handle *)a->buffer)->id, (int64_t)a->dst_size};
    ask('D', head, 2);
    void *error = reply();
    if (!error) get(a->dst, a->dst_size);
    return error;
}

static void *compile(void *args) {
    struct pjrt_compile_args *a = args;
    int64_t sizes[] = {(int64_t)a->program->code_size, (int64_t)a->options_size};
    ask('C', sizes, 2);
    put(a->program->code, a->program->code_size);
    put(a->options, a->options_size);
    void *error = reply();
    if (error) return error;
    struct handle *h = new_handle();
    get(&h->n_results, sizeof h->n_results);
    a->executable = h;
    return NULL;
}

static void *execute(void *args) {
    struct pjrt_execute_args *a = args;
    struct handle *program = a->executable;
    int64_t head[] = {program->id, (int64_t)a->n_args, (int64_t)a->n_devices}, ids[ARGS_MAX];
    if (a->n_args > ARGS_MAX) abort();
    ask('X', head, 3);
    for (size_t k = 0; k < a->n_devices; k++) {
        for (size_t i = 0; i < a->n_args; i++) ids[i] = ((struct handle *)a->argument_lists[k][i])->id;
        put(ids, a->n_args * sizeof *ids);
    }
    void *error = reply();
    for (size_t k = 0; k < a->n_devices && !error; k++)
        for (int64_t i = 0; i < program->n_results; i++) a->output_lists[k][i] = new_handle();
    return error;
}

const struct pjrt_table *GetPjrtApi(void) {
    static struct pjrt_table table = {
        .struct_size = sizeof table,
        .version = {.struct_size = 24, .major = PJRT_MAJOR, .minor = PJRT_MINOR_MIN},
        .fn =
            {
                [PJRT_SLOT_Error_Destroy] = error_free,
                [PJRT_SLOT_Error_Message] = error_text,
                [PJRT_SLOT_Error_GetCode] = error_code,
                [PJRT_SLOT_Plugin_Initialize] = nothing,
                [PJRT_SLOT_Event_Destroy] = nothing,
                [PJRT_SLOT_Event_Await] = nothing,
                [PJRT_SLOT_Client_Create] = create,
                [PJRT_SLOT_Client_Destroy] = nothing,
                [PJRT_SLOT_Client_PlatformName] = text,
                [PJRT_SLOT_Client_PlatformVersion] = text,
                [PJRT_SLOT_Client_AddressableDevices] = devices,
                [PJRT_SLOT_Client_Compile] = compile,
                [PJRT_SLOT_Client_BufferFromHostBuffer] = upload,
                [PJRT_SLOT_DeviceDescription_Kind] = text,
                [PJRT_SLOT_Device_GetDescription] = pair,
                [PJRT_SLOT_LoadedExecutable_Destroy] = object_free,
                [PJRT_SLOT_LoadedExecutable_Execute] = execute,
                [PJRT_SLOT_Buffer_Destroy] = object_free,
                [PJRT_SLOT_Buffer_ToHostBuffer] = download,
            },
    };
    return &table;
}
