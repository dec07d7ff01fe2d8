/* The time in which a rank's stream waits for the others is measured as exposed communication: rank
 * 0 naps after each step, and rank 1 waits for its gradients, on its thread or on a stream of its
 * own. */
#include "tests/support/ranks.h"

#include "train/trainer/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 64, NAP_US = 5000 };

struct together {
    struct trainer_options options;
    bool streamed, napping;
    struct trainer_report report;
};

/* Called on rank 0, for each step; or, on a stream, for several of them. */
static void nap(void *context, const struct trainer_progress *progress)
{
    size_t *told = context;
    if (progress->tested)
        return;
    usleep((useconds_t)(NAP_US * (progress->step - *told)));
    *told = progress->step;
}

static void rank_run(struct rank *rank)
{
    struct together *together = rank->argument;
    struct trainer_options options = together->options;
    size_t told = 0;
    alnico_stream_t stream = NULL;
    alnico_comm_t device = NULL, host = ranks_comm(rank, NULL);
    if (together->streamed) {
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_comm_duplicate(host, stream, &device), ALNICO_SUCCESS);
    }
    options.progress = together->napping ? nap : NULL;
    options.context = &told;
    const struct trainer_place place = {.host = host, .device = device, .stream = stream};
    struct trainer_report report;
    REQUIRE_STATUS(trainer_run(&options, &place, &report), ALNICO_SUCCESS);
    if (rank->rank == 0)
        together->report = report;
    alnico_comm_destroy(device);
    alnico_comm_destroy(host);
    alnico_stream_destroy(stream);
}

static void waiting_is_exposed(void **unused)
{
    (void)unused;
    struct together together = {.options = {.model = "cnn",
                                            .data = "synthetic:8x8x1",
                                            .kernels = "naive",
                                            .strategy = "allreduce",
                                            .batch = 2,
                                            .steps = STEPS,
                                            .seed = 1,
                                            .rule = BUCKETS_OF_COUNT,
                                            .buckets = 3,
                                            .compute = {.threads = 1},
                                            .wire = ALNICO_FLOAT32,
                                            .optimizer = optimizer_defaults(OPTIMIZER_SGD, 4)}};
    uint64_t hash = 0;
    for (int i = 0; i < 4; i++) {
        together.streamed = i / 2;
        together.napping = i % 2;
        ranks_run(2, rank_run, &together);
        const double exposed = together.report.phases[PHASE_COMMUNICATION];
        const double naps = 1e-6 * NAP_US * STEPS;
        printf("%s, %s: %.1f ms exposed of %.1f\n", together.streamed ? "stream" : "thread",
               together.napping ? "napping" : "awake", 1e3 * exposed,
               1e3 * together.report.seconds);
        assert_true(together.report.communication > 0);
        assert_true(together.report.communication < together.report.seconds);
        /* Rank 1 waits for most of the naps, and the report is the mean of both ranks. On a stream
         * the last steps are enqueued before rank 0 naps. */
        if (together.napping)
            assert_true(exposed > naps * (together.streamed ? 0.2 : 0.4));
        if (i)
            assert_true(together.report.hash == hash);
        hash = together.report.hash;
    }
}

/* Every batch norm's statistics are means of 0 and variances of 1. */
static void require_untouched(const struct network *network, const float *statistics)
{
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        for (size_t k = 0; k < node->statistics.count; k++)
            REQUIRE(statistics[node->statistics.offset + k] ==
                    (k < node->statistics.count / 2 ? 0 : 1));
    }
}

/* Parameters are those that follow from the seed, and the optimizer's states are zero. */
static void require_initial(const struct trainer *trainer)
{
    const struct replica_setup setup = trainer_setup(trainer->options, trainer->train, 0, 1);
    const size_t count = trainer->network->parameters;
    struct replica *fresh;
    REQUIRE_STATUS(replica_create(trainer->network, &setup, &fresh), ALNICO_SUCCESS);
    REQUIRE(memcmp(trainer->replica->arenas.parameters, fresh->arenas.parameters,
                   count * sizeof(float)) == 0);
    REQUIRE(memcmp(trainer->replica->arenas.states[0], fresh->arenas.states[0],
                   count * sizeof(float)) == 0);
    replica_destroy(fresh);
}

static void rank_plan(struct rank *rank)
{
    const struct trainer_options *options = rank->argument;
    alnico_stream_t stream;
    alnico_comm_t device, host = ranks_comm(rank, NULL);
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_duplicate(host, stream, &device), ALNICO_SUCCESS);
    const struct trainer_place place = {.host = host, .device = device, .stream = stream};
    struct trainer trainer = trainer_make(options, &place);
    REQUIRE_STATUS(trainer_open(&trainer), ALNICO_SUCCESS);
    REQUIRE(trainer.buckets.count > 0 && trainer.network->statistics > 0);
    REQUIRE(trainer.rehearsal_seconds > 0);
    require_untouched(trainer.network, trainer.replica->arenas.statistics);
    require_initial(&trainer);
    for (int i = 0; i < SCORES; i++)
        REQUIRE(trainer.replica->arenas.score[i] == 0);
    trainer_close(&trainer);
    alnico_comm_destroy(device);
    alnico_comm_destroy(host);
    alnico_stream_destroy(stream);
}

/* The batch by which buckets are planned is none that is trained with, and timing the exchange
 * changes nothing. */
static void planning_leaves_no_trace(void **unused)
{
    (void)unused;
    struct trainer_options options = {.model = "resnet20",
                                      .data = "synthetic:8x8x1",
                                      .kernels = "naive",
                                      .strategy = "allreduce",
                                      .batch = 2,
                                      .steps = STEPS,
                                      .seed = 1,
                                      .rule = BUCKETS_PLANNED,
                                      .compute = {.threads = 1},
                                      .wire = ALNICO_FLOAT32,
                                      .optimizer = optimizer_defaults(OPTIMIZER_SGD, 4)};
    ranks_run(2, rank_plan, &options);
    options.rule = BUCKETS_OF_SIZE;
    options.strategy = "async";
    ranks_run(3, rank_plan, &options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(waiting_is_exposed),
                                       cmocka_unit_test(planning_leaves_no_trace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
