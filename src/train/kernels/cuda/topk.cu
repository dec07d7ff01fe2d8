/*
 * The codec topk: a radix select over the bits of |x| on candidates that reach a bound from a
 * sample, as on the CPU (strategies/codecs/topk.c), in kernels that the host launches without
 * knowing what they find:
 *
 *   guess    one block: the bound, from the sample
 *   mark     residual += gradient; a mask of the candidates, and their number in each tile
 *   collect  the candidates as pairs, by index
 *   digits   three times: counts digits of 11, 10 and 10 bits, and finds that of the bound
 *   count    in each tile of the candidates, those above the bound and those equal to it
 *   send     the pairs; residual = 0 where they are from
 *
 * Where too few or too many numbers reach the guess, the last three work on all numbers. Sums over
 * tiles are made by the block that comes last; the order of blocks changes no bit. mark moves 12
 * bytes a number, all others together about one.
 */
#include "train/kernels/cuda/codec.h"

#include "train/kernels/cuda/vector.cuh"

namespace
{

constexpr unsigned THREADS = 256, WIDE = 1024, LANES = 32, WARPS = THREADS / LANES;
constexpr unsigned EACH = CODEC_BLOCK / LANES, ALL = 0xffffffffu;
/* Numbers: of a block of mark and collect; of one of count and send; of a warp that decodes. */
constexpr unsigned MARK_TILE = 8192, SEND_EACH = 8, SEND_TILE = THREADS * SEND_EACH,
                   SUM_TILE = 1024;
constexpr unsigned DIGITS = 2048, PASSES = 3;

/* Results that one kernel leaves for the next. */
struct state {
    unsigned guess;         /* bits of |x| that candidates reach */
    unsigned found;         /* candidates */
    unsigned direct;        /* all numbers are candidates */
    unsigned bits, ties;    /* the bound so far, and how many are wanted of what reaches it */
    unsigned marked, sized; /* blocks that are through with mark and count */
    unsigned counted[PASSES];
    unsigned counts[PASSES][DIGITS];
};

struct layout {
    struct state *state;
    unsigned *marks;          /* candidates in each tile, then in those before it */
    uint2 *sizes;             /* above the bound, and equal to it; as marks */
    unsigned *mask;           /* a bit for each number */
    struct codec_pair *pairs; /* the candidates */
    unsigned room;            /* for them */
    size_t bytes;
};

__host__ __device__ constexpr size_t pieces(size_t count, size_t each)
{
    return (count + each - 1) / each;
}

struct layout layout_of(const struct codec_pass *pass)
{
    const size_t count = pass->count, room = codec_candidates(count, pass->keep);
    const size_t bytes[] = {sizeof(struct state), pieces(count, MARK_TILE) * sizeof(unsigned),
                            pieces(count, SEND_TILE) * sizeof(uint2),
                            pieces(count, MARK_TILE) * MARK_TILE / 8,
                            room * sizeof(struct codec_pair)};
    char *at[6] = {(char *)pass->scratch};
    for (int i = 0; i < 5; i++)
        at[i + 1] = at[i] + pieces(bytes[i], 16) * 16;
    return {(struct state *)at[0],  (unsigned *)at[1],          (uint2 *)at[2],
            (unsigned *)at[3],      (struct codec_pair *)at[4], (unsigned)room,
            (size_t)(at[5] - at[0])};
}

__device__ inline unsigned magnitude(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

/* ---- Sums over a block and over tiles ---- */

/* The sum of `mine` of the threads before this one; of all threads in *total. */
template <unsigned SIZE> __device__ unsigned block_before(unsigned mine, unsigned *total)
{
    __shared__ unsigned sums[SIZE / LANES];
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    unsigned sum = mine, before = 0, all = 0;
    for (unsigned d = 1; d < LANES; d *= 2) {
        const unsigned other = __shfl_up_sync(ALL, sum, d);
        sum += lane >= d ? other : 0;
    }
    if (lane == LANES - 1)
        sums[warp] = sum;
    __syncthreads();
    for (unsigned w = 0; w < SIZE / LANES; w++) {
        before += w < warp ? sums[w] : 0;
        all += sums[w];
    }
    __syncthreads();
    *total = all;
    return before + sum - mine;
}

/* True in the last block to call this, which then sees what the others have written. */
__device__ bool block_last(unsigned *tickets)
{
    __shared__ unsigned ticket;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        ticket = atomicAdd(tickets, 1);
    __syncthreads();
    __threadfence();
    return ticket == gridDim.x - 1;
}

/* Each of `count` numbers, `stride` words apart, becomes the sum of those before it. By a block that
 * comes last; returns the sum of all. */
template <unsigned SIZE> __device__ unsigned sum_before(unsigned *x, unsigned stride, size_t count)
{
    const size_t each = pieces(count, SIZE), begin = threadIdx.x * each,
                 end = begin + each < count ? begin + each : count;
    unsigned mine = 0, total;
    for (size_t i = begin; i < end; i++)
        mine += __ldcg(x + i * stride);
    unsigned before = block_before<SIZE>(mine, &total);
    for (size_t i = begin; i < end; i++) {
        const unsigned here = __ldcg(x + i * stride);
        x[i * stride] = before;
        before += here;
    }
    return total;
}

/* ---- Radix select ---- */

__host__ __device__ constexpr unsigned digits_of(unsigned pass)
{
    return pass == 0 ? 2048 : 1024;
}

__host__ __device__ constexpr unsigned shift_of(unsigned pass)
{
    return pass == 0 ? 20 : pass == 1 ? 10 : 0;
}

/* By a block of WIDE threads: the digit in which the `*ties` largest end, by the counts of all
 * digits, is put behind *bits; *ties becomes how many are wanted of that digit. */
__device__ void digit_find(const unsigned *counts, unsigned digits, unsigned *bits, unsigned *ties)
{
    const unsigned each = digits / WIDE, wanted = *ties, prefix = *bits;
    const unsigned top = digits - 1 - threadIdx.x * each;
    unsigned mine = 0, total;
    for (unsigned i = 0; i < each; i++)
        mine += __ldcg(counts + top - i);
    unsigned above = block_before<WIDE>(mine, &total);
    if (above >= wanted || above + mine < wanted)
        return;
    unsigned digit = top;
    for (unsigned here = __ldcg(counts + digit); above + here < wanted;
         here = __ldcg(counts + digit)) {
        above += here;
        digit--;
    }
    *bits = prefix * digits + digit;
    *ties = wanted - above;
}

__device__ inline float corrected(const struct codec_pass &pass, size_t i, float inverse)
{
    return __fadd_rn(__fmul_rn(pass.values[i], inverse), pass.residual[i]);
}

__device__ inline float inverse_of(const struct codec_pass &pass)
{
    return pass.scale ? __fdiv_rn(1, *pass.scale) : 1;
}

/* One block of WIDE threads. The sample's counts are in the place of the first digits'. */
__global__ void guess_kernel(const struct codec_pass pass, const struct layout at, unsigned rank)
{
    __shared__ unsigned bits, ties;
    unsigned *const words = (unsigned *)at.state, *const counts = at.state->counts[0];
    const float inverse = inverse_of(pass);
    unsigned sample[CODEC_SAMPLE / WIDE];
    if (threadIdx.x == 0) {
        bits = 0;
        ties = rank;
    }
#pragma unroll
    for (unsigned i = 0; i < CODEC_SAMPLE / WIDE && rank; i++)
        sample[i] = magnitude(
            corrected(pass, codec_sample_at(i * WIDE + threadIdx.x, pass.count), inverse));
    for (unsigned p = 0; p < PASSES && rank; p++) {
        const unsigned digits = digits_of(p);
        for (unsigned i = threadIdx.x; i < digits; i += WIDE)
            counts[i] = 0;
        __syncthreads();
#pragma unroll
        for (unsigned i = 0; i < CODEC_SAMPLE / WIDE; i++) {
            const unsigned b = sample[i] >> shift_of(p);
            if (b / digits == bits)
                atomicAdd(counts + b % digits, 1);
        }
        __threadfence();
        __syncthreads();
        digit_find(counts, digits, &bits, &ties);
        __syncthreads();
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < sizeof *at.state / sizeof *words; i += WIDE)
        words[i] = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        at.state->guess = min(bits, CODEC_INFINITE); /* what is not finite is a candidate */
        at.state->ties = (unsigned)pass.keep;
    }
}

/* ---- Candidates ---- */

/* One block for each tile; of a warp's 256 numbers lane j keeps word j of the mask. */
__global__ void __launch_bounds__(THREADS)
    mark_kernel(const struct codec_pass pass, const struct layout at)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, guess = at.state->guess;
    const float inverse = inverse_of(pass);
    unsigned mine = 0, total;
    for (unsigned i = warp; i < MARK_TILE / CODEC_BLOCK; i += WARPS) {
        const size_t block = (size_t)blockIdx.x * (MARK_TILE / CODEC_BLOCK) + i,
                     first = block * CODEC_BLOCK + lane;
        float x[EACH];
        unsigned word = 0;
#pragma unroll
        for (unsigned j = 0; j < EACH; j++)
            x[j] = first + j * LANES < pass.count ? corrected(pass, first + j * LANES, inverse) : 0;
#pragma unroll
        for (unsigned j = 0; j < EACH; j++) {
            const bool inside = first + j * LANES < pass.count;
            if (inside)
                pass.residual[first + j * LANES] = x[j];
            const unsigned ballot = __ballot_sync(ALL, inside && magnitude(x[j]) >= guess);
            word = lane == j ? ballot : word;
        }
        if (lane < EACH)
            at.mask[block * EACH + lane] = word;
        mine += __popc(word);
    }
    block_before<THREADS>(mine, &total);
    if (threadIdx.x == 0)
        at.marks[blockIdx.x] = total;
    if (!block_last(&at.state->marked))
        return;
    const unsigned found = sum_before<THREADS>(at.marks, 1, gridDim.x);
    if (threadIdx.x == 0) {
        at.state->found = found;
        at.state->direct = found < pass.keep || found > at.room;
    }
}

/* One block for each tile, one thread for each word of its mask. */
__global__ void collect_kernel(const struct codec_pass pass, const struct layout at)
{
    static_assert(MARK_TILE == THREADS * 32, "a word a thread");
    if (at.state->direct)
        return;
    const size_t index = (size_t)blockIdx.x * THREADS + threadIdx.x;
    unsigned total, word = at.mask[index];
    struct codec_pair *out =
        at.pairs + at.marks[blockIdx.x] + block_before<THREADS>(__popc(word), &total);
    for (; word; word &= word - 1) {
        const unsigned i = (unsigned)index * 32 + __ffs((int)word) - 1;
        *out++ = {i, pass.residual[i]};
    }
}

/* The numbers that digits, count and send read: candidates, or all. */
struct source {
    const float *values;
    const unsigned *indices; /* NULL: 0, 1, ... */
    unsigned stride, count;
};

__device__ inline source source_of(const struct codec_pass &pass, const struct layout &at)
{
    if (at.state->direct)
        return {pass.residual, nullptr, 1, (unsigned)pass.count};
    return {&at.pairs->value, &at.pairs->index, 2, at.state->found};
}

template <unsigned PASS>
__global__ void __launch_bounds__(WIDE)
    digits_kernel(const struct codec_pass pass, const struct layout at)
{
    constexpr unsigned digits = digits_of(PASS);
    __shared__ unsigned counts[digits];
    const source from = source_of(pass, at);
    const unsigned prefix = at.state->bits;
    for (unsigned i = threadIdx.x; i < digits; i += WIDE)
        counts[i] = 0;
    __syncthreads();
    for (size_t i = blockIdx.x * (size_t)WIDE + threadIdx.x; i < from.count;
         i += (size_t)gridDim.x * WIDE) {
        const unsigned bits = magnitude(from.values[i * from.stride]) >> shift_of(PASS);
        if (bits / digits == prefix)
            atomicAdd(counts + bits % digits, 1);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < digits; i += WIDE)
        if (counts[i])
            atomicAdd(&at.state->counts[PASS][i], counts[i]);
    if (block_last(&at.state->counted[PASS]))
        digit_find(at.state->counts[PASS], digits, &at.state->bits, &at.state->ties);
}

/* ---- Sending ---- */

/* A thread's numbers of a tile: consecutive ones, so that threads are in the order of the indices. */
__device__ inline size_t first_of(size_t tile)
{
    return tile * SEND_TILE + threadIdx.x * SEND_EACH;
}

/* The number of values above the bound; from bit 16 on that of values equal to it. */
__device__ inline unsigned chosen_count(const source &from, size_t first, unsigned bound)
{
    unsigned sum = 0;
    for (size_t i = first; i < first + SEND_EACH && i < from.count; i++) {
        const unsigned bits = magnitude(from.values[i * from.stride]);
        sum += bits > bound ? 1 : bits == bound ? 1u << 16 : 0;
    }
    return sum;
}

__global__ void count_kernel(const struct codec_pass pass, const struct layout at)
{
    const source from = source_of(pass, at);
    const unsigned bound = at.state->bits;
    const size_t tiles = pieces(from.count, SEND_TILE);
    unsigned total;
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        block_before<THREADS>(chosen_count(from, first_of(tile), bound), &total);
        if (threadIdx.x == 0)
            at.sizes[tile] = make_uint2(total & 0xffff, total >> 16);
    }
    if (!block_last(&at.state->sized))
        return;
    sum_before<THREADS>(&at.sizes->x, 2, tiles);
    sum_before<THREADS>(&at.sizes->y, 2, tiles);
}

/* Pairs of a thread's numbers; `above` and `equal` of all numbers stand before them. */
__device__ inline void chosen_send(const struct codec_pass &pass, const source &from,
                                   const struct state *state, size_t first, unsigned above,
                                   unsigned equal)
{
    const unsigned bound = state->bits, ties = state->ties;
    const float scale = pass.scale ? *pass.scale : 1;
    for (size_t i = first; i < first + SEND_EACH && i < from.count; i++) {
        const float value = from.values[i * from.stride];
        const unsigned bits = magnitude(value);
        const bool sent = bits > bound || (bits == bound && equal < ties);
        if (sent || bits >= CODEC_INFINITE) {
            const unsigned index = from.indices ? from.indices[i * from.stride] : (unsigned)i;
            pass.residual[index] = 0;
            if (sent)
                ((struct codec_pair *)pass.encoded)[above + min(equal, ties)] = {
                    index, __fmul_rn(value, scale)};
        }
        above += bits > bound;
        equal += bits == bound;
    }
}

__global__ void send_kernel(const struct codec_pass pass, const struct layout at)
{
    const source from = source_of(pass, at);
    const unsigned bound = at.state->bits;
    for (size_t tile = blockIdx.x; tile < pieces(from.count, SEND_TILE); tile += gridDim.x) {
        unsigned total;
        const unsigned before =
            block_before<THREADS>(chosen_count(from, first_of(tile), bound), &total);
        const uint2 sizes = at.sizes[tile];
        chosen_send(pass, from, at.state, first_of(tile), sizes.x + (before & 0xffff),
                    sizes.y + (before >> 16));
    }
}

/* ---- Decoding ---- */

__device__ inline const struct codec_pair *part_of(const struct codec_pass &pass, size_t part)
{
    return (const struct codec_pair *)((const char *)pass.encoded + part * pass.stride);
}

/* The first pair of each tile in each part, and the end of the last. */
__global__ void starts_kernel(const struct codec_pass pass, unsigned *starts, unsigned tiles)
{
    const unsigned tile = blockIdx.x * THREADS + threadIdx.x;
    if (tile > tiles)
        return;
    const struct codec_pair *pairs = part_of(pass, blockIdx.y);
    const size_t least = (size_t)tile * SUM_TILE;
    unsigned begin = 0, count = (unsigned)pass.keep;
    while (count) {
        const unsigned half = count / 2;
        const bool below = pairs[begin + half].index < least;
        begin += below ? half + 1 : 0;
        count = below ? count - half - 1 : half;
    }
    starts[(size_t)blockIdx.y * (tiles + 1) + tile] = begin;
}

/* A warp for each tile: the parts one after the other, each of which has an index once at most. */
__global__ void __launch_bounds__(THREADS)
    sum_kernel(const struct codec_pass pass, const unsigned *starts, unsigned tiles)
{
    __shared__ float sums[WARPS][SUM_TILE];
    const unsigned lane = threadIdx.x % LANES, tile = blockIdx.x * WARPS + threadIdx.x / LANES;
    float *sum = sums[threadIdx.x / LANES];
    if (tile >= tiles)
        return;
    const size_t first = (size_t)tile * SUM_TILE;
    for (unsigned i = lane; i < SUM_TILE; i += LANES)
        sum[i] = 0;
    __syncwarp();
    for (size_t part = 0; part < pass.parts; part++) {
        const struct codec_pair *pairs = part_of(pass, part);
        const unsigned *start = starts + part * (tiles + 1) + tile;
        for (unsigned i = start[0] + lane; i < start[1]; i += LANES) {
            float *to = sum + (pairs[i].index - first);
            *to = __fadd_rn(*to, pairs[i].value);
        }
        __syncwarp();
    }
    for (unsigned i = lane; i < SUM_TILE && first + i < pass.count; i += LANES)
        pass.values[first + i] = __fmul_rn(sum[i], pass.factor);
}

} // namespace

size_t train_topk_scratch(const struct codec_pass *pass)
{
    const size_t encoding = layout_of(pass).bytes,
                 decoding = pass->parts * (pieces(pass->count, SUM_TILE) + 1) * sizeof(unsigned);
    return encoding > decoding ? encoding : decoding;
}

int train_topk_encode(const struct train_gpu *gpu, const struct codec_pass *pass)
{
    const struct layout at = layout_of(pass);
    const unsigned tiles = (unsigned)pieces(pass->count, MARK_TILE),
                   wide = blocks_for(gpu, pass->count, WIDE, 2),
                   many = blocks_for(gpu, pass->count, SEND_TILE, 8);
    const unsigned rank = (unsigned)codec_sample_rank(pass->count, pass->keep);
    int error = launch(gpu, guess_kernel, 1, WIDE, *pass, at, rank);
    error = error ? error : launch(gpu, mark_kernel, tiles, THREADS, *pass, at);
    error = error ? error : launch(gpu, collect_kernel, tiles, THREADS, *pass, at);
    error = error ? error : launch(gpu, digits_kernel<0>, wide, WIDE, *pass, at);
    error = error ? error : launch(gpu, digits_kernel<1>, wide, WIDE, *pass, at);
    error = error ? error : launch(gpu, digits_kernel<2>, wide, WIDE, *pass, at);
    error = error ? error : launch(gpu, count_kernel, many, THREADS, *pass, at);
    return error ? error : launch(gpu, send_kernel, many, THREADS, *pass, at);
}

int train_topk_decode(const struct train_gpu *gpu, const struct codec_pass *pass)
{
    const unsigned tiles = (unsigned)pieces(pass->count, SUM_TILE);
    unsigned *starts = (unsigned *)pass->scratch;
    const int error = launch(gpu, starts_kernel,
                             dim3((unsigned)pieces(tiles + 1, THREADS), (unsigned)pass->parts),
                             THREADS, *pass, starts, tiles);
    return error ? error
                 : launch(gpu, sum_kernel, (unsigned)pieces(tiles, WARPS), THREADS, *pass,
                          (const unsigned *)starts, tiles);
}

int train_topk_load(void)
{
    return load_kernels(guess_kernel, mark_kernel, collect_kernel, digits_kernel<0>,
                        digits_kernel<1>, digits_kernel<2>, count_kernel, send_kernel,
                        starts_kernel, sum_kernel);
}
