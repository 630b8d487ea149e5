/* The public interface, as a program sees it: only mlxcel.h. What the library computes is compared with a session, which knows nothing of it. */
#include "unit.h"

#include "api/session.h"
#include "mlxcel.h"
#include "os/os.h"

#include <math.h>
#include <stdatomic.h>

static mlxcel_model *open_model(int32_t parallel, int32_t queue) {
    mlxcel_model_options o;
    mlxcel_model *m;
    mlxcel_error error;
    mlxcel_model_options_init(&o, sizeof o);
    o.device = "cpu";
    o.threads = 1;
    o.parallel = parallel;
    o.queue = queue;
    FAIL_IF(mlxcel_model_open(&o, &m, &error), "%s", error.message);
    return m;
}

static const mlxcel_parameter greedy[] = {{"temperature", 0}};

static mlxcel_job_options text_job(const char *text, int32_t max_tokens) {
    mlxcel_job_options o;
    mlxcel_job_options_init(&o, sizeof o);
    o.text = text;
    o.max_tokens = max_tokens;
    o.parameters = greedy;
    o.n_parameters = 1;
    return o;
}

static mlxcel_job *submit(mlxcel_model *m, const mlxcel_job_options *o) {
    mlxcel_job *j;
    mlxcel_error error;
    FAIL_IF(mlxcel_submit(m, o, &j, &error), "%s", error.message);
    return j;
}

/* Everything until the end, which is in *last. */
static void read_all(mlxcel_job *j, struct sb *text, mlxcel_event *last) {
    mlxcel_error error;
    mlxcel_event_init(last, sizeof *last);
    while (last->kind != MLXCEL_EVENT_END) {
        FAIL_IF(mlxcel_next(j, -1, last, &error), "%s", error.message);
        if (last->kind == MLXCEL_EVENT_TEXT) sb_put(text, str_n(last->text, last->text_bytes));
    }
}

static int refuse(mlxcel_model *m, const mlxcel_job_options *o, const char *part) {
    mlxcel_job *j = (mlxcel_job *)1;
    mlxcel_error error;
    int code = mlxcel_submit(m, o, &j, &error);
    FAIL_IF(code == 0 || j, "accepted: %s", part);
    FAIL_IF(error.code != code || !strstr(error.message, part), "%d \"%s\" has no \"%s\"", code, error.message, part);
    return code;
}

/* ---- options and errors ------------------------------------------------------------------------------------------------- */

static void structs_grow(void) {
    struct {
        mlxcel_model_options o;
        char more[64];
    } newer;
    mlxcel_model *m;
    mlxcel_error error;
    memset(&newer, 0xA5, sizeof newer);
    mlxcel_model_options_init(&newer.o, sizeof newer);
    CHECK_INT(newer.o.struct_size, sizeof newer);
    CHECK_INT(newer.o.queue, -1);
    CHECK_INT(newer.more[0], 0);
    newer.o.threads = 1;
    newer.more[63] = 1;
    CHECK_INT(mlxcel_model_open(&newer.o, &m, &error), MLXCEL_E_UNSUPPORTED);
    CHECK(!m && strstr(error.message, "newer library"));
    newer.more[63] = 0;
    FAIL_IF(mlxcel_model_open(&newer.o, &m, &error), "%s", error.message);

    /* a program that knows the beginning of the struct alone */
    mlxcel_model_info info;
    memset(&info, 0xA5, sizeof info);
    info.struct_size = offsetof(mlxcel_model_info, path);
    CHECK_INT(mlxcel_model_info_get(m, &info, &error), 0);
    CHECK(info.description && info.path != NULL && ((unsigned char *)&info.path)[0] == 0xA5);
    info.struct_size = 0;
    CHECK_INT(mlxcel_model_info_get(m, &info, &error), MLXCEL_E_ARG);
    mlxcel_model_close(m);
}

static void errors_have_words(void) {
    mlxcel_model_options o = {0};
    mlxcel_model *m;
    mlxcel_error error;
    CHECK_INT(mlxcel_model_open(&o, &m, &error), MLXCEL_E_ARG);
    CHECK(strstr(error.message, "mlxcel_model_options_init"));
    CHECK_INT(mlxcel_model_open(&o, &m, NULL), MLXCEL_E_ARG);
    mlxcel_model_options_init(&o, sizeof o);
    o.model = "/no/such/folder";
    CHECK(mlxcel_model_open(&o, &m, &error) != 0 && !m);
    CHECK(strstr(error.message, "/no/such/folder"));
    mlxcel_store store;
    mlxcel_store_init(&store, sizeof store);
    store.offline = 1;
    store.models_dir = store.hf_home = unit_scratch_dir();
    o.model = "some-owner/some-model";
    o.store = &store;
    CHECK_INT(mlxcel_model_open(&o, &m, &error), MLXCEL_E_NOTFOUND);
    CHECK_INT(mlxcel_download("some-owner/some-model", NULL, &store, NULL, NULL, NULL, &error), MLXCEL_E_ARG);
    o.model = NULL;
    o.device = "tpu";
    CHECK_INT(mlxcel_model_open(&o, &m, &error), MLXCEL_E_ARG);
    CHECK(strstr(error.message, "tpu"));
    o.device = NULL;
    o.kv_bits = 3;
    CHECK_INT(mlxcel_model_open(&o, &m, &error), MLXCEL_E_ARG);
    for (int32_t code = 0; code <= MLXCEL_E_INTERNAL; code++) CHECK(*mlxcel_code_text(code));
    CHECK_STR(str_of(mlxcel_code_text(99)), STR("unknown code"));
    mlxcel_model_close(NULL);
    mlxcel_job_free(NULL);
    mlxcel_free(NULL);
}

static void wrong_jobs(void) {
    mlxcel_model *m = open_model(1, 0);
    mlxcel_job_options o = text_job(NULL, 5);
    CHECK_INT(refuse(m, &o, "one prompt"), MLXCEL_E_ARG);
    o.text = "a";
    o.tokens = &(int32_t){1};
    o.n_tokens = 1;
    CHECK_INT(refuse(m, &o, "one prompt"), MLXCEL_E_ARG);
    o.text = NULL;
    o.tokens = &(int32_t){1 << 30};
    CHECK_INT(refuse(m, &o, "outside the vocabulary"), MLXCEL_E_ARG);
    o = text_job("Once", 5);
    o.parameters = (mlxcel_parameter[]){{"heat", 1}};
    CHECK_INT(refuse(m, &o, "\"heat\""), MLXCEL_E_ARG);
    o.parameters = (mlxcel_parameter[]){{"top_p", 7}};
    CHECK_INT(refuse(m, &o, "top_p is 7"), MLXCEL_E_ARG);
    o = text_job("Once", 5);
    o.json_schema = "{}";
    o.regex = "a+";
    CHECK_INT(refuse(m, &o, "json_schema and regex"), MLXCEL_E_ARG);
    o.json_schema = NULL;
    o.regex = "(";
    refuse(m, &o, "regex");
    o = text_job("Once", 5);
    o.stops = (const char *const[]){""};
    o.n_stops = 1;
    CHECK_INT(refuse(m, &o, "stop string 0"), MLXCEL_E_ARG);
    o = text_job("Once", -2);
    CHECK_INT(refuse(m, &o, "max_tokens"), MLXCEL_E_ARG);
    mlxcel_chat chat;
    mlxcel_chat_init(&chat, sizeof chat);
    o = text_job(NULL, 5);
    o.chat = &chat;
    CHECK_INT(refuse(m, &o, "messages"), MLXCEL_E_ARG);
    chat.messages_json = "[{\"role\": \"user\", \"content\": [1]}]";
    CHECK_INT(refuse(m, &o, "messages_json[0].content"), MLXCEL_E_ARG);
    chat.messages_json = "[";
    refuse(m, &o, "messages_json");
    chat.messages_json = "[{\"role\": \"user\", \"content\": \"Hi\"}]";
    chat.template_json = "{\"tools\": []}";
    CHECK_INT(refuse(m, &o, "template_json must not have tools"), MLXCEL_E_ARG);
    chat.template_json = NULL;
    o.tool_choice = MLXCEL_TOOLS_REQUIRED;
    CHECK_INT(refuse(m, &o, "there are no tools"), MLXCEL_E_ARG);
    mlxcel_model_close(m);
}

static void queue_is_full(void) {
    mlxcel_model *m = open_model(1, 1);
    mlxcel_job_options o = text_job("Once upon a time", -1);
    o.ignore_end = 1;
    mlxcel_job *first = submit(m, &o), *second = submit(m, &o);
    CHECK_INT(refuse(m, &o, "queue"), MLXCEL_E_BUSY);
    mlxcel_job_free(first);
    mlxcel_job_free(second);
    mlxcel_model_close(m);
}

/* ---- text --------------------------------------------------------------------------------------------------------------- */

static void text_and_tokens(void) {
    static const char text[] = "Lily saw a cat.";
    mlxcel_model *m = open_model(1, 0);
    mlxcel_model_info info = {.struct_size = sizeof info};
    mlxcel_error error;
    int32_t *tokens, *more;
    size_t n, n_more, n_bytes;
    char *back, *rendered;
    CHECK_INT(mlxcel_model_info_get(m, &info, &error), 0);
    CHECK(info.vocab > 100 && info.context > 100 && info.parallel == 1 && info.width > 0 && !info.on_gpu && *info.name && *info.type);
    CHECK_INT(mlxcel_tokenize(m, text, strlen(text), 0, &tokens, &n, &error), 0);
    CHECK_INT(mlxcel_detokenize(m, tokens, n, &back, &n_bytes, &error), 0);
    CHECK_STR(str_n(back, n_bytes), str_of(text));
    CHECK_INT(back[n_bytes], 0);
    mlxcel_free(back);
    CHECK_INT(mlxcel_detokenize(m, &(int32_t){-1}, 1, &back, NULL, &error), MLXCEL_E_ARG);
    CHECK_INT(mlxcel_tokenize(m, text, strlen(text), 64, &more, &n_more, &error), MLXCEL_E_ARG);
    mlxcel_free(tokens);

    const mlxcel_message messages[] = {{"user", "Tell me a story"}};
    mlxcel_chat chat;
    mlxcel_chat_init(&chat, sizeof chat);
    chat.messages = messages;
    chat.n_messages = 1;
    FAIL_IF(mlxcel_chat_render(m, &chat, &rendered, &tokens, &n, &error), "%s", error.message);
    CHECK(strstr(rendered, "Tell me a story") && n > 3);
    CHECK_INT(mlxcel_tokenize(m, rendered, strlen(rendered), MLXCEL_PARSE_SPECIAL, &more, &n_more, &error), 0);
    CHECK(n == n_more && memcmp(tokens, more, n * sizeof *tokens) == 0);
    chat.messages = NULL;
    chat.messages_json = "[{\"role\": \"user\", \"content\": \"Tell me a story\"}]";
    char *again;
    CHECK_INT(mlxcel_chat_render(m, &chat, &again, NULL, NULL, &error), 0);
    CHECK_STR(str_of(again), str_of(rendered));
    mlxcel_free(again);
    mlxcel_free(rendered);
    mlxcel_free(tokens);
    mlxcel_free(more);
    CHECK_INT(mlxcel_token_id(m, "no such token, surely"), -1);
    mlxcel_model_close(m);
}

/* ---- jobs --------------------------------------------------------------------------------------------------------------- */

static bool keep_text(void *user, const struct job_events *ev) {
    for (size_t i = 0; i < ev->pieces->n; i++) sb_put(user, output_piece_text(ev->pieces, &ev->pieces->p[i]));
    return true;
}

/* The same by a session. */
static void session_text(const char *prompt, int32_t max_new, struct sb *out) {
    struct session_options o = {.device = "cpu", .n_threads = 1};
    struct session *s;
    struct session_ids ids;
    struct session_result result;
    struct err err;
    CHECK_OK(session_open(&o, &s, &err), err);
    CHECK_OK(session_encode(s, &(struct session_prompt){.text = str_of(prompt), .raw = true}, &ids, &err), err);
    struct job_spec spec = {.tokens = ids.p, .n_tokens = (int32_t)ids.n, .max_new = max_new, .wants_text = true, .continues = true};
    spec.sampling = sampler_defaults();
    struct session_watch watch = {.on_events = keep_text, .user = out};
    CHECK_OK(session_run(s, &spec, &watch, &result, &err), err);
    session_close(s);
}

static void answers_are_the_sessions(void) {
    struct sb want = {0}, got = {0};
    mlxcel_model *m = open_model(2, -1);
    mlxcel_job_options o = text_job("Once upon a time", 40);
    mlxcel_event e;
    mlxcel_error error;
    session_text("Once upon a time", 40, &want);
    o.wants_tokens = 1;
    o.logprobs = 2;
    mlxcel_job *j = submit(m, &o);
    size_t n_tokens = 0;
    mlxcel_event_init(&e, sizeof e);
    while (e.kind != MLXCEL_EVENT_END) {
        FAIL_IF(mlxcel_next(j, -1, &e, &error), "%s", error.message);
        if (e.kind == MLXCEL_EVENT_TEXT) sb_puts(&got, e.text);
        if (e.kind != MLXCEL_EVENT_TOKENS) continue;
        n_tokens += e.n_tokens;
        for (size_t i = 0; i < e.n_tokens; i++) { /* greedy: the token is the likeliest */
            CHECK_INT(e.n_tops[i], 2);
            CHECK_INT(e.top_tokens[2 * i], e.tokens[i]);
            CHECK(e.top_logprobs[2 * i] == e.logprobs[i] && e.top_logprobs[2 * i + 1] <= e.logprobs[i]);
        }
    }
    CHECK_STR(sb_str(&got), sb_str(&want));
    CHECK(want.n > 40);
    CHECK_INT(e.finish, MLXCEL_FINISH_LENGTH);
    CHECK_INT(e.n_new, 40);
    CHECK_INT(n_tokens, 40);
    CHECK(e.n_prompt > 0 && e.n_read == e.n_prompt && e.stopped_by == -1);
    CHECK_INT(mlxcel_next(j, 0, &e, &error), 0);
    CHECK_INT(e.kind, MLXCEL_EVENT_END);
    mlxcel_job_free(j);
    o = text_job("Once upon a time", 40);
    char *whole;
    size_t n_bytes;
    FAIL_IF(mlxcel_complete(m, &o, &whole, &n_bytes, &error), "%s", error.message);
    CHECK_STR(str_n(whole, n_bytes), sb_str(&want));
    mlxcel_free(whole);
    mlxcel_model_close(m);
    sb_free(&want);
    sb_free(&got);
}

static void how_jobs_end(void) {
    struct sb text = {0};
    mlxcel_model *m = open_model(2, -1);
    mlxcel_job_options o = text_job("Once upon a time", 60);
    mlxcel_event e;
    mlxcel_error error;
    o.stops = (const char *const[]){"no such words", "."};
    o.n_stops = 2;
    mlxcel_job *j = submit(m, &o);
    read_all(j, &text, &e);
    CHECK_INT(e.finish, MLXCEL_FINISH_STOP);
    CHECK_INT(e.stopped_by, 1);
    CHECK(text.n && !strchr(text.p, '.'));
    mlxcel_job_free(j);

    o = text_job("Once upon a time", -1);
    o.ignore_end = 1;
    o.deadline_ms = 20;
    j = submit(m, &o);
    read_all(j, &text, &e);
    CHECK_INT(e.finish, MLXCEL_FINISH_DEADLINE);
    mlxcel_job_free(j);

    o.deadline_ms = 0;
    j = submit(m, &o);
    CHECK_INT(mlxcel_next(j, 60000, &e, &error), 0);
    CHECK_INT(e.kind, MLXCEL_EVENT_TEXT);
    mlxcel_cancel(j);
    mlxcel_cancel(j);
    read_all(j, &text, &e);
    CHECK_INT(e.finish, MLXCEL_FINISH_CANCELLED);
    mlxcel_cancel(j);
    mlxcel_job_free(j);

    char *out;
    o = text_job("Once upon a time", -1);
    o.ignore_end = 1;
    o.deadline_ms = 20;
    CHECK_INT(mlxcel_complete(m, &o, &out, NULL, &error), MLXCEL_E_CANCELLED);
    CHECK(!out && strstr(error.message, "deadline"));
    o = text_job("Once upon a time", 0); /* reads its prompt and is done */
    j = submit(m, &o);
    read_all(j, &text, &e);
    CHECK_INT(e.finish, MLXCEL_FINISH_LENGTH);
    CHECK_INT(e.n_new, 0);
    mlxcel_job_free(j);
    sb_free(&text);
    mlxcel_model_close(m);
}

/* While another job has the only place, nothing comes: the time limit passes. */
static void waiting_has_a_limit(void) {
    mlxcel_model *m = open_model(1, -1);
    mlxcel_job_options o = text_job("Once upon a time", -1);
    mlxcel_event e = {0};
    mlxcel_error error;
    o.ignore_end = 1;
    mlxcel_job *first = submit(m, &o), *second = submit(m, &o);
    CHECK_INT(mlxcel_next(first, -1, &e, &error), MLXCEL_E_ARG); /* not initialised */
    mlxcel_event_init(&e, sizeof e);
    CHECK_INT(mlxcel_next(second, 0, &e, &error), 0);
    CHECK_INT(e.kind, MLXCEL_EVENT_NONE);
    CHECK_INT(mlxcel_next(second, 5, &e, &error), 0);
    CHECK_INT(e.kind, MLXCEL_EVENT_NONE);
    mlxcel_job_free(first);
    CHECK_INT(mlxcel_next(second, -1, &e, &error), 0);
    CHECK_INT(e.kind, MLXCEL_EVENT_TEXT);
    mlxcel_job_free(second);
    mlxcel_model_close(m);
}

static void held_to_a_schema(void) {
    mlxcel_model *m = open_model(2, -1);
    mlxcel_job_options o = text_job("The answer: ", 60);
    mlxcel_error error;
    char *text;
    o.json_schema = "{\"enum\": [\"red\", \"blue\"]}";
    FAIL_IF(mlxcel_complete(m, &o, &text, NULL, &error), "%s", error.message);
    CHECK(strcmp(text, "\"red\"") == 0 || strcmp(text, "\"blue\"") == 0);
    mlxcel_free(text);
    o = text_job("The answer: ", 60);
    o.regex = "(yes|no)";
    FAIL_IF(mlxcel_complete(m, &o, &text, NULL, &error), "%s", error.message);
    CHECK(strcmp(text, "yes") == 0 || strcmp(text, "no") == 0);
    mlxcel_free(text);
    mlxcel_model_close(m);
}

/* ---- callbacks ---------------------------------------------------------------------------------------------------------- */

struct listener {
    struct sb text;
    mlxcel_model *model;
    struct listener *next; /* is submitted when this one ends */
    bool frees, cancels;
    int32_t waits_refused, finish;
    _Atomic uint32_t n_ends;
};

static void on_event(void *user, mlxcel_job *job, const mlxcel_event *e) {
    struct listener *l = user;
    if (e->kind == MLXCEL_EVENT_TEXT) sb_put(&l->text, str_n(e->text, e->text_bytes));
    if (e->kind == MLXCEL_EVENT_TEXT && l->cancels) mlxcel_cancel(job);
    if (e->kind != MLXCEL_EVENT_END) return;
    l->finish = e->finish;
    if (l->next) {
        mlxcel_job_options o = text_job("Once upon a time", 12);
        mlxcel_job *j;
        char *out;
        o.on_event = on_event;
        o.user = l->next;
        if (mlxcel_submit(l->model, &o, &j, NULL)) l->finish = -1;
        l->waits_refused = mlxcel_complete(l->model, &o, &out, NULL, NULL);
    }
    if (l->frees) mlxcel_job_free(job);
    atomic_fetch_add(&l->n_ends, 1);
    os_wake_all(&l->n_ends);
}

static void wait_end(struct listener *l) {
    while (atomic_load(&l->n_ends) == 0) os_wait_on(&l->n_ends, 0, 1000);
}

static void callbacks(void) {
    mlxcel_model *m = open_model(2, -1);
    struct listener second = {.model = m, .frees = true}, first = {.model = m, .next = &second}, third = {.model = m, .cancels = true};
    mlxcel_job_options o = text_job("Once upon a time", 12);
    mlxcel_event e;
    mlxcel_error error;
    o.on_event = on_event;
    o.user = &first;
    mlxcel_job *j = submit(m, &o);
    wait_end(&first);
    wait_end(&second);
    CHECK(first.text.n > 10);
    CHECK_STR(sb_str(&first.text), sb_str(&second.text));
    CHECK_INT(first.finish, MLXCEL_FINISH_LENGTH);
    CHECK_INT(first.waits_refused, MLXCEL_E_ARG);
    mlxcel_event_init(&e, sizeof e);
    CHECK_INT(mlxcel_next(j, 0, &e, &error), MLXCEL_E_ARG);
    mlxcel_job_free(j);
    o.user = &third;
    o.max_tokens = -1;
    o.ignore_end = 1;
    j = submit(m, &o);
    wait_end(&third);
    CHECK_INT(third.finish, MLXCEL_FINISH_CANCELLED);
    mlxcel_job_free(j);
    mlxcel_model_close(m);
    CHECK_INT(atomic_load(&first.n_ends) + atomic_load(&second.n_ends) + atomic_load(&third.n_ends), 3);
    sb_free(&first.text);
    sb_free(&second.text);
    sb_free(&third.text);
}

struct waiter {
    mlxcel_job *job;
    mlxcel_event last;
};

static void wait_for_end(void *user) {
    struct waiter *w = user;
    mlxcel_event_init(&w->last, sizeof w->last);
    while (w->last.kind != MLXCEL_EVENT_END && mlxcel_next(w->job, -1, &w->last, NULL) == 0) {}
}

static void closing_ends_jobs(void) {
    mlxcel_model *m = open_model(1, -1);
    struct listener l = {.model = m};
    struct os_thread *thread;
    struct err err;
    mlxcel_job_options o = text_job("Once upon a time", -1);
    o.ignore_end = 1;
    struct waiter w = {.job = submit(m, &o)};
    o.on_event = on_event;
    o.user = &l;
    mlxcel_job *called = submit(m, &o);
    CHECK_OK(os_thread_start(&thread, wait_for_end, &w, "waiter", &err), err);
    mlxcel_model_close(m);
    os_thread_join(thread);
    CHECK_INT(w.last.finish, MLXCEL_FINISH_CANCELLED);
    CHECK_INT(l.finish, MLXCEL_FINISH_CANCELLED);
    CHECK_INT(atomic_load(&l.n_ends), 1);
    mlxcel_job_free(called);
    mlxcel_cancel(w.job);
    mlxcel_job_free(w.job); /* the last one that knows the model */
    sb_free(&l.text);
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------ */

static void vectors(void) {
    static const char *const texts[] = {"A cat.", "", "The dog ran to the park and saw a big red ball."};
    mlxcel_model *m = open_model(2, -1);
    mlxcel_error error;
    float *all, *one;
    size_t width, w;
    FAIL_IF(mlxcel_embed(m, NULL, texts, 3, &all, &width, &error), "%s", error.message);
    for (size_t i = 0; i < 3; i++) {
        double square = 0;
        FAIL_IF(mlxcel_embed(m, NULL, &texts[i], 1, &one, &w, &error), "%s", error.message);
        CHECK(w == width && memcmp(one, all + i * width, width * sizeof *one) == 0);
        for (size_t k = 0; k < width; k++) square += (double)one[k] * (double)one[k];
        CHECK_NEAR(square, 1, 1e-5);
        mlxcel_free(one);
    }
    mlxcel_free(all);
    mlxcel_embed_options o;
    mlxcel_embed_options_init(&o, sizeof o);
    o.prompt_name = "query";
    CHECK_INT(mlxcel_embed(m, &o, texts, 1, &all, &width, &error), MLXCEL_E_ARG);
    o.prompt_name = NULL;
    o.pooling = 9;
    CHECK_INT(mlxcel_embed(m, &o, texts, 1, &all, &width, &error), MLXCEL_E_ARG);
    CHECK_INT(mlxcel_embed(m, NULL, (const char *const[]){NULL}, 1, &all, &width, &error), MLXCEL_E_ARG);
    mlxcel_model_close(m);
}

static double log_probability(const float *logits, int32_t vocab, int32_t token) {
    double best = -INFINITY, sum = 0;
    for (int32_t i = 0; i < vocab; i++) best = logits[i] > best ? logits[i] : best;
    for (int32_t i = 0; i < vocab; i++) sum += exp(logits[i] - best);
    return logits[token] - best - log(sum);
}

static void logits_and_scores(void) {
    static const char text[] = "Once upon a time there was a little girl. She had a red ball and a big dog.";
    mlxcel_model *m = open_model(2, -1);
    mlxcel_model_info info = {.struct_size = sizeof info};
    mlxcel_error error;
    int32_t *tokens;
    size_t n;
    double sum = 0, perplexity;
    CHECK_INT(mlxcel_model_info_get(m, &info, &error), 0);
    CHECK_INT(mlxcel_tokenize(m, text, strlen(text), MLXCEL_ADD_SPECIAL, &tokens, &n, &error), 0);
    size_t n_floats = n * (size_t)info.vocab;
    float *all = mem_alloc(n_floats * sizeof *all), *last = mem_alloc((size_t)info.vocab * sizeof *last),
          *scores = mem_alloc(n * sizeof *scores);
    FAIL_IF(mlxcel_logits(m, tokens, n, 0, all, n_floats, &error), "%s", error.message);
    FAIL_IF(mlxcel_logits(m, tokens, n, n - 1, last, (size_t)info.vocab, &error), "%s", error.message);
    CHECK(memcmp(last, all + (n - 1) * (size_t)info.vocab, (size_t)info.vocab * sizeof *last) == 0);
    FAIL_IF(mlxcel_score(m, tokens, n, scores, &error), "%s", error.message);
    for (size_t i = 0; i + 1 < n; i++) {
        CHECK_NEAR(scores[i], log_probability(all + i * (size_t)info.vocab, info.vocab, tokens[i + 1]), 1e-4);
        sum += (double)scores[i];
    }
    FAIL_IF(mlxcel_perplexity(m, tokens, n, 0, &perplexity, &error), "%s", error.message);
    CHECK_NEAR(perplexity, exp(-sum / (double)(n - 1)), 1e-4);
    FAIL_IF(mlxcel_perplexity(m, tokens, n, 8, &perplexity, &error), "%s", error.message);
    CHECK(perplexity > 1);
    CHECK_INT(mlxcel_perplexity(m, tokens, 1, 0, &perplexity, &error), MLXCEL_E_ARG);
    CHECK_INT(mlxcel_perplexity(m, tokens, n, 1, &perplexity, &error), MLXCEL_E_ARG);
    CHECK_INT(mlxcel_logits(m, tokens, n, 0, all, n_floats - 1, &error), MLXCEL_E_ARG);
    CHECK_INT(mlxcel_logits(m, tokens, n, n, all, n_floats, &error), MLXCEL_E_ARG);
    mem_free(all);
    mem_free(last);
    mem_free(scores);
    mlxcel_free(tokens);
    mlxcel_model_close(m);
}

/* A prompt that one model saved is known to the next; a file that is not what it should be is refused, and nothing changes. */
static void saved_prompts(void) {
    struct arena a = {0};
    const char *dir = unit_scratch_dir(), *path = str_fmt(&a, "%s/story.cache", dir).p, *cut = str_fmt(&a, "%s/cut.cache", dir).p;
    mlxcel_model *m = open_model(2, -1);
    mlxcel_job_options o = text_job(NULL, 8);
    struct sb first = {0}, again = {0};
    struct str file;
    int32_t tokens[210], *got;
    size_t n_saved, n_got;
    mlxcel_event last;
    mlxcel_error error;
    struct err err;
    for (int32_t i = 0; i < 210; i++) tokens[i] = 5 + i * 13 % 900;
    o.tokens = tokens;
    o.n_tokens = 210;
    mlxcel_job *j = submit(m, &o);
    read_all(j, &first, &last);
    mlxcel_job_free(j);
    FAIL_IF(mlxcel_prompt_save(m, tokens, 210, path, &n_saved, &error), "%s", error.message);
    CHECK_INT(n_saved, 210);
    mlxcel_model_close(m);
    m = open_model(2, -1);
    FAIL_IF(mlxcel_prompt_restore(m, path, &got, &n_got, &error), "%s", error.message);
    CHECK(n_got == 210 && memcmp(got, tokens, sizeof tokens) == 0);
    mlxcel_free(got);
    j = submit(m, &o);
    read_all(j, &again, &last);
    mlxcel_job_free(j);
    CHECK_INT(last.n_cached, 209);
    CHECK_STR(sb_str(&again), sb_str(&first));
    CHECK_OK(os_file_load(&a, path, 1 << 30, &file, &err), err);
    CHECK_OK(os_file_save(cut, str_n(file.p, file.n - 100), &err), err);
    CHECK_INT(mlxcel_prompt_restore(m, cut, NULL, NULL, &error), MLXCEL_E_FORMAT);
    CHECK(strstr(error.message, "cut.cache") && strstr(error.message, "not whole"));
    CHECK(mlxcel_prompt_restore(m, str_fmt(&a, "%s/absent", dir).p, NULL, NULL, &error) != 0 && strstr(error.message, "absent"));
    CHECK_INT(mlxcel_prompt_save(m, tokens, 0, path, NULL, &error), MLXCEL_E_ARG);
    CHECK_INT(mlxcel_prompt_save(m, tokens, 1, NULL, NULL, &error), MLXCEL_E_ARG);
    mlxcel_model_close(m);
    sb_free(&first);
    sb_free(&again);
    arena_free(&a);
}

static void server_inside(void) {
    static const mlxcel_setting wrong[] = {{"ctx-siz", "7"}}, good[] = {{"threads", "1"}, {"parallel", "2"}, {"ui", "false"}};
    mlxcel_server_options o;
    mlxcel_server *first, *second;
    mlxcel_error error;
    mlxcel_server_options_init(&o, sizeof o);
    o.settings = wrong;
    o.n_settings = 1;
    CHECK_INT(mlxcel_server_start(&o, &first, &error), MLXCEL_E_ARG);
    CHECK(strstr(error.message, "ctx-siz") != NULL && !first);
    o.settings = good;
    o.n_settings = 3;
    FAIL_IF(mlxcel_server_start(&o, &first, &error), "%s", error.message);
    FAIL_IF(mlxcel_server_start(&o, &second, &error), "%s", error.message);
    CHECK(mlxcel_server_port(first) > 0 && mlxcel_server_port(first) != mlxcel_server_port(second));
    mlxcel_server_stop(second);
    o.port = mlxcel_server_port(first);
    CHECK(mlxcel_server_start(&o, &second, &error) != 0 && !second);
    mlxcel_server_stop(first);
    mlxcel_server_stop(NULL);
    CHECK_INT(mlxcel_server_port(NULL), -1);
}

static void devices(void) {
    mlxcel_device d = {.struct_size = sizeof d};
    mlxcel_error error;
    CHECK_INT(mlxcel_device_get(0, &d, &error), 0);
    CHECK_STR(str_of(d.name), STR("cpu"));
    CHECK(d.is_usable && *d.description && d.memory_bytes > 0);
    CHECK_INT(mlxcel_device_get(99, &d, &error), MLXCEL_E_NOTFOUND);
    CHECK_INT(mlxcel_abi(), MLXCEL_ABI);
    CHECK(strchr(mlxcel_version(), '.'));
}

const struct unit_suite unit_library = {"library", (const struct unit_case[]){{"structs_grow", structs_grow},
                                                                              {"errors_have_words", errors_have_words},
                                                                              {"wrong_jobs", wrong_jobs},
                                                                              {"queue_is_full", queue_is_full},
                                                                              {"text_and_tokens", text_and_tokens},
                                                                              {"answers_are_the_sessions", answers_are_the_sessions},
                                                                              {"how_jobs_end", how_jobs_end},
                                                                              {"waiting_has_a_limit", waiting_has_a_limit},
                                                                              {"held_to_a_schema", held_to_a_schema},
                                                                              {"callbacks", callbacks},
                                                                              {"closing_ends_jobs", closing_ends_jobs},
                                                                              {"vectors", vectors},
                                                                              {"logits_and_scores", logits_and_scores},
                                                                              {"saved_prompts", saved_prompts},
                                                                              {"server_inside", server_inside},
                                                                              {"devices", devices},
                                                                              {0}}};
