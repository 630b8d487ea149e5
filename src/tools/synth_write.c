/* Writing a made-up model: the safetensors header first, then tensor after tensor in pieces. */
#include "tools/synth_write.h"

#include "tools/new_folder.h"
#include "api/synth_internal.h"
#include "base/json.h"
#include "file/checkpoint.h"
#include "os/os.h"

enum { PIECE_BYTES = 4 << 20 };

static void header_text(const struct synth *s, struct sb *out) {
    struct jsonw w = {.out = out};
    uint64_t at = 0;
    jsonw_begin(&w, '{');
    jsonw_open(&w, "__metadata__", '{');
    jsonw_put_str(&w, "format", STR("mlx"));
    jsonw_end(&w, '}');
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct synth_tensor *t = &s->tensors[i];
        jsonw_key_str(&w, t->info.name);
        jsonw_begin(&w, '{');
        jsonw_put_str(&w, "dtype", str_of(dtype_name(t->info.dtype)));
        jsonw_open(&w, "shape", '[');
        for (int32_t k = 0; k < t->info.n_dims; k++) jsonw_int(&w, t->info.shape[k]);
        jsonw_end(&w, ']');
        jsonw_open(&w, "data_offsets", '[');
        jsonw_int(&w, (int64_t)at);
        jsonw_int(&w, (int64_t)(at += t->bytes));
        jsonw_end(&w, ']');
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, '}');
    while (out->n % 8) sb_putc(out, ' ');
}

static int write_tensors(const struct synth *s, struct os_file *f, uint64_t at, const struct synth_write_options *o, struct err *err) {
    uint64_t total = 0, done = 0;
    for (int32_t i = 0; i < s->n_tensors; i++) total += s->tensors[i].bytes;
    unsigned char *piece = mem_alloc(PIECE_BYTES);
    int code = ERR_OK;
    for (int32_t i = 0; i < s->n_tensors && !code; i++) {
        const struct synth_tensor *t = &s->tensors[i];
        for (uint64_t from = 0; from < t->bytes && !code; from += PIECE_BYTES) {
            size_t n = t->bytes - from < PIECE_BYTES ? (size_t)(t->bytes - from) : PIECE_BYTES;
            synth_fill(t, from, piece, n);
            code = os_file_write_at(f, piece, n, at + from, err);
            done += n;
            if (!code && o->progress && !o->progress(o->user, done, total)) code = err_set(err, ERR_ECANCELLED, "interrupted");
        }
        at += t->bytes;
    }
    mem_free(piece);
    return code;
}

static int write_weights(const struct synth *s, const char *path, const struct synth_write_options *o, struct err *err) {
    struct sb header = {0};
    struct os_file *f;
    header_text(s, &header);
    uint64_t n = header.n;
    int code = os_file_open(path, OS_WRITE, &f, err);
    if (code) {
        sb_free(&header);
        return code;
    }
    code = os_file_write_at(f, &n, sizeof n, 0, err);
    if (!code) code = os_file_write_at(f, header.p, header.n, sizeof n, err);
    if (!code) code = write_tensors(s, f, sizeof n + n, o, err);
    os_file_close(f);
    sb_free(&header);
    return code;
}

/* The tokenizer's files, from the built-in model. */
static int copy_tokenizer(struct arena *a, const char *dir, struct err *err) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "generation_config.json"};
    struct checkpoint built_in = {0};
    TRY(checkpoint_open(NULL, &built_in, err));
    int code = ERR_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && !code; i++) {
        struct str text;
        code = checkpoint_file_load(a, &built_in, names[i], 0, &text, err);
        if (!code) code = os_file_save(str_fmt(a, "%s/%s", dir, names[i]).p, text, err);
    }
    checkpoint_close(&built_in);
    return code;
}

static int write_folder(struct arena *a, const struct synth *s, const char *dir, const struct synth_write_options *o, struct err *err) {
    TRY(copy_tokenizer(a, dir, err));
    TRY(write_weights(s, str_fmt(a, "%s/model.safetensors", dir).p, o, err));
    return os_file_save(str_fmt(a, "%s/config.json", dir).p, s->config_json, err);
}

int synth_write(const struct synth_write_options *o, struct err *err) {
    struct arena a = {0};
    struct synth *s;
    struct new_folder folder;
    int code = synth_create(
        &a, &(struct synth_args){.shape = o->shape, .n_layers = o->n_layers, .bits = o->bits, .f16 = o->f16, .seed = o->seed}, &s, err);
    if (!code) code = new_folder_begin(&a, o->dir, &folder, err);
    if (!code) code = new_folder_end(&folder, write_folder(&a, s, folder.dir, o, err), err);
    arena_free(&a);
    return code;
}
