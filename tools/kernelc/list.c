/* Reading kernels.list. */
#include "list.h"

enum { MAX_LIST_BYTES = 1 << 20 };

/* ---- targets -------------------------------------------------------------------------------------------------- */

static bool set_add(struct target_set *set, struct target t) {
    for (int i = 0; i < set->n; i++)
        if (set->items[i].arch.number == t.arch.number && set->items[i].arch.suffix == t.arch.suffix && set->items[i].ptx == t.ptx)
            return true;
    if (set->n >= MAX_ARCHS) return false;
    set->items[set->n++] = t;
    return true;
}

/* "default", "80+" (those of the default set from 80 on), "90a", "ptx75" */
static int add_target(struct str word, const struct target_set *defaults, struct target_set *out, struct err *err) {
    struct target t = {.ptx = str_starts(word, STR("ptx"))};
    if (str_is(word, "default")) {
        for (int i = 0; i < defaults->n; i++) set_add(out, defaults->items[i]);
        return 0;
    }
    bool from = str_ends(word, STR("+"));
    struct str number = str_sub(str_from(word, t.ptx ? 3 : 0), 0, word.n - (t.ptx ? 3 : 0) - from);
    if (!cuda_arch_parse(number, &t.arch)) return err_set(err, ERR_EFORMAT, "\"%.*s\" is no architecture", STR_ARG(word));
    for (int i = 0; from && i < defaults->n; i++)
        if (!defaults->items[i].ptx && defaults->items[i].arch.number >= t.arch.number) set_add(out, defaults->items[i]);
    if (!from && !set_add(out, t)) return err_set(err, ERR_EFORMAT, "more than %d architectures", MAX_ARCHS);
    return 0;
}

static int parse_targets(struct str text, const struct target_set *defaults, struct target_set *out, struct err *err) {
    struct str word;
    while (str_split_next(&text, ',', &word))
        if (str_trim(word).n) TRY(add_target(str_trim(word), defaults, out, err));
    if (out->n == 0) return err_set(err, ERR_EFORMAT, "no architecture");
    return 0;
}

/* ---- lines ---------------------------------------------------------------------------------------------------- */

static bool next_word(struct str *rest, struct str *out) {
    *rest = str_trim(*rest);
    size_t n = 0;
    while (n < rest->n && rest->p[n] != ' ' && rest->p[n] != '\t') n++;
    *out = str_sub(*rest, 0, n);
    *rest = str_from(*rest, n);
    return n > 0;
}

/* "fail", "fail:PATTERN,...", "fail>8:PATTERN,..." */
static int parse_spill(struct arena *a, struct str text, struct list_row *row, struct err *err) {
    size_t colon = str_find_char(text, ':', 0);
    struct str head = colon == STR_NONE ? text : str_sub(text, 0, colon);
    bool fails = str_is(head, "fail") || (str_starts(head, STR("fail>")) && str_to_int64(str_from(head, 5), &row->spill_bytes));
    if (!fails && !str_is(text, "allow"))
        return err_set(err, ERR_EFORMAT, "the spill column is \"%.*s\", expected allow, fail, fail:PATTERN,... or fail>BYTES:PATTERN,...",
                       STR_ARG(text));
    if (fails) row->no_spill = colon == STR_NONE ? "*" : str_cstr(a, str_from(text, colon + 1));
    return 0;
}

static int parse_row(struct arena *a, struct str words[4], struct kernel_list *list, struct err *err) {
    struct str file = words[0], flags = words[2], spill = words[3], flag;
    if (!str_ends(file, STR(".cu")) || str_find(file, STR(".."), 0) != STR_NONE)
        return err_set(err, ERR_EFORMAT, "%.*s is no .cu file", STR_ARG(file));
    if (list->n_rows >= MAX_FILES) return err_set(err, ERR_EFORMAT, "more than %d files", MAX_FILES);
    struct list_row row = {.file = str_cstr(a, file), .name = str_cstr(a, str_sub(file, 0, file.n - 3))};
    for (int i = 0; i < list->n_rows; i++)
        if (strcmp(list->rows[i].file, row.file) == 0) return err_set(err, ERR_EFORMAT, "%s is listed twice", row.file);
    TRY(parse_targets(words[1], &list->defaults, &row.targets, err));
    while (!str_is(flags, "-") && str_split_next(&flags, ',', &flag)) {
        if (row.n_flags >= MAX_FLAGS) return err_set(err, ERR_EFORMAT, "more than %d flags", MAX_FLAGS);
        if (!str_starts(flag, STR("-")))
            return err_set(err, ERR_EFORMAT, "\"%.*s\" is no flag (they are separated by commas)", STR_ARG(flag));
        row.flags[row.n_flags++] = str_cstr(a, flag);
    }
    TRY(parse_spill(a, spill, &row, err));
    list->rows[list->n_rows++] = row;
    return 0;
}

static int parse_line(struct arena *a, struct str line, struct kernel_list *list, struct err *err) {
    size_t comment = str_find_char(line, '#', 0);
    struct str rest = str_sub(line, 0, comment), words[4], extra;
    int n = 0;
    while (n < 4 && next_word(&rest, &words[n])) n++;
    if (n == 0) return 0;
    if (n == 2 && str_is(words[0], "default")) return parse_targets(words[1], &(struct target_set){0}, &list->defaults, err);
    if (n < 4 || next_word(&rest, &extra)) return err_set(err, ERR_EFORMAT, "a line has four columns: FILE ARCHS FLAGS SPILL");
    return parse_row(a, words, list, err);
}

int list_load(struct arena *a, const char *path, struct kernel_list *out, struct err *err) {
    struct str text, line;
    *out = (struct kernel_list){.folder = path_parent(a, path)};
    TRY(os_file_load(a, path, MAX_LIST_BYTES, &text, err));
    for (int number = 1; str_split_next(&text, '\n', &line); number++)
        if (parse_line(a, line, out, err)) return err_prefix(err, "%s:%d", path, number);
    if (out->n_rows == 0) return err_set(err, ERR_EFORMAT, "%s lists no kernel", path);
    return 0;
}

/* ---- what is wanted ------------------------------------------------------------------------------------------- */

int list_parse_archs(const char *text, struct cuda_arch *out, int *out_n, struct err *err) {
    const char *separators = " ,;\t";
    *out_n = 0;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, separators);
        if (n > 0) {
            if (*out_n >= MAX_ARCHS) return err_set(err, ERR_EARG, "more than %d architectures", MAX_ARCHS);
            if (!cuda_arch_parse(str_n(p, n), &out[*out_n]))
                return err_set(err, ERR_EARG, "\"%.*s\" is no architecture; examples: 89, 9.0, 90a", (int)n, p);
            ++*out_n;
        }
        p += n + (p[n] != 0);
    }
    return *out_n ? 0 : err_set(err, ERR_EARG, "no architecture given");
}

static void narrow_row(const struct kernel_list *list, struct list_row *row, const struct cuda_arch *wanted, int n_wanted) {
    struct cuda_arch images[MAX_ARCHS];
    struct target_set kept = {0};
    int n = 0;
    bool is_default = true; /* the row has all of the default set: it is meant for every device */
    for (int i = 0; i < row->targets.n; i++)
        if (!row->targets.items[i].ptx) images[n++] = row->targets.items[i].arch;
    for (int i = 0; i < list->defaults.n; i++) {
        bool has = list->defaults.items[i].ptx;
        for (int k = 0; k < n; k++) has |= images[k].number == list->defaults.items[i].arch.number;
        is_default &= has;
    }
    for (int w = 0; w < n_wanted; w++) {
        int best = -1;
        for (int i = 0; wanted[w].suffix && i < n; i++)
            if (images[i].number == wanted[w].number && images[i].suffix == wanted[w].suffix) best = i;
        if (best < 0) best = cuda_arch_pick(images, n, wanted[w].number);
        if (best >= 0) set_add(&kept, (struct target){.arch = images[best]});
        else if (is_default) set_add(&kept, (struct target){.arch = wanted[w]});
    }
    row->targets = kept;
}

void list_narrow(struct kernel_list *list, const struct cuda_arch *wanted, int n_wanted) {
    int n = 0;
    for (int i = 0; i < list->n_rows; i++) {
        narrow_row(list, &list->rows[i], wanted, n_wanted);
        if (list->rows[i].targets.n) list->rows[n++] = list->rows[i];
    }
    list->n_rows = n;
}

int list_archs(const struct kernel_list *list, struct cuda_arch out[MAX_ARCHS]) {
    int n = 0;
    for (int r = 0; r < list->n_rows; r++)
        for (int i = 0; i < list->rows[r].targets.n; i++) {
            struct cuda_arch arch = list->rows[r].targets.items[i].arch;
            int k = 0;
            while (k < n && (out[k].number < arch.number || (out[k].number == arch.number && out[k].suffix < arch.suffix))) k++;
            if ((k < n && out[k].number == arch.number && out[k].suffix == arch.suffix) || n >= MAX_ARCHS) continue;
            memmove(&out[k + 1], &out[k], (size_t)(n - k) * sizeof *out);
            out[k] = arch;
            n++;
        }
    return n;
}
