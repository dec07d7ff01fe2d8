/* Every operation in virtual time: its algorithms against their cost formulas, right on crowded
 * machines and in chunks, and the same with and without data. */
#include "tests/support/reference.h"
#include "tools/simulate/run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static uint64_t seed;

static double uniform(uint64_t a, uint64_t b, double least, double most)
{
    return least + (most - least) * (double)(reference_random(seed, a, b) >> 11) * 0x1p-53;
}

/* Calls `each` with every algorithm of every operation. */
static void for_all(void (*each)(struct simulate_case what))
{
    for (int o = 0; o < COLLECTIVES; o++) {
        const struct algorithm *const *list = operation_algorithms(&collectives[o]);
        for (int i = 0; list[i]; i++)
            each((struct simulate_case){
                .operation = &collectives[o], .algorithm = list[i], .data = true});
    }
}

static double run(const struct simulate_case *what)
{
    struct simulate_result result;
    alnico_status_t status = simulate_run(what, &result);
    if (status != ALNICO_SUCCESS)
        fail_msg("%s %s, %d ranks: %s", operation_of(what)->name, what->algorithm->name,
                 what->ranks, alnico_error_detail());
    if (result.wrong)
        fail_msg("%s %s, %d ranks, %zu elements: %zu wrong", operation_of(what)->name,
                 what->algorithm->name, what->ranks, what->count, result.wrong);
    return result.time_us;
}

/* ---- Cost formulas ---- */

/* lg p times (alpha + n beta) and more, for a power of two p: how often each term counts, n in
 * full. */
struct formula {
    const char *operation, *algorithm;
    double (*alphas)(double p), (*betas)(double p), (*gammas)(double p);
};

static double none(double p)
{
    (void)p;
    return 0;
}

static double lg(double p)
{
    return log2(p);
}

static double twice_lg(double p)
{
    return 2 * log2(p);
}

static double half_lg(double p)
{
    return log2(p) / 2;
}

static double others(double p)
{
    return p - 1;
}

static double twice_others(double p)
{
    return 2 * (p - 1);
}

static double part(double p)
{
    return (p - 1) / p;
}

static double twice_part(double p)
{
    return 2 * (p - 1) / p;
}

static double one(double p)
{
    (void)p;
    return 1;
}

/* n are the bytes of the vector, or of all blocks together. */
static const struct formula formulas[] = {
    {"reduce", "binomial", lg, lg, lg},
    {"reduce", "reduce_scatter_gather", twice_lg, twice_part, part},
    {"broadcast", "binomial", lg, lg, none},
    {"allgather", "recursive_doubling", lg, part, none},
    {"allgather", "bruck", lg, part, none},
    {"allgather", "ring", others, part, none},
    {"allgatherv", "ring", others, part, none},
    {"reduce_scatter", "recursive_halving", lg, part, part},
    {"reduce_scatter", "pairwise", others, part, part},
    {"reduce_scatter", "ring", others, part, part},
    {"reduce_scatterv", "pairwise", others, part, part},
    {"reduce_scatterv", "ring", others, part, part},
    {"gather", "binomial", lg, part, none},
    {"scatter", "binomial", lg, part, none},
    {"alltoall", "bruck", lg, half_lg, none},
    {"alltoall", "pairwise", others, part, none},
    {"alltoallv", "pairwise", others, part, none},
    {"barrier", "dissemination", lg, none, none},
    {"sendrecv", "direct", one, one, none},
};
enum { FORMULAS = sizeof formulas / sizeof *formulas };

static const struct algorithm *find(const struct collective *operation, const char *name)
{
    const struct algorithm *const *list = operation_algorithms(operation);
    for (int i = 0; list[i]; i++)
        if (strcmp(list[i]->name, name) == 0)
            return list[i];
    fail_msg("%s has no %s", operation->name, name);
    return NULL;
}

static void compare(const struct formula *f, int p, size_t count, uint64_t id)
{
    double alpha = uniform(id, 1, 0.1, 5), gbps = uniform(id, 2, 0.5, 400),
           reduce = uniform(id, 3, 0.5, 1000);
    struct sim_link link = {alpha, gbps};
    struct sim_machine machine = {
        .link = {link, link, link}, .reduce_gbps = reduce, .taper = 1, .ranks_per_host = 1};
    struct simulate_case what = {.machine = &machine,
                                 .ranks = p,
                                 .count = count,
                                 .data = true,
                                 .operation = collective_find(f->operation)};
    what.algorithm = find(what.operation, f->algorithm);
    bool blocks = what.operation->reads == ALL_BLOCKS || what.operation->writes == ALL_BLOCKS;
    double kilobytes = 4e-3 * (double)count * (blocks ? p : 1);
    double expected =
        f->alphas(p) * alpha + f->betas(p) * kilobytes / gbps + f->gammas(p) * kilobytes / reduce;
    if (what.operation == &collectives[ALNICO_BARRIER])
        expected += f->alphas(p) * 4e-3 / gbps; /* a barrier's messages have one element */
    double time_us = run(&what);
    if (fabs(time_us / expected - 1) > 1e-3)
        fail_msg("%s %s, p = %d, %zu elements: %g us, formula %g us", f->operation, f->algorithm, p,
                 count, time_us, expected);
}

static void test_time_equals_the_cost_formula(void **state)
{
    (void)state;
    for (uint64_t f = 0; f < FORMULAS; f++)
        for (int p = 4; p <= 64; p *= 2)
            for (uint64_t k = 0; k < 3; k++)
                compare(&formulas[f], p, (size_t)p << 2 * k, 1000 * f + 4 * (uint64_t)p + k);
}

/* Blocks that the scatter brought are not sent again, so that it may be faster than its formula. */
static void test_scatter_and_ring_are_within_their_formula(void **state)
{
    (void)state;
    for (int p = 4; p <= 128; p *= 2) {
        struct sim_link link = {1, 10};
        struct sim_machine machine = {.link = {link, link, link}, .taper = 1, .ranks_per_host = 1};
        struct simulate_case what = {.machine = &machine,
                                     .algorithm = &algorithm_broadcast_scatter_ring,
                                     .ranks = p,
                                     .count = 1 << 18,
                                     .data = true,
                                     .operation = collective_find("broadcast")};
        double formula = (log2(p) + p - 1) * 1 + 2 * (p - 1.) / p * 4e-3 * (1 << 18) / 10;
        double time_us = run(&what);
        assert_true(time_us < 1.001 * formula && time_us > 0.6 * formula);
    }
}

/* Of hosts of m ranks: twice everybody's parts to everybody on it, and between them what the name
 * says of a part. */
struct inside {
    const char *name;
    double (*alphas)(double hosts), (*betas)(double hosts), (*gammas)(double hosts);
};
static const struct inside insides[] = {
    {"hierarchical_doubling", lg, lg, lg},
    {"hierarchical_rabenseifner", twice_lg, twice_part, part},
    {"hierarchical_ring", twice_others, twice_part, part},
};

static void compare_hosts(const struct inside *f, int hosts, int m)
{
    size_t count = (size_t)(hosts * m) << 6;
    struct sim_link near = {0.5, 40}, far = {2, 10};
    struct sim_machine machine = {
        .link = {near, far, far}, .reduce_gbps = 20, .taper = 1, .ranks_per_host = m};
    struct host_map *map = simulate_map(hosts * m, m);
    struct simulate_case what = {.machine = &machine,
                                 .algorithm = find(&collectives[ALNICO_ALLREDUCE], f->name),
                                 .ranks = hosts * m,
                                 .count = count,
                                 .data = true,
                                 .map = map};
    double n = 4e-3 * (double)count, moved = (m - 1.) / m * n;
    double inside = 2 * ((m > 1) * 0.5 + moved / 40) + moved / 20;
    double expected =
        inside + f->alphas(hosts) * 2 + n / m * (f->betas(hosts) / 10 + f->gammas(hosts) / 20);
    double time_us = run(&what);
    if (fabs(time_us / expected - 1) > 1e-3)
        fail_msg("%s, %d hosts of %d: %g us, formula %g us", f->name, hosts, m, time_us, expected);
    free(map);
}

static void test_hosts_cost_what_the_formula_says(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof insides / sizeof *insides; f++)
        for (int hosts = 1; hosts <= 16; hosts *= 2)
            for (int m = 1; m <= 5; m++)
                if (hosts * m > 1)
                    compare_hosts(&insides[f], hosts, m);
}

/* ---- Values ---- */

/* 4 ranks a host, 2 hosts a leaf, everything shared. */
static const struct sim_machine crowded = {.link = {{0.5, 40}, {1, 10}, {2, 8}},
                                           .reduce_gbps = 20,
                                           .injection_gbps = 16,
                                           .taper = 4,
                                           .ranks_per_host = 4,
                                           .hosts_per_leaf = 2};

static void check_values(struct simulate_case what)
{
    what.machine = &crowded;
    struct host_map *map = NULL;
    for (what.ranks = 2; what.ranks < 50; what.ranks += what.ranks < 18 ? 1 : 13) {
        size_t p = (size_t)what.ranks, counts[] = {0, 1, p - 1, p, p + 1, 300};
        what.map = map = simulate_map(what.ranks, crowded.ranks_per_host);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (what.chunk_count = 0; what.chunk_count <= 50; what.chunk_count += 50) {
                what.count = counts[c];
                run(&what);
            }
        free(map);
    }
}

static void test_results_are_right_on_a_crowded_machine(void **state)
{
    (void)state;
    for_all(check_values);
}

static void check_repeats(struct simulate_case what)
{
    what.machine = &crowded;
    what.ranks = 60;
    what.count = 500;
    what.chunk_count = 70;
    double first = run(&what), again = run(&what);
    what.data = false;
    assert_true(first == again && first == run(&what) && first > 0);
}

static void test_runs_repeat_and_data_changes_no_time(void **state)
{
    (void)state;
    for_all(check_repeats);
}

/* Blocks of a gigabyte: nobody needs the memory. */
static void check_sizes(struct simulate_case what)
{
    what.machine = &crowded;
    what.ranks = 128;
    what.count = (size_t)1 << 28;
    what.data = false;
    assert_true(simulate_data_bytes(&what) > 1e10 ||
                what.operation == &collectives[ALNICO_BARRIER]);
    assert_true(run(&what) > 0);
}

static void test_sizes_alone_need_no_memory(void **state)
{
    (void)state;
    for_all(check_sizes);
}

static struct algorithm faulty;

static bool reversed_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    bool any = algorithm_alltoall_pairwise.round(shape, i, k, out);
    if (any && out->to != shape->rank)
        out->send = send_block(shape, out->from);
    return any;
}

static bool deaf_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    return shape->rank != 3 && algorithm_alltoall_pairwise.round(shape, i, k, out);
}

static void test_what_is_wrong_is_seen(void **state)
{
    (void)state;
    struct simulate_case what = {.machine = &crowded,
                                 .algorithm = &faulty,
                                 .ranks = 8,
                                 .count = 100,
                                 .data = true,
                                 .operation = collective_find("alltoall")};
    struct simulate_result result;
    faulty = algorithm_alltoall_pairwise;
    faulty.round = reversed_round;
    assert_int_equal(simulate_run(&what, &result), ALNICO_SUCCESS);
    assert_true(result.wrong > 4000);
    faulty.round = deaf_round;
    assert_int_equal(simulate_run(&what, &result), ALNICO_ERROR_SYSTEM);
    assert_non_null(strstr(alnico_error_detail(), "wait for ever"));
}

int main(void)
{
    seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_equals_the_cost_formula),
        cmocka_unit_test(test_scatter_and_ring_are_within_their_formula),
        cmocka_unit_test(test_hosts_cost_what_the_formula_says),
        cmocka_unit_test(test_results_are_right_on_a_crowded_machine),
        cmocka_unit_test(test_runs_repeat_and_data_changes_no_time),
        cmocka_unit_test(test_sizes_alone_need_no_memory),
        cmocka_unit_test(test_what_is_wrong_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
