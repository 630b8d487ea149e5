/* A folder that appears when it is complete: filled under another name beside its place, and taken away when something fails. */
#ifndef MLXCEL_TOOLS_NEW_FOLDER_H
#define MLXCEL_TOOLS_NEW_FOLDER_H

#include "base/arena.h"
#include "base/err.h"

struct new_folder {
    const char *place; /* where it will stand */
    const char *dir;   /* where it is filled */
};

/* The place must be free: nothing there, or an empty folder. */
int new_folder_check(const char *place, struct err *err);
int new_folder_begin(struct arena *a, const char *place, struct new_folder *out, struct err *err);
/* code is how the filling went; files must be closed. Puts the folder into its place, or removes it; returns the code of the whole. */
int new_folder_end(const struct new_folder *f, int code, struct err *err);

#endif
