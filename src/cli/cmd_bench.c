/* mlxcel bench: a grid of cases, one line each, with the bandwidth that they amount to. */
#include "tools/bench.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/bench_plot.h"
#include "cli/progress.h"
#include "cli/session_args.h"
#include "os/os.h"
#include "tools/paths.h"

#include <stdio.h>

enum { VERIFY_TOKENS = 32, MAX_BARS = 64 };

struct report {
    struct sb out;
    struct str model; /* the session's description */
    int format;       /* table, json, csv, md */
    double bandwidth; /* of this machine, bytes per second */
    int32_t n_rows;
    bool has_paths; /* the session is on a GPU: of one row, of several, of a prompt, the shares of bytes and of time on reference rows */
    double slow_bytes[PATHS_STEPS], slow_time[PATHS_STEPS];
    struct bench_bar bars[MAX_BARS]; /* the first rows, for --plot */
};

static void case_name(const struct bench_case *c, char out[48]) {
    int n = c->n_prompt ? snprintf(out, 48, "pp%d", c->n_prompt) : snprintf(out, 48, "tg%d", c->n_new);
    if (c->n_batch > 1) n += snprintf(out + n, 48 - (size_t)n, " b%d", c->n_batch);
    if (c->depth) snprintf(out + n, 48 - (size_t)n, " %sd%d", c->shares ? "shared " : "", c->depth);
}

static void put_table(struct report *r, const struct bench_result *b) {
    char name[48];
    case_name(&b->which, name);
    if (r->n_rows == 0) sb_fmt(&r->out, "%-20s %12s %10s %12s %10s %8s\n", "test", "tok/s", "+-", "MB/token", "GB/s", "of read");
    sb_fmt(&r->out, "%-20s %12.2f %10.2f", name, b->median_rate, b->spread);
    if (b->bandwidth > 0)
        sb_fmt(&r->out, " %12.2f %10.2f %7.1f%%", b->bytes_per_token * 1e-6, b->bandwidth * 1e-9, 100 * b->bandwidth / r->bandwidth);
    if (b->n_drafted) sb_fmt(&r->out, "  %lld of %lld drafted tokens accepted", (long long)b->n_accepted, (long long)b->n_drafted);
    sb_putc(&r->out, '\n');
}

static void put_csv(struct report *r, const struct bench_result *b) {
    if (r->n_rows == 0) sb_puts(&r->out, "n_prompt,n_gen,batch,depth,repetitions,tok_s,spread,bytes_per_token,bytes_s,read_bytes_s\n");
    sb_fmt(&r->out, "%d,%d,%d,%d,%d,%.3f,%.3f,%.0f,%.0f,%.0f\n", b->which.n_prompt, b->which.n_new, b->which.n_batch, b->which.depth,
           b->n_repeats, b->median_rate, b->spread, b->bytes_per_token, b->bandwidth, r->bandwidth);
}

static void put_markdown(struct report *r, const struct bench_result *b) {
    char name[48];
    case_name(&b->which, name);
    if (r->n_rows == 0) sb_fmt(&r->out, "%.*s\n\n| test | tok/s | ± | GB/s |\n|---|---|---|---|\n", STR_ARG(r->model));
    sb_fmt(&r->out, "| %s | %.2f | %.2f | ", name, b->median_rate, b->spread);
    if (b->bandwidth > 0) sb_fmt(&r->out, "%.2f ", b->bandwidth * 1e-9);
    sb_puts(&r->out, "|\n");
}

static void put_json(struct report *r, const struct bench_result *b) {
    struct jsonw w = {.out = &r->out};
    const struct {
        const char *key;
        double value;
    } fields[] = {
        {"n_prompt", b->which.n_prompt},
        {"n_gen", b->which.n_new},
        {"batch", b->which.n_batch},
        {"depth", b->which.depth},
        {"repetitions", b->n_repeats},
        {"tok_s", b->median_rate},
        {"spread", b->spread},
        {"bytes_per_token", b->bytes_per_token},
        {"bytes_s", b->bandwidth},
        {"read_bytes_s", r->bandwidth},
        {"steps", (double)b->n_steps},
        {"draft_tokens", (double)b->n_drafted},
        {"draft_tokens_accepted", (double)b->n_accepted},
    };
    sb_puts(&r->out, r->n_rows ? ",\n" : "[\n");
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "model", r->model);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        jsonw_put_num(&w, fields[i].key, fields[i].value);
    }
    if (r->has_paths) {
        int i = b->which.n_prompt ? 2 : b->which.n_batch > 1;
        jsonw_put_num(&w, "reference_bytes_share", r->slow_bytes[i]);
        jsonw_put_num(&w, "reference_time_share", r->slow_time[i]);
    }
    jsonw_open(&w, "seconds", '[');
    for (int32_t i = 0; i < b->n_repeats; i++) jsonw_num(&w, b->seconds[i]);
    jsonw_end(&w, ']');
    jsonw_open(&w, "cpu_seconds", '[');
    for (int32_t i = 0; i < b->n_repeats; i++) jsonw_num(&w, b->cpu_seconds[i]);
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
}

/* A large model takes minutes for a line. */
static void show_run(void *user, int32_t i_run, int32_t n_runs) {
    progress_show(user, (uint64_t)i_run, (uint64_t)n_runs);
}

static int run_case(struct session *s, struct report *r, struct bench_case c, const struct bench_text *text, int32_t repeats,
                    struct err *err) {
    static void (*const put[])(struct report *, const struct bench_result *) = {put_table, put_json, put_csv, put_markdown};
    struct bench_result result;
    char name[48], unit[64];
    case_name(&c, name);
    snprintf(unit, sizeof unit, "runs of %s", name);
    struct progress bar = {.unit = unit};
    struct bench_plan plan = {.which = c, .text = text, .n_repeats = repeats, .on_run = show_run, .user = &bar};
    int code = bench_run(s, &plan, &result, err);
    progress_end(&bar);
    TRY(code);
    put[r->format](r, &result);
    if (r->n_rows < MAX_BARS) {
        struct bench_bar *bar_of = &r->bars[r->n_rows];
        *bar_of = (struct bench_bar){.is_prompt = c.n_prompt > 0, .rate = result.median_rate, .spread = result.spread};
        memcpy(bar_of->name, name, sizeof name);
    }
    r->n_rows++;
    if (r->format == 1) return ERR_OK; /* one JSON array, written at the end */
    code = cli_write(&r->out, err);
    sb_clear(&r->out);
    return code;
}

/* A length that nobody asked for gives way to a small context; one that was asked for is measured or refused. */
static int32_t fitting(const struct args *args, enum opt_id id, int64_t n, int64_t room) {
    return (int32_t)(args_given(args, id) || n <= room || room < 1 ? n : room);
}

static int run_grid(const struct args *args, struct session *s, struct report *r, struct err *err) {
    const int64_t *prompts, *news, *batches, *depths;
    size_t n_prompts = args_ints(args, OPT_BENCH_PROMPT, &prompts), n_news = args_ints(args, OPT_BENCH_GEN, &news);
    size_t n_batches = args_ints(args, OPT_BENCH_BATCH, &batches), n_depths = args_ints(args, OPT_BENCH_DEPTH, &depths);
    int32_t repeats = (int32_t)args_int(args, OPT_BENCH_REPEAT);
    for (size_t d = 0; d < n_depths; d++)
        for (size_t b = 0; b < n_batches; b++) {
            struct bench_case c = {
                .n_batch = (int32_t)batches[b], .depth = (int32_t)depths[d], .shares = args_flag(args, OPT_BENCH_SHARED)};
            int64_t room = session_context(s) - depths[d] - 1; /* the token that ends a prompt, or begins an answer, has its place too */
            for (size_t i = 0; i < n_prompts; i++) {
                c.n_prompt = fitting(args, OPT_BENCH_PROMPT, prompts[i], room);
                c.n_new = 0;
                if (c.n_prompt) TRY(run_case(s, r, c, NULL, repeats, err));
            }
            for (size_t i = 0; i < n_news; i++) {
                c.n_prompt = 0;
                c.n_new = fitting(args, OPT_BENCH_GEN, news[i], room - 1);
                if (c.n_new) TRY(run_case(s, r, c, NULL, repeats, err));
            }
        }
    return ERR_OK;
}

/* Texts: the time of each answer behind its prompt, alone and in batches. */
static int run_texts(const struct args *args, struct session *s, struct report *r, struct err *err) {
    const struct str *paths;
    const int64_t *batches;
    size_t n = args_strings(args, OPT_BENCH_REPLAY, &paths), n_batches = args_ints(args, OPT_BENCH_BATCH, &batches);
    for (size_t i = 0; i < n; i++)
        for (size_t b = 0; b < n_batches; b++) {
            struct bench_text text;
            TRY(bench_read_text(s, args->arena, str_cstr(args->arena, paths[i]), &text, err));
            struct bench_case c = {.n_batch = (int32_t)batches[b], .depth = text.n_prompt - 1, .n_new = text.n_answer - 1};
            TRY(run_case(s, r, c, &text, (int32_t)args_int(args, OPT_BENCH_REPEAT), err));
        }
    return ERR_OK;
}

static int64_t largest(const struct args *args, enum opt_id id) {
    const int64_t *values;
    int64_t most = 0;
    size_t n = args_ints(args, id, &values);
    for (size_t i = 0; i < n; i++)
        if (values[i] > most) most = values[i];
    return most;
}

static int verify(const struct session_options *o, struct err *err) {
    struct bench_agreement prompt, steps;
    TRY(bench_verify(o, VERIFY_TOKENS, &prompt, &steps, err));
    log_info("agreement with the exact CPU reference: %d of %d tokens as a prompt, mean KL %.3g; %d one by one, mean KL %.3g",
             prompt.n_same, prompt.n_tokens, prompt.mean_kl, steps.n_same, steps.mean_kl);
    return ERR_OK;
}

/* --image: the tower alone. */
static int measure_tower(const struct args *args, const struct session_options *o, struct err *err) {
    struct str size = args_str(args, OPT_BENCH_IMAGE), width;
    struct bench_tower_plan plan = {.n_repeats = (int32_t)args_int(args, OPT_BENCH_REPEAT)};
    struct bench_tower_result r;
    int64_t w, h;
    bool is_size = str_split_next(&size, 'x', &width) && str_to_int64(width, &w) && str_to_int64(size, &h);
    if (!is_size || w < 1 || h < 1 || w > 16384 || h > 16384 || w * h > 1 << 25)
        return err_set(err, ERR_EARG, "--image must be a size such as 1024x1024, 32 million pixels at most");
    plan.width = (int32_t)w, plan.height = (int32_t)h;
    TRY(bench_tower(o, &plan, &r, err));
    struct sb out = {0};
    double median = r.seconds[r.n_repeats / 2];
    if (args_choice(args, OPT_FORMAT) == 1)
        sb_fmt(
            &out,
            "[{\"width\": %d, \"height\": %d, \"tokens\": %d, \"repetitions\": %d, \"seconds\": %.4f, \"best\": %.4f, \"processor_seconds\": %.4f, "
            "\"flops\": %.0f, \"weight_bytes\": %.0f}]\n",
            plan.width, plan.height, r.n_tokens, r.n_repeats, median, r.seconds[0], r.processor[r.n_repeats / 2], r.flops, r.bytes);
    else
        sb_fmt(&out, "%-20s %12s %12s %12s %12s %12s %12s\npicture %dx%d %13.3f %12.3f %12d %12.3f %12.3f %12.3f\n", "test", "median s",
               "best s", "tokens", "Tflop", "Tflop/s", "GB weights", plan.width, plan.height, median, r.seconds[0], r.n_tokens,
               r.flops * 1e-12, r.flops * 1e-12 / median, r.bytes * 1e-9);
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}

static int save_plot(const char *path, const struct report *r, struct err *err) {
    struct sb out = {0};
    if (r->n_rows > MAX_BARS) log_warn("--plot: the first %d of %d results are in the picture", MAX_BARS, (int)r->n_rows);
    bench_plot(r->model, r->bars, r->n_rows < MAX_BARS ? (size_t)r->n_rows : MAX_BARS, &out);
    int code = os_file_save(path, sb_str(&out), err);
    sb_free(&out);
    return code;
}

/* Which kernels the model takes on a GPU (docs/slow-paths.md). What cannot be told is no failure of a measurement. */
static void note_paths(const struct session_options *o, struct session *s, struct report *r) {
    struct paths_report paths;
    struct bench_times times;
    struct err err;
    if (paths_of_session(s, o, &paths, &err) || bench_slow_times(s, &times, &err)) return;
    r->has_paths = true;
    for (int i = 0; i < PATHS_STEPS; i++) {
        struct sb line = {0};
        r->slow_bytes[i] = paths_slow_share(&paths.steps[i].paths);
        r->slow_time[i] = paths.steps[i].is_prompt ? times.prompt : times.decode;
        paths_describe(&paths.steps[i], &line);
        log_info("%s", line.p);
        sb_free(&line);
    }
    log_info("reference rows take %.2f %% of a prompt's time and %.2f %% of a generated token's, each kernel timed by itself",
             100 * times.prompt, 100 * times.decode);
}

int cmd_bench(const struct args *args, struct err *err) {
    struct session_options o;
    struct session *s;
    int64_t prompt = largest(args, OPT_BENCH_PROMPT), gen = largest(args, OPT_BENCH_GEN), most = prompt > gen ? prompt : gen;
    if (most == 0 && !args_flag(args, OPT_BENCH_VERIFY)) return err_set(err, ERR_EARG, "-p 0 and -n 0: there is nothing to measure");
    TRY(session_args(args, &o, err));
    if (args_given(args, OPT_BENCH_IMAGE) && args_given(args, OPT_BENCH_PLOT))
        return err_set(err, ERR_EARG, "--plot shows tokens a second, which --image does not measure");
    if (args_given(args, OPT_BENCH_IMAGE)) return measure_tower(args, &o, err);
    o.n_seqs = (int32_t)largest(args, OPT_BENCH_BATCH);
    o.prefix_cache = largest(args, OPT_BENCH_DEPTH) > 0;
    bool replays = args_given(args, OPT_BENCH_REPLAY);
    if (o.context == 0 && !replays) o.context = (int32_t)(largest(args, OPT_BENCH_DEPTH) + most + 8);
    if (o.world.size > 1 && args_flag(args, OPT_BENCH_VERIFY))
        return err_set(err, ERR_EARG, "--verify opens the model twice, which several processes do not do together; leave it out");
    TRY(session_open(&o, &s, err));
    struct report r = {.format = args_choice(args, OPT_FORMAT)};
    struct sb line = {0};
    session_describe(s, &line);
    r.model = sb_str(&line);
    log_info("%s", line.p);
    r.bandwidth = bench_read_bandwidth(o.n_threads);
    log_info("memory reads at %.1f GB/s", r.bandwidth * 1e-9);
    note_paths(&o, s, &r);
    int code = replays ? run_texts(args, s, &r, err) : run_grid(args, s, &r, err);
    if (!code && r.format == 1) {
        sb_puts(&r.out, r.n_rows ? "\n]\n" : "[]\n");
        code = cli_write(&r.out, err);
    }
    if (!code && args_given(args, OPT_BENCH_PLOT)) code = save_plot(args_cstr(args, OPT_BENCH_PLOT), &r, err);
    session_close(s);
    if (!code && args_flag(args, OPT_BENCH_VERIFY)) code = verify(&o, err);
    sb_free(&r.out);
    sb_free(&line);
    return code;
}
