/* The options that every command with a model shares, as session options. */
#ifndef MLXCEL_CLI_SESSION_ARGS_H
#define MLXCEL_CLI_SESSION_ARGS_H

#include "api/sampling.h"
#include "cli/args.h"

/* --cpu: flags beyond the level are no longer reported. */
int args_cpu_level(const struct args *args, struct err *err);
/* Whether the first operand names the model. */
bool args_has_model_operand(const struct args *args);
/* What names the model: the operand or --model, where --shape makes none up; {NULL, 0} for the built-in one. MLXCEL_MODEL gives way to
 * all of them, since what is typed wins over the environment. */
int args_model_name(const struct args *args, struct str *out, struct err *err);
int32_t args_shape_bits(const struct args *args);
/* The last thing to be asked for: a model that is not on this machine is downloaded, and wrong usage is told before that. */
int session_args(const struct args *args, struct session_options *out, struct err *err);
/* What the options say of the sampler's plain numbers. */
int sampling_args(const struct args *args, struct sampling_given *out, struct err *err);
/* --logit-bias, --dry-sequence-breaker and --seed; a seed is made up where none was given. */
int sampling_args_extra(const struct args *args, struct sampler_params *p, struct err *err);
/* What is wrong with either, where they are needed only when the model is open. */
int sampling_args_check(const struct args *args, struct err *err);
/* --prompt, or what standard input holds where it is "-"; {NULL, 0} when it was not given. */
int args_prompt(const struct args *args, struct str *out, struct err *err);
/* What the answer is held to: --json-schema, --grammar and their files; NULL where none was given. What cannot be held is refused. */
struct constraint_source;
int args_constraint(const struct args *args, const struct constraint_source **out, struct err *err);
/* The files of --image, in the command's arena. */
int session_args_images(const struct args *args, const struct str **out, size_t *out_n, struct err *err);
/* --tokens as 32-bit ids in the command's arena. */
int args_tokens(const struct args *args, const int32_t **out, int32_t *out_n, struct err *err);

/* --gpu-layers, --cpu-experts, --gpu-memory, and how several GPUs share a model. */
int args_placement(const struct args *args, struct session_options *out, struct err *err);
/* --adapter, several times: into out->adapters. */
int args_adapters(const struct args *args, struct session_options *out, struct err *err);

#endif
