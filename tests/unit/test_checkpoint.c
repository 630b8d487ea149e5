/* Model folders: shards by index and by name, stale and hostile indexes, the built-in model, side files. */
#include "unit.h"

#include "base/log.h"
#include "file/builtin.h"
#include "file/checkpoint.h"
#include "os/os.h"

static struct arena arena;
static struct checkpoint ck;
static struct err err;
static const char *dir;
static char warning[256];
static int n_warnings;

static void keep_warning(enum log_level level, const char *line, void *user) {
    (void)user;
    if (level == LOG_WARN) n_warnings++;
    size_t n = strlen(line) < sizeof warning - 1 ? strlen(line) : sizeof warning - 1;
    memcpy(warning, line, n);
    warning[n] = '\0';
}

static void begin(void) {
    dir = unit_scratch_dir();
    n_warnings = 0;
}

static void save(const char *name, struct str data) {
    CHECK_OK(os_file_save(str_fmt(&arena, "%s/%s", dir, name).p, data, &err), err);
}

/* A file with one tensor of four bytes. */
static void save_shard(const char *name, const char *tensor) {
    struct str header = str_fmt(&arena, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", tensor);
    struct sb out = {0};
    for (int i = 0; i < 8; i++) sb_putc(&out, (char)(header.n >> 8 * i & 255));
    sb_put(&out, header);
    sb_puts(&out, "wxyz");
    save(name, sb_str(&out));
    sb_free(&out);
}

static int open_dir(const char *path) {
    checkpoint_close(&ck);
    log_set_sink(keep_warning, NULL);
    int code = checkpoint_open(path, &ck, &err);
    log_set_sink(NULL, NULL);
    return code;
}

static void expect_error(const char *message) {
    CHECK(open_dir(dir) != 0);
    FAIL_IF(str_find(str_of(err.msg), str_of(message), 0) == STR_NONE, "%s", err.msg);
}

#define SHARD1 "model-00001-of-00002.safetensors"
#define SHARD2 "model-00002-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"

static void shards_by_index_and_name(void) {
    char got[4];
    begin();
    save_shard(SHARD1, "a");
    save_shard(SHARD2, "b");
    save_shard("model-extra.bin", "c");
    CHECK_OK(open_dir(str_fmt(&arena, "%s/", dir).p), err);
    CHECK(ck.n_shards == 2 && ck.n_tensors == 2 && ck.total_bytes == 8 && !ck.has_config && n_warnings == 0);
    const struct checkpoint_tensor *b = checkpoint_find(&ck, STR("b"));
    CHECK(b && !checkpoint_find(&ck, STR("c")));
    CHECK_OK(checkpoint_read(b, 1, got, 2, &err), err);
    CHECK_STR(str_n(got, 2), STR("xy"));
    save(INDEX, STR("{\"weight_map\":{\"a\":\"" SHARD1 "\"}}"));
    CHECK_OK(open_dir(dir), err);
    CHECK(ck.n_shards == 1 && ck.n_tensors == 1);
}

static void stale_index(void) {
    begin();
    save_shard(SHARD1, "a");
    save(INDEX, STR("{\"weight_map\":{\"a\":\"" SHARD1 "\",\"b\":\"" SHARD2 "\"}}"));
    expect_error("/" SHARD2 " is missing, although model.safetensors.index.json names it");
    save_shard("model.safetensors", "a");
    CHECK_OK(open_dir(dir), err);
    CHECK(n_warnings == 1 && str_find(str_of(warning), STR(SHARD2), 0) != STR_NONE);
    CHECK_INT(ck.n_shards, 1);
    os_remove(str_fmt(&arena, "%s/model.safetensors", dir).p, NULL);
    os_remove(str_fmt(&arena, "%s/" INDEX, dir).p, NULL);
    expect_error("shard 2 of 2 is missing");
    save_shard(SHARD2, "a");
    expect_error("tensor a is in both " SHARD1 " and " SHARD2);
}

/* What a clone without Git LFS leaves in the place of large files, weights under other names, and an adapter. */
static void what_is_no_model_is_named(void) {
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    struct str text;
    begin();
    save("model.safetensors", str_of(pointer));
    expect_error("model.safetensors: a Git LFS pointer, not the file itself: run git lfs pull");
    save_shard("model.safetensors", "a");
    save("tokenizer.json", str_of(pointer));
    CHECK_OK(open_dir(dir), err);
    CHECK(checkpoint_file_load(&arena, &ck, "tokenizer.json", 0, &text, &err) == ERR_EFORMAT && strstr(err.msg, "Git LFS pointer"));
    os_remove(str_fmt(&arena, "%s/model.safetensors", dir).p, NULL);
    expect_error("no model there, neither config.json nor model*.safetensors");
    save_shard("consolidated.safetensors", "a");
    expect_error("consolidated.safetensors (weights under other names");
    save_shard("adapter_model.safetensors", "a");
    expect_error("adapter_model.safetensors (an adapter, which has to be merged");
}

static void names_stay_inside(void) {
    static const char *const good[] = {
        "model.safetensors", "a b.safetensors", "\xc3\xa9.safetensors", ".x", "console.x", "com.x", "com10.x"};
    static const char *const bad[] = {"",      ".",      "..",   "../a", "a/b", "a\\b", "C:a", "a:b", "/a",  "con", "CON.safetensors",
                                      "nul.x", "Com1.y", "lpt9", "a.",   "a ",  "a\n",  "a*",  "a?",  "\xff"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) FAIL_IF(!checkpoint_name_safe(str_of(good[i])), "refused: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) FAIL_IF(checkpoint_name_safe(str_of(bad[i])), "accepted: %s", bad[i]);
    CHECK(!checkpoint_name_safe(str_n("a\0b", 3)));
    begin();
    save_shard("model.safetensors", "a");
    save(INDEX, STR("{\"weight_map\":{\"a\":\"../model.safetensors\"}}"));
    expect_error("tensor a: ../model.safetensors is not the name of a .safetensors file in this folder");
}

static void configs_come_along(void) {
    begin();
    save_shard("model.safetensors", "a");
    save("config.json", STR("{\"model_type\":\"llama\",\"x\":NaN}"));
    save("generation_config.json", STR("{\"eos_token_id\":[1,2]}"));
    CHECK_OK(open_dir(dir), err);
    CHECK(ck.has_config && ck.has_generation);
    CHECK_STR(ck.config.model_type, STR("llama"));
    CHECK_OK(open_dir(str_fmt(&arena, "%s/model.safetensors", dir).p), err); /* the file of a folder has its config */
    CHECK(ck.has_config);
    save_shard("other.safetensors", "a");
    CHECK_OK(open_dir(str_fmt(&arena, "%s/other.safetensors", dir).p), err); /* another file has none */
    CHECK(!ck.has_config && !checkpoint_file_exists(&ck, "config.json"));
    save("config.json", STR("{"));
    expect_error("config.json: line 1");
    CHECK(open_dir(str_fmt(&arena, "%s/absent", dir).p) == ERR_ENOTFOUND);
}

static void shrunk_file_is_an_error(void) {
    char got[4];
    begin();
    save_shard("model.safetensors", "a");
    CHECK_OK(open_dir(dir), err);
    struct os_file *f;
    CHECK_OK(os_file_open(str_fmt(&arena, "%s/model.safetensors", dir).p, OS_UPDATE, &f, &err), err);
    CHECK_OK(os_file_truncate(f, 10, &err), err);
    os_file_close(f);
    CHECK(checkpoint_read(checkpoint_find(&ck, STR("a")), 0, got, 4, &err) == ERR_EIO);
}

static void builtin_model(void) {
    struct str text, embedded;
    CHECK_OK(open_dir(NULL), err);
    CHECK(ck.has_config && ck.has_generation && ck.quant.present && ck.n_tensors > 100);
    CHECK_STR(ck.config.model_type, STR("qwen3"));
    CHECK_OK(checkpoint_file_load(&arena, &ck, "tokenizer.json", 0, &text, &err), err);
    CHECK(text.n > 1000 && text.p[0] == '{' && text.p[text.n] == '\0');
    CHECK(checkpoint_file_load(&arena, &ck, "absent.json", 0, &text, &err) == ERR_ENOTFOUND);
    struct checkpoint_weight w;
    CHECK_OK(checkpoint_weight(&ck, STR("model.layers.0.mlp.up_proj"), &w, &err), err);
    CHECK(w.format.mode == QUANT_AFFINE && w.format.bits == 4 && w.width == 256 && w.format.dtype == DT_BF16 && w.biases);
    CHECK_OK(checkpoint_weight(&ck, STR("model.norm"), &w, &err), err);
    CHECK(w.format.mode == QUANT_NONE && w.width == 256 && !w.scales);
    CHECK(checkpoint_weight(&ck, STR("model.absent"), &w, &err) == ERR_ENOTFOUND);
    CHECK(builtin_file(STR("model.safetensors"), &embedded) && ((uintptr_t)embedded.p & 63) == 0);
    struct str on_disk;
    CHECK_OK(os_file_load(&arena, str_fmt(&arena, "%s/models/tiny/model.safetensors", unit_source_dir()).p, 0, &on_disk, &err), err);
    CHECK(str_eq(on_disk, embedded));
}

const struct unit_suite unit_checkpoint = {
    "checkpoint",
    (const struct unit_case[]){
        {"shards_by_index_and_name", shards_by_index_and_name},
        {"stale_index", stale_index},
        {"what_is_no_model_is_named", what_is_no_model_is_named},
        {"names_stay_inside", names_stay_inside},
        {"configs_come_along", configs_come_along},
        {"shrunk_file_is_an_error", shrunk_file_is_an_error},
        {"builtin_model", builtin_model},
        {0},
    },
};
