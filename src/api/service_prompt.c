/* A prompt's cache in a file: jobs that save and restore it, and the file itself. */
#include "api/service_internal.h"

#include "engine/saved.h"
#include "os/os.h"

struct service_saved {
    void *data;
    uint64_t bytes;
    struct saved saved;
    float *scales; /* [n_adapters] for the job; NULL: the model has none */
};

bool service_name_safe(struct str name) {
    return checkpoint_name_safe(name);
}

struct job_spec service_prompt_job(const struct service_prompt *p, enum job_cache what) {
    return (struct job_spec){.tokens = p->tokens, .n_tokens = p->n_tokens, .n_asked = p->n_asked, .cache = what, .adapters = p->adapters};
}

/* ---- saving --------------------------------------------------------------------------------------------------------------- */

int service_write_prompt(const struct job_events *ev, const char *path, struct err *err) {
    return os_file_save(path, str_n(ev->saved, ev->n_saved), err);
}

/* ---- restoring ------------------------------------------------------------------------------------------------------------ */

static int load(struct service_saved *f, struct os_file *file, const struct saved_reader *r, struct err *err) {
    struct saved_head head;
    TRY(os_file_size(file, &f->bytes, err));
    if (f->bytes < sizeof head) return err_set(err, ERR_EFORMAT, "the file is no saved cache");
    TRY(os_file_read_at(file, &head, sizeof head, 0, err));
    TRY(saved_check_head(&head, f->bytes, r, err));
    if (f->bytes > SIZE_MAX || !(f->data = mem_try((size_t)f->bytes)))
        return err_set(err, ERR_EMEMORY, "no memory for its %llu bytes", (unsigned long long)f->bytes);
    TRY(os_file_read_at(file, f->data, (size_t)f->bytes, 0, err));
    TRY(saved_open(f->data, f->bytes, r, &f->saved, err));
    if (r->n_adapters == 0) return ERR_OK;
    f->scales = mem_alloc((size_t)r->n_adapters * sizeof *f->scales);
    if (f->saved.n_scales) memcpy(f->scales, f->saved.scales, (size_t)r->n_adapters * sizeof *f->scales);
    return ERR_OK;
}

int service_read_prompt(const struct service *s, const char *path, struct service_saved **out, struct err *err) {
    struct saved_reader reader;
    struct os_file *file = NULL;
    TRY(engine_can_save(s->session->engine, err));
    struct service_saved *f = mem_alloc(sizeof *f);
    engine_saved_reader(s->session->engine, &reader);
    int code = os_file_open(path, OS_READ, &file, err);
    if (!code) code = load(f, file, &reader, err);
    os_file_close(file);
    if (!code) *out = f;
    else service_saved_free(f);
    return code;
}

void service_saved_free(struct service_saved *f) {
    if (!f) return;
    mem_free(f->data);
    mem_free(f->scales);
    mem_free(f);
}

uint64_t service_saved_bytes(const struct service_saved *f) {
    return f->bytes;
}

struct service_prompt service_saved_prompt(const struct service_saved *f) {
    return (struct service_prompt){.tokens = f->saved.tokens, .n_tokens = f->saved.n_tokens, .adapters = f->scales};
}

struct job_spec service_restore_job(const struct service_saved *f) {
    struct service_prompt p = service_saved_prompt(f);
    struct job_spec spec = service_prompt_job(&p, CACHE_RESTORE);
    spec.saved = &f->saved;
    return spec;
}
