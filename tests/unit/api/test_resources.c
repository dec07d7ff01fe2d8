/* Limits of a communicator, and the memory that it says it has: against what a made-up device gave out, what
 * the process has mapped, and what is left after the end. */
#include "comm/api/create.h"
#include "comm/backends/host/host.h"
#include "device/deferred_free.h"
#include "progress/staging.h"
#include "tests/support/far.h"
#include "tests/support/ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, HEAD = 64, COUNT = 100000 };

/* ---- A device that counts, in front of each allocation ---- */

static atomic_size_t device_bytes, pinned_bytes;
static struct device_ops counting;

static alnico_status_t give(size_t bytes, void **out, atomic_size_t *sum)
{
    void *memory = aligned_alloc(HEAD, (bytes + 2 * HEAD - 1) / HEAD * HEAD);
    REQUIRE(memory != NULL);
    memcpy(memory, &bytes, sizeof bytes);
    atomic_fetch_add(sum, bytes);
    *out = (char *)memory + HEAD;
    return ALNICO_SUCCESS;
}

static void take(void *memory, atomic_size_t *sum)
{
    size_t bytes;
    if (!memory)
        return;
    memcpy(&bytes, (char *)memory - HEAD, sizeof bytes);
    atomic_fetch_sub(sum, bytes);
    free((char *)memory - HEAD);
}

static alnico_status_t count_alloc(size_t bytes, void **out)
{
    void *memory;
    give(bytes, &memory, &device_bytes);
    *out = far_of(memory);
    return ALNICO_SUCCESS;
}

static void count_free(void *memory)
{
    take(host_of(memory), &device_bytes);
}

static alnico_status_t count_pinned_alloc(size_t bytes, void **out)
{
    return give(bytes, out, &pinned_bytes);
}

static void count_pinned_free(void *memory)
{
    take(memory, &pinned_bytes);
}

static alnico_comm_t counted_comm(struct rank *rank, alnico_stream_t stream)
{
    struct rendezvous r = ranks_rendezvous(rank, 60);
    struct creation made = {.device = &counting, .stream = stream, .who = "test"};
    alnico_comm_t comm = NULL;
    REQUIRE_STATUS(transport_local_meet(&r, &made.transport), ALNICO_SUCCESS);
    REQUIRE_STATUS(comm_build(&made, &comm), ALNICO_SUCCESS);
    return comm;
}

/* ---- What is there ---- */

/* Bytes of the segments that the process has mapped. */
static size_t mapped(void)
{
    char line[512];
    size_t sum = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    REQUIRE(file != NULL);
    while (fgets(line, sizeof line, file)) {
        unsigned long from, to;
        if (strstr(line, "/memfd:alnico") && sscanf(line, "%lx-%lx", &from, &to) == 2)
            sum += to - from;
    }
    fclose(file);
    return sum;
}

static alnico_comm_memory_t memory_of(alnico_comm_t comm)
{
    alnico_comm_memory_t m;
    REQUIRE_STATUS(alnico_comm_memory(comm, &m), ALNICO_SUCCESS);
    REQUIRE(m.host + m.device + m.shared == m.scratch + m.messages);
    return m;
}

/* Over all ranks. */
static size_t sum(struct rank *rank, size_t mine)
{
    size_t all[RANKS], sum = 0;
    REQUIRE(rank->bootstrap.allgather(rank->bootstrap.context, &mine, all, sizeof mine) == 0);
    for (int i = 0; i < rank->size; i++)
        sum += all[i];
    return sum;
}

/* The pool's buffers and what a rank's peer backend has for itself are the host's, not the device's. */
static void require_counted(struct rank *rank, alnico_comm_t comm, bool peer)
{
    alnico_comm_memory_t m = memory_of(comm);
    size_t own = peer ? (size_t)(RANKS + 1) * 32 * 64 : 0, pool = pool_bytes(&comm->family->pool);
    ranks_barrier(rank);
    size_t device = sum(rank, m.device), host = sum(rank, m.host - pool - own),
           shared = sum(rank, m.shared);
    REQUIRE(device == atomic_load(&device_bytes));
    REQUIRE(host == atomic_load(&pinned_bytes));
    REQUIRE(shared == mapped() && (shared > 0) == peer);
    ranks_barrier(rank);
}

static void reduce_and_send(struct rank *rank, alnico_comm_t comm, alnico_stream_t stream)
{
    float *x = calloc(COUNT, sizeof *x), *y = calloc(COUNT, sizeof *y);
    REQUIRE(x && y);
    int next = (rank->rank + 1) % rank->size, before = (rank->rank + rank->size - 1) % rank->size;
    REQUIRE(far_force(comm, ALNICO_ALLREDUCE, "aware_ring"));
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, far_of(x), COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(
        alnico_sendrecv(far_of(x), COUNT, next, far_of(y), COUNT, before, ALNICO_FLOAT32, comm),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_synchronize(stream), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    free(x);
    free(y);
}

static void count_device(struct rank *rank)
{
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = counted_comm(rank, stream);
    require_counted(rank, comm, true);
    far_be_aware(comm);
    size_t made = memory_of(comm).messages;
    require_counted(rank, comm, true);
    reduce_and_send(rank, comm, stream);
    require_counted(rank, comm, true);
    REQUIRE(memory_of(comm).messages >= made + 2 * COUNT * sizeof(float));
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void memory_is_what_a_device_gave(void **state)
{
    (void)state;
    ranks_run(RANKS, count_device, NULL);
    deferred_run();
    assert_int_equal(atomic_load(&device_bytes), 0);
    assert_int_equal(atomic_load(&pinned_bytes), 0);
    assert_int_equal(mapped(), 0);
}

/* ---- Limits ---- */

static void limit(struct rank *rank)
{
    alnico_comm_t comm = counted_comm(rank, NULL), part;
    size_t all = memory_of(comm).scratch;
    REQUIRE(all > STAGING_BYTES);
    const alnico_limits_t staging = {.scratch = STAGING_BYTES}, tiny = {.scratch = 1000},
                          none = {0};
    REQUIRE_STATUS(alnico_comm_set_limits(comm, &staging), ALNICO_SUCCESS);
    REQUIRE(memory_of(comm).scratch == STAGING_BYTES);
    require_counted(rank, comm, false);
    REQUIRE_STATUS(alnico_comm_set_limits(comm, &tiny), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("limits.scratch is 1000");
    REQUIRE(memory_of(comm).scratch == STAGING_BYTES);
    REQUIRE_STATUS(alnico_comm_duplicate(comm, NULL, &part), ALNICO_SUCCESS);
    REQUIRE(memory_of(part).scratch == STAGING_BYTES);
    REQUIRE_STATUS(alnico_comm_set_limits(part, &none), ALNICO_SUCCESS);
    REQUIRE(memory_of(part).scratch == all && memory_of(comm).scratch == STAGING_BYTES);
    alnico_comm_destroy(part);
    REQUIRE_STATUS(alnico_comm_split(comm, rank->rank == 0, 0, NULL, &part), ALNICO_SUCCESS);
    REQUIRE(memory_of(part).scratch <= STAGING_BYTES);
    alnico_comm_destroy(part);
    alnico_comm_destroy(comm);
}

static void limits_hold_and_are_followed(void **state)
{
    (void)state;
    ranks_run(RANKS, limit, NULL);
}

static void refuse(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    alnico_limits_t limits = {.blocks = -1};
    alnico_comm_memory_t m;
    REQUIRE_STATUS(alnico_comm_memory(comm, NULL), ALNICO_ERROR_ARGUMENT);
    REQUIRE_STATUS(alnico_comm_memory(NULL, &m), ALNICO_ERROR_ARGUMENT);
    REQUIRE_STATUS(alnico_comm_set_limits(comm, NULL), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("limits is NULL");
    REQUIRE_STATUS(alnico_comm_set_limits(comm, &limits), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("limits.blocks is -1");
    limits.blocks = 1 + rank->rank;
    REQUIRE_STATUS(alnico_comm_set_limits(comm, &limits), ALNICO_ERROR_MISMATCH);
    ranks_require_detail("rank 0 passes 1 blocks");
    limits = (alnico_limits_t){.scratch = 1}; /* of the CPU: ranks send messages */
    REQUIRE_STATUS(alnico_comm_set_limits(comm, &limits), ALNICO_SUCCESS);
    REQUIRE(memory_of(comm).scratch == 0);
    int32_t x = 1;
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, &x, 1, ALNICO_INT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    REQUIRE(x == rank->size);
    REQUIRE_STATUS(alnico_comm_set_limits(comm, &limits), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("has been used");
    alnico_comm_destroy(comm);
}

static void bad_limits_are_refused_by_name(void **state)
{
    (void)state;
    ranks_run(RANKS, refuse, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_what_a_device_gave),
        cmocka_unit_test(limits_hold_and_are_followed),
        cmocka_unit_test(bad_limits_are_refused_by_name),
    };
    counting = *far_device();
    counting.alloc = count_alloc;
    counting.free = count_free;
    counting.pinned_alloc = count_pinned_alloc;
    counting.pinned_free = count_pinned_free;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
