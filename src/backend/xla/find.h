/* Finding PJRT plugins on this machine. */
#ifndef MLXCEL_BACKEND_XLA_FIND_H
#define MLXCEL_BACKEND_XLA_FIND_H

#include "base/str.h"

enum { XLA_PLUGINS_MAX = 8 };

struct xla_plugin {
    struct str path;
    struct str device; /* "cuda", "cpu", ...: from its file name */
};

struct xla_plugins {
    int32_t n;
    struct xla_plugin items[XLA_PLUGINS_MAX];
};

/* Plugins in the Python environments that are active or usual: VIRTUAL_ENV, CONDA_PREFIX, ~/.local. */
void xla_plugins_find(struct arena *a, struct xla_plugins *out);
/* Those of one environment, added to the list. */
void xla_plugins_search(struct arena *a, const char *root, struct xla_plugins *out);
/* The first of them for a device ("cuda:1", "gpu"; NULL: any), or NULL. */
const char *xla_plugins_pick(const struct xla_plugins *found, const char *device);
/* The plugin to open: `wanted` (a path), else MLXCEL_XLA_PLUGIN, else the first that was found for the device. */
int xla_plugin_choose(struct arena *a, const char *wanted, const char *device, const char **out, struct err *err);
/* One line about each variable of IREE that is set: nothing of it is used. */
void xla_warn_unused(void);

#endif
