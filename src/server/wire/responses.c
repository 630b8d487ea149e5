/* OpenAI: POST /v1/responses and /v1/responses/input_tokens; what was stored by GET, DELETE, /input_items and /cancel. */
#include "server/wire/responses.h"

#include "server/response_store.h"
#include "server/server_internal.h"

/* ---- making one --------------------------------------------------------------------------------------------------------- */

static int prepare_create(struct call *c) {
    struct responses_state *state = arena_new(&c->arena, struct responses_state, 1);
    yyjson_val *body;
    if (responses_to_chat(c, state, &body)) return -1;
    if (chat_prepare(c, body, &responses_format)) {
        responses_rename_fields(&c->error);
        return -1;
    }
    ((struct generation *)c->state)->wire_state = state;
    return 0;
}

static int prepare_count(struct call *c) {
    struct responses_state *state = arena_new(&c->arena, struct responses_state, 1);
    int32_t *n = arena_new(&c->arena, int32_t, 1);
    yyjson_val *body;
    if (responses_to_chat(c, state, &body)) return -1;
    if (chat_count(c, body, n)) {
        responses_rename_fields(&c->error);
        return -1;
    }
    c->state = n;
    return 0;
}

static void reply_count(struct call *c) {
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "object", STR("response.input_tokens"));
    jsonw_put_int(&w, "input_tokens", *(const int32_t *)c->state);
    jsonw_end(&w, '}');
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

/* ---- those that are there ----------------------------------------------------------------------------------------------- */

/* The id between the prefix and what follows it. */
static struct str asked_id(const struct call *c, const char *behind) {
    struct str rest = str_from(c->exchange->request.path, strlen("/v1/responses/"));
    return str_sub(rest, 0, rest.n - strlen(behind));
}

/* One that is being made; NULL: none of this id is. */
static struct generation *find_running(struct server *s, struct str id) {
    for (struct call *c = s->calls; c; c = c->next) {
        struct generation *g = c->state;
        if (c->route && c->route->prepare == prepare_create && c->on_gone && str_eq(g->id, id)) return g;
    }
    return NULL;
}

static void reply_missing(struct call *c, struct str id) {
    api_fail(&c->error, 404, "response_not_found", NULL,
             "there is no response \"%.*s\": it was not stored, was deleted, or has given way to newer ones", (int)(id.n > 80 ? 80 : id.n),
             id.p);
    call_reply_error(c);
}

static void reply_running(struct call *c, struct generation *g, const char *status) {
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    responses_put(g, status, &w);
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

static void show_response(struct call *c) {
    struct str id = asked_id(c, "");
    struct response_record record;
    struct generation *running = find_running(c->server, id);
    if (running) reply_running(c, running, "in_progress");
    else if (response_store_get(c->server->responses, &c->arena, id, &record)) call_reply_json(c, 200, record.response);
    else reply_missing(c, id);
}

static void delete_response(struct call *c) {
    struct str id = asked_id(c, "");
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    if (!response_store_remove(c->server->responses, id)) {
        reply_missing(c, id);
        return;
    }
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "id", id);
    jsonw_put_str(&w, "object", STR("response"));
    jsonw_put_bool(&w, "deleted", true);
    jsonw_end(&w, '}');
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

static void cancel_response(struct call *c) {
    struct str id = asked_id(c, "/cancel");
    struct generation *running = find_running(c->server, id);
    struct response_record record;
    if (running) {
        if (running->choices[0].job) job_cancel(running->choices[0].job);
        reply_running(c, running, "cancelled");
    } else if (response_store_get(c->server->responses, &c->arena, id, &record)) {
        api_fail(&c->error, 400, NULL, NULL, "the response is complete and cannot be cancelled");
        call_reply_error(c);
    } else {
        reply_missing(c, id);
    }
}

/* ---- items that were answered ------------------------------------------------------------------------------------------- */

struct page {
    int64_t limit;
    bool is_ascending;
    struct str after; /* an item's id; empty: from the first */
};

static int read_page(struct call *c, struct page *out) {
    struct str rest = c->exchange->request.query, pair;
    *out = (struct page){.limit = 20};
    while (str_split_next(&rest, '&', &pair)) {
        size_t at = str_find_char(pair, '=', 0);
        struct str key = str_sub(pair, 0, at), value = at == STR_NONE ? STR("") : str_from(pair, at + 1);
        if (str_is(key, "limit") && (!str_to_int64(value, &out->limit) || out->limit < 1 || out->limit > 100))
            return api_fail(&c->error, 400, NULL, "limit", "limit must be a whole number between 1 and 100");
        if (str_is(key, "order") && !str_is(value, "asc") && !str_is(value, "desc"))
            return api_fail(&c->error, 400, NULL, "order", "order must be asc or desc");
        if (str_is(key, "order")) out->is_ascending = str_is(value, "asc");
        if (str_is(key, "after")) out->after = value;
    }
    return 0;
}

static struct str id_of(yyjson_val *item) {
    return json_str(item, "id", STR(""));
}

static void put_page(const struct page *page, yyjson_val *items, struct jsonw *w) {
    size_t n = yyjson_arr_size(items), n_put = 0;
    bool has_begun = page->after.n == 0, has_more = false;
    struct str first = STR(""), last = STR("");
    jsonw_begin(w, '{');
    jsonw_put_str(w, "object", STR("list"));
    jsonw_open(w, "data", '[');
    for (size_t i = 0; i < n; i++) {
        yyjson_val *item = yyjson_arr_get(items, page->is_ascending ? i : n - 1 - i);
        has_more = has_begun && n_put == (size_t)page->limit;
        if (has_more) break;
        if (has_begun) {
            jsonw_val(w, item);
            last = id_of(item);
            if (n_put++ == 0) first = last;
        }
        has_begun |= str_eq(id_of(item), page->after);
    }
    jsonw_end(w, ']');
    jsonw_put_str(w, "first_id", first);
    jsonw_put_str(w, "last_id", last);
    jsonw_put_bool(w, "has_more", has_more);
    jsonw_end(w, '}');
}

static void list_items(struct call *c) {
    struct str id = asked_id(c, "/input_items");
    struct response_record record;
    struct page page;
    yyjson_val *items;
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    if (!response_store_get(c->server->responses, &c->arena, id, &record)) {
        reply_missing(c, id);
        return;
    }
    if (read_page(c, &page) || json_parse(&c->arena, record.items, "items", JSON_STRICT, &items, NULL)) {
        if (!c->error.status) api_fail(&c->error, 500, NULL, NULL, "the items cannot be read");
        call_reply_error(c);
        return;
    }
    put_page(&page, items, &w);
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

const struct route routes_responses[] = {
    {"POST", "/v1/responses", 0, prepare_create, generate_start},
    {"POST", "/responses", 0, prepare_create, generate_start},
    {"POST", "/v1/responses/input_tokens", 0, prepare_count, reply_count},
    {"POST", "/v1/responses/*/cancel", ROUTE_OF_ALL, NULL, cancel_response},
    {"GET", "/v1/responses/*/input_items", ROUTE_OF_ALL, NULL, list_items},
    {"GET", "/v1/responses/*", ROUTE_OF_ALL, NULL, show_response},
    {"DELETE", "/v1/responses/*", ROUTE_OF_ALL, NULL, delete_response},
    {0},
};
