/* Reasoning and content, from the pieces of text/output. */
#include "api/reasoning.h"

void reasoning_init(struct reasoning *r, bool inside) {
    *r = (struct reasoning){0};
    output_init(&r->output, &r->arena, &(struct output_options){.is_open = inside});
}

void reasoning_free(struct reasoning *r) {
    output_free(&r->output);
    output_pieces_free(&r->pieces);
    arena_free(&r->arena);
}

bool reasoning_is_open(struct str prompt) {
    return output_reasoning_is_open(NULL, prompt);
}

static void take(struct reasoning *r, struct sb *out_reasoning, struct sb *out_content) {
    for (size_t i = 0; i < r->pieces.n; i++) {
        const struct output_piece *p = &r->pieces.p[i];
        sb_put(p->kind == OUTPUT_REASONING ? out_reasoning : out_content, output_piece_text(&r->pieces, p));
    }
    output_pieces_clear(&r->pieces);
}

void reasoning_push(struct reasoning *r, struct str text, struct sb *out_reasoning, struct sb *out_content) {
    output_push(&r->output, text, &r->pieces);
    take(r, out_reasoning, out_content);
}

void reasoning_flush(struct reasoning *r, struct sb *out_reasoning, struct sb *out_content) {
    output_flush(&r->output, false, &r->pieces);
    take(r, out_reasoning, out_content);
}
