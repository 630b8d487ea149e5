/* Pictures out of addresses. */
#include "server/pictures.h"

#include "api/remote.h"
#include "os/os.h"

static int digit_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

/* False where a character is none of base64. White space is passed over. */
static bool from_base64(struct arena *a, struct str text, struct str *out) {
    char *to = arena_try(a, text.n / 4 * 3 + 3);
    uint32_t held = 0;
    int n_held = 0;
    size_t n = 0;
    if (!to) return false;
    while (text.n && text.p[text.n - 1] == '=') text.n--;
    for (size_t i = 0; i < text.n; i++) {
        int digit = digit_of(text.p[i]);
        if (text.p[i] == '\n' || text.p[i] == '\r' || text.p[i] == ' ') continue;
        if (digit < 0) return false;
        held = held << 6 | (uint32_t)digit;
        n_held += 6;
        if (n_held >= 8) to[n++] = (char)(held >> (n_held -= 8) & 255);
    }
    *out = str_n(to, n);
    return true;
}

/* All pictures of a request share the size and the time that a single one may have. */
static int fetch(struct pictures *p, struct str url, const char *param, struct api_error *e) {
    struct remote_rules rules = remote_public_rules();
    struct err err;
    uint64_t now = os_clock_ns();
    if (!p->end_ns) p->end_ns = now + (uint64_t)rules.limit_ms * 1000000;
    if (now >= p->end_ns || p->bytes >= rules.max_bytes)
        return api_fail(e, 400, NULL, param, "%s: the pictures of a request must be fetched in %d seconds and have at most %zu bytes",
                        param, (int)(rules.limit_ms / 1000), rules.max_bytes);
    rules.limit_ms = (int64_t)((p->end_ns - now) / 1000000) + 1;
    rules.max_bytes -= p->bytes;
    if (remote_fetch(p->arena, &rules, url, &p->files[p->n], &err))
        return api_fail(e, 400, "invalid_image_url", param, "%s: %s", param, err.msg);
    p->bytes += p->files[p->n++].n;
    return 0;
}

int pictures_add(struct pictures *p, struct str url, const char *param, struct api_error *e) {
    struct str mark = STR(";base64,");
    if (p->n == PICTURES_MAX) return api_fail(e, 400, NULL, param, "%s: a request takes at most %d pictures", param, PICTURES_MAX);
    if (!str_starts(url, STR("data:")) && p->fetches) return fetch(p, url, param, e);
    if (!str_starts(url, STR("data:")))
        return api_fail(
            e, 400, "unsupported_value", param,
            "%s: only addresses that hold the picture are taken (data:image/png;base64,...); --allow-remote-images fetches others", param);
    size_t at = str_find(str_sub(url, 0, 256), mark, 0);
    if (at == STR_NONE || !from_base64(p->arena, str_from(url, at + mark.n), &p->files[p->n]))
        return api_fail(e, 400, NULL, param, "%s: the address must be data:image/...;base64, and the file in base64", param);
    p->n++;
    return 0;
}
