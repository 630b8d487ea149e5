/* GET /health: whether requests can be answered now. */
#include "server/server_internal.h"

static void show_health(struct call *c) {
    bool is_one = models_is_one(c->server); /* several are loaded as they are asked for */
    enum service_state state = is_one ? service_state(c->service, NULL) : SERVICE_READY;
    bool is_ending = c->server->draining || state == SERVICE_FAILED;
    if (state == SERVICE_READY && !is_ending) {
        call_reply_json(c, 200, STR("{\"status\":\"ok\"}"));
        return;
    }
    api_fail(&c->error, 503, NULL, NULL, is_ending ? "Ending" : "Loading model");
    call_reply_error(c);
}

const struct route routes_health[] = {
    {"GET", "/health", ROUTE_PUBLIC | ROUTE_WITHOUT_MODEL | ROUTE_WATCHED, NULL, show_health},
    {"GET", "/v1/health", ROUTE_PUBLIC | ROUTE_WITHOUT_MODEL | ROUTE_WATCHED, NULL, show_health},
    {0},
};
