/* The xla backend without a device: plugins that are wrong in every way, and programs as text. */
#include "xla_fake.h"

#include "backend/backend.h"
#include "backend/xla/emit.h"
#include "backend/xla/find.h"
#include "backend/xla/pjrt.h"
#include "os/os.h"

/* ---- plugins ------------------------------------------------------------------------------------------------------ */

static void test_refused(void) {
    static const struct xla_fault rows[] = {
        {"no table", ERR_EUNSUPPORTED, "is no PJRT plugin"},
        {"small table", ERR_EUNSUPPORTED, "its function table is 16 bytes long"},
        {"small version", ERR_EUNSUPPORTED, "is no PJRT plugin"},
        {"short table", ERR_EUNSUPPORTED, "lacks the function Client_Create"},
        {"missing", ERR_EUNSUPPORTED, "lacks the function Buffer_ToHostBuffer"},
        {"old", ERR_EUNSUPPORTED, "speaks PJRT 0.39; mlxcel needs 0.40 or later"},
        {"new major", ERR_EUNSUPPORTED, "speaks PJRT 1.115"},
        {"client", ERR_EDEVICE, "starting the plugin's client: no driver for this device"},
        {"large structs", ERR_EDEVICE, "starting the plugin's client: unexpected struct size: expected 4096"},
        {"no device", ERR_ENOTFOUND, "finds no device here"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena a = {0};
        struct pjrt p;
        struct err err = {0};
        struct xla_fake fake = xla_fake_open(&a, rows[i].mode);
        CHECK_INT(pjrt_open(&(struct pjrt_options){.plugin = fake.path, .device = -1}, &p, &err), rows[i].code);
        xla_fake_said(&rows[i], &err);
        CHECK_INT(fake.alive(), 0);
        arena_free(&a);
    }
}

static void test_no_plugin(void) {
    struct pjrt p;
    struct err err = {0};
    CHECK(pjrt_open(&(struct pjrt_options){.plugin = "no/such/plugin.so"}, &p, &err) != 0);
    CHECK(str_find(str_of(err.msg), STR("no/such/plugin.so"), 0) != STR_NONE);
    /* a library that is no plugin */
    struct arena a = {0};
    const char *none = test_exe_path();
    CHECK(pjrt_open(&(struct pjrt_options){.plugin = none}, &p, &err) != 0);
    arena_free(&a);
}

static struct xla_fake open_fake(struct arena *a, struct pjrt *out) {
    struct err err = {0};
    struct xla_fake fake = xla_fake_open(a, "");
    CHECK_OK(pjrt_open(&(struct pjrt_options){.plugin = fake.path, .device = 1}, out, &err), err);
    return fake;
}

/* A program whose result takes the memory of its argument. */
#define ECHO \
    "func.func public @main(%1: tensor<3xi32> {tf.aliasing_output = 0 : i32})\n    -> (tensor<3xi32>) {\n  return %1 : tensor<3xi32>\n}\n"

static void test_buffers(void) {
    struct arena a = {0};
    struct pjrt p;
    struct err err = {0};
    struct pjrt_buffer *b, *result;
    struct pjrt_executable *e;
    int32_t data[3] = {1, 2, 3}, back[3] = {0};
    struct pjrt_shape shape = {.dtype = DT_I32, .rank = 1, .dims = {3}};
    struct xla_fake fake = open_fake(&a, &p);
    CHECK_STR(str_of(p.platform), STR("fake"));
    CHECK_INT(p.n_devices, 2);
    CHECK_OK(pjrt_upload(&p, data, &shape, &b, &err), err);
    CHECK_OK(pjrt_compile(&p, STR(ECHO), &(bool){false}, &e, &err), err);
    CHECK_OK(pjrt_execute(&p, e, &b, 1, &result, 1, &err), err);
    CHECK_OK(pjrt_download(&p, result, back, sizeof back, &err), err);
    CHECK(memcmp(data, back, sizeof data) == 0);
    struct pjrt_buffer *twice;
    CHECK_INT(pjrt_execute(&p, e, &b, 1, &twice, 1, &err), ERR_EDEVICE);
    CHECK_STR(str_of(err.msg), STR("running a program: an argument was given away"));
    uint64_t used, total;
    CHECK(pjrt_memory(&p, &used, &total) && used == 100 && total == (uint64_t)16 << 30);
    struct sb saved = {0};
    struct pjrt_executable *again;
    CHECK_OK(pjrt_serialize(&p, e, &saved, &err), err);
    CHECK_OK(pjrt_deserialize(&p, sb_str(&saved), &again, &err), err);
    CHECK_INT(pjrt_deserialize(&p, STR("rubbish"), &again, &err), ERR_EDEVICE);
    CHECK(str_find(str_of(err.msg), STR("damaged program"), 0) != STR_NONE);
    sb_free(&saved);
    pjrt_executable_free(&p, again);
    pjrt_executable_free(&p, e);
    pjrt_buffer_free(&p, result);
    pjrt_buffer_free(&p, b);
    pjrt_close(&p);
    CHECK_INT(fake.alive(), 0);
    arena_free(&a);
}

/* Arrays on two devices: whole, or cut by rows or columns; the first device's part is what is read here. */
static void test_groups(void) {
    static const int32_t data[6] = {1, 2, 3, 4, 5, 6}, by_columns[3] = {1, 3, 5}, by_rows[3] = {1, 2, 3};
    struct arena a = {0};
    struct pjrt p;
    struct err err = {0};
    struct pjrt_buffer *b, *result;
    struct pjrt_executable *e;
    int32_t back[6] = {0};
    struct xla_fake fake = xla_fake_open(&a, "");
    CHECK_OK(pjrt_open(&(struct pjrt_options){.plugin = fake.path, .device = -1, .n_used = 2}, &p, &err), err);
    CHECK_OK(pjrt_upload(&p, data, &(struct pjrt_shape){.dtype = DT_I32, .rank = 2, .dims = {3, 2}, .cut = 2}, &b, &err), err);
    CHECK_INT(fake.alive(), 2); /* a part for each device */
    CHECK_OK(pjrt_download(&p, b, back, sizeof by_columns, &err), err);
    CHECK(memcmp(back, by_columns, sizeof by_columns) == 0);
    pjrt_buffer_free(&p, b);
    CHECK_OK(pjrt_upload(&p, data, &(struct pjrt_shape){.dtype = DT_I32, .rank = 2, .dims = {2, 3}, .cut = 1}, &b, &err), err);
    CHECK_OK(pjrt_compile(&p, STR(ECHO), &(bool){false}, &e, &err), err);
    CHECK_OK(pjrt_execute(&p, e, &b, 1, &result, 1, &err), err);
    CHECK_OK(pjrt_download(&p, result, back, sizeof by_rows, &err), err);
    CHECK(memcmp(back, by_rows, sizeof by_rows) == 0);
    struct pjrt_buffer *twice = NULL;
    CHECK_INT(pjrt_execute(&p, e, &b, 1, &twice, 1, &err), ERR_EDEVICE);
    pjrt_buffer_free(&p, b);
    pjrt_buffer_free(&p, result);
    pjrt_executable_free(&p, e);
    CHECK_OK(pjrt_upload(&p, data, &(struct pjrt_shape){.dtype = DT_I32, .rank = 2, .dims = {2, 3}}, &b, &err), err);
    CHECK_OK(pjrt_download(&p, b, back, sizeof back, &err), err);
    CHECK(memcmp(back, data, sizeof back) == 0);
    pjrt_buffer_free(&p, b);
    fake.set("memory");
    CHECK_INT(pjrt_upload(&p, data, &(struct pjrt_shape){.dtype = DT_I32, .rank = 2, .dims = {2, 3}, .cut = 1}, &b, &err), ERR_EMEMORY);
    CHECK(b == NULL);
    fake.set("");
    pjrt_close(&p);
    CHECK_INT(fake.alive(), 0);
    arena_free(&a);
}

static void test_attributes(void) {
    static const struct {
        int32_t n, cut, alias;
        const char *want;
    } rows[] = {
        {1, 0, -1, ""},
        {1, 1, 3, " {tf.aliasing_output = 3 : i32}"},
        {8, 0, -1, " {mhlo.sharding = \"{replicated}\"}"},
        {8, 1, -1, " {mhlo.sharding = \"{devices=[8,1]<=[8]}\"}"},
        {4, 2, 0, " {mhlo.sharding = \"{devices=[1,4]<=[4]}\", tf.aliasing_output = 0 : i32}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sb out = {0};
        emit_put_attributes(&out, rows[i].n, rows[i].cut, rows[i].alias);
        CHECK_STR(sb_str(&out), str_of(rows[i].want));
        sb_free(&out);
    }
    CHECK(xla_cut_matrix(64, 32, false, 8) == 1 && xla_cut_matrix(60, 32, false, 8) == 2 && xla_cut_matrix(60, 36, false, 8) == 0);
    CHECK(xla_cut_matrix(64, 32, true, 8) == 0 && xla_cut_matrix(64, 32, false, 1) == 0);
    CHECK(xla_cut_heads(8, 4) == 2 && xla_cut_heads(2, 4) == 0 && xla_cut_heads(8, 1) == 0);
}

static void test_failures(void) {
    struct arena a = {0};
    struct pjrt p;
    struct err err = {0};
    struct pjrt_buffer *b;
    struct pjrt_executable *e;
    struct pjrt_shape shape = {.dtype = DT_I32, .rank = 1, .dims = {3}};
    int32_t data[3] = {0};
    struct xla_fake fake = open_fake(&a, &p);
    fake.set("memory");
    CHECK_INT(pjrt_upload(&p, data, &shape, &b, &err), ERR_EMEMORY);
    CHECK_STR(str_of(err.msg), STR("copying to the device: out of memory allocating 17 bytes"));
    fake.set("compile");
    bool library = false;
    CHECK_INT(pjrt_compile(&p, STR("module {}"), &library, &e, &err), ERR_EDEVICE);
    CHECK_STR(str_of(err.msg), STR("compiling a program: line 3: unknown operation"));
    /* an option that the plugin does not know is left out; another failure is not tried again */
    library = true;
    CHECK_INT(pjrt_compile(&p, STR("module {}"), &library, &e, &err), ERR_EDEVICE);
    CHECK(library);
    CHECK_STR(str_of(err.msg), STR("compiling a program: line 3: unknown operation"));
    fake.set("option");
    CHECK_OK(pjrt_compile(&p, STR(ECHO), &library, &e, &err), err);
    CHECK(!library);
    pjrt_executable_free(&p, e);
    fake.set("no stats");
    uint64_t used, total;
    CHECK(!pjrt_memory(&p, &used, &total));
    fake.set("");
    CHECK_OK(pjrt_upload(&p, data, &shape, &b, &err), err);
    fake.set("await");
    CHECK_INT(pjrt_download(&p, b, data, sizeof data, &err), ERR_EDEVICE);
    CHECK_STR(str_of(err.msg), STR("running on the device: the device stopped"));
    pjrt_buffer_free(&p, b);
    /* a copy that fails on its way leaves nothing behind */
    CHECK_INT(pjrt_upload(&p, data, &shape, &b, &err), ERR_EDEVICE);
    CHECK(b == NULL);
    pjrt_close(&p);
    CHECK_INT(fake.alive(), 0);
    arena_free(&a);
}

static void test_device_number(void) {
    struct arena a = {0};
    struct device *d;
    struct err err = {0};
    const char *path = xla_fake_open(&a, "").path;
    CHECK_INT(device_open(&xla_backend, &(struct device_options){.xla.plugin = path, .name = "fake:7"}, &d, &err), ERR_ENOTFOUND);
    CHECK(str_find(str_of(err.msg), STR("there is no device 7"), 0) != STR_NONE);
    CHECK_INT(device_open(&xla_backend, &(struct device_options){.xla.plugin = path, .name = "fake:x"}, &d, &err), ERR_EARG);
    CHECK_INT(device_open(&xla_backend, &(struct device_options){.xla.plugin = path, .name = "fake:0-2"}, &d, &err), ERR_ENOTFOUND);
    CHECK(str_find(str_of(err.msg), STR("there is no device 2"), 0) != STR_NONE);
    static const char *const wrong[] = {"fake:0-", "fake:0-x", "fake:0-0", "fake:1-2", "fake:0-64", "fake:-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_INT(device_open(&xla_backend, &(struct device_options){.xla.plugin = path, .name = wrong[i]}, &d, &err), ERR_EARG);
    CHECK_OK(device_open(&xla_backend, &(struct device_options){.xla.plugin = path, .name = "fake:0-1"}, &d, &err), err);
    device_release(d);
    CHECK_INT(device_open(&xla_backend, &(struct device_options){.xla.plugin = path, .name = "cuda"}, &d, &err), ERR_ENOTFOUND);
    CHECK(str_find(str_of(err.msg), STR("runs on fake, not on cuda"), 0) != STR_NONE);
    arena_free(&a);
}

static void write_empty(struct arena *a, const char *dir, const char *name) {
    struct err err;
    CHECK_OK(os_make_dirs(dir, &err), err);
    CHECK_OK(os_file_save(str_fmt(a, "%s/%s", dir, name).p, STR(""), &err), err);
}

/* ---- programs ----------------------------------------------------------------------------------------------------- */

static bool has(const struct hlo *h, const char *line) {
    return str_find(sb_str(&h->text), str_of(line), 0) != STR_NONE;
}

static void test_text(void) {
    struct hlo h = {0};
    struct hlo_val x = hlo_name(&h, HLO_F32, HLO_SHAPE(2, 3)), w = hlo_name(&h, HLO_F32, HLO_SHAPE(4, 3));
    struct hlo_val y = hlo_dot(&h, x, w, &(struct hlo_dot){.n_contract = 1, .contract_a = {1}, .contract_b = {1}});
    CHECK_INT(y.shape.rank, 2);
    CHECK(has(&h, "%3 = stablehlo.dot_general %1, %2, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : "
                  "(tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>\n"));
    hlo_reduce(&h, "add", y, 1, 0);
    CHECK(has(&h, "%5 = stablehlo.reduce(%3 init: %4) applies stablehlo.add across dimensions = [1] : (tensor<2x4xf32>, tensor<f32>) -> "
                  "tensor<2xf32>\n"));
    hlo_const(&h, HLO_F32, -1.0 / 0.0, HLO_SHAPE(2));
    CHECK(has(&h, "stablehlo.constant dense<0xFF800000> : tensor<2xf32>\n"));
    hlo_slice(&h, x, 1, 1, 3);
    CHECK(has(&h, "stablehlo.slice %1 [0:2, 1:3] : (tensor<2x3xf32>) -> tensor<2x2xf32>\n"));
    sb_free(&h.text);
}

/* ---- golden programs ---------------------------------------------------------------------------------------------- */

/* A weight with the shapes that binding would give it, and no data. */
static struct weight made_weight(struct xla_weight *x, const char *name, int32_t n_experts, int64_t out, int64_t in, int bits) {
    struct weight w = {.name = name, .format = {.dtype = DT_F32}, .n_experts = n_experts, .out = out, .in = in, .packed = x};
    int64_t rows = n_experts * out;
    *x = (struct xla_weight){0};
    x->planes[PLANE_VALUES] = (struct xla_plane){.type = HLO_F32, .shape = out == 1 ? HLO_SHAPE(rows * in) : HLO_SHAPE(rows, in)};
    if (!bits) return w;
    w.format = (struct format){.mode = QUANT_AFFINE, .dtype = DT_BF16, .bits = (uint8_t)bits, .group = 32};
    x->planes[PLANE_VALUES] = (struct xla_plane){.type = HLO_U8, .shape = HLO_SHAPE(rows, in * bits / 8)};
    x->planes[PLANE_SCALES] = x->planes[PLANE_BIASES] = (struct xla_plane){.type = HLO_BF16, .shape = HLO_SHAPE(rows, in / 32)};
    return w;
}

struct made {
    struct xla_weight x[10];
    struct weight w[10];
    struct oplist list;
};

/* One attention layer and a gated feed-forward: what most families are made of. */
static struct tensor list_dense(struct made *m) {
    struct oplist *l = &m->list;
    m->w[0] = made_weight(&m->x[0], "embed", 1, 96, 64, 4);
    m->w[1] = made_weight(&m->x[1], "norm", 1, 1, 64, 0);
    m->w[2] = made_weight(&m->x[2], "qkv", 1, 128, 64, 0);
    m->w[3] = made_weight(&m->x[3], "freq", 1, 1, 8, 0);
    m->w[4] = made_weight(&m->x[4], "gate_up", 1, 256, 64, 4);
    m->w[5] = made_weight(&m->x[5], "down", 1, 64, 128, 0);
    struct tensor x = op_embed(l, &(struct embed_args){.weight = &m->w[0], .scale = 1});
    struct tensor qkv =
        op_linear(l, op_norm(l, x, &(struct norm_args){.weight = &m->w[1], .eps = 1e-5f}), &(struct linear_args){&m->w[2], NULL, 0});
    struct rope_args rope = {.inv_freq = &m->w[3], .kind = ROPE_HALF, .n_rotated = 16, .magnitude = 1};
    struct tensor q = op_rope(l, tensor_split_heads(tensor_slice(qkv, 0, 64), 4), &rope);
    struct tensor k = op_rope(l, tensor_split_heads(tensor_slice(qkv, 64, 32), 2), &rope);
    op_kv_write(l, k, tensor_split_heads(tensor_slice(qkv, 96, 32), 2), (struct kv_ref){0, 0});
    struct tensor a = op_attn(l, q, &(struct attn_args){.scale = 0.25f, .v_width = 16, .window = 100});
    struct tensor both = op_linear(l, op_add(l, x, tensor_join_heads(a), NULL), &(struct linear_args){&m->w[4], NULL, 0});
    struct act_args silu = {.kind = ACT_SILU, .scale = 1};
    struct tensor inner = op_glu(l, tensor_slice(both, 0, 128), tensor_slice(both, 128, 128), &silu);
    return op_rows(l, op_linear(l, inner, &(struct linear_args){&m->w[5], NULL, 0}));
}

/* A router with groups, experts in 8 bits, a convolution and a delta rule. */
static struct tensor list_mixed(struct made *m) {
    struct oplist *l = &m->list;
    m->w[0] = made_weight(&m->x[0], "embed", 1, 96, 64, 0);
    m->w[1] = made_weight(&m->x[1], "router", 1, 8, 64, 0);
    m->w[2] = made_weight(&m->x[2], "bias", 1, 1, 8, 0);
    m->w[3] = made_weight(&m->x[3], "gate_up", 8, 64, 64, 8);
    m->w[4] = made_weight(&m->x[4], "down", 8, 64, 32, 8);
    m->w[5] = made_weight(&m->x[5], "conv", 1, 1, 64 * 4, 0);
    m->w[6] = made_weight(&m->x[6], "a_log", 1, 1, 2, 0);
    struct tensor x = op_embed(l, &(struct embed_args){.weight = &m->w[0], .scale = 2}), ids, weights;
    op_route(l, op_linear(l, x, &(struct linear_args){&m->w[1], NULL, 0}),
             &(struct route_args){.bias = &m->w[2],
                                  .score = ROUTE_SIGMOID,
                                  .k = 2,
                                  .normalize = 1,
                                  .scale = 2.5f,
                                  .n_groups = 4,
                                  .top_groups = 2,
                                  .group_top2 = 1},
             &ids, &weights);
    x = op_experts(l, x, ids, weights,
                   &(struct experts_args){.gate_up = &m->w[3], .down = &m->w[4], .act = {.kind = ACT_SILU, .scale = 1}, .inner = 32});
    x = op_conv(l, x, &(struct conv_args){.weight = &m->w[5], .taps = 4, .state = 0, .act = ACT_SILU});
    struct tensor q = tensor_split_heads(tensor_slice(x, 0, 16), 1), k = tensor_split_heads(tensor_slice(x, 16, 16), 1);
    struct tensor v = tensor_split_heads(tensor_slice(x, 32, 16), 2), a = tensor_slice(x, 48, 2), b = tensor_slice(x, 50, 2);
    struct delta_args delta = {.beta_scale = 1,
                               .a_log = &m->w[6],
                               .dt_bias = &m->w[6],
                               .state = 1,
                               .k_heads = 1,
                               .v_heads = 2,
                               .k_width = 16,
                               .v_width = 8,
                               .scale = 1,
                               .l2_norm = 1};
    return op_argmax(l, op_rows(l, tensor_join_heads(op_delta(l, q, k, v, a, b, &delta))));
}

/* Holds the program of a list against tests/xla/programs/NAME; UPDATE_PROGRAMS=1 writes it instead. */
static void check_program(const char *name, struct tensor (*make)(struct made *), struct xla_shape at) {
    static const struct kv_layout kv = {.n_classes = 1,
                                        .n_states = 2,
                                        .n_slots = 2,
                                        .classes = {{.n_layers = 1, .heads = 2, .k_width = 16, .v_width = 16, .n_blocks = 9}},
                                        .states = {{.elements = 3 * 64}, {.elements = 2 * 16 * 8}},
                                        .max_context = 512};
    struct arena a = {0};
    struct made *m = arena_new(&a, struct made, 1);
    struct xla_program program;
    struct xla_needs needs;
    struct err err = {0};
    struct str want;
    oplist_begin(&m->list, xla_all_rows(&at), at.logits);
    oplist_output(&m->list, make(m));
    CHECK_OK(m->list.err.code, m->list.err);
    CHECK(xla_needs_find(&m->list, false, &needs));
    CHECK_OK(emit_program(&(struct emit_args){.list = &m->list, .at = at, .kv = &kv, .needs = &needs}, &program, &err), err);
    const char *path = str_fmt(&a, "%s/tests/xla/programs/%s", unit_source_dir(), name).p;
    if (os_env("UPDATE_PROGRAMS")) CHECK_OK(os_file_save(path, sb_str(&program.text), &err), err);
    CHECK_OK(os_file_load(&a, path, 0, &want, &err), err);
    CHECK_STR(sb_str(&program.text), want);
    xla_program_free(&program);
    oplist_free(&m->list);
    arena_free(&a);
}

static void test_programs(void) {
    check_program("dense_prompt.mlir", list_dense, (struct xla_shape){.seqs = 1, .rows = 64, .logits = 1, .context = 512});
    check_program("dense_decode.mlir", list_dense, (struct xla_shape){.seqs = 2, .rows = 1, .logits = 2, .context = 512});
    check_program("mixed_prompt.mlir", list_mixed, (struct xla_shape){.seqs = 1, .rows = 64, .logits = 1, .context = 512});
    check_program("mixed_decode.mlir", list_mixed, (struct xla_shape){.seqs = 1, .rows = 1, .logits = 1, .context = 512});
}

static void test_find(void) {
    struct arena a = {0};
    const char *root = unit_scratch_dir(), *site = str_fmt(&a, "%s/venv/lib/python3.12/site-packages", root).p;
    write_empty(&a, str_fmt(&a, "%s/jax_plugins/xla_cuda13", site).p, "xla_cuda_plugin.so");
    write_empty(&a, str_fmt(&a, "%s/jax_plugins/xla_cuda13", site).p, "_versions.so");
    write_empty(&a, str_fmt(&a, "%s/xla_plugins/xla_cpu_pjrt", site).p, "xla_cpu_pjrt.so");
    struct xla_plugins found = {0};
    xla_plugins_search(&a, str_fmt(&a, "%s/venv", root).p, &found);
    CHECK_INT(found.n, 2);
    CHECK_STR(found.items[0].device, STR("cuda"));
    CHECK(str_ends(found.items[0].path, STR("xla_cuda13/xla_cuda_plugin.so")));
    CHECK_STR(found.items[1].device, STR("cpu"));
    const char *cuda = found.items[0].path.p, *cpu = found.items[1].path.p;
    CHECK(xla_plugins_pick(&found, NULL) == cuda && xla_plugins_pick(&found, "cuda:1") == cuda && xla_plugins_pick(&found, "gpu") == cuda);
    CHECK(xla_plugins_pick(&found, "cpu") == cpu && xla_plugins_pick(&found, "tpu") == NULL && xla_plugins_pick(&found, "cud") == NULL);
    arena_free(&a);
}

const struct unit_suite unit_xla = {"xla", (const struct unit_case[]){
                                               {"plugins that are refused", test_refused},
                                               {"no plugin", test_no_plugin},
                                               {"buffers and programs", test_buffers},
                                               {"failures carry the plugin's words", test_failures},
                                               {"device numbers", test_device_number},
                                               {"groups of buffers", test_groups},
                                               {"how arrays lie on devices", test_attributes},
                                               {"text of programs", test_text},
                                               {"golden programs", test_programs},
                                               {"finding plugins", test_find},
                                               {0},
                                           }};
