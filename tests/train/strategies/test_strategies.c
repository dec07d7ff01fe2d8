/*
 * Every strategy with every optimizer, on one to four ranks, which are threads here, on the inline
 * stream and on one of their own: all ranks end with the same bits, in every repetition, and where
 * a serial reference in float64 ends. Runs go on from a checkpoint to the bit, and a rank that is
 * lost is named. Gradients are made up, so that nothing but the strategy decides.
 */
#include "tests/support/ranks.h"
#include "tests/train/cases.h"

#include "train/kernels/elementwise.h"
#include "train/replica/replica.h"
#include "train/strategies/buckets.h"
#include "train/strategies/strategy.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 50, RANKS_MOST = 4, BUCKETS = 5 };

static uint64_t seed;
static struct network *network;

/* One way to train, and where each rank ends. */
struct setting {
    const struct strategy_ops *strategy;
    struct optimizer_options optimizer;
    int ranks;
    bool streamed, late, average_state, own_seeds;
    size_t every; /* steps between averages of parameters; 0: the gradients are averaged */
    size_t stops; /* steps after which the last rank is lost; 0: none is */
    float *values[RANKS_MOST]; /* parameters and, with averages of states, all that is averaged */
};

static const struct strategy_ops *const strategies[] = {&strategy_allreduce, &strategy_server,
                                                        &strategy_weights, NULL};

static bool takes(const struct strategy_ops *strategy, enum strategy_option option)
{
    return strategy->takes & option;
}

static struct optimizer_options optimizer_of(int kind)
{
    struct optimizer_options options = optimizer_defaults((enum optimizer_kind)kind, 16);
    options.decay = 1e-3;
    return options;
}

/* A rank's gradients in a step. */
static void gradients_make(int rank, size_t step, float *out)
{
    uint64_t state = seed + 1000003 * (uint64_t)rank + 7919 * step;
    random_fill(out, network->parameters, &state);
}

/* A rank's replica, with statistics that no other rank has. */
static struct replica *replica_make(const struct setting *setting, int rank, void *stream)
{
    struct replica *replica;
    const struct replica_setup setup = {.kernels = &kernels_naive,
                                        .batch = 1,
                                        .seed = seed + (setting->own_seeds ? (uint64_t)rank : 0),
                                        .gradient_type = ALNICO_FLOAT32,
                                        .optimizer = setting->optimizer.kind,
                                        .stream = stream};
    REQUIRE_STATUS(replica_create(network, &setup, &replica), ALNICO_SUCCESS);
    const float rate = (float)setting->optimizer.rate;
    REQUIRE_STATUS(
        replica_write(replica, &replica->arenas.control[CONTROL_RATE], &rate, sizeof rate),
        ALNICO_SUCCESS);
    uint64_t state = seed + 17 * (uint64_t)rank;
    random_fill(replica->arenas.statistics, network->statistics, &state);
    return replica;
}

/* How many numbers are compared, and those of a replica. */
static size_t values_count(const struct setting *setting)
{
    const size_t states = optimizers_all[setting->optimizer.kind]->states;
    return network->parameters +
           (setting->average_state ? states * network->parameters + network->statistics : 0);
}

/* The memory that number `at` of them begins, and how many follow each other there. */
static float *values_at(const struct setting *setting, const struct replica *replica, size_t at,
                        size_t *count)
{
    const size_t states = optimizers_all[setting->optimizer.kind]->states;
    const size_t arena = at / network->parameters;
    *count = arena <= states ? network->parameters : network->statistics;
    return arena == 0        ? replica->arenas.parameters
           : arena <= states ? replica->arenas.states[arena - 1]
                             : replica->arenas.statistics;
}

static void values_copy(const struct setting *setting, const struct replica *replica, float *out)
{
    for (size_t at = 0, count; at < values_count(setting); at += count) {
        const float *values = values_at(setting, replica, at, &count);
        memcpy(out + at, values, count * sizeof *out);
    }
}

/* ---- The reference: one rank with the mean gradients, or all ranks one after the other; means in
 * float64 ---- */

static void mean_gradients(const struct setting *setting, size_t step, float *out)
{
    const size_t count = network->parameters;
    float *own = malloc(count * sizeof *own);
    double *sums = calloc(count, sizeof *sums);
    for (int r = 0; r < setting->ranks; r++) {
        gradients_make(r, step, own);
        for (size_t i = 0; i < count; i++)
            sums[i] += own[i];
    }
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(sums[i] / setting->ranks);
    free(own);
    free(sums);
}

/* All that is averaged becomes the mean over the replicas. */
static void replicas_average(const struct setting *setting, struct replica *const *replicas)
{
    for (size_t at = 0, count; at < values_count(setting); at += count) {
        values_at(setting, replicas[0], at, &count);
        for (size_t i = 0; i < count; i++) {
            double sum = 0;
            for (int r = 0; r < setting->ranks; r++)
                sum += values_at(setting, replicas[r], at, &count)[i];
            for (int r = 0; r < setting->ranks; r++)
                values_at(setting, replicas[r], at, &count)[i] = (float)(sum / setting->ranks);
        }
    }
}

static void reference_step(const struct setting *setting, struct replica *replica, int rank,
                           size_t step)
{
    if (setting->every)
        gradients_make(rank, step, replica->arenas.gradients);
    else
        mean_gradients(setting, step, replica->arenas.gradients);
    REQUIRE_STATUS(replica_update(replica, &setting->optimizer), ALNICO_SUCCESS);
}

static void reference_run(const struct setting *setting, float *out)
{
    const int number = setting->every ? setting->ranks : 1;
    struct replica *replicas[RANKS_MOST];
    for (int r = 0; r < number; r++)
        replicas[r] = replica_make(setting, r, NULL);
    for (size_t step = 0; step < STEPS; step++) {
        for (int r = 0; r < number; r++)
            reference_step(setting, replicas[r], r, step);
        if (setting->every && ((step + 1) % setting->every == 0 || step + 1 == STEPS))
            replicas_average(setting, replicas);
    }
    values_copy(setting, replicas[0], out);
    for (int r = 0; r < number; r++)
        replica_destroy(replicas[r]);
}

/* ---- Ranks ---- */

struct calls_context {
    struct replica *replica;
    const struct optimizer_options *optimizer;
};

static alnico_status_t call_update(void *context)
{
    const struct calls_context *self = context;
    return replica_update(self->replica, self->optimizer);
}

static alnico_status_t call_average(void *context, const struct gradient_blocks *others)
{
    return replica_average(((const struct calls_context *)context)->replica, others);
}

static alnico_status_t call_divide(void *context, const struct division *division)
{
    return replica_divide(((const struct calls_context *)context)->replica, division);
}

static alnico_status_t call_loaded(void *context)
{
    (void)context;
    return ALNICO_SUCCESS;
}

static alnico_status_t call_mark(void *context, enum phase ended)
{
    (void)context;
    (void)ended;
    return ALNICO_SUCCESS;
}

/* One step: gradients come piece by piece, and are no numbers before. */
static alnico_status_t step_run(struct replica *replica, void *self, const struct rank *rank,
                                size_t step)
{
    const struct setting *setting = rank->argument;
    const size_t count = network->parameters;
    float *gradients = replica->arenas.gradients, *made = malloc(count * sizeof *made);
    alnico_status_t status = replica_synchronize(replica);
    memset(gradients, 0xff, count * sizeof *gradients);
    gradients_make(rank->rank, step, made);
    for (size_t filled = 0; status == ALNICO_SUCCESS && filled < count;) {
        const size_t rest = count - filled, piece = rest < 77 ? rest : 77;
        memcpy(gradients + filled, made + filled, piece * sizeof *made);
        filled += piece;
        status = setting->strategy->advance(self, filled);
    }
    if (status == ALNICO_SUCCESS)
        status = setting->strategy->finish(self);
    if (status == ALNICO_SUCCESS && setting->strategy->after)
        status = setting->strategy->after(self, step + 1);
    free(made);
    return status;
}

static void *strategy_make(struct calls_context *context, const struct rank *rank,
                           alnico_comm_t comm, const struct buckets *buckets)
{
    const struct setting *setting = rank->argument;
    const struct replica *replica = context->replica;
    void *self;
    const struct strategy_setup setup = {
        .comm = setting->ranks > 1 ? comm : NULL,
        .device = &device_cpu,
        .stream = replica->stream,
        .arenas = &replica->arenas,
        .count = network->parameters,
        .states = optimizers_all[setting->optimizer.kind]->states,
        .statistics = network->statistics,
        .type = ALNICO_FLOAT32,
        .wire = ALNICO_FLOAT32,
        .ends = buckets->ends,
        .buckets = buckets->count,
        .late = setting->late,
        .every = setting->every,
        .average_state = setting->average_state,
        .calls = {context, call_update, call_average, call_divide, call_loaded, call_mark}};
    REQUIRE_STATUS(setting->strategy->create(&setup, &self), ALNICO_SUCCESS);
    return self;
}

/* How the calls ended that a stream has made. */
static alnico_status_t stream_end(struct replica *replica, alnico_comm_t comm)
{
    REQUIRE_STATUS(replica_synchronize(replica), ALNICO_SUCCESS);
    return alnico_comm_status(comm);
}

/* All steps, and then what settles them; with a rank that is lost the others find out. */
static void steps_run(struct replica *replica, void *self, struct rank *rank, alnico_comm_t comm)
{
    const struct setting *setting = rank->argument;
    alnico_status_t status = ALNICO_SUCCESS;
    const bool lost = setting->stops && rank->rank == setting->ranks - 1;
    for (size_t step = 0; step < (lost ? setting->stops : STEPS) && !status; step++)
        status = step_run(replica, self, rank, step);
    if (status == ALNICO_SUCCESS && !lost && setting->strategy->settle)
        status = setting->strategy->settle(self);
    if (!setting->stops) {
        REQUIRE_STATUS(status, ALNICO_SUCCESS);
        REQUIRE_STATUS(replica_synchronize(replica), ALNICO_SUCCESS);
    } else if (!lost) {
        char name[32];
        if (status == ALNICO_SUCCESS && setting->streamed)
            status = stream_end(replica, comm);
        snprintf(name, sizeof name, "rank %d", setting->ranks - 1);
        REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
        ranks_require_detail(name);
    }
    ranks_barrier(rank); /* who is lost is there until the others have found out */
}

static void rank_train(struct rank *rank)
{
    struct setting *setting = rank->argument;
    alnico_stream_t stream = NULL;
    struct buckets buckets;
    if (setting->streamed)
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, stream);
    struct calls_context context = {replica_make(setting, rank->rank, stream), &setting->optimizer};
    REQUIRE_STATUS(buckets_of_count(network->parameters, BUCKETS, &buckets), ALNICO_SUCCESS);
    void *self = strategy_make(&context, rank, comm, &buckets);
    steps_run(context.replica, self, rank, comm);
    values_copy(setting, context.replica, setting->values[rank->rank]);
    setting->strategy->destroy(self);
    replica_destroy(context.replica);
    buckets_free(&buckets);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void setting_run(struct setting *setting)
{
    const size_t bytes = values_count(setting) * sizeof(float);
    for (int r = 0; r < setting->ranks; r++) {
        setting->values[r] = malloc(bytes);
        memset(setting->values[r], 0xff, bytes);
    }
    ranks_run(setting->ranks, rank_train, setting);
}

static void setting_free(struct setting *setting)
{
    for (int r = 0; r < setting->ranks; r++)
        free(setting->values[r]);
}

static void text_of(const struct setting *setting, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s with %s on %d ranks, every %zu%s%s%s%s", setting->strategy->name,
             optimizers_all[setting->optimizer.kind]->name, setting->ranks, setting->every,
             setting->average_state ? ", states" : "", setting->own_seeds ? ", own seeds" : "",
             setting->streamed ? ", on a stream" : "", setting->late ? ", late" : "");
}

/* The distance from `expected` as a share of its length. */
static double apart(const float *values, const float *expected, size_t count)
{
    double distance = 0, length = 0;
    for (size_t i = 0; i < count; i++) {
        distance += pow((double)values[i] - (double)expected[i], 2);
        length += pow(expected[i], 2);
    }
    return sqrt(distance / length);
}

/* Runs it; all ranks have the same bits, as `same` if that is not NULL, and are where the reference
 * is. */
static void setting_check(struct setting *setting, const float *expected, const float *same)
{
    const size_t count = values_count(setting), bytes = count * sizeof(float);
    char text[128];
    text_of(setting, text, sizeof text);
    setting_run(setting);
    for (int r = 0; r < setting->ranks; r++) {
        if (memcmp(setting->values[r], same ? same : setting->values[0], bytes) != 0)
            fail_msg("%s: rank %d has other numbers", text, r);
        const double share = apart(setting->values[r], expected, count);
        if (!(share <= 1e-6))
            fail_msg("%s: rank %d is apart from the reference by %g", text, r, share);
    }
}

/* In one run on each kind of stream, late and not: each is a repetition as well. */
static void setting_check_all(struct setting setting, const float *expected)
{
    struct setting first = setting;
    setting_check(&first, expected, NULL);
    for (int i = 1; i < 4; i++) {
        setting.streamed = i & 1;
        setting.late = (i & 2) && takes(setting.strategy, STRATEGY_TAKES_OVERLAP);
        setting_check(&setting, expected, first.values[0]);
        setting_free(&setting);
    }
    setting_free(&first);
}

static void check_with_reference(const struct setting *setting)
{
    float *expected = malloc(values_count(setting) * sizeof *expected);
    reference_run(setting, expected);
    setting_check_all(*setting, expected);
    free(expected);
}

static void check_averages_of_parameters(struct setting setting)
{
    const size_t each[] = {1, 4, 7, STEPS + 1};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        setting.every = each[i];
        setting.average_state = i & 1;
        setting.own_seeds = i > 1;
        check_with_reference(&setting);
    }
}

static void strategies_are_where_the_reference_is(void **unused)
{
    (void)unused;
    for (size_t s = 0; strategies[s]; s++)
        for (int o = 0; o < OPTIMIZERS; o++)
            for (int ranks = 1; ranks <= RANKS_MOST; ranks++) {
                const struct setting setting = {
                    .strategy = strategies[s], .optimizer = optimizer_of(o), .ranks = ranks};
                if (takes(strategies[s], STRATEGY_TAKES_EVERY))
                    check_averages_of_parameters(setting);
                else
                    check_with_reference(&setting);
            }
}

/* From equal parameters SGD is linear: the mean of the ranks' updates is the update by the mean of
 * their gradients. */
static void averaging_weights_in_each_step_is_averaging_gradients(void **unused)
{
    (void)unused;
    float *expected = malloc(network->parameters * sizeof *expected);
    for (int i = 0; i < 2; i++) {
        struct setting setting = {
            .strategy = &strategy_allreduce, .optimizer = optimizer_of(OPTIMIZER_SGD), .ranks = 3};
        setting.optimizer.momentum = i ? 0.9 : 0;
        reference_run(&setting, expected);
        setting.strategy = &strategy_weights;
        setting.every = 1;
        setting_check_all(setting, expected);
    }
    free(expected);
}

/* ---- The server's average ---- */

static void average_of_blocks_is_exact(void **unused)
{
    (void)unused;
    enum { BLOCKS = 7, STRIDE = 100 << 10 };
    const size_t counts[] = {1, 15, 8191, 8193, STRIDE};
    float *blocks = malloc(BLOCKS * STRIDE * sizeof *blocks), *y = malloc(STRIDE * sizeof *y);
    uint64_t state = seed;
    for (size_t i = 0; i < (size_t)BLOCKS * STRIDE; i++)
        blocks[i] = (float)(random_next(&state) % 1000); /* sums of integers are exact */
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int number = 1; number <= BLOCKS; number += 2) { /* a power of 2 with the own */
            for (size_t i = 0; i < STRIDE; i++)
                y[i] = (float)i;
            elementwise_average(y, blocks, STRIDE, number, counts[c]);
            for (size_t i = 0; i < STRIDE; i++) {
                double sum = (double)i;
                for (int k = 0; k < number && i < counts[c]; k++)
                    sum += blocks[(size_t)k * STRIDE + i];
                if (i < counts[c])
                    sum *= (double)(1 / (float)(number + 1));
                if (y[i] != (float)sum)
                    fail_msg("%d blocks of %zu: number %zu is %.9g, expected %.9g", number,
                             counts[c], i, y[i], sum);
            }
        }
    free(blocks);
    free(y);
}

/* ---- Whole runs ---- */

enum { RUN_STEPS = 11, RUN_EVERY = 5 };

static char saved[96], kept[96];

struct together {
    struct trainer_options options;
    uint64_t hash;
    bool streamed;
};

static void rank_run(struct rank *rank)
{
    struct together *together = rank->argument;
    alnico_stream_t stream = NULL;
    struct trainer_report report;
    struct trainer_place place = {.host = ranks_comm(rank, NULL)};
    if (together->streamed) {
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
        place.stream = stream;
        place.device = ranks_comm(rank, stream);
    }
    REQUIRE_STATUS(trainer_run(&together->options, &place, &report), ALNICO_SUCCESS);
    REQUIRE(report.steps == RUN_STEPS);
    if (rank->rank == 0)
        together->hash = report.hash;
    alnico_comm_destroy(place.device);
    alnico_comm_destroy(place.host);
    alnico_stream_destroy(stream);
}

/* Keeps the first checkpoint before the second takes its place. */
static void keep_first(void *context, const struct trainer_progress *progress)
{
    (void)context;
    if (progress->step > RUN_EVERY && progress->step <= (size_t)2 * RUN_EVERY &&
        access(kept, R_OK) != 0 && access(saved, R_OK) == 0)
        REQUIRE(link(saved, kept) == 0);
}

static struct trainer_options run_options(const struct strategy_ops *strategy)
{
    return (struct trainer_options){.model = "resnet20",
                                    .data = "synthetic:4x4x1",
                                    .kernels = "naive",
                                    .strategy = strategy->name,
                                    .batch = 4,
                                    .steps = RUN_STEPS,
                                    .tests = 1,
                                    .seed = seed,
                                    .every = takes(strategy, STRATEGY_TAKES_EVERY) ? 2 : 0,
                                    .buckets =
                                        takes(strategy, STRATEGY_TAKES_BUCKETS) ? 1 << 14 : 0,
                                    .compute = {.threads = 1, .deterministic = true},
                                    .wire = ALNICO_FLOAT32,
                                    .optimizer = optimizer_of(OPTIMIZER_SGD)};
}

/* A run that stops for checkpoints ends where one that goes on from the first of them ends. */
static void check_resume(struct together together, int ranks)
{
    together.options.save = saved;
    together.options.save_every = RUN_EVERY;
    together.options.progress = keep_first;
    ranks_run(ranks, rank_run, &together);
    const uint64_t expected = together.hash;
    assert_int_equal(access(kept, R_OK), 0);
    together.options.progress = NULL;
    together.options.load = kept;
    together.streamed = !together.streamed;
    ranks_run(ranks, rank_run, &together);
    if (together.hash != expected)
        fail_msg("%s on %d ranks: a run that goes on ends with hash %016llx, expected %016llx",
                 together.options.strategy, ranks, (unsigned long long)together.hash,
                 (unsigned long long)expected);
    remove(saved);
    remove(kept);
}

static void runs_resume_to_the_bit(void **unused)
{
    (void)unused;
    for (size_t s = 0; strategies[s]; s++)
        for (int ranks = 1; ranks <= 3; ranks++)
            check_resume(
                (struct together){.options = run_options(strategies[s]), .streamed = ranks == 2},
                ranks);
}

/* With averages of states or not, a checkpoint in the middle of a period, and parameters that began
 * apart. */
static void averages_resume_to_the_bit(void **unused)
{
    (void)unused;
    for (int i = 0; i < 8; i++) {
        struct together together = {.options = run_options(&strategy_weights)};
        together.options.every = i & 1 ? 3 : 20;
        together.options.average_state = i & 2;
        together.options.own_seeds = i & 4;
        together.options.optimizer = optimizer_of(i & 4 ? OPTIMIZER_ADAM : OPTIMIZER_SGD);
        check_resume(together, 2);
    }
}

/* Rank 0 of a server has room for the other ranks' gradients. */
static void memory_of_the_server_counts(void **unused)
{
    (void)unused;
    struct trainer_needs alone, four, other;
    struct trainer_options options = run_options(&strategy_server);
    assert_int_equal(trainer_measure(&options, 1, &alone), ALNICO_SUCCESS);
    assert_int_equal(trainer_measure(&options, 4, &four), ALNICO_SUCCESS);
    assert_int_equal(four.memory.gradients, 4 * alone.memory.gradients);
    assert_int_equal(four.memory.total - alone.memory.total, 3 * alone.memory.gradients);
    options.strategy = "allreduce";
    assert_int_equal(trainer_measure(&options, 4, &other), ALNICO_SUCCESS);
    assert_int_equal(other.memory.total, alone.memory.total);
    trainer_needs_free(&alone);
    trainer_needs_free(&four);
    trainer_needs_free(&other);
}

static void refused(const struct trainer_options *options, const char *detail)
{
    const struct trainer_place place = {0};
    struct trainer_report report;
    assert_int_equal(trainer_run(options, &place, &report), ALNICO_ERROR_ARGUMENT);
    if (!strstr(alnico_error_detail(), detail))
        fail_msg("'%s' does not say '%s'", alnico_error_detail(), detail);
}

/* What does not go together is refused before anything is made. */
static void options_of_other_strategies_are_refused(void **unused)
{
    (void)unused;
    struct trainer_options options = run_options(&strategy_server);
    options.wire = ALNICO_BFLOAT16;
    options.codec = (struct codec){&codec_int8, 1};
    refused(&options, "codec int8 with a wire type of 16 bits");
    options = run_options(&strategy_allreduce);
    options.every = 2;
    refused(&options, "steps between averages, which strategy allreduce");
    options.every = 0;
    options.own_seeds = true;
    refused(&options, "own seeds, which strategy allreduce");
    options = run_options(&strategy_weights);
    options.every = 0;
    refused(&options, "averages every 0 steps");
    options = run_options(&strategy_weights);
    options.late = true;
    refused(&options, "gradients sent late, which strategy weights");
    options = run_options(&strategy_weights);
    options.buckets = 4096;
    refused(&options, "buckets, which strategy weights");
}

/* ---- A rank that is lost ---- */

static void lost_ranks_are_named(void **unused)
{
    (void)unused;
    for (size_t s = 0; strategies[s]; s++)
        for (int ranks = 2; ranks <= 3; ranks++) {
            struct setting setting = {.strategy = strategies[s],
                                      .optimizer = optimizer_of(OPTIMIZER_SGD),
                                      .ranks = ranks,
                                      .streamed = ranks == 3,
                                      .every = takes(strategies[s], STRATEGY_TAKES_EVERY) ? 2 : 0,
                                      .stops = 3};
            setting_run(&setting);
            setting_free(&setting);
        }
}

/* "lost": with a short deadline. */
int main(int argc, char **argv)
{
    seed = test_seed();
    snprintf(saved, sizeof saved, "/tmp/alnico-strategies-%d-saved", (int)getpid());
    snprintf(kept, sizeof kept, "/tmp/alnico-strategies-%d-kept", (int)getpid());
    network = case_network(&network_cases[11]); /* batch norm, relu in blocks */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies_are_where_the_reference_is),
        cmocka_unit_test(averaging_weights_in_each_step_is_averaging_gradients),
        cmocka_unit_test(average_of_blocks_is_exact),
        cmocka_unit_test(runs_resume_to_the_bit),
        cmocka_unit_test(averages_resume_to_the_bit),
        cmocka_unit_test(memory_of_the_server_counts),
        cmocka_unit_test(options_of_other_strategies_are_refused),
    };
    const struct CMUnitTest lost[] = {cmocka_unit_test(lost_ranks_are_named)};
    const int failed = argc > 1 && strcmp(argv[1], "lost") == 0
                           ? cmocka_run_group_tests(lost, NULL, NULL)
                           : cmocka_run_group_tests(tests, NULL, NULL);
    network_destroy(network);
    return failed;
}
