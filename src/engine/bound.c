/* A job that is bound by a constraint: where its answer stands in the grammar, and which tokens may come next.
 *
 * It waits until its answer's content begins, or until the trigger has been written; then it holds. White space behind reasoning and thoughts
 * that the model begins by itself are free, because they are no part of the content.
 */
#include "engine/engine_internal.h"

static bool has_bit(const uint32_t *bits, int32_t i) {
    return bits[i / 32] >> i % 32 & 1;
}

static void begin(struct job_bound *b) {
    gram_match_free(&b->match);
    gram_match_init(&b->match, b->constraint->machine);
    b->state = BOUND_HOLDS;
}

/* The token that begins reasoning, where the model may begin it by itself; -1: none. */
static int32_t thinking_token(const struct job *j) {
    struct str open = output_reasoning_open(j->spec.reasoning);
    return j->spec.may_think && !j->spec.thinks && open.p ? tok_id_of(j->engine->tok, open) : -1;
}

int bound_init(struct job *j, struct err *err) {
    struct job_bound *b = &j->bound;
    if (!j->spec.constraint) return ERR_OK;
    TRY(constraint_open(j->engine, j->spec.constraint, NULL, &b->constraint, err));
    b->thinking = thinking_token(j);
    if (j->spec.constraint->at_once || (!b->constraint->trigger.n && chain_is_content(&j->chain))) begin(b);
    return ERR_OK;
}

void bound_free(struct job *j) {
    struct job_bound *b = &j->bound;
    if (!b->constraint) return;
    gram_match_free(&b->match);
    sb_free(&b->tail);
    sb_free(&b->forced);
    tok_ids_free(&b->next);
    constraint_release(b->constraint);
}

bool bound_holds(const struct job *j) {
    return j->bound.constraint && j->bound.state == BOUND_HOLDS;
}

bool bound_is_forced(const struct job *j) {
    return j->bound.i_next < j->bound.next.n;
}

/* ---- masks ------------------------------------------------------------------------------------------------------------ */

/* Tokens that end the answer are not wanted, as long as the grammar has others. */
static void drop_ends(const struct engine *e, uint32_t *bits, size_t n_words) {
    uint32_t any = 0;
    for (int32_t i = 0; i < e->options.n_eos; i++) bits[e->options.eos[i] / 32] &= ~(UINT32_C(1) << e->options.eos[i] % 32);
    for (size_t i = 0; i < n_words && !any; i++) any = bits[i];
    for (int32_t i = 0; i < e->options.n_eos && !any; i++) bits[e->options.eos[i] / 32] |= UINT32_C(1) << e->options.eos[i] % 32;
}

void bound_mask(struct job *j, uint32_t *bits) {
    struct job_bound *b = &j->bound;
    struct constraint *c = b->constraint;
    size_t n_words = gram_mask_words(j->engine->vocab);
    if (bound_is_forced(j)) {
        memset(bits, 0, n_words * sizeof *bits);
        bits[b->next.p[b->i_next] / 32] = UINT32_C(1) << b->next.p[b->i_next] % 32;
        return;
    }
    os_mutex_lock(c->lock);
    bool is_free = c->then_free && gram_match_may_end(&b->match);
    if (is_free) memset(bits, 0xFF, n_words * sizeof *bits);
    else gram_match_mask(&b->match, bits);
    os_mutex_unlock(c->lock);
    if (is_free) return;
    if (j->spec.ignore_eos) drop_ends(j->engine, bits, n_words);
    if (b->thinking >= 0) bits[b->thinking / 32] |= UINT32_C(1) << b->thinking % 32;
    if (b->may_space)
        for (size_t i = 0; i < n_words; i++) bits[i] |= j->engine->space_bits[i];
}

bool bound_masks_alike(const struct job *a, const struct job *b) {
    const struct job_bound *x = &a->bound, *y = &b->bound;
    if (bound_is_forced(a) || bound_is_forced(b)) return false; /* each has tokens of its own */
    return x->constraint == y->constraint && x->match.state == y->match.state && x->match.has_ended == y->match.has_ended &&
           x->thinking == y->thinking && x->may_space == y->may_space && a->spec.ignore_eos == b->spec.ignore_eos;
}

/* ---- tokens ----------------------------------------------------------------------------------------------------------- */

/* Adds text to what was written last and looks for the trigger there. *out: the trigger and what follows it. */
static bool find_trigger(struct job_bound *b, struct str text, struct str *out) {
    struct str trigger = b->constraint->trigger;
    size_t keep = b->tail.n < trigger.n - 1 ? b->tail.n : trigger.n - 1;
    if (keep) memmove(b->tail.p, b->tail.p + b->tail.n - keep, keep);
    b->tail.n = keep;
    sb_put(&b->tail, text);
    size_t at = str_find(sb_str(&b->tail), trigger, 0);
    if (at == STR_NONE) return false;
    *out = str_from(sb_str(&b->tail), at);
    return true;
}

/* The constraint has not begun. Begins it if the last token started the content, or completed the trigger. */
static void wait_on(struct job *j) {
    struct job_bound *b = &j->bound;
    struct str written;
    if (!b->constraint->trigger.n) {
        if (!chain_is_content(&j->chain)) return;
        begin(b);
        b->may_space = true;
        return;
    }
    if (!find_trigger(b, chain_last(&j->chain), &written)) return;
    begin(b);
    if (gram_match_bytes(&b->match, written) < written.n)
        b->state = BOUND_WAITS; /* the same token holds text behind the trigger that the grammar does not allow */
    else sb_clear(&b->tail);
}

/* The content has begun: reasoning and white space can no longer come before it. */
static void enter_content(struct job_bound *b) {
    b->thinking = -1;
    b->may_space = false;
}

/* Whether the token stands before the content: it begins reasoning, or is white space. */
static bool stands_outside(struct job_bound *b, int32_t token, const uint32_t *spaces) {
    bool is_thought = token == b->thinking, is_space = b->may_space && has_bit(spaces, token);
    if (!is_thought && !is_space) return false;
    enter_content(b);
    if (is_thought) b->state = BOUND_WAITS;
    return true;
}

static enum bound_says follow(struct job *j, int32_t token) {
    struct job_bound *b = &j->bound;
    if (gram_match_token(&b->match, token)) {
        enter_content(b);
        if (b->match.has_ended || (!b->constraint->then_free && gram_match_may_end(&b->match) && gram_match_must_end(&b->match)))
            return BOUND_ENDS;
        return BOUND_GOES_ON;
    }
    if (stands_outside(b, token, j->engine->space_bits)) return BOUND_GOES_ON;
    if (!b->constraint->then_free || !gram_match_may_end(&b->match)) return BOUND_REFUSES;
    b->state = BOUND_WAITS;
    return BOUND_GOES_ON;
}

enum bound_says bound_take(struct job *j, int32_t token) {
    struct job_bound *b = &j->bound;
    if (!bound_holds(j)) return BOUND_GOES_ON;
    if (bound_is_forced(j)) b->i_next++;
    os_mutex_lock(b->constraint->lock);
    enum bound_says says = follow(j, token);
    os_mutex_unlock(b->constraint->lock);
    return says;
}

void bound_look(struct job *j) {
    struct job_bound *b = &j->bound;
    if (!b->constraint || b->state == BOUND_HOLDS) return;
    os_mutex_lock(b->constraint->lock);
    wait_on(j);
    os_mutex_unlock(b->constraint->lock);
}

/* ---- text that must come ---------------------------------------------------------------------------------------------- */

/* The tokens of forced text. is_followed: a token of another kind comes next, so that no token of the text could be longer. Returns false if the end
 * of the text was left to the model. */
static bool encode_forced(const struct engine *e, struct str text, bool is_followed, struct tok_ids *out) {
    struct tok_ids ids = {0};
    struct err err;
    int code = tok_encode(e->tok, text, 0, &ids, &err);
    for (size_t i = 0; i < ids.n && !code; i++) {
        struct str bytes = tok_token_bytes(e->tok, ids.p[i]);
        bool is_safe = is_followed || !gram_vocab_goes_on(e->vocab, text);
        if (!is_safe || bytes.n == 0 || !str_starts(text, bytes)) break; /* some tokenizers put a blank in front */
        tok_ids_put(out, ids.p[i]);
        text = str_from(text, bytes.n);
    }
    tok_ids_free(&ids);
    return text.n == 0;
}

void bound_force(struct job *j) {
    struct job_bound *b = &j->bound;
    struct tok_ids *out = &b->next;
    const char mark = GRAM_TOKEN_MARK[0];
    sb_clear(&b->forced);
    b->next.n = b->i_next = 0;
    os_mutex_lock(b->constraint->lock);
    gram_match_forced(&b->match, &b->forced);
    os_mutex_unlock(b->constraint->lock);
    for (struct str rest = sb_str(&b->forced); rest.n;) {
        size_t end = str_find_char(rest, mark, rest.p[0] == mark);
        bool is_token = rest.p[0] == mark, is_whole = end != STR_NONE;
        if (is_token && !is_whole) return;
        if (is_token) {
            int32_t id = tok_id_of(j->engine->tok, str_sub(rest, 1, end - 1));
            if (id < 0) return;
            tok_ids_put(out, id);
            rest = str_from(rest, end + 1);
        } else {
            if (!encode_forced(j->engine, str_sub(rest, 0, end), is_whole, out)) return;
            rest = str_from(rest, is_whole ? end : rest.n);
        }
    }
}
