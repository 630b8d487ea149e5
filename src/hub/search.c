/* Asks the hub which models there are. What it answers is data from elsewhere: a name that is none is passed over. */
#include "base/json.h"
#include "hub/hub.h"

enum { DEPTH_MAX = 64 };

static void put_url(const struct hub *h, const struct hub_wish *w, struct sb *out) {
    sb_fmt(out, "%s/api/models?sort=downloads&direction=-1&limit=%d&search=", hub_options_of(h)->endpoint, (int)w->most);
    http_escape(out, w->words);
    if (w->owner) {
        sb_puts(out, "&author=");
        http_escape(out, str_of(w->owner));
    }
    if (w->tag) {
        sb_puts(out, "&filter=");
        http_escape(out, str_of(w->tag));
    }
}

/* Older hubs say modelId. Gated: false, "auto" or "manual". */
static void read_model(struct arena *a, yyjson_val *entry, struct hub_found *out, size_t *n) {
    struct str id = json_str(entry, "id", json_str(entry, "modelId", STR("")));
    struct repo_name name;
    struct err ignored = {0};
    if (str_find_char(id, '/', 0) == id.n || repo_name_parse(id, STR(""), &name, &ignored)) return;
    yyjson_val *gated = json_get(entry, "gated");
    out[(*n)++] = (struct hub_found){.id = str_copy(a, id),
                                     .n_downloads = json_int(entry, "downloads", 0),
                                     .n_likes = json_int(entry, "likes", 0),
                                     .gated = yyjson_is_str(gated) || yyjson_is_true(gated)};
}

static int read_models(struct arena *a, const struct hub *h, const struct hub_wish *w, struct str text, struct hub_found **out,
                       size_t *out_n, struct err *err) {
    yyjson_val *root, *entry;
    size_t i, n, room = (size_t)w->most;
    if (json_depth(text) > DEPTH_MAX) return err_set(err, ERR_EFORMAT, "what %s found is nested too deeply", hub_options_of(h)->endpoint);
    TRY(json_parse(a, text, "what the hub found", JSON_STRICT, &root, err));
    if (!yyjson_is_arr(root)) return err_set(err, ERR_EFORMAT, "%s does not answer a search with a list", hub_options_of(h)->endpoint);
    *out = arena_new(a, struct hub_found, room + 1);
    *out_n = 0;
    yyjson_arr_foreach(root, i, n, entry) if (*out_n < room) read_model(a, entry, *out, out_n);
    return ERR_OK;
}

int hub_search(struct arena *a, struct hub *h, const struct hub_wish *w, struct hub_found **out, size_t *out_n, struct err *err) {
    struct sb url = {0};
    struct http_reply r = {0};
    put_url(h, w, &url);
    int code = hub_ask(h, url.p, "the search", &r, err);
    if (code && r.status == 404) code = err_set(err, ERR_ENOTFOUND, "%s cannot search for models", hub_options_of(h)->endpoint);
    if (code == ERR_OK) code = read_models(a, h, w, sb_str(&r.text), out, out_n, err);
    http_reply_free(&r);
    sb_free(&url);
    return code;
}
