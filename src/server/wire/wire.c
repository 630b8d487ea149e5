/* Which protocol a path belongs to, and the manners of OpenAI's. */
#include "server/wire.h"

#include "server/sse.h"

static void put_stream_error(const struct api_error *e, struct sb *out) {
    struct sb json = {0};
    api_error_json(e, &json);
    sse_put(out, NULL, sb_str(&json));
    sb_free(&json);
}

static void put_ping(struct sb *out) {
    sse_put_comment(out, "keep-alive");
}

const struct wire wire_openai = {.stream_type = SSE_TYPE, .error = api_error_json, .stream_error = put_stream_error, .ping = put_ping};

static const struct {
    const char *prefix;
    const struct wire *wire;
} homes[] = {
    {"/v1/messages", &wire_anthropic}, {"/v1/", &wire_openai},         {"/api/", &wire_ollama},     {"/completion", &wire_lcpp},
    {"/chat/completions", &wire_lcpp}, {"/tokenize", &wire_lcpp},      {"/detokenize", &wire_lcpp}, {"/infill", &wire_lcpp},
    {"/apply-template", &wire_lcpp},   {"/props", &wire_lcpp},         {"/slots", &wire_lcpp},      {"/embedding", &wire_lcpp},
    {"/rerank", &wire_lcpp},           {"/lora-adapters", &wire_lcpp},
};

const struct wire *wire_of_path(struct str path) {
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++)
        if (str_starts(path, str_of(homes[i].prefix))) return homes[i].wire;
    return &wire_openai;
}
