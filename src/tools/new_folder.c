/* Filling beside the place and renaming is what makes it all or nothing: a reader never sees a half of it. */
#include "tools/new_folder.h"

#include "base/str.h"
#include "os/os.h"

static int check_empty(const char *place, struct err *err) {
    struct arena a = {0};
    struct str *names;
    size_t n = 0;
    int code = os_list_dir(&a, place, &names, &n, err);
    if (!code && n) code = err_set(err, ERR_EARG, "%s is not empty; choose a new folder", place);
    arena_free(&a);
    return code;
}

int new_folder_check(const char *place, struct err *err) {
    struct os_stat stat;
    int code = os_stat(place, &stat, err);
    if (code == ERR_ENOTFOUND) return ERR_OK;
    if (code) return code;
    return stat.is_dir ? check_empty(place, err) : err_set(err, ERR_EARG, "%s exists already", place);
}

int new_folder_begin(struct arena *a, const char *place, struct new_folder *out, struct err *err) {
    struct str clean = str_of(place); /* "new/": the other name would lie inside it */
    while (clean.n > 1 && (clean.p[clean.n - 1] == '/' || clean.p[clean.n - 1] == '\\')) clean.n--;
    TRY(new_folder_check(place, err));
    *out = (struct new_folder){.place = str_cstr(a, clean), .dir = str_fmt(a, "%.*s.partial-%d", STR_ARG(clean), os_process_id()).p};
    return os_make_dirs(out->dir, err);
}

int new_folder_end(const struct new_folder *f, int code, struct err *err) {
    struct err ignored;
    if (!code) {
        os_remove(f->place, &ignored); /* an empty folder of that name */
        code = os_rename(f->dir, f->place, err);
    }
    if (code) os_remove_tree(f->dir, &ignored);
    return code;
}
