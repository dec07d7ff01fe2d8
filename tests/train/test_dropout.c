/* Dropout's masks: shares and scale, the same numbers however the images of a step are split, other ones
 * in another step, operation or seed, nothing in inference. */
#include "tests/train/cases.h"

#include "train/replica/replica.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SIDE = 6, CHANNELS = 19, EACH = SIDE * SIDE * CHANNELS, BATCH = 8 };

static uint64_t seed;

static struct network *network_make(float rate)
{
    const struct operation operations[] = {DROPOUT("p", "input", rate), DROPOUT("q", "input", rate),
                                           CONCAT("j", "p", "q"), DENSE("d", "j", 2), LOSS("d")};
    struct network *network;
    assert_int_equal(network_create(SIDE, SIDE, CHANNELS, &network), ALNICO_SUCCESS);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        assert_int_equal(network_append(network, &operations[i]), ALNICO_SUCCESS);
    assert_int_equal(network_finish(network), ALNICO_SUCCESS);
    assert_true(network->draws);
    return network;
}

/* The masks of `count` images, which the caller frees: of 2 x channels for each pixel. */
static float *masks_of(const struct kernels_ops *ops, float rate, size_t count,
                       const struct draw *draw, uint64_t of_seed, bool training)
{
    struct network *network = network_make(rate);
    const struct replica_setup setup = {.kernels = ops,
                                        .batch = count,
                                        .options = {.threads = 1, .seed = of_seed},
                                        .gradient_type = ALNICO_FLOAT32};
    const size_t bytes = 2 * count * EACH * sizeof(float);
    float *ones = malloc(bytes), *masks = malloc(bytes);
    int32_t labels[BATCH] = {0};
    struct replica *replica;
    if (replica_create(network, &setup, &replica))
        fail_msg("%s", alnico_error_detail());
    for (size_t i = 0; i < count * EACH; i++)
        ones[i] = 1;
    *replica->arenas.draw = *draw;
    assert_int_equal(replica_load(replica, ones, labels, count), ALNICO_SUCCESS);
    assert_int_equal(replica_forward(replica, training), ALNICO_SUCCESS);
    memcpy(masks, setup_value(&replica->setup, 3), bytes); /* the join's, read by the dense layer */
    replica_destroy(replica);
    network_destroy(network);
    free(ones);
    return masks;
}

/* How many elements two masks have in common, as a share. */
static double common(const float *a, const float *b, size_t count)
{
    size_t same = 0;
    for (size_t i = 0; i < count; i++)
        same += a[i] == b[i];
    return (double)same / (double)count;
}

static const struct draw begin = {.step = 7, .image = 40};

static void shares_and_scales_are_right(void **unused)
{
    (void)unused;
    const double rates[] = {0, 0.1, 0.25, 0.5, 0.9};
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        const size_t count = 2 * BATCH * EACH;
        float *masks = masks_of(&kernels_naive, (float)rates[r], BATCH, &begin, seed, true);
        size_t zeros = 0;
        for (size_t i = 0; i < count; i++) {
            zeros += masks[i] == 0;
            assert_true(masks[i] == 0 || fabs((double)masks[i] * (1 - rates[r]) - 1) < 2e-4);
        }
        const double deviation = sqrt(rates[r] * (1 - rates[r]) / (double)count);
        assert_true(fabs((double)zeros / (double)count - rates[r]) <= 5 * deviation + 1e-5);
        free(masks);
        masks = masks_of(&kernels_naive, (float)rates[r], BATCH, &begin, seed, false);
        for (size_t i = 0; i < count; i++)
            assert_true(masks[i] == 1);
        free(masks);
    }
}

/* The images of a step on one rank, or on several, in parts of any size. */
static void splits_draw_the_same(void **unused)
{
    (void)unused;
    for (size_t k = 0; kernels_all[k]; k++) {
        if (kernels_all[k]->device != ALNICO_DEVICE_CPU)
            continue;
        float *whole = masks_of(&kernels_naive, 0.5f, BATCH, &begin, seed, true);
        for (size_t part = 1; part <= BATCH; part *= 2)
            for (size_t at = 0; at < BATCH; at += part) {
                const struct draw draw = {begin.step, begin.image + (uint32_t)at};
                float *masks = masks_of(kernels_all[k], 0.5f, part, &draw, seed, true);
                assert_memory_equal(masks, whole + 2 * at * EACH, 2 * part * EACH * sizeof *masks);
                free(masks);
            }
        free(whole);
    }
}

static void others_draw_others(void **unused)
{
    (void)unused;
    const struct draw next = {begin.step + 1, begin.image};
    const size_t count = 2 * BATCH * EACH, image = 2 * EACH;
    float *masks = masks_of(&kernels_naive, 0.5f, BATCH, &begin, seed, true),
          *later = masks_of(&kernels_naive, 0.5f, BATCH, &next, seed, true),
          *other = masks_of(&kernels_naive, 0.5f, BATCH, &begin, seed + 1, true);
    size_t same = 0;
    assert_true(fabs(common(masks, later, count) - 0.5) < 0.02);
    assert_true(fabs(common(masks, other, count) - 0.5) < 0.02);
    for (size_t n = 1; n < BATCH; n++)
        assert_true(fabs(common(masks, masks + n * image, image) - 0.5) < 0.06);
    for (size_t i = 0; i < count; i++) /* the two operations' */
        same += i % (2 * CHANNELS) < CHANNELS && masks[i] == masks[i + CHANNELS];
    assert_true(fabs((double)same / (double)(count / 2) - 0.5) < 0.02);
    free(masks);
    free(later);
    free(other);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_and_scales_are_right),
        cmocka_unit_test(splits_draw_the_same),
        cmocka_unit_test(others_draw_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
