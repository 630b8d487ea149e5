/* How a command ends: its text on standard output, its error as one line on standard error, its exit code. */
#include "base/log.h"
#include "cli/args.h"
#include "os/os.h"

int cli_write(const struct sb *text, struct err *err) {
    return os_write(OS_STDOUT, sb_str(text), err);
}

int cli_lines(void (*each)(void *user, struct str line, struct sb *out), void *user, struct err *err) {
    struct sb line = {0}, out = {0};
    bool is_there;
    int code;
    while (!(code = os_read_line(&line, &is_there, err)) && is_there) {
        if (!str_trim(sb_str(&line)).n) continue;
        sb_clear(&out);
        each(user, sb_str(&line), &out);
        code = cli_write(&out, err);
        if (code) break;
    }
    sb_free(&line);
    sb_free(&out);
    return code;
}

int cli_finish(int code, const struct err *err) {
    if (code == ERR_OK) return 0;
    if (code == ERR_ECANCELLED) return 1; /* interrupted, or the reader of our output went away: nothing to say */
    log_error("%s", err->msg);
    return code == ERR_EARG ? 2 : 1;
}
