/* A device made of the CPU's streams whose memory the host does not reach. */
#include "tests/support/far.h"

#include "comm/api/create.h"

#include "base/status.h"
#include "comm/communicator/comm.h"
#include "tests/support/ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FAR ((uintptr_t)1 << 62)

void *far_of(const void *host)
{
    return (void *)((uintptr_t)host | FAR);
}

void *host_of(const void *pointer)
{
    return (void *)((uintptr_t)pointer & ~FAR);
}

atomic_int far_copies, far_short_copies;

static _Atomic(void *) failing;
static atomic_int failing_copies;

void far_fail_second(void *stream)
{
    atomic_store(&failing_copies, 0);
    atomic_store(&failing, stream);
}

static alnico_status_t far_copy(void *dst, const void *src, size_t bytes, void *stream)
{
    atomic_fetch_add(&far_copies, 1);
    if (stream && stream == atomic_load(&failing) && atomic_fetch_add(&failing_copies, 1) == 1)
        return error_set(ALNICO_ERROR_SYSTEM, "a copy that is to fail");
    return device_cpu.copy(host_of(dst), host_of(src), bytes, stream);
}

static alnico_status_t far_copy_raise(void *dst, const void *src, size_t bytes,
                                      struct device_flag *flag, uint32_t value, void *stream)
{
    REQUIRE((uintptr_t)dst % 16 == (uintptr_t)src % 16);
    atomic_fetch_add(&far_short_copies, 1);
    TRY(device_cpu.copy(host_of(dst), host_of(src), bytes, stream));
    return device_cpu.stream_raise(stream, flag, value);
}

struct late_copy {
    void *dst;
    const void *src;
    size_t bytes;
    struct device_flag *skip;
};

static void run_late_copy(void *argument)
{
    struct late_copy *copy = argument;
    if (device_cpu.flag_read(copy->skip) == 0)
        memcpy(copy->dst, copy->src, copy->bytes);
    free(copy);
}

static alnico_status_t far_await_copy(void *dst, const void *src, size_t bytes,
                                      struct device_flag *flag, uint32_t value,
                                      struct device_flag *skip, void *stream)
{
    REQUIRE((uintptr_t)dst % 16 == (uintptr_t)src % 16);
    struct late_copy *copy = malloc(sizeof *copy);
    REQUIRE(copy != NULL);
    *copy = (struct late_copy){host_of(dst), host_of(src), bytes, skip};
    TRY(device_cpu.stream_await(stream, flag, value));
    return alnico_stream_enqueue(stream, run_late_copy, copy);
}

/* It calls itself a CPU, so that no other backend but the forced host's is asked. */
static struct device_ops far;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_far_device(void)
{
    far = device_cpu;
    far.name = "far";
    far.host_accessible = false;
    far.copy = far_copy;
    far.copy_raise = far_copy_raise;
    far.await_copy = far_await_copy;
}

const struct device_ops *far_device(void)
{
    pthread_once(&once, make_far_device);
    return &far;
}

alnico_comm_t far_comm(struct rank *rank, alnico_stream_t stream)
{
    struct rendezvous r = ranks_rendezvous(rank, 60);
    struct creation made = {.device = far_device(), .stream = stream, .who = "test"};
    alnico_comm_t comm = NULL;
    REQUIRE_STATUS(transport_local_meet(&r, &made.transport), ALNICO_SUCCESS);
    REQUIRE_STATUS(comm_build(&made, &comm), ALNICO_SUCCESS);
    return comm;
}
