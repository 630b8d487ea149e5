/* Ollama's keep_alive: how long a model stays behind a request. */
#include "server/wire/ollama.h"

#include <math.h>

/* "1h30m", "300ms", "-1", "5m": the sum of its parts in seconds; a number without a unit is seconds. */
static bool read_duration(struct str text, double *out) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"h", 3600}, {"m", 60}, {"s", 1}};
    bool is_negative = text.n && text.p[0] == '-';
    if (text.n && (text.p[0] == '-' || text.p[0] == '+')) text = str_from(text, 1);
    double sum = 0, value;
    for (bool is_first = true; text.n; is_first = false) {
        size_t n = 0, i = 0;
        while (n < text.n && ((text.p[n] >= '0' && text.p[n] <= '9') || text.p[n] == '.')) n++;
        if (!str_to_double(str_sub(text, 0, n), &value)) return false;
        text = str_from(text, n);
        while (i < sizeof units / sizeof *units && !str_starts(text, str_of(units[i].unit))) i++;
        bool has_unit = i < sizeof units / sizeof *units;
        if (!has_unit && (text.n || !is_first)) return false;
        sum += value * (has_unit ? units[i].seconds : 1);
        if (has_unit) text = str_from(text, strlen(units[i].unit));
        if (text.n == 0) {
            *out = is_negative ? -sum : sum;
            return true;
        }
    }
    return false;
}

int ollama_keep_read(struct call *c) {
    yyjson_val *keep = json_given(c->body, "keep_alive");
    double seconds = yyjson_get_num(keep);
    if (!keep) return 0;
    bool ok = yyjson_is_num(keep) || (yyjson_is_str(keep) && read_duration(json_val_str(keep), &seconds));
    if (!ok || !isfinite(seconds))
        return api_fail(&c->error, 400, NULL, "keep_alive", "keep_alive must be a number of seconds or a duration such as \"5m\"");
    c->keeps = true;
    c->keep_ms = seconds < 0 || seconds > 1e12 ? -1 : (int64_t)(seconds * 1000);
    return 0;
}

/* Nothing to compute, and the model shall go. */
bool ollama_keep_only_unloads(const struct call *c) {
    yyjson_val *prompt = json_get(c->body, "prompt"), *messages = json_get(c->body, "messages"), *keep = json_given(c->body, "keep_alive");
    double seconds = yyjson_get_num(keep);
    bool may_ask = strcmp(c->route->path, "/api/chat") == 0 || strcmp(c->route->path, "/api/generate") == 0;
    bool asks =
        yyjson_get_len(yyjson_is_str(prompt) ? prompt : NULL) || yyjson_arr_size(messages) || json_str(c->body, "system", STR("")).n;
    if (!may_ask || asks || !keep) return false;
    return (yyjson_is_num(keep) || read_duration(json_val_str(keep), &seconds)) && seconds == 0;
}
