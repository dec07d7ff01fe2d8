/* The memory that a replica takes: how large a batch fits, that what does not fit is refused with the batch
 * that does, and that activations share. */
#include "cases.h"

#include "train/models/models.h"
#include "train/replica.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_largest_batch_is_the_largest),
                                       cmocka_unit_test(what_does_not_fit_is_refused),
                                       cmocka_unit_test(the_device_says_how_much_there_is),
                                       cmocka_unit_test(activations_share_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
