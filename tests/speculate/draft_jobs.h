/* Jobs that are run with and without drafts. */
#ifndef MLXCEL_TESTS_DRAFT_JOBS_H
#define MLXCEL_TESTS_DRAFT_JOBS_H

#include "api/session_internal.h"
#include "engine/engine_internal.h"

enum { DRAFT_JOBS = 8, DRAFT_NEW = 28, DRAFT_PROMPT = 44 };

struct draft_answer {
    int32_t tokens[DRAFT_NEW], n;
    enum job_finish finish;
    struct err err;
    struct job_usage usage;
};

struct draft_way {
    enum draft_from draft;
    float temperature;
    int32_t first, n; /* jobs */
};

int32_t draft_prompt_token(int32_t i_job, int32_t at, int32_t vocab);
int draft_run(struct session *s, const struct draft_way *w, struct draft_answer *out, struct err *err);
/* An error where some job has other tokens. */
int draft_same(const struct draft_answer *got, const struct draft_answer *want, const struct draft_way *w, struct err *err);

#endif
