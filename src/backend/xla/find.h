/* Finding PJRT plugins on this machine. */
#ifndef MLXCEL_BACKEND_XLA_FIND_H
#define MLXCEL_BACKEND_XLA_FIND_H

#include "backend/device.h"
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

/* Plugins in the Python environments of the options and in ~/.local. */
void xla_plugins_find(struct arena *a, const struct xla_options *o, struct xla_plugins *out);
/* Those of one environment, added to the list. */
void xla_plugins_search(struct arena *a, const char *root, struct xla_plugins *out);
/* The first of them for a device ("cuda:1", "gpu"; NULL: any), or NULL. */
const char *xla_plugins_pick(const struct xla_plugins *found, const char *device);
/* The plugin to open: that of the options, else the first that is found for the device. */
int xla_plugin_choose(struct arena *a, const struct xla_options *o, const char *device, const char **out, struct err *err);

#endif
