/* A tokenizer file from outside: loading it, and running a few texts through whatever it says.
 *
 * The input is the file; what follows a line of "%%" is a text to encode, too. */
#include "text/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void run(const struct tok *t, struct str text) {
    struct tok_ids ids = {0};
    struct sb whole = {0}, streamed = {0};
    struct tok_stream s;
    struct tok_span spans[] = {{text, true}, {text, false}};
    tok_encode(t, text, TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, &ids, NULL);
    tok_encode_spans(t, NULL, spans, 2, TOK_PARSE_SPECIAL, &ids, NULL);
    int code = tok_decode(t, ids.p, ids.n, false, &whole, NULL);
    tok_stream_init(&s, t, false);
    for (size_t i = 0; i < ids.n; i++) tok_stream_push(&s, ids.p[i], &streamed, NULL);
    tok_stream_flush(&s, &streamed, NULL);
    if (!code && !str_eq(sb_str(&whole), sb_str(&streamed))) __builtin_trap();
    tok_stream_free(&s);
    sb_free(&whole);
    sb_free(&streamed);
    tok_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct str input = str_n((const char *)data, n),
               text = STR("Hello, w\xC3\xB6rld  <s> 12\n\xF0\x9F\x98\x80\xE4\xBD\xA0\xE5\xA5\xBD \xFF");
    size_t cut = str_find(input, STR("\n%%\n"), 0);
    struct tok *t;
    if (tok_load_any(&t, cut == STR_NONE ? input : str_sub(input, 0, cut), STR("{\"bos_token\":\"<s>\"}"), NULL)) return 0;
    run(t, text);
    if (cut != STR_NONE) run(t, str_from(input, cut + 4));
    for (int32_t id = 0; id < 40; id++) {
        struct str token = tok_token_text(t, id), bytes = tok_token_bytes(t, id);
        if ((token.p != NULL) != (bytes.p != NULL)) __builtin_trap();
    }
    tok_destroy(t);
    return 0;
}
