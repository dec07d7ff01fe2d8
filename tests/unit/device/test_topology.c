/* The machine at hand against the system's own answers, hwloc's synthetic machines, and the engine
 * thread's unit on machines described here. */
#include "device/topology.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static bool has(const struct core_set *set, int unit)
{
    return set->bits[unit / 64] >> (unit % 64) & 1;
}

static void add(struct core_set *set, int unit)
{
    set->bits[unit / 64] |= UINT64_C(1) << (unit % 64);
}

/* Units first to last. */
static struct core_set range(int first, int last)
{
    struct core_set set = {{0}};
    for (int unit = first; unit <= last; unit++)
        add(&set, unit);
    return set;
}

/* `cores` cores over `nodes` NUMA nodes; a core's hardware threads are `stride` units apart. */
static struct topology machine(int cores, int threads, int stride, int nodes)
{
    struct topology topology = {.cores = cores, .units = cores * threads, .numa_nodes = nodes};
    topology.usable = range(0, topology.units - 1);
    for (int unit = 0; unit < topology.units; unit++) {
        int core = stride == 1 ? unit / threads : unit % cores;
        topology.places[unit].core = (uint16_t)(stride == 1 ? core * threads : core);
        topology.places[unit].node = (uint16_t)(core * nodes / cores);
    }
    return topology;
}

static void two_bound_ranks_on_two_units_leave_none(void **state)
{
    (void)state;
    struct topology topology = machine(2, 1, 1, 1);
    struct core_set process[] = {range(0, 0), range(1, 1)};
    assert_int_equal(topology_engine_core(&topology, process, 0, 2), -1);
    assert_int_equal(topology_engine_core(&topology, process, 1, 2), -1);
}

static void engines_of_unbound_ranks_are_not_bound(void **state)
{
    (void)state;
    struct topology topology = machine(4, 2, 1, 1);
    struct core_set process[9];
    for (int i = 0; i < 9; i++)
        process[i] = topology.usable;
    for (int rank = 0; rank < 9; rank++)
        assert_int_equal(topology_engine_core(&topology, process, rank, 9), -1);
}

static void engines_of_bound_ranks_stay_outside_their_sets(void **state)
{
    (void)state;
    struct topology topology = machine(8, 1, 1, 1);
    struct core_set process[] = {range(6, 7), range(2, 3)};
    assert_int_equal(topology_engine_core(&topology, process, 0, 2), 5);
    assert_int_equal(topology_engine_core(&topology, process, 1, 2), 1);
}

/* Neighbours may be one core: engines share it with nobody, and with each other last. */
static void engines_keep_their_distance(void **state)
{
    (void)state;
    struct topology topology = machine(8, 1, 1, 1);
    struct core_set process[] = {range(0, 0), range(1, 1), range(2, 2)};
    assert_int_equal(topology_engine_core(&topology, process, 0, 3), 7);
    assert_int_equal(topology_engine_core(&topology, process, 1, 3), 5);
    assert_int_equal(topology_engine_core(&topology, process, 2, 3), 6);
}

static void bound_and_unbound_ranks_mix(void **state)
{
    (void)state;
    struct topology topology = machine(4, 1, 1, 1);
    struct core_set process[] = {topology.usable, range(0, 0)};
    assert_int_equal(topology_engine_core(&topology, process, 0, 2), -1);
    assert_int_equal(topology_engine_core(&topology, process, 1, 2), 3);
}

/* Of 8 units in 4 cores the rank has unit 7: its core's other thread is the last choice. */
static void a_core_without_ranks_comes_before_a_hardware_thread_of_a_busy_one(void **state)
{
    (void)state;
    for (int stride = 1; stride <= 4; stride += 3) {
        struct topology topology = machine(4, 2, stride, 1);
        int sibling = stride == 1 ? 6 : 3;
        struct core_set process[] = {range(7, 7)};
        int unit = topology_engine_core(&topology, process, 0, 1);
        assert_int_equal(unit, stride == 1 ? 5 : 6);
        process[0] = range(0, 7);
        process[0].bits[0] &= ~(UINT64_C(1) << sibling);
        assert_int_equal(topology_engine_core(&topology, process, 0, 1), sibling);
    }
}

static void engines_stay_on_the_numa_node_of_their_rank(void **state)
{
    (void)state;
    struct topology topology = machine(8, 1, 1, 2);
    struct core_set process[] = {range(0, 1), range(4, 5)};
    assert_int_equal(topology_engine_core(&topology, process, 0, 2), 3);
    assert_int_equal(topology_engine_core(&topology, process, 1, 2), 7);
}

static void only_usable_units_are_chosen(void **state)
{
    (void)state;
    struct topology topology = machine(200, 1, 1, 1);
    topology.usable = range(64, 130);
    struct core_set process[] = {range(129, 130), range(64, 64)};
    assert_int_equal(topology_engine_core(&topology, process, 0, 1), 127);
    assert_int_equal(topology_engine_core(&topology, process, 1, 2), 125);
}

/* For random machines and bindings: engines are distinct, usable, and on no bound rank's units. */
static void engines_never_collide(void **state)
{
    (void)state;
    enum { RANKS = 6, TRIALS = 300 };
    for (unsigned trial = 0; trial < TRIALS; trial++) {
        struct topology topology = machine(1 + rand() % 12, 1 + rand() % 2, 1, 1);
        struct core_set process[RANKS], chosen = {{0}};
        for (int i = 0; i < RANKS; i++)
            process[i] = range(rand() % topology.units, topology.units - 1);
        for (int rank = 0; rank < RANKS; rank++) {
            int unit = topology_engine_core(&topology, process, rank, RANKS);
            if (unit < 0)
                continue;
            assert_true(unit < topology.units && !has(&chosen, unit));
            add(&chosen, unit);
            for (int i = 0; i < RANKS; i++)
                assert_false(has(&process[i], unit) &&
                             memcmp(&process[i], &topology.usable, sizeof *process) != 0);
        }
    }
}

static void the_machine_at_hand_matches_the_system(void **state)
{
    (void)state;
    struct topology topology;
    char name[64];
    cpu_set_t affinity;
    assert_int_equal(topology_read(&topology), ALNICO_SUCCESS);
    assert_int_equal(gethostname(name, sizeof name), 0);
    assert_string_equal(topology.host, name);
    assert_int_equal(sched_getaffinity(0, sizeof affinity, &affinity), 0);
    int usable = 0;
    for (int unit = 0; unit < CORE_SET_UNITS; unit++) {
        assert_int_equal(has(&topology.process, unit), CPU_ISSET(unit, &affinity) != 0);
        usable += has(&topology.usable, unit);
        assert_true(has(&topology.usable, unit) || !has(&topology.process, unit));
    }
    assert_int_equal(topology.units, usable);
    assert_in_range(topology.cores, 1, topology.units);
    assert_true(topology.numa_nodes >= 1);
    assert_true(topology.host_id != 0 && topology.host_id == topology_host_id());
}

static void a_process_shares_units_that_both_may_run_on(void **state)
{
    (void)state;
    struct topology topology = {0};
    struct core_set process = {{0}};
    topology.usable.bits[2] = 0x30;
    assert_false(topology_shares(&topology, &process));
    process.bits[1] = 0x30;
    process.bits[2] = 0xc0;
    assert_false(topology_shares(&topology, &process));
    process.bits[2] = 0xe0;
    assert_true(topology_shares(&topology, &process));
}

static void a_synthetic_machine_is_read_as_described(void **state)
{
    (void)state;
    struct topology topology;
    setenv("HWLOC_SYNTHETIC", "numa:2 l3:1(size=1048576) core:4 l1:1(size=32768) pu:2", 1);
    alnico_status_t status = topology_read(&topology);
    unsetenv("HWLOC_SYNTHETIC");
    assert_int_equal(status, ALNICO_SUCCESS);
    assert_int_equal(topology.cores, 8);
    assert_int_equal(topology.units, 16);
    assert_int_equal(topology.numa_nodes, 2);
    assert_int_equal(topology.l1, 32768);
    assert_int_equal(topology.l2, 0);
    assert_int_equal(topology.l3, 1048576);
    for (int unit = 0; unit < 16; unit++) {
        assert_int_equal(topology.places[unit].core, unit / 2 * 2);
        assert_int_equal(topology.places[unit].node, unit / 8);
    }
}

/* In a thread of its own, so that the other tests keep theirs. */
static void *bind(void *argument)
{
    const struct core_set *units = argument;
    cpu_set_t bound;
    for (int unit = 0; unit < CORE_SET_UNITS; unit++) {
        if (!has(units, unit))
            continue;
        if (topology_bind_thread(unit) != ALNICO_SUCCESS ||
            pthread_getaffinity_np(pthread_self(), sizeof bound, &bound) != 0 ||
            CPU_COUNT(&bound) != 1 || !CPU_ISSET(unit, &bound) || sched_getcpu() != unit)
            return NULL;
    }
    return argument;
}

static void binding_moves_the_thread(void **state)
{
    (void)state;
    struct topology topology;
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(topology_read(&topology), ALNICO_SUCCESS);
    assert_int_equal(pthread_create(&thread, NULL, bind, &topology.usable), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
}

static void impossible_units_are_refused(void **state)
{
    (void)state;
    static const int impossible[] = {-1, CPU_SETSIZE - 1, CPU_SETSIZE, 1 << 30};
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        char text[24];
        snprintf(text, sizeof text, "%d", impossible[i]);
        assert_int_equal(topology_bind_thread(impossible[i]), ALNICO_ERROR_SYSTEM);
        assert_non_null(strstr(alnico_error_detail(), text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_bound_ranks_on_two_units_leave_none),
        cmocka_unit_test(engines_of_unbound_ranks_are_not_bound),
        cmocka_unit_test(engines_of_bound_ranks_stay_outside_their_sets),
        cmocka_unit_test(engines_keep_their_distance),
        cmocka_unit_test(bound_and_unbound_ranks_mix),
        cmocka_unit_test(a_core_without_ranks_comes_before_a_hardware_thread_of_a_busy_one),
        cmocka_unit_test(engines_stay_on_the_numa_node_of_their_rank),
        cmocka_unit_test(only_usable_units_are_chosen),
        cmocka_unit_test(engines_never_collide),
        cmocka_unit_test(the_machine_at_hand_matches_the_system),
        cmocka_unit_test(a_process_shares_units_that_both_may_run_on),
        cmocka_unit_test(a_synthetic_machine_is_read_as_described),
        cmocka_unit_test(binding_moves_the_thread),
        cmocka_unit_test(impossible_units_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
