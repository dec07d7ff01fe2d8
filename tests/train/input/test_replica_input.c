/* How batches come into a replica: as float32 or as bytes, into the arenas or into buffers, on the
 * replica's stream or ahead of it. All learn the same, to the bit; copies ahead wait for no
 * computing; and what they take is counted. */
#include "tests/train/cases.h"

#include "train/models/models.h"
#include "train/replica/replica.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { BATCH = 5, SIDE = 8, CHANNELS = 3, PIXELS = SIDE * SIDE * CHANNELS, STEPS = 6 };

/* ---- The naive kernels, which keep the images that they are told to load ---- */

struct loading {
    struct kernels_setup setup;
    struct arenas arenas;
    void *naive;
    const void *from;
    const float *levels;
};

static alnico_status_t loading_create(const struct kernels_setup *setup, void **out)
{
    struct loading *self = calloc(1, sizeof *self);
    struct kernels_setup naive = *setup;
    self->setup = *setup;
    self->arenas = *setup->arenas;
    self->arenas.images = malloc(plan_float_bytes(setup->plan, 0));
    naive.arenas = &self->arenas;
    *out = self;
    return kernels_naive.create(&naive, &self->naive);
}

static void loading_destroy(void *pointer)
{
    struct loading *self = pointer;
    kernels_naive.destroy(self->naive);
    free(self->arenas.images);
    free(self);
}

/* One batch, on the stream. */
struct taking {
    struct loading *self;
    const void *images;
    const float *levels;
};

static void take(void *pointer)
{
    struct taking *taking = pointer;
    const struct kernels_setup *setup = &taking->self->setup;
    const size_t count = plan_float_bytes(setup->plan, 0) / sizeof(float);
    float *to = taking->self->arenas.images;
    for (size_t i = 0; i < count; i++)
        to[i] = taking->levels ? taking->levels[((const uint8_t *)taking->images)[i]]
                               : ((const float *)taking->images)[i];
    free(taking);
}

static alnico_status_t loading_load(void *pointer, const void *images, const float *levels)
{
    struct taking *taking = malloc(sizeof *taking);
    *taking = (struct taking){pointer, images, levels};
    return alnico_stream_enqueue(((struct loading *)pointer)->setup.stream, take, taking);
}

static alnico_status_t loading_forward(void *pointer, size_t step, bool training)
{
    return kernels_naive.forward(((struct loading *)pointer)->naive, step, training);
}

static alnico_status_t loading_backward(void *pointer, size_t step)
{
    return kernels_naive.backward(((struct loading *)pointer)->naive, step);
}

static struct kernels_ops kernels_loading(void)
{
    struct kernels_ops kernels = kernels_naive;
    kernels.create = loading_create;
    kernels.destroy = loading_destroy;
    kernels.load = loading_load;
    kernels.forward = loading_forward;
    kernels.backward = loading_backward;
    return kernels;
}

/* ---- Ways ---- */

struct way {
    const char *name;
    bool loads, bytes, flows, ahead;
    size_t buffers; /* besides the arenas' */
};

static const struct way ways[] = {
    {"inline", false, false, false, false, 0},
    {"inline, ahead of nothing", false, false, false, true, 0},
    {"inline, loads", true, false, false, false, 1},
    {"inline, loads bytes", true, true, false, false, 1},
    {"stream", false, false, true, false, 0},
    {"stream, ahead", false, false, true, true, 2},
    {"stream, loads bytes", true, true, true, false, 1},
    {"stream, loads", true, false, true, false, 1},
    {"stream, loads ahead", true, false, true, true, 2},
    {"stream, loads bytes ahead", true, true, true, true, 2},
};
enum { WAYS = sizeof ways / sizeof *ways };

static float levels[REPLICA_LEVELS];

struct fixture {
    struct kernels_ops kernels;
    alnico_stream_t stream;
    struct replica *replica;
};

static struct network *network_make(void)
{
    struct network *network;
    if (model_network(&model_resnet20, SIDE, SIDE, CHANNELS, 10, &network))
        fail_msg("%s", alnico_error_detail());
    return network;
}

static void fixture_open(struct fixture *f, const struct network *network, const struct way *way)
{
    *f = (struct fixture){.kernels = way->loads ? kernels_loading() : kernels_naive};
    if (way->flows)
        assert_int_equal(alnico_stream_create(&f->stream), ALNICO_SUCCESS);
    const struct replica_setup setup = {.kernels = &f->kernels,
                                        .batch = BATCH,
                                        .seed = 3,
                                        .gradient_type = ALNICO_FLOAT32,
                                        .ahead = way->ahead,
                                        .levels = way->bytes ? levels : NULL,
                                        .stream = f->stream};
    if (replica_create(network, &setup, &f->replica))
        fail_msg("%s: %s", way->name, alnico_error_detail());
}

static void fixture_close(struct fixture *f)
{
    replica_destroy(f->replica);
    alnico_stream_destroy(f->stream);
}

/* A random batch in bytes, and in float32 what these stand for. */
static void batch_make(uint64_t *state, uint8_t *bytes, float *images, int32_t *labels)
{
    for (size_t i = 0; i < BATCH * PIXELS; i++) {
        bytes[i] = (uint8_t)random_next(state);
        images[i] = levels[bytes[i]];
    }
    for (size_t i = 0; i < BATCH; i++)
        labels[i] = (int32_t)(random_next(state) % 10);
}

/* Steps with `sent` batches, the last not full; memory is used again as soon as it may be, and is
 * scribbled over before. Nothing waits for the stream until all is enqueued. */
static void train(struct replica *replica, const struct way *way, bool sends, uint64_t state)
{
    static const struct optimizer_options optimizer = {.momentum = 0.9, .decay = 1e-4};
    static uint8_t bytes[2][BATCH * PIXELS];
    static float images[2][BATCH * PIXELS];
    int32_t labels[BATCH];
    replica->arenas.control[CONTROL_RATE] = 0.05f;
    for (size_t step = 0; step < STEPS; step++) {
        const size_t at = sends ? step % 2 : 0, count = BATCH - (step + 1) / STEPS;
        batch_make(&state, bytes[at], images[at], labels);
        const void *from = way->bytes ? (void *)bytes[at] : (void *)images[at];
        if (sends) {
            assert_int_equal(replica_send(replica, from, labels, count), ALNICO_SUCCESS);
            memset(bytes[1 - at], 0xa5, sizeof bytes[0]);
            memset(images[1 - at], 0xa5, sizeof images[0]);
            assert_int_equal(replica_take(replica), ALNICO_SUCCESS);
        } else {
            assert_int_equal(replica_load(replica, from, labels, count), ALNICO_SUCCESS);
            memset(bytes[0], 0xa5, sizeof bytes[0]);
            memset(images[0], 0xa5, sizeof images[0]);
        }
        memset(labels, 0xa5, sizeof labels);
        assert_int_equal(replica_forward(replica, true), ALNICO_SUCCESS);
        assert_int_equal(replica_backward(replica, NULL, NULL), ALNICO_SUCCESS);
        assert_int_equal(replica_update(replica, &optimizer), ALNICO_SUCCESS);
    }
    assert_int_equal(replica_synchronize(replica), ALNICO_SUCCESS);
}

static void all_ways_learn_the_same(void **unused)
{
    (void)unused;
    const uint64_t seed = test_seed();
    struct network *network = network_make();
    const size_t bytes = network->parameters * sizeof(float);
    struct fixture f;
    fixture_open(&f, network, &ways[0]);
    float *first = malloc(2 * bytes), *parameters = first + network->parameters;
    memcpy(first, f.replica->arenas.parameters, bytes);
    train(f.replica, &ways[0], false, seed);
    memcpy(parameters, f.replica->arenas.parameters, bytes);
    assert_memory_not_equal(first, parameters, bytes);
    fixture_close(&f);
    for (size_t i = 0; i < WAYS; i++)
        for (int sends = 0; sends < 2; sends++) {
            fixture_open(&f, network, &ways[i]);
            train(f.replica, &ways[i], sends, seed);
            if (memcmp(parameters, f.replica->arenas.parameters, bytes) != 0)
                fail_msg("%s, %s: other parameters", ways[i].name, sends ? "sent" : "loaded");
            fixture_close(&f);
        }
    free(first);
    network_destroy(network);
}

/* Two batches arrive while the stream is held. */
static void copies_ahead_wait_for_no_computing(void **unused)
{
    (void)unused;
    static float images[BATCH * PIXELS];
    const int32_t labels[BATCH] = {0};
    struct network *network = network_make();
    for (size_t i = 0; i < WAYS; i++) {
        struct device_flag *held;
        struct fixture f;
        if (!ways[i].ahead || !ways[i].flows)
            continue;
        fixture_open(&f, network, &ways[i]);
        assert_int_equal(device_cpu.flag_create(&held), ALNICO_SUCCESS);
        assert_int_equal(device_cpu.stream_await(f.stream, held, 1), ALNICO_SUCCESS);
        alarm(60); /* what waits does so for ever */
        for (int batch = 0; batch < 2; batch++)
            assert_int_equal(replica_load(f.replica, images, labels, BATCH), ALNICO_SUCCESS);
        alarm(0);
        device_cpu.flag_raise(held, 1);
        fixture_close(&f);
        device_cpu.flag_destroy(held);
    }
    network_destroy(network);
}

static void buffers_are_counted(void **unused)
{
    (void)unused;
    struct network *network = network_make();
    for (size_t i = 0; i < WAYS; i++) {
        const size_t labels = BATCH * sizeof(int32_t), pixels = BATCH * PIXELS;
        const size_t images = pixels * (ways[i].bytes ? 1 : sizeof(float));
        const size_t arena = ways[i].loads ? 0 : pixels * sizeof(float);
        struct fixture f;
        fixture_open(&f, network, &ways[i]);
        const struct replica_memory memory = replica_memory(f.replica);
        assert_int_equal(memory.images, arena + labels + ways[i].buffers * (images + labels));
        assert_int_equal(memory.activations, f.replica->plan->bytes);
        assert_int_equal(f.replica->arenas.images != NULL, !ways[i].loads);
        fixture_close(&f);
    }
    network_destroy(network);
}

int main(void)
{
    for (int i = 0; i < REPLICA_LEVELS; i++) /* 0 as what is no image is of zero bytes */
        levels[i] = (float)((i * 7 + 128) % 256 - 128) / 61.9f;
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_ways_learn_the_same),
                                       cmocka_unit_test(copies_ahead_wait_for_no_computing),
                                       cmocka_unit_test(buffers_are_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
