/* A device made of the CPU's streams whose memory the host does not reach. */
#include "tests/support/far.h"

#include "comm/api/create.h"
#include "comm/backends/hierarchical/hierarchical.h"
#include "comm/backends/host/host.h"

#include "base/status.h"
#include "comm/communicator/comm.h"
#include "device/deferred_free.h"
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

static alnico_status_t far_alloc(size_t bytes, void **out)
{
    void *memory = NULL;
    alnico_status_t status = device_cpu.alloc(bytes, &memory);
    *out = status == ALNICO_SUCCESS ? far_of(memory) : NULL;
    return status;
}

static void far_free(void *memory)
{
    device_cpu.free(host_of(memory));
}

static alnico_status_t far_reduce(void *dst, const void *a, const void *b, size_t count,
                                  alnico_datatype_t type, alnico_op_t op, void *stream)
{
    return device_cpu.reduce(host_of(dst), host_of(a), host_of(b), count, type, op, stream);
}

static alnico_status_t far_divide(void *dst, const void *src, size_t count, alnico_datatype_t type,
                                  int ranks, void *stream)
{
    return device_cpu.divide(host_of(dst), host_of(src), count, type, ranks, stream);
}

/* It calls itself a CPU, so that no other backend but the forced host's is asked. */
static struct device_ops far;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- The transport ---- */

atomic_int far_messages;

static void count_message(const void *buffer)
{
    if (buffer != host_of(buffer))
        atomic_fetch_add(&far_messages, 1);
}

/* The local transport's, with the slots below in place of its own. */
static struct transport_ops aware;
static const struct transport_ops *local;

static alnico_status_t aware_isend(struct transport *t, int to, uint32_t tag, const void *buffer,
                                   size_t bytes, struct transfer *out)
{
    count_message(buffer);
    return local->isend(t, to, tag, host_of(buffer), bytes, out);
}

static alnico_status_t aware_irecv(struct transport *t, int from, uint32_t tag, void *buffer,
                                   size_t bytes, struct transfer *out)
{
    count_message(buffer);
    return local->irecv(t, from, tag, host_of(buffer), bytes, out);
}

static bool aware_says_so(struct transport *t)
{
    (void)t;
    return true;
}

static pthread_mutex_t aware_lock = PTHREAD_MUTEX_INITIALIZER;

static const struct transport_ops *aware_over(const struct transport_ops *ops)
{
    pthread_mutex_lock(&aware_lock);
    if (!local) {
        local = ops;
        aware = *ops;
        aware.isend = aware_isend;
        aware.irecv = aware_irecv;
        aware.aware = aware_says_so;
    }
    pthread_mutex_unlock(&aware_lock);
    return &aware;
}

/* A leak check does not find far memory, whose addresses are none: what is freed later is freed before. */
static void free_at_exit(void)
{
    atexit(deferred_run);
}

/* What the registry does for a GPU's communicators. */
static void add_backend(alnico_comm_t comm, const struct backend_ops *ops)
{
    static pthread_once_t at_exit_once = PTHREAD_ONCE_INIT;
    int last = 0;
    pthread_once(&at_exit_once, free_at_exit);
    watchdog_remove(&comm->family->watchdog, comm);
    REQUIRE_STATUS(ops->attach(comm, "test"), ALNICO_SUCCESS);
    while (comm->backends[last])
        last++;
    REQUIRE(last < BACKENDS);
    comm->backends[last] = ops;
    comm_watch(comm, "test");
}

void far_be_aware(alnico_comm_t comm)
{
    if (!comm->transport->ops->aware)
        comm->transport->ops = aware_over(comm->transport->ops);
    add_backend(comm, &aware_ops);
}

static void move_to_hosts(alnico_comm_t comm, const uint64_t *hosts)
{
    free(comm->map);
    comm->map = host_map_create(hosts, comm->size);
    REQUIRE(comm->map != NULL);
    const struct host_map *map = comm->map;
    int host = map->host[comm->rank];
    comm->hosts = map->hosts;
    comm->local_rank = map->place[comm->rank];
    comm->local_size = map->first[host + 1] - map->first[host];
}

void far_be_hierarchical(alnico_comm_t comm, const uint64_t *hosts)
{
    move_to_hosts(comm, hosts);
    add_backend(comm, &hierarchical_ops);
    const struct hierarchical_state *state = hierarchical_state_of(comm);
    for (int level = 0; state && level < LEVELS; level++) {
        alnico_comm_t made = state->comms[level];
        if (!made)
            continue;
        tuning_steps_finish(&made->tuning);
        REQUIRE_STATUS(tuning_steps_init(&made->tuning, NULL, ALNICO_DEVICE_CUDA, made->size,
                                         level == BETWEEN ? made->size : 1),
                       ALNICO_SUCCESS);
    }
}

bool far_force(alnico_comm_t comm, alnico_collective_t collective, const char *name)
{
    static const struct backend *const either[] = {&backend_aware, &backend_hierarchical};
    for (int i = 0; i < 2; i++) {
        const struct algorithm *algorithm = backend_algorithm(either[i], (int)collective, name);
        if (algorithm) {
            comm->forced[collective] =
                (struct choice){.backend = either[i], .algorithm = algorithm};
            return true;
        }
    }
    return false;
}

/* ---- The device ---- */

static void make_far_device(void)
{
    far = device_cpu;
    far.name = "far";
    far.host_accessible = false;
    far.alloc = far_alloc;
    far.free = far_free;
    far.reduce = far_reduce;
    far.divide = far_divide;
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
