// kernels/one.cu: x on its way to shared memory, and how it lies there.
//
// For weights of bf16, x is bf16. For those of f16 and mxfp4 it is f16, a power of two times as large in every unit. For those of 4 and 8 bits it is integers of 16 bits (x16.cuh).
#pragma once
#include "one_ring.cuh"
#include "x16.cuh"

// A warp's part of x in shared memory: units of 128 bytes, and their scales; of groups also their sums of 16 elements.
struct x_part {
    unsigned char *units;
    unit_scale *scales;
    unit_sums *sums;
};

// A warp's part of a row of x that lies in memory as it is: elements [begin, begin + n). Returns this lane's squares.
template <int KIND> static __device__ __noinline__ float stage_plain(const k_step_linear &a, x_part x, int row, int begin, int n) {
    float square = 0, offset = a.norm_offset;
    int64_t from = (a.x_rows ? a.x_rows[row] : row) * a.x_stride;
    for (int base = 0, lane = threadIdx.x % 32; base < n; base += 256) {
        int i = base + lane * 8;
        float v[8] = {0}, w[8];
        if (i < n) load8(a.x, a.x_dtype, from + begin + i, v);
        if (i < n && a.norm) load8(a.norm, K_F32, begin + i, w);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (!a.has_norm) continue;
            square = fmaf(v[j], v[j], square);
            if (a.norm) v[j] *= (i < n ? w[j] : 0.0f) + offset;
        }
        if (KIND == W16 && i < n) *(uint4 *)(x.units + i * 2) = uint4{pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])};
        if (KIND == WF16 || is_fp4<KIND>(a)) put8_f16(x.units + i * 2, &x.scales[i / 64].one, v, i < n);
        if (is_plain<KIND>() || is_fp4<KIND>(a)) continue;
        put8<has_groups<KIND>()>(x.units + i / 64 * 128, x.scales + i / 64, v, i < n, x.sums + i / 64);
    }
    return square;
}

// Of links, as f16: a unit of two elements of every lane, or two units of four, which share a scale. word: the first of these in the warp's part.
static __device__ __forceinline__ void put_f16(x_part x, int word, uint4 v, bool f32, float y, float z, int words) {
    int lane = threadIdx.x % 32;
    float one, four[4] = {y, z, 0, 0};
    if (!f32) four[0] = __uint_as_float(v.x << 16), four[1] = __uint_as_float(v.x & 0xffff0000u), four[2] = __uint_as_float(v.z << 16), four[3] = __uint_as_float(v.z & 0xffff0000u);
    uint32_t largest = larger(larger(magnitude(four[0]), magnitude(four[1])), larger(magnitude(four[2]), magnitude(four[3])));
    float scale = f16_scale(warp_max_u32(largest), one);
    uint32_t low = pack_f16(four[0] * scale, four[1] * scale), high = pack_f16(four[2] * scale, four[3] * scale);
    if (f32) *(uint32_t *)(x.units + 2 * word + 4 * lane) = low;
    else if (word + 2 * lane < words) *(uint2 *)(x.units + 4 * word + 8 * lane) = uint2{low, high};
    if (f32 && lane == 0) x.scales[word / 64].one = one;
    if (!f32 && lane % 16 == 0 && word + 2 * lane < words) x.scales[word / 32 + lane / 16].one = one;
}

// Two words of every lane, from word `word` of the warp's part on, as integers: f32, or pairs of bf16.
template <int KIND> static __device__ __forceinline__ void put_words(x_part x, int word, uint4 v, bool f32, float y, float z, int words) {
    if (f32) put_unit<has_groups<KIND>()>(x.units + word * 2, x.scales + word / 64, y, z, x.sums + word / 64);
    else {
        const float four[4] = {__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u), __uint_as_float(v.z << 16), __uint_as_float(v.z & 0xffff0000u)};
        put_two_units<has_groups<KIND>()>(x.units + word * 4, x.scales + word / 32, four, words - word < 64 ? 1 : 2, x.sums + word / 32);
    }
}

// Asks again for words that are not there until they are.
template <int POLLS> static __device__ __forceinline__ void await_words(uint4 v[POLLS], const uint64_t *link, uint32_t tag, uint32_t *count) {
    for (int polls = 1;; polls++) {
        bool there = true;
#pragma unroll
        for (int j = 0; j < POLLS; j++) there = there && v[j].y == tag && v[j].w == tag;
        if (in_all_lanes(there)) break;
#pragma unroll
        for (int j = 0; j < POLLS; j++)
            if (v[j].y != tag || v[j].w != tag) v[j] = load_tagged2(link + 64 * j + 2 * (int)(threadIdx.x % 32));
        if (is_long(polls) && gave_up(count, polls)) break;
    }
}

// The same of links: words of an f32, or of two bf16, which no norm follows. POLLS pairs of words of a lane are under way at once, since each
// is a trip to L2; those that were not there yet are asked for again. While the first are on their way, the warp's ring is filled up.
template <int KIND, int WARPS>
static __device__ __forceinline__ float stage_linked(const k_step_linear &a, x_part x, int begin, int n, uint32_t tag, ring_state &r, shared_head *head, int limit, const k_step_run &run, int at, coming &next) {
    enum { POLLS = is_plain<KIND>() ? 2 : 4 };
    float square = 0, offset = a.norm_offset;
    bool f32 = a.x_dtype == K_F32, has_norm = a.has_norm;
    const uint64_t *link = a.x_link + (f32 ? begin : begin / 2);
    const float *norm = a.norm;
    int words = f32 ? n : n / 2, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int base = 0; base < words; base += 64 * POLLS) {
        uint4 v[POLLS];
        float2 w[POLLS];
#pragma unroll
        for (int j = 0; j < POLLS; j++) {
            int i = base + 64 * j + 2 * lane;
            v[j] = uint4{0, tag, 0, tag};
            w[j] = float2{1.0f - offset, 1.0f - offset};
            if (i < words) v[j] = load_tagged2(link + i);
            if (norm && i < words) w[j] = *(const float2 *)(norm + begin + i);
        }
        if (base == 0) next = begin_instr(run, head, at);
        if (r.under_way < r.depth && has_unit<KIND, WARPS>(r.c, head, limit)) fetch<KIND, WARPS>(r, head);
        await_words<POLLS>(v, link + base, tag, run.barrier);
#pragma unroll
        for (int j = 0; j < POLLS; j++) {
            int word = base + 64 * j, i = word + 2 * lane;
            if (word >= words) continue; // the same for all lanes
            float y = __uint_as_float(v[j].x), z = __uint_as_float(v[j].z);
            if (f32 && has_norm) {
                square = fmaf(z, z, fmaf(y, y, square));
                y *= w[j].x + offset, z *= w[j].y + offset;
            }
            if (KIND == W16 && i < words) {
                if (f32) *(uint32_t *)(x.units + 2 * i) = pack_bf16(y, z);
                else *(uint2 *)(x.units + 4 * i) = uint2{v[j].x, v[j].z};
            }
            if (KIND == W16) continue;
            if (KIND == WF16 || is_fp4<KIND>(a)) {
                put_f16(x, word, v[j], f32, y, z, words);
                continue;
            }
            put_words<KIND>(x, word, v[j], f32, y, z, words);
        }
    }
    return square;
}

#ifdef ONE_POST
// Of x that is a sum (k_step_linear.has_sum): this warp's elements [begin, begin + n), none where the block has no tiles. All warps of the block meet here. What came and the residual
// are asked for together; they wait in `room`, a float4 of every lane for each unit, for the squares of all.
template <int KIND, int WARPS>
static __device__ __forceinline__ float stage_sum(const k_instr &in, x_part x, float4 *room, int begin, int n, ring_state &r, shared_head *head, int limit, const k_step_run &run, int at, coming &next) {
    enum { POLLS = 4 };
    const k_step_linear &a = in.u.linear;
    const float *norm = a.norm, *sum_norm = a.sum_norm, *residual = a.residual + begin;
    const uint64_t *link = a.x_link + begin, *more = a.residual_link ? a.residual_link + begin : NULL;
    int lane = threadIdx.x % 32;
    uint32_t tag = head->tag + a.x_maker, more_tag = head->tag + a.residual_maker;
    float square = 0, offset = a.sum_offset;
    if (!n) next = begin_instr(run, head, at);
#pragma unroll 1
    for (int base = 0; base < n; base += 64 * POLLS) {
        uint4 v[POLLS], h[POLLS];
        float2 w[POLLS];
#pragma unroll
        for (int j = 0; j < POLLS; j++) {
            int i = base + 64 * j + 2 * lane;
            v[j] = uint4{0, tag, 0, tag}, h[j] = uint4{0, more_tag, 0, more_tag};
            w[j] = float2{1.0f - offset, 1.0f - offset};
            if (i >= n) continue;
            v[j] = load_tagged2(link + i);
            if (more) h[j] = load_tagged2(more + i);
            else h[j].x = __float_as_uint(residual[i]), h[j].z = __float_as_uint(residual[i + 1]);
            if (sum_norm) w[j] = *(const float2 *)(sum_norm + begin + i);
        }
        if (base == 0) next = begin_instr(run, head, at);
        if (r.under_way < r.depth && has_unit<KIND, WARPS>(r.c, head, limit)) fetch<KIND, WARPS>(r, head);
        if (more) await_words<POLLS>(h, more + base, more_tag, run.barrier);
        await_words<POLLS>(v, link + base, tag, run.barrier);
#pragma unroll
        for (int j = 0; j < POLLS; j++) {
            if (base + 64 * j >= n) continue; // the same for all lanes
            float y = __uint_as_float(v[j].x), z = __uint_as_float(v[j].z);
            square = fmaf(z, z, fmaf(y, y, square));
            room[(base / 64 + j) * 32 + lane] = float4{y * (w[j].x + offset), z * (w[j].y + offset), __uint_as_float(h[j].x), __uint_as_float(h[j].z)};
        }
    }
    square = warp_sum(square);
    if (lane == 0) head->came[threadIdx.x / 32] = square;
    offset = a.norm_offset;
    float2 w[POLLS];
#pragma unroll
    for (int j = 0; j < POLLS; j++) {
        w[j] = float2{1.0f - offset, 1.0f - offset};
        if (norm && 64 * j < n) w[j] = *(const float2 *)(norm + begin + 64 * j + 2 * lane);
    }
    __syncthreads();
    float own = rsqrtf(fmaf(sum_lanes<WARPS>(head->came[threadIdx.x % WARPS]), a.inv_in, a.sum_eps)) * a.own_scale, keep = a.residual_scale;
    int busy = in.stream.tiles_each ? gridDim.x : in.stream.tiles_more; // the first blocks have tiles
    square = 0;
#pragma unroll 1
    for (int base = 0; base < n; base += 64 * POLLS) {
#pragma unroll
        for (int j = 0; j < POLLS; j++) {
            int word = base + 64 * j, i = begin + word + 2 * lane;
            if (word >= n) continue; // the same for all lanes
            float4 v = room[word / 64 * 32 + lane];
            float y = fmaf(v.x, own, v.z * keep), z = fmaf(v.y, own, v.w * keep);
            if (a.sum_link && i / 64 % busy == (int)blockIdx.x) store_words(a.sum_link + i, uint4{__float_as_uint(y), head->tag + in.number, __float_as_uint(z), head->tag + in.number});
            square = fmaf(z, z, fmaf(y, y, square));
            float2 by = w[j];
            if (norm && word + 64 * POLLS < n) w[j] = *(const float2 *)(norm + i + 64 * POLLS);
            put_unit<has_groups<KIND>()>(x.units + word * 2, x.scales + word / 64, y * (by.x + offset), z * (by.y + offset), x.sums + word / 64);
        }
    }
    return square;
}
#endif
