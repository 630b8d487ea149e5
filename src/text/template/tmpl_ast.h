/* The parsed form of a template: tokens, and one kind of node for expressions and statements. Made once, never changed. */
#ifndef MLXCEL_TEXT_TEMPLATE_TMPL_AST_H
#define MLXCEL_TEXT_TEMPLATE_TMPL_AST_H

#include "base/map.h"
#include "text/template/tmpl_value.h"

#include <setjmp.h>

/* rules[] in tmpl_parse_expr.c has a row for each that can stand in an expression. TK_EQ to TK_GE are the comparisons. */
enum tk {
    TK_EOF,
    TK_DATA,
    TK_VAR_BEGIN,
    TK_VAR_END,
    TK_BLOCK_BEGIN,
    TK_BLOCK_END,
    TK_NAME,
    TK_STRING,
    TK_INT,
    TK_FLOAT,
    TK_ADD,
    TK_SUB,
    TK_MUL,
    TK_DIV,
    TK_FLOORDIV,
    TK_MOD,
    TK_POW,
    TK_TILDE,
    TK_EQ,
    TK_NE,
    TK_LT,
    TK_LE,
    TK_GT,
    TK_GE,
    TK_LPAREN,
    TK_RPAREN,
    TK_LBRACKET,
    TK_RBRACKET,
    TK_LBRACE,
    TK_RBRACE,
    TK_DOT,
    TK_COMMA,
    TK_COLON,
    TK_PIPE,
    TK_ASSIGN,
    TK_SEMICOLON,
    /* words that are infix operators; they come from the lexer as names */
    TK_AND,
    TK_OR,
    TK_IN,
    TK_NOT,
    TK_IS,
    N_TOKENS
};

struct token {
    enum tk kind;
    int line;
    struct str text; /* a name, unescaped string or data */
    int64_t i;
    double f;
};

enum lex_state { LEX_ROOT, LEX_BLOCK, LEX_VAR, LEX_RAW };

enum { LEX_MAX_NESTING = 512 };

struct lexer {
    struct arena *arena;
    struct str src; /* newlines normalised */
    size_t pos;
    int line;
    enum lex_state state;
    bool line_starting;
    char closers[LEX_MAX_NESTING];
    int n_closers;
    jmp_buf *fail;
    struct err *err;
    const char *kind; /* of the error; NULL: TemplateSyntaxError */
};

/* Prepares the source as Jinja does: newlines become \n, and one at the end is dropped. */
void tmpl_lex_init(struct lexer *lx, struct arena *a, struct str source);
struct token tmpl_lex_next(struct lexer *lx);
/* Ends lexing and parsing. */
_Noreturn void tmpl_lex_fail(struct lexer *lx, int line, const char *fmt, ...) MLXCEL_PRINTF(3, 4);
const char *tmpl_token_name(enum tk kind);

enum tn {
    /* expressions */
    TN_CONST,
    TN_NAME,
    TN_LIST,
    TN_TUPLE,
    TN_DICT, /* list: key, value, key, value */
    TN_GETATTR,
    TN_GETITEM,
    TN_SLICE, /* a: object; list: start, stop, step (NULL where absent) */
    TN_CALL,
    TN_FILTER,
    TN_TEST,
    TN_NOT,
    TN_NEG,
    TN_POS,
    TN_AND,
    TN_OR,
    TN_BINARY,  /* op: a token */
    TN_CONCAT,  /* list */
    TN_COMPARE, /* a, then list of operands with ops[] */
    TN_COND,    /* b if a else c */
    TN_NSREF,   /* assignment target: name.attr */
    /* statements */
    TN_TEXT,
    TN_PRINT,
    TN_IF,  /* list: condition, body, condition, body; c: else */
    TN_FOR, /* a: target, b: iterable, c: condition, body, orelse */
    TN_SET,
    TN_SET_BLOCK,    /* a: target, b: filter chain over TN_CONST MISSING or NULL, body */
    TN_WITH,         /* list: target, value, ... */
    TN_MACRO,        /* name, params, body */
    TN_CALL_BLOCK,   /* a: call; params; body */
    TN_FILTER_BLOCK, /* b: filter chain; body */
    TN_BREAK,
    TN_CONTINUE,
    TN_BLOCK,
    TN_GENERATION,
    TN_SCOPE,
    TN_REFUSED, /* include, import, from, extends */
    TN_BODY,    /* list */
    N_TN
};

struct targs {
    struct tnode **pos, **kw;
    struct str *kw_names;
    int n_pos, n_kw;
    struct tnode *dyn_pos, *dyn_kw;
};

struct tparams {
    int *names;
    struct tnode **defaults; /* NULL where there is none */
    int n;
    bool uses_caller, uses_varargs, uses_kwargs;
};

/* Names that a scope sets before it reads them: what stands outside under such a name is not seen inside. */
struct thidden {
    int *names;
    int n;
};

struct tnode {
    enum tn kind;
    int line;
    int name; /* interned */
    union {
        enum tk op;
        enum tk *ops;
        bool flag;
    } u;
    struct tnode *a, *b, *c;
    struct tnode *body, *orelse;
    struct thidden hidden; /* of the scope that body runs in */
    struct tnode **list;
    int n_list;
    struct targs *args;
    struct tparams *params;
    const struct builtin *func; /* of a filter or test; NULL: unknown, an error when reached */
    struct tstr *str;           /* text, attribute or name */
    struct tv value;
};

/* Names that every template interns first, in this order. */
enum { NAME_LOOP, NAME_CALLER, NAME_VARARGS, NAME_KWARGS, N_FIXED_NAMES };

struct tmpl {
    struct arena *arena;
    struct str *names; /* interned */
    int n_names;
    uint32_t *name_slots; /* hash table over names: index + 1 */
    size_t n_name_slots;
    struct tnode *root;
    bool *is_hidden; /* [n_names]: set at top level before it is read there, so that the context's value is not seen */
    struct tnode **blocks;
    int n_blocks;
};

int tmpl_name_find(const struct tmpl *t, struct str name); /* -1: the template does not use it */

/* Fills hidden everywhere (tmpl_scopes.c). */
void tmpl_scopes_resolve(struct tmpl *t);

/* The parser, shared by tmpl_parse_expr.c and tmpl_parse_stmt.c. */
struct parser {
    struct lexer lx;
    struct token cur, ahead;
    bool has_ahead;
    struct arena *arena;
    struct tmpl *t;
    struct map names;
    int depth;
    bool soft;                  /* inside an if: unknown filters are errors only when reached */
    struct tnode *unknown;      /* the first unknown filter or test of the expression in hand */
    int n_loops;                /* around this point, within the same macro */
    struct tparams *macros[64]; /* enclosing macros */
    int n_macros;
    jmp_buf fail;
};

enum { PARSE_MAX_DEPTH = 120 };

struct tnode *tmpl_parse_node(struct parser *p, enum tn kind);
struct tnode *tmpl_parse_expression(struct parser *p);
struct tnode *tmpl_parse_tuple(struct parser *p, bool with_condexpr, const char *end_word);
struct tnode *tmpl_parse_assign_target(struct parser *p, bool with_tuple, bool with_namespace, const char *end_word);
struct tnode *tmpl_parse_filter_chain(struct parser *p, struct tnode *input, bool start_inline);
void tmpl_parse_advance(struct parser *p);
struct token tmpl_parse_peek(struct parser *p);
bool tmpl_parse_is(const struct parser *p, enum tk kind);
bool tmpl_parse_is_word(const struct parser *p, const char *word);
bool tmpl_parse_skip(struct parser *p, enum tk kind);
bool tmpl_parse_skip_word(struct parser *p, const char *word);
struct token tmpl_parse_expect(struct parser *p, enum tk kind);
int tmpl_parse_intern(struct parser *p, struct str name);
void tmpl_parse_enter(struct parser *p);
void tmpl_parse_leave(struct parser *p);
_Noreturn void tmpl_parse_fail(struct parser *p, int line, const char *fmt, ...) MLXCEL_PRINTF(3, 4);
_Noreturn void tmpl_parse_refuse(struct parser *p, int line, const char *fmt, ...) MLXCEL_PRINTF(3, 4); /* a TemplateAssertionError */

/* A list that grows in the arena. */
struct node_list {
    struct tnode **items;
    int n, capacity;
};
void tmpl_node_list_push(struct parser *p, struct node_list *l, struct tnode *item);

#endif
