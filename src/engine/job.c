/* A job's beginning and end: its spec is checked and copied, its memory freed. On the owner's thread. */
#include "engine/engine_internal.h"

#include "base/hash.h"

#include <assert.h>

/* Tokens that no repetition of DRY goes across: those whose text holds one of the strings. One bit for each token. */
static const uint32_t *find_breakers(const struct engine *e, struct arena *a, const struct str *strings, size_t n) {
    int32_t vocab = e->runner.model->spec.vocab;
    uint32_t *bits = arena_new(a, uint32_t, vocab / 32 + 1);
    for (int32_t id = 0; id < vocab; id++) {
        struct str text = tok_token_bytes(e->tok, id);
        for (size_t i = 0; i < n; i++)
            if (strings[i].n && str_find(text, strings[i], 0) != STR_NONE) bits[id / 32] |= UINT32_C(1) << (id % 32);
    }
    return bits;
}

static const uint32_t *breakers_of(struct job *j) {
    static const struct str usual[] = {{"\n", 1}, {":", 1}, {"\"", 1}, {"*", 1}};
    struct engine *e = j->engine;
    const struct sampler_params *p = &j->spec.sampling;
    if (p->dry_multiplier <= 0 || !e->tok) return NULL;
    if (p->breakers) return find_breakers(e, &j->arena, p->breakers, p->n_breakers);
    if (!e->usual_breakers) e->usual_breakers = find_breakers(e, &e->arena, usual, sizeof usual / sizeof *usual);
    return e->usual_breakers;
}

/* Rows that see each other are one step, with all the logits that are wanted of them. */
static int check_part(const struct engine *e, const struct job_spec *s, const char *what, int32_t n, struct err *err) {
    const struct runner_limits *l = &e->runner.limits;
    int32_t most = s->rows == ROWS_LOGITS && l->logits - l->seqs + 1 < l->rows ? l->logits - l->seqs + 1 : l->rows;
    if (n <= most) return ERR_OK;
    return err_set(err, ERR_ELIMIT, "%s has %d tokens that see each other, and a step takes %d of them; use a larger --batch-size", what, n,
                   most);
}

/* Whether a picture that is looked at stands here: its token may be beyond the vocabulary, which the head chooses from. */
static bool is_marked(const struct picture_states *s, int32_t at) {
    bool is = false;
    for (int32_t i = 0; s && i < s->n_marks; i++) is |= s->marks[i].first == at;
    return is;
}

static int check_prompt(const struct engine *e, const struct job_spec *s, struct err *err) {
    const struct spec *spec = &e->runner.model->spec;
    int32_t vocab = spec->vocab, context = e->runner.limits.context;
    int64_t n_ids = (int64_t)vocab * (spec->n_types ? spec->n_types : 1);
    if (spec->is_encoder && s->rows != ROWS_HIDDEN)
        return err_set(err, ERR_EUNSUPPORTED, "the model is an encoder and writes no text; it makes embeddings or judges documents");
    if (s->n_tokens < 1) return err_set(err, ERR_EARG, "the prompt is empty");
    if (s->n_tokens > context || (s->n_tokens == context && s->max_new != 0))
        return err_set(err, ERR_ELIMIT, "the prompt has %d tokens, which is too large: it exceeds the available context size of %d%s",
                       s->n_tokens, context, s->max_new ? " with the answer" : "");
    if (e->runner.model->is_prefix) TRY(check_part(e, s, "the prompt", s->n_tokens, err));
    for (int32_t i = 0; i < s->n_tokens; i++)
        if (s->tokens[i] < 0 || s->tokens[i] >= (is_marked(s->states, i) && spec->embed_rows ? spec->embed_rows : n_ids))
            return err_set(err, ERR_EARG, "token %d is outside the vocabulary of %d", s->tokens[i], vocab);
    return ERR_OK;
}

/* The tools of the spec, in the job's own memory. */
static int read_tools(struct job *j, struct output_tools *out, struct err *err) {
    yyjson_val *list;
    if (!j->spec.tools.p) return ERR_OK;
    TRY(json_parse(&j->arena, str_copy(&j->arena, j->spec.tools), "tools", JSON_STRICT, &list, err));
    return output_tools_read(&j->arena, list, out, err);
}

/* The tokens that end reasoning, where it has a limit. */
static int prepare_closing(struct job *j, struct err *err) {
    const struct tok *tok = j->engine->tok;
    struct str close = output_reasoning_close(j->spec.format, j->spec.reasoning);
    if (j->spec.max_reasoning <= 0) return ERR_OK;
    int32_t id = tok_id_of(tok, close);
    if (id >= 0) {
        tok_ids_put(&j->closing, id);
        return ERR_OK;
    }
    return tok_encode(tok, close, TOK_PARSE_SPECIAL, &j->closing, err);
}

bool job_thinks_too_long(const struct job *j) {
    return j->closing.n && chain_is_reasoning(&j->chain) && j->usage.n_reasoning >= j->spec.max_reasoning;
}

bool job_nears_close(const struct job *j) {
    return j->closing.n && chain_is_reasoning(&j->chain) && j->usage.n_reasoning + 1 >= j->spec.max_reasoning;
}

int32_t job_n_vectors(const struct job *j) {
    return j->spec.rows != ROWS_HIDDEN ? 0 : j->spec.pooling == POOL_NONE ? j->spec.n_tokens : 1;
}

bool job_wants_logits(const struct job *j) {
    return j->spec.rows == ROWS_LOGITS || j->spec.rows == ROWS_SCORES;
}

/* Which tokens may come, in the job's own memory. */
static void copy_tokens(struct job *j) {
    struct job_spec *s = &j->spec;
    int32_t vocab = j->engine->runner.model->spec.vocab;
    s->end_tokens = arena_copy(&j->arena, s->end_tokens, (size_t)s->n_end_tokens * sizeof *s->end_tokens);
    if (s->allowed) j->allowed = arena_new(&j->arena, uint32_t, vocab / 32 + 1);
    for (int32_t i = 0; s->allowed && i < s->n_allowed; i++) j->allowed[s->allowed[i] / 32] |= UINT32_C(1) << s->allowed[i] % 32;
    struct job_words *words = arena_copy(&j->arena, s->bad_words, (size_t)s->n_bad_words * sizeof *words);
    for (int32_t i = 0; i < s->n_bad_words; i++) words[i].p = arena_copy(&j->arena, words[i].p, (size_t)words[i].n * sizeof *words[i].p);
    s->bad_words = words;
    j->never = arena_new(&j->arena, int32_t, s->n_bad_words + s->n_end_tokens + j->engine->options.n_eos + 1);
}

static int copy_answer(struct job *j, struct err *err) {
    struct engine *e = j->engine;
    struct job_spec *s = &j->spec;
    struct sampler_params *p = &s->sampling;
    TRY(sampler_check(p, e->runner.model->spec.vocab, err));
    if (p->n_bias) p->bias = arena_copy(&j->arena, p->bias, (size_t)p->n_bias * sizeof *p->bias);
    j->breakers = breakers_of(j);
    copy_tokens(j);
    if (s->replay) s->replay = arena_copy(&j->arena, s->replay, (size_t)s->n_replay * sizeof *s->replay);
    p->breakers = NULL; /* they are bits now */
    if (!s->has_seed) p->seed = hash_pair(os_clock_ns() ^ (uint64_t)os_process_id(), ++e->n_seeds);
    if (!s->wants_text && s->constraint) return err_set(err, ERR_EARG, "a constraint needs text");
    if (!s->wants_text) return ERR_OK;
    if (!e->tok) return err_set(err, ERR_EARG, "there is no tokenizer that makes text of tokens");
    struct chain_options options = {
        .stops = s->stops, .n_stops = s->n_stops, .keeps_stop = s->keeps_stop, .continues = s->continues, .splits = s->splits};
    options.output = (struct output_options){.format = s->format,
                                             .reasoning = s->reasoning,
                                             .takes_calls = s->takes_calls,
                                             .as_it_comes = s->calls_in_parts,
                                             .is_open = s->thinks,
                                             .continues = s->continues};
    TRY(read_tools(j, &options.output.tools, err));
    TRY(chain_init(&j->chain, &j->arena, e->tok, &options, err));
    TRY(bound_init(j, err));
    return prepare_closing(j, err);
}

enum { TREES_MAX = 1024 };

/* Jobs with the same scales share what the prefix cache keeps; where there were too many kinds of them, the next are kept out. */
static int32_t tree_of(struct engine *e, const float *scales, int32_t n) {
    for (int32_t i = 0; i < e->n_trees; i++)
        if (memcmp(e->trees[i], scales, (size_t)n * sizeof *scales) == 0) return i + 1;
    if (e->n_trees == TREES_MAX) return -1;
    if (!e->trees) e->trees = arena_new(&e->arena, const float *, TREES_MAX);
    e->trees[e->n_trees] = arena_copy(&e->arena, scales, (size_t)n * sizeof *scales);
    return ++e->n_trees;
}

/* The job's adapters, in its own memory; NULL where none is used. */
static int copy_adapters(struct job *j, struct err *err) {
    const struct model_weights *w = &j->engine->runner.model->weights;
    const float *given = j->spec.adapters ? j->spec.adapters : j->engine->options.adapters;
    bool has_any = false;
    j->spec.adapters = NULL;
    if (!given || w->n_adapters == 0) return ERR_OK;
    for (int32_t i = 0; i < w->n_adapters; i++) {
        has_any |= given[i] != 0;
        if (!(given[i] >= -100 && given[i] <= 100)) return err_set(err, ERR_EARG, "the scale of adapter %d is not within -100 and 100", i);
        if (w->fixed_adapters[i] && given[i] != 0 && given[i] != 1)
            return err_set(err, ERR_EARG, "adapter %d has magnitudes (DoRA), which belong to its own scale: it takes 0 or 1", i);
    }
    if (!has_any) return ERR_OK;
    j->spec.adapters = arena_copy(&j->arena, given, (size_t)w->n_adapters * sizeof *given);
    j->tree = tree_of(j->engine, j->spec.adapters, w->n_adapters);
    return ERR_OK;
}

/* Pictures stand in order within the prompt, with every set of rows that the model takes. */
static int check_pictures(const struct engine *e, const struct job_spec *s, struct err *err) {
    if (!s->n_pictures) return ERR_OK;
    if (!e->runner.model->n_given) return err_set(err, ERR_EUNSUPPORTED, "the model takes no pictures here");
    int32_t end = 0;
    for (int32_t i = 0; i < s->n_pictures; i++) {
        const struct picture_rows *p = &s->pictures[i];
        if (p->first < end || p->n < 1 || p->n > s->n_tokens - p->first || !p->rows[0])
            return err_set(err, ERR_EARG, "picture %d does not lie within the prompt", i);
        if (p->both_ways) TRY(check_part(e, s, "a picture", p->n, err));
        end = p->first + p->n;
    }
    return s->shifts ? err_set(err, ERR_EUNSUPPORTED, "a prompt with pictures cannot be shortened where the context is full") : ERR_OK;
}

/* Pictures that are looked at: as many as the cache has room for. */
static int check_states(const struct engine *e, const struct job_spec *s, struct err *err) {
    const struct kv *kv = &e->runner.kv;
    int32_t c = kv_token_classes(&kv->layout);
    if (!s->states) return ERR_OK;
    if (!kv->layout.n_of_pictures || !e->runner.model->n_given) return err_set(err, ERR_EUNSUPPORTED, "the model takes no pictures here");
    int64_t room = (int64_t)(kv->pools[c].n_blocks - 1) * KV_BLOCK;
    if (s->states->n > room)
        return err_set(err, ERR_ELIMIT, "the prompt's pictures have %d states, and the cache has room for %lld: give fewer pictures",
                       s->states->n, (long long)room);
    if (s->cache == CACHE_SAVE) return err_set(err, ERR_EUNSUPPORTED, "the cache of a prompt with pictures cannot be saved");
    return s->shifts ? err_set(err, ERR_EUNSUPPORTED, "a prompt with pictures cannot be shortened where the context is full") : ERR_OK;
}

/* Every token of such a prompt has seen the pictures: what the prefix cache keeps of it is for prompts with the same ones. */
static void copy_states(struct job *j) {
    const struct picture_states *from = j->spec.states;
    int64_t width = j->engine->runner.model->spec.hidden;
    if (!from) return;
    struct picture_states *to = arena_copy(&j->arena, from, sizeof *to);
    const float **rows = arena_new(&j->arena, const float *, to->n);
    float *numbers = arena_new(&j->arena, float, to->n *width);
    for (int32_t i = 0; i < to->n; i++) rows[i] = memcpy(numbers + i * width, from->rows[i], (size_t)width * sizeof *numbers);
    to->rows = rows;
    to->marks = arena_copy(&j->arena, from->marks, (size_t)to->n_marks * sizeof *to->marks);
    j->spec.states = to;
    if (j->tree >= 0) j->tree = (int32_t)(hash_pair(to->hash, (uint64_t)j->tree) & (PICTURE_TOKEN - 1)) | PICTURE_TOKEN;
}

static void copy_pictures(struct job *j) {
    struct job_spec *s = &j->spec;
    int64_t width = j->engine->runner.model->spec.hidden;
    if (!s->n_pictures) return;
    struct picture_rows *copy = arena_copy(&j->arena, s->pictures, (size_t)s->n_pictures * sizeof *copy);
    for (int32_t i = 0; i < s->n_pictures; i++)
        for (int k = 0; k < GIVEN_SETS; k++)
            if (copy[i].rows[k]) copy[i].rows[k] = arena_copy(&j->arena, copy[i].rows[k], (size_t)(copy[i].n * width) * sizeof(float));
    s->pictures = copy;
    if (s->places) s->places = arena_copy(&j->arena, s->places, (size_t)s->n_tokens * STEP_AXES * sizeof *s->places);
}

static int copy_spec(struct job *j, const struct job_spec *spec, struct err *err) {
    struct engine *e = j->engine;
    int32_t context = e->runner.limits.context;
    assert(spec->rows != ROWS_HIDDEN || spec->max_new == 0);
    assert(spec->rows != ROWS_LOGITS || spec->on_rows);
    assert(spec->cache == CACHE_USED || (spec->rows == ROWS_NONE && spec->max_new == 0));
    TRY(check_prompt(e, spec, err));
    TRY(check_pictures(e, spec, err));
    TRY(check_states(e, spec, err));
    TRY(speculate_check(e, spec, err));
    j->spec = *spec;
    copy_pictures(j);
    TRY(copy_adapters(j, err));
    copy_states(j);
    TRY(prompt_cache_check(j, err));
    if (spec->max_new != 0) TRY(copy_answer(j, err));
    j->spec.stops = NULL; /* the chain has its own copies */
    j->spec.tools = (struct str){0};
    j->spec.constraint = NULL;
    j->spec.tokens = arena_copy(&j->arena, spec->tokens, (size_t)j->spec.n_tokens * sizeof *spec->tokens);
    j->n_limit = spec->max_new < 0 || spec->max_new > context - spec->n_tokens ? context : j->spec.n_tokens + spec->max_new;
    if (spec->rows == ROWS_HIDDEN) {
        int32_t width = engine_width(e);
        j->pooled.sum = arena_new(&j->arena, double, width);
        j->vectors = arena_new(&j->arena, float, (int64_t)(spec->head ? spec->head->width : width) * job_n_vectors(j));
        j->scratch = arena_new(&j->arena, float, 2 * (int64_t)(spec->head ? spec->head->widest : width));
    }
    j->submit_ns = os_clock_ns();
    if (spec->deadline_ms > 0) j->deadline_ns = j->submit_ns + (uint64_t)spec->deadline_ms * 1000000;
    j->usage.n_prompt = j->spec.n_tokens;
    return ERR_OK;
}

struct job *job_create(struct engine *e, const struct job_spec *spec, struct err *err) {
    struct job *j = mem_alloc(sizeof *j);
    j->engine = e;
    j->chain.stop.matched = -1;
    j->choice_slot = -1;
    if (copy_spec(j, spec, err)) {
        job_destroy(j);
        return NULL;
    }
    return j;
}

void job_destroy(struct job *j) {
    for (int i = 0; i < 2; i++) {
        output_pieces_free(&j->mailboxes[i].pieces);
        mem_free(j->mailboxes[i].tokens.p);
        mem_free(j->mailboxes[i].tokens.tops);
        mem_free(j->mailboxes[i].scores.p);
        mem_free(j->mailboxes[i].scores.tops);
        mem_free(j->mailboxes[i].reads);
    }
    bound_free(j);
    tok_ids_free(&j->closing);
    chain_free(&j->chain);
    output_pieces_free(&j->pieces);
    mem_free(j->saved);
    arena_free(&j->arena);
    mem_free(j);
}

void *job_user(const struct job *job) {
    return job->spec.user;
}
