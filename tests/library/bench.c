/* What `mlxcel bench -p 0 -n N -b BATCH -r REPEATS` does, through the library: bench MODEL N BATCH REPEATS THREADS
 * Prints a line for each run behind the first one: its seconds by the clock, then the processor time of all threads. From the first job's submission to the last token of all, less the share of the one step
 * that reads the prompts. (The first token's event may be read late, when others have followed: time from there would be too short.) */
#define _POSIX_C_SOURCE 200809L
#include <mlxcel.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH_MAX = 64 };

static void fail(const mlxcel_error *error) {
    fprintf(stderr, "bench: %s\n", error->message);
    exit(1);
}

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Reads a job until it has so many tokens. One that ends before is a mistake: its time would say nothing. */
static void read_until(mlxcel_job *job, int n_new) {
    mlxcel_event event;
    mlxcel_error error;
    mlxcel_event_init(&event, sizeof event);
    while (event.kind != MLXCEL_EVENT_END && event.n_new < n_new)
        if (mlxcel_next(job, -1, &event, &error)) fail(&error);
    if (event.n_new >= n_new) return;
    fprintf(stderr, "bench: a job ended with %d of %d tokens: %s\n", (int)event.n_new, n_new, event.text);
    exit(1);
}

static void run(mlxcel_model *model, int vocab, int n_new, int n_jobs, double out[2]) {
    static const mlxcel_parameter greedy[] = {{"temperature", 0}};
    mlxcel_job *jobs[BATCH_MAX];
    mlxcel_job_options options;
    mlxcel_error error;
    mlxcel_job_options_init(&options, sizeof options);
    options.max_tokens = n_new + 1;
    options.ignore_end = options.wants_tokens = 1;
    options.parameters = greedy;
    options.n_parameters = options.n_tokens = 1;
    double start = now(CLOCK_MONOTONIC), cpu_start = now(CLOCK_PROCESS_CPUTIME_ID), share = (double)n_new / (n_new + 1);
    for (int i = 0; i < n_jobs; i++) {
        int32_t token = (int32_t)((unsigned)(i + 1) * 2654435761u % (unsigned)vocab);
        options.tokens = &token;
        if (mlxcel_submit(model, &options, &jobs[i], &error)) fail(&error);
    }
    for (int i = 0; i < n_jobs; i++) read_until(jobs[i], n_new + 1);
    out[0] = (now(CLOCK_MONOTONIC) - start) * share;
    out[1] = (now(CLOCK_PROCESS_CPUTIME_ID) - cpu_start) * share;
    for (int i = 0; i < n_jobs; i++) mlxcel_job_free(jobs[i]);
}

int main(int argc, char **argv) {
    mlxcel_model_info info = {.struct_size = sizeof info};
    mlxcel_model_options options;
    mlxcel_model *model;
    mlxcel_error error;
    if (argc != 6) return fprintf(stderr, "usage: bench MODEL N BATCH REPEATS THREADS\n"), 2;
    int n_new = atoi(argv[2]), n_jobs = atoi(argv[3]), repeats = atoi(argv[4]);
    if (n_jobs < 1 || n_jobs > BATCH_MAX) return fprintf(stderr, "bench: a batch of 1 to %d\n", BATCH_MAX), 2;
    mlxcel_model_options_init(&options, sizeof options);
    options.model = argv[1];
    options.device = "cpu";
    options.threads = atoi(argv[5]);
    options.context = n_new + 8;
    options.parallel = n_jobs;
    if (mlxcel_model_open(&options, &model, &error)) fail(&error);
    if (mlxcel_model_info_get(model, &info, &error)) fail(&error);
    for (int i = 0; i <= repeats; i++) {
        double seconds[2];
        run(model, info.vocab, n_new, n_jobs, seconds);
        if (i) printf("%.6f %.6f\n", seconds[0], seconds[1]);
    }
    mlxcel_model_close(model);
    return 0;
}
