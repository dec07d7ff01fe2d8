/* The memory that a replica takes: how large a batch fits, that what does not fit is refused with
 * the batch that does, and that activations share. */
#include "tests/train/cases.h"

#include "train/graph/placement.h"
#include "train/models/models.h"
#include "train/replica/replica.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct network *network_of(const struct model *model, size_t side)
{
    struct network *network;
    if (model_network(model, side, side, 3, 10, &network))
        fail_msg("%s", alnico_error_detail());
    return network;
}

static size_t bytes_of(const struct network *network, struct replica_setup setup, size_t batch)
{
    struct replica_memory memory;
    setup.batch = batch;
    assert_int_equal(replica_measure(network, &setup, &memory), ALNICO_SUCCESS);
    assert_int_equal(memory.total, memory.parameters + memory.gradients + memory.optimizer +
                                       memory.statistics + memory.images + memory.activations +
                                       memory.kernels);
    return memory.total;
}

/* The largest fits and one more does not, for any number of bytes. */
static void the_largest_batch_is_the_largest(void **unused)
{
    (void)unused;
    uint64_t state = test_seed();
    for (size_t i = 0; kernels_all[i]; i++) {
        struct network *network = network_of(&model_resnet18, 33);
        const struct replica_setup setup = {.kernels = kernels_all[i],
                                            .gradient_type = ALNICO_FLOAT32};
        const size_t one = bytes_of(network, setup, 1);
        size_t batch;
        assert_int_equal(replica_largest(network, &setup, one - 1, &batch), ALNICO_SUCCESS);
        assert_int_equal(batch, 0);
        for (int k = 0; k < 5; k++) {
            const size_t limit = one + random_next(&state) % (size_t)1e9;
            assert_int_equal(replica_largest(network, &setup, limit, &batch), ALNICO_SUCCESS);
            assert_true(batch >= 1);
            assert_true(bytes_of(network, setup, batch) <= limit);
            assert_true(bytes_of(network, setup, batch + 1) > limit);
        }
        network_destroy(network);
    }
}

/* As many bytes as the parameters have, for each state. */
static void optimizers_states_are_counted(void **unused)
{
    (void)unused;
    static const size_t states[OPTIMIZERS] = {
        [OPTIMIZER_SGD] = 1,      [OPTIMIZER_NAG] = 1,     [OPTIMIZER_ADAGRAD] = 1,
        [OPTIMIZER_ADADELTA] = 2, [OPTIMIZER_RMSPROP] = 1, [OPTIMIZER_ADAM] = 2};
    struct network *network = network_of(&model_resnet18, 33);
    for (int kind = 0; kind < OPTIMIZERS; kind++) {
        struct replica_memory memory;
        const struct replica_setup setup = {.kernels = &kernels_naive,
                                            .batch = 1,
                                            .gradient_type = ALNICO_FLOAT32,
                                            .optimizer = (enum optimizer_kind)kind};
        assert_int_equal(replica_measure(network, &setup, &memory), ALNICO_SUCCESS);
        assert_int_equal(memory.optimizer, states[kind] * memory.parameters);
    }
    network_destroy(network);
}

static void what_does_not_fit_is_refused(void **unused)
{
    (void)unused;
    struct network *network = network_of(&model_resnet20, 16);
    struct replica_setup setup = {
        .kernels = &kernels_naive, .batch = 7, .gradient_type = ALNICO_FLOAT32};
    struct replica *replica;
    const size_t bytes = bytes_of(network, setup, 7);
    setup.memory_limit = bytes;
    assert_int_equal(replica_create(network, &setup, &replica), ALNICO_SUCCESS);
    replica_destroy(replica);
    setup.memory_limit = bytes - 1;
    assert_int_equal(replica_create(network, &setup, &replica), ALNICO_ERROR_MEMORY);
    assert_null(replica);
    assert_non_null(strstr(alnico_error_detail(), "the largest batch that fits is 6"));
    setup.memory_limit = 1000;
    assert_int_equal(replica_create(network, &setup, &replica), ALNICO_ERROR_MEMORY);
    assert_non_null(strstr(alnico_error_detail(), "not even a batch of 1 fits"));
    network_destroy(network);
}

/* Batches and bytes for each gradient that the caller keeps; on a stream those that are copied
 * ahead. */
static void what_stands_beside_counts(void **unused)
{
    (void)unused;
    struct network *network = network_of(&model_resnet20, 16);
    struct replica_setup setup = {
        .kernels = &kernels_naive, .batch = 7, .gradient_type = ALNICO_FLOAT32};
    const size_t bytes = bytes_of(network, setup, 7);
    const size_t batch = 7 * (16 * 16 * 3 * sizeof(float) + sizeof(int32_t));
    struct replica *replica;
    setup.extras.batches = 8;
    assert_int_equal(bytes_of(network, setup, 7), bytes + 8 * batch);
    setup.extras.gradients = sizeof(uint16_t);
    assert_int_equal(bytes_of(network, setup, 7),
                     bytes + 8 * batch + network->parameters * sizeof(uint16_t));
    setup.memory_limit = bytes;
    assert_int_equal(replica_create(network, &setup, &replica), ALNICO_ERROR_MEMORY);
    setup.extras = (struct replica_extras){0};
    assert_int_equal(alnico_stream_create((alnico_stream_t *)&setup.stream), ALNICO_SUCCESS);
    assert_int_equal(bytes_of(network, setup, 7), bytes);
    setup.ahead = true;
    setup.memory_limit = bytes_of(network, setup, 7);
    assert_int_equal(setup.memory_limit, bytes + 2 * batch);
    assert_int_equal(replica_create(network, &setup, &replica), ALNICO_SUCCESS);
    assert_int_equal(replica_memory(replica).total, bytes + 2 * batch);
    replica_destroy(replica);
    alnico_stream_destroy(setup.stream);
    network_destroy(network);
}

/* A batch that no machine has memory for is refused by what this one has. */
static void the_device_says_how_much_there_is(void **unused)
{
    (void)unused;
    struct network *network = network_of(&model_resnet20, 224);
    const struct replica_setup setup = {
        .kernels = &kernels_naive, .batch = 1 << 22, .gradient_type = ALNICO_FLOAT32};
    struct replica *replica;
    assert_int_equal(replica_create(network, &setup, &replica), ALNICO_ERROR_MEMORY);
    assert_non_null(strstr(alnico_error_detail(), "the largest batch that fits is "));
    network_destroy(network);
}

/* Placing wastes nothing to speak of on the large networks, and shares much. */
static void activations_share_memory(void **unused)
{
    (void)unused;
    const struct model *const models[] = {&model_resnet18, &model_resnet50, &model_resnet152};
    for (size_t m = 0; m < 3; m++)
        for (size_t i = 0; kernels_all[i]; i++) {
            struct network *network = network_of(models[m], 224);
            struct plan *plan;
            assert_int_equal(plan_create(network, &kernels_all[i]->rules, 8, PRECISION_FP32, &plan),
                             ALNICO_SUCCESS);
            assert_true((double)plan->bytes <= 1.01 * (double)plan->least);
            assert_true((double)plan->bytes <= 0.75 * (double)plan->apart);
            plan_destroy(plan);
            network_destroy(network);
        }
}

/* Wherever the most is live: at the first time, in between, or at the last. */
static void the_least_is_the_most_that_lives_at_once(void **unused)
{
    (void)unused;
    for (size_t peak = 0; peak < 3; peak++) {
        const struct buffer buffers[] = {{.bytes = 10, .to = 2},
                                         {.bytes = 7, .from = peak, .to = peak},
                                         {.bytes = 6, .from = 1, .to = 1}};
        assert_int_equal(buffers_least(buffers, 3, 3), peak == 1 ? 23 : 17);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_largest_batch_is_the_largest),
                                       cmocka_unit_test(optimizers_states_are_counted),
                                       cmocka_unit_test(what_does_not_fit_is_refused),
                                       cmocka_unit_test(what_stands_beside_counts),
                                       cmocka_unit_test(the_device_says_how_much_there_is),
                                       cmocka_unit_test(activations_share_memory),
                                       cmocka_unit_test(the_least_is_the_most_that_lives_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
