/* Conversations: parameters, tools and messages to a prompt, and what protocols say of calls. */
#include "server/chat.h"

#include "server/constrain.h"
#include "server/messages.h"
#include "server/server_internal.h"
#include "server/tools.h"

#include "base/hash.h"

/* ---- the request -------------------------------------------------------------------------------------------------------- */

/* Where the prompt leaves the model: before an answer, in one, or in thoughts. */
static void take_state(struct call *c, struct generation *g, yyjson_val *input, struct str rendered) {
    struct job_spec *job = &g->params.job;
    struct str last = json_str(yyjson_arr_get_last(json_get(input, "messages")), "content", STR(""));
    job->continues = json_bool(input, "continue_final_message", false);
    job->thinks = job->continues ? service_thinks_inside(c->service, last) : service_thinks(c->service, rendered);
    job->may_think = !job->continues && service_may_think(c->service, rendered);
}

static int encode(struct call *c, struct generation *g, struct str input_text, const struct pictures *pictures) {
    struct err err;
    struct str rendered;
    yyjson_val *input;
    struct service_pictures encoded = {0};
    if (pictures->n && service_pictures(c->service, &c->arena, pictures->files, pictures->n, &encoded, &err))
        return err.code == ERR_EMEMORY ? api_fail_err(&c->error, &err, NULL) : api_fail(&c->error, 400, NULL, "messages", "%s", err.msg);
    int code = json_parse(&c->arena, input_text, "messages", JSON_STRICT, &input, &err);
    if (!code) code = service_encode_pictures(c->service, &c->arena, input, &encoded, &g->prompts[0].ids, &rendered, &g->params.job, &err);
    if (code == ERR_EMEMORY) return api_fail_err(&c->error, &err, NULL);
    if (code) return api_fail(&c->error, 400, "chat_template_error", "messages", "the chat template refused the messages: %s", err.msg);
    if (g->prompts[0].ids.n == 0) return api_fail(&c->error, 400, NULL, "messages", "the messages hold no text");
    g->prompts[0].text = rendered;
    take_state(c, g, input, rendered);
    return 0;
}

int chat_prepare(struct call *c, yyjson_val *body, const struct gen_format *format) {
    struct generation *g = generate_create(c, format);
    struct sb input = {0};
    struct tools tools;
    struct pictures pictures = {.arena = &c->arena, .fetches = c->server->options.fetches_pictures};
    if (params_read(&c->arena, body, PARAMS_CHAT, &g->params, &c->error)) return -1;
    if (tools_read(&c->arena, body, service_info(c->service), &tools, &c->error)) return -1;
    tools_apply(&c->arena, &tools, service_info(c->service), &g->params.job);
    g->prompts = arena_new(&c->arena, struct gen_prompt, 1);
    g->n_prompts = 1;
    struct messages_options options = {
        .tools = tools.list, .prefills = c->settings->prefills, .thinking = c->settings->thinking, .pictures = &pictures};
    int code = messages_to_input(body, &options, &input, &c->error);
    if (!code) code = encode(c, g, sb_str(&input), &pictures);
    sb_free(&input);
    return code ? code : constrain_read(&c->arena, body, c->service, &tools, &g->params, &c->error);
}

int chat_count(struct call *c, yyjson_val *body, int32_t *out_n) {
    static const struct gen_format none = {.input = "messages", .splits = true};
    if (chat_prepare(c, body, &none)) return -1;
    *out_n = ((struct generation *)c->state)->prompts[0].ids.n;
    return 0;
}

/* ---- calls -------------------------------------------------------------------------------------------------------------- */

struct str chat_call_id(struct generation *g, const struct gen_choice *c, const struct output_pieces *pieces,
                        const struct output_piece *p) {
    enum { SHORT_ID = 8 };
    struct str id = output_piece_id(pieces, p);
    if (id.n > SHORT_ID) return id;
    uint64_t random = hash_pair(hash_bytes(g->id.p, g->id.n, (uint64_t)c->index), (uint64_t)p->call);
    return output_make_id(&g->call->arena, g->params.job.format, output_piece_text(pieces, p), p->call, random);
}

struct str chat_call_arguments(struct generation *g, const struct output_pieces *pieces, int32_t call) {
    struct sb text = {0};
    for (size_t i = 0; i < pieces->n; i++) {
        const struct output_piece *p = &pieces->p[i];
        if (p->kind == OUTPUT_ARGUMENTS && p->call == call) sb_put(&text, output_piece_text(pieces, p));
    }
    struct str copy = str_copy(&g->call->arena, sb_str(&text));
    sb_free(&text);
    return copy;
}
