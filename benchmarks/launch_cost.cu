/* The kernels: each ends at once, but for what launching it after another one takes. */
#include "benchmarks/launch_cost.h"

template <int BYTES> struct parameter {
    unsigned long long words[BYTES / 8];
};

static __device__ __forceinline__ void wait_for_the_one_before()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

template <int BYTES> static __global__ void take(const __grid_constant__ parameter<BYTES>)
{
    wait_for_the_one_before();
}

static __global__ void take1(void *)
{
    wait_for_the_one_before();
}

static __global__ void take2(void *, void *)
{
    wait_for_the_one_before();
}

static __global__ void take4(void *, void *, void *, void *)
{
    wait_for_the_one_before();
}

static __global__ void take8(void *, void *, void *, void *, void *, void *, void *, void *)
{
    wait_for_the_one_before();
}

const void *launch_cost_struct(int bytes)
{
    switch (bytes) {
    case 8:
        return (const void *)take<8>;
    case 64:
        return (const void *)take<64>;
    case 128:
        return (const void *)take<128>;
    case 192:
        return (const void *)take<192>;
    case 256:
        return (const void *)take<256>;
    case 320:
        return (const void *)take<320>;
    case 512:
        return (const void *)take<512>;
    default:
        return nullptr;
    }
}

const void *launch_cost_pointers(int count)
{
    return count == 1   ? (const void *)take1
           : count == 2 ? (const void *)take2
           : count == 4 ? (const void *)take4
           : count == 8 ? (const void *)take8
                        : nullptr;
}
