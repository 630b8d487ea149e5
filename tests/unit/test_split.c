/* backend/split and api/placement: a model on two devices says what it says on one, alone, in batches, from kept prefixes and after preemption;
 * lists are cut where the device changes; plans fit the memory that is there, and keep what was asked for.
 *
 * Both devices are the CPU here, each with threads and a budget of its own: one of them is taken for a card. */
#include "unit.h"

#include "api/session_internal.h"
#include "backend/split/split_internal.h"
#include "backend/split/tally.h"

enum { N_JOBS = 5, N_NEW = 12, N_PROMPT = 90 };

/* ---- cutting ----------------------------------------------------------------------------------------------------------- */

static void lists_are_cut_where_the_side_changes(void) {
    struct oplist l = {0};
    struct cut c = {0};
    struct tensor shape = {.rows = 2, .heads = 1, .width = 8, .dtype = DT_F32};
    oplist_begin(&l, 2, 2);
    struct tensor a = op_input(&l, shape, 0), b = op_act(&l, a, &(struct act_args){.scale = 1}); /* host */
    struct tensor x = op_add(&l, a, b, NULL), y = op_add(&l, x, b, NULL);                        /* card */
    struct tensor z = op_add(&l, y, a, NULL);                                                    /* host */
    struct tensor last = op_add(&l, x, z, NULL);                                                 /* card */
    oplist_output(&l, y);
    oplist_output(&l, last);
    cut_make(&c, &l, (const int32_t[]){SIDE_HOST, SIDE_HOST, SIDE_CARD, SIDE_CARD, SIDE_HOST, SIDE_CARD});
    CHECK_INT(c.n_pieces, 4);
    CHECK_INT(c.pieces[1].n_inputs, 2);  /* a and b */
    CHECK_INT(c.pieces[1].n_outputs, 2); /* x and y */
    CHECK_INT(c.pieces[2].n_inputs, 2);  /* y and a */
    CHECK_INT(c.pieces[3].n_inputs, 2);  /* x and z */
    CHECK_INT(c.pieces[3].n_outputs, 0); /* the host reads it where it is */
    CHECK_INT(c.values[y.id - 1].last_read, 4);
    CHECK_INT(c.values[last.id - 1].slot, -1);
    CHECK_INT(c.values[x.id - 1].id, 3); /* behind the piece's two inputs */
    CHECK_INT(c.n_slots, 4);             /* z has that of b, which nobody reads any more */
    CHECK_INT(c.values[z.id - 1].slot, c.values[b.id - 1].slot);
    CHECK(c.pieces[0].is_first && c.pieces[1].is_first && !c.pieces[2].is_first && !c.pieces[3].is_first);
    cut_free(&c);
    oplist_free(&l);
}

/* ---- running ------------------------------------------------------------------------------------------------------------ */

/* A device that the planner may share with the CPU. */
static struct device *open_card(uint64_t limit) {
    struct device *d;
    struct err err;
    CHECK_OK(device_open(&cpu_backend, &(struct device_options){.n_threads = 1, .memory_limit = limit}, &d, &err), err);
    d->shares = true;
    return d;
}

struct said {
    int32_t tokens[N_NEW + 1], n, n_cached;
};

static void take_all(struct session *s) {
    struct job *j;
    while ((j = engine_next_ready(s->engine))) {
        struct said *a = job_user(j);
        struct job_events ev;
        job_take(j, &ev);
        for (size_t i = 0; i < ev.n_tokens; i++) a->tokens[a->n++] = ev.tokens[i].id;
        a->n_cached = ev.usage.n_cached;
        if (ev.finish) job_release(j);
    }
}

/* All jobs at once, whose prompts begin alike: that of the first has n_first tokens, the others a few more. */
static void run_jobs_from(struct session *s, int32_t n_first, struct said out[N_JOBS]) {
    struct err err;
    memset(out, 0, N_JOBS * sizeof *out);
    for (int32_t i = 0; i < N_JOBS; i++) {
        int32_t prompt[N_PROMPT], n = n_first + i;
        struct job *job;
        for (int32_t k = 0; k < n; k++) prompt[k] = (k * 7 + (k >= n_first - 4 ? i : 0)) % 4096;
        struct job_spec spec = {.tokens = prompt,
                                .n_tokens = n,
                                .max_new = N_NEW,
                                .sampling = sampler_defaults(),
                                .has_seed = true,
                                .ignore_eos = true,
                                .user = &out[i]};
        CHECK_OK(engine_submit(s->engine, &spec, 1, &job, &err), err);
    }
    for (bool idle = false; !idle;) {
        CHECK_OK(engine_turn(s->engine, &idle, &err), err);
        take_all(s);
    }
}

static void run_jobs(struct session *s, struct said out[N_JOBS]) {
    run_jobs_from(s, KV_BLOCK + 6, out);
}

static struct session_options options_of(const char *shape, struct device *card) {
    return (struct session_options){.shape = shape,
                                    .bits = 4,
                                    .seed = 7,
                                    .precision = SESSION_EXACT,
                                    .device = "cpu",
                                    .shared_device = card,
                                    .n_threads = 1,
                                    .n_rows = 128,
                                    .n_seqs = N_JOBS,
                                    .prefix_cache = true,
                                    .n_queue = -1};
}

static struct session *open_session(const struct session_options *o) {
    struct session *s;
    struct err err = {0};
    CHECK_OK(session_open(o, &s, &err), err);
    return s;
}

static void check_same(const struct said *got, const struct said *want) {
    for (int32_t i = 0; i < N_JOBS; i++) {
        CHECK_INT(got[i].n, N_NEW);
        for (int32_t k = 0; k < N_NEW; k++) CHECK_INT(got[i].tokens[k], want[i].tokens[k]);
    }
}

/* Tokens on one device, then on two in every way that these layers can be placed. */
static void two_devices_say_what_one_says(void) {
    static const char *const shapes[] = {"tiny", "tiny-moe"};
    static struct said want[N_JOBS], got[N_JOBS];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct session_options o = options_of(shapes[i], NULL);
        struct session *s = open_session(&o);
        run_jobs(s, want);
        session_close(s);
        for (int32_t layers = 0; layers <= 2; layers++) {
            struct device *card = open_card(0);
            o = options_of(shapes[i], card);
            o.gpu_layers = (struct session_layers){SHARE_NUMBER, layers};
            if (i == 1) o.cpu_experts = (struct session_layers){SHARE_NUMBER, 1};
            s = open_session(&o);
            CHECK(split_is(s->backend) == (layers == 1 || (layers == 2 && i == 1)));
            run_jobs(s, got);
            check_same(got, want);
            run_jobs(s, got); /* again, from what was kept */
            check_same(got, want);
            CHECK(got[N_JOBS - 1].n_cached >= KV_BLOCK);
            session_close(s);
            CHECK_INT(atomic_load(&card->used), 0); /* all of it was given back */
            device_release(card);
        }
    }
}

/* The list of a decode step is walked and cut once, until one comes that has another. */
static void decode_steps_keep_their_list(void) {
    static struct said got[N_JOBS];
    struct device *card = open_card(0);
    struct session_options o = options_of("tiny", card);
    o.gpu_layers = (struct session_layers){SHARE_NUMBER, 1};
    struct session *s = open_session(&o);
    struct split *split = (struct split *)s->backend;
    run_jobs(s, got);
    struct step_key key = split->key, longer = key, wider = key;
    CHECK(key.decode_only && split->is_cut);
    longer.max_len++;
    wider.n_rows++, wider.n_seqs++, wider.n_logits++;
    CHECK(!s->backend->type->begin(s->backend, &longer));
    CHECK(s->backend->type->begin(s->backend, &wider) && s->backend->list.n_ops == 0);
    CHECK(s->backend->type->begin(s->backend, &key)); /* that list is gone */
    session_close(s);
    device_release(card);
}

static void preemption_changes_nothing_on_two(void) {
    static struct said want[N_JOBS], got[N_JOBS];
    struct session_options o = options_of("tiny-moe", NULL);
    struct session *s = open_session(&o);
    run_jobs_from(s, KV_BLOCK - 8, want);
    session_close(s);
    struct device *card = open_card(0);
    o = options_of("tiny-moe", card);
    o.gpu_layers = (struct session_layers){SHARE_NUMBER, 1};
    o.context = 128;
    o.kv_tokens = KV_BLOCK; /* a block for each, and every answer needs a second one */
    o.prefix_cache = false;
    s = open_session(&o);
    run_jobs_from(s, KV_BLOCK - 8, got);
    check_same(got, want);
    CHECK(engine_stats(s->engine).n_preempted > 0);
    session_close(s);
    device_release(card);
}

/* A block that is read and written back elsewhere is the same there, with the parts of both devices. */
static void blocks_have_the_parts_of_both(void) {
    static struct said got[N_JOBS];
    struct device *card = open_card(0);
    struct session_options o = options_of("tiny", card);
    struct err err;
    o.gpu_layers = (struct session_layers){SHARE_NUMBER, 1};
    struct session *s = open_session(&o);
    struct backend *be = s->backend;
    run_jobs(s, got);
    const char *layout;
    size_t bytes = be->type->block_bytes(be, 0, &layout);
    CHECK(str_starts(str_of(layout), STR("split-")));
    unsigned char *one = mem_alloc(bytes), *two = mem_alloc(bytes);
    CHECK_OK(be->type->block_read(be, 0, 1, one, &err), err);
    size_t n_zero[2] = {0};
    for (size_t i = 0; i < bytes; i++) n_zero[i >= bytes / 2] += one[i] == 0;
    CHECK(n_zero[0] < bytes / 4 && n_zero[1] < bytes / 4); /* both halves hold keys and values */
    CHECK_OK(be->type->block_write(be, 0, 3, one, &err), err);
    CHECK_OK(be->type->block_read(be, 0, 3, two, &err), err);
    CHECK(memcmp(one, two, bytes) == 0);
    mem_free(one);
    mem_free(two);
    session_close(s);
    device_release(card);
}

/* ---- planning ----------------------------------------------------------------------------------------------------------- */

/* What a plan takes of a card without a limit: all of it. */
static struct placement plan_of(const char *shape, uint64_t limit, const struct session_options *more, int want, struct err *err) {
    struct device *card = open_card(limit);
    struct session_options o = options_of(shape, card);
    struct session *s;
    o.n_seqs = 1;
    o.gpu_layers = more->gpu_layers, o.cpu_experts = more->cpu_experts, o.context = more->context;
    CHECK_INT(session_open(&o, &s, err), want);
    struct placement p = {0};
    if (!want) {
        p = s->placement;
        session_close(s);
    }
    device_release(card);
    return p;
}

static uint64_t needs(const struct placement *p) {
    return p->weights[SIDE_CARD] + p->cache[SIDE_CARD] + p->step;
}

static void plans_fit_what_is_there(void) {
    struct err err = {0};
    struct session_options asks = {.context = 64};
    struct placement all = plan_of("tiny-moe", UINT64_C(1) << 40, &asks, ERR_OK, &err);
    CHECK(!all.is_split && all.weights[SIDE_CARD] > 0);
    uint64_t room = needs(&all);
    struct placement p = plan_of("tiny-moe", room, &asks, ERR_OK, &err);
    CHECK(!p.is_split);
    p = plan_of("tiny-moe", room - 1, &asks, ERR_OK, &err); /* a byte short: the first layer's experts go */
    CHECK(p.is_split && p.is_forced && p.n_experts_moved == 1 && p.plan.first_layers[SIDE_CARD] == 0 && needs(&p) < room);
    struct placement q = plan_of("tiny-moe", needs(&p) - 1, &asks, ERR_OK, &err); /* then the second's */
    CHECK(q.n_experts_moved == 2 && q.plan.first_layers[SIDE_CARD] == 0);
    p = plan_of("tiny-moe", needs(&q) - 1, &asks, ERR_OK, &err); /* then layers */
    CHECK_INT(p.plan.first_layers[SIDE_CARD], 1);
    p = plan_of("tiny-moe", needs(&p) - 1, &asks, ERR_OK, &err); /* and at last everything */
    CHECK_INT(p.plan.first_layers[SIDE_CARD], 2);
    p = plan_of("tiny", room / 2, &asks, ERR_OK, &err);
    CHECK(p.is_split && p.n_experts_moved == 0);
}

static void what_was_asked_for_is_kept_or_refused(void) {
    struct err err = {0};
    struct session_options asks = {.context = 64};
    struct placement all = plan_of("tiny-moe", UINT64_C(1) << 40, &asks, ERR_OK, &err);
    asks.context = 128; /* more cache moves something */
    struct placement p = plan_of("tiny-moe", needs(&all), &asks, ERR_OK, &err);
    CHECK(p.is_split && p.cached == 128);
    asks.gpu_layers = (struct session_layers){SHARE_NUMBER, 2};
    plan_of("tiny-moe", needs(&all), &asks, ERR_EMEMORY, &err);
    FAIL_IF(!strstr(err.msg, "2 of 2 layers on the GPU need ") || !strstr(err.msg, "--gpu-layers 1 fits"), "%s", err.msg);
    asks.cpu_experts = (struct session_layers){.kind = SHARE_AUTO};
    p = plan_of("tiny-moe", needs(&all), &asks, ERR_OK, &err);
    CHECK(p.n_experts_moved > 0 && p.plan.first_layers[SIDE_CARD] == 0);
    asks.cpu_experts = (struct session_layers){SHARE_NUMBER, 1};
    plan_of("tiny", UINT64_C(1) << 40, &asks, ERR_EARG, &err);
    CHECK_STR(str_of(err.msg), STR("--cpu-experts 1: this model has no experts; leave it out"));
    struct session *s;
    struct session_options o = options_of("tiny", NULL);
    o.gpu_layers = (struct session_layers){SHARE_NUMBER, 1};
    CHECK_INT(session_open(&o, &s, &err), ERR_EARG);
    CHECK_STR(str_of(err.msg), STR("--gpu-layers is for a GPU, and this runs on cpu; leave it out"));
}

static void the_line_says_what_went_where(void) {
    struct device *card = open_card(0);
    struct session_options o = options_of("tiny-moe", card);
    o.gpu_layers = (struct session_layers){SHARE_NUMBER, 1};
    struct session *s = open_session(&o);
    struct sb line = {0};
    session_describe(s, &line);
    CHECK(strstr(line.p, ": 1 of 2 layers on the GPU (") && strstr(line.p, "), 1 on the CPU ("));
    CHECK(!strstr(line.p, "no room for more"));
    session_close(s);
    sb_clear(&line);
    o.gpu_layers.n = 2;
    o.cpu_experts = (struct session_layers){SHARE_NUMBER, 1};
    s = open_session(&o);
    session_describe(s, &line);
    CHECK(strstr(line.p, ": 2 of 2 layers on the GPU (") && strstr(line.p, "), the experts of 1 layers on the CPU ("));
    sb_free(&line);
    session_close(s);
    device_release(card);
}

static const struct unit_case cases[] = {
    {"lists_are_cut_where_the_side_changes", lists_are_cut_where_the_side_changes},
    {"two_devices_say_what_one_says", two_devices_say_what_one_says},
    {"decode_steps_keep_their_list", decode_steps_keep_their_list},
    {"preemption_changes_nothing_on_two", preemption_changes_nothing_on_two},
    {"blocks_have_the_parts_of_both", blocks_have_the_parts_of_both},
    {"plans_fit_what_is_there", plans_fit_what_is_there},
    {"what_was_asked_for_is_kept_or_refused", what_was_asked_for_is_kept_or_refused},
    {"the_line_says_what_went_where", the_line_says_what_went_where},
    {0},
};
const struct unit_suite unit_split = {"split", cases};
