/* Showing a page in the user's browser. */
#ifndef MLXCEL_SERVER_BROWSER_H
#define MLXCEL_SERVER_BROWSER_H

#include <stdbool.h>
#include <uv.h>

enum { BROWSER_OPENERS = 3 };

/* Starts whatever opens addresses on this system; false when nothing does. The processes must live as long as the loop. */
bool browser_open(uv_loop_t *loop, uv_process_t processes[BROWSER_OPENERS], const char *url);

#endif
