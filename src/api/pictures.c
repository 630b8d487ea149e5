/* Pictures of a request. */
#include "api/pictures.h"

#include "api/session_internal.h"
#include "base/hash.h"
#include "base/log.h"
#include "os/os.h"

int session_check_pictures(const struct session *s, struct err *err) {
    if (s->vision) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "%s", s->vision_why.msg[0] ? s->vision_why.msg : "the model takes no pictures: it has no tower");
}

int session_check_picture(const struct session *s, struct str file, int32_t *out_width, int32_t *out_height, struct err *err) {
    struct image image;
    TRY(session_check_pictures(s, err));
    TRY(image_decode(file, &image, err));
    *out_width = image.width;
    *out_height = image.height;
    image_free(&image);
    return ERR_OK;
}

static int open_tower(struct session *s, struct err *err) {
    struct backend_options options = {.precision = s->backend->precision, .no_fuse = s->options.no_fuse};
    struct tensor_store store = model_checkpoint_store(&s->checkpoint);
    TRY(vision_check(&s->checkpoint.config, s->backend, err));
    TRY(backend_open(s->backend->device, &options, &s->vision_backend, err));
    TRY(vision_open(&s->checkpoint, &store, s->vision_backend, s->model.spec.hidden, &s->vision, err));
    if (vision_reserve(s->vision, err)) {
        vision_close(s->vision);
        s->vision = NULL;
        return err_prefix(err, "no memory for pictures: the model takes text alone");
    }
    struct vision_facts facts = vision_facts(s->vision);
    s->model.n_given = facts.is_looked_at ? LOOKED_AT_SETS : facts.n_sets;
    s->model.sees_in_windows = facts.sees_in_windows;
    s->model.is_prefix |= facts.is_prefix;
    s->vision_lock = os_mutex_create();
    return ERR_OK;
}

void session_vision_open(struct session *s) {
    if (!s->has_checkpoint || !s->checkpoint.has_config) return;
    if (s->checkpoint.gguf) {
        err_set(&s->vision_why, ERR_EUNSUPPORTED,
                "towers of GGUF models (mmproj files) are not read: the model takes text alone; its folder of safetensors takes pictures");
        return;
    }
    if (open_tower(s, &s->vision_why) && s->vision_why.code != ERR_ENOTFOUND) log_info("%s", s->vision_why.msg);
}

void session_vision_close(struct session *s) {
    pictures_kept_free(&s->kept);
    arena_free(&s->prompt_arena);
    vision_close(s->vision);
    backend_close(s->vision_backend);
    if (s->vision_lock) os_mutex_destroy(s->vision_lock);
}

static size_t bytes_of(const struct session *s, const struct vision_picture *p) {
    return (size_t)p->n_rows * (size_t)vision_facts(s->vision).n_sets * (size_t)s->model.spec.hidden * sizeof(float);
}

/* One that was computed before; false: there is none. */
static bool find_kept(struct session *s, struct arena *a, const struct picture_key *key, struct vision_picture *out) {
    os_mutex_lock(s->vision_lock);
    const struct vision_picture *kept = pictures_kept_find(&s->kept, key);
    if (kept) *out = vision_picture_copy(s->vision, a, kept);
    os_mutex_unlock(s->vision_lock);
    return kept != NULL;
}

static int make_picture(struct session *s, struct arena *a, struct str file, struct vision_picture *out, struct err *err) {
    struct picture_key key = pictures_kept_key(file);
    struct vision_picture picture;
    struct image image;
    if (find_kept(s, a, &key, out)) {
        log_debug("a picture of %d tokens, as it was computed before", out->n_tokens);
        return ERR_OK;
    }
    TRY(image_decode(file, &image, err));
    os_mutex_lock(s->vision_lock);
    int code = vision_encode(s->vision, &image, &picture, err);
    if (!code) *out = vision_picture_copy(s->vision, a, &picture);
    bool is_kept = !code && pictures_kept_add(&s->kept, &key, bytes_of(s, &picture), &picture);
    os_mutex_unlock(s->vision_lock);
    image_free(&image);
    if (!code) log_debug("a picture of %d tokens was computed", out->n_tokens);
    if (!code && !is_kept) vision_picture_free(&picture);
    return code;
}

int session_pictures_make(struct session *s, struct arena *a, const struct str *files, size_t n, struct session_pictures *out,
                          struct err *err) {
    *out = (struct session_pictures){0};
    if (n == 0) return ERR_OK;
    TRY(session_check_pictures(s, err));
    out->p = arena_new(a, struct vision_picture, n);
    for (size_t i = 0; i < n; i++) {
        if (make_picture(s, a, files[i], &out->p[i], err)) return err_prefix(err, "picture %zu", i + 1);
        out->n++;
    }
    return ERR_OK;
}

static int wrong_count(int32_t places, int32_t pictures, struct err *err) {
    return err_set(err, ERR_EARG, "the prompt has places for %d pictures, and %d are given%s", places, pictures,
                   places < pictures ? "; does the chat template write a placeholder for each?" : "");
}

/* What stands in the place of a placeholder. */
static void put_picture(const struct session *s, const struct vision_facts *f, const struct vision_picture *p, struct sb *out) {
    struct str mark = tok_token_text(s->tok, f->image_token);
    if (f->open) sb_puts(out, f->open);
    if (f->open_token >= 0) sb_put(out, tok_token_text(s->tok, f->open_token));
    for (int32_t i = 0; i < p->n_pieces; i++) {
        sb_put(out, str_n(p->text + p->pieces[i].text_at, p->pieces[i].text_n));
        for (int32_t k = 0; k < p->pieces[i].n_tokens; k++) sb_put(out, mark);
    }
    if (f->close_token >= 0) sb_put(out, tok_token_text(s->tok, f->close_token));
    if (f->close) sb_puts(out, f->close);
}

/* One span, its placeholders taken for the pictures from *next on. */
static struct str expand(const struct session *s, struct arena *a, const struct session_pictures *pictures, struct str mark,
                         struct str text, int32_t *next) {
    struct vision_facts facts = vision_facts(s->vision);
    struct sb out = {0};
    for (size_t at = 0;;) {
        size_t found = str_find(text, mark, at);
        sb_put(&out, str_sub(text, at, (found == STR_NONE ? text.n : found) - at));
        if (found == STR_NONE) break;
        if (*next < pictures->n) put_picture(s, &facts, &pictures->p[*next], &out);
        ++*next;
        if (*next == pictures->n && facts.bos_behind >= 0) sb_put(&out, tok_token_text(s->tok, facts.bos_behind));
        at = found + mark.n;
    }
    struct str copy = str_copy(a, sb_str(&out));
    sb_free(&out);
    return copy;
}

/* A place for each picture before the text. */
static struct str put_first(struct arena *a, struct str mark, int32_t n, struct str text) {
    struct sb out = {0};
    for (int32_t i = 0; i < n; i++) sb_put(&out, mark);
    sb_put(&out, text);
    struct str copy = str_copy(a, sb_str(&out));
    sb_free(&out);
    return copy;
}

/* The token that begins a text, where no part of it is that. */
static struct str put_bos(const struct session *s, struct arena *a, const struct vision_facts *f, struct str mark,
                          const struct tok_span *spans, size_t n) {
    struct str bos = f->bos_before >= 0 ? tok_token_text(s->tok, f->bos_before) : (struct str){0}, text = spans[0].text;
    bool has_bos = bos.n == 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) has_bos |= str_find(spans[i].text, bos, 0) != STR_NONE;
    if (has_bos) return text;
    while (str_starts(str_from(text, at), mark)) at += mark.n;
    return str_fmt(a, "%.*s%.*s%.*s", (int)at, text.p, STR_ARG(bos), STR_ARG(str_from(text, at)));
}

int session_pictures_expand(const struct session *s, struct arena *a, const struct session_pictures *pictures, struct tok_span **spans,
                            size_t n_spans, struct err *err) {
    if (!pictures || !pictures->n) return ERR_OK;
    struct vision_facts facts = vision_facts(s->vision);
    struct str mark = facts.placeholder ? str_of(facts.placeholder) : tok_token_text(s->tok, facts.placeholder_token);
    if (mark.n == 0) return err_set(err, ERR_EFORMAT, "the tokenizer has no token for pictures");
    struct tok_span *out = arena_new(a, struct tok_span, n_spans + 1);
    int32_t next = 0;
    bool has_places = false;
    for (size_t i = 0; i < n_spans; i++) has_places |= (*spans)[i].trusted && str_find((*spans)[i].text, mark, 0) != STR_NONE;
    for (size_t i = 0; i < n_spans; i++) {
        out[i] = (*spans)[i];
        if (i == 0 && out[i].trusted) out[i].text = put_bos(s, a, &facts, mark, *spans, n_spans);
        if (i == 0 && facts.is_prefix && !has_places) out[i].text = put_first(a, mark, pictures->n, out[i].text);
        if (out[i].trusted) out[i].text = expand(s, a, pictures, mark, out[i].text, &next);
        if (i + 1 == n_spans && facts.prompt_end) out[i].text = str_fmt(a, "%.*s%s", STR_ARG(out[i].text), facts.prompt_end);
    }
    *spans = out;
    return next == pictures->n ? ERR_OK : wrong_count(next, pictures->n, err);
}

static int wrong_tokens(const struct job_spec *prompt, int32_t image_token, int32_t n_rows, struct err *err) {
    int32_t n = 0;
    for (int32_t i = 0; i < prompt->n_tokens; i++) n += prompt->tokens[i] == image_token;
    return err_set(err, ERR_EARG, "the prompt has %d tokens for pictures, and those that are given need %d", n, n_rows);
}

/* Pictures that the text model looks at: what is shown of each, one behind the other, then what they are filled up with. A token sees the pictures of the last row of
 * placeholders before it, as far as they came before it. */
static int attach_states(const struct session *s, struct arena *a, const struct session_pictures *pictures, struct job_spec *out,
                         struct err *err) {
    int32_t token = vision_facts(s->vision).image_token, n = 0, at = 0, from = 0, seen = 0;
    int64_t width = s->model.spec.hidden;
    struct picture_states *states = arena_new(a, struct picture_states, 1);
    struct picture_mark *marks = arena_new(a, struct picture_mark, pictures->n);
    for (int32_t i = 0; i < pictures->n; i++) n += pictures->p[i].n_rows;
    const float **rows = arena_new(a, const float *, n);
    *states = (struct picture_states){.rows = rows, .n = n, .marks = marks, .n_marks = pictures->n};
    for (int32_t i = 0; i < pictures->n; i++)
        for (int32_t k = 0; k < pictures->p[i].n_shown; k++) rows[at++] = pictures->p[i].rows[0] + k * width;
    for (int32_t i = 0; i < pictures->n; i++) {
        states->hash = hash_pair(states->hash, pictures->p[i].hash);
        for (int32_t k = pictures->p[i].n_shown; k < pictures->p[i].n_rows; k++) rows[at++] = pictures->p[i].rows[0] + k * width;
    }
    n = at = 0;
    for (int32_t i = 0; i < out->n_tokens; i++) {
        if (out->tokens[i] != token) continue;
        if (n == pictures->n) return wrong_tokens(out, token, pictures->n, err);
        if (i == 0 || out->tokens[i - 1] != token) from = seen;
        seen += pictures->p[n].n_shown;
        marks[n++] = (struct picture_mark){i, from, seen};
    }
    if (n != pictures->n) return wrong_tokens(out, token, pictures->n, err);
    out->states = states;
    return ERR_OK;
}

int session_pictures_attach(const struct session *s, struct arena *a, const struct session_pictures *pictures, struct job_spec *out,
                            struct err *err) {
    if (!pictures->n) return ERR_OK;
    struct vision_facts facts = vision_facts(s->vision);
    if (facts.is_looked_at) return attach_states(s, a, pictures, out, err);
    int32_t n_rows = 0, n_runs = 0, i_picture = 0, row = 0;
    for (int32_t i = 0; i < pictures->n; i++) n_rows += pictures->p[i].n_tokens;
    struct picture_rows *runs = arena_new(a, struct picture_rows, n_rows);
    for (int32_t i = 0; i < out->n_tokens; i++) {
        if (out->tokens[i] != facts.image_token) continue;
        if (i_picture == pictures->n) return wrong_tokens(out, facts.image_token, n_rows, err);
        const struct vision_picture *p = &pictures->p[i_picture];
        struct picture_rows *run = &runs[n_runs++];
        *run = (struct picture_rows){.first = i, .hash = p->hash, .both_ways = facts.sees_both_ways};
        for (int k = 0; k < GIVEN_SETS; k++) run->rows[k] = p->rows[k] ? p->rows[k] + (int64_t)row * facts.text_hidden : NULL;
        while (i < out->n_tokens && out->tokens[i] == facts.image_token && row < p->n_tokens) i++, row++, run->n++;
        if (row == p->n_tokens) i_picture++, row = 0;
        i--;
    }
    if (i_picture != pictures->n) return wrong_tokens(out, facts.image_token, n_rows, err);
    out->pictures = runs;
    out->n_pictures = n_runs;
    if (!facts.has_places) return ERR_OK;
    int32_t *places = arena_new(a, int32_t, (int64_t)out->n_tokens * STEP_AXES);
    vision_places(s->vision, out->tokens, out->n_tokens, pictures->p, places);
    out->places = places;
    return ERR_OK;
}

int session_attach(struct session *s, struct job_spec *job, struct err *err) {
    return session_pictures_attach(s, &s->prompt_arena, &s->pictures, job, err);
}

int session_attach_files(struct session *s, const struct str *images, size_t n, struct job_spec *job, struct err *err) {
    arena_reset(&s->prompt_arena);
    TRY(session_pictures_make(s, &s->prompt_arena, images, n, &s->pictures, err));
    return session_attach(s, job, err);
}
