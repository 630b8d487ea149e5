/* The last request of each slot. */
#include "server/slots.h"

#include "server/server_internal.h"

static struct served *model_of(const struct call *c) {
    return c->model ? c->model : c->server->models;
}

bool slots_are_kept(const struct call *c) {
    return c->server->options.slot_dir != NULL;
}

int32_t slots_count(const struct call *c) {
    return service_info(c->service)->n_seqs;
}

struct slot *slots_get(struct call *c, int64_t i) {
    struct served *m = model_of(c);
    if (i < 0 || i >= slots_count(c)) return NULL;
    if (!m->slots) {
        m->n_slots = slots_count(c);
        m->slots = mem_alloc((size_t)m->n_slots * sizeof *m->slots);
    }
    return &m->slots[i];
}

static void clear(struct slot *s) {
    mem_free(s->tokens);
    mem_free(s->adapters);
    *s = (struct slot){0};
}

void slots_free(struct served *m) {
    for (int32_t i = 0; i < m->n_slots; i++) clear(&m->slots[i]);
    mem_free(m->slots);
    m->slots = NULL;
    m->n_slots = 0;
}

/* The slot has these tokens from now on, and frees them. */
static void take(struct call *c, struct slot *s, int32_t *tokens, int32_t n_tokens, int32_t n_asked, const float *adapters) {
    size_t n_adapters = (size_t)service_info(c->service)->n_adapters;
    clear(s);
    s->tokens = tokens;
    s->n_tokens = n_tokens;
    s->n_asked = n_asked;
    if (n_adapters == 0) return;
    s->adapters = mem_alloc(n_adapters * sizeof *s->adapters);
    memcpy(s->adapters, adapters ? adapters : service_adapter_scales(c->service), n_adapters * sizeof *s->adapters);
}

static int32_t *copy_tokens(const int32_t *tokens, int32_t n, int32_t n_more) {
    int32_t *copy = mem_alloc((size_t)(n + n_more) * sizeof *copy);
    memcpy(copy, tokens, (size_t)n * sizeof *copy);
    return copy;
}

void slots_set(struct call *c, struct slot *s, const struct service_prompt *p) {
    if (p->n_tokens == 0) clear(s);
    else take(c, s, copy_tokens(p->tokens, p->n_tokens, 0), p->n_tokens, p->n_asked, p->adapters);
}

void slots_keep(struct gen_choice *choice) {
    const struct generation *g = choice->gen;
    const struct service_ids *prompt = &g->prompts[choice->i_prompt].ids;
    struct slot *s = slots_get(g->call, g->params.slot < 0 ? 0 : g->params.slot);
    if (!s) return;
    if (g->params.job.n_pictures || g->params.job.states) { /* their tokens do not say what they show */
        clear(s);
        return;
    }
    /* The last token that was chosen is not in the cache: nothing came behind it. Where the context made room, the answer is not what lies there. */
    int32_t n_answer = (int32_t)choice->n_said, most = choice->usage.n_new - 1;
    if (n_answer > most) n_answer = most > 0 ? most : 0;
    if (choice->usage.n_forgotten) n_answer = 0;
    int32_t *tokens = copy_tokens(prompt->p, prompt->n, n_answer);
    for (int32_t i = 0; i < n_answer; i++) tokens[prompt->n + i] = choice->said[i];
    take(g->call, s, tokens, prompt->n + n_answer, prompt->n, g->call->adapters);
}
