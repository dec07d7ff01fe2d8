/*
 * The codecs bf16, fp16 and int8. A warp takes 256 numbers at a time, its lane l those at l, l + 32,
 * ..., since ranges of gradients begin at any element: what a warp loads or stores at once is
 * contiguous. The arithmetic is that of the CPU's codecs, without fused multiplication and addition.
 */
#include "train/kernels/cuda/codec.h"

#include "train/kernels/cuda/vector.cuh"

namespace
{

constexpr unsigned THREADS = 256, LANES = 32, WARPS = THREADS / LANES, EACH = CODEC_BLOCK / LANES;
constexpr unsigned ALL = 0xffffffffu;

/* A thread's lane in its warp, the warp's first block of 256 numbers, and the way to its next. */
struct place {
    unsigned lane;
    size_t block, step;
};

__device__ inline place place_of()
{
    return {threadIdx.x % LANES, (size_t)blockIdx.x * WARPS + threadIdx.x / LANES,
            (size_t)gridDim.x * WARPS};
}

/* ---- 16 bits ---- */

template <class T>
__global__ void narrow_kernel(T *__restrict__ out, const float *__restrict__ x, size_t count)
{
    const place p = place_of();
    for (size_t base = p.block * CODEC_BLOCK + p.lane; base < count; base += p.step * CODEC_BLOCK) {
        float v[EACH];
#pragma unroll
        for (unsigned j = 0; j < EACH; j++)
            v[j] = base + j * LANES < count ? x[base + j * LANES] : 0;
#pragma unroll
        for (unsigned j = 0; j < EACH; j++)
            if (base + j * LANES < count)
                store_one(out + base + j * LANES, v[j]);
    }
}

template <class T> __global__ void widen_kernel(const struct codec_pass pass)
{
    const place p = place_of();
    const size_t count = pass.count;
    for (size_t base = p.block * CODEC_BLOCK + p.lane; base < count; base += p.step * CODEC_BLOCK) {
        float sum[EACH];
        for (size_t part = 0; part < pass.parts; part++) {
            const T *x = (const T *)((const char *)pass.encoded + part * pass.stride) + base;
            T v[EACH];
#pragma unroll
            for (unsigned j = 0; j < EACH; j++)
                if (base + j * LANES < count)
                    v[j] = x[j * LANES];
#pragma unroll
            for (unsigned j = 0; j < EACH; j++)
                sum[j] = part ? __fadd_rn(sum[j], load_one(&v[j])) : load_one(&v[j]);
        }
#pragma unroll
        for (unsigned j = 0; j < EACH; j++)
            if (base + j * LANES < count)
                pass.values[base + j * LANES] = __fmul_rn(sum[j], pass.factor);
    }
}

/* ---- int8 ---- */

/* The bits of the largest |x| of a block, in all lanes. */
__device__ inline unsigned largest(const float *x)
{
    unsigned most = 0;
#pragma unroll
    for (unsigned j = 0; j < EACH; j++)
        most = max(most, __float_as_uint(x[j]) & 0x7fffffffu);
    for (unsigned other = LANES / 2; other > 0; other /= 2)
        most = max(most, __shfl_xor_sync(ALL, most, other));
    return most;
}

/* Bytes of a whole block's numbers that `count` of them take. */
__device__ inline unsigned padded(size_t count)
{
    return count < CODEC_BLOCK ? ((unsigned)count + 3) / 4 * 4 : CODEC_BLOCK;
}

/* Each warp puts its block's bytes into shared memory, and stores them as words. */
__global__ void quantise_kernel(char *__restrict__ out, const float *__restrict__ x, size_t count)
{
    __shared__ unsigned words[WARPS][CODEC_BLOCK / 4];
    const place p = place_of();
    unsigned *mine = words[threadIdx.x / LANES];
    for (size_t block = p.block; block * CODEC_BLOCK < count; block += p.step) {
        const size_t first = block * CODEC_BLOCK + p.lane, rest = count - block * CODEC_BLOCK;
        float v[EACH];
#pragma unroll
        for (unsigned j = 0; j < EACH; j++)
            v[j] = first + j * LANES < count ? x[first + j * LANES] : 0;
        const unsigned bits = largest(v);
        const float most = __uint_as_float(bits);
        const bool finite = bits < CODEC_INFINITE, some = finite && most >= CODEC_LEAST;
        const float inverse = some ? __fdiv_rn(127, most) : 0;
#pragma unroll
        for (unsigned j = 0; j < EACH; j++)
            ((signed char *)mine)[j * LANES + p.lane] =
                (signed char)(some ? __float2int_rn(__fmul_rn(v[j], inverse)) : 0);
        __syncwarp();
        unsigned *to = (unsigned *)(out + block * CODEC_BLOCK_BYTES);
        if (p.lane == 0)
            to[0] = some ? __float_as_uint(__fdiv_rn(most, 127)) : finite ? 0 : 0x7fc00000u;
#pragma unroll
        for (unsigned w = p.lane; w < CODEC_BLOCK / 4; w += LANES)
            if (w * 4 < padded(rest))
                to[1 + w] = mine[w];
        __syncwarp();
    }
}

/* A warp loads the words of a block; lane l needs byte l % 4 of word l / 4 + 8 j. */
__global__ void dequantise_kernel(const struct codec_pass pass)
{
    const place p = place_of();
    const size_t count = pass.count;
    for (size_t block = p.block; block * CODEC_BLOCK < count; block += p.step) {
        const size_t first = block * CODEC_BLOCK + p.lane, rest = count - block * CODEC_BLOCK;
        float sum[EACH];
        for (size_t part = 0; part < pass.parts; part++) {
            const unsigned *from =
                (const unsigned *)((const char *)pass.encoded + part * pass.stride +
                                   block * CODEC_BLOCK_BYTES);
            const float scale = __uint_as_float(from[0]);
            unsigned words[2];
#pragma unroll
            for (unsigned w = 0; w < 2; w++)
                words[w] =
                    (p.lane + w * LANES) * 4 < padded(rest) ? from[1 + p.lane + w * LANES] : 0;
#pragma unroll
            for (unsigned j = 0; j < EACH; j++) {
                const unsigned word =
                    __shfl_sync(ALL, words[j / 4], (int)(p.lane / 4 + 8 * (j % 4)));
                const signed char byte = (signed char)(word >> 8 * (p.lane % 4));
                const float value = __fmul_rn((float)byte, scale);
                sum[j] = part ? __fadd_rn(sum[j], value) : value;
            }
        }
#pragma unroll
        for (unsigned j = 0; j < EACH; j++)
            if (first + j * LANES < count)
                pass.values[first + j * LANES] = __fmul_rn(sum[j], pass.factor);
    }
}

/* Enough blocks that each multiprocessor is full, with a few numbers for each. */
unsigned blocks_of(const struct train_gpu *gpu, size_t count)
{
    return blocks_for(gpu, (count + EACH - 1) / EACH, THREADS, 32);
}

template <class T> int narrow(const struct train_gpu *gpu, const struct codec_pass *pass)
{
    return launch(gpu, narrow_kernel<T>, blocks_of(gpu, pass->count), THREADS, (T *)pass->encoded,
                  (const float *)pass->values, pass->count);
}

template <class T> int widen(const struct train_gpu *gpu, const struct codec_pass *pass)
{
    return launch(gpu, widen_kernel<T>, blocks_of(gpu, pass->count), THREADS, *pass);
}

} // namespace

int train_bf16_encode(const struct train_gpu *gpu, const struct codec_pass *pass)
{
    return narrow<__nv_bfloat16>(gpu, pass);
}

int train_bf16_decode(const struct train_gpu *gpu, const struct codec_pass *pass)
{
    return widen<__nv_bfloat16>(gpu, pass);
}

int train_fp16_encode(const struct train_gpu *gpu, const struct codec_pass *pass)
{
    return narrow<__half>(gpu, pass);
}

int train_fp16_decode(const struct train_gpu *gpu, const struct codec_pass *pass)
{
    return widen<__half>(gpu, pass);
}

int train_int8_encode(const struct train_gpu *gpu, const struct codec_pass *pass)
{
    return launch(gpu, quantise_kernel, blocks_of(gpu, pass->count), THREADS, (char *)pass->encoded,
                  (const float *)pass->values, pass->count);
}

int train_int8_decode(const struct train_gpu *gpu, const struct codec_pass *pass)
{
    return launch(gpu, dequantise_kernel, blocks_of(gpu, pass->count), THREADS, *pass);
}

int train_codec_load(int *multiprocessors, bool *programmatic)
{
    *programmatic = train_norm_programmatic();
    int device, error = cudaGetDevice(&device);
    error = error ? error
                  : (int)cudaDeviceGetAttribute(multiprocessors, cudaDevAttrMultiProcessorCount,
                                                device);
    error = error ? error : train_topk_load();
    return error ? error
                 : load_kernels(narrow_kernel<__nv_bfloat16>, narrow_kernel<__half>,
                                widen_kernel<__nv_bfloat16>, widen_kernel<__half>, quantise_kernel,
                                dequantise_kernel);
}

const char *train_codec_error(int error)
{
    return cudaGetErrorString((cudaError_t)error);
}
