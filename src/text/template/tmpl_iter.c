/* Walking values. A titer without a next function walks its source; lazy filters and loop conditions bring their own. */
#include "text/template/tmpl_rt.h"

static struct tv view_item(struct rt *rt, const struct tview *v, size_t i) {
    if (v->kind == VIEW_KEYS) return v->dict->keys[i];
    if (v->kind == VIEW_VALUES) return v->dict->values[i];
    return tv_pair(rt, v->dict->keys[i], v->dict->values[i]);
}

static bool next_of_string(struct rt *rt, struct titer *it, struct tv *out) {
    const struct tstr *s = it->source.u.s;
    if (it->position >= s->n) return false;
    uint32_t code;
    size_t n = utf8_decode(s->p + it->position, s->n - it->position, &code);
    *out = tv_sub(rt, s, it->position, n);
    out->u.s->markup = false; /* the characters of Markup are plain */
    it->position += n;
    return true;
}

static bool next_of_source(struct rt *rt, struct titer *it, struct tv *out) {
    struct tv s = it->source;
    size_t i = it->position;
    switch (s.type) {
    case TV_STR: return next_of_string(rt, it, out);
    case TV_LIST:
    case TV_TUPLE:
        if (i >= s.u.list->n) return false;
        *out = s.u.list->items[i];
        break;
    case TV_DICT:
        if (i >= s.u.dict->n) return false;
        *out = s.u.dict->keys[i];
        break;
    case TV_VIEW:
        if (i >= s.u.view->dict->n) return false;
        *out = view_item(rt, s.u.view, i);
        break;
    case TV_RANGE:
        if ((int64_t)i >= s.u.range->n) return false;
        *out = tv_int(trange_at(s.u.range, (int64_t)i));
        break;
    case TV_ITER: return titer_next(rt, s.u.iter, out);
    default: return false; /* undefined */
    }
    it->position++;
    return true;
}

bool titer_next(struct rt *rt, struct titer *it, struct tv *out) {
    rt_charge(rt, 1);
    if (it->done) return false;
    if (it->running) rt_raise(rt, "ValueError", "generator already executing");
    if (!it->next) {
        it->done = !next_of_source(rt, it, out);
        return !it->done;
    }
    it->running = true;
    rt_enter(rt);
    it->done = !it->next(rt, it, out);
    rt_leave(rt);
    it->running = false;
    return !it->done;
}

struct titer *tv_iter(struct rt *rt, struct tv v) {
    if (v.type == TV_ITER) return v.u.iter;
    if (v.type == TV_LOOP) return v.u.loop->iter;
    if (!tv_is_iterable(v)) rt_raise(rt, "TypeError", "'%s' object is not iterable", tv_type_name(v));
    struct titer *it = rt_new(rt, struct titer, 1);
    it->source = v;
    it->type_name = "iterator";
    return it;
}

struct tv tv_iter_lazy(struct rt *rt, struct titer init) {
    struct titer *it = rt_new(rt, struct titer, 1);
    *it = init;
    if (!it->type_name) it->type_name = "generator";
    return (struct tv){TV_ITER, {.iter = it}};
}

struct tv tv_to_list(struct rt *rt, struct tv v, enum tv_type type) {
    if (tv_is_seq(v)) {
        struct tv copy = tv_list_new(rt, type, v.u.list->n);
        rt_charge(rt, v.u.list->n / 8);
        if (v.u.list->n) memcpy(copy.u.list->items, v.u.list->items, v.u.list->n * sizeof(struct tv));
        copy.u.list->n = v.u.list->n;
        return copy;
    }
    struct titer *it = tv_iter(rt, v);
    struct tv list = tv_list_new(rt, type, v.type == TV_DICT || v.type == TV_VIEW || v.type == TV_RANGE ? (size_t)tv_len(rt, v) : 4);
    struct tv item;
    while (titer_next(rt, it, &item)) tv_list_push(rt, list.u.list, item);
    return list;
}
