/* libcurl's functions, linked (Windows, Linux releases) or opened at run time (Linux: the system's own, see docs/dependencies.md).
 * Only src/hub/http.c uses this. */
#ifndef MLXCEL_HUB_CURL_H
#define MLXCEL_HUB_CURL_H

#include "base/err.h"

#include <curl/curl.h>

struct curl_api {
    CURL *(*easy_init)(void);
    void (*easy_cleanup)(CURL *handle);
    void (*easy_reset)(CURL *handle);
    CURLcode (*easy_setopt)(CURL *handle, CURLoption option, ...);
    CURLcode (*easy_getinfo)(CURL *handle, CURLINFO info, ...);
    CURLcode (*easy_perform)(CURL *handle);
    const char *(*easy_strerror)(CURLcode code);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
};

/* Opened and initialised by the first call, which must come before other threads use it; NULL with a message when there is none. */
const struct curl_api *curl_open(struct err *err);

/* The file of the system's authorities where this libcurl has to be told; NULL where it knows, or where there is none. */
const char *curl_certificates(void);

#endif
