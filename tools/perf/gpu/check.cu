// The kernels of gpu/gpu.h. One thread handles every element of a grid-wide stride, by the functions that the host's
// check uses as well (perf/values.h).
#include "tools/perf/gpu/gpu.h"
#include "tools/perf/values.h"

namespace
{

constexpr int threads = 256, most_blocks = 1024;

int grid(size_t work)
{
    size_t blocks = (work + threads - 1) / threads;
    return blocks < 1 ? 1 : blocks > most_blocks ? most_blocks : static_cast<int>(blocks);
}

__device__ size_t first_of_thread()
{
    return static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ size_t all_threads()
{
    return static_cast<size_t>(gridDim.x) * blockDim.x;
}

__global__ void fill(struct check check, int rank, char *out, size_t count, size_t stride)
{
    size_t bytes = value_bytes(check.type);
    char *slot = out + blockIdx.y * stride;
    for (size_t i = first_of_thread(); i < count; i += all_threads())
        value_fill(&check, rank, i, slot + i * bytes);
}

__global__ void compare(struct check check, struct check_bounds bounds, const char *result,
                        size_t at, size_t count, struct gpu_findings *findings)
{
    size_t bytes = value_bytes(check.type);
    for (size_t i = first_of_thread(); i < count; i += all_threads()) {
        struct check_fault fault;
        if (value_check(&check, &bounds, result + (at + i) * bytes, i, &fault))
            continue;
        atomicAdd(&findings->wrong, 1ull);
        atomicMin(&findings->first, static_cast<unsigned long long>(at + i));
    }
}

__device__ unsigned long long mix(unsigned long long x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// The sum over bytes' words of a mix of word and place, so that threads may add in any order.
__global__ void hash(const char *memory, size_t bytes, struct gpu_findings *findings)
{
    unsigned long long sum = 0;
    for (size_t i = first_of_thread(); i < (bytes + 7) / 8; i += all_threads()) {
        unsigned long long word = 0;
        size_t left = bytes - i * 8;
        if (left >= 8)
            word = reinterpret_cast<const unsigned long long *>(memory)[i];
        else
            memcpy(&word, memory + i * 8, left);
        sum += mix(word + mix(i + 1));
    }
    atomicAdd(&findings->hash, sum);
}

__global__ void count_overruns(const unsigned char *guard, size_t bytes,
                               struct gpu_findings *findings)
{
    for (size_t i = first_of_thread(); i < bytes; i += all_threads())
        if (guard[i] != GPU_POISON)
            atomicAdd(&findings->overruns, 1ull);
}

__global__ void empty()
{
}

// The condition is never true, which the compiler cannot know.
__global__ void compute(long steps, double *never)
{
    double x = 1, y = 2;
    for (long i = 0; i < steps; i++) {
        x = x * 0.999999 + 1e-6;
        y = y * 0.999998 - 1e-6;
    }
    if (x + y == 12345.678)
        *never = x;
}

} // namespace

cudaError_t gpu_fill(const struct check *check, int rank, void *out, size_t count, size_t stride,
                     int slots, cudaStream_t stream)
{
    dim3 blocks(static_cast<unsigned>(grid(count)), static_cast<unsigned>(slots));
    fill<<<blocks, threads, 0, stream>>>(*check, rank, static_cast<char *>(out), count, stride);
    return cudaGetLastError();
}

cudaError_t gpu_compare(const struct check *check, const void *result, size_t at, size_t count,
                        struct gpu_findings *findings, cudaStream_t stream)
{
    compare<<<grid(count), threads, 0, stream>>>(
        *check, check_bounds(check), static_cast<const char *>(result), at, count, findings);
    return cudaGetLastError();
}

cudaError_t gpu_hash(const void *memory, size_t bytes, struct gpu_findings *findings,
                     cudaStream_t stream)
{
    hash<<<grid(bytes / 8 + 1), threads, 0, stream>>>(static_cast<const char *>(memory), bytes,
                                                      findings);
    return cudaGetLastError();
}

cudaError_t gpu_count_overruns(const void *guard, size_t bytes, struct gpu_findings *findings,
                               cudaStream_t stream)
{
    count_overruns<<<grid(bytes), threads, 0, stream>>>(static_cast<const unsigned char *>(guard),
                                                        bytes, findings);
    return cudaGetLastError();
}

cudaError_t gpu_launch_empty(cudaStream_t stream)
{
    empty<<<1, 32, 0, stream>>>();
    return cudaGetLastError();
}

cudaError_t gpu_launch_compute(int blocks, long steps, cudaStream_t stream)
{
    compute<<<blocks, threads, 0, stream>>>(steps, nullptr);
    return cudaGetLastError();
}
