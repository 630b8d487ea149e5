/* Talking to the hub: endpoint and token, the file list of a repository, what its refusals mean. */
#include "hub/hub.h"

#include "base/json.h"
#include "base/log.h"
#include "base/map.h"
#include "os/os.h"

enum {
    LIST_BYTES_MAX = 64 << 20,
    LIST_DEPTH_MAX = 64,
    FILES_MAX = 20000,
    TOKEN_BYTES_MAX = 1024,
    CONNECTIONS = 4,
    TRIES = 6,
    STALL_S = 30,
    WAIT_S = 300,
    TELL_S = 5
};
#define SIZE_LIMIT (INT64_C(1) << 46)

struct hub {
    struct hub_options options;
    struct http *http;
    const char *token;
    bool token_withheld;
    bool has_answered;        /* something did: then what cannot be reached may be so again */
    struct patience patience; /* with the list and what belongs to it */
};

/* ---- interrupts --------------------------------------------------------------------------------------------------------- */

static atomic_bool interrupted, noticed;

static void on_interrupt(void) {
    atomic_store(&interrupted, true);
}

void hub_interrupts_begin(void) {
    atomic_store(&interrupted, false);
    atomic_store(&noticed, false);
    os_on_interrupt(on_interrupt);
}

void hub_interrupts_end(void) {
    os_on_interrupt(NULL);
}

bool hub_stopped(const struct hub *h) {
    if (h->options.stop) return atomic_load(h->options.stop);
    bool is = atomic_load(&interrupted);
    if (is && !atomic_exchange(&noticed, true)) hub_interrupts_end();
    return is;
}

/* ---- token -------------------------------------------------------------------------------------------------------------- */

/* What was given, else the file that the hub's own tools write. */
static struct str find_token(struct arena *a, const struct hub_options *o) {
    struct str text;
    const char *path = o->token_path;
    if (o->token) return str_trim(str_of(o->token));
    if (!path && o->hf_home) path = str_fmt(a, "%s/token", o->hf_home).p;
    if (!path || os_file_load(a, path, TOKEN_BYTES_MAX, &text, NULL)) return (struct str){0};
    return str_trim(text);
}

static int take_token(struct arena *a, struct hub *h, struct err *err) {
    struct str token = find_token(a, &h->options);
    if (token.n == 0) return ERR_OK;
    for (size_t i = 0; i < token.n; i++)
        if (token.p[i] <= 0x20 || token.p[i] >= 0x7F || token.n > TOKEN_BYTES_MAX)
            return err_set(err, ERR_EARG, "the token (HF_TOKEN, or the token file) holds characters that no token has");
    if (!http_is_secure(str_of(h->options.endpoint)) && !h->options.insecure_token) {
        log_warn("the token is not sent to %s, which is plain http; MLXCEL_ALLOW_INSECURE_ENDPOINT=1 allows it", h->options.endpoint);
        h->token_withheld = true;
        return ERR_OK;
    }
    h->token = str_cstr(a, token);
    return ERR_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------------------------ */

int hub_open(struct arena *a, const struct hub_options *options, struct hub **out, struct err *err) {
    if (options->offline) return err_set(err, ERR_ENETWORK, "the hub is not asked: this is --offline");
    struct str endpoint = str_of(options->endpoint);
    while (endpoint.n && endpoint.p[endpoint.n - 1] == '/') endpoint.n--;
    if (!http_url_ok(endpoint))
        return err_set(err, ERR_EARG, "the hub's address \"%.200s\" is no http or https URL (--hub, HF_ENDPOINT)", options->endpoint);
    struct hub *h = arena_new(a, struct hub, 1);
    h->options = *options;
    h->options.endpoint = str_cstr(a, endpoint);
    if (!h->options.n_connections) h->options.n_connections = CONNECTIONS;
    if (!h->options.n_tries) h->options.n_tries = TRIES;
    if (!h->options.stall_s) h->options.stall_s = STALL_S;
    if (!h->options.max_wait_s) h->options.max_wait_s = WAIT_S;
    TRY(take_token(a, h, err));
    struct http_options http = {.cacert = options->cacert, .stall_s = h->options.stall_s};
    TRY(http_open(&http, &h->http, err));
    *out = h;
    return ERR_OK;
}

void hub_close(struct hub *h) {
    if (h) http_close(h->http);
}

const struct hub_options *hub_options_of(const struct hub *h) {
    return &h->options;
}

struct patience hub_patience(const struct hub *h) {
    return (struct patience){.n_tries = h->options.n_tries, .limit_ms = h->options.max_wait_s * INT64_C(1000)};
}

const char *hub_token(const struct hub *h) {
    return h->token;
}

static void put_path(struct sb *out, struct str path) {
    struct str part;
    for (bool first = true; str_split_next(&path, '/', &part); first = false) {
        if (!first) sb_putc(out, '/');
        http_escape(out, part);
    }
}

void hub_file_url(const struct hub *h, const struct hub_repo *repo, struct str name, struct sb *out) {
    sb_fmt(out, "%s/%s/resolve/", h->options.endpoint, repo->id);
    http_escape(out, repo->commit);
    sb_putc(out, '/');
    put_path(out, name);
}

/* ---- refusals ----------------------------------------------------------------------------------------------------------- */

int hub_refusal(const struct hub *h, const struct http_reply *r, const char *what, struct err *err) {
    struct str reason = str_of(r->reason);
    const char *sign_in = h->token            ? "the token may not read it"
                          : h->token_withheld ? "the token was not sent over plain http"
                                              : "set HF_TOKEN to a token of an account that may";
    if (str_is(reason, "GatedRepo"))
        return err_set(err, ERR_ENETWORK, "%s is gated: accept its terms at %s, and %s", what, h->options.endpoint, sign_in);
    if (str_is(reason, "RevisionNotFound")) return err_set(err, ERR_ENOTFOUND, "%s has no such revision", what);
    if (str_is(reason, "EntryNotFound")) return err_set(err, ERR_ENOTFOUND, "%s is not on the hub", what);
    if (str_is(reason, "RepoNotFound") || r->status == 404)
        return err_set(err, ERR_ENOTFOUND, "%s has no model %s (a private one needs a token: %s)", h->options.endpoint, what, sign_in);
    if (r->status == 401 || r->status == 403)
        return err_set(err, ERR_ENETWORK, "%s refuses %s (status %d): %s", h->options.endpoint, what, r->status, sign_in);
    if (r->status == 429) return err_set(err, ERR_ENETWORK, "%s asks for fewer requests (status 429)", h->options.endpoint);
    return err_set(err, ERR_ENETWORK, "%s answers status %d for %s", h->options.endpoint, r->status, what);
}

/* False: nobody wants the rest. */
static bool wait_ms(const struct hub *h, int32_t ms) {
    enum { STEP_MS = 50 };
    for (; ms > 0 && !hub_stopped(h); ms -= STEP_MS) os_sleep_ms(ms < STEP_MS ? ms : STEP_MS);
    return !hub_stopped(h);
}

/* Sends a small request within what patience is left. */
static int ask_once(struct hub *h, struct http_request q, const char *what, struct http_reply *r, struct err *err) {
    uint64_t begin = os_clock_ns();
    q.limit_ms = patience_left_ms(&h->patience);
    q.cancel = h->options.stop ? h->options.stop : &interrupted;
    q.says_waiting = true;
    r->transient = false;
    if (q.limit_ms == 0) return err_set(err, ERR_ENETWORK, "%s took too long to answer (download --max-wait)", h->options.endpoint);
    int code = http_send(h->http, &q, r, err);
    patience_fruitless(&h->patience, os_clock_ns() - begin);
    return code == ERR_OK && (r->status < 200 || r->status > 299) ? hub_refusal(h, r, what, err) : code;
}

/* Nothing was ever heard of the hub: perhaps there is no network. */
static int no_answer(int code, struct err *err) {
    struct err why = *err;
    return err_set(
        err, code,
        "%.300s: is there a network? Without one, models that are on this machine run with --offline, and docs/offline.md tells how to bring others",
        why.msg);
}

/* Tried again while the failure may pass. */
static int ask(struct hub *h, const struct http_request *q, const char *what, struct http_reply *r, struct err *err) {
    for (int32_t ms;;) {
        int code = ask_once(h, *q, what, r, err);
        if (code == ERR_OK) h->patience.n_failed = 0;
        h->has_answered |= r->status > 0;
        if (code == ERR_OK || !r->transient) return code;
        if (r->unreachable && !h->has_answered) return no_answer(code, err);
        code = patience_ask(&h->patience, r, &ms, err);
        if (code) return h->has_answered ? code : no_answer(code, err);
        log_warn("%s; trying again in %.1f s%s", err->msg, ms / 1000.0,
                 h->has_answered ? "" : " (without a network: --offline, and docs/offline.md)");
        if (!wait_ms(h, ms)) return err_set(err, ERR_ECANCELLED, "stopped");
    }
}

/* ---- the file list ------------------------------------------------------------------------------------------------------ */

static bool is_hex(struct str s, size_t n) {
    if (s.n != n) return false;
    for (size_t i = 0; i < n; i++)
        if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f'))) return false;
    return true;
}

static bool matches(const struct hub_query *q, struct str name) {
    if (q->repo->variant.n) return hub_file_is_variant(name, q->repo->variant);
    for (size_t i = 0; i < q->n_globs; i++)
        if (str_glob(q->globs[i], name)) return true;
    return q->n_globs == 0 && hub_file_wanted(name);
}

static int check_size(const struct hub_repo *repo, struct str name, int64_t size, struct err *err) {
    if (size <= SIZE_LIMIT) return ERR_OK;
    return err_set(err, ERR_EFORMAT, "%s: %.*s is said to have %lld bytes", repo->id, STR_ARG(name), (long long)size);
}

/* Size and hash that the list leaves out, from the headers of the file itself. */
static int ask_file(struct hub *h, const struct hub_repo *repo, struct hub_file *f, struct err *err) {
    struct sb url = {0};
    struct http_reply r = {0};
    hub_file_url(h, repo, f->name, &url);
    struct http_request q = {.url = url.p, .head = true, .token = h->token};
    int code = ask(h, &q, repo->id, &r, err);
    if (code == ERR_OK) {
        int64_t size = r.linked_size >= 0 ? r.linked_size : r.length;
        struct str hash = str_of(r.linked_etag);
        if (hash.n >= 2 && hash.p[0] == '"') hash = str_sub(hash, 1, hash.n - 2);
        if (is_hex(hash, 64)) memcpy(f->sha256, hash.p, 64);
        if (size < 0) code = err_set(err, ERR_ENETWORK, "the hub does not say how long %.*s is", STR_ARG(f->name));
        else code = check_size(repo, f->name, size, err);
        f->size = (uint64_t)size;
    }
    http_reply_free(&r);
    sb_free(&url);
    return code;
}

/* One request for each file: said, and shown while it lasts. */
static int ask_sizes(struct hub *h, struct hub_repo *repo, const bool *has_size, struct err *err) {
    size_t n = 0, n_done = 0;
    for (size_t i = 0; i < repo->n_files; i++) n += !has_size[i];
    if (n) log_info("the hub's list of %s is without sizes: asking for the sizes of %zu files", repo->id, n);
    uint64_t told = os_clock_ns();
    for (size_t i = 0; i < repo->n_files; i++) {
        if (has_size[i]) continue;
        int code = ask_file(h, repo, &repo->files[i], err);
        if (code && patience_left_ms(&h->patience) == 0)
            return err_set(err, code,
                           "the sizes of %zu of %zu files are known after %d s, the most that is spent on that; --include names fewer, "
                           "download --max-wait allows more",
                           n_done, n, h->options.max_wait_s);
        if (code) return code;
        n_done++;
        if (os_clock_ns() - told < TELL_S * UINT64_C(1000000000)) continue;
        log_info("the sizes of %zu of %zu files are known", n_done, n);
        told = os_clock_ns();
    }
    return ERR_OK;
}

static int read_entry(struct arena *a, const struct hub_query *q, yyjson_val *entry, struct hub_repo *out, bool *has_size,
                      struct err *err) {
    struct str name = json_str(entry, "rfilename", (struct str){0});
    yyjson_val *lfs = json_get(entry, "lfs");
    if (!name.p) return err_set(err, ERR_EFORMAT, "%s: the hub's file list has an entry without a name", out->id);
    if (!hub_path_safe(name)) {
        if (!hub_file_wanted(hub_last_part(name)) && !matches(q, name)) return ERR_OK;
        return err_set(err, ERR_EFORMAT, "%s: the hub's file list holds the name \"%.*s\", which is refused", out->id,
                       STR_ARG(str_sub(name, 0, 100)));
    }
    if (!matches(q, name)) return ERR_OK;
    int64_t size = json_int(entry, "size", json_int(lfs, "size", -1));
    struct str hash = json_str(lfs, "sha256", (struct str){0});
    if (!hash.p) hash = json_str(lfs, "oid", (struct str){0});
    TRY(check_size(out, name, size, err));
    has_size[out->n_files] = size >= 0;
    struct hub_file *f = &out->files[out->n_files++];
    *f = (struct hub_file){.name = str_copy(a, name), .size = size < 0 ? 0 : (uint64_t)size};
    if (is_hex(hash, 64)) memcpy(f->sha256, hash.p, 64);
    return ERR_OK;
}

/* Names that differ in case alone are one file on Windows: refused everywhere, so that a model is the same everywhere. */
static int check_names(struct arena *a, const struct hub_repo *r, struct err *err) {
    struct map seen = {0};
    int code = ERR_OK;
    for (size_t i = 0; i < r->n_files && code == ERR_OK; i++) {
        struct str key = str_copy(a, r->files[i].name);
        char *p = (char *)key.p;
        bool fresh;
        for (size_t k = 0; k < key.n; k++)
            if (p[k] >= 'A' && p[k] <= 'Z') p[k] = (char)(p[k] - 'A' + 'a');
        map_put(&seen, key, &fresh);
        if (!fresh) code = err_set(err, ERR_EFORMAT, "%s: two files are called %.*s", r->id, STR_ARG(r->files[i].name));
    }
    map_free(&seen);
    return code;
}

/* A second copy of the weights is left out where the model's own are there. */
static void drop_copies(struct hub_repo *r, bool *has_size) {
    bool has_own = false;
    size_t n = 0;
    for (size_t i = 0; i < r->n_files; i++) has_own |= str_glob(STR("model*.safetensors"), r->files[i].name);
    for (size_t i = 0; i < r->n_files; i++) {
        if (has_own && hub_file_is_copy(r->files[i].name)) continue;
        has_size[n] = has_size[i];
        r->files[n++] = r->files[i];
    }
    r->n_files = n;
}

/* GGUF files among the entries: how many models, with the first of their names behind one another. */
static size_t list_ggufs(yyjson_val *list, struct sb *out) {
    yyjson_val *entry;
    size_t i, n, found = 0;
    yyjson_arr_foreach(list, i, n, entry) {
        struct str name = json_str(entry, "rfilename", (struct str){0});
        if (!hub_file_is_gguf(name)) continue;
        if (found++ < 12) sb_fmt(out, "%s%.*s", found > 1 ? ", " : "", STR_ARG(hub_last_part(name)));
    }
    return found;
}

/* A repository of GGUF files holds a model many times: one of them must be meant. */
static int check_variant(const struct hub_query *q, const struct hub_repo *r, yyjson_val *list, struct err *err) {
    struct sb names = {0};
    bool has_weights = false;
    for (size_t i = 0; i < r->n_files; i++) has_weights |= str_ends(r->files[i].name, STR(".safetensors"));
    size_t n = list_ggufs(list, &names);
    int code = ERR_OK;
    if (q->repo->variant.n == 0) {
        if (n && !has_weights && q->n_globs == 0)
            code = err_set(err, ERR_EARG, "%s holds GGUF files; say which, as in %s:Q4_K_M: %.240s", r->id, r->id, names.p);
    } else if (r->n_files == 0) {
        code = err_set(err, ERR_ENOTFOUND, "%s has no GGUF file whose name ends in \"%.*s\"%s%.240s", r->id, STR_ARG(q->repo->variant),
                       n ? "; it has " : "", n ? names.p : "");
    }
    for (size_t i = 1; i < r->n_files && q->repo->variant.n && !code; i++)
        if (!str_eq(hub_gguf_stem(r->files[i].name), hub_gguf_stem(r->files[0].name)))
            code = err_set(err, ERR_EARG, "%s has several GGUF files for \"%.*s\", such as %.*s and %.*s", r->id, STR_ARG(q->repo->variant),
                           STR_ARG(r->files[0].name), STR_ARG(r->files[i].name));
    sb_free(&names);
    return code;
}

static int read_list(struct arena *a, struct hub *h, const struct hub_query *q, struct str text, struct hub_repo *out, struct err *err) {
    yyjson_val *root, *entry;
    size_t i, n;
    if (json_depth(text) > LIST_DEPTH_MAX) return err_set(err, ERR_EFORMAT, "%s: the hub's file list is nested too deeply", out->id);
    TRY(json_parse(a, text, "the hub's file list", JSON_STRICT, &root, err));
    struct str commit = json_str(root, "sha", (struct str){0});
    yyjson_val *list = json_get(root, "siblings");
    if (!is_hex(commit, 40)) return err_set(err, ERR_EFORMAT, "%s: the hub does not say which commit this is", out->id);
    if (!yyjson_is_arr(list)) return err_set(err, ERR_EFORMAT, "%s: the hub's answer holds no file list", out->id);
    if (yyjson_arr_size(list) > FILES_MAX) return err_set(err, ERR_ELIMIT, "%s has more than %d files", out->id, FILES_MAX);
    out->commit = str_copy(a, commit);
    out->files = arena_new(a, struct hub_file, yyjson_arr_size(list) + 1);
    bool *has_size = arena_new(a, bool, yyjson_arr_size(list) + 1);
    yyjson_arr_foreach(list, i, n, entry) TRY(read_entry(a, q, entry, out, has_size, err));
    TRY(check_variant(q, out, list, err));
    if (q->n_globs == 0) drop_copies(out, has_size);
    TRY(check_names(a, out, err));
    TRY(ask_sizes(h, out, has_size, err));
    for (i = 0; i < out->n_files; i++) out->total_bytes += out->files[i].size;
    if (out->n_files == 0)
        return err_set(err, ERR_ENOTFOUND, q->n_globs ? "%s has no file that --include names" : "%s has no safetensors or json files",
                       out->id);
    return ERR_OK;
}

int hub_ask(struct hub *h, const char *url, const char *what, struct http_reply *out, struct err *err) {
    struct http_request request = {.url = url, .token = h->token, .text_bytes = LIST_BYTES_MAX};
    h->patience = hub_patience(h);
    return ask(h, &request, what, out, err);
}

int hub_list(struct arena *a, struct hub *h, const struct hub_query *q, struct hub_repo *out, struct err *err) {
    struct sb url = {0};
    struct http_reply r = {0};
    *out = (struct hub_repo){.id = q->repo->id};
    sb_fmt(&url, "%s/api/models/%s/revision/", h->options.endpoint, q->repo->id);
    http_escape(&url, str_of(q->revision));
    sb_puts(&url, "?blobs=true");
    int code = hub_ask(h, url.p, q->repo->id, &r, err);
    if (code == ERR_OK) code = read_list(a, h, q, sb_str(&r.text), out, err);
    http_reply_free(&r);
    sb_free(&url);
    return code;
}
