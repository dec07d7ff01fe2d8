/* The host's memory, each buffer an allocation of its own so that a sanitizer sees its end too, and
 * the library's CPU streams. The site "far" has the same memory under addresses that the host does
 * not reach, as a GPU's: only the host backend works there, through pinned memory. In the site
 * "aware" the transport takes those addresses, and in "hierarchical" ranks are on several hosts. */
#include "tests/conformance/site.h"

#include "comm/backends/hierarchical/hierarchical.h"
#include "tests/support/far.h"

#include <stdlib.h>
#include <string.h>

enum { TAKEN = 6 * TRIALS };

struct site {
    void *taken[TAKEN];
    int number;
};

static int cpu_most(void)
{
    return RANKS_MOST;
}

static void *cpu_open(const struct rank *rank, bool mpi)
{
    (void)rank, (void)mpi;
    struct site *site = calloc(1, sizeof *site);
    REQUIRE(site != NULL);
    return site;
}

static void cpu_close(void *site)
{
    free(site);
}

static void cpu_enter(void *site)
{
    (void)site;
}

static void *cpu_stream_create(void *site)
{
    (void)site;
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    return stream;
}

static void cpu_stream_destroy(void *stream)
{
    alnico_stream_destroy(stream);
}

static void cpu_drain(void *stream)
{
    REQUIRE_STATUS(alnico_stream_synchronize(stream), ALNICO_SUCCESS);
}

static char *cpu_take(void *context, size_t bytes)
{
    struct site *site = context;
    void *memory = NULL;
    REQUIRE(site->number < TAKEN && posix_memalign(&memory, 64, bytes) == 0);
    site->taken[site->number++] = memory;
    return memory;
}

static char *cpu_take_registered(void *site, int lane, int slot, size_t bytes)
{
    (void)lane, (void)slot;
    return cpu_take(site, bytes);
}

static void cpu_give_all(void *context)
{
    struct site *site = context;
    while (site->number > 0)
        free(site->taken[--site->number]);
}

static void copy_now(void *argument)
{
    struct copy *copy = argument;
    memcpy(host_of(copy->to), host_of(copy->from), copy->bytes);
    copy->time = ranks_seconds();
}

static void cpu_copy(void *site, void *stream, struct copy *copy)
{
    (void)site;
    REQUIRE_STATUS(alnico_stream_enqueue(stream, copy_now, copy), ALNICO_SUCCESS);
}

const struct site_ops site_cpu = {
    .name = "cpu",
    .device = ALNICO_DEVICE_CPU,
    .most = cpu_most,
    .self = true,
    .renew = 4096,
    .open = cpu_open,
    .close = cpu_close,
    .enter = cpu_enter,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .drain = cpu_drain,
    .streams = {[LANE_WORLD] = -1,
                [LANE_TWIN] = -1,
                [LANE_HALF] = -1,
                [LANE_STREAM] = 0,
                [LANE_SHARED] = 0,
                [LANE_REVERSED] = 1},
    .take = cpu_take,
    .take_host = cpu_take,
    .take_registered = cpu_take_registered,
    .give_all = cpu_give_all,
    .put = cpu_copy,
    .get = cpu_copy,
};

static char *far_take(void *site, size_t bytes)
{
    return far_of(cpu_take(site, bytes));
}

static char *far_take_registered(void *site, int lane, int slot, size_t bytes)
{
    return far_of(cpu_take_registered(site, lane, slot, bytes));
}

#define FAR_ROWS                                                                                   \
    .staged = true, .self = true, .renew = 4096, .most = cpu_most, .open = cpu_open,               \
    .close = cpu_close, .world = far_comm, .enter = cpu_enter, .stream_create = cpu_stream_create, \
    .stream_destroy = cpu_stream_destroy, .drain = cpu_drain,                                      \
    .streams = {[LANE_WORLD] = 0,  [LANE_TWIN] = 1,   [LANE_HALF] = 2,                             \
                [LANE_STREAM] = 3, [LANE_SHARED] = 3, [LANE_REVERSED] = 4},                        \
    .take = far_take, .take_host = cpu_take, .take_registered = far_take_registered,               \
    .give_all = cpu_give_all, .put = cpu_copy, .get = cpu_copy,

const struct site_ops site_far = {
    .name = "far", .device = ALNICO_DEVICE_CPU, .only = "host", FAR_ROWS};

static void aware_open(void *site, int lane, alnico_comm_t comm)
{
    (void)site, (void)lane;
    far_be_aware(comm);
}

static alnico_status_t aware_force(alnico_comm_t comm, alnico_collective_t collective,
                                   const char *name)
{
    return far_force(comm, collective, name) ? ALNICO_SUCCESS
                                             : alnico_comm_set_algorithm(comm, collective, name);
}

const struct site_ops site_aware = {.name = "aware",
                                    .device = ALNICO_DEVICE_CUDA,
                                    .only = "aware",
                                    .force = aware_force,
                                    .lane_open = aware_open,
                                    FAR_ROWS};

/* Even and uneven hosts, whose ranks are neighbours or not. */
static uint64_t host_of_rank(int lane, int rank, int size)
{
    switch (lane % 4) {
    case 0:
        return (uint64_t)(rank * 2 / size);
    case 1:
        return (uint64_t)rank / 2;
    case 2:
        return rank > 0;
    default:
        return (uint64_t)rank % 2;
    }
}

static void hierarchical_open(void *site, int lane, alnico_comm_t comm)
{
    uint64_t hosts[RANKS_MOST];
    (void)site;
    for (int i = 0; i < comm->size; i++)
        hosts[i] = host_of_rank(lane, i, comm->size);
    far_be_hierarchical(comm, hosts);
}

/* Forces the host backend where this one lacks the algorithm, or does not serve the communicator. */
static alnico_status_t hierarchical_force(alnico_comm_t comm, alnico_collective_t collective,
                                          const char *name)
{
    bool works = hierarchical_ops.supports(comm, NULL, &algorithm_hierarchical);
    if (works && far_force(comm, collective, name))
        return ALNICO_SUCCESS;
    return alnico_comm_set_algorithm(comm, collective,
                                     backend_host.algorithms[collective][0]->name);
}

const struct site_ops site_hierarchical = {.name = "hierarchical",
                                           .device = ALNICO_DEVICE_CUDA,
                                           .only = "hierarchical",
                                           .force = hierarchical_force,
                                           .lane_open = hierarchical_open,
                                           FAR_ROWS};
