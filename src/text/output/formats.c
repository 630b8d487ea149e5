/* The table of formats, and how a template shows which one is its model's. */
#include "text/output/formats.h"

#include "text/output/literal.h"

static const struct output_frame frame_channel = {.begin = "<|start|>assistant",
                                                  .message = "<|message|>",
                                                  .marks = {"<|channel|>", "<|constrain|>"},
                                                  .ends = {"<|end|>", "<|return|>", "<|call|>"},
                                                  .thoughts = "analysis"};
static const struct output_frame frame_recipient = {.begin = "<|start|>assistant",
                                                    .message = "<|message|>",
                                                    .ends = {"<|eom|>"},
                                                    .thoughts = "self"};
static const struct output_frame frame_name = {.begin = ">>>", .message = "\n", .everyone = "all"};

enum reasoning_id {
#define REASONING(id, ...) ID_##id,
#define FORMAT(...)
#include "text/output/formats.def"
#undef FORMAT
#undef REASONING
    N_REASONINGS
};

const struct output_reasoning output_reasonings[] = {
#define REASONING(id, ...) {.name = #id, __VA_ARGS__},
#define FORMAT(...)
#include "text/output/formats.def"
#undef FORMAT
#undef REASONING
    {0},
};

const struct output_format output_formats[] = {
#define REASONING(...)
#define FORMAT(id, ...) {.name = id, __VA_ARGS__},
#include "text/output/formats.def"
#undef FORMAT
#undef REASONING
    {0},
};

const struct output_format *output_format_at(size_t i) {
    return i < sizeof output_formats / sizeof *output_formats - 1 ? &output_formats[i] : NULL;
}

const struct output_format *output_format_find(struct str name) {
    const struct output_format *f = output_formats;
    while (f->name && !str_is(name, f->name)) f++;
    return f->name ? f : NULL;
}

const char *output_format_name(const struct output_format *f) {
    return f->name;
}

static bool has(struct str text, const char *part) {
    return part && str_find(text, str_of(part), 0) != STR_NONE;
}

static bool is_shown(struct str text, const struct output_format *f) {
    size_t n = 0;
    while (n < FORMAT_HINTS && has(text, f->hints[n])) n++;
    return n && (n == FORMAT_HINTS || !f->hints[n] || has(text, f->or_hint));
}

const struct output_format *output_format_recognize(struct str template_text) {
    const struct output_format *f = output_formats;
    while (f->name && !is_shown(template_text, f)) f++;
    return f->name ? f : NULL;
}

const struct output_reasoning *output_reasoning_recognize(struct str template_text, const struct output_format *format) {
    const struct output_reasoning *own = format && format->reasoning ? format->reasoning : &output_reasonings[ID_THINK];
    if (has(template_text, own->open)) return own;
    for (const struct output_reasoning *r = output_reasonings; r->name; r++)
        if (has(template_text, r->open)) return r;
    return own;
}

bool output_reasoning_is_open(const struct output_reasoning *r, struct str prompt) {
    if (!r) r = &output_reasonings[ID_THINK];
    return str_ends(str_trim(prompt), str_of(r->open));
}

bool output_reasoning_goes_on(const struct output_reasoning *r, struct str text) {
    if (!r) r = &output_reasonings[ID_THINK];
    size_t open = str_find(text, str_of(r->open), 0);
    return open != STR_NONE && str_find(text, str_of(r->close), open) == STR_NONE;
}

bool output_reasoning_was_open(const struct output_reasoning *r, struct str text) {
    if (!r) r = &output_reasonings[ID_THINK];
    size_t open = str_find(text, str_of(r->open), 0), close = str_find(text, str_of(r->close), 0);
    return close != STR_NONE && !r->ends_others && str_trim(str_sub(text, 0, close)).n && (open == STR_NONE || open > close);
}

struct str output_reasoning_open(const struct output_reasoning *r) {
    return str_of((r ? r : &output_reasonings[ID_THINK])->open);
}

struct str output_reasoning_close(const struct output_format *f, const struct output_reasoning *r) {
    if (f && f->frame) return str_of(f->frame->ends[0]);
    if (!r) r = f && f->reasoning ? f->reasoning : &output_reasonings[ID_THINK];
    return str_of(r->close);
}

static bool holds(const char *text, struct str spelling) {
    return text && str_find(str_of(text), spelling, 0) != STR_NONE;
}

bool output_uses_token(const struct output_format *f, const struct output_reasoning *r, struct str spelling) {
    if (!literal_looks_marked(spelling)) return false;
    if (!r) r = f && f->reasoning ? f->reasoning : &output_reasonings[ID_THINK];
    if (holds(r->open, spelling) || holds(r->close, spelling)) return true;
    if (!f) return false;
    const char *const texts[] = {f->opens[0], f->opens[1], f->opens[2], f->calls[0],  f->calls[1],  f->between,
                                 f->close,    f->quote,    f->element,  f->answer[0], f->answer[1], f->stop};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (holds(texts[i], spelling)) return true;
    for (size_t i = 0; i < FORMAT_SILENT; i++)
        if (holds(f->silent[i], spelling)) return true;
    const struct output_frame *m = f->frame;
    if (!m) return false;
    return holds(m->begin, spelling) || holds(m->message, spelling) || holds(m->marks[0], spelling) || holds(m->marks[1], spelling) ||
           holds(m->ends[0], spelling) || holds(m->ends[1], spelling) || holds(m->ends[2], spelling);
}
