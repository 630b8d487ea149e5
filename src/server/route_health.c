/* GET /health: whether requests can be answered now. */
#include "server/server_internal.h"

static void show_health(struct call *c) {
    if (service_state(c->service, NULL) == SERVICE_READY && !c->server->draining) {
        call_reply_json(c, 200, STR("{\"status\":\"ok\"}"));
        return;
    }
    api_fail(&c->error, 503, NULL, NULL, c->server->draining ? "Ending" : "Loading model");
    call_reply_error(c);
}

const struct route routes_health[] = {
    {"GET", "/health", ROUTE_PUBLIC | ROUTE_WITHOUT_MODEL, NULL, show_health},
    {"GET", "/v1/health", ROUTE_PUBLIC | ROUTE_WITHOUT_MODEL, NULL, show_health},
    {0},
};
