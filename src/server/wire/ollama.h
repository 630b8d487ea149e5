/* What the files of Ollama's protocol share. */
#ifndef MLXCEL_SERVER_WIRE_OLLAMA_H
#define MLXCEL_SERVER_WIRE_OLLAMA_H

#include "server/generate.h"

extern const struct gen_format ollama_chat_format, ollama_generate_format;

/* The name that the request has for the model, else ours; in the arena. */
struct str ollama_model(struct call *c);
/* Of what is known of a model: the same as long as that is. */
void ollama_put_digest(struct str text, struct jsonw *w, const char *prefix);
/* The time so far from now. */
void ollama_put_time(struct jsonw *w, const char *key, int64_t from_now_ns);
/* keep_alive: how long the model stays behind this request; c->keeps where it was given. */
int ollama_keep_read(struct call *c);
/* The request computes nothing and lets the model go: where that is not loaded, it stays so. */
bool ollama_keep_only_unloads(const struct call *c);
/* The answer to a request that has nothing to say: the model is there, or gone. */
void ollama_reply_loaded(struct call *c);

/* Writes the body of a chat in OpenAI's fields. Nonzero: c->error names the field as the request has it. */
int ollama_chat_body(struct call *c, struct sb *out);
/* The same of a prompt for /api/generate; is_raw: without messages, parameters alone. */
int ollama_generate_body(struct call *c, bool is_raw, struct sb *out);

#endif
