/* Parsing ptxas -v. A kernel is announced by "Compiling entry function", its figures follow on the next lines. */
#include "report.h"

static int number_before(struct str line, const char *words) {
    size_t at = str_find(line, str_of(words), 0);
    if (at == STR_NONE) return 0;
    size_t from = at;
    while (from > 0 && line.p[from - 1] >= '0' && line.p[from - 1] <= '9') from--;
    int64_t value = 0;
    return str_to_int64(str_sub(line, from, at - from), &value) ? (int)value : 0;
}

static int number_after(struct str line, const char *words) {
    size_t at = str_find(line, str_of(words), 0);
    if (at == STR_NONE) return 0;
    int value = 0;
    for (size_t i = at + strlen(words); i < line.n && line.p[i] >= '0' && line.p[i] <= '9'; i++) value = value * 10 + (line.p[i] - '0');
    return value;
}

static struct str quoted(struct str line) {
    size_t first = str_find_char(line, '\'', 0), last = first == STR_NONE ? first : str_find_char(line, '\'', first + 1);
    return last == STR_NONE ? STR("?") : str_sub(line, first + 1, last - first - 1);
}

static bool has(struct str line, const char *words) {
    return str_find(line, str_of(words), 0) != STR_NONE;
}

static size_t count(struct str text, const char *words) {
    size_t n = 0;
    for (size_t at = 0; (at = str_find(text, str_of(words), at)) != STR_NONE; at++) n++;
    return n;
}

int report_parse(struct arena *a, struct str text, struct kernel_use **out) {
    struct kernel_use *uses = arena_new(a, struct kernel_use, count(text, "Compiling entry function") + 1), *current = NULL;
    int n = 0;
    struct str line;
    while (str_split_next(&text, '\n', &line)) {
        if (has(line, "Compiling entry function")) {
            current = &uses[n++];
            current->name = str_copy(a, quoted(line));
        }
        if (!current) continue;
        if (has(line, "bytes stack frame")) {
            /* Functions that were not inlined have lines of their own; their spills are the kernel's as well. */
            current->stack_bytes += number_before(line, " bytes stack frame");
            current->spill_store_bytes += number_before(line, " bytes spill stores");
            current->spill_load_bytes += number_before(line, " bytes spill loads");
        }
        if (has(line, "Used ")) {
            current->registers = number_after(line, "Used ");
            current->shared_bytes = number_before(line, " bytes smem");
        }
    }
    *out = uses;
    return n;
}

void report_rest(struct str text, struct sb *out) {
    struct str line;
    while (str_split_next(&text, '\n', &line)) {
        if (str_trim(line).n == 0 || has(line, "ptxas info") || has(line, "bytes stack frame") || has(line, "Function properties for"))
            continue;
        sb_puts(out, "  ");
        sb_put(out, line);
        sb_putc(out, '\n');
    }
}

bool report_matches(const char *patterns, struct str name) {
    struct str rest = str_of(patterns), pattern;
    while (str_split_next(&rest, ',', &pattern))
        if (str_glob(str_trim(pattern), name)) return true;
    return false;
}
