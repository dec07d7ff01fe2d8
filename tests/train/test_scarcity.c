/* Memory that runs out while a run is started, makes a step, tests and writes a checkpoint: on one
 * of two ranks, and on a rank that trains alone. */
#include "comm/communicator/comm.h"
#include "tests/support/scarcity.h"
#include "tests/train/cases.h"

#include "train/trainer/trainer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char checkpoint[64];

static alnico_status_t train(struct rank *rank, alnico_comm_t base, void **out)
{
    const struct trainer_options options = {.model = "cnn",
                                            .data = "synthetic:8x8x1",
                                            .kernels = "naive",
                                            .strategy = "allreduce",
                                            .batch = 1,
                                            .steps = 1,
                                            .tests = 1,
                                            .compute = {.threads = 1},
                                            .optimizer = {.rate = 0.01, .drops = {1, 1, 1}},
                                            .wire = ALNICO_FLOAT32,
                                            .rule = BUCKETS_OF_COUNT,
                                            .buckets = 2,
                                            .save = checkpoint};
    const struct trainer_place place = {.host = base};
    struct trainer_report report;
    (void)rank, (void)out;
    return trainer_run(&options, &place, &report);
}

/* A rank that waits looks for an abort after an eighth of the deadline. */
static alnico_comm_t base_comm(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    comm->family->settings.timeout = 1;
    return comm;
}

static void try_run(struct rank *rank)
{
    const struct scarce_call run = {.name = "a run",
                                    .collective = true,
                                    .call = train,
                                    .base = rank->size > 1 ? base_comm : NULL};
    scarce_try(rank, &run, rank->size - 1);
}

static void memory_runs_out(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++)
        ranks_run(ranks, try_run, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_runs_out)};
    setenv("ALNICO_TIMEOUT", "20", 1);
    snprintf(checkpoint, sizeof checkpoint, "/tmp/alnico-scarcity-%d", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(checkpoint);
    return failed;
}
