/* Batches on their way to a GPU: as float32 or as bytes, ahead or not, all learn the same, to the
 * bit, in every precision, though their memory is written over as soon as it may be; and copies
 * ahead arrive while the stream is held. Prints every difference and goes on. */
#include "tests/gpu/train/check.h"

#include "train/base/random.h"
#include "train/models/models.h"
#include "train/replica/replica.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 8, SIDE = 64, CHANNELS = 3, PIXELS = SIDE * SIDE * CHANNELS, STEPS = 8 };

struct way {
    const char *name;
    bool bytes, ahead;
};

static const struct way ways[] = {{"float32", false, false},
                                  {"bytes", true, false},
                                  {"float32 ahead", false, true},
                                  {"bytes ahead", true, true}};
enum { WAYS = sizeof ways / sizeof *ways };

static void *stream;
static char cache[64];
static uint64_t seed;
static float levels[REPLICA_LEVELS];

/* Two batches of pinned memory. */
static uint8_t *bytes[2];
static float *images[2];

static void require(alnico_status_t status, const char *doing)
{
    if (status == ALNICO_SUCCESS)
        return;
    printf("FAILED: %s: %s\n", doing, alnico_error_detail());
    exit(EXIT_FAILURE);
}

static struct replica *replica_make(const struct network *network, const struct way *way,
                                    enum precision precision)
{
    static const alnico_datatype_t types[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
    const float rate = 0.01f;
    const struct replica_setup setup = {
        .kernels = &kernels_cudnn,
        .batch = BATCH,
        .seed = 7,
        .options = {.precision = precision, .deterministic = true, .cache = cache},
        .gradient_type = types[precision],
        .ahead = way->ahead,
        .levels = way->bytes ? levels : NULL,
        .stream = stream};
    struct replica *replica;
    require(replica_create(network, &setup, &replica), way->name);
    require(replica_write(replica, &replica->arenas.control[CONTROL_RATE], &rate, sizeof rate),
            "the rate");
    return replica;
}

static void batch_make(uint64_t *state, int at, int32_t *labels)
{
    for (size_t i = 0; i < BATCH * PIXELS; i++) {
        bytes[at][i] = (uint8_t)random_next(state);
        images[at][i] = levels[bytes[at][i]];
    }
    for (size_t i = 0; i < BATCH; i++)
        labels[i] = (int32_t)(random_next(state) % 10);
}

static void train(struct replica *replica, const struct way *way)
{
    static const struct optimizer_options optimizer = {.momentum = 0.9, .decay = 1e-4};
    uint64_t state = seed;
    for (int step = 0; step < STEPS; step++) {
        const int at = step % 2;
        int32_t labels[BATCH];
        batch_make(&state, at, labels);
        const void *from = way->bytes ? (void *)bytes[at] : (void *)images[at];
        require(replica_send(replica, from, labels, BATCH), "sending");
        memset(labels, 0xa5, sizeof labels);
        memset(bytes[1 - at], 0xa5, BATCH * PIXELS);
        memset(images[1 - at], 0xa5, BATCH * PIXELS * sizeof(float));
        require(replica_take(replica), "taking");
        require(replica_forward(replica, true), "forward");
        require(replica_backward(replica, NULL, NULL), "backward");
        require(replica_update(replica, &optimizer), "update");
    }
}

static void check_ways_agree(const struct network *network, enum precision precision)
{
    const size_t size = network->parameters * sizeof(float);
    char *expected = malloc(size), *parameters = malloc(size);
    for (size_t i = 0; i < WAYS; i++) {
        struct replica *replica = replica_make(network, &ways[i], precision);
        train(replica, &ways[i]);
        require(replica_read(replica, replica->arenas.parameters, parameters, size), "reading");
        if (i == 0)
            memcpy(expected, parameters, size);
        check_count++;
        if (memcmp(expected, parameters, size) != 0)
            check_fail("%s, %s: other parameters than by %s", precision_name(precision),
                       ways[i].name, ways[0].name);
        replica_destroy(replica);
    }
    free(expected);
    free(parameters);
}

/* What waits does so for ever. */
static void check_held(const struct network *network, const struct way *way)
{
    struct replica *replica = replica_make(network, way, PRECISION_BF16);
    struct device_flag *held;
    int32_t labels[BATCH];
    uint64_t state = seed;
    require(device_cuda.flag_create(&held), "a flag");
    require(device_cuda.stream_await(stream, held, 1), "holding the stream");
    check_count++;
    alarm(60);
    for (int batch = 0; batch < 2; batch++) {
        batch_make(&state, batch, labels);
        require(replica_load(replica, way->bytes ? (void *)bytes[batch] : (void *)images[batch],
                             labels, BATCH),
                "loading beside a stream that is held");
    }
    alarm(0);
    device_cuda.flag_raise(held, 1);
    require(replica_synchronize(replica), "letting the stream go on");
    replica_destroy(replica);
    device_cuda.flag_destroy(held);
}

int main(int count, char **arguments)
{
    struct network *network;
    check_ways(count, arguments);
    gpu_require(1);
    seed = (uint64_t)getpid();
    printf("seed %llu\n", (unsigned long long)seed);
    snprintf(cache, sizeof cache, "/tmp/alnico-input-%d-plans", (int)getpid());
    for (int i = 0; i < REPLICA_LEVELS; i++)
        levels[i] = (float)((i - 120.7) / 64.3);
    require(device_cuda.stream_create(&stream), "a stream");
    for (int i = 0; i < 2; i++) {
        require(device_cuda.pinned_alloc(BATCH * PIXELS, (void **)&bytes[i]), "pinned memory");
        require(device_cuda.pinned_alloc(BATCH * PIXELS * sizeof(float), (void **)&images[i]),
                "pinned memory");
    }
    require(model_network(&model_resnet18, SIDE, SIDE, CHANNELS, 10, &network), "a network");
    for (int p = 0; p < PRECISIONS; p++)
        check_ways_agree(network, (enum precision)p);
    for (size_t i = 0; i < WAYS; i++)
        if (ways[i].ahead)
            check_held(network, &ways[i]);
    network_destroy(network);
    remove(cache);
    return check_result("batches on their way");
}
