/* The hub's parts that need no network: names, URLs and headers, journals of partial files, digests, manifests, the progress line. */
#include "unit.h"

#include "base/address.h"
#include "hub/digest.h"
#include "hub/http.h"
#include "hub/part.h"
#include "hub/patience.h"
#include "hub/meter.h"
#include "hub/pieces.h"
#include "hub/short_names.h"
#include "hub/store.h"
#include "os/cpu.h"
#include "os/os.h"

static void model_names(void) {
    struct repo_name r;
    struct err err;
    CHECK_OK(repo_name_parse(STR("owner/some-Name_1.5"), STR("x"), &r, &err), err);
    CHECK_STR(str_of(r.id), STR("owner/some-Name_1.5"));
    CHECK_STR(r.name, STR("some-Name_1.5"));
    CHECK_OK(repo_name_parse(STR("bare"), STR("mlx-community"), &r, &err), err);
    CHECK_STR(str_of(r.id), STR("mlx-community/bare"));
    static const char *const bad[] = {"",      "/",    "a/",  "/a",    "a/b/c",    "..",   "../a", "a/..",   "a b",
                                      "a/b c", "a\\b", "C:a", "nul/x", "a/com1.x", "a/b-", "a/.b", "a/b..c", "a/b--c"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) CHECK_INT(repo_name_parse(str_of(bad[i]), STR("x"), &r, &err), ERR_EARG);
    CHECK(repo_name_likely(STR("a/b")) && repo_name_likely(STR("b")));
    CHECK(!repo_name_likely(STR("./b")) && !repo_name_likely(STR("/a/b")) && !repo_name_likely(STR("a/b/c")) &&
          !repo_name_likely(STR("x.safetensors")));
}

static void short_names(void) {
    static const char *const cases[][2] = {{"qwen3", "mlx-community/Qwen3-0.6B-4bit"},
                                           {"qwen3:0.6b", "mlx-community/Qwen3-0.6B-4bit"},
                                           {"QWEN3:8B", "mlx-community/Qwen3-8B-4bit"},
                                           {"qwen3:8bit", "mlx-community/Qwen3-0.6B-8bit"},
                                           {"qwen3:4b-8bit", "mlx-community/Qwen3-4B-8bit"},
                                           {"gemma3:1b-BF16", "mlx-community/gemma-3-1b-it-bf16"},
                                           {"qwen3:30b-a3b", "mlx-community/Qwen3-30B-A3B-4bit"},
                                           {"qwen3:30b-a3b-6bit", "mlx-community/Qwen3-30B-A3B-6bit"},
                                           {"llama3.2", "mlx-community/Llama-3.2-1B-Instruct-4bit"}};
    static const char *const none[] = {"",          "qwen",  "qwen3:", "qwen3:9b", "qwen3:0.6b-", "qwen3:0.6b-7bit", "qwen3:0.6b4bit",
                                       "qwen3:0.6", ":0.6b", "qwen3 "};
    struct arena a = {0};
    char repo[REPO_NAME_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FAIL_IF(!hub_short_find(str_of(cases[i][0]), repo), "\"%s\" is no short name", cases[i][0]);
        CHECK_STR(str_of(repo), str_of(cases[i][1]));
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) FAIL_IF(hub_short_find(str_of(none[i]), repo), "\"%s\" is %s", none[i], repo);
    CHECK_STR(hub_short_of(&a, STR("mlx-community/Qwen3-0.6B-4bit")), STR("qwen3:0.6b"));
    CHECK(!hub_short_of(&a, STR("mlx-community/Qwen3-0.6B-8bit")).p);
    arena_free(&a);
    struct sb out = {0};
    CHECK(hub_short_fitting(500000000, &out) == 0 && out.n == 0); /* half a gigabyte is for the cache alone */
    CHECK(hub_short_fitting(UINT64_C(2) << 30, &out) == 4);
    CHECK_STR(sb_str(&out), STR("qwen3:1.7b, qwen2.5:1.5b, llama3.2:1b, gemma3:1b"));
    sb_clear(&out);
    hub_short_fitting(UINT64_C(18) << 30, &out); /* 30b-a3b is smaller than 32b */
    CHECK(str_starts(sb_str(&out), STR("qwen3:30b-a3b, ")));
    sb_free(&out);
}

static void file_names(void) {
    static const char *const safe[] = {"a.json", "a/b.json", ".gitattributes", "x y.json", "\xC3\xA9.json"};
    static const char *const unsafe[] = {"",      "/a",    "a/",     "a//b", "..",       "a/..", "../a",        "a\\b",         "C:a",
                                         "a/NUL", "con.x", "LPT9.j", "a.",   "a ",       " a",   ".mlxcel/a",   "a/.Mlxcel-x",  "a\nb",
                                         "a\x7F", "a?b",   "a*",     "a|b",  "\xFF\xFE", "a<b",  "a/b/../../c", "a/COM1/x.json"};
    for (size_t i = 0; i < sizeof safe / sizeof safe[0]; i++) CHECK(hub_path_safe(str_of(safe[i])));
    for (size_t i = 0; i < sizeof unsafe / sizeof unsafe[0]; i++)
        FAIL_IF(hub_path_safe(str_of(unsafe[i])), "\"%s\" is called safe", unsafe[i]);
    static const char *const wanted[] = {"model.safetensors",   "config.json",     "model.safetensors.index.json",
                                         "chat_template.jinja", "tokenizer.model", "qwen.tiktoken",
                                         "merges.txt",          "vocab.txt",       "1_Pooling/config.json"};
    static const char *const unwanted[] = {"pytorch_model.bin",
                                           "pytorch_model.bin.index.json",
                                           "original/model.safetensors",
                                           "onnx/config.json",
                                           "x.gguf",
                                           "README.md",
                                           ".gitattributes",
                                           ".x.json",
                                           "LICENSE.txt"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        FAIL_IF(!hub_file_wanted(str_of(wanted[i])), "\"%s\" is wanted", wanted[i]);
    for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++)
        FAIL_IF(hub_file_wanted(str_of(unwanted[i])), "\"%s\" is not wanted", unwanted[i]);
}

static void origins(void) {
    CHECK(http_same_origin(STR("https://a.b/x"), STR("https://A.B:443/y")));
    CHECK(http_same_origin(STR("http://a.b:80"), STR("http://a.b/")));
    CHECK(!http_same_origin(STR("https://a.b/x"), STR("http://a.b/x")));
    CHECK(!http_same_origin(STR("https://a.b/x"), STR("https://a.b:8443/x")));
    CHECK(!http_same_origin(STR("https://a.b/x"), STR("https://a.b.evil/x")));
    CHECK(!http_same_origin(STR("https://a.b/x"), STR("https://a.b@evil/x")));
    CHECK(!http_same_origin(STR("https://a.b"), STR("ftp://a.b")));
    CHECK(http_url_ok(STR("http://127.0.0.1:80/x?y")) && http_url_ok(STR("https://h")));
    CHECK(!http_url_ok(STR("https://")) && !http_url_ok(STR("file:///etc")) && !http_url_ok(STR("https://a/b c")) &&
          !http_url_ok(STR("https://u@h/")) && !http_url_ok(STR("https://h/\r\nX: y")));
    struct sb out = {0};
    http_escape(&out, STR("a b/%\xC3\xA9~"));
    CHECK_STR(sb_str(&out), STR("a%20b%2F%25%C3%A9~"));
    sb_free(&out);
    CHECK_STR(http_header_value(STR("Content-LENGTH:  12 "), "content-length"), STR("12"));
    CHECK(!http_header_value(STR("Content-Lengthy: 12"), "content-length").p);
}

/* Every way of cutting a message into pieces, by plain C and by this machine's instructions. */
static void digests(void) {
    unsigned char data[1000];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t n = 0; n < sizeof data; n += 37) {
        struct sha256 plain, fast;
        char a[65], b[65];
        sha256_init(&plain);
        digest_begin(&fast);
        sha256_update(&plain, data, n);
        for (size_t at = 0, step = 1; at < n; at += step, step = step * 3 % 211 + 1)
            sha256_update(&fast, data + at, step < n - at ? step : n - at);
        digest_end(&plain, a);
        digest_end(&fast, b);
        CHECK_STR(str_of(b), str_of(a));
    }
    struct sha256 s;
    char hex[65];
    digest_begin(&s);
    sha256_update(&s, "abc", 3);
    digest_end(&s, hex);
    CHECK_STR(str_of(hex), STR("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
}

/* A journal is believed as far as it is whole, about this file, and borne out by the data. */
static void journals(void) {
    struct arena a = {0};
    struct err err;
    struct part p;
    const char *path = str_fmt(&a, "%s/x.part", unit_scratch_dir()).p, *log_path = str_fmt(&a, "%s.log", path).p;
    struct hub_file file = {.name = STR("x.bin"), .size = PART_CHUNK_BYTES * 2 + 1000};
    char bytes[4096] = {1};
    CHECK_OK(part_open(&a, path, &file, &p, &err), err);
    CHECK_INT(p.n_chunks, 3);
    CHECK_INT(part_chunk_size(&p, 2), 1000);
    CHECK_OK(part_set_etag(&p, "W/\"weak\"", &err), err);
    CHECK(!p.etag[0]);
    CHECK_OK(part_set_etag(&p, "\"tag\"", &err), err);
    CHECK_OK(os_file_write_at(p.data, bytes, sizeof bytes, 0, &err), err);
    CHECK_OK(part_grow(&p, 0, 100, &err), err);
    CHECK_OK(part_grow(&p, 0, 4096, &err), err);
    CHECK_OK(os_file_write_at(p.data, bytes, 1000, PART_CHUNK_BYTES * 2, &err), err);
    CHECK_OK(part_grow(&p, 2, 1000, &err), err);
    CHECK_INT(part_front(&p), 4096);
    part_close(&p);
    /* what a crash leaves: half a line */
    struct str text;
    CHECK_OK(os_file_load(&a, log_path, 0, &text, &err), err);
    struct str torn = str_fmt(&a, "%.*s1 70", STR_ARG(text));
    CHECK_OK(os_file_save(log_path, torn, &err), err);
    CHECK_OK(part_open(&a, path, &file, &p, &err), err);
    CHECK_STR(str_of(p.etag), STR("\"tag\""));
    CHECK_INT(p.n_done, 5096);
    CHECK_INT(p.done[1], 0);
    CHECK_INT(p.log_end, text.n);
    part_close(&p);
    /* nonsense, and more than the data holds */
    static const char *const wrong[] = {"1 99999999\n", "7 1\n", "-1 5\n", "1 -5\n", "x\n", "1\n", "etag\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_OK(os_file_save(log_path, str_fmt(&a, "%.*s%s0 5000\n", STR_ARG(text), wrong[i]), &err), err);
        CHECK_OK(part_open(&a, path, &file, &p, &err), err);
        CHECK_INT(p.n_done, 5096);
        part_close(&p);
    }
    /* another file: everything begins again */
    struct hub_file other = file;
    memset(other.sha256, 'a', 64);
    CHECK_OK(part_open(&a, path, &other, &p, &err), err);
    CHECK_INT(p.n_done, 0);
    CHECK(!p.etag[0]);
    part_close(&p);
    arena_free(&a);
}

/* Free pieces first, then the kept one that is needed last; what is taken stays taken; each owner finds his own. */
static void pools_of_pieces(void) {
    struct pieces p;
    struct piece *q[4];
    int a, b;
    pieces_init(&p, 4);
    for (size_t i = 0; i < 4; i++) {
        q[i] = pieces_take(&p);
        CHECK(q[i] && q[i]->n == 0);
        *q[i] = (struct piece){.data = q[i]->data, .owner = i < 3 ? &a : &b, .at = i * 100, .n = 100, .state = q[i]->state};
        memset(q[i]->data, (int)i, PIECE_BYTES);
    }
    CHECK(!pieces_take(&p) && !pieces_find(&p, &a, 0));
    for (size_t i = 0; i < 4; i++) piece_keep(q[i]);
    CHECK(!pieces_find(&p, &a, 300) && !pieces_find(&p, &b, 299) && !pieces_find(&p, &b, 400));
    CHECK(pieces_find(&p, &a, 199) == q[1] && !pieces_find(&p, &a, 199));
    CHECK(q[1]->data[0] == 1 && q[1]->data[PIECE_BYTES - 1] == 1);
    CHECK(pieces_take(&p) == q[3] && pieces_take(&p) == q[2] && pieces_take(&p) == q[0] && !pieces_take(&p));
    piece_give_back(q[1]);
    piece_give_back(NULL);
    CHECK(pieces_take(&p) == q[1]);
    q[2]->owner = &b;
    piece_keep(q[0]);
    piece_keep(q[2]);
    pieces_forget(&p, &a);
    CHECK(q[0]->state == PIECE_FREE && q[2]->state == PIECE_KEPT);
    pieces_free(&p);
    CHECK(p.n == 0);
}

static void manifests(void) {
    struct arena a = {0};
    struct err err;
    struct hub_file files[2] = {{.name = STR("config.json"), .size = 2}, {.name = STR("sub/w.safetensors"), .size = 10}};
    bool have[2] = {true, false};
    struct str stale[1] = {STR("old.json")};
    memset(files[1].sha256, 'b', 64);
    struct manifest m = {.id = STR("o/n"), .commit = STR("c"), .files = files, .have = have, .n_files = 2, .stale = stale, .n_stale = 1},
                    got;
    const char *dir = str_fmt(&a, "%s/model", unit_scratch_dir()).p;
    CHECK_OK(os_make_dirs(dir, &err), err);
    CHECK_INT(manifest_load(&a, dir, &got, &err), ERR_ENOTFOUND);
    CHECK_OK(manifest_save(dir, &m, &err), err);
    CHECK_OK(manifest_load(&a, dir, &got, &err), err);
    CHECK_INT(got.n_files, 2);
    CHECK_STR(got.files[1].name, STR("sub/w.safetensors"));
    CHECK(got.have[0] && !got.have[1] && !got.complete && got.files[1].sha256[0] == 'b' && !got.revision.p);
    CHECK_STR(got.stale[0], STR("old.json"));
    CHECK_INT(store_check(dir, &err), ERR_EFORMAT);
    CHECK(store_is_partial(dir));
    CHECK_OK(os_file_save(str_fmt(&a, "%s/config.json", dir).p, STR("{}"), &err), err);
    CHECK_INT(store_check(dir, &err), ERR_EFORMAT);
    CHECK_STR(str_of(err.msg), STR("sub/w.safetensors is missing"));
    /* a manifest from outside that wants to leave the folder */
    CHECK_OK(os_file_save(str_fmt(&a, "%s/.mlxcel/manifest.json", dir).p, STR("{\"files\":[{\"name\":\"../x\",\"size\":1}]}"), &err), err);
    CHECK_INT(manifest_load(&a, dir, &got, &err), ERR_EFORMAT);
    arena_free(&a);
}

static bool stop_at_half(void *user, uint64_t done, uint64_t total) {
    ++*(int *)user;
    return done < total / 2;
}

/* Somebody who wants no more of an import finds the store as it was; so does one whose verification ends early. */
static void imports_that_are_stopped(void) {
    struct arena a = {0};
    struct err err;
    struct repo_name repo;
    int n_steps = 0;
    const char *from = str_fmt(&a, "%s/from", unit_scratch_dir()).p, *store = str_fmt(&a, "%s/store", unit_scratch_dir()).p;
    struct watch watch = {.tell = stop_at_half, .user = &n_steps};
    struct import_request q = {.from = from, .repo = &repo, .watch = &watch};
    struct os_stat st;
    struct store_model *models;
    size_t n;
    CHECK_OK(os_make_dirs(from, &err), err);
    CHECK_OK(os_file_save(str_fmt(&a, "%s/config.json", from).p, STR("{}"), &err), err);
    CHECK_OK(os_file_save(str_fmt(&a, "%s/model.safetensors", from).p, STR("0123456789"), &err), err);
    CHECK_OK(repo_name_parse(STR("o/n"), STR("x"), &repo, &err), err);
    CHECK_INT(store_import(&a, store, &q, &err), ERR_ECANCELLED);
    CHECK(n_steps > 0 && watch.total == 12);
    CHECK_INT(os_stat(str_fmt(&a, "%s/o", store).p, &st, NULL), ERR_ENOTFOUND);
    q.watch = NULL;
    CHECK_OK(store_import(&a, store, &q, &err), err);
    watch = (struct watch){.tell = stop_at_half, .user = &n_steps};
    CHECK_INT(store_verify(store_model_path(&a, store, &repo), &watch, &err), ERR_ECANCELLED);
    CHECK(watch.total == 12);
    CHECK_OK(store_list(&a, store, &models, &n, &err), err);
    CHECK(n == 1 && models[0].imported && !models[0].problem.p);
    arena_free(&a);
}

/* Failures in a row until there is no next try, each after so many fruitless seconds; -1: it would go on for ever. */
static int count_failures(struct patience *p, int32_t retry_after, int seconds, struct err *err) {
    struct http_reply r = {.retry_after = retry_after};
    for (int n = 1; n < 1000; n++) {
        int32_t ms;
        patience_fruitless(p, (uint64_t)seconds * 1000000000);
        err_set(err, ERR_ENETWORK, "the reason");
        if (patience_ask(p, &r, &ms, err)) return n;
    }
    return -1;
}

static void patience_has_an_end(void) {
    static const struct {
        int32_t n_tries, retry_after;
        int seconds, n_failures;
        const char *message;
    } rows[] = {
        {6, -1, 0, 6, "the reason"},
        {1, -1, 0, 1, "the reason"},
        {100000, -1, 0, 23, NULL}, /* 0.5, 1, 2, 4, 8, 16 s and so on */
        {100000, 10, 0, 31, NULL},
        {100000, 10, 20, 11, NULL},
        {100000, 300, 0, 2, NULL},
        {6, 301, 0, 1, "the reason; the next try would be in 5:01, and no more than 5:00 is spent on waiting (download --max-wait)"},
        {6, 86400, 0, 1, "the reason; the next try would be in 24:00:00, and no more than 5:00 is spent on waiting (download --max-wait)"},
    };
    struct err err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct patience p = {.n_tries = rows[i].n_tries, .limit_ms = 300000};
        CHECK_INT(count_failures(&p, rows[i].retry_after, rows[i].seconds, &err), rows[i].n_failures);
        if (rows[i].message) CHECK_STR(str_of(err.msg), str_of(rows[i].message));
    }
    /* what comes in between gives as much time again, and no more */
    struct patience p = {.n_tries = 3, .limit_ms = 20000};
    int32_t ms;
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(patience_ask(&p, &(struct http_reply){.retry_after = 10}, &ms, &err), err);
        CHECK_INT(ms, 10000);
        patience_fruitful(&p, UINT64_C(10000000000));
    }
    CHECK_INT(patience_left_ms(&p), 20000);
    patience_fruitless(&p, UINT64_C(30000000000));
    CHECK_INT(patience_left_ms(&p), 0);
}

static void meter_lines(void) {
    struct sb out = {0};
    char text[32];
    meter_line(&out, 500000000, 2000000000, 1e8, 100);
    CHECK_STR(sb_str(&out), STR(" 25 % [#######.....................] 500 MB of 2.0 GB, 100 MB/s, 15 s left"));
    sb_clear(&out);
    meter_line(&out, 0, 0, 0, 0);
    CHECK_STR(sb_str(&out), STR("100 % 0 B of 0 B"));
    sb_free(&out);
    CHECK_STR(str_of(meter_time(61, text)), STR("61 s"));
    CHECK_STR(str_of(meter_time(185, text)), STR("3:05"));
    CHECK_STR(str_of(meter_time(3750, text)), STR("1:02:30"));
    CHECK_STR(str_of(meter_time(1e300 * 1e10, text)), STR("?"));
    CHECK_STR(str_of(hub_size_text(999, text)), STR("999 B"));
    CHECK_STR(str_of(hub_size_text(335000000, text)), STR("335 MB"));
}

/* libcurl is there, and a place where nobody listens is an error that may pass. */
static void a_request(void) {
    struct err err;
    struct http *h;
    struct http_reply r = {0};
    if (http_open(&(struct http_options){.stall_s = 5}, &h, &err)) unit_skip("%s", err.msg);
    struct http_request q = {.url = "http://127.0.0.1:9/x"};
    CHECK_INT(http_send(h, &q, &r, &err), ERR_ENETWORK);
    CHECK(r.transient && str_find(str_of(err.msg), STR("127.0.0.1:9"), 0) != STR_NONE);
    q.url = "file:///etc/passwd";
    CHECK_INT(http_send(h, &q, &r, &err), ERR_EARG);
    http_reply_free(&r);
    http_close(h);
}

/* A folder's name that is misspelt looks like a model of the hub: the error says both. */
static void a_name_that_nobody_answers(void) {
    struct arena a = {0};
    struct err err;
    struct http *h;
    const char *path, *name;
    struct store_options o = {
        .hub = {.endpoint = "http://127.0.0.1:9", .n_tries = 1}, .owner = "mlx-community", .models_dir = unit_scratch_dir()};
    if (http_open(&(struct http_options){.stall_s = 5}, &h, &err)) unit_skip("%s", err.msg);
    http_close(h);
    CHECK_INT(store_resolve(&a, &o, "modle", &path, &name, &err), ERR_ENETWORK);
    struct str want = STR("there is no file or folder \"modle\" here, and mlx-community/modle could not be downloaded: http://127.0.0.1:9");
    CHECK(str_starts(str_of(err.msg), want));
    CHECK_INT(store_resolve(&a, &o, "https://huggingface.co/a/b", &path, &name, &err), ERR_EARG);
    arena_free(&a);
}

static void public_addresses(void) {
    static const struct {
        unsigned char bytes[16];
        int n;
        bool is_public;
    } rows[] = {
        {{8, 8, 8, 8}, 4, true},
        {{1, 1, 1, 1}, 4, true},
        {{100, 63, 255, 255}, 4, true},
        {{100, 128, 0, 1}, 4, true},
        {{172, 15, 0, 1}, 4, true},
        {{172, 32, 0, 1}, 4, true},
        {{192, 167, 1, 1}, 4, true},
        {{198, 20, 0, 1}, 4, true},
        {{223, 255, 255, 255}, 4, true},
        {{0, 0, 0, 0}, 4, false},
        {{10, 255, 0, 1}, 4, false},
        {{100, 64, 0, 1}, 4, false},
        {{127, 0, 0, 1}, 4, false},
        {{127, 255, 0, 1}, 4, false},
        {{169, 254, 169, 254}, 4, false},
        {{172, 16, 0, 1}, 4, false},
        {{172, 31, 255, 255}, 4, false},
        {{192, 0, 0, 8}, 4, false},
        {{192, 0, 2, 1}, 4, false},
        {{192, 88, 99, 1}, 4, false},
        {{192, 168, 1, 1}, 4, false},
        {{198, 19, 0, 1}, 4, false},
        {{198, 51, 100, 1}, 4, false},
        {{203, 0, 113, 9}, 4, false},
        {{224, 0, 0, 1}, 4, false},
        {{240, 0, 0, 1}, 4, false},
        {{255, 255, 255, 255}, 4, false},
        {{0x20, 0x01, 0x48, 0x60, 0x48, 0x60, [15] = 0x88}, 16, true},
        {{0x2A, 0x00, 0x14, 0x50, [15] = 1}, 16, true},
        {{[10] = 0xFF, [11] = 0xFF, [12] = 8, [13] = 8, [14] = 8, [15] = 8}, 16, true},
        {{[15] = 0}, 16, false},
        {{[15] = 1}, 16, false},
        {{[10] = 0xFF, [11] = 0xFF, [12] = 127, [15] = 1}, 16, false},
        {{[12] = 8, [13] = 8, [14] = 8, [15] = 8}, 16, false},   /* ::8.8.8.8 */
        {{0, 0x64, 0xFF, 0x9B, [12] = 10, [15] = 1}, 16, false}, /* through NAT64 */
        {{0x20, 0x01, 0, 0, [15] = 1}, 16, false},               /* Teredo */
        {{0x20, 0x01, 0x0D, 0xB8, [15] = 1}, 16, false},         /* documentation */
        {{0x20, 0x02, 127, 0, 0, 1, [15] = 1}, 16, false},       /* 6to4 */
        {{0x3F, 0xFF, 0x0A, [15] = 1}, 16, false},
        {{0xFC, 0, [15] = 1}, 16, false},
        {{0xFD, 0x12, [15] = 1}, 16, false},
        {{0xFE, 0x80, [15] = 1}, 16, false},
        {{0xFF, 0x02, [15] = 1}, 16, false},
        {{8, 8, 8, 8}, 0, false},
        {{8, 8, 8, 8}, 5, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) CHECK_INT(address_is_public(rows[i].bytes, rows[i].n), rows[i].is_public);
}

static const struct unit_case cases[] = {{"model_names", model_names},
                                         {"short_names", short_names},
                                         {"file_names", file_names},
                                         {"public_addresses", public_addresses},
                                         {"origins", origins},
                                         {"digests", digests},
                                         {"journals", journals},
                                         {"pools_of_pieces", pools_of_pieces},
                                         {"manifests", manifests},
                                         {"patience_has_an_end", patience_has_an_end},
                                         {"meter_lines", meter_lines},
                                         {"a_request", a_request},
                                         {"imports_that_are_stopped", imports_that_are_stopped},
                                         {"a_name_that_nobody_answers", a_name_that_nobody_answers},
                                         {0}};
const struct unit_suite unit_hub = {"hub", cases};
