/* server/response_store: what is kept within its bounds, and what goes first. */
#include "unit.h"

#include "server/response_store.h"

static void put(struct response_store *s, int i, struct str items) {
    struct arena a = {0};
    response_store_put(s, &(struct response_record){str_fmt(&a, "id%d", i), STR("{}"), items});
    arena_free(&a);
}

static bool has(struct response_store *s, int i) {
    struct arena a = {0};
    struct response_record record;
    bool found = response_store_get(s, &a, str_fmt(&a, "id%d", i), &record);
    if (found) CHECK_STR(record.response, STR("{}"));
    arena_free(&a);
    return found;
}

static void the_oldest_go_first(void) {
    struct response_store *s = response_store_create();
    for (int i = 0; i < RESPONSES_MAX + 2; i++) put(s, i, STR("[]"));
    CHECK(!has(s, 0) && !has(s, 1) && has(s, 2) && has(s, RESPONSES_MAX + 1));
    CHECK(response_store_remove(s, STR("id2")) && !response_store_remove(s, STR("id2")) && !has(s, 2));
    put(s, -1, STR("[]")); /* into the place that became free */
    CHECK(has(s, 3) && has(s, -1));
    response_store_destroy(s);
}

static void bytes_are_bounded(void) {
    enum { PART = 1 << 20, N = RESPONSES_BYTES_MAX / PART };
    struct response_store *s = response_store_create();
    char *large = mem_alloc(RESPONSES_BYTES_MAX);
    for (int i = 0; i < N; i++) put(s, i, str_n(large, PART));
    CHECK(!has(s, 0) && has(s, 1) && has(s, N - 1));
    put(s, N, str_n(large, RESPONSES_BYTES_MAX)); /* nothing gives way to what cannot be kept */
    CHECK(!has(s, N) && has(s, 1));
    put(s, N, str_n(large, RESPONSES_BYTES_MAX / 2));
    CHECK(has(s, N) && has(s, N - 1) && !has(s, 1));
    mem_free(large);
    response_store_destroy(s);
}

/* The last one may be taken out, and the next still has its place. */
static void the_end_stays_whole(void) {
    struct response_store *s = response_store_create();
    put(s, 0, STR("[]"));
    put(s, 1, STR("[]"));
    CHECK(response_store_remove(s, STR("id1")));
    put(s, 2, STR("[]"));
    CHECK(response_store_remove(s, STR("id0")) && has(s, 2));
    CHECK(response_store_remove(s, STR("id2")));
    put(s, 3, STR("[]"));
    CHECK(has(s, 3) && !has(s, 2));
    response_store_destroy(s);
}

static const struct unit_case cases[] = {{"oldest_first", the_oldest_go_first},
                                         {"bytes", bytes_are_bounded},
                                         {"end", the_end_stays_whole},
                                         {0}};

const struct unit_suite unit_response_store = {"response_store", cases};
