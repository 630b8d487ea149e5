/* Unigram: the segmentation whose token scores add up to the most (Viterbi over a trie of all tokens).
 *
 * Scores are added in double precision in the reference's order, and a later path must be strictly better to win, so
 * that ties fall the same way. Runs of unknown characters become one unknown token, or bytes where the vocabulary has
 * them.
 */
#include "text/tokenizer/internal.h"

#include <math.h>
#include <stdio.h>

struct unigram {
    struct tok_trie trie;
    double *scores; /* by id */
    double unk_score;
    int32_t unk; /* -1: none */
    bool byte_fallback, single;
};

struct node {
    double score; /* of the best path that ends here */
    size_t start; /* where its last token begins; SIZE_MAX: not reached */
    int32_t id;
};

static void offer(struct node *to, double score, size_t start, int32_t id) {
    if (to->start != SIZE_MAX && !(score > to->score)) return;
    *to = (struct node){score, start, id};
}

static inline double add(const struct unigram *u, double score, double here) {
    return u->single ? (double)(float)(score + here) : score + here;
}

static int lattice(const struct unigram *u, struct str s, struct node *nodes, struct err *err) {
    for (size_t i = 0; i <= s.n; i++) nodes[i] = (struct node){0, SIZE_MAX, 0};
    for (size_t i = 0, len; i < s.n; i += len) {
        double here = nodes[i].score;
        bool single = false;
        uint32_t at = 0;
        len = tok_utf8_len((unsigned char)s.p[i]);
        if (len > s.n - i) len = s.n - i;
        for (size_t k = i; k < s.n; k++) {
            at = tok_trie_step(&u->trie, at, (unsigned char)s.p[k]);
            if (!at) break;
            int32_t id = u->trie.nodes[at].value;
            if (id < 0) continue;
            offer(&nodes[k + 1], add(u, u->scores[id], here), i, id);
            if (k + 1 - i == len) single = true;
        }
        if (single) continue;
        if (u->unk < 0)
            return err_set(err, ERR_EFORMAT, "tokenizer: the text has a character that is not in the vocabulary, and there is no unk_id");
        offer(&nodes[i + len], add(u, u->unk_score, here), i, u->unk);
    }
    return ERR_OK;
}

/* A run of unknown text: it may be a token after all, or bytes, or one unknown token. */
static void put_unknown(const struct tok *t, const struct unigram *u, struct str text, struct tok_ids *out) {
    int32_t id = tok_table_find(&t->table, text.p, text.n);
    if (id >= 0) {
        tok_ids_put(out, id);
        return;
    }
    bool bytes = u->byte_fallback;
    for (size_t i = 0; i < text.n && bytes; i++) bytes = tok_byte_fallback_id(t, (unsigned char)text.p[i]) >= 0;
    if (!bytes) tok_ids_put(out, u->unk);
    for (size_t i = 0; i < text.n && bytes; i++) tok_ids_put(out, tok_byte_fallback_id(t, (unsigned char)text.p[i]));
}

/* Writes the path that ends at the end of s: first its tokens from back to front, as links from start to end. */
static void put_path(const struct tok *t, const struct unigram *u, struct str s, struct node *nodes, struct tok_ids *out) {
    size_t end = s.n, next = SIZE_MAX;
    while (end > 0) { /* turn the links around: nodes[start].score is not needed any more, start of the next goes there */
        size_t start = nodes[end].start;
        nodes[end].start = next;
        next = end;
        end = start;
    }
    for (size_t start = 0; next != SIZE_MAX;) {
        size_t to = next;
        if (nodes[to].id != u->unk) {
            tok_ids_put(out, nodes[to].id);
            next = nodes[to].start;
            start = to;
            continue;
        }
        while (nodes[to].start != SIZE_MAX && nodes[nodes[to].start].id == u->unk) to = nodes[to].start;
        put_unknown(t, u, str_sub(s, start, to - start), out);
        next = nodes[to].start;
        start = to;
    }
}

static int unigram_encode(const struct tok *t, struct tok_work *w, struct str piece, struct tok_ids *out, struct err *err) {
    const struct unigram *u = t->model.self;
    size_t bytes;
    if (piece.n == SIZE_MAX || size_mul(piece.n + 1, sizeof(struct node), &bytes))
        return err_set(err, ERR_ELIMIT, "tokenizer: a piece of %zu bytes is too long", piece.n);
    TRY(tok_scratch(&w->scratch, &w->scratch_bytes, bytes, err));
    TRY(lattice(u, piece, w->scratch, err));
    put_path(t, u, piece, w->scratch, out);
    return ERR_OK;
}

int tok_unigram_init(struct tok *t, const struct tok_unigram_options *o, struct err *err) {
    struct unigram *u = arena_new(&t->arena, struct unigram, 1);
    size_t n = t->n_vocab_ids, n_items = 0;
    TRY(tok_check_lengths(t, err));
    u->scores = arena_try(&t->arena, (n + 1) * sizeof *u->scores);
    struct tok_trie_item *items = mem_try((n + 1) * sizeof *items);
    if (!u->scores || !items) {
        mem_free(items);
        return err_set(err, ERR_EMEMORY, "tokenizer: no memory for %zu scores", n);
    }
    memcpy(u->scores, o->scores, n * sizeof *u->scores);
    for (size_t i = 0; i < n; i++)
        if (t->vocab[i].n && !(o->skip && o->skip[i])) items[n_items++] = (struct tok_trie_item){t->vocab[i], (int32_t)i};
    u->unk_score = o->unk_score;
    u->unk = o->unk;
    u->byte_fallback = o->byte_fallback;
    u->single = o->single;
    int code = tok_trie_build(&t->arena, &u->trie, items, n_items, err);
    mem_free(items);
    t->model = (struct tok_model){"Unigram", unigram_encode, u};
    t->unk = o->unk;
    return code;
}

static double power_of_ten(int exponent) {
    char text[16];
    double value = 1;
    snprintf(text, sizeof text, "1e%d", exponent);
    str_to_double(str_of(text), &value);
    return value;
}

/* A score as the reference reads it. Its JSON parser multiplies or divides the digits by a power of ten; with more than
 * 15 digits that can be one unit off the nearest number, and then decides between two paths of equal score. Files hold
 * the shortest digits that give the number back. */
static double as_read(double value) {
    char text[40];
    double back;
    for (int digits = 14; digits <= 16; digits++) {
        snprintf(text, sizeof text, "%.*e", digits, value);
        if (str_to_double(str_of(text), &back) && back == value) {
            if (digits == 14) return value; /* both roundings are exact */
            break;
        }
    }
    uint64_t significand = 0;
    int n_after = 0;
    const char *p = text;
    for (bool point = false; *p && *p != 'e'; p++) {
        if (*p == '.') point = true;
        if (*p < '0' || *p > '9') continue;
        significand = significand * 10 + (uint64_t)(*p - '0');
        n_after += point;
    }
    int64_t power = 0;
    if (*p == 'e') str_to_int64(str_of(p[1] == '+' ? p + 2 : p + 1), &power);
    int exponent = (int)power - n_after;
    if (exponent < -300 || exponent > 300) return value;
    double result = exponent < 0 ? (double)significand / power_of_ten(-exponent) : (double)significand * power_of_ten(exponent);
    return value < 0 ? -result : result;
}

int tok_read_unigram(struct tok *t, yyjson_val *model, struct err *err) {
    yyjson_val *list = json_get(model, "vocab"), *row;
    size_t i, n, count;
    int64_t unk = json_int(model, "unk_id", -1);
    if (!yyjson_is_arr(list) || (count = yyjson_arr_size(list)) == 0 || count >= TOK_MAX_ID)
        return err_set(err, ERR_EFORMAT, "tokenizer.json: Unigram has no list \"vocab\" of usable length");
    if (unk < -1 || unk >= (int64_t)count)
        return err_set(err, ERR_EFORMAT, "tokenizer.json: unk_id %lld is not in the vocabulary", (long long)unk);
    struct str *tokens = mem_try(count * sizeof *tokens);
    double *scores = mem_try(count * sizeof *scores);
    int code = tokens && scores ? ERR_OK : err_set(err, ERR_EMEMORY, "tokenizer.json: no memory for %zu tokens", count);
    if (!code) yyjson_arr_foreach(list, i, n, row) {
            yyjson_val *score = yyjson_arr_get(row, 1);
            tokens[i] = json_val_str(yyjson_arr_get(row, 0));
            if (!tokens[i].p || !yyjson_is_num(score)) {
                code = err_set(err, ERR_EFORMAT, "tokenizer.json: row %zu of Unigram's vocab is not a token and a score", i);
                break;
            }
            scores[i] = as_read(yyjson_get_num(score));
        }
    if (!code) code = tok_set_vocab(t, tokens, NULL, count, err);
    double least = INFINITY;
    for (i = 0; !code && i < count; i++)
        if (scores[i] < least) least = scores[i];
    struct tok_unigram_options o = {
        .scores = scores, .unk_score = least - 10.0, .unk = (int32_t)unk, .byte_fallback = json_bool(model, "byte_fallback", false)};
    if (!code) code = tok_unigram_init(t, &o, err);
    mem_free(tokens);
    mem_free(scores);
    return code;
}
