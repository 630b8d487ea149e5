/* Tables of places, by kind of op. An op that is new has its weights, its caches and its state here. */
#include "backend/op_fields.h"

struct field {
    enum op_kind kind;
    size_t at;
};

#define FIELD(kind, member) \
    { OP_##kind, offsetof(struct op, arg.member) }

static const struct field weight_fields[] = {
    FIELD(EMBED, embed.weight),
    FIELD(LINEAR, linear.weight),
    FIELD(LINEAR, linear.bias),
    FIELD(HEAD_LINEAR, linear.weight),
    FIELD(HEAD_LINEAR, linear.bias),
    FIELD(NORM, norm.weight),
    FIELD(NORM, norm.bias),
    FIELD(MULVEC, vec.mul),
    FIELD(MULVEC, vec.add),
    FIELD(ROPE, rope.inv_freq),
    FIELD(ATTN, attn.sinks),
    FIELD(ATTN, attn.slopes),
    FIELD(ATTN, attn.distances),
    FIELD(ATTN, attn.buckets),
    FIELD(ROUTE, route.bias),
    FIELD(ROUTE, route.expert_scale),
    FIELD(EXPERTS, experts.gate_up),
    FIELD(EXPERTS, experts.gate),
    FIELD(EXPERTS, experts.up),
    FIELD(EXPERTS, experts.down),
    FIELD(EXPERTS, experts.gate_bias),
    FIELD(EXPERTS, experts.up_bias),
    FIELD(EXPERTS, experts.gate_up_bias),
    FIELD(EXPERTS, experts.down_bias),
    FIELD(CONV, conv.weight),
    FIELD(CONV, conv.bias),
    FIELD(DELTA, delta.a_log),
    FIELD(DELTA, delta.dt_bias),
    FIELD(SSD, ssd.a_log),
    FIELD(SSD, ssd.d),
    FIELD(SSD, ssd.dt_bias),
    FIELD(SCAN, scan.a_log),
    FIELD(SCAN, scan.d),
    FIELD(LIGHTNING, lightning.slope),
    FIELD(LRU, lru.rate),
    FIELD(WKV, wkv.rate),
    FIELD(WKV, wkv.first),
    FIELD(COMPRESS, compress.bias),
    FIELD(ATTN_MORE, attn.sinks),
};
static const struct field kv_fields[] = {FIELD(KV_WRITE, kv.kv), FIELD(ATTN, attn.kv), FIELD(PICK, pick.kv), FIELD(ATTN_MORE, attn.kv),
                                         FIELD(ATTN_MORE, attn.more)};
static const struct field state_fields[] = {
    FIELD(CONV, conv.state),           FIELD(DELTA, delta.state),       FIELD(SSD, ssd.state), FIELD(SCAN, scan.state),
    FIELD(LIGHTNING, lightning.state), FIELD(LRU, lru.state),           FIELD(WKV, wkv.state), FIELD(EXCHANGE, exchange.state),
    FIELD(MLSTM, mlstm.state),         FIELD(COMPRESS, compress.state),
};
#define COUNT(fields) (sizeof(fields) / sizeof *(fields))

int32_t op_weight_places(void) {
    return (int32_t)COUNT(weight_fields);
}

const struct weight **op_weight_at(struct op *op, int32_t i) {
    const struct field *f = &weight_fields[i];
    return f->kind == op->kind ? (const struct weight **)(void *)((char *)op + f->at) : NULL;
}

int32_t op_kv_places(void) {
    return (int32_t)COUNT(kv_fields);
}

struct kv_ref *op_kv_at(struct op *op, int32_t i) {
    const struct field *f = &kv_fields[i];
    return f->kind == op->kind ? (struct kv_ref *)(void *)((char *)op + f->at) : NULL;
}

int32_t *op_state(struct op *op) {
    for (size_t i = 0; i < COUNT(state_fields); i++)
        if (state_fields[i].kind == op->kind) return (int32_t *)(void *)((char *)op + state_fields[i].at);
    return NULL;
}
