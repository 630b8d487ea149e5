/* Lays the bars out: a block for prompts, one for generation, each scaled by its longest bar. */
#include "cli/bench_plot.h"

enum { WIDTH = 760, LEFT = 150, FULL = 460, ROW = 26, TOP = 58 };

static void put_escaped(struct sb *out, struct str text) {
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '<') sb_puts(out, "&lt;");
        else if (c == '>') sb_puts(out, "&gt;");
        else if (c == '&') sb_puts(out, "&amp;");
        else if ((unsigned char)c >= 0x20) sb_putc(out, c);
    }
}

static double longest(const struct bench_bar *bars, size_t n, bool is_prompt) {
    double most = 0;
    for (size_t i = 0; i < n; i++)
        if (bars[i].is_prompt == is_prompt && bars[i].rate > most) most = bars[i].rate;
    return most;
}

static int put_bar(struct sb *out, const struct bench_bar *b, double most, int y) {
    double width = most > 0 ? b->rate / most * FULL : 0, half = most > 0 ? b->spread / most * FULL : 0;
    sb_fmt(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", LEFT - 10, y + 13, b->name);
    sb_fmt(out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"17\" rx=\"3\"/>", b->is_prompt ? "p" : "g", LEFT, y, width);
    if (half >= 1)
        sb_fmt(out, "<path class=\"s\" d=\"M%.1f %dH%.1f\"/>", LEFT + (width > half ? width - half : 0), y + 8, LEFT + width + half);
    sb_fmt(out, "<text x=\"%.1f\" y=\"%d\">%.*f tok/s</text>\n", LEFT + width + (half >= 1 ? half : 0) + 8, y + 13, b->rate < 100 ? 1 : 0,
           b->rate);
    return y + ROW;
}

void bench_plot(struct str title, const struct bench_bar *bars, size_t n, struct sb *out) {
    int height = TOP + (int)n * ROW + 18, y = TOP;
    sb_fmt(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\">\n<style>text{font:14px system-ui,sans-serif;fill:#1d1e1b}"
        ".t{font-weight:600}.p{fill:#0f766e}.g{fill:#5b8bd0}.s{stroke:#1d1e1b;stroke-width:1.5}"
        "@media(prefers-color-scheme:dark){text{fill:#e9eae6}.s{stroke:#e9eae6}}</style>\n<text class=\"t\" x=\"16\" y=\"28\">",
        WIDTH, height, WIDTH);
    put_escaped(out, title);
    sb_puts(out, "</text>\n");
    for (int is_prompt = 1; is_prompt >= 0; is_prompt--)
        for (size_t i = 0; i < n; i++)
            if (bars[i].is_prompt == (is_prompt == 1)) y = put_bar(out, &bars[i], longest(bars, n, is_prompt == 1), y);
    sb_puts(out, "</svg>\n");
}
