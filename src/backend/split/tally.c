/* Counting weights. */
#include "backend/split/tally.h"

struct tally_backend {
    struct backend base;
    const struct backend *card;
    struct tally tally;
    int32_t layer; /* whose matrices were bound last; what its largest ones and all of its experts take where they are borrowed */
    uint64_t largest, second, experts;
};

static uint64_t bytes_of(const struct backend *card, const struct weight_source *s) {
    if (card->type->weight_bytes) return card->type->weight_bytes(card, s);
    return (uint64_t)s->n_experts * (uint64_t)s->out * format_row_bytes(&s->format, (size_t)s->in);
}

static uint64_t *counter_of(struct tally *t, const struct weight_source *s) {
    if (s->reader >= 0) return s->is_expert ? &t->experts[s->reader] : &t->layers[s->reader];
    if (s->is_vector || s->reader == READ_ALL) return &t->all;
    return s->reader == READ_BEFORE ? &t->before : s->reader == READ_BEHIND ? &t->behind : &t->ends;
}

/* Room for any two matrices of a layer that are used one behind the other, of which all experts are two at most. */
static void note_borrowed(struct tally_backend *b, const struct weight_source *s, uint64_t bytes) {
    if (s->reader != b->layer) b->largest = b->second = b->experts = 0, b->layer = s->reader;
    if (s->is_expert) b->experts += bytes;
    if (bytes > b->largest) b->second = b->largest, b->largest = bytes;
    else if (bytes > b->second) b->second = bytes;
    uint64_t two = b->largest + (b->second ? b->second : b->largest), most = b->experts > two ? b->experts : two;
    if (most > b->tally.borrowed) b->tally.borrowed = most;
}

static int tally_bind(struct backend *be, const struct weight_source *s, struct weight *out, struct err *err) {
    struct tally *t = &((struct tally_backend *)be)->tally;
    const struct backend *card = ((struct tally_backend *)be)->card;
    uint64_t bytes = bytes_of(card, s);
    if (s->reader >= t->n_layers) return err_set(err, ERR_EINTERNAL, "%s is of a layer that is not there", s->name);
    *out = (struct weight){.name = s->name, .format = s->format, .n_experts = s->n_experts, .out = s->out, .in = s->in, .bytes = bytes};
    *counter_of(t, s) += bytes;
    if (card->type->borrow_bytes && s->reader >= 0) note_borrowed((struct tally_backend *)be, s, card->type->borrow_bytes(card, s));
    return ERR_OK;
}

static void tally_release(struct backend *be, struct weight *w) {
    (void)be, (void)w;
}

static void tally_close(struct backend *be) {
    struct tally *t = &((struct tally_backend *)be)->tally;
    mem_free(t->layers);
    mem_free(t->experts);
    oplist_free(&be->list);
    mem_free(be);
}

static const struct backend_type tally_type = {.name = "tally",
                                               .close = tally_close,
                                               .weight_bind = tally_bind,
                                               .weight_release = tally_release};

int tally_open(int32_t n_layers, const struct backend *card, struct backend **out, struct err *err) {
    struct tally_backend *t = mem_alloc(sizeof *t);
    t->base = (struct backend){.type = &tally_type};
    t->card = card;
    t->tally = (struct tally){.n_layers = n_layers,
                              .layers = mem_try(((size_t)n_layers + 1) * sizeof(uint64_t)),
                              .experts = mem_try(((size_t)n_layers + 1) * sizeof(uint64_t))};
    if (!t->tally.layers || !t->tally.experts) {
        tally_close(&t->base);
        return err_set(err, ERR_EMEMORY, "no memory to count %d layers", n_layers);
    }
    for (int32_t i = 0; i < n_layers; i++) t->tally.layers[i] = t->tally.experts[i] = 0;
    *out = &t->base;
    return ERR_OK;
}

const struct tally *tally_of(const struct backend *be) {
    return &((const struct tally_backend *)be)->tally;
}
