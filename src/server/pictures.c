/* Pictures out of addresses. */
#include "server/pictures.h"

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

int pictures_add(struct pictures *p, struct str url, const char *param, struct api_error *e) {
    struct str mark = STR(";base64,");
    if (p->n == PICTURES_MAX) return api_fail(e, 400, NULL, param, "%s: a request takes at most %d pictures", param, PICTURES_MAX);
    if (!str_starts(url, STR("data:")))
        return api_fail(e, 400, "unsupported_value", param,
                        "%s: only addresses that hold the picture are taken (data:image/png;base64,...)", param);
    size_t at = str_find(str_sub(url, 0, 256), mark, 0);
    if (at == STR_NONE || !from_base64(p->arena, str_from(url, at + mark.n), &p->files[p->n]))
        return api_fail(e, 400, NULL, param, "%s: the address must be data:image/...;base64, and the file in base64", param);
    p->n++;
    return 0;
}
