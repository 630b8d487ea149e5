/* Keys are kept as digests of fixed length, so that comparing them tells nothing about the key. */
#include "server/guard.h"

#include "base/sha256.h"

enum { DIGEST_BYTES = 32 };

struct guard {
    struct arena arena;
    unsigned char (*digests)[DIGEST_BYTES];
    size_t n_keys;
    struct str *origins, *hosts;
    size_t n_origins, n_hosts;
};

static void digest(struct str text, unsigned char out[DIGEST_BYTES]) {
    struct sha256 h;
    sha256_init(&h);
    sha256_update(&h, text.p, text.n);
    sha256_final(&h, out);
}

static struct str *copy_list(struct arena *a, const struct str *list, size_t n) {
    struct str *copy = arena_new(a, struct str, n + 1);
    for (size_t i = 0; i < n; i++) copy[i] = str_copy(a, list[i]);
    return copy;
}

struct guard *guard_create(const struct guard_options *o) {
    struct guard *g = mem_alloc(sizeof *g);
    g->digests = arena_alloc(&g->arena, (o->n_keys + 1) * sizeof *g->digests);
    g->n_keys = o->n_keys;
    for (size_t i = 0; i < o->n_keys; i++) digest(o->keys[i], g->digests[i]);
    g->origins = copy_list(&g->arena, o->origins, o->n_origins);
    g->n_origins = o->n_origins;
    g->hosts = copy_list(&g->arena, o->hosts, o->n_hosts);
    g->n_hosts = o->n_hosts;
    return g;
}

void guard_destroy(struct guard *g) {
    if (!g) return;
    arena_free(&g->arena);
    mem_free(g);
}

static char fold(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool same(struct str a, struct str b) {
    if (a.n != b.n) return false;
    for (size_t i = 0; i < a.n; i++)
        if (fold(a.p[i]) != fold(b.p[i])) return false;
    return true;
}

struct str guard_bearer(struct str authorization) {
    bool is_bearer = authorization.n >= 7 && same(str_sub(authorization, 0, 7), STR("bearer "));
    return is_bearer ? str_trim(str_from(authorization, 7)) : (struct str){0};
}

bool guard_key_ok(const struct guard *g, struct str key) {
    unsigned char given[DIGEST_BYTES];
    unsigned found = 0;
    if (g->n_keys == 0) return true;
    if (key.n == 0) return false;
    digest(key, given);
    for (size_t k = 0; k < g->n_keys; k++) {
        unsigned differs = 0;
        for (size_t i = 0; i < DIGEST_BYTES; i++) differs |= (unsigned)(given[i] ^ g->digests[k][i]);
        found |= (differs - 1) >> 31; /* 1 where nothing differs */
    }
    return found != 0;
}

/* "[::1]:8080" and "name:8080" to "[::1]" and "name". */
static struct str without_port(struct str host) {
    if (host.n && host.p[0] == '[') {
        size_t end = str_find_char(host, ']', 0);
        return end == STR_NONE ? host : str_sub(host, 0, end + 1);
    }
    return str_sub(host, 0, str_find_char(host, ':', 0));
}

static bool is_address(struct str name) {
    if (name.n > 2 && name.p[0] == '[') return true;
    int dots = 0;
    for (size_t i = 0; i < name.n; i++) {
        if (name.p[i] == '.') dots++;
        else if (name.p[i] < '0' || name.p[i] > '9') return false;
    }
    return dots == 3;
}

bool guard_is_local(struct str name) {
    return same(name, STR("localhost")) || str_is(name, "::1") || str_is(name, "[::1]") ||
           (is_address(name) && str_starts(name, STR("127.")));
}

static bool listed(const struct str *list, size_t n, struct str what) {
    for (size_t i = 0; i < n; i++)
        if (str_is(list[i], "*") || same(list[i], what)) return true;
    return false;
}

bool guard_host_ok(const struct guard *g, struct str host) {
    struct str name = without_port(host);
    return g->n_keys > 0 || guard_is_local(name) || is_address(name) || listed(g->hosts, g->n_hosts, name);
}

/* Pages that belong to an app on this machine: "apps" in the list stands for all of them. */
static bool is_app(struct str origin) {
    static const char *const known[] = {"app://*",
                                        "vscode-webview://*",
                                        "tauri://*",
                                        "chrome-extension://*",
                                        "moz-extension://*",
                                        "http://tauri.localhost",
                                        "https://tauri.localhost"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_glob(str_of(known[i]), origin)) return true;
    return false;
}

static bool origin_listed(const struct guard *g, struct str origin) {
    for (size_t i = 0; i < g->n_origins; i++) {
        struct str entry = g->origins[i];
        if (same(entry, origin) || str_glob(entry, origin) || (str_is(entry, "apps") && is_app(origin))) return true;
    }
    return false;
}

bool guard_origin_ok(const struct guard *g, struct str origin, struct str host) {
    if (origin_listed(g, origin)) return true;
    size_t at = str_find(origin, STR("://"), 0);
    if (at == STR_NONE || !(same(str_sub(origin, 0, at), STR("http")) || same(str_sub(origin, 0, at), STR("https")))) return false;
    struct str authority = str_from(origin, at + 3);
    return guard_is_local(without_port(authority)) || (host.n && same(authority, host));
}
