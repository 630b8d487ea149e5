/* Standard input as TOML, printed as JSON; or the error, and 1. For test_toml.py. */
#include "base/json.h"
#include "base/toml.h"
#include "os/os.h"

static void put(struct jsonw *w, const struct toml *v) {
    switch (v->kind) {
    case TOML_STRING: jsonw_str(w, v->s); break;
    case TOML_INT: jsonw_int(w, v->i); break;
    case TOML_FLOAT: jsonw_num(w, v->f); break;
    case TOML_BOOL: jsonw_bool(w, v->i != 0); break;
    case TOML_ARRAY:
    case TOML_TABLE:
        jsonw_begin(w, v->kind == TOML_ARRAY ? '[' : '{');
        for (const struct toml *c = v->first; c; c = c->next) {
            if (v->kind == TOML_TABLE) jsonw_key_str(w, c->key);
            put(w, c);
        }
        jsonw_end(w, v->kind == TOML_ARRAY ? ']' : '}');
    }
}

/* Documents are separated by a line with NUL; each gets a line. */
int main(void) {
    struct arena a = {0};
    struct str text, piece;
    struct err err;
    if (os_read_stdin(&a, UINT64_C(1) << 30, &text, &err)) return 2;
    while (str_split_next(&text, '\0', &piece)) {
        struct sb out = {0};
        struct jsonw w = {.out = &out};
        struct toml *root;
        if (toml_parse(&a, piece, "in", &root, &err)) sb_fmt(&out, "error %s", err.msg);
        else put(&w, root);
        sb_putc(&out, '\n');
        os_write(OS_STDOUT, sb_str(&out), NULL);
        sb_free(&out);
    }
    arena_free(&a);
    return 0;
}
