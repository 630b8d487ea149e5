/* What a service holds; for the files of api/ only. */
#ifndef MLXCEL_API_SERVICE_INTERNAL_H
#define MLXCEL_API_SERVICE_INTERNAL_H

#include "api/service.h"
#include "api/session_internal.h"

struct service {
    struct service_options options;
    struct session *session;
    struct service_info info;
    struct os_thread *thread;
    struct sb description, name;
    _Atomic int state; /* enum service_state */
    struct os_mutex *lock;
    struct err why; /* under the lock: why it failed */
    bool quit;      /* under the lock: closed while the model was being loaded */
};

#endif
