/* Memory that runs out while communicators are made, duplicated, split and used, over a bootstrap's
 * callback, by ranks that are threads and by ranks that are processes. */
#include "tests/support/forks.h"
#include "tests/support/scarcity.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { RANKS = 3, SLOTS = 64, BLOCK_BYTES = 4096 };

/* One allgather of a bootstrap that has a deadline, as alnico.h asks of one. */
struct slot {
    atomic_bool here[RANKS];
    char block[RANKS][BLOCK_BYTES];
};

static struct slot *slots; /* shared by the processes */

struct meeting {
    struct rank *rank;
    int slot; /* the next one */
};

static int allgather(void *context, const void *mine, void *all, size_t bytes)
{
    struct meeting *meeting = context;
    int rank = meeting->rank->rank;
    REQUIRE(meeting->slot < SLOTS && bytes <= BLOCK_BYTES);
    struct slot *slot = &slots[meeting->slot++];
    double end = ranks_seconds() + 0.3;
    memcpy(slot->block[rank], mine, bytes);
    atomic_store(&slot->here[rank], true);
    for (int i = 0; i < RANKS; i++) {
        while (!atomic_load(&slot->here[i]) && ranks_seconds() < end)
            sched_yield();
        if (!atomic_load(&slot->here[i]))
            return 1;
        memcpy((char *)all + (size_t)i * bytes, slot->block[i], bytes);
    }
    return 0;
}

/* In place of what the call is made on: nobody uses the slots meanwhile. */
static alnico_comm_t clear_slots(struct rank *rank)
{
    if (rank->rank == 0)
        memset(slots, 0, SLOTS * sizeof *slots);
    char one = 1, all[RANKS];
    REQUIRE(rank->bootstrap.allgather(rank->bootstrap.context, &one, all, 1) == 0);
    return NULL;
}

static alnico_status_t create(struct rank *rank, alnico_comm_t base, void **out)
{
    struct meeting meeting = {rank, 0};
    alnico_bootstrap_t bootstrap = {rank->rank, rank->size, allgather, &meeting};
    (void)base;
    return alnico_comm_create(&bootstrap, ALNICO_DEVICE_CPU, NULL, (alnico_comm_t *)out);
}

static alnico_comm_t base_comm(struct rank *rank)
{
    return ranks_comm(rank, NULL);
}

static void try_all(struct rank *rank)
{
    const struct scarce_call creation = {.name = "alnico_comm_create",
                                         .named = "alnico_comm_create",
                                         .collective = true,
                                         .call = create,
                                         .base = clear_slots,
                                         .undo = scarce_destroy};
    const int *victims = rank->argument;
    for (int v = 0; v < 2; v++) {
        scarce_try(rank, &creation, victims[v]);
        scarce_try_calls(rank, base_comm, victims[v]);
    }
}

static void test_threads(void **state)
{
    (void)state;
    int victims[] = {1, SCARCE_ALL};
    ranks_run(RANKS, try_all, victims);
}

static void test_processes(void **state)
{
    (void)state;
    int victims[] = {0, 1};
    forks_run_for(200, RANKS, 1, try_all, victims);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_processes),
    };
    setenv("ALNICO_TIMEOUT", "20", 1);
    slots = mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
    assert_true(slots != MAP_FAILED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
