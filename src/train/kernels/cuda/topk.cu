/*
 * The codec topk: a radix select over the bits of |x| on candidates that reach a bound from a
 * sample, as on the CPU (strategies/codecs/topk.c), in kernels that the host launches without
 * knowing what they find:
 *
 *   guess    the bound, from the sample
 *   collect  residual += gradient; the candidates as pairs, by index
 *   digits   three times: counts digits of 11, 10 and 10 bits, and finds that of the bound
 *   send     the pairs; residual = 0 where they are from
 *
 * Where too few or too many numbers reach the guess, the last two work on all numbers. A tile
 * learns what stands before it by decoupled look-back (Merrill, Garland 2016); the order of blocks
 * changes no bit. collect moves 12 bytes a number, all others together about one.
 */
#include "train/kernels/cuda/codec.h"

#include "train/kernels/cuda/vector.cuh"

namespace
{

constexpr unsigned THREADS = 256, WIDE = 1024, LANES = 32, WARPS = THREADS / LANES;
constexpr unsigned EACH = CODEC_BLOCK / LANES, ALL = 0xffffffffu;
/* Numbers of a tile: of collect, a word of a mask for each thread; of send; of a warp that decodes. */
constexpr unsigned COLLECT_TILE = THREADS * 32, SEND_EACH = 8, SEND_TILE = THREADS * SEND_EACH,
                   SUM_TILE = 1024;
constexpr unsigned DIGITS = 2048, PASSES = 3;

/* Results that one kernel leaves for the next. */
struct state {
    unsigned guess;           /* bits of |x| that candidates reach */
    unsigned found;           /* candidates */
    unsigned direct;          /* all numbers are candidates */
    unsigned bits, ties;      /* the bound so far, and how many are wanted of what reaches it */
    unsigned collected, sent; /* tiles that blocks have taken */
    unsigned counted[PASSES]; /* blocks that are through */
    unsigned counts[PASSES][DIGITS];
};

/* Two sums of less than 2^31 each over a tile or, if `all`, over it and those before it. */
typedef unsigned long long tile_sums;
constexpr tile_sums TILE = 1ull << 62, ALL_BEFORE = 2ull << 62, SUMS = TILE - 1;

__host__ __device__ constexpr tile_sums sums_of(unsigned low, unsigned high)
{
    return (tile_sums)high << 31 | low;
}

__device__ inline unsigned low_of(tile_sums sums)
{
    return (unsigned)sums & 0x7fffffffu;
}

__device__ inline unsigned high_of(tile_sums sums)
{
    return (unsigned)(sums >> 31) & 0x7fffffffu;
}

struct layout {
    struct state *state;
    tile_sums *collected, *sent; /* of the tiles of collect and send; 0 before they are known */
    struct codec_pair *pairs;    /* the candidates */
    unsigned room;               /* for them */
    unsigned tiles;              /* of both */
    size_t bytes;
};

__host__ __device__ constexpr size_t pieces(size_t count, size_t each)
{
    return (count + each - 1) / each;
}

struct layout layout_of(const struct codec_pass *pass)
{
    const size_t room = codec_candidates(pass->count, pass->keep),
                 collect = pieces(pass->count, COLLECT_TILE), send = pieces(pass->count, SEND_TILE);
    char *const at = (char *)pass->scratch,
                *const tiles = at + pieces(sizeof(struct state), 16) * 16,
                *const pairs = tiles + (collect + send) * sizeof(tile_sums);
    return {(struct state *)at,
            (tile_sums *)tiles,
            (tile_sums *)tiles + collect,
            (struct codec_pair *)pairs,
            (unsigned)room,
            (unsigned)(collect + send),
            (size_t)(pairs - at) + room * sizeof(struct codec_pair)};
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

/* The next tile, in the order in which blocks ask. */
__device__ unsigned tile_take(unsigned *taken)
{
    __shared__ unsigned tile;
    __syncthreads();
    if (threadIdx.x == 0)
        tile = atomicAdd(taken, 1);
    __syncthreads();
    return tile;
}

__device__ inline tile_sums sums_read(const tile_sums *at)
{
    return *(const volatile tile_sums *)at;
}

/* By the first warp: the sums of the tiles before this one, 32 at a time, back to the first whose
 * sums are of all. Tiles before have been taken, so that their blocks run. */
__device__ tile_sums look_back(const tile_sums *tiles, unsigned tile)
{
    tile_sums sum = 0;
    for (unsigned end = tile; end;) {
        const unsigned back = threadIdx.x + 1;
        tile_sums here = back > end ? ALL_BEFORE : 0;
        while (!__all_sync(ALL, here != 0))
            here = here ? here : sums_read(tiles + end - back);
        const unsigned whole = __ballot_sync(ALL, here >= ALL_BEFORE);
        const unsigned last = whole ? __ffs((int)whole) - 1 : LANES - 1;
        tile_sums mine = threadIdx.x <= last ? here & SUMS : 0;
        for (unsigned d = LANES / 2; d; d /= 2)
            mine += __shfl_xor_sync(ALL, mine, d);
        sum += mine;
        end = whole ? 0 : end - LANES;
    }
    return sum;
}

/* The sums of the tiles before this one, whose own are `total`, in all threads. */
__device__ tile_sums tiles_before(tile_sums *tiles, unsigned tile, tile_sums total)
{
    __shared__ tile_sums before;
    if (threadIdx.x == 0 && tile)
        atomicExch(tiles + tile, TILE | total);
    if (threadIdx.x < LANES) {
        const tile_sums sum = look_back(tiles, tile);
        if (threadIdx.x == 0) {
            atomicExch(tiles + tile, ALL_BEFORE | (sum + total));
            before = sum;
        }
    }
    __syncthreads();
    return before;
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
        mine += counts[top - i];
    unsigned above = block_before<WIDE>(mine, &total);
    if (above >= wanted || above + mine < wanted)
        return;
    unsigned digit = top;
    for (; above + counts[digit] < wanted; digit--)
        above += counts[digit];
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

/* By one block of WIDE threads: the bound that `rank` numbers of the sample reach. */
__device__ unsigned sample_bound(const struct codec_pass &pass, unsigned rank)
{
    __shared__ unsigned bits, ties, counts[DIGITS];
    const float inverse = inverse_of(pass);
    unsigned sample[CODEC_SAMPLE / WIDE];
    if (threadIdx.x == 0) {
        bits = 0;
        ties = rank;
    }
#pragma unroll
    for (unsigned i = 0; i < CODEC_SAMPLE / WIDE; i++)
        sample[i] = magnitude(
            corrected(pass, codec_sample_at(i * WIDE + threadIdx.x, pass.count), inverse));
    for (unsigned p = 0; p < PASSES; p++) {
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
        __syncthreads();
        digit_find(counts, digits, &bits, &ties);
        __syncthreads();
    }
    return bits;
}

/* The first of the blocks of WIDE threads guesses, the others clear the tiles' sums. */
__global__ void __launch_bounds__(WIDE)
    guess_kernel(const struct codec_pass pass, const struct layout at, unsigned rank)
{
    let_next_begin();
    if (blockIdx.x) {
        for (unsigned i = (blockIdx.x - 1) * WIDE + threadIdx.x; i < at.tiles;
             i += (gridDim.x - 1) * WIDE)
            at.collected[i] = 0;
        return;
    }
    unsigned *const words = (unsigned *)at.state;
    for (unsigned i = threadIdx.x; i < sizeof *at.state / sizeof *words; i += WIDE)
        words[i] = 0;
    const unsigned bits = rank ? sample_bound(pass, rank) : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        at.state->guess = min(bits, CODEC_INFINITE); /* what is not finite is a candidate */
        at.state->ties = (unsigned)pass.keep;
    }
}

/* ---- Candidates ---- */

/* residual += gradient in a tile; which numbers are candidates, a bit for each. Of a warp's 256
 * numbers lane j keeps word j. */
__device__ inline void tile_correct(const struct codec_pass &pass, unsigned tile, unsigned guess,
                                    float inverse, unsigned *mask)
{
    const unsigned lane = threadIdx.x % LANES;
    for (unsigned i = threadIdx.x / LANES; i < COLLECT_TILE / CODEC_BLOCK; i += WARPS) {
        const size_t first = (size_t)tile * COLLECT_TILE + i * CODEC_BLOCK + lane;
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
            mask[i * EACH + lane] = word;
    }
}

/* A block for each tile. Candidates that there is no room for are counted. */
__global__ void __launch_bounds__(THREADS)
    collect_kernel(const struct codec_pass pass, const struct layout at)
{
    __shared__ unsigned mask[THREADS];
    after_previous();
    let_next_begin();
    const unsigned tile = tile_take(&at.state->collected);
    unsigned total;
    tile_correct(pass, tile, at.state->guess, inverse_of(pass), mask);
    __syncthreads();
    unsigned word = mask[threadIdx.x];
    const unsigned mine = block_before<THREADS>(__popc(word), &total);
    const unsigned before = low_of(tiles_before(at.collected, tile, total));
    if (tile == gridDim.x - 1 && threadIdx.x == 0) {
        at.state->found = before + total;
        at.state->direct = before + total < pass.keep || before + total > at.room;
    }
    for (unsigned to = before + mine; word && to < at.room; word &= word - 1, to++) {
        const unsigned i = tile * COLLECT_TILE + threadIdx.x * 32 + __ffs((int)word) - 1;
        at.pairs[to] = {i, pass.residual[i]};
    }
}

/* What digits and send read: candidates, or all numbers. */
__device__ inline unsigned candidates(const struct codec_pass &pass, const struct layout &at)
{
    return at.state->direct ? (unsigned)pass.count : at.state->found;
}

__device__ inline codec_pair candidate(const struct codec_pass &pass, const struct layout &at,
                                       bool direct, unsigned i)
{
    return direct ? codec_pair{i, pass.residual[i]} : at.pairs[i];
}

template <unsigned PASS>
__global__ void __launch_bounds__(WIDE)
    digits_kernel(const struct codec_pass pass, const struct layout at)
{
    constexpr unsigned digits = digits_of(PASS);
    __shared__ unsigned counts[digits];
    for (unsigned i = threadIdx.x; i < digits; i += WIDE)
        counts[i] = 0;
    after_previous();
    let_next_begin();
    const unsigned prefix = at.state->bits, count = candidates(pass, at);
    const bool direct = at.state->direct;
    __syncthreads();
    for (unsigned i = blockIdx.x * WIDE + threadIdx.x; i < count; i += gridDim.x * WIDE) {
        const unsigned bits = magnitude(candidate(pass, at, direct, i).value) >> shift_of(PASS);
        if (bits / digits == prefix)
            atomicAdd(counts + bits % digits, 1);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < digits; i += WIDE)
        if (counts[i])
            atomicAdd(&at.state->counts[PASS][i], counts[i]);
    if (!block_last(&at.state->counted[PASS]))
        return;
    for (unsigned i = threadIdx.x; i < digits; i += WIDE)
        counts[i] = __ldcg(&at.state->counts[PASS][i]);
    __syncthreads();
    digit_find(counts, digits, &at.state->bits, &at.state->ties);
}

/* ---- Sending ---- */

/* A warp's candidates, 32 at a time: which are above the bound, and which equal to it. */
struct chosen {
    codec_pair pair[SEND_EACH];
    unsigned above[SEND_EACH], equal[SEND_EACH];
};

/* How many are above the bound and, from bit 16 on, equal to it. */
__device__ inline unsigned choose(struct chosen &mine, const struct codec_pass &pass,
                                  const struct layout &at, unsigned first)
{
    const unsigned bound = at.state->bits, count = candidates(pass, at);
    const bool direct = at.state->direct;
    unsigned sum = 0;
#pragma unroll
    for (unsigned k = 0; k < SEND_EACH; k++)
        mine.pair[k] = first + k * LANES < count ? candidate(pass, at, direct, first + k * LANES)
                                                 : codec_pair{0, 0};
#pragma unroll
    for (unsigned k = 0; k < SEND_EACH; k++) {
        const bool inside = first + k * LANES < count;
        const unsigned bits = magnitude(mine.pair[k].value);
        mine.above[k] = __ballot_sync(ALL, inside && bits > bound);
        mine.equal[k] = __ballot_sync(ALL, inside && bits == bound);
        sum += __popc(mine.above[k]) + (__popc(mine.equal[k]) << 16);
    }
    return sum;
}

/* Sends the pairs; `above` and `equal` of all candidates stand before the warp's. */
__device__ inline void chosen_send(const struct chosen &mine, const struct codec_pass &pass,
                                   unsigned ties, unsigned above, unsigned equal)
{
    const unsigned bit = 1u << threadIdx.x % LANES;
    const float scale = pass.scale ? *pass.scale : 1;
#pragma unroll
    for (unsigned k = 0; k < SEND_EACH; k++) {
        const codec_pair pair = mine.pair[k];
        const unsigned a = above + __popc(mine.above[k] & (bit - 1)),
                       e = equal + __popc(mine.equal[k] & (bit - 1));
        const bool sent = mine.above[k] & bit || (mine.equal[k] & bit && e < ties);
        if (sent)
            ((struct codec_pair *)pass.encoded)[a + min(e, ties)] = {pair.index,
                                                                     __fmul_rn(pair.value, scale)};
        if (sent || magnitude(pair.value) >= CODEC_INFINITE)
            pass.residual[pair.index] = 0;
        above += __popc(mine.above[k]);
        equal += __popc(mine.equal[k]);
    }
}

/* Blocks take tiles; each warp has consecutive candidates of one. */
__global__ void __launch_bounds__(THREADS)
    send_kernel(const struct codec_pass pass, const struct layout at)
{
    after_previous();
    const unsigned tiles = (unsigned)pieces(candidates(pass, at), SEND_TILE),
                   lane = threadIdx.x % LANES;
    for (unsigned tile; (tile = tile_take(&at.state->sent)) < tiles;) {
        struct chosen mine;
        unsigned total;
        const unsigned first = tile * SEND_TILE + (threadIdx.x - lane) * SEND_EACH + lane;
        const unsigned warp = choose(mine, pass, at, first);
        const unsigned inside = block_before<THREADS>(lane == LANES - 1 ? warp : 0, &total);
        const tile_sums before = tiles_before(at.sent, tile, sums_of(total & 0xffff, total >> 16));
        chosen_send(mine, pass, at.state->ties, low_of(before) + (inside & 0xffff),
                    high_of(before) + (inside >> 16));
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
    const unsigned tiles = (unsigned)pieces(pass->count, COLLECT_TILE),
                   clear = blocks_for(gpu, at.tiles, WIDE, 1),
                   wide = blocks_for(gpu, pass->count, WIDE, 2),
                   many = blocks_for(gpu, pass->count, SEND_TILE, 8);
    const unsigned rank = (unsigned)codec_sample_rank(pass->count, pass->keep);
    int error = launch(gpu, guess_kernel, 1 + clear, WIDE, *pass, at, rank);
    error = error ? error : launch_programmatic(gpu, collect_kernel, tiles, THREADS, *pass, at);
    error = error ? error : launch_programmatic(gpu, digits_kernel<0>, wide, WIDE, *pass, at);
    error = error ? error : launch_programmatic(gpu, digits_kernel<1>, wide, WIDE, *pass, at);
    error = error ? error : launch_programmatic(gpu, digits_kernel<2>, wide, WIDE, *pass, at);
    return error ? error : launch_programmatic(gpu, send_kernel, many, THREADS, *pass, at);
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
    return load_kernels(guess_kernel, collect_kernel, digits_kernel<0>, digits_kernel<1>,
                        digits_kernel<2>, send_kernel, starts_kernel, sum_kernel);
}
