/* Devices: those of this machine, and those that models share. */
#include "lib/lib_internal.h"

#include "api/machine.h"

#include <stdatomic.h>
#include <stdio.h>

/* ---- shared ones -------------------------------------------------------------------------------------------------------- */

enum { SHARED_MAX = 32, NAME_BYTES = 32 };

/* Kept weakly: a row counts while a model holds its device, and holds it itself. When it is the last one that does, the device goes. */
struct shared {
    char name[NAME_BYTES];
    int32_t n_threads;
    struct device *device;
};
static struct shared shared[SHARED_MAX]; /* under the lock */
static struct os_mutex *_Atomic shared_lock;

static struct os_mutex *the_lock(void) {
    struct os_mutex *there = atomic_load(&shared_lock);
    if (there) return there;
    struct os_mutex *mine = os_mutex_create();
    if (atomic_compare_exchange_strong(&shared_lock, &there, mine)) return mine;
    os_mutex_destroy(mine);
    return there;
}

static void drop_unused(void) {
    for (int i = 0; i < SHARED_MAX; i++)
        if (shared[i].device && atomic_load(&shared[i].device->n_holders) == 1) {
            device_release(shared[i].device);
            shared[i].device = NULL;
        }
}

static int hold(const struct session_options *o, const char *name, struct device **out, struct err *err) {
    struct shared *room = NULL;
    drop_unused();
    for (int i = 0; i < SHARED_MAX; i++) {
        struct shared *s = &shared[i];
        if (!s->device) room = s;
        else if (s->n_threads == o->n_threads && strcmp(s->name, name) == 0 && !atomic_load(&s->device->lost)) {
            *out = device_hold(s->device);
            return ERR_OK;
        }
    }
    TRY(session_device_open(o, 0, out, err));
    if (!room) return ERR_OK; /* it has it alone */
    snprintf(room->name, sizeof room->name, "%s", name);
    room->n_threads = o->n_threads;
    room->device = device_hold(*out);
    return ERR_OK;
}

int lib_device_hold(const struct session_options *options, struct device **out, struct err *err) {
    const char *name = options->device ? options->device : "auto";
    if (strlen(name) >= NAME_BYTES) return err_set(err, ERR_EARG, "device \"%.60s\" is not known; use auto, cpu, cuda or cuda:N", name);
    os_mutex_lock(the_lock());
    int code = hold(options, name, out, err);
    os_mutex_unlock(the_lock());
    return code;
}

void lib_device_release(struct device *device) {
    if (!device) return;
    os_mutex_lock(the_lock());
    device_release(device);
    drop_unused();
    os_mutex_unlock(the_lock());
}

/* ---- those of this machine ---------------------------------------------------------------------------------------------- */

static int get(size_t index, mlxcel_device *out, struct err *err) {
    struct machine_device d;
    if (!machine_device_get(index, &d)) return err_set(err, ERR_ENOTFOUND, "this machine has no device number %zu", index);
    mlxcel_device full = {.is_usable = d.is_usable, .memory_bytes = d.total_bytes, .free_bytes = d.free_bytes};
    snprintf(full.name, sizeof full.name, "%s", d.name);
    snprintf(full.description, sizeof full.description, "%s", d.description);
    return lib_struct_write(out, &full, sizeof full, "mlxcel_device", err);
}

int32_t mlxcel_device_get(size_t index, mlxcel_device *out, mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, get(index, out, &err), &err);
}
