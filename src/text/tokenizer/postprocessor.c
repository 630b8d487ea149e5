/* Post-processors: the ids that are put around a text when special tokens are asked for.
 *
 * All of them together come to "ids before, ids after": TemplateProcessing's template for a single sequence, BERT's and
 * RoBERTa's fixed pairs, and ByteLevel, which only moves offsets and adds nothing.
 */
#include "text/tokenizer/internal.h"

static int check_count(size_t n, struct err *err) {
    if (n <= TOK_MAX_POST_IDS) return ERR_OK;
    return err_set(err, ERR_ELIMIT, "tokenizer.json: the post-processor puts more than %d ids before or after a text", TOK_MAX_POST_IDS);
}

/* Puts one processor's ids around what is there already. */
static int wrap(struct tok_post *post, struct tok_ids *before, const struct tok_ids *after, struct err *err) {
    TRY(check_count(post->before.n + before->n, err));
    TRY(check_count(post->after.n + after->n, err));
    for (size_t i = 0; i < post->before.n; i++) tok_ids_put(before, post->before.p[i]);
    tok_ids_free(&post->before);
    post->before = *before;
    *before = (struct tok_ids){0};
    for (size_t i = 0; i < after->n; i++) tok_ids_put(&post->after, after->p[i]);
    return ERR_OK;
}

static int put_id(struct tok_ids *ids, yyjson_val *value, const char *what, struct err *err) {
    int64_t id;
    if (!json_val_int(value, &id) || id < 0 || id >= TOK_MAX_ID)
        return err_set(err, ERR_EFORMAT, "tokenizer.json: %s names an id that is no number from 0 to %d", what, TOK_MAX_ID - 1);
    tok_ids_put(ids, (int32_t)id);
    return check_count(ids->n, err);
}

static int put_special(struct tok_ids *ids, yyjson_val *specials, yyjson_val *piece, struct err *err) {
    struct str name = json_str(piece, "id", (struct str){0});
    yyjson_val *list = json_get(name.p ? yyjson_obj_getn(specials, name.p, name.n) : NULL, "ids"), *value;
    size_t i, n;
    if (!yyjson_is_arr(list))
        return err_set(err, ERR_EFORMAT, "tokenizer.json: TemplateProcessing uses \"%.*s\", which special_tokens does not list",
                       STR_ARG(name));
    yyjson_arr_foreach(list, i, n, value) TRY(put_id(ids, value, "TemplateProcessing", err));
    return ERR_OK;
}

static int read_template(yyjson_val *json, struct tok_ids *before, struct tok_ids *after, struct err *err) {
    yyjson_val *list = json_get(json, "single"), *specials = json_get(json, "special_tokens"), *piece;
    size_t i, n;
    int n_text = 0;
    if (!yyjson_is_arr(list)) return err_set(err, ERR_EFORMAT, "tokenizer.json: TemplateProcessing has no list \"single\"");
    if (yyjson_arr_size(list) > TOK_MAX_POST_IDS)
        return err_set(err, ERR_ELIMIT, "tokenizer.json: TemplateProcessing has a list \"single\" of %zu pieces, at most %d are read",
                       yyjson_arr_size(list), TOK_MAX_POST_IDS);
    yyjson_arr_foreach(list, i, n, piece) {
        if (json_get(piece, "Sequence")) n_text++;
        else TRY(put_special(n_text ? after : before, specials, json_get(piece, "SpecialToken"), err));
    }
    if (n_text != 1)
        return err_set(err, ERR_EUNSUPPORTED, "tokenizer.json: TemplateProcessing has the text %d times in \"single\", not once", n_text);
    return ERR_OK;
}

void tok_post_free_pair(struct tok_post *post) {
    for (int i = 0; i < 3; i++) {
        tok_ids_free(&post->pair[i]);
        tok_ids_free(&post->pair_types[i]);
    }
    post->has_pair = false;
}

/* One piece of a pair's template; n_text counts the texts so far. False: it cannot be followed. */
static bool put_piece(struct tok_post *post, yyjson_val *piece, yyjson_val *specials, int *n_text) {
    yyjson_val *text = json_get(piece, "Sequence"), *special = json_get(piece, "SpecialToken");
    int32_t type = json_int(text ? text : special, "type_id", 0) == 1;
    if (text) {
        if (*n_text == 2 || !str_is(json_str(text, "id", STR("")), *n_text ? "B" : "A")) return false;
        post->text_types[(*n_text)++] = type;
        return true;
    }
    struct tok_ids *ids = &post->pair[*n_text], *types = &post->pair_types[*n_text];
    if (put_special(ids, specials, special, NULL)) return false;
    while (types->n < ids->n) tok_ids_put(types, type);
    return true;
}

/* A pair's own template. Where it cannot be followed, that is told when two texts are to be encoded. */
static void read_template_pair(struct tok_post *post, yyjson_val *json) {
    yyjson_val *list = json_get(json, "pair"), *specials = json_get(json, "special_tokens"), *piece;
    size_t i, n;
    int n_text = 0;
    bool ok = yyjson_is_arr(list) && yyjson_arr_size(list) <= TOK_MAX_POST_IDS;
    if (post->has_pair || !ok) return;
    yyjson_arr_foreach(list, i, n, piece) ok = ok && put_piece(post, piece, specials, &n_text);
    if (ok && n_text == 2) post->has_pair = true;
    else tok_post_free_pair(post);
}

/* BERT's and RoBERTa's: cls A sep B sep, the second text of type 1; cls A sep sep B sep, all of one type. */
static void make_pair(struct tok_post *post, int32_t cls, int32_t sep,
                      bool has_two /* sep comes twice between the texts, which are of one type */) {
    if (post->has_pair) return;
    const int32_t type = !has_two;
    tok_ids_put(&post->pair[0], cls);
    tok_ids_put(&post->pair_types[0], 0);
    for (int i = 0; i < 1 + has_two; i++) {
        tok_ids_put(&post->pair[1], sep);
        tok_ids_put(&post->pair_types[1], 0);
    }
    tok_ids_put(&post->pair[2], sep);
    tok_ids_put(&post->pair_types[2], type);
    post->text_types[1] = type;
    post->has_pair = true;
}

static int read_pair(yyjson_val *json, struct tok_ids *before, struct tok_ids *after, struct err *err) {
    TRY(put_id(before, yyjson_arr_get(json_get(json, "cls"), 1), "the post-processor's cls", err));
    return put_id(after, yyjson_arr_get(json_get(json, "sep"), 1), "the post-processor's sep", err);
}

static int read_one(struct tok *t, yyjson_val *json, int depth, struct err *err) {
    struct str type;
    struct tok_ids before = {0}, after = {0};
    TRY(tok_type_of(json, "a post-processor", &type, err));
    if (str_is(type, "Sequence")) {
        yyjson_val *list = json_get(json, "processors"), *part;
        size_t i, n;
        if (depth >= TOK_MAX_DEPTH)
            return err_set(err, ERR_ELIMIT, "tokenizer.json: post-processors are nested more than %d deep", TOK_MAX_DEPTH);
        if (!yyjson_is_arr(list))
            return err_set(err, ERR_EFORMAT, "tokenizer.json: the post-processor Sequence has no list \"processors\"");
        yyjson_arr_foreach(list, i, n, part) TRY(read_one(t, part, depth + 1, err));
        return ERR_OK;
    }
    int code = ERR_OK;
    if (str_is(type, "TemplateProcessing")) code = read_template(json, &before, &after, err);
    else if (str_is(type, "BertProcessing") || str_is(type, "RobertaProcessing")) code = read_pair(json, &before, &after, err);
    else if (!str_is(type, "ByteLevel")) code = tok_unknown(type, "post-processor", err);
    if (!code && str_is(type, "TemplateProcessing")) read_template_pair(&t->post, json);
    else if (!code && before.n && after.n) make_pair(&t->post, before.p[0], after.p[0], str_is(type, "RobertaProcessing"));
    if (!code) code = wrap(&t->post, &before, &after, err);
    tok_ids_free(&before);
    tok_ids_free(&after);
    return code;
}

int tok_read_post_processor(struct tok *t, yyjson_val *root, struct err *err) {
    yyjson_val *json = json_get(root, "post_processor");
    if (!json || yyjson_is_null(json)) return ERR_OK;
    return read_one(t, json, 0, err);
}
