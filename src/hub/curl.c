/* Finding libcurl. The library stays open until the process ends. */
#include "hub/curl.h"

#include "os/os.h"

#include <stdatomic.h>

/* libcurl's own type-checking macros would hide the functions. */
#undef curl_easy_setopt
#undef curl_easy_getinfo

/* our name, libcurl's */
#define CURL_FUNCTIONS(X)                \
    X(easy_init, curl_easy_init)         \
    X(easy_cleanup, curl_easy_cleanup)   \
    X(easy_reset, curl_easy_reset)       \
    X(easy_setopt, curl_easy_setopt)     \
    X(easy_getinfo, curl_easy_getinfo)   \
    X(easy_perform, curl_easy_perform)   \
    X(easy_strerror, curl_easy_strerror) \
    X(slist_append, curl_slist_append)   \
    X(slist_free_all, curl_slist_free_all)

#if defined(CURL_STATICLIB)

static int load(struct curl_api *out, struct err *err) {
    (void)err;
#define X(name, function) out->name = function;
    CURL_FUNCTIONS(X)
#undef X
    return ERR_OK;
}

#else /* of the system */

static int load(struct curl_api *out, struct err *err) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.4.dylib" /* macOS */};
    struct os_dl *lib = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !lib; i++)
        if (os_dl_open(names[i], OS_DL_ANY, &lib, NULL)) lib = NULL;
    if (!lib)
        return err_set(err, ERR_EUNSUPPORTED,
                       "downloads need libcurl's shared library (%s), which this machine lacks; install libcurl (Debian: libcurl4)",
                       names[0]);
#define X(name, function) \
    if (!os_dl_symbol(lib, #function, &out->name)) return err_set(err, ERR_EUNSUPPORTED, "this machine's libcurl has no " #function);
    CURL_FUNCTIONS(X)
#undef X
    return ERR_OK;
}

#endif

const char *curl_certificates(void) {
#if defined(HUB_FINDS_CERTIFICATES)
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Arch, Alpine */
        "/etc/pki/tls/certs/ca-bundle.crt",                  /* RHEL, Fedora */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* RHEL and Fedora of later years */
        "/etc/ssl/ca-bundle.pem",                            /* SUSE */
        "/var/lib/ca-certificates/ca-bundle.pem",            /* SUSE of later years */
        "/etc/ssl/cert.pem",                                 /* Alpine without its package */
    };
    struct os_stat stat;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (!os_stat(places[i], &stat, NULL)) return places[i];
#endif
    return NULL;
}

/* One thread at a time: the first handle initialises the library. */
static const struct curl_api *open_once(struct err *err) {
    static struct curl_api api;
    static bool is_open;
    if (is_open) return &api;
    if (load(&api, err)) return NULL;
    CURL *probe = api.easy_init();
    if (!probe) {
        err_set(err, ERR_EINTERNAL, "libcurl does not start");
        return NULL;
    }
    api.easy_cleanup(probe);
    is_open = true;
    return &api;
}

const struct curl_api *curl_open(struct err *err) {
    static atomic_flag busy = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&busy)) os_thread_yield();
    const struct curl_api *api = open_once(err);
    atomic_flag_clear(&busy);
    return api;
}
