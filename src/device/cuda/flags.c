/* Flags on CUDA: words in pinned host memory, which the driver's operations on streams raise and
 * await. */
#include "device/cuda/parts.h"

#include "base/status.h"
#include "device/backoff.h"
#include "device/cuda/driver.h"
#include "device/cuda/math.h"

#include <pthread.h>
#include <stdatomic.h>

/* A word in a cache line of its own, of pinned memory that all GPUs map at the host's address. */
struct device_flag {
    _Alignas(64) _Atomic uint32_t value;
    struct device_flag *next; /* while it is free */
};

/* Pages are kept for the process's life: making one may wait for all that the GPU does. */
enum { FLAGS_PER_PAGE = 1024 };

static struct {
    pthread_mutex_t lock;
    struct device_flag *free;
} flags = {.lock = PTHREAD_MUTEX_INITIALIZER};

static alnico_status_t add_page(void)
{
    void *memory;
    TRY(cuda_pinned_alloc(FLAGS_PER_PAGE * sizeof(struct device_flag), &memory));
    struct device_flag *page = memory;
    for (int i = 0; i < FLAGS_PER_PAGE; i++) {
        page[i].next = flags.free;
        flags.free = &page[i];
    }
    return ALNICO_SUCCESS;
}

alnico_status_t cuda_flag_create(struct device_flag **out)
{
    *out = NULL;
    pthread_mutex_lock(&flags.lock);
    alnico_status_t status = flags.free ? ALNICO_SUCCESS : add_page();
    struct device_flag *flag = flags.free;
    if (flag)
        flags.free = flag->next;
    pthread_mutex_unlock(&flags.lock);
    if (status != ALNICO_SUCCESS)
        return status;
    atomic_store(&flag->value, 0);
    *out = flag;
    return ALNICO_SUCCESS;
}

void cuda_flag_destroy(struct device_flag *flag)
{
    if (!flag)
        return;
    pthread_mutex_lock(&flags.lock);
    flag->next = flags.free;
    flags.free = flag;
    pthread_mutex_unlock(&flags.lock);
}

static bool reached(uint32_t value, uint32_t target)
{
    return (int32_t)(value - target) >= 0;
}

/* Nobody touches it after the exchange, so that whoever saw the value may destroy. */
void cuda_flag_raise(struct device_flag *flag, uint32_t value)
{
    uint32_t seen = atomic_load(&flag->value);
    while (!reached(seen, value) && !atomic_compare_exchange_weak(&flag->value, &seen, value))
        ;
}

uint32_t cuda_flag_read(const struct device_flag *flag)
{
    return atomic_load_explicit(&flag->value, memory_order_acquire);
}

struct target {
    const struct device_flag *flag;
    uint32_t value;
};

static enum wait look_for_value(void *context)
{
    const struct target *target = context;
    return reached(cuda_flag_read(target->flag), target->value) ? WAIT_DONE : WAIT_IDLE;
}

/* A GPU wakes nobody, so that the waiter looks again after each sleep. */
void cuda_flag_wait(struct device_flag *flag, uint32_t value)
{
    wait_until(look_for_value, &(struct target){flag, value}, WAIT_FOREVER, false);
}

static uint32_t *word_of(struct device_flag *flag)
{
    return (uint32_t *)&flag->value;
}

/* A GPU that cannot do it by itself runs a kernel instead. */
static bool lacks(CUresult result)
{
    return result == CUDA_ERROR_NOT_SUPPORTED;
}

alnico_status_t cuda_stream_raise(void *stream, struct device_flag *flag, uint32_t value)
{
    const struct cuda_driver *driver = cuda_driver();
    if (!driver)
        return ALNICO_ERROR_UNSUPPORTED;
    CUresult result = driver->cuStreamWriteValue32(stream, (CUdeviceptr)(uintptr_t)word_of(flag),
                                                   value, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (!lacks(result))
        return cuda_driver_status(result, "cuStreamWriteValue32");
    return cuda_status((cudaError_t)flag_cuda_raise(word_of(flag), value, stream),
                       "launching a raise");
}

alnico_status_t cuda_stream_await(void *stream, struct device_flag *flag, uint32_t value)
{
    const struct cuda_driver *driver = cuda_driver();
    if (!driver)
        return ALNICO_ERROR_UNSUPPORTED;
    CUresult result = driver->cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)word_of(flag),
                                                  value, CU_STREAM_WAIT_VALUE_GEQ);
    if (!lacks(result))
        return cuda_driver_status(result, "cuStreamWaitValue32");
    return cuda_status((cudaError_t)flag_cuda_await(word_of(flag), value, stream),
                       "launching an await");
}

alnico_status_t cuda_copy_raise(void *dst, const void *src, size_t bytes, struct device_flag *flag,
                                uint32_t value, void *stream)
{
    return cuda_status(
        (cudaError_t)flag_cuda_copy_raise(dst, src, bytes, word_of(flag), value, stream),
        "launching a copy to the host");
}

alnico_status_t cuda_await_copy(void *dst, const void *src, size_t bytes, struct device_flag *flag,
                                uint32_t value, struct device_flag *skip, void *stream)
{
    return cuda_status((cudaError_t)flag_cuda_await_copy(dst, src, bytes, word_of(flag), value,
                                                         word_of(skip), stream),
                       "launching a copy from the host");
}
