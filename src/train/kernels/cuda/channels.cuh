/*
 * How the kernels of batch norms and epilogues stand on a tensor of rows x channels: a block takes a slab of
 * channels and some of the rows; a thread stays with eight channels, whose coefficients it keeps in
 * registers, and loads several rows before it computes with the first. What a kernel asks of
 * registers and what its grid counts on belong together: all its blocks run at once, with 48 KB or
 * more of loads in flight on every multiprocessor.
 *
 * Passes come in pairs: the first goes up the rows, the second down, so that it finds the last ones
 * in the cache.
 */
#ifndef ALNICO_TRAIN_KERNELS_CUDA_CHANNELS_CUH
#define ALNICO_TRAIN_KERNELS_CUDA_CHANNELS_CUH

#include "train/kernels/cuda/vector.cuh"

namespace
{

/* Slabs of sums: at most 64 channels, 128 bytes of 16-bit numbers. */
constexpr unsigned SLAB_GROUPS = 8, SLAB = SLAB_GROUPS * EIGHT;

struct layout {
    size_t rows;
    unsigned groups; /* of eight channels in a row */
    unsigned width;  /* threads beside each other, on a slab: a power of two <= 32 */
};

inline layout layout_of(size_t rows, unsigned padded)
{
    const unsigned groups = padded / EIGHT;
    unsigned width = 1;
    while (width < groups && width < SLAB_GROUPS)
        width *= 2;
    return {rows, groups, width};
}

/* For kernels without sums: slabs of up to 256 channels, where that leaves no thread idle. */
inline layout wide_layout_of(size_t rows, unsigned padded)
{
    layout at = layout_of(rows, padded);
    while (at.width < 32 && at.groups % (2 * at.width) == 0)
        at.width *= 2;
    return at;
}

/* Blocks over rows and over slabs: `each` blocks on every multiprocessor, none without rows. */
inline dim3 grid_of(const struct train_gpu *gpu, const layout &at, unsigned threads, unsigned each)
{
    const unsigned slabs = (at.groups + at.width - 1) / at.width;
    const size_t most = (at.rows + threads / at.width - 1) / (threads / at.width);
    const unsigned share = gpu->multiprocessors * each / slabs;
    const size_t blocks = share == 0 ? 1 : share < most ? share : most;
    return dim3((unsigned)(blocks == 0 ? 1 : blocks), slabs);
}

/* The place of one thread: on `count` rows, of which it has one chunk of eight channels each. */
struct place {
    unsigned group; /* of eight channels */
    bool inside;
    unsigned count;
    size_t chunk, step; /* its first row's, and how far the next one is */
};

template <int THREADS> __device__ inline place place_of(const layout &at)
{
    place p;
    const unsigned high = THREADS / at.width;
    const size_t row = (size_t)blockIdx.x * high + threadIdx.x / at.width,
                 rows = (size_t)gridDim.x * high;
    p.group = blockIdx.y * at.width + threadIdx.x % at.width;
    p.inside = p.group < at.groups;
    p.count = row < at.rows ? (unsigned)((at.rows - row + rows - 1) / rows) : 0;
    p.chunk = row * at.groups + p.group;
    p.step = rows * at.groups;
    return p;
}

/* The chunk of row i of a thread's, counted from the last. */
__device__ inline size_t chunk_from_last(const place &p, unsigned i)
{
    return p.chunk + (p.count - 1 - i) * p.step;
}

/* Eight of the numbers of a batch norm. */
__device__ inline void numbers_of(const float *numbers, int which, unsigned groups, unsigned group,
                                  float *out)
{
    load_eight(numbers + ((size_t)which * groups + group) * EIGHT, out);
}

/* Partial sums of all blocks, and how many blocks of each slab are done. */
constexpr size_t COUNTERS_BYTES = 64 << 10;

__device__ inline unsigned *counters(void *scratch)
{
    return (unsigned *)scratch;
}

__device__ inline float *partials(void *scratch)
{
    return (float *)((char *)scratch + COUNTERS_BYTES);
}

/*
 * Adds up SUMS x 64 numbers of all threads of a slab; `mine` are a thread's SUMS x 8. Each block
 * leaves its sums in scratch; the block that comes last adds them in the order of the blocks, so
 * that the result does not depend on which that is. True in that block only, where total[sum * SLAB
 * + channel of the slab] is then ready.
 */
template <int SUMS, int THREADS>
__device__ inline bool sum_all(const layout &at, float (*mine)[EIGHT], void *scratch, double *total)
{
    constexpr int WARPS = THREADS / 32, VALUES = SUMS * (int)SLAB, QUADS = VALUES / 4,
                  PARTS = THREADS / QUADS;
    __shared__ float warps[WARPS][VALUES];
    __shared__ double parts[PARTS][VALUES];
    __shared__ bool last;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int s = 0; s < SUMS; s++)
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            for (unsigned away = 16; away >= at.width; away /= 2)
                mine[s][k] += __shfl_xor_sync(0xffffffffu, mine[s][k], (int)away);
    if (lane < SLAB_GROUPS)
#pragma unroll
        for (int s = 0; s < SUMS; s++)
#pragma unroll
            for (int k = 0; k < EIGHT; k++)
                warps[warp][s * SLAB + lane * EIGHT + k] = lane < at.width ? mine[s][k] : 0;
    __syncthreads();
    float *home = partials(scratch) + (size_t)blockIdx.y * gridDim.x * VALUES;
    for (int v = threadIdx.x; v < VALUES; v += THREADS) {
        float sum = 0;
        for (int w = 0; w < WARPS; w++)
            sum += warps[w][v];
        __stcg(home + (size_t)blockIdx.x * VALUES + v, sum);
    }
    __threadfence(); /* the sums before the count */
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counters(scratch) + blockIdx.y, 1) == gridDim.x - 1;
        if (last)
            counters(scratch)[blockIdx.y] = 0; /* for the next kernel */
    }
    __syncthreads();
    if (!last)
        return false;
    __threadfence();
    const int quad = threadIdx.x % QUADS, part = threadIdx.x / QUADS;
    if (part < PARTS) {
        double sum[4] = {0, 0, 0, 0};
#pragma unroll 8
        for (unsigned b = part; b < gridDim.x; b += PARTS) {
            const float4 x = __ldcg((const float4 *)(home + (size_t)b * VALUES) + quad);
            sum[0] += x.x;
            sum[1] += x.y;
            sum[2] += x.z;
            sum[3] += x.w;
        }
        for (int i = 0; i < 4; i++)
            parts[part][4 * quad + i] = sum[i];
    }
    __syncthreads();
    for (int v = threadIdx.x; v < VALUES; v += THREADS) {
        double sum = 0;
        for (int p = 0; p < PARTS; p++)
            sum += parts[p][v];
        total[v] = sum;
    }
    __syncthreads();
    return true;
}

} // namespace

#endif
