/* api/service: answers cross threads whole, in any company; releasing, full queues and slow readers end what they should. */
#include "unit.h"

#include "api/service_internal.h"
#include "base/log.h"
#include "os/os.h"

#include <stdatomic.h>

enum { N_JOBS = 6, N_NEW = 24 };

static _Atomic uint32_t n_notified;

static void notify(void *user) {
    (void)user;
    atomic_fetch_add(&n_notified, 1);
    os_wake_all(&n_notified);
}

static struct service *open_service(int32_t n_seqs, int32_t n_queue) {
    struct service_options o = {.session = {.n_seqs = n_seqs, .n_threads = 1, .n_rows = 64}, .n_queue = n_queue, .notify = notify};
    struct service *s;
    struct err err;
    CHECK_OK(service_open(&o, &s, &err), err);
    for (;;) {
        uint32_t seen = atomic_load(&n_notified);
        enum service_state state = service_state(s, &err);
        FAIL_IF(state == SERVICE_FAILED, "%s", err.msg);
        if (state == SERVICE_READY) return s;
        os_wait_on(&n_notified, seen, 1000);
    }
}

struct reply {
    struct job *job;
    struct sb text;
    struct job_events last;
    size_t n_tokens;
    float logprob_sum;
    bool ended;
};

static void submit(struct service *s, struct reply *reply, struct job_spec r, const char *prompt) {
    struct arena a = {0};
    struct service_ids ids;
    struct err err;
    CHECK_OK(service_encode(s, &a, str_of(prompt), SERVICE_ADD_SPECIAL | SERVICE_PARSE_SPECIAL, &ids, &err), err);
    r.tokens = ids.p;
    r.n_tokens = ids.n;
    r.user = reply;
    *reply = (struct reply){0};
    CHECK_OK(service_submit(s, &r, 1, &reply->job, &err), err);
    arena_free(&a);
}

static struct job_spec greedy(void) {
    return (struct job_spec){.max_new = N_NEW, .ignore_eos = true, .wants_text = true, .sampling = sampler_defaults()};
}

static void take(struct reply *reply) {
    job_take(reply->job, &reply->last);
    for (size_t i = 0; i < reply->last.pieces->n; i++)
        sb_put(&reply->text, output_piece_text(reply->last.pieces, &reply->last.pieces->p[i]));
    reply->n_tokens += reply->last.n_tokens;
    for (size_t i = 0; i < reply->last.n_tokens; i++) reply->logprob_sum += reply->last.tokens[i].logprob;
    reply->ended = reply->last.finish != JOB_GOES_ON;
}

/* Reads until all have ended. */
static void collect(struct service *s, struct reply *replies, int n) {
    for (;;) {
        uint32_t seen = atomic_load(&n_notified);
        struct job *j;
        while ((j = service_next_ready(s))) take(job_user(j));
        int left = 0;
        for (int i = 0; i < n; i++) left += !replies[i].ended;
        if (left == 0) return;
        os_wait_on(&n_notified, seen, 10000);
    }
}

static void drop(struct reply *replies, int n) {
    for (int i = 0; i < n; i++) {
        job_release(replies[i].job);
        sb_free(&replies[i].text);
    }
}

/* The figures once so many jobs have ended. */
static struct engine_stats wait_ended(struct service *s, int64_t n) {
    for (;;) {
        struct engine_stats stats = service_stats(s);
        int64_t ended = 0;
        for (int i = 0; i < N_JOB_FINISHES; i++) ended += stats.n_finished[i];
        if (ended >= n) return stats;
        os_sleep_ms(5);
    }
}

static const char *const prompts[N_JOBS] = {"Once upon a time", "The dog", "Lily and Tom went to the park to",
                                            "One day a big",    "She",     "Tim had a red ball"};

static struct job_spec mixed(int i) {
    struct job_spec r = greedy();
    if (i % 2) {
        r.sampling.temperature = 1;
        r.sampling.top_p = 0.9f;
        r.sampling.seed = 5 + (uint64_t)i;
        r.has_seed = true;
    }
    if (i == 2) r.sampling.n_top = 3;
    return r;
}

static void company_changes_nothing(void) {
    struct reply alone[N_JOBS], together[N_JOBS];
    struct service *s = open_service(4, 16);
    for (int i = 0; i < N_JOBS; i++) {
        submit(s, &alone[i], mixed(i), prompts[i]);
        collect(s, &alone[i], 1);
    }
    for (int i = 0; i < N_JOBS; i++) submit(s, &together[i], mixed(i), prompts[i]);
    collect(s, together, N_JOBS);
    for (int i = 0; i < N_JOBS; i++) {
        CHECK(alone[i].text.n > 10);
        CHECK_STR(sb_str(&together[i].text), sb_str(&alone[i].text));
        CHECK_INT(together[i].last.finish, JOB_LENGTH);
        CHECK_INT(together[i].last.usage.n_new, N_NEW);
        CHECK_INT(together[i].n_tokens, N_NEW);
    }
    CHECK(alone[2].logprob_sum < 0 && alone[2].logprob_sum == together[2].logprob_sum);
    drop(alone, N_JOBS);
    drop(together, N_JOBS);
    struct engine_stats stats = wait_ended(s, 2 * N_JOBS);
    CHECK_INT(stats.n_finished[JOB_LENGTH], 2 * N_JOBS);
    CHECK_INT(stats.n_new_tokens, 2 * N_JOBS * N_NEW);
    CHECK_INT(stats.blocks_used, 0);
    CHECK_INT(stats.first_token.n, 2 * N_JOBS);
    service_close(s);
}

static void stop_strings_end_it(void) {
    struct reply whole, cut;
    struct service *s = open_service(2, 2);
    submit(s, &whole, greedy(), prompts[0]);
    collect(s, &whole, 1);
    /* stop at the second word of what it says anyway */
    size_t from = str_find_char(sb_str(&whole.text), ' ', 2);
    struct str stops[] = {STR("never said"), str_sub(sb_str(&whole.text), from, 4)};
    struct job_spec r = greedy();
    r.stops = stops;
    r.n_stops = 2;
    submit(s, &cut, r, prompts[0]);
    collect(s, &cut, 1);
    CHECK_INT(cut.last.finish, JOB_STOP);
    CHECK_STR(sb_str(&cut.text), str_sub(sb_str(&whole.text), 0, from));
    drop(&whole, 1);
    drop(&cut, 1);
    service_close(s);
}

static void released_jobs_give_everything_back(void) {
    struct reply replies[8];
    struct service *s = open_service(2, 6);
    for (int round = 0; round < 5; round++) {
        struct job_spec r = greedy();
        r.max_new = -1;
        for (int i = 0; i < 8; i++) submit(s, &replies[i], r, prompts[i % N_JOBS]);
        if (round % 2) os_sleep_ms(round * 7);
        struct job *j;
        while ((j = service_next_ready(s))) take(job_user(j));
        drop(replies, 8);
        CHECK_INT(wait_ended(s, 8 * (round + 1)).blocks_used, 0);
    }
    submit(s, &replies[0], greedy(), prompts[0]);
    collect(s, replies, 1);
    CHECK_INT(replies[0].last.finish, JOB_LENGTH);
    drop(replies, 1);
    service_close(s);
}

static void a_full_queue_refuses(void) {
    struct reply replies[3];
    struct service *s = open_service(1, 1);
    struct job_spec r = greedy();
    struct job *job;
    struct err err;
    int32_t token = 1;
    r.max_new = -1;
    submit(s, &replies[0], r, prompts[0]);
    submit(s, &replies[1], r, prompts[1]);
    r.tokens = &token;
    r.n_tokens = 1;
    CHECK_INT(service_submit(s, &r, 1, &job, &err), ERR_EBUSY);
    drop(replies, 2);
    service_close(s); /* while they still run */
}

static void bad_requests_are_refused(void) {
    struct service *s = open_service(1, 1);
    static int32_t many[100000];
    struct job *job;
    struct err err;
    struct job_spec r = greedy();
    CHECK_INT(service_submit(s, &r, 1, &job, &err), ERR_EARG);
    r.tokens = many;
    r.n_tokens = 100000;
    CHECK_INT(service_submit(s, &r, 1, &job, &err), ERR_ELIMIT);
    r.n_tokens = 2;
    many[1] = service_info(s)->vocab;
    CHECK_INT(service_submit(s, &r, 1, &job, &err), ERR_EARG);
    many[1] = -1;
    CHECK_INT(service_submit(s, &r, 1, &job, &err), ERR_EARG);
    many[1] = 0;
    r.sampling.temperature = -1;
    CHECK_INT(service_submit(s, &r, 1, &job, &err), ERR_EARG);
    service_close(s);
}

static void deadlines_hold(void) {
    struct reply reply;
    struct service *s = open_service(1, 1);
    struct job_spec r = greedy();
    r.max_new = -1;
    r.deadline_ms = 1;
    submit(s, &reply, r, prompts[0]);
    collect(s, &reply, 1);
    CHECK_INT(reply.last.finish, JOB_DEADLINE);
    drop(&reply, 1);
    service_close(s);
}

static void keep_quiet(enum log_level level, const char *line, void *user) {
    (void)level, (void)line, (void)user;
}

static int lose_device(struct backend *be, const struct step *step, struct err *err) {
    (void)step;
    atomic_store(&be->device->lost, true);
    return err_set(err, ERR_EDEVICE, "the device fell off the bus");
}

/* Who asks after the device was lost is told so, and not that the model is on its way. */
static void a_lost_device_is_said(void) {
    struct reply reply;
    struct service *s = open_service(1, 1);
    struct job_spec r = greedy();
    struct job *job;
    struct err err = {0};
    struct backend_type losing = *s->session->backend->type;
    losing.end = lose_device;
    log_set_sink(keep_quiet, NULL); /* that a step failed is meant here */
    CHECK_INT(service_check(s, &err), ERR_OK);
    s->session->backend->type = &losing;
    submit(s, &reply, r, prompts[0]);
    collect(s, &reply, 1);
    CHECK_INT(reply.last.finish, JOB_ERROR);
    while (service_state(s, NULL) != SERVICE_FAILED) os_sleep_ms(1);
    CHECK_INT(service_check(s, &err), ERR_EDEVICE);
    CHECK(str_find(str_of(err.msg), STR("has failed"), 0) != STR_NONE);
    CHECK_INT(service_submit(s, &r, 1, &job, &err), ERR_EDEVICE);
    drop(&reply, 1);
    service_close(s);
    log_set_sink(NULL, NULL);
}

static void a_model_that_is_not_there(void) {
    struct service_options o = {.session = {.model = "/no/such/model"}, .notify = notify};
    struct service *s;
    struct err err = {0};
    CHECK_OK(service_open(&o, &s, &err), err);
    while (service_state(s, &err) == SERVICE_LOADING) os_sleep_ms(1);
    CHECK_INT(service_state(s, &err), SERVICE_FAILED);
    CHECK(err.code != 0 && err.msg[0]);
    service_close(s);
}

const struct unit_suite unit_service = {
    "service",
    (const struct unit_case[]){{"company_changes_nothing", company_changes_nothing},
                               {"stop_strings_end_it", stop_strings_end_it},
                               {"released_jobs_give_everything_back", released_jobs_give_everything_back},
                               {"a_full_queue_refuses", a_full_queue_refuses},
                               {"bad_requests_are_refused", bad_requests_are_refused},
                               {"deadlines_hold", deadlines_hold},
                               {"a_lost_device_is_said", a_lost_device_is_said},
                               {"a_model_that_is_not_there", a_model_that_is_not_there},
                               {0}},
};
