/* What was typed in earlier sessions: a file of lines for the line editor.
 *
 * (1) The file holds one line of UTF-8 per entry, the newest last, and nobody but its owner may read it. The newlines of a message of several
 *     lines are written as the character 0x1E.
 * (2) An entry is written when it is typed, so that a session that is cut off loses nothing, and two at once both add theirs.
 * (3) It is made short again when it is read; entries that are very long, or would do something to a terminal, are left out.
 */
#ifndef MLXCEL_CLI_HISTORY_H
#define MLXCEL_CLI_HISTORY_H

#include "cli/line_edit.h"

enum { HISTORY_LINE_BYTES = 16384, HISTORY_FILE_BYTES = 4 << 20 };

/* history in `home`, else (NULL) in the folder that the system has for such things; NULL when there is none. */
const char *history_path(struct arena *a, const char *home);
int history_load(const char *path, struct line_edit *e, struct err *err);
int history_add(const char *path, struct str line, struct err *err);

#endif
