/* Training on several ranks, which are threads here: the CNN without batch norm ends where one rank
 * with the joined batch ends, for any bucket size; and ranks whose parameters differ are
 * noticed. */
#include "tests/support/ranks.h"
#include "tests/train/cases.h"

#include "train/models/models.h"
#include "train/replica/replica.h"
#include "train/strategies/buckets.h"
#include "train/strategies/strategy.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/patience.h"

enum { STEPS = 20, JOINED = 12, SIDE = 10, CLASSES = 10 };

static uint64_t seed;

/* One way to train, and what came of it. */
struct training {
    struct network *network;
    size_t bucket, steps;
    bool frozen, late, streamed;
    alnico_datatype_t wire;
    float rate;
    float *images; /* STEPS x JOINED x SIDE x SIDE */
    int32_t *labels;
    float *parameters; /* rank 0's, at the end */
    int differ;        /* rank whose parameters are moved before they are compared; -1: none */
};

static const struct optimizer_options optimizer = {.momentum = 0.9, .decay = 1e-3};

static void one_step(struct replica *replica, void *strategy, size_t step, struct rank *rank)
{
    const struct training *training = rank->argument;
    const size_t batch = JOINED / (size_t)rank->size;
    const size_t at = step % STEPS * JOINED + (size_t)rank->rank * batch;
    REQUIRE_STATUS(replica_write(replica, &replica->arenas.control[CONTROL_RATE], &training->rate,
                                 sizeof training->rate),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(
        replica_load(replica, training->images + at * SIDE * SIDE, training->labels + at, batch),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(replica_forward(replica, true), ALNICO_SUCCESS);
    REQUIRE_STATUS(replica_backward(replica, strategy_allreduce.advance, strategy), ALNICO_SUCCESS);
    REQUIRE_STATUS(strategy_allreduce.finish(strategy), ALNICO_SUCCESS);
}

static alnico_status_t call_update(void *replica)
{
    return replica_update(replica, &optimizer);
}

static alnico_status_t call_mark(void *context, enum phase ended)
{
    (void)context;
    (void)ended;
    return ALNICO_SUCCESS;
}

/* Every rank's parameters must have the same hash; with one moved, all ranks must notice. */
static void compare_hashes(struct replica *replica, alnico_comm_t comm, struct rank *rank)
{
    const struct training *training = rank->argument;
    const size_t bytes = training->network->parameters * sizeof(float);
    REQUIRE_STATUS(trainer_compare(trainer_hash(replica->arenas.parameters, bytes), comm),
                   ALNICO_SUCCESS);
    if (training->differ < 0)
        return;
    if (training->differ == rank->rank)
        replica->arenas.parameters[7] += 1e-6f + 1e-6f * fabsf(replica->arenas.parameters[7]);
    REQUIRE_STATUS(trainer_compare(trainer_hash(replica->arenas.parameters, bytes), comm),
                   ALNICO_ERROR_MISMATCH);
    ranks_require_detail("differ");
}

static void rank_train(struct rank *rank)
{
    const struct training *training = rank->argument;
    const struct network *network = training->network;
    struct replica *replica;
    struct buckets buckets;
    void *strategy;
    alnico_stream_t stream = NULL;
    if (training->streamed)
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, stream);
    const struct replica_setup wanted = {.kernels = &kernels_onednn,
                                         .batch = JOINED / (size_t)rank->size,
                                         .seed = seed,
                                         .options = {.threads = 1, .frozen = training->frozen},
                                         .gradient_type = ALNICO_FLOAT32,
                                         .stream = stream};
    REQUIRE_STATUS(replica_create(network, &wanted, &replica), ALNICO_SUCCESS);
    REQUIRE_STATUS(buckets_of_size(network->parameters, training->bucket / sizeof(float), &buckets),
                   ALNICO_SUCCESS);
    const struct strategy_setup setup = {
        .comm = comm,
        .device = &device_cpu,
        .stream = stream,
        .arenas = &replica->arenas,
        .count = network->parameters,
        .type = ALNICO_FLOAT32,
        .wire = training->wire,
        .late = training->late,
        .ends = buckets.ends,
        .buckets = buckets.count,
        .calls = {.context = replica, .update = call_update, .mark = call_mark}};
    REQUIRE_STATUS(strategy_allreduce.create(&setup, &strategy), ALNICO_SUCCESS);
    for (size_t step = 0; step < training->steps; step++)
        one_step(replica, strategy, step, rank);
    REQUIRE_STATUS(replica_synchronize(replica), ALNICO_SUCCESS);
    if (rank->rank == 0)
        memcpy(training->parameters, replica->arenas.parameters,
               network->parameters * sizeof(float));
    if (!stream)
        compare_hashes(replica, comm, rank);
    strategy_allreduce.destroy(strategy);
    buckets_free(&buckets);
    replica_destroy(replica);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static struct training training_make(const struct model *model)
{
    struct training training = {
        .bucket = 1 << 14, .steps = STEPS, .wire = ALNICO_FLOAT32, .rate = 0.05f, .differ = -1};
    const size_t images = (size_t)STEPS * JOINED;
    uint64_t state = seed;
    if (model_network(model, SIDE, SIDE, 1, CLASSES, &training.network))
        fail_msg("%s", alnico_error_detail());
    training.images = malloc(images * SIDE * SIDE * sizeof(float));
    training.labels = malloc(images * sizeof(int32_t));
    training.parameters = malloc(training.network->parameters * sizeof(float));
    random_fill(training.images, images * SIDE * SIDE, &state);
    for (size_t i = 0; i < images; i++)
        training.labels[i] = (int32_t)(random_next(&state) % CLASSES);
    return training;
}

static void training_free(struct training *training)
{
    network_destroy(training->network);
    free(training->images);
    free(training->labels);
    free(training->parameters);
}

/* Fails unless all parameters are as expected, up to `tolerance`; returns how far apart they
 * are. */
static double parameters_compare(const struct training *training, const float *expected,
                                 float tolerance, const char *what)
{
    double apart = 0;
    for (size_t i = 0; i < training->network->parameters; i++) {
        apart = fmax(apart, fabs((double)training->parameters[i] - (double)expected[i]));
        if (!(fabsf(training->parameters[i] - expected[i]) <= tolerance))
            fail_msg("%s: parameter %zu is %.9g, expected %.9g", what, i, training->parameters[i],
                     expected[i]);
    }
    return apart;
}

/* Trains on `size` ranks; the caller frees the parameters. */
static float *train_on(struct training *training, int size)
{
    const size_t bytes = training->network->parameters * sizeof(float);
    float *parameters = malloc(bytes);
    memset(training->parameters, 0xff, bytes);
    ranks_run(size, rank_train, training);
    memcpy(parameters, training->parameters, bytes);
    return parameters;
}

static void check_moved(const struct training *training, const float *parameters)
{
    const struct network *network = training->network;
    float *start = malloc(network->parameters * sizeof *start);
    float *statistics = malloc((network->statistics + 1) * sizeof *statistics);
    double moved = 0;
    network_initialize(network, seed, start, statistics);
    for (size_t i = 0; i < network->parameters; i++)
        moved = fmax(moved, fabs((double)parameters[i] - (double)start[i]));
    assert_true(moved > 1e-2);
    free(start);
    free(statistics);
}

/* How far the parameters are from `expected`, as a share of how far these came from the start
 * (Euclidean norms). */
static double share_apart(const struct training *training, const float *expected)
{
    const struct network *network = training->network;
    float *start = malloc(network->parameters * sizeof *start);
    float *statistics = malloc((network->statistics + 1) * sizeof *statistics);
    double apart = 0, moved = 0;
    network_initialize(network, seed, start, statistics);
    for (size_t i = 0; i < network->parameters; i++) {
        const double e = expected[i];
        apart += pow(training->parameters[i] - e, 2);
        moved += pow(e - start[i], 2);
    }
    free(start);
    free(statistics);
    return sqrt(apart / moved);
}

/* The largest share_apart of 2 and 3 ranks, with small and large buckets, from one rank. */
static double ranks_apart(struct training *training)
{
    const size_t buckets[] = {1 << 16, 64, 1 << 20};
    float *alone = train_on(training, 1);
    double apart = 0;
    check_moved(training, alone);
    for (int size = 2; size <= 3; size++)
        for (size_t b = 0; b < 3; b++) {
            training->bucket = buckets[b];
            free(train_on(training, size));
            apart = fmax(apart, share_apart(training, alone));
        }
    free(alone);
    print_message("%.2e of the way apart\n", apart);
    return apart;
}

static double cnn_apart(void)
{
    struct training training = training_make(&model_cnn);
    const double apart = ranks_apart(&training);
    training_free(&training);
    return apart;
}

static double frozen_apart(void)
{
    struct training training = training_make(&model_resnet20);
    training.frozen = true;
    training.steps = 6;
    training.rate = 0.01f;
    const double apart = ranks_apart(&training);
    training_free(&training);
    return apart;
}

/* Sums of more or fewer images differ in their last bits, which in one training of ten turn a ReLU
 * near zero over: of four trainings one must do without. */
static void check_as_one(double trained_apart(void))
{
    const uint64_t before = seed;
    bool as_one = false;
    for (int i = 0; i < 4 && !as_one; i++, seed++)
        as_one = trained_apart() < 1e-5;
    seed = before;
    assert_true(as_one);
}

static void ranks_train_as_one(void **unused)
{
    (void)unused;
    check_as_one(cnn_apart);
}

/* A batch norm that keeps its statistics treats every image for itself. */
static void frozen_norms_train_as_one(void **unused)
{
    (void)unused;
    check_as_one(frozen_apart);
}

/* The same bits, whether the ranks' streams are their threads or run by themselves, and whether the
 * gradients meet during the backward pass or after it. */
static void order_of_work_changes_nothing(void **unused)
{
    (void)unused;
    struct training training = training_make(&model_resnet20);
    training.steps = 4;
    float *expected = train_on(&training, 2);
    for (int i = 1; i < 4; i++) {
        training.streamed = i & 1;
        training.late = i & 2;
        free(train_on(&training, 2));
        parameters_compare(&training, expected, 0, i & 1 ? "on a stream" : "late");
    }
    free(expected);
    training_free(&training);
}

/* Where one step leads with gradients in 16 bits: each is rounded before it leaves, after it was
 * halved and after the sum, and a rank's is taken to be at most four times the largest mean. */
static void narrow_wires_are_near(void **unused)
{
    (void)unused;
    const alnico_datatype_t wires[] = {ALNICO_FLOAT16, ALNICO_BFLOAT16};
    const double units[] = {0x1p-11, 0x1p-8};
    struct training training = training_make(&model_cnn);
    training.steps = 0;
    float *start = train_on(&training, 2);
    training.steps = 1;
    float *expected = train_on(&training, 2);
    double most = 0;
    for (size_t i = 0; i < training.network->parameters; i++)
        most = fmax(most, fabs((double)expected[i] - (double)start[i]));
    for (int i = 0; i < 4; i++) {
        training.wire = wires[i % 2];
        training.streamed = i > 1;
        free(train_on(&training, 2));
        const double apart =
            parameters_compare(&training, expected, (float)(3 * 4 * units[i % 2] * most),
                               i % 2 ? "bfloat16 wire" : "float16 wire");
        assert_true(apart > 0);
    }
    free(start);
    free(expected);
    training_free(&training);
}

/* With batch norm ranks differ from one rank in their statistics, but not among each other. */
static void batch_norm_ranks_stay_equal(void **unused)
{
    (void)unused;
    struct training training = training_make(&model_resnet20);
    training.steps = 100;
    training.rate = 0.01f;
    ranks_run(2, rank_train, &training);
    training_free(&training);
}

static void different_parameters_are_noticed(void **unused)
{
    (void)unused;
    struct training training = training_make(&model_cnn);
    training.differ = 1;
    ranks_run(2, rank_train, &training);
    assert_int_equal(trainer_compare(5, NULL), ALNICO_SUCCESS);
    training_free(&training);
}

static alnico_status_t call_nothing(void *context)
{
    (void)context;
    return ALNICO_SUCCESS;
}

/* What is announced may be sent, and nothing else before the end, which leaves the mean. */
static void rank_join(struct rank *rank)
{
    float gradients[10];
    void *strategy;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    const size_t ends[] = {3, 6, 9, 10};
    const struct arenas arenas = {.gradients = gradients};
    const struct strategy_setup setup = {.comm = comm,
                                         .device = &device_cpu,
                                         .arenas = &arenas,
                                         .count = 10,
                                         .type = ALNICO_FLOAT32,
                                         .wire = ALNICO_FLOAT32,
                                         .ends = ends,
                                         .buckets = 4,
                                         .calls = {.update = call_nothing, .mark = call_mark}};
    REQUIRE_STATUS(strategy_allreduce.create(&setup, &strategy), ALNICO_SUCCESS);
    for (int pass = 0; pass < 3; pass++) {
        const int filled = pass == 1 ? 5 : 10;
        for (int i = 0; i < filled; i++)
            gradients[i] = (float)((rank->rank + 1) * (i + pass));
        if (pass == 1)
            REQUIRE_STATUS(strategy_allreduce.advance(strategy, 5), ALNICO_SUCCESS);
        nap_us(10000); /* what is sent has left */
        for (int i = filled; i < 10; i++)
            gradients[i] = (float)((rank->rank + 1) * (i + pass));
        REQUIRE_STATUS(strategy_allreduce.finish(strategy), ALNICO_SUCCESS);
        for (int i = 0; i < 10; i++)
            REQUIRE(gradients[i] == 1.5f * (float)(i + pass));
    }
    strategy_allreduce.destroy(strategy);
    alnico_comm_destroy(comm);
}

static void joining_averages_everything(void **unused)
{
    (void)unused;
    ranks_run(2, rank_join, NULL);
}

static void bad_buckets_are_refused(void **unused)
{
    (void)unused;
    const size_t rows[][2] = {{0, 10}, {5, 5}, {4, 9}, {4, 11}};
    const char *details[] = {"bucket 0 ends at 0, expected 1 to 10",
                             "bucket 1 ends at 5, expected 6 to 10", "ends at 9, expected 10",
                             "bucket 1 ends at 11"};
    struct strategy_setup setup = {.device = &device_cpu,
                                   .count = 10,
                                   .type = ALNICO_FLOAT32,
                                   .wire = ALNICO_FLOAT32,
                                   .buckets = 2};
    void *strategy;
    for (size_t i = 0; i < 4; i++) {
        setup.ends = rows[i];
        assert_int_equal(strategy_allreduce.create(&setup, &strategy), ALNICO_ERROR_ARGUMENT);
        assert_null(strategy);
        if (!strstr(alnico_error_detail(), details[i]))
            fail_msg("'%s' does not say '%s'", alnico_error_detail(), details[i]);
    }
    const size_t good[] = {4, 10};
    setup.ends = good;
    setup.wire = ALNICO_INT32;
    assert_int_equal(strategy_allreduce.create(&setup, &strategy), ALNICO_ERROR_ARGUMENT);
    strategy_allreduce.destroy(NULL);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_train_as_one),
        cmocka_unit_test(frozen_norms_train_as_one),
        cmocka_unit_test(order_of_work_changes_nothing),
        cmocka_unit_test(narrow_wires_are_near),
        cmocka_unit_test(batch_norm_ranks_stay_equal),
        cmocka_unit_test(different_parameters_are_noticed),
        cmocka_unit_test(joining_averages_everything),
        cmocka_unit_test(bad_buckets_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
