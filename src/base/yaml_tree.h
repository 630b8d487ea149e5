/* YAML, read into the same tree as TOML; for files that users write. libyaml reads it.
 *
 * What such files have no need of is refused with its line: anchors and aliases (by which a short file could stand for a huge one), tags, null, keys
 * that are no texts or come twice, and a second document. Plain words that are whole numbers, other numbers, true or false are those; the rest is text.
 */
#ifndef MLXCEL_BASE_YAML_TREE_H
#define MLXCEL_BASE_YAML_TREE_H

#include "base/toml.h"

enum { YAML_BYTES_MAX = 256 << 10, YAML_DEPTH_MAX = 32 };

/* name stands in messages; the root may be of any kind. */
int yaml_tree(struct arena *a, struct str text, const char *name, struct toml **out_root, struct err *err);

#endif
