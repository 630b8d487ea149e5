// Decode steps of one row: the instructions of kernels/step.cu, a list of them in one launch, with nothing between two but the words that one
// makes and the next reads. For sm_80 and later.
//
// What counts here is how many instructions lie between a result and the results made of it: an instruction of the list runs once in a layer,
// from caches that other code has passed through since, and a warp alone makes one step in six cycles. So all products run through the same
// short loop, sums of warps meet by shuffles of all warps at once, nothing is divided, and what is not needed in every layer is not in line.
//
// A block takes tiles of 16 rows of a weight; its warps share k, each with its own units of 64. A warp waits for its own part of x alone: tagged
// words (sync.cuh) that the blocks of the instruction before wrote. Its ring of units under way to shared memory knows no instructions: behind
// the last unit of one product it goes on with the next, as far as the list is known. A block's warps meet once in every instruction, so that
// they are never two apart; sums have two places.
//
// 1 / rms and the logistic function are the hardware's (2 ulp): their results become bf16 or meet sums of bf16 products.
#include "bulk.cuh"
#include "step.cuh"

enum { SLOTS = 8, AHEAD_INSTRS = 6, LOOK = 5, AT_ONCE = 16, PLACES_MAX = 64 };
enum weight_kind { W4, W16 }; // 4 bits in groups of 64 or more, bf16

struct shared_head {
    k_instr slots[SLOTS];
    float squares[2][32];
    uint32_t tag, last;
    // What attention asks for again in every layer: of the row, its position and cosines and sines, and blocks of the table from one on.
    int pos, seq, row, first_block;
    const int32_t *table;
    const float *inv_freq;
    int32_t blocks[TABLE_MAX];
    float cosines[PAIRS_MAX], sines[PAIRS_MAX];
    uint64_t arrived[PLACES_MAX]; // one barrier for every place of the rings
};
enum { HEAD_BYTES = SLOTS * K_INSTR_BYTES + 2560 };
static_assert(sizeof(shared_head) <= HEAD_BYTES, "link_step.c");

// A place of a ring has as many units as a warp asks for at once, of both tiles of a pair; of bf16 one unit of one tile.
template <int KIND> static __device__ __forceinline__ constexpr int unit_bytes() {
    return KIND == W16 ? 2048 : TILE_CODES + TILE_META;
}
template <int KIND> static __device__ __forceinline__ constexpr int chunk_units() {
    return KIND == W16 ? 1 : 2;
}
template <int KIND> static __device__ __forceinline__ constexpr int place_bytes() {
    return KIND == W16 ? unit_bytes<KIND>() : 2 * chunk_units<KIND>() * unit_bytes<KIND>();
}
#if !defined(MLXCEL_EMULATE) && __CUDA_ARCH__ >= 900
template <int KIND> static __device__ __forceinline__ constexpr bool is_bulk() {
    return KIND != W16; // rows of bf16 lie apart
}
#else
template <int KIND> static __device__ __forceinline__ constexpr bool is_bulk() {
    return false;
}
#endif

// Shared memory: the head, two sets of sums [AT_ONCE tiles][16][warps + 1], rings, sums of x, x.
template <int WARPS> static __device__ __forceinline__ constexpr int red_floats() {
    return AT_ONCE * 16 * (WARPS + 1);
}
template <int WARPS> static __device__ __forceinline__ constexpr int rings_at() {
    return HEAD_BYTES + 2 * red_floats<WARPS>() * 4;
}

// ---- weights on their way ----

// A warp's units in the order in which it takes them, and which comes next.
struct cursor {
    const unsigned char *p; // the next unit, of the first tile of the pair; of bf16 this lane's part
    int64_t second;         // from p: to the second tile (bf16: eight rows on)
    int64_t next_tiles;     // from the unit behind the last to the first of the next pair
    int at, mine, tiles;    // unit inside the tile, units of a tile, tiles that are left
    int next;               // the instruction to look at next
    int i_tile;             // of bf16
};

static __device__ __forceinline__ int first_tile(const k_step_linear &a) {
    int b = blockIdx.x;
    return b * a.tiles_each + (b < a.tiles_more ? b : a.tiles_more);
}
static __device__ __forceinline__ int count_tiles(const k_step_linear &a) {
    return a.tiles_each + ((int)blockIdx.x < a.tiles_more);
}

static __device__ __forceinline__ void point_bf16(const k_step_linear &a, cursor &c, int u0) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, i = c.i_tile;
    int tile = a.glu_inner ? first_tile(a) + i / 2 + i % 2 * ((int)a.glu_inner / 16) : first_tile(a) + i;
    int last = (int)a.w.out - 1, r0 = tile * 16 + g, r1 = r0 + 8;
    if (r0 > last) r0 = last;
    if (r1 > last) r1 = last;
    c.p = a.w.values + r0 * a.w.values_bytes + u0 * 128 + t * 16;
    c.second = (r1 - r0) * a.w.values_bytes;
}

// Whether the cursor has a unit; it moves on to instructions below `limit`.
template <int KIND, int WARPS> static __device__ __forceinline__ bool has_unit(cursor &c, const shared_head *head, int limit) {
    if (c.tiles > 0) return true;
#pragma unroll 1
    while (c.next < limit) {
        const k_instr &in = head->slots[c.next++ % SLOTS];
        const k_step_linear &a = in.u.linear;
        if (in.kind != K_STEP_LINEAR || count_tiles(a) == 0) continue;
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32, units = (int)a.w.in / 64, u0 = warp * units / WARPS;
        c.mine = (warp + 1) * units / WARPS - u0;
        if (c.mine == 0) continue;
        bool glu = a.glu_inner != 0;
        c.tiles = count_tiles(a) << (glu ? 1 : 0);
        c.at = c.i_tile = 0;
        if (a.norm && lane < c.mine * 2) prefetch_line(a.norm + u0 * 64 + lane * 32);
        if (KIND == W16) {
            point_bf16(a, c, u0);
            return true;
        }
        int64_t tile_bytes = a.w.tile_bytes;
        c.second = glu ? a.glu_inner / 16 * tile_bytes : tile_bytes;
        c.p = a.w.values + first_tile(a) * tile_bytes + u0 * unit_bytes<KIND>();
        c.next_tiles = (glu ? tile_bytes : 2 * tile_bytes) - c.mine * unit_bytes<KIND>();
        return true;
    }
    return false;
}

// Where a warp stands in its ring: what it asks for next, how many places are under way, those of the next to come and to be used, and which
// phase of its barrier each waits for.
struct ring_state {
    cursor c;
    unsigned char *places;
    uint32_t arrived;
    int depth, under_way, put, take;
    uint32_t phases;
};

// Units of one or two tiles: one lane asks for all, or every lane for pieces of 16 bytes.
template <int KIND> static __device__ __forceinline__ void copy_pair(const ring_state &r, unsigned char *place, int bytes, bool two) {
    const cursor &c = r.c;
    enum { SECOND = chunk_units<KIND>() * unit_bytes<KIND>() };
#if !defined(MLXCEL_EMULATE) && __CUDA_ARCH__ >= 900
    if (threadIdx.x % 32) return;
    uint32_t barrier = r.arrived + r.put * 8, to = (uint32_t)__cvta_generic_to_shared(place);
    barrier_expect(barrier, two ? 2 * bytes : bytes);
    copy_bulk(to, c.p, bytes, barrier);
    if (two) copy_bulk(to + SECOND, c.p + c.second, bytes, barrier);
#else
    for (int i = threadIdx.x % 32 * 16; i < bytes; i += 512) {
        copy16(place + i, c.p + i, true);
        if (two) copy16(place + SECOND + i, c.p + c.second + i, true);
    }
#endif
}

static __device__ __forceinline__ void copy_rows(const cursor &c, unsigned char *to) {
    to += threadIdx.x % 32 * 16;
    copy16(to, c.p, true);
    copy16(to + 512, c.p + 64, true);
    copy16(to + 1024, c.p + c.second, true);
    copy16(to + 1536, c.p + c.second + 64, true);
}

// Begins to copy the cursor's units, of two tiles or of the last one alone, and moves on.
template <int KIND, int WARPS> static __device__ __forceinline__ void fetch(ring_state &r, const shared_head *head) {
    cursor &c = r.c;
    unsigned char *place = r.places + r.put * place_bytes<KIND>();
    int n = c.mine - c.at < chunk_units<KIND>() ? c.mine - c.at : chunk_units<KIND>();
    if (KIND == W16) copy_rows(c, place);
    else copy_pair<KIND>(r, place, n * unit_bytes<KIND>(), c.tiles > 1);
    if (!is_bulk<KIND>()) copy_commit();
    r.put = r.put + 1 == r.depth ? 0 : r.put + 1;
    r.under_way++;
    c.p += KIND == W16 ? 128 : n * unit_bytes<KIND>();
    if ((c.at += n) < c.mine) return;
    c.at = 0;
    c.tiles -= KIND == W16 ? 1 : 2;
    if (KIND != W16) c.p += c.next_tiles;
    else if (c.tiles > 0) {
        const k_step_linear &a = head->slots[(c.next - 1) % SLOTS].u.linear;
        c.i_tile++;
        point_bf16(a, c, (int)(threadIdx.x / 32) * ((int)a.w.in / 64) / WARPS);
    }
}

// Waits for the oldest of n places under way, at most four.
static __device__ __forceinline__ void wait_oldest(int n) {
    if (n >= 4) copy_wait<3>();
    else if (n == 3) copy_wait<2>();
    else if (n == 2) copy_wait<1>();
    else copy_wait<0>();
}

template <int KIND> static __device__ __forceinline__ const unsigned char *wait_place(const ring_state &r) {
#if !defined(MLXCEL_EMULATE) && __CUDA_ARCH__ >= 900
    if (is_bulk<KIND>()) barrier_wait(r.arrived + r.take * 8, r.phases >> r.take & 1);
#endif
    if (!is_bulk<KIND>()) {
        wait_oldest(r.under_way);
        __syncwarp();
    }
    return r.places + r.take * place_bytes<KIND>();
}

static __device__ __forceinline__ void leave_place(ring_state &r) {
    __syncwarp();
    r.phases ^= 1u << r.take;
    r.take = r.take + 1 == r.depth ? 0 : r.take + 1;
    r.under_way--;
}

// ---- products ----

// Eight elements, times the norm's weight, to shared memory as bf16; the squares.
static __device__ __forceinline__ float put8(const k_step_linear &a, const float x[8], const float w[8], bf16 *to) {
    float square = 0, v[8];
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = x[j];
    if (a.has_norm) {
        float offset = a.norm_offset;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            square = fmaf(v[j], v[j], square);
            v[j] *= w[j] + offset;
        }
    }
    *(uint4 *)to = uint4{pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])};
    return square;
}

static __device__ __forceinline__ void norm8(const k_step_linear &a, int at, float w[8]) {
    if (a.norm) load8(a.norm, K_F32, at, w);
    else
#pragma unroll
        for (int j = 0; j < 8; j++) w[j] = 1.0f - a.norm_offset;
}

// A warp's part of an x that lies in memory as it is: elements [begin, begin + n). Returns this lane's squares.
static __device__ __noinline__ float stage_plain(const k_step_linear &a, bf16 *x, int begin, int n) {
    float square = 0;
    int64_t from = (a.x_rows ? a.x_rows[0] : 0) * a.x_stride;
    for (int i = threadIdx.x % 32 * 8; i < n; i += 256) {
        float v[8], w[8];
        load8(a.x, a.x_dtype, from + begin + i, v);
        norm8(a, begin + i, w);
        square += put8(a, v, w, x + i);
    }
    return square;
}

// The same of links: words of an f32, or of two bf16, which no norm follows. POLLS pairs of words of a lane are under way at once, since each
// is a trip to L2; those that were not there yet are asked for again.
// While the first are on their way, the warp's ring is filled up.
enum { POLLS = 4 };
template <int KIND, int WARPS>
static __device__ __forceinline__ float stage_linked(const k_step_linear &a, bf16 *x, int begin, int n, uint32_t tag, ring_state &r, const shared_head *head, int limit) {
    float square = 0, offset = a.norm_offset;
    bool f32 = a.x_dtype == K_F32, has_norm = a.has_norm;
    const uint64_t *link = a.x_link + (f32 ? begin : begin / 2);
    const float *norm = a.norm;
    int words = f32 ? n : n / 2;
#pragma unroll 1
    for (int base = threadIdx.x % 32 * 2; base - (int)(threadIdx.x % 32 * 2) < words; base += 64 * POLLS) {
        uint4 v[POLLS];
        float2 w[POLLS];
#pragma unroll
        for (int j = 0; j < POLLS; j++) {
            bool mine = base + 64 * j < words;
            v[j] = uint4{0, tag, 0, tag};
            w[j] = float2{1.0f - offset, 1.0f - offset};
            if (mine) v[j] = load_tagged2(link + base + 64 * j);
            if (norm && mine) w[j] = *(const float2 *)(norm + begin + base + 64 * j);
        }
        if (r.under_way < r.depth && has_unit<KIND, WARPS>(r.c, head, limit)) fetch<KIND, WARPS>(r, head);
        for (;;) {
            bool there = true;
#pragma unroll
            for (int j = 0; j < POLLS; j++) there = there && v[j].y == tag && v[j].w == tag;
            if (in_all_lanes(there)) break;
#pragma unroll
            for (int j = 0; j < POLLS; j++)
                if (v[j].y != tag || v[j].w != tag) v[j] = load_tagged2(link + base + 64 * j);
        }
#pragma unroll
        for (int j = 0; j < POLLS; j++) {
            int i = base + 64 * j;
            if (i >= words) continue;
            if (f32) {
                float y = __uint_as_float(v[j].x), z = __uint_as_float(v[j].z);
                if (has_norm) {
                    square = fmaf(z, z, fmaf(y, y, square));
                    y *= w[j].x + offset, z *= w[j].y + offset;
                }
                *(uint32_t *)(x + i) = pack_bf16(y, z);
            } else *(uint2 *)(x + 2 * i) = uint2{v[j].x, v[j].z};
        }
    }
    return square;
}

// This lane's x of a unit: elements 8 t ... and 32 + 8 t ... of the one column.
static __device__ __forceinline__ void take_x(const bf16 *x, uint32_t v[4], uint32_t w[4]) {
    x += threadIdx.x % 4 * 8;
    *(uint4 *)v = *(const uint4 *)x, *(uint4 *)w = *(const uint4 *)(x + 32);
}

// The sum of a unit's x, in every lane: products with ones.
static __device__ __forceinline__ float sum_x(const uint32_t v[4], const uint32_t w[4]) {
    const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    float first[4] = {0}, second[4] = {0};
    mma_bf16(first, ones, v[0], v[1]);
    mma_bf16(second, ones, v[2], v[3]);
    mma_bf16(first, ones, w[0], w[1]);
    mma_bf16(second, ones, w[2], w[3]);
    return first[0] + second[0];
}

// A unit of TILES tiles, which are independent and so hide each other's latencies. out: rows g and g + 8 of each. The first tiles find the sum
// of the unit's x and leave it for the others.
template <int TILES, int DTYPE>
static __device__ __forceinline__ void multiply(float out[4], const unsigned char *unit, const bf16 *x, float *xs, bool finds) {
    enum { SECOND = chunk_units<W4>() * unit_bytes<W4>() };
    int lane = threadIdx.x % 32;
    uint32_t v[4], w[4], codes[TILES][4];
    uint2 meta[TILES];
    take_x(x, v, w);
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        *(uint4 *)codes[i] = *(const uint4 *)(unit + i * SECOND + lane * 16);
        meta[i] = *(const uint2 *)(unit + i * SECOND + TILE_CODES + lane / 4 * 8);
    }
    float sum, first[TILES][4] = {{0}}, second[TILES][4] = {{0}};
    if (finds) {
        sum = sum_x(v, w);
        if (lane == 0) *xs = sum;
    } else sum = *xs;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const uint32_t *q = codes[i];
            int shift = m * 8;
            const uint32_t a[4] = {nibbles_quick(q[0], shift), nibbles_quick(q[2], shift), nibbles_quick(q[0], shift + 4), nibbles_quick(q[2], shift + 4)};
            const uint32_t b[4] = {nibbles_quick(q[1], shift), nibbles_quick(q[3], shift), nibbles_quick(q[1], shift + 4), nibbles_quick(q[3], shift + 4)};
            mma_bf16(first[i], a, v[2 * m], v[2 * m + 1]);
            mma_bf16(second[i], b, w[2 * m], w[2 * m + 1]);
        }
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        const uint32_t words[2] = {meta[i].x, meta[i].y};
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float s = meta_f32(words[r] & 0xffff, DTYPE), b = meta_f32(words[r] >> 16, DTYPE), y = fmaf(-128.0f, sum, first[i][2 * r] + second[i][2 * r]);
            out[2 * i + r] = fmaf(b, sum, fmaf(s, y, out[2 * i + r]));
        }
    }
}

static __device__ __forceinline__ void multiply_bf16(float out[4], const unsigned char *slot, const bf16 *x) {
    slot += threadIdx.x % 32 * 16;
    uint32_t v[4], w[4], codes[4], more[4], low[4], high[4];
    take_x(x, v, w);
    *(uint4 *)codes = *(const uint4 *)slot, *(uint4 *)more = *(const uint4 *)(slot + 512);
    *(uint4 *)low = *(const uint4 *)(slot + 1024), *(uint4 *)high = *(const uint4 *)(slot + 1536);
    float first[4] = {0}, second[4] = {0};
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const uint32_t a[4] = {codes[2 * m], low[2 * m], codes[2 * m + 1], low[2 * m + 1]};
        const uint32_t b[4] = {more[2 * m], high[2 * m], more[2 * m + 1], high[2 * m + 1]};
        mma_bf16(first, a, v[2 * m], v[2 * m + 1]);
        mma_bf16(second, b, w[2 * m], w[2 * m + 1]);
    }
    out[0] += first[0] + second[0];
    out[1] += first[2] + second[2];
}

// A warp's sums of rows g and g + 8 of a tile: [16][warps + 1].
template <int WARPS> static __device__ __forceinline__ void keep_sums(float *red, float low, float high) {
    int lane = threadIdx.x % 32;
    if (lane % 4) return;
    red += lane / 4 * (WARPS + 1) + threadIdx.x / 32;
    red[0] = low, red[8 * (WARPS + 1)] = high;
}

static __device__ __noinline__ float gated_rare(const k_act &a, float x, float b) {
    return gated(a, x, b);
}

template <int WARPS> static __device__ __forceinline__ float sum_lanes(float x) {
#pragma unroll
    for (int step = WARPS / 2; step > 0; step /= 2) x += __shfl_xor_sync(FULL, x, step);
    return x;
}

// What is added to result i: asked for early, waited for where it is used.
struct early {
    uint2 residual;
    float bias;
};
static __device__ __forceinline__ early ask(const k_step_linear &a, int i, bool there) {
    early e = {uint2{0, 0}, 0};
    if (!there) return e;
    if (a.residual_link) e.residual = load_tagged(a.residual_link + i);
    else if (a.residual) e.residual.x = __float_as_uint(a.residual[i]);
    if (a.bias) e.bias = a.bias[i];
    return e;
}

// Results of n tiles from `first` on: sums of the warps, then norm, bias, gate and residual. Few results: as many lanes as there are warps share
// one; many: one each. `wide` says which.
template <int WARPS> static __device__ __forceinline__ float sum_warps(const float *from, bool wide) {
    if (!wide) return sum_lanes<WARPS>(*from);
    float y = 0, z = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w += 2) y += from[w], z += from[w + 1];
    return y + z;
}
static __device__ __forceinline__ bool is_wide(int n) {
    return n > 2;
}

// What the end of a product asks its instruction for, read while its warps are still coming: behind their meeting every step counts.
struct ending {
    float inv_in, eps, own_scale, residual_scale, act_scale;
    int inner, width, act_kind;
    bool has_norm, has_residual, is_f32;
    uint64_t *link;
    void *y;
    const uint64_t *residual_link;
    uint32_t tag, residual_tag;
};
static __device__ __forceinline__ ending ending_of(const k_instr &in, uint32_t tag) {
    const k_step_linear &a = in.u.linear;
    ending o;
    o.has_norm = a.has_norm, o.inv_in = a.inv_in, o.eps = a.eps;
    o.inner = (int)a.glu_inner, o.width = o.inner ? o.inner : (int)a.w.out, o.act_kind = a.act.kind, o.act_scale = a.act.scale;
    o.has_residual = a.residual || a.residual_link, o.own_scale = a.own_scale, o.residual_scale = a.residual_scale;
    o.link = a.y_link, o.y = a.y, o.is_f32 = a.y_dtype == K_F32, o.residual_link = a.residual_link;
    o.tag = tag + in.number, o.residual_tag = tag + a.residual_maker;
    return o;
}

template <int WARPS> static __device__ __forceinline__ void finish(const k_step_linear &a, const ending &o, const float *red, const float *squares, int first, int n, early e) {
    enum { TILE = 16 * (WARPS + 1) };
    bool wide = is_wide(n);
    int shift = wide ? 0 : WARPS == 16 ? 4 : 3, w = wide ? 0 : threadIdx.x % WARPS;
    int at = (int)threadIdx.x >> shift, i = first * 16 + at;
    if ((int)(threadIdx.x & ~31u) >> shift >= n * 16) return; // whole warps: the others meet in shuffles
    bool there = at < n * 16 && i < o.width;
    const float *from = red + at / 16 * (o.inner ? 2 * TILE : TILE) + at % 16 * (WARPS + 1) + w;
    float scale = 1.0f;
    if (o.has_norm) scale = rsqrtf(fmaf(sum_lanes<WARPS>(squares[threadIdx.x % WARPS]), o.inv_in, o.eps));
    float y = sum_warps<WARPS>(from, wide);
    y = fmaf(y, scale, e.bias);
    if (o.inner) {
        float up = sum_warps<WARPS>(from + TILE, wide) * scale;
        if (a.bias && there) up += a.bias[i + o.inner];
        y = o.act_kind == 1 ? __fdividef(y, 1.0f + __expf(-y)) * (up * o.act_scale) : gated_rare(a.act, y, up);
    }
    if (o.has_residual) {
        while (o.residual_link && there && e.residual.y != o.residual_tag) e.residual = load_tagged(o.residual_link + i);
        y = y * o.own_scale + __uint_as_float(e.residual.x) * o.residual_scale;
    }
    bool stores = w == 0 && there;
    if (o.link) {
        float next = __shfl_down_sync(FULL, y, 1 << shift);
        if (o.is_f32 && stores) store_tagged(o.link + i, __float_as_uint(y), o.tag);
        if (!o.is_f32 && stores && i % 2 == 0) store_tagged(o.link + i / 2, pack_bf16(y, next), o.tag);
    }
    if (o.y && stores) store_f32(o.y, o.is_f32 ? K_F32 : K_BF16, i, y);
}

// What the warp's units make of TILES tiles.
template <int KIND, int WARPS, int TILES, int DTYPE>
static __device__ __forceinline__ void run_tiles(float out[4], ring_state &r, const shared_head *head, const bf16 *x, float *xs, int mine, bool finds, int limit) {
#pragma unroll 1
    for (int u = 0; u < mine;) {
        if (r.under_way < r.depth && has_unit<KIND, WARPS>(r.c, head, limit)) fetch<KIND, WARPS>(r, head);
        const unsigned char *place = wait_place<KIND>(r);
        int end = u + chunk_units<KIND>() < mine ? u + chunk_units<KIND>() : mine;
#pragma unroll 1
        for (; u < end; u++, place += unit_bytes<KIND>()) {
            if (KIND == W16) multiply_bf16(out, place, x + u * 64);
            else multiply<TILES, DTYPE>(out, place, x + u * 64, xs + u, finds);
        }
        leave_place(r);
    }
}

template <int KIND, int WARPS>
static __device__ __forceinline__ void run_product(const k_instr &in, shared_head *head, unsigned char *smem, ring_state &r, int i, int limit, int &turn, uint4 ahead) {
    const k_step_linear &a = in.u.linear;
    int warp = threadIdx.x / 32, units = (int)a.w.in / 64, u0 = warp * units / WARPS, mine = (warp + 1) * units / WARPS - u0;
    int first = first_tile(a), n_tiles = count_tiles(a), parts = a.glu_inner ? 2 : 1;
    bool is_half = KIND != W16 && a.w.dtype != K_BF16;
    float *all_xs = (float *)(smem + rings_at<WARPS>() + WARPS * r.depth * place_bytes<KIND>()), *xs = all_xs + u0;
    bf16 *x = (bf16 *)(all_xs + (units + 3) / 4 * 4) + u0 * 64;
    float *squares = head->squares[i & 1];
    uint32_t tag = head->tag;
    if (n_tiles) {
        float square = a.x_link ? stage_linked<KIND, WARPS>(a, x, u0 * 64, mine * 64, tag + a.x_maker, r, head, limit) : stage_plain(a, x, u0 * 64, mine * 64);
        if (a.has_norm) {
            square = warp_sum(square);
            if (threadIdx.x % 32 == 0) squares[warp] = square;
        }
        __syncwarp();
    }
    int done = 0;
    do {
        int n = n_tiles - done < AT_ONCE / parts ? n_tiles - done : AT_ONCE / parts, tiles = n * parts;
        int at = is_wide(n) ? (int)threadIdx.x : (int)threadIdx.x / WARPS;
        early e = ask(a, (first + done) * 16 + at, at < n * 16 && (first + done) * 16 + at < (a.glu_inner ? (int)a.glu_inner : (int)a.w.out));
        float *red = (float *)(smem + HEAD_BYTES) + (turn & 1) * red_floats<WARPS>();
#pragma unroll 1
        for (int tile = 0; tile < tiles; tile += KIND == W16 ? 1 : 2) {
            float out[4] = {0};
            bool finds = done + tile == 0;
            if (KIND == W16) run_tiles<KIND, WARPS, 1, K_BF16>(out, r, head, x, xs, mine, finds, limit);
            else if (tile + 1 < tiles && !is_half) run_tiles<KIND, WARPS, 2, K_BF16>(out, r, head, x, xs, mine, finds, limit);
            else if (tile + 1 < tiles) run_tiles<KIND, WARPS, 2, K_F16>(out, r, head, x, xs, mine, finds, limit);
            else if (!is_half) run_tiles<KIND, WARPS, 1, K_BF16>(out, r, head, x, xs, mine, finds, limit);
            else run_tiles<KIND, WARPS, 1, K_F16>(out, r, head, x, xs, mine, finds, limit);
            keep_sums<WARPS>(red + tile * 16 * (WARPS + 1), out[0], out[1]);
            if (KIND != W16 && tile + 1 < tiles) keep_sums<WARPS>(red + (tile + 1) * 16 * (WARPS + 1), out[2], out[3]);
        }
        ending o = ending_of(in, tag);
        if (warp == 0) *((uint4 *)&head->slots[(i + AHEAD_INSTRS) % SLOTS] + threadIdx.x) = ahead;
        __syncthreads();
        if (n) finish<WARPS>(a, o, red, squares, first + done, n, e);
        turn++;
        done += n;
    } while (done < n_tiles);
}

// ---- attention ----

// What the row's attention needs, once for all layers that ask for the same.
static __device__ __noinline__ void know_row(const k_step_attn &a, shared_head *known, int split) {
    __syncthreads();
    int pos = a.pos[0], seq = a.seq_of[0], first = first_visible(a.window, a.chunk, pos);
    int begin = (first + split * ((pos - first + a.splits) / a.splits)) / K_BLOCK;
    const float *table = a.inv_freq ? a.inv_freq : a.step_rope + ((int64_t)seq * a.n_rope_tables + a.table) * a.rope_width;
    for (int i = threadIdx.x; i < a.n_rotated / 2; i += blockDim.x) rope_angle(pos, table[i], a.magnitude, &known->cosines[i], &known->sines[i]);
    for (int i = threadIdx.x; i < TABLE_MAX && begin + i <= pos / K_BLOCK; i += blockDim.x)
        known->blocks[i] = a.c.table[(int64_t)seq * a.c.table_stride + begin + i];
    if (threadIdx.x == 0) {
        known->pos = pos, known->seq = seq, known->row = 0, known->first_block = begin;
        known->table = a.c.table, known->inv_freq = a.inv_freq ? a.inv_freq : a.step_rope + a.table;
    }
    __syncthreads();
}

static __device__ __noinline__ float position_scale(const k_step_attn &a, int pos) {
    return a.scale * (1.0f + a.pos_scale_beta * logf(1.0f + (float)((pos + a.pos_scale_first) / a.pos_scale_len)));
}

// Which part of attention a block makes: query heads of one cached head, from one of them on, over a run of positions.
struct part_of {
    int kv_head, first, n, split;
};

// Queries to shared memory, one warp each; where the row's own position is this block's, its key and value too, as the cache has them, and to
// the cache.
template <int D> static __device__ __forceinline__ void place_head(const k_step_attn &a, const shared_head *known, float *heads, const part_of &part, int pos, bool writes, int warp) {
    enum { E = D / 32 };
    int lane = threadIdx.x % 32, n = part.n, kv_head = part.kv_head;
    bool is_q = warp < n, is_k = warp == n;
    if (!is_q && !writes) return;
    int at = is_q ? (kv_head * a.group + part.first + warp) * (int)a.q_head : kv_head * (int)(is_k ? a.k_head : a.v_head);
    const float *weight = is_q ? a.q_norm : a.k_norm;
    bool norms = is_q ? a.has_q_norm : is_k && a.has_k_norm, turns = (is_q || is_k) && a.rope_kind, whole = a.rope_kind == 1 && a.n_rotated == D;
    float x[E], w[E], *to = heads + (warp + (is_q ? 0 : 1)) * D; // own key and value lie in one row behind the queries
#pragma unroll
    for (int e = 0; e < E; e++) w[e] = norms && weight ? weight[lane + 32 * e] : 0;
    if (a.qkv_link) {
        const uint64_t *link = a.qkv_link + (is_q ? a.q_at : is_k ? a.k_at : a.v_at) + at;
        uint32_t tag = known->tag + a.qkv_maker;
        bool there;
        do {
            there = true;
#pragma unroll
            for (int e = 0; e < E; e++) {
                uint2 word = load_tagged(link + lane + 32 * e);
                x[e] = __uint_as_float(word.x);
                there = there && word.y == tag;
            }
        } while (!in_all_lanes(there));
    } else {
        const float *from = (is_q ? a.q : is_k ? a.k : a.v) + at;
#pragma unroll
        for (int e = 0; e < E; e++) x[e] = from[lane + 32 * e];
    }
    if (norms) {
        float square = 0, offset = !weight ? 1.0f : is_q ? a.q_offset : a.k_offset;
#pragma unroll
        for (int e = 0; e < E; e++) square = fmaf(x[e], x[e], square);
        float scale = rsqrtf(warp_sum(square) / (float)D + (is_q ? a.q_eps : a.k_eps));
#pragma unroll
        for (int e = 0; e < E; e++) x[e] = x[e] * scale * (w[e] + offset);
    }
    if (turns && whole) {
#pragma unroll
        for (int e = 0; e < E / 2; e++) {
            float c = known->cosines[lane + 32 * e], s = known->sines[lane + 32 * e], x0 = x[e], x1 = x[e + E / 2];
            x[e] = x0 * c - x1 * s;
            x[e + E / 2] = x1 * c + x0 * s;
        }
    }
    if (turns && !whole) {
#pragma unroll
        for (int e = 0; e < E; e++) to[lane + 32 * e] = x[e];
        __syncwarp();
        rotate_head(a, known, to);
#pragma unroll
        for (int e = 0; e < E; e++) x[e] = to[lane + 32 * e];
        __syncwarp();
    }
    if (is_q) {
#pragma unroll
        for (int e = 0; e < E; e++) to[lane + 32 * e] = x[e];
        return;
    }
    bf16 *own = (bf16 *)(heads + n * D) + (is_k ? 0 : D);
    bf16 *cached = (bf16 *)(is_k ? a.c.k : a.c.v) + (int64_t)(table_block(a, known, pos / K_BLOCK) * a.c.heads + kv_head) * (K_BLOCK * D) + pos % K_BLOCK * D;
#pragma unroll
    for (int e = 0; e < E; e++) {
        bf16 rounded = __float2bfloat16_rn(x[e]);
        if (part.first == 0) cached[lane + 32 * e] = rounded;
        own[lane + 32 * e] = rounded;
    }
}

static __device__ __forceinline__ void widen(uint4 v, float out[8]) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) out[2 * i] = __uint_as_float(words[i] << 16), out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
}

// Warps share positions and query heads: one or two heads each, D / 8 lanes for a position, PER_STEP positions at a time.
struct shares {
    int n_warps, i_warp, set; // warps with the same heads, this one among them; which heads
};

// Keys and values of the positions p, p + step, ...; zeros beyond the end, and at the row's own position, which is not in the cache yet.
template <int D, int PER_STEP>
static __device__ __forceinline__ void load_positions(const k_step_attn &a, const shared_head *known, int kv_head, int p, int step, int end, uint4 key[PER_STEP], uint4 value[PER_STEP]) {
    int part = threadIdx.x % (D / 8), heads = a.c.heads;
    const bf16 *keys = (const bf16 *)a.c.k, *values = (const bf16 *)a.c.v;
#pragma unroll
    for (int j = 0; j < PER_STEP; j++) {
        int q = p + j * step;
        key[j] = value[j] = uint4{0, 0, 0, 0};
        if (q >= end) continue;
        int64_t at = (int64_t)(table_block(a, known, q / K_BLOCK) * heads + kv_head) * (K_BLOCK * D) + q % K_BLOCK * D + part * 8;
        key[j] = *(const uint4 *)(keys + at), value[j] = *(const uint4 *)(values + at);
    }
}

// The query heads of this warp over the positions of this block, begin ... end - 1, and the row's own; the first keys and values are loaded.
// parts: [heads][n_warps][D + 2]. Scores are in units of log 2.
template <int D, int HEADS, int PER_STEP>
static __device__ __forceinline__ void attend(const k_step_attn &a, const float *heads, float *parts, const shared_head *known, int group, int kv_head, int pos, bool own, int p, int end, float scale, const shares &w,
                                              uint4 key[PER_STEP], uint4 value[PER_STEP]) {
    enum { LANES = D / 8, BESIDE = 32 / LANES };
    int lane = threadIdx.x % 32, part = lane % LANES, step = w.n_warps * BESIDE, stop = end + (own ? 1 : 0);
    const bf16 *mine = (const bf16 *)(heads + group * D);
    float q[HEADS][8], acc[HEADS][8], max[HEADS], sum[HEADS], softcap = a.softcap;
    scale *= softcap > 0 ? 2.0f / softcap : LOG2E;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        max[h] = -INFINITY, sum[h] = 0;
        bool there = w.set * HEADS + h < group;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            acc[h][i] = 0;
            q[h][i] = there ? heads[(w.set * HEADS + h) * D + part * 8 + i] * scale : 0.0f;
        }
    }
    while (p - lane / LANES < stop) { // any lane of this warp
        float s[HEADS][PER_STEP];
#pragma unroll
        for (int j = 0; j < PER_STEP; j++) {
            int at = p + j * step;
#pragma unroll
            for (int h = 0; h < HEADS; h++) s[h][j] = -INFINITY;
            if (at - lane / LANES >= stop) continue; // no lane of this warp
            if (own && at == pos) key[j] = *(const uint4 *)(mine + part * 8), value[j] = *(const uint4 *)(mine + D + part * 8);
            float k[8];
            widen(key[j], k);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                float dot = 0, more = 0;
#pragma unroll
                for (int i = 0; i < 4; i++) dot = fmaf(q[h][i], k[i], dot), more = fmaf(q[h][i + 4], k[i + 4], more);
                dot += more;
#pragma unroll
                for (int x = LANES / 2; x > 0; x /= 2) dot += __shfl_xor_sync(FULL, dot, x);
                if (softcap > 0) dot = softcap * LOG2E * (1.0f - __fdividef(2.0f, 1.0f + __expf(dot))); // tanh
                s[h][j] = at < end || (own && at == pos) ? dot : -INFINITY;
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float top = max[h];
#pragma unroll
            for (int j = 0; j < PER_STEP; j++) top = fmaxf(top, s[h][j]);
            float base = top == -INFINITY ? 0.0f : top, keep = exp2f(max[h] - base);
            max[h] = top;
            sum[h] *= keep;
#pragma unroll
            for (int i = 0; i < 8; i++) acc[h][i] *= keep;
#pragma unroll
            for (int j = 0; j < PER_STEP; j++) {
                if (p + j * step - lane / LANES >= stop) continue;
                float weight = exp2f(s[h][j] - base), v[8];
                sum[h] += weight;
                widen(value[j], v);
#pragma unroll
                for (int i = 0; i < 8; i++) acc[h][i] = fmaf(weight, v[i], acc[h][i]);
            }
        }
        p += PER_STEP * step;
        if (p - lane / LANES < stop) load_positions<D, PER_STEP>(a, known, kv_head, p, step, end, key, value);
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
#pragma unroll
        for (int x = LANES; x < 32; x *= 2) { // positions beside each other in this warp
            float other_max = __shfl_xor_sync(FULL, max[h], x), top = fmaxf(max[h], other_max), base = top == -INFINITY ? 0.0f : top;
            float keep = exp2f(max[h] - base), take = exp2f(other_max - base);
            max[h] = top;
            sum[h] = sum[h] * keep + __shfl_xor_sync(FULL, sum[h], x) * take;
#pragma unroll
            for (int i = 0; i < 8; i++) acc[h][i] = acc[h][i] * keep + __shfl_xor_sync(FULL, acc[h][i], x) * take;
        }
        if (w.set * HEADS + h >= group || lane >= LANES) continue;
        float *to = parts + ((w.set * HEADS + h) * w.n_warps + w.i_warp) * (D + 2);
#pragma unroll
        for (int i = 0; i < 8; i++) to[part * 8 + i] = acc[h][i];
        if (part == 0) to[D] = max[h], to[D + 1] = sum[h];
    }
}

// Everything but the usual end of attention: runs of several blocks, joined by the last of them to come; sinks; results that lie in memory as
// they are. joined: [heads][D + 2] of this block.
template <int D> static __device__ __noinline__ void store_heads(const k_step_attn &a, shared_head *head, const float *joined, int first_head, int n, int split, int counter, uint32_t tag) {
    int splits = a.splits;
    float *partial = a.partial + (int64_t)first_head * splits * (D + 2);
    __syncthreads();
    if (splits > 1) {
        for (int e = threadIdx.x; e < n * (D + 2); e += blockDim.x) partial[(e / (D + 2) * splits + split) * (D + 2) + e % (D + 2)] = joined[e];
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            head->last = count_around(a.counters + counter, (uint32_t)splits - 1) == (uint32_t)splits - 1;
            __threadfence();
        }
        __syncthreads();
        if (!head->last) return;
    }
#pragma unroll 1
    for (int e = threadIdx.x; e < n * D; e += blockDim.x) {
        int h = e / D, i = e % D;
        softened s = {joined[h * (D + 2) + i], joined[h * (D + 2) + D], joined[h * (D + 2) + D + 1]};
        if (splits > 1) s = join<true>(partial + h * splits * (D + 2), splits, D, i);
        if (a.sinks) add_sink(s, a.sinks[first_head + h]);
        float x = __fdividef(s.x, s.sum);
        float next = __shfl_down_sync(FULL, x, 1);
        int at = first_head * D + e;
        if (a.y) store_f32(a.y, a.y_dtype, at, x);
        if (!a.y_link) continue;
        if (a.y_dtype == K_F32) store_tagged(a.y_link + at, __float_as_uint(x), tag);
        else if (i % 2 == 0) store_tagged(a.y_link + at / 2, pack_bf16(x, next), tag);
    }
}

// One item: query heads of a cached head, a run of positions.
template <int WARPS, int D, int HEADS> static __device__ __forceinline__ void run_item(const k_instr &in, shared_head *head, float *heads, int item) {
    enum { PER_STEP = HEADS == 1 ? 4 : 2 };
    const k_step_attn &a = in.u.attn;
    float *parts = heads + (a.per_item + 2) * D;
    int sets = a.sets, splits = a.splits;
    part_of part;
    int pair = splits == 1 ? item : item / splits;
    part.split = item - pair * splits;
    part.kv_head = sets == 1 ? pair : pair / sets;
    part.first = (pair - part.kv_head * sets) * a.per_item;
    part.n = a.group - part.first < a.per_item ? a.group - part.first : a.per_item;
    bool same = head->row == 0 && head->table == a.c.table && head->inv_freq == (a.inv_freq ? a.inv_freq : a.step_rope + a.table);
    if (!same) know_row(a, head, part.split);
    int pos = head->pos, first = first_visible(a.window, a.chunk, pos), per_split = splits == 1 ? pos - first + 1 : (pos - first + splits) / splits;
    int begin = first + part.split * per_split, end = begin + per_split < pos + 1 ? begin + per_split : pos + 1;
    bool writes = begin <= pos && end == pos + 1;
    if (writes) end = pos; // its own comes from shared memory
    int n_sets = HEADS == 1 ? part.n : (part.n + 1) / 2, warp = threadIdx.x / 32;
    const shares w = n_sets == 1 ? shares{WARPS, warp, 0} : shares{WARPS / n_sets, warp / n_sets, warp % n_sets};
    int step = w.n_warps * (256 / D), p = begin + w.i_warp * (256 / D) + threadIdx.x % 32 / (D / 8);
    float scale = a.pos_scale_len ? position_scale(a, pos) : a.scale;
    uint4 key[PER_STEP], value[PER_STEP];
    load_positions<D, PER_STEP>(a, head, part.kv_head, w.i_warp < w.n_warps ? p : end, step, end, key, value);
#pragma unroll 1
    for (int i = warp; i < part.n + 2; i += WARPS) place_head<D>(a, head, heads, part, pos, writes, i);
    __syncthreads();
    if (w.i_warp < w.n_warps) attend<D, HEADS, PER_STEP>(a, heads, parts, head, part.n, part.kv_head, pos, writes, p, end, scale, w, key, value);
    __syncthreads();
    int first_head = part.kv_head * a.group + part.first, lane = threadIdx.x % WARPS; // as many lanes as warps share an element
    uint32_t tag = head->tag + in.number;
    bool usual = splits == 1 && a.y_link && !a.y && !a.sinks && a.y_dtype != K_F32;
    bool there = lane < w.n_warps;
#pragma unroll 1
    for (int h = 0; h < part.n; h++) {
        const float *from = parts + (h * w.n_warps + lane) * (D + 2);
        float mine = there ? from[D] : -INFINITY, max = mine, x[D / 32];
#pragma unroll
        for (int step = WARPS / 2; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(FULL, max, step));
        float keep = there ? exp2f(mine - (max == -INFINITY ? 0.0f : max)) : 0.0f, sum = sum_lanes<WARPS>(there ? from[D + 1] * keep : 0.0f);
#pragma unroll
        for (int j = 0; j < D / 32; j++) x[j] = sum_lanes<WARPS>(there ? from[threadIdx.x / WARPS + j * 32] * keep : 0.0f);
        if (usual) {
            uint64_t *to = a.y_link + ((first_head + h) * D + (int)threadIdx.x / WARPS) / 2;
            float factor = __fdividef(1.0f, sum);
            bool stores = lane == 0 && threadIdx.x / WARPS % 2 == 0;
#pragma unroll
            for (int j = 0; j < D / 32; j++) {
                float y = x[j] * factor, next = __shfl_down_sync(FULL, y, WARPS);
                if (stores) store_tagged(to + j * 16, pack_bf16(y, next), tag);
            }
        } else if (lane == 0) {
            float *to = heads + h * (D + 2);
#pragma unroll
            for (int j = 0; j < D / 32; j++) to[threadIdx.x / WARPS + j * 32] = x[j];
            if (threadIdx.x == 0) to[D] = max, to[D + 1] = sum;
        }
    }
    if (!usual) store_heads<D>(a, head, heads, first_head, part.n, part.split, pair, tag);
}

// ---- lists ----

// Blocks share an instruction's tiles or items; attention's items begin at the last block, since the first have a tile more of products.
template <int KIND, int WARPS, int D> static __device__ __forceinline__ void run_list(const k_step_run &a, unsigned char *smem) {
    shared_head *head = (shared_head *)smem;
    int n_instrs = a.n, warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < AHEAD_INSTRS * K_INSTR_BYTES / 16; i += WARPS * 32)
        if (i / (K_INSTR_BYTES / 16) < n_instrs) ((uint4 *)smem)[i] = ((const uint4 *)a.instrs)[i];
    if (threadIdx.x == 0) {
        head->row = -1;
        head->tag = a.barrier[2] + 1;
    }
#if !defined(MLXCEL_EMULATE) && __CUDA_ARCH__ >= 900
    for (int i = threadIdx.x; i < PLACES_MAX; i += WARPS * 32) barrier_init((uint32_t)__cvta_generic_to_shared(&head->arrived[i]), 1);
    barrier_init_done();
#endif
    __syncthreads();
    ring_state r;
    r.c.tiles = r.c.next = r.under_way = r.put = r.take = 0;
    r.phases = 0;
    r.depth = a.depth;
#ifndef MLXCEL_EMULATE
    r.arrived = (uint32_t)__cvta_generic_to_shared(&head->arrived[warp * (PLACES_MAX / WARPS)]);
#endif
    r.places = smem + rings_at<WARPS>() + warp * r.depth * place_bytes<KIND>();
    int turn = 0;
    uint32_t arrivals = 0;
#pragma unroll 1
    while (r.under_way < r.depth && has_unit<KIND, WARPS>(r.c, head, AHEAD_INSTRS < n_instrs ? AHEAD_INSTRS : n_instrs)) fetch<KIND, WARPS>(r, head);
#pragma unroll 1
    for (int i = 0; i < n_instrs; i++) {
        const k_instr &in = head->slots[i % SLOTS];
        uint4 ahead = {0, 0, 0, 0};
        if (warp == 0 && i + AHEAD_INSTRS < n_instrs) ahead = ((const uint4 *)(a.instrs + i + AHEAD_INSTRS))[threadIdx.x];
        if (in.waits) grid_barrier(a.barrier, arrivals += gridDim.x);
        if (in.kind == K_STEP_LINEAR) {
            int limit = i + LOOK + 1 < n_instrs ? i + LOOK + 1 : n_instrs;
            run_product<KIND, WARPS>(in, head, smem, r, i, limit, turn, ahead);
            continue;
        }
        int item = gridDim.x - 1 - blockIdx.x;
        if (item < in.u.attn.c.heads * in.u.attn.sets * in.u.attn.splits) {
            float *heads = (float *)(smem + rings_at<WARPS>() + WARPS * r.depth * place_bytes<KIND>());
            if (in.u.attn.per_item == 1) run_item<WARPS, D, 1>(in, head, heads, item);
            else run_item<WARPS, D, 2>(in, head, heads, item);
        }
        if (warp == 0) *((uint4 *)&head->slots[(i + AHEAD_INSTRS) % SLOTS] + threadIdx.x) = ahead;
        __syncthreads();
    }
    copy_wait<0>();
    if (a.tags) {
        __syncthreads();
        grid_leave(a.barrier, (uint32_t)a.tags);
    }
}

// One block per multiprocessor, all of them at once on the GPU (a cooperative launch). By bits of weights and width of heads.
#define ONE(name, kind, warps, d)                                                           \
    extern "C" __global__ void __launch_bounds__(warps * 32, 1) name(KARGS(k_step_run) a) { \
        DYNAMIC_SHARED(unsigned char, smem);                                                \
        run_list<kind, warps, d>(a, smem);                                                  \
    }
ONE(one_4_64, W4, 16, 64)
ONE(one_4_128, W4, 16, 128)
ONE(one_16_64, W16, 16, 64)
ONE(one_16_128, W16, 16, 128)
