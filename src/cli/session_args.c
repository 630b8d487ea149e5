/* Session options from the command line. */
#include "cli/session_args.h"

#include "cli/progress.h"
#include "cli/store_args.h"
#include "cli/world_args.h"
#include "os/cpu.h"
#include "os/os.h"

enum { PROMPT_BYTES_MAX = 64 << 20, TEMPLATE_BYTES_MAX = 4 << 20 };

/* --device belongs to native, the --xla- options to xla: what would be ignored is refused. */
static int xla_args(const struct args *args, struct session_options *out, struct err *err) {
    static const enum opt_id own[] = {OPT_XLA_DEVICE, OPT_XLA_PLUGIN, OPT_XLA_MEMORY, OPT_XLA_PREALLOCATE};
    if (!str_is(args_str(args, OPT_BACKEND), "xla")) {
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            if (args->values[own[i]].source == ARG_FROM_FLAG)
                return err_set(err, ERR_EARG, "--%s is for --backend xla", cli_options[own[i]].name);
        return ERR_OK;
    }
    if (args_given(args, OPT_DEVICE))
        return err_set(err, ERR_EARG, "--device belongs to the native backend; with --backend xla use --xla-device");
    out->backend = "xla";
    out->device = args_cstr(args, OPT_XLA_DEVICE);
    struct str unused = args->values[OPT_XLA_IREE].variable;
    out->xla = (struct xla_options){
        .plugin = args_cstr(args, OPT_XLA_PLUGIN),
        .environments = {args_cstr(args, OPT_VIRTUAL_ENV), args_cstr(args, OPT_CONDA_PREFIX)},
        .memory_fraction = args_float(args, OPT_XLA_MEMORY),
        .no_preallocate = !args_flag(args, OPT_XLA_PREALLOCATE),
        .cache = args_cstr(args, OPT_XLA_CACHE),
        .n_programs = (int32_t)args_int(args, OPT_XLA_PROGRAMS),
        .dump = args_cstr(args, OPT_XLA_DUMP),
        .flags = args_cstr(args, OPT_XLA_FLAGS),
        .unused = unused.p ? str_cstr(args->arena, unused) : NULL,
    };
    return ERR_OK;
}

int args_cpu_level(const struct args *args, struct err *err) {
    struct str level = args_str(args, OPT_CPU);
    uint32_t mask;
    if (!level.p) return ERR_OK;
    TRY(cpu_level_parse(level, &mask, err));
    cpu_flags_mask(mask);
    return ERR_OK;
}

/* A bar while a model is loaded, where that takes so long that somebody wonders. */
struct load_bar {
    struct progress bar;
    uint64_t start_ns;
};
#define LOAD_SILENCE_NS UINT64_C(500000000)

static void show_loading(void *user, uint64_t done, uint64_t total) {
    struct load_bar *b = user;
    uint64_t now = os_clock_ns();
    if (b->start_ns == 0) b->start_ns = now;
    if (done == total) progress_end(&b->bar);
    else if (now - b->start_ns > LOAD_SILENCE_NS) progress_show(&b->bar, done, total);
}

/* perplexity has an operand, too, and it is a text; so are those of run where an option names the model. */
bool args_has_model_operand(const struct args *args) {
    const char *operands = cli_commands[args->command].operands;
    bool by_option = args->values[OPT_MODEL].source == ARG_FROM_FLAG || (args_has(args, OPT_SHAPE) && args_str(args, OPT_SHAPE).p);
    if (args->command == CMD_RUN && by_option) return false;
    return args->n_operands && operands && str_starts(str_of(operands), STR("[MODEL]"));
}

int args_model_name(const struct args *args, struct str *out, struct err *err) {
    bool by_flag = args->values[OPT_MODEL].source == ARG_FROM_FLAG, by_operand = args_has_model_operand(args);
    bool by_shape = args_has(args, OPT_SHAPE) && args_str(args, OPT_SHAPE).p;
    *out = by_operand ? args->operands[0] : args_str(args, OPT_MODEL);
    if (by_flag && by_operand) return err_set(err, ERR_EARG, "give the model once: as an argument or by --model");
    if (by_shape && (by_flag || by_operand)) return err_set(err, ERR_EARG, "a model and --shape exclude each other");
    if (by_shape) *out = (struct str){0};
    return ERR_OK;
}

int32_t args_shape_bits(const struct args *args) {
    static const int32_t bits[] = {2, 3, 4, 5, 6, 8, 16, 32}; /* in the order of the row's choices */
    return bits[args_choice(args, OPT_BITS)];
}

/* The made-up model. What describes one and would be ignored beside another is refused: --bits converts nothing. */
static int shape_args(const struct args *args, struct session_options *out, struct err *err) {
    static const enum opt_id own[] = {OPT_SHAPE_LAYERS, OPT_BITS, OPT_DTYPE, OPT_SYNTH_SEED};
    out->shape = args_cstr(args, OPT_SHAPE);
    for (size_t i = 0; i < sizeof own / sizeof *own && !out->shape; i++)
        if (args_has(args, own[i]) && args_given(args, own[i]))
            return err_set(err, ERR_EARG, "--%s is for made-up models (--shape NAME)", cli_options[own[i]].name);
    out->n_layers = (int32_t)args_int(args, OPT_SHAPE_LAYERS);
    out->bits = args_shape_bits(args);
    out->f16 = args_choice(args, OPT_DTYPE) == 1;
    if (args_has(args, OPT_SYNTH_SEED)) out->seed = (uint64_t)args_int(args, OPT_SYNTH_SEED);
    return ERR_OK;
}

/* "18" or "auto". */
static int layers_arg(const struct args *args, enum opt_id id, struct session_layers *out, struct err *err) {
    struct str text = args_has(args, id) ? args_str(args, id) : (struct str){0};
    int64_t n;
    if (!text.p) return ERR_OK;
    *out = (struct session_layers){.kind = SHARE_AUTO};
    if (str_is(text, "auto")) return ERR_OK;
    if (!str_to_int64(text, &n) || n < 0 || n > 1 << 20)
        return err_set(err, ERR_EARG, "--%s: \"%.*s\" is neither a number of layers nor auto", cli_options[id].name, STR_ARG(text));
    *out = (struct session_layers){SHARE_NUMBER, (int32_t)n};
    return ERR_OK;
}

int args_placement(const struct args *args, struct session_options *out, struct err *err) {
    TRY(layers_arg(args, OPT_GPU_LAYERS, &out->gpu_layers, err));
    TRY(layers_arg(args, OPT_CPU_EXPERTS, &out->cpu_experts, err));
    out->gpu_memory = (uint64_t)args_int(args, OPT_GPU_MEMORY);
    if (args_has(args, OPT_SPLIT)) out->split = SESSION_SPLIT_USUAL + args_choice(args, OPT_SPLIT);
    if (args_has(args, OPT_PIPELINE_PARALLEL)) out->n_stages = (int32_t)args_int(args, OPT_PIPELINE_PARALLEL);
    if (args_has(args, OPT_STREAM_PROMPTS)) out->stream_rows = (int32_t)args_int(args, OPT_STREAM_PROMPTS);
    return ERR_OK;
}

/* How and where is computed. */
static int compute_args(const struct args *args, struct session_options *out, struct err *err) {
    static const int32_t kv_bits[] = {16, 8, 4};
    out->precision = (enum session_precision)args_choice(args, OPT_PRECISION);
    out->n_threads = (int32_t)args_int(args, OPT_THREADS);
    TRY(args_ranks(args, &out->n_ranks, err));
    if (args_has(args, OPT_WORLD_SIZE)) TRY(args_world(args, out, err));
    out->force = args_flag(args, OPT_FORCE);
    out->kv_bits = kv_bits[args_choice(args, OPT_KV_BITS)];
    if (args_has(args, OPT_DRAFT)) {
        out->draft = DRAFT_NONE + args_choice(args, OPT_DRAFT);
        out->max_draft = (int32_t)args_int(args, OPT_DRAFT_MAX);
        out->draft_model = args_cstr(args, OPT_DRAFT_MODEL);
        if (out->draft_model && !args_given(args, OPT_DRAFT)) out->draft = DRAFT_MODEL;
        if ((out->draft == DRAFT_MODEL) != (out->draft_model != NULL))
            return err_set(err, ERR_EARG, "--draft model and --draft-model DIR go together");
    }
    if (args_has(args, OPT_CONTEXT)) out->context = (int32_t)args_int(args, OPT_CONTEXT);
    TRY(args_cpu_level(args, err));
    out->device = args_cstr(args, OPT_DEVICE);
    TRY(args_placement(args, out, err));
    return xla_args(args, out, err);
}

static int template_args(const struct args *args, struct session_options *out, struct err *err) {
    const char *path = args_cstr(args, OPT_CHAT_TEMPLATE_FILE);
    if (!path) return ERR_OK;
    if (os_input_load(args->arena, path, TEMPLATE_BYTES_MAX, &out->template, err)) return err_prefix(err, "--chat-template-file");
    return ERR_OK;
}

/* [NAME=]DIR[:SCALE] */
static int adapter_arg(const struct args *args, struct str text, struct session_adapter *out, struct err *err) {
    size_t eq = str_find_char(text, '=', 0), colon = text.n;
    struct str name = {0}, path = text;
    struct os_stat st;
    double scale = args->command == CMD_SERVE ? 0 : 1;
    if (eq != STR_NONE && os_stat(str_cstr(args->arena, text), &st, NULL)) name = str_sub(text, 0, eq), path = str_from(text, eq + 1);
    for (colon = path.n; colon > 0 && path.p[colon - 1] != ':'; colon--) {}
    if (colon > 0 && str_to_double(str_from(path, colon), &scale)) path = str_sub(path, 0, colon - 1);
    if (!(scale >= -100 && scale <= 100))
        return err_set(err, ERR_EARG, "--adapter %.*s: the scale must be within -100 and 100", STR_ARG(text));
    while (path.n > 1 && (path.p[path.n - 1] == '/' || path.p[path.n - 1] == '\\')) path.n--;
    size_t from = path.n;
    while (from > 0 && path.p[from - 1] != '/' && path.p[from - 1] != '\\') from--;
    if (!name.p) name = str_from(path, from);
    if (!path.n || !name.n) return err_set(err, ERR_EARG, "--adapter \"%.*s\" names no folder", STR_ARG(text));
    *out = (struct session_adapter){str_cstr(args->arena, path), str_cstr(args->arena, name), (float)scale};
    return ERR_OK;
}

int args_adapters(const struct args *args, struct session_options *out, struct err *err) {
    enum { ADAPTERS_MAX = 256 };
    const struct str *given;
    size_t n = args_strings(args, OPT_ADAPTER, &given);
    if (n > ADAPTERS_MAX) return err_set(err, ERR_EARG, "there are more than %d adapters", ADAPTERS_MAX);
    struct session_adapter *list = arena_new(args->arena, struct session_adapter, n + 1);
    for (size_t i = 0; i < n; i++) {
        TRY(adapter_arg(args, given[i], &list[i], err));
        for (size_t k = 0; k < i; k++)
            if (strcmp(list[k].name, list[i].name) == 0)
                return err_set(err, ERR_EARG, "two adapters are called %s; give one of them another name: --adapter NAME=DIR",
                               list[i].name);
    }
    out->adapters = list;
    out->n_adapters = (int32_t)n;
    return ERR_OK;
}

int session_args(const struct args *args, struct session_options *out, struct err *err) {
    struct str model;
    *out = (struct session_options){.on_load = show_loading, .load_user = arena_new(args->arena, struct load_bar, 1)};
    TRY(args_model_name(args, &model, err));
    if (args_has(args, OPT_SHAPE)) TRY(shape_args(args, out, err));
    if (args_has(args, OPT_CHAT_TEMPLATE_FILE)) TRY(template_args(args, out, err));
    if (args_has(args, OPT_PRECISION)) TRY(compute_args(args, out, err));
    if (args_has(args, OPT_ADAPTER)) TRY(args_adapters(args, out, err));
    return args_model(args, model, &out->model, &out->name, err);
}

int args_prompt(const struct args *args, struct str *out, struct err *err) {
    *out = args_str(args, OPT_PROMPT);
    if (!out->p && args->command == CMD_GENERATE && args->n_operands) {
        struct sb words = {0};
        for (size_t i = 0; i < args->n_operands; i++) sb_fmt(&words, "%s%.*s", i ? " " : "", STR_ARG(args->operands[i]));
        *out = str_copy(args->arena, sb_str(&words));
        sb_free(&words);
    }
    return str_is(*out, "-") ? os_read_stdin(args->arena, PROMPT_BYTES_MAX, out, err) : ERR_OK;
}

int args_tokens(const struct args *args, const int32_t **out, int32_t *out_n, struct err *err) {
    const int64_t *values;
    size_t n = args_ints(args, OPT_TOKENS, &values);
    int32_t *ids = arena_new(args->arena, int32_t, n + 1);
    for (size_t i = 0; i < n; i++) {
        if (values[i] < 0 || values[i] > INT32_MAX) return err_set(err, ERR_EARG, "--tokens: %lld is no token id", (long long)values[i]);
        ids[i] = (int32_t)values[i];
    }
    *out = ids;
    *out_n = (int32_t)n;
    return ERR_OK;
}

int session_args_images(const struct args *args, const struct str **out, size_t *out_n, struct err *err) {
    enum { FILE_MAX = 256 << 20 }; /* the decoder's own limit is smaller, and says why */
    const struct str *paths;
    size_t n = args_strings(args, OPT_IMAGE, &paths);
    struct str *files = arena_new(args->arena, struct str, n + 1);
    for (size_t i = 0; i < n; i++) TRY(os_file_load(args->arena, str_cstr(args->arena, paths[i]), FILE_MAX, &files[i], err));
    *out = files;
    *out_n = n;
    return ERR_OK;
}
