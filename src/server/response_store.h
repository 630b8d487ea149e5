/* Answers that clients may come back to by their id: in memory, within a bound of number and of bytes. The oldest go first. From any thread. */
#ifndef MLXCEL_SERVER_RESPONSE_STORE_H
#define MLXCEL_SERVER_RESPONSE_STORE_H

#include "base/str.h"

enum { RESPONSES_MAX = 1024, RESPONSES_BYTES_MAX = 64 << 20 };

struct response_store;

struct response_record {
    struct str id;
    struct str response; /* JSON, as the client got it */
    struct str items;    /* JSON list: everything that the answer answers */
};

struct response_store *response_store_create(void);
void response_store_destroy(struct response_store *s);
/* Copies it. One that alone exceeds the bound is not kept. */
void response_store_put(struct response_store *s, const struct response_record *record);
/* False where there is none; else a copy in the arena. */
bool response_store_get(struct response_store *s, struct arena *a, struct str id, struct response_record *out);
bool response_store_remove(struct response_store *s, struct str id);

#endif
