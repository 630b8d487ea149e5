/* A folder that a download made knows where it came from, and so which command completes it. */
#include "api/model_folder.h"

#include "hub/store.h"

int model_folder_open(const char *path, struct checkpoint *out, struct err *err) {
    struct err why;
    int code = checkpoint_open(path, out, &why);
    if (code == ERR_OK) return ERR_OK;
    struct arena a = {0};
    struct manifest m;
    bool is_download = path && code == ERR_ENOTFOUND && manifest_load(&a, path, &m, NULL) == ERR_OK && m.id.p;
    if (is_download) err_set(err, code, "%.300s; get it by: mlxcel download %.*s", why.msg, STR_ARG(m.id));
    else if (err) *err = why;
    arena_free(&a);
    return code;
}
