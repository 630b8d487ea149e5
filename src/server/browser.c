/* The openers of all systems are tried in turn: where one exists, it is the right one. */
#include "server/browser.h"

static const char *const openers[BROWSER_OPENERS][3] = {{"xdg-open", NULL},
                                                        {"open", NULL},
                                                        {"rundll32", "url.dll,FileProtocolHandler", NULL}};

static void on_end(uv_process_t *process, int64_t status, int signal) {
    (void)status, (void)signal;
    if (!uv_is_closing((uv_handle_t *)process)) uv_close((uv_handle_t *)process, NULL);
}

bool browser_open(uv_loop_t *loop, uv_process_t processes[BROWSER_OPENERS], const char *url) {
    for (size_t i = 0; i < BROWSER_OPENERS; i++) {
        uv_process_t *process = &processes[i];
        const char *args[4] = {openers[i][0]};
        size_t n = 1;
        if (openers[i][1]) args[n++] = openers[i][1];
        args[n] = url;
        uv_process_options_t options = {
            .exit_cb = on_end, .file = args[0], .args = (char **)(uintptr_t)args, .flags = UV_PROCESS_DETACHED | UV_PROCESS_WINDOWS_HIDE};
        int code = uv_spawn(loop, process, &options);
        uv_unref((uv_handle_t *)process);
        if (code == 0) return true;
        uv_close((uv_handle_t *)process, NULL); /* it belongs to the loop although nothing was started */
    }
    return false;
}
