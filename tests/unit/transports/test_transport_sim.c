/* Virtual time: what a message, a reduction and a shared part of a machine cost, by hand; every
 * algorithm against its cost formula; real results on crowded machines; crossovers; machine files
 * with every kind of damage; the event queue against a sorted list. */
#include "comm/transports/sim/queue.h"
#include "comm/transports/sim/sim.h"
#include "tests/support/reference.h"
#include "tools/simulate/report.h"
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

static struct sim_machine flat(double alpha_us, double gbps, double reduce_gbps)
{
    struct sim_link link = {alpha_us, gbps};
    return (struct sim_machine){
        .link = {link, link, link}, .reduce_gbps = reduce_gbps, .taper = 1, .ranks_per_host = 1};
}

/* 4 ranks a host, 2 hosts a leaf, everything shared. */
static struct sim_machine crowded(void)
{
    return (struct sim_machine){.link = {{0.5, 40}, {1, 10}, {2, 8}},
                                .reduce_gbps = 20,
                                .injection_gbps = 16,
                                .taper = 4,
                                .ranks_per_host = 4,
                                .hosts_per_leaf = 2};
}

/* ---- The queue ---- */

static void test_events_come_by_time_then_in_order(void **state)
{
    (void)state;
    enum { EVENTS = 2000 };
    struct sim_queue queue = {0};
    uint64_t last_time = 0, last_what = 0;
    size_t pushed = 0, taken = 0;
    struct sim_event event;
    bool failed = false;
    for (uint64_t turn = 0; taken < EVENTS; turn++) {
        uint64_t random = reference_random(seed, turn, 1);
        if (pushed < EVENTS && random % 3) {
            uint64_t ahead = random % 5 == 0 ? 0 : random >> 8 >> random % 50;
            ahead >>= 8;
            assert_true(sim_queue_push(&queue, queue.now + ahead % 1000, ++pushed));
        } else if (sim_queue_take(&queue, &event, &failed)) {
            assert_true(event.time > last_time ||
                        (event.time == last_time && (taken == 0 || event.what > last_what)));
            last_time = event.time;
            last_what = event.what;
            taken++;
        }
        assert_false(failed);
    }
    assert_false(sim_queue_take(&queue, &event, &failed));
    sim_queue_finish(&queue);
}

/* ---- Messages by hand ---- */

struct post {
    struct transfer send, receive;
    char out[64], in[64];
};

/* Any size may be named where no data is moved. */
static void exchange(struct sim *sim, int from, int to, size_t bytes, struct post *p)
{
    struct transport *a = sim_transport(sim, from), *b = sim_transport(sim, to);
    assert_int_equal(b->ops->irecv(b, from, 9, p->in, bytes, &p->receive), ALNICO_SUCCESS);
    assert_int_equal(a->ops->isend(a, to, 9, p->out, bytes, &p->send), ALNICO_SUCCESS);
}

static alnico_status_t test(struct sim *sim, int rank, struct transfer *transfer)
{
    struct transport *t = sim_transport(sim, rank);
    return t->ops->test(t, transfer);
}

static void drain(struct sim *sim)
{
    alnico_status_t status;
    while (sim_next(sim, &status) >= 0)
        ;
    assert_int_equal(status, ALNICO_SUCCESS);
}

/* When a message between two ranks of the crowded machine arrives, and when it has left. */
static void expect_times(int from, int to, size_t bytes, double left_us, double arrived_us)
{
    struct sim_machine machine = crowded();
    struct sim *sim;
    struct post p;
    assert_int_equal(sim_create(&machine, 64, false, &sim), ALNICO_SUCCESS);
    exchange(sim, from, to, bytes, &p);
    assert_int_equal(test(sim, to, &p.receive), ALNICO_PENDING);
    drain(sim);
    assert_true(fabs(sim_clock_us(sim, from) - left_us) < 1e-5);
    assert_true(fabs(sim_clock_us(sim, to) - arrived_us) < 1e-5);
    assert_int_equal(test(sim, to, &p.receive), ALNICO_SUCCESS);
    assert_int_equal(test(sim, from, &p.send), ALNICO_SUCCESS);
    sim_destroy(sim);
}

static void test_latency_and_bandwidth_of_each_link(void **state)
{
    (void)state;
    expect_times(4, 7, 40000, 1, 1.5);
    expect_times(0, 4, 40000, 4, 5);
    expect_times(7, 8, 40000, 5, 7);
    expect_times(7, 8, 0, 0, 2);
}

/* All ranks of host 0 send as much to the host that begins at rank `first`. */
static double last_arrival(const struct sim_machine *machine, int first, size_t bytes)
{
    struct sim *sim;
    struct post p[4];
    double last = 0;
    assert_int_equal(sim_create(machine, 64, false, &sim), ALNICO_SUCCESS);
    for (int r = 0; r < 4; r++)
        exchange(sim, r, first + r, bytes, &p[r]);
    drain(sim);
    for (int r = 0; r < 4; r++)
        last = fmax(last, sim_clock_us(sim, first + r));
    sim_destroy(sim);
    return last;
}

static void test_shared_parts_limit_what_passes(void **state)
{
    (void)state;
    struct sim_machine machine = crowded();
    /* 160 KB at the host's 16 GB/s. */
    assert_true(fabs(last_arrival(&machine, 4, 40000) - (160 / 16. + 1)) < 1e-3);
    /* At the uplink's 16 * 2 / 4 = 8 GB/s. */
    assert_true(fabs(last_arrival(&machine, 8, 40000) - (160 / 8. + 2)) < 1e-3);
    machine.taper = 1;
    assert_true(fabs(last_arrival(&machine, 8, 40000) - (160 / 16. + 2)) < 1e-3);
    machine.injection_gbps = 400; /* more than four links need */
    assert_true(fabs(last_arrival(&machine, 8, 40000) - (40 / 8. + 2)) < 1e-3);
    machine.injection_gbps = 0;
    assert_true(fabs(last_arrival(&machine, 4, 40000) - (40 / 10. + 1)) < 1e-3);
    assert_true(fabs(last_arrival(&machine, 0, 40000) - (40 / 40. + 0.5)) < 1e-3);
}

/* Many hosts send to one: its end of the network is the limit. */
static void test_one_host_receives_at_its_limit(void **state)
{
    (void)state;
    struct sim_machine machine = crowded();
    machine.hosts_per_leaf = 0;
    struct sim *sim;
    struct post p[10];
    assert_int_equal(sim_create(&machine, 64, false, &sim), ALNICO_SUCCESS);
    for (int h = 0; h < 10; h++)
        exchange(sim, 4 * (h + 1), 0, 16000, &p[h]);
    drain(sim);
    assert_true(fabs(sim_clock_us(sim, 0) - (160 / 16. + 1)) < 1e-3);
    sim_destroy(sim);
}

static void test_both_directions_at_once(void **state)
{
    (void)state;
    struct sim_machine machine = crowded();
    struct sim *sim;
    struct post there[4], back[4];
    for (int other = 4; other <= 8; other += 4) {
        assert_int_equal(sim_create(&machine, 64, false, &sim), ALNICO_SUCCESS);
        for (int r = 0; r < 4; r++) {
            exchange(sim, r, other + r, 40000, &there[r]);
            exchange(sim, other + r, r, 40000, &back[r]);
        }
        drain(sim);
        double last = fmax(sim_clock_us(sim, 3), sim_clock_us(sim, other + 3));
        assert_true(fabs(last - (other == 4 ? 160 / 16. + 1 : 160 / 8. + 2)) < 1e-3);
        sim_destroy(sim);
    }
}

static void test_a_rank_sends_one_after_another_and_reduces(void **state)
{
    (void)state;
    struct sim_machine machine = flat(1, 10, 20);
    struct sim *sim;
    struct post a, b;
    assert_int_equal(sim_create(&machine, 3, false, &sim), ALNICO_SUCCESS);
    assert_int_equal(sim_device(sim)->reduce(a.in, a.in, a.out, 5000, ALNICO_FLOAT32, ALNICO_SUM,
                                             sim_stream(sim, 0)),
                     ALNICO_SUCCESS);
    assert_true(fabs(sim_clock_us(sim, 0) - 1) < 1e-6);
    assert_true(fabs(sim_transport(sim, 0)->ops->now(sim_transport(sim, 0)) - 1e-6) < 1e-12);
    exchange(sim, 0, 1, 10000, &a);
    exchange(sim, 0, 2, 10000, &b);
    drain(sim);
    assert_true(fabs(sim_clock_us(sim, 1) - 3) < 1e-6);
    assert_true(fabs(sim_clock_us(sim, 2) - 4) < 1e-6);
    sim_destroy(sim);
}

/* The sender has his buffer back before anybody asks for the bytes. */
static void test_bytes_outlive_the_senders_buffer(void **state)
{
    (void)state;
    struct sim_machine machine = crowded();
    struct sim *sim;
    assert_int_equal(sim_create(&machine, 64, true, &sim), ALNICO_SUCCESS);
    struct transport *a = sim_transport(sim, 0), *b = sim_transport(sim, 60);
    struct transfer send[2], receive[2];
    char out[2][6] = {"first", "secnd"}, in[2][6] = {"", ""};
    for (int i = 0; i < 2; i++)
        assert_int_equal(a->ops->isend(a, 60, 5, out[i], 6, &send[i]), ALNICO_SUCCESS);
    assert_int_equal(test(sim, 0, &send[0]), ALNICO_PENDING);
    drain(sim);
    assert_int_equal(test(sim, 0, &send[0]), ALNICO_SUCCESS);
    memset(out[0], 0, 6);
    for (int i = 0; i < 2; i++)
        assert_int_equal(b->ops->irecv(b, i ? TRANSPORT_ANY : 0, 5, in[i], 6, &receive[i]),
                         ALNICO_SUCCESS);
    drain(sim);
    for (int i = 0; i < 2; i++)
        assert_int_equal(test(sim, 60, &receive[i]), ALNICO_SUCCESS);
    assert_string_equal(in[0], "first");
    assert_string_equal(in[1], "secnd");
    a->ops->isend(a, 60, 5, out[1], 6, &send[0]); /* nobody takes it: freed in the end */
    drain(sim);
    assert_int_equal(test(sim, 0, &send[0]), ALNICO_SUCCESS);
    sim_destroy(sim);
}

static void test_sizes_and_tags_must_agree(void **state)
{
    (void)state;
    struct sim_machine machine = flat(1, 1, 0);
    struct sim *sim;
    struct transfer send, receive, other;
    char out[8] = "", in[8] = "";
    assert_int_equal(sim_create(&machine, 2, true, &sim), ALNICO_SUCCESS);
    struct transport *a = sim_transport(sim, 0), *b = sim_transport(sim, 1);
    assert_int_equal(b->ops->irecv(b, 0, 4, in, 8, &other), ALNICO_SUCCESS);
    assert_int_equal(b->ops->irecv(b, 0, 3, in, 8, &receive), ALNICO_SUCCESS);
    assert_int_equal(a->ops->isend(a, 1, 3, out, 7, &send), ALNICO_SUCCESS);
    drain(sim);
    assert_int_equal(test(sim, 0, &send), ALNICO_ERROR_MISMATCH);
    assert_int_equal(test(sim, 1, &receive), ALNICO_ERROR_MISMATCH);
    assert_int_equal(test(sim, 1, &other), ALNICO_PENDING);
    assert_true(b->ops->cancel(b, &other));
    struct transport *part;
    assert_int_equal(a->ops->subset(a, NULL, &part), ALNICO_ERROR_UNSUPPORTED);
    sim_destroy(sim);
}

/* Cancelled before and after their events and their other sides. */
static void test_cancelled_sides_do_not_match(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct sim_machine machine = crowded();
        struct sim *sim;
        struct transfer send, receive;
        char out[8] = "gone", in[8] = "";
        if (!shared)
            machine.injection_gbps = 0;
        assert_int_equal(sim_create(&machine, 64, true, &sim), ALNICO_SUCCESS);
        struct transport *a = sim_transport(sim, 0), *b = sim_transport(sim, 63);
        assert_int_equal(a->ops->isend(a, 63, 3, out, 8, &send), ALNICO_SUCCESS);
        assert_true(a->ops->cancel(a, &send));
        assert_int_equal(b->ops->irecv(b, 0, 3, in, 8, &receive), ALNICO_SUCCESS);
        drain(sim);
        assert_int_equal(test(sim, 63, &receive), ALNICO_PENDING);
        strcpy(out, "here");
        assert_int_equal(a->ops->isend(a, 63, 3, out, 8, &send), ALNICO_SUCCESS);
        assert_true(a->ops->cancel(a, &send)); /* both sides are there: it goes on */
        drain(sim);
        assert_int_equal(test(sim, 63, &receive), ALNICO_SUCCESS);
        assert_string_equal(in, "here");
        assert_int_equal(b->ops->irecv(b, 0, 3, in, 8, &receive), ALNICO_SUCCESS);
        assert_true(b->ops->cancel(b, &receive));
        assert_int_equal(a->ops->isend(a, 63, 3, "late", 5, &send), ALNICO_SUCCESS);
        drain(sim);
        assert_string_equal(in, "here");
        sim_destroy(sim);
    }
}

/* ---- Algorithms ---- */

/* The cost formulas for a power of two p that divides n: microseconds, nanoseconds per byte. */
static double formula(const char *name, int p, double n, double alpha, double beta, double gamma)
{
    double lg = log2(p), part = (p - 1.) / p * n * 1e-3;
    n *= 1e-3;
    if (strcmp(name, "recursive_doubling") == 0)
        return lg * (alpha + n * beta + n * gamma);
    if (strcmp(name, "rabenseifner") == 0)
        return 2 * lg * alpha + 2 * part * beta + part * gamma;
    if (strcmp(name, "ring") == 0)
        return 2 * (p - 1) * alpha + 2 * part * beta + part * gamma;
    if (strcmp(name, "binomial") == 0)
        return 2 * lg * (alpha + n * beta) + lg * n * gamma;
    return -1;
}

static double run(const struct simulate_case *what)
{
    struct simulate_result result;
    alnico_status_t status = simulate_run(what, &result);
    if (status != ALNICO_SUCCESS)
        fail_msg("%s: %s", what->algorithm->name, alnico_error_detail());
    if (result.wrong)
        fail_msg("%s, %d ranks, %zu elements: %zu wrong", what->algorithm->name, what->ranks,
                 what->count, result.wrong);
    return result.time_us;
}

static void test_time_equals_the_cost_formula(void **state)
{
    (void)state;
    int compared = 0;
    for (uint64_t i = 0; algorithms_allreduce[i]; i++)
        for (int p = 4; p <= 256; p *= 2)
            for (uint64_t k = 0; k < 3; k++) {
                uint64_t id = 64 * i + 4 * (uint64_t)p + k;
                double alpha = uniform(id, 1, 0.1, 5), gbps = uniform(id, 2, 0.5, 400),
                       reduce = uniform(id, 3, 0.5, 1000);
                struct sim_machine machine = flat(alpha, gbps, reduce);
                size_t count = (size_t)p * (k ? 64 * k : 1);
                struct simulate_case what = {
                    &machine, algorithms_allreduce[i], p, count, 0, true, NULL, NULL, NULL};
                double expected = formula(what.algorithm->name, p, 4. * (double)count, alpha,
                                          1 / gbps, 1 / reduce);
                double time_us = run(&what);
                if (expected < 0)
                    continue;
                compared++;
                if (fabs(time_us / expected - 1) > 1e-3)
                    fail_msg("%s, p = %d: %g us, formula %g us", what.algorithm->name, p, time_us,
                             expected);
            }
    assert_true(compared >= 4 * 7 * 3);
}

static void test_results_are_right_on_a_crowded_machine(void **state)
{
    (void)state;
    struct sim_machine machine = crowded();
    for (int i = 0; algorithms_allreduce[i]; i++)
        for (int p = 4; p < 80; p += p < 18 ? 1 : 13) {
            size_t counts[] = {0, 1, (size_t)p - 1, (size_t)p, (size_t)p + 1, 3000};
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (size_t chunk = 0; chunk <= 500; chunk += 500) {
                    struct simulate_case what = {
                        &machine, algorithms_allreduce[i], p, counts[c], chunk, true, NULL, NULL,
                        NULL};
                    run(&what);
                }
        }
}

/* All at the same instant: nobody is forgotten. */
static void test_a_machine_that_takes_no_time(void **state)
{
    (void)state;
    struct sim_machine machine = flat(0, 1e6, 0);
    for (int injection = 0; injection < 2; injection++)
        for (int i = 0; algorithms_allreduce[i]; i++)
            for (int p = 4; p < 40; p++) {
                struct simulate_case what = {
                    &machine, algorithms_allreduce[i], p, 50, 0, true, NULL, NULL, NULL};
                machine.injection_gbps = injection * 1e6;
                assert_true(run(&what) < 0.01);
            }
}

static void test_chunks_overlap(void **state)
{
    (void)state;
    struct sim_machine machine = flat(1, 10, 10);
    struct simulate_case what = {
        &machine, &algorithm_recursive_doubling, 16, 1 << 18, 0, false, NULL, NULL, NULL};
    double whole = run(&what);
    what.chunk_count = 1 << 13;
    double cut = run(&what);
    assert_true(cut < 0.8 * whole && cut > 0.49 * whole);
}

static void test_runs_repeat_and_data_changes_no_time(void **state)
{
    (void)state;
    struct sim_machine machine = crowded();
    for (int i = 0; algorithms_allreduce[i]; i++) {
        struct simulate_case what = {
            &machine, algorithms_allreduce[i], 100, 2000, 300, true, NULL, NULL, NULL};
        double first = run(&what), again = run(&what);
        what.data = false;
        double without = run(&what);
        assert_true(first == again && first == without && first > 0);
    }
}

/* Recursive doubling without its last round, and with a partner that does not come. */
static int fewer_rounds(const struct shape *shape)
{
    return algorithm_recursive_doubling.rounds(shape) - 1;
}

static bool lonely_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    return shape->rank != 1 && algorithm_recursive_doubling.round(shape, i, k, out);
}

static void test_what_is_wrong_is_seen(void **state)
{
    (void)state;
    struct algorithm faulty = algorithm_recursive_doubling;
    struct sim_machine machine = flat(1, 1, 1);
    struct simulate_case what = {&machine, &faulty, 8, 100, 0, true, NULL, NULL, NULL};
    struct simulate_result result;
    faulty.rounds = fewer_rounds;
    assert_int_equal(simulate_run(&what, &result), ALNICO_SUCCESS);
    assert_true(result.wrong > 700);
    faulty = algorithm_recursive_doubling;
    faulty.round = lonely_round;
    assert_int_equal(simulate_run(&what, &result), ALNICO_ERROR_SYSTEM);
    assert_non_null(strstr(alnico_error_detail(), "wait for ever"));
}

/* ---- Crossovers ---- */

static void test_the_crossover_is_where_the_formulas_cross(void **state)
{
    (void)state;
    enum { P = 64 };
    struct simulate_options options = {
        .sizes = {64, 1024, 16384, 262144},
        .sizes_count = 4,
        .algorithms = {&algorithm_recursive_doubling, &algorithm_rabenseifner},
        .algorithms_count = 2};
    struct sim_machine machine = flat(1, 10, 20);
    struct simulate_cell cells[4 * 2];
    struct crossover found[SIMULATE_LIST];
    for (int i = 0; i < 8; i++) {
        struct simulate_case what = {
            &machine, options.algorithms[i % 2], P, options.sizes[i / 2] / 4, 0, false, NULL, NULL,
            NULL};
        cells[i].result.time_us = run(&what);
    }
    /* n in KB: lg p (alpha + n (beta + gamma)) = 2 lg p alpha + (p-1)/p n (2 beta + gamma) */
    double kilobytes = 6 * 1 / (6 * 0.15 - 63. / 64 * 0.25);
    assert_int_equal(crossovers_find(&options, cells, found), 1);
    assert_ptr_equal(found[0].below, &algorithm_recursive_doubling);
    assert_ptr_equal(found[0].above, &algorithm_rabenseifner);
    assert_true(fabs(found[0].bytes / (kilobytes * 1e3) - 1) < 0.01);
    for (int i = 0; i < 8; i++)
        cells[i].result.time_us = i % 2 ? -1 : 5; /* left out */
    assert_int_equal(crossovers_find(&options, cells, found), 0);
}

/* ---- Machine files ---- */

static const char good[] =
    "{\"name\": \"x\", \"about\": \"y\", \"sources\": [\"z\"],\n \"ranks_per_host\": 4,\n"
    " \"hosts_per_leaf\": 2, \"same_host\": {\"latency_us\": 0.5, \"bandwidth_gbps\": 40},\n"
    " \"same_leaf\": {\"latency_us\": 1, \"bandwidth_gbps\": 10},\n"
    " \"other_leaf\": {\"latency_us\": 2, \"bandwidth_gbps\": 8},\n"
    " \"injection_gbps\": 16, \"taper\": 4, \"reduce_gbps\": 20}\n";

static void test_a_good_file_is_read(void **state)
{
    (void)state;
    struct simulate_machine machine;
    struct sim_machine expected = crowded(), *got = &machine.sim;
    if (machine_parse(good, strlen(good), "x.json", &machine) != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
    assert_string_equal(machine.name, "x");
    for (int c = 0; c < SIM_CLASSES; c++) {
        assert_true(got->link[c].latency_us == expected.link[c].latency_us);
        assert_true(got->link[c].bandwidth_gbps == expected.link[c].bandwidth_gbps);
    }
    assert_true(got->reduce_gbps == 20 && got->injection_gbps == 16 && got->taper == 4);
    assert_int_equal(got->ranks_per_host, 4);
    assert_int_equal(got->hosts_per_leaf, 2);
    assert_true(machine.staging.bandwidth_gbps == 0);
}

/* Replaces `from` in the good file by `to`, and expects the detail to say so. */
static void expect_refusal(const char *from, const char *to, const char *detail)
{
    char text[2 * sizeof good];
    struct simulate_machine machine;
    const char *at = strstr(good, from);
    assert_non_null(at);
    int bytes =
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    assert_int_equal(machine_parse(text, (size_t)bytes, "x.json", &machine), ALNICO_ERROR_ARGUMENT);
    if (!strstr(alnico_error_detail(), detail))
        fail_msg("'%s' does not say '%s'", alnico_error_detail(), detail);
}

static void test_every_damage_is_named(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"\"x\"", "7", "x.json: name is 7, expected a text"},
        {"\"x\"", "\"\"", "x.json: name is \"\", expected a text"},
        {"\"x\"", "\"0123456789012345678901234567890123456789012345678901234567890123\"",
         "expected at most 63 characters"},
        {"\"about\": \"y\", ", "", "x.json: about is missing, expected a text"},
        {"[\"z\"]", "[]", "x.json: sources is [], expected a list of texts"},
        {"[\"z\"]", "[\"z\", 1]", "x.json: sources is [\"z\",1]"},
        {"\"ranks_per_host\": 4", "\"ranks_per_host\": 0",
         "x.json: ranks_per_host is 0, expected a whole number from 1 to 1048576"},
        {"\"ranks_per_host\": 4", "\"ranks_per_host\": 1.5", "ranks_per_host is 1.5"},
        {"\"ranks_per_host\": 4", "\"ranks_per_host\": \"4\"", "ranks_per_host is \"4\""},
        {"\"ranks_per_host\": 4", "\"ranks_per_host\": 1e99", "ranks_per_host is 1e+99"},
        {"\"hosts_per_leaf\": 2", "\"hosts_per_leaf\": -1", "hosts_per_leaf is -1"},
        {"\"latency_us\": 0.5", "\"latency_us\": -0.5",
         "x.json: same_host.latency_us is -0.5, expected a number from 0 to 1000000"},
        {"\"latency_us\": 0.5, ", "", "x.json: same_host.latency_us is missing"},
        {"\"bandwidth_gbps\": 40", "\"bandwidth_gbps\": 0", "same_host.bandwidth_gbps is 0"},
        {"\"bandwidth_gbps\": 8", "\"bandwidth_gbps\": null", "other_leaf.bandwidth_gbps is null"},
        {"\"bandwidth_gbps\": 8", "\"bandwith\": 8",
         "x.json: other_leaf.bandwith is no key that a machine file has"},
        {"{\"latency_us\": 1, \"bandwidth_gbps\": 10}", "[1, 10]",
         "x.json: same_leaf is [1,10], expected an object"},
        {"\"taper\": 4", "\"taper\": 0.5", "taper is 0.5, expected a number from 1 to 1000"},
        {"\"taper\": 4", "\"taper\": 4, \"taper\": 4", "x.json: taper comes twice"},
        {"\"taper\": 4", "\"taper\": 4, \"colour\": 4", "x.json: colour is no key"},
        {"\"injection_gbps\": 16", "\"injection_gbps\": true", "injection_gbps is true"},
        {"\"injection_gbps\": 16", "\"injection_gbps\": 1e-300",
         "injection_gbps is 1e-300, expected 0 or a number from 1e-06 to 1000000"},
        {"\"reduce_gbps\": 20", "\"reduce_gbps\": 1e-7", "reduce_gbps is 1e-07, expected 0 or"},
        {"\"taper\": 4", "\"taper\": 4, \"staging\": 4",
         "x.json: staging is 4, expected an object"},
        {"\"taper\": 4", "\"taper\": 4, \"staging\": {\"latency_us\": 1, \"bandwidth_gbps\": 0}",
         "x.json: staging.bandwidth_gbps is 0, expected a number from"},
        {"\"taper\": 4", "\"taper\": 4, \"staging\": {\"latency_us\": 1, \"bandwidth_gbps\": 1}",
         "x.json: staging.reduce_gbps is missing"},
        {"\"taper\": 4", "\"taper\": 4;", "x.json, line 6: not JSON at ;"},
        {"20}\n", "20", "x.json, line 6: not JSON, it ends too early"},
        {"20}\n", "20} more", "x.json, line 6: not JSON at more"},
        {good, "", "x.json, line 1: the file is empty"},
        {good, "[1, 2]", "x.json: expected an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refusal(cases[i][0], cases[i][1], cases[i][2]);
}

/* Any byte changed, any end cut off: read or refused, never worse. */
static void test_random_damage(void **state)
{
    (void)state;
    struct simulate_machine machine;
    for (uint64_t i = 0; i < 3000; i++) {
        char text[sizeof good];
        uint64_t random = reference_random(seed, i, 7);
        size_t bytes = strlen(good);
        memcpy(text, good, sizeof good);
        text[random % bytes] = (char)(random >> 32);
        bytes = random >> 40 & 1 ? bytes : (random >> 16) % bytes;
        text[bytes] = '\0';
        alnico_status_t status = machine_parse(text, bytes, "x.json", &machine);
        assert_true(status == ALNICO_SUCCESS || status == ALNICO_ERROR_ARGUMENT);
        if (status == ALNICO_SUCCESS)
            assert_true(machine.sim.ranks_per_host >= 1 && machine.sim.taper >= 1);
    }
}

static void test_shipped_machines_are_good(void **state)
{
    (void)state;
    static const char *const names[] = {"flat", "sierra", "h200-ndr", "ethernet"};
    struct simulate_machine machine;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.json", ALNICO_MACHINES_SOURCE, names[i]);
        if (machine_read(path, &machine) != ALNICO_SUCCESS)
            fail_msg("%s", alnico_error_detail());
        assert_string_equal(machine.name, names[i]);
    }
    assert_int_equal(machine_read("/no/such.json", &machine), ALNICO_ERROR_SYSTEM);
    assert_non_null(strstr(alnico_error_detail(), "/no/such.json: No such file"));
}

int main(void)
{
    seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_come_by_time_then_in_order),
        cmocka_unit_test(test_latency_and_bandwidth_of_each_link),
        cmocka_unit_test(test_shared_parts_limit_what_passes),
        cmocka_unit_test(test_one_host_receives_at_its_limit),
        cmocka_unit_test(test_both_directions_at_once),
        cmocka_unit_test(test_a_rank_sends_one_after_another_and_reduces),
        cmocka_unit_test(test_bytes_outlive_the_senders_buffer),
        cmocka_unit_test(test_sizes_and_tags_must_agree),
        cmocka_unit_test(test_cancelled_sides_do_not_match),
        cmocka_unit_test(test_time_equals_the_cost_formula),
        cmocka_unit_test(test_results_are_right_on_a_crowded_machine),
        cmocka_unit_test(test_a_machine_that_takes_no_time),
        cmocka_unit_test(test_chunks_overlap),
        cmocka_unit_test(test_runs_repeat_and_data_changes_no_time),
        cmocka_unit_test(test_what_is_wrong_is_seen),
        cmocka_unit_test(test_the_crossover_is_where_the_formulas_cross),
        cmocka_unit_test(test_a_good_file_is_read),
        cmocka_unit_test(test_every_damage_is_named),
        cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_shipped_machines_are_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
