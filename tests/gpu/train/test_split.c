/*
 * Networks split over ranks on cuDNN: every network of the test table, in several ways, against one
 * rank with all images: the plain loops of the CPU, or in less than float32 the same kernels. Ranks are
 * threads that share one GPU, where communicators do not go; so what the replica calls of the library
 * stands here: messages are copied once sender and receiver have come, and sums are made on the host.
 * Prints every difference and goes on.
 *
 * gpu_train_split [fp32|tf32|bf16|fp16]... [WAY]... [ways=NAME,...]: such ways to split only, as "rows=2",
 * taking ways of kernels/methods.h.
 */
#include "tests/gpu/train/check.h"

#include "base/datatype.h"
#include "tests/support/ranks.h"
#include "tests/train/cases.h"
#include "train/graph/split.h"
#include "train/replica/replica.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 4, ATTEMPTS = 4 };

/* How far gradients, and statistics and losses, may be apart, as shares of their length. */
struct mode {
    const char *name;
    enum precision precision;
    bool full_float;
    alnico_datatype_t gradient_type;
    double other, gradient;
};
static const struct mode modes[] = {
    {"fp32", PRECISION_FP32, true, ALNICO_FLOAT32, 1e-4, 1e-4},
    {"tf32", PRECISION_FP32, false, ALNICO_FLOAT32, 5e-3, 2e-2},
    {"bf16", PRECISION_BF16, false, ALNICO_BFLOAT16, 1e-2, 4e-2},
    {"fp16", PRECISION_FP16, false, ALNICO_FLOAT16, 3e-3, 2e-2},
};

/* Batch 0: as the network's case says. In less than float32 the last ones only. */
static const struct way {
    const char *text;
    size_t ranks, batch;
} ways[] = {{"columns=2", 2, 0},  {"rows=3", 3, 0},     {"images=2", 2, 0},
            {"rows=4", 4, 1},     {"channels=3", 3, 0}, {"images=2,rows=2", 4, 0},
            {"channels=2", 2, 0}, {"rows=2", 2, 1},     {"rows=2,columns=2", 4, 0},
            {"rows=2", 2, 0}};
enum { WAYS = sizeof ways / sizeof *ways, WAYS_OF_ALL = 4 };

static uint64_t seed;
static char cache[64];

/* ---- What the library does ---- */

static _Thread_local struct rank *self;
static _Thread_local void *stream; /* of this rank */

/* From one rank to another. */
struct letter {
    const void *data;
    void *room;
    size_t bytes;
    bool waits;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct letter sent[MOST_RANKS][MOST_RANKS]; /* from, to */
    double sums[MOST_RANKS][1 << 12];
} office = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Of the group that is open, by the other rank. */
static _Thread_local struct letter mine[2][MOST_RANKS];

alnico_status_t __wrap_alnico_group_begin(alnico_comm_t comm);
alnico_status_t __wrap_alnico_group_end(alnico_comm_t comm, alnico_request_t *request);
alnico_status_t __wrap_alnico_send(const void *buffer, size_t count, alnico_datatype_t type, int to,
                                   alnico_comm_t comm);
alnico_status_t __wrap_alnico_recv(void *buffer, size_t count, alnico_datatype_t type, int from,
                                   alnico_comm_t comm);
alnico_status_t __wrap_alnico_allreduce(const void *send, void *recv, size_t count,
                                        alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm);

alnico_status_t __wrap_alnico_group_begin(alnico_comm_t comm)
{
    (void)comm;
    memset(mine, 0, sizeof mine);
    return ALNICO_SUCCESS;
}

alnico_status_t __wrap_alnico_send(const void *buffer, size_t count, alnico_datatype_t type, int to,
                                   alnico_comm_t comm)
{
    (void)comm;
    REQUIRE(to != self->rank && !mine[0][to].waits);
    mine[0][to] = (struct letter){buffer, NULL, count * datatype_bytes(type), true};
    return ALNICO_SUCCESS;
}

alnico_status_t __wrap_alnico_recv(void *buffer, size_t count, alnico_datatype_t type, int from,
                                   alnico_comm_t comm)
{
    (void)comm;
    REQUIRE(from != self->rank && !mine[1][from].waits);
    mine[1][from] = (struct letter){NULL, buffer, count * datatype_bytes(type), true};
    return ALNICO_SUCCESS;
}

static void letter_take(int from)
{
    struct letter *letter = &office.sent[from][self->rank];
    pthread_mutex_lock(&office.lock);
    while (!letter->waits)
        pthread_cond_wait(&office.changed, &office.lock);
    pthread_mutex_unlock(&office.lock);
    REQUIRE(letter->bytes == mine[1][from].bytes);
    GPU(cudaMemcpyAsync(mine[1][from].room, letter->data, letter->bytes, cudaMemcpyDeviceToDevice,
                        stream));
    GPU(cudaStreamSynchronize(stream));
    pthread_mutex_lock(&office.lock);
    letter->waits = false;
    pthread_cond_broadcast(&office.changed);
    pthread_mutex_unlock(&office.lock);
}

alnico_status_t __wrap_alnico_group_end(alnico_comm_t comm, alnico_request_t *request)
{
    (void)comm;
    *request = NULL;
    GPU(cudaStreamSynchronize(stream));
    pthread_mutex_lock(&office.lock);
    for (int to = 0; to < self->size; to++)
        if (mine[0][to].waits)
            office.sent[self->rank][to] = mine[0][to];
    pthread_cond_broadcast(&office.changed);
    pthread_mutex_unlock(&office.lock);
    for (int from = 0; from < self->size; from++)
        if (mine[1][from].waits)
            letter_take(from);
    pthread_mutex_lock(&office.lock);
    for (int to = 0; to < self->size; to++)
        while (office.sent[self->rank][to].waits)
            pthread_cond_wait(&office.changed, &office.lock);
    pthread_mutex_unlock(&office.lock);
    return ALNICO_SUCCESS;
}

alnico_status_t __wrap_alnico_allreduce(const void *send, void *recv, size_t count,
                                        alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm)
{
    double *own = office.sums[self->rank], *sums = calloc(count, sizeof *sums);
    (void)comm;
    REQUIRE(send == ALNICO_IN_PLACE && type == ALNICO_FLOAT64 && op == ALNICO_SUM);
    REQUIRE(sums && count <= sizeof office.sums[0] / sizeof *own);
    GPU(cudaMemcpyAsync(own, recv, count * sizeof *own, cudaMemcpyDeviceToHost, stream));
    GPU(cudaStreamSynchronize(stream));
    ranks_barrier(self);
    for (int r = 0; r < self->size; r++)
        for (size_t i = 0; i < count; i++)
            sums[i] += office.sums[r][i];
    GPU(cudaMemcpyAsync(recv, sums, count * sizeof *sums, cudaMemcpyHostToDevice, stream));
    GPU(cudaStreamSynchronize(stream));
    ranks_barrier(self);
    free(sums);
    return ALNICO_SUCCESS;
}

/* ---- Passes ---- */

struct result {
    float *gradients, *statistics;
    double scores[2][SCORES]; /* in training, then in inference */
};

struct whole {
    const struct network_case *c;
    size_t batch;
    struct network *network;
    float *images, *parameters;
    int32_t *labels;
};

struct trial {
    const struct mode *mode;
    const struct way *way;
    struct whole whole;
    struct result one, results[MOST_RANKS];
    bool split;
};

static struct replica_setup setup_of(const struct trial *trial, const struct kernels_ops *kernels)
{
    const struct mode *mode = trial->mode;
    const bool gpu = kernels->device == ALNICO_DEVICE_CUDA;
    return (struct replica_setup){.kernels = kernels,
                                  .batch = trial->whole.batch,
                                  .seed = seed,
                                  .options = {.precision = gpu ? mode->precision : PRECISION_FP32,
                                              .threads = 1,
                                              .full_float = mode->full_float,
                                              .loss_scale = 256,
                                              .cache = cache,
                                              .seed = seed},
                                  .gradient_type = gpu ? mode->gradient_type : ALNICO_FLOAT32,
                                  .stream = gpu ? stream : NULL};
}

static float *numbers_read(struct replica *replica, const void *arena, size_t count,
                           alnico_datatype_t type, float scale)
{
    struct vector v = {.count = count, .type = (int)type, .host = calloc(count + 1, sizeof(float))};
    REQUIRE_STATUS(replica_synchronize(replica), ALNICO_SUCCESS);
    v.gpu = (void *)(uintptr_t)arena;
    if (replica->ops->device == ALNICO_DEVICE_CUDA)
        vector_get(&v);
    else
        memcpy(v.host, arena, count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        v.host[i] /= scale;
    return v.host;
}

static void parameters_write(struct replica *replica, const float *whole)
{
    const struct network *network = replica->network;
    float *own = malloc((network->parameters + 1) * sizeof *own);
    REQUIRE(own);
    if (network->part)
        part_take(network, whole, own);
    REQUIRE_STATUS(replica_write(replica, replica->arenas.parameters, network->part ? own : whole,
                                 network->parameters * sizeof *own),
                   ALNICO_SUCCESS);
    free(own);
}

/* In the places of the whole's. What a rank has alone is so many times as large, as the mean over the
 * ranks is taken of all. */
static float *gradients_read(struct replica *replica, float scale)
{
    const struct network *network = replica->network;
    float *own = numbers_read(replica, replica->arenas.gradients, network->parameters,
                              replica->setup.gradient_type, scale);
    if (!network->part)
        return own;
    float *out = calloc(network->part->whole->parameters + 1, sizeof *out);
    REQUIRE(out);
    for (size_t i = network->shared; i < network->parameters; i++)
        own[i] *= (float)network->part->ranks;
    part_give(network, own, out, true);
    free(own);
    return out;
}

static void score_take(struct replica *replica, double *score)
{
    const double nothing[SCORES] = {0};
    REQUIRE_STATUS(replica_read(replica, replica->arenas.score, score, sizeof nothing),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(replica_write(replica, replica->arenas.score, nothing, sizeof nothing),
                   ALNICO_SUCCESS);
}

/* NaN everywhere, where nothing has to be. */
static void poison(struct replica *replica)
{
    const size_t gradients =
        replica->network->parameters * datatype_bytes(replica->setup.gradient_type);
    REQUIRE_STATUS(replica_synchronize(replica), ALNICO_SUCCESS);
    if (replica->ops->device == ALNICO_DEVICE_CUDA) {
        GPU(cudaMemset(replica->arenas.activations, 0xff, replica->plan->bytes));
        GPU(cudaMemset(replica->arenas.gradients, 0xff, gradients));
        GPU(cudaDeviceSynchronize());
    } else {
        memset(replica->arenas.activations, 0xff, replica->plan->bytes);
        memset(replica->arenas.gradients, 0xff, gradients);
    }
}

/* A pass in training and one without, on images from `first` on. */
static void pass_run(const struct trial *trial, struct replica *replica, size_t first, size_t count,
                     struct result *out)
{
    const struct whole *whole = &trial->whole;
    const struct network *network = whole->network;
    const float scale = replica->setup.options.precision == PRECISION_FP16 ? 256 : 1;
    parameters_write(replica, whole->parameters);
    REQUIRE_STATUS(replica_load(replica,
                                whole->images + first * tensor_elements(&network->tensors[0]),
                                whole->labels + first * network->labels, count),
                   ALNICO_SUCCESS);
    poison(replica);
    REQUIRE_STATUS(replica_forward(replica, true), ALNICO_SUCCESS);
    REQUIRE_STATUS(replica_backward(replica, NULL, NULL), ALNICO_SUCCESS);
    score_take(replica, out->scores[0]);
    REQUIRE_STATUS(replica_forward(replica, false), ALNICO_SUCCESS);
    score_take(replica, out->scores[1]);
    out->gradients = gradients_read(replica, scale);
    out->statistics =
        numbers_read(replica, replica->arenas.statistics, network->statistics, ALNICO_FLOAT32, 1);
}

static void result_free(struct result *result)
{
    free(result->gradients);
    free(result->statistics);
    *result = (struct result){.gradients = NULL};
}

static void rank_run(struct rank *rank)
{
    struct trial *trial = rank->argument;
    struct replica_setup setup;
    struct network *network;
    struct replica *replica;
    struct split split = case_split(trial->whole.network, trial->way->text);
    self = rank;
    GPU(cudaSetDevice(0));
    REQUIRE_STATUS(device_cuda.stream_create(&stream), ALNICO_SUCCESS);
    setup = setup_of(trial, &kernels_cudnn);
    setup.comm = setup.norms = (alnico_comm_t)&office; /* none would mean a part by itself */
    split.norm = NORM_ALL;
    const bool possible = network_split(trial->whole.network, &split, (size_t)rank->rank,
                                        trial->way->ranks, &network) == ALNICO_SUCCESS;
    if (possible) {
        REQUIRE_STATUS(replica_create(network, &setup, &replica), ALNICO_SUCCESS);
        const struct box box = part_box(network, 0, (size_t)rank->rank, setup.batch);
        pass_run(trial, replica, (size_t)box.from[AXIS_IMAGES], box_extent(&box, AXIS_IMAGES),
                 &trial->results[rank->rank]);
        ranks_barrier(rank); /* nothing reads its messages any more */
        replica_destroy(replica);
        network_destroy(network);
    }
    if (rank->rank == 0)
        trial->split = possible;
    device_cuda.stream_destroy(stream);
}

/* ---- Comparing ---- */

/* The mean of the ranks' gradients, and the sums of their scores, become rank 0's. */
static void results_join(struct trial *trial)
{
    struct result *all = trial->results;
    for (size_t r = 1; r < trial->way->ranks; r++) {
        for (size_t i = 0; i < trial->whole.network->parameters; i++)
            all[0].gradients[i] += all[r].gradients[i];
        for (int i = 0; i < 2 * SCORES; i++)
            all[0].scores[i / SCORES][i % SCORES] += all[r].scores[i / SCORES][i % SCORES];
    }
    for (size_t i = 0; i < trial->whole.network->parameters; i++)
        all[0].gradients[i] /= (float)trial->way->ranks;
}

/* In float32 tensor by tensor, against the largest gradient of all. */
static void tensors_check(const struct trial *trial, const char *name)
{
    const struct network *network = trial->whole.network;
    const float *expected = trial->one.gradients, *got = trial->results[0].gradients;
    double most = 1e-6;
    for (size_t i = 0; i < network->parameters; i++)
        most = fmax(most, fabs((double)expected[i]));
    for (size_t i = 0; i < network->count; i++) {
        const struct parameter parts[] = {network->nodes[i].weight, network->nodes[i].bias};
        for (int k = 0; k < 2; k++)
            for (size_t j = parts[k].offset; j < parts[k].offset + parts[k].count; j++) {
                const double apart = fabs((double)got[j] - (double)expected[j]);
                if (apart <= trial->mode->gradient * most)
                    continue;
                check_fail("%s: %s of '%s': number %zu is %g, expected %g", name,
                           k ? "bias" : "weights", network->nodes[i].operation.name,
                           j - parts[k].offset, (double)got[j], (double)expected[j]);
                break;
            }
    }
}

static void results_check(struct trial *trial)
{
    const struct mode *mode = trial->mode;
    const struct network *network = trial->whole.network;
    const struct result *one = &trial->one, *joined = &trial->results[0];
    char name[96], text[160];
    snprintf(name, sizeof name, "'%s', batch %zu, by %s, %s", trial->whole.c->name,
             trial->whole.batch, trial->way->text, mode->name);
    results_join(trial);
    snprintf(text, sizeof text, "%s: gradients", name);
    check_distance(text, joined->gradients, one->gradients, network->parameters, mode->gradient,
                   false);
    if (mode->full_float)
        tensors_check(trial, name);
    for (size_t r = 0; r < trial->way->ranks && network->statistics; r++) {
        snprintf(text, sizeof text, "%s: statistics of rank %zu", name, r);
        check_distance(text, trial->results[r].statistics, one->statistics, network->statistics,
                       mode->other, false);
    }
    for (int pass = 0; pass < 2; pass++) {
        const double apart = fabs(joined->scores[pass][SCORE_LOSS] - one->scores[pass][SCORE_LOSS]);
        check_count++;
        if (!(apart <= mode->other * fmax(1, fabs(one->scores[pass][SCORE_LOSS]))) ||
            joined->scores[pass][SCORE_TERMS] != one->scores[pass][SCORE_TERMS])
            check_fail("%s: %s: loss %g of %g labels, expected %g of %g", name,
                       pass ? "inference" : "training", joined->scores[pass][SCORE_LOSS],
                       joined->scores[pass][SCORE_TERMS], one->scores[pass][SCORE_LOSS],
                       one->scores[pass][SCORE_TERMS]);
    }
}

/* ---- Trials ---- */

static void whole_make(struct trial *trial, const struct network_case *c)
{
    struct whole *whole = &trial->whole;
    const bool plain = trial->mode->full_float;
    uint64_t state = seed;
    *whole = (struct whole){.c = c,
                            .batch = trial->way->batch ? trial->way->batch : c->batch,
                            .network = case_network(c)};
    const struct network *network = whole->network;
    const size_t elements = whole->batch * tensor_elements(&network->tensors[0]);
    whole->images = malloc(elements * sizeof *whole->images);
    whole->parameters = malloc((network->parameters + 1) * sizeof *whole->parameters);
    float *statistics = malloc((network->statistics + 1) * sizeof *statistics);
    random_fill(whole->images, elements, &state);
    whole->labels = random_labels(network, whole->batch, &state);
    network_initialize(network, seed, whole->parameters, statistics);
    free(statistics);
    for (size_t i = 0; i < network->parameters; i++)
        whole->parameters[i] += 0.2f * (float)(random_unit(&state) - 0.5);
    const struct replica_setup setup = setup_of(trial, plain ? &kernels_naive : &kernels_cudnn);
    struct replica *replica;
    REQUIRE_STATUS(replica_create(network, &setup, &replica), ALNICO_SUCCESS);
    pass_run(trial, replica, 0, whole->batch, &trial->one);
    replica_destroy(replica);
}

static void whole_free(struct trial *trial)
{
    result_free(&trial->one);
    free(trial->whole.images);
    free(trial->whole.parameters);
    free(trial->whole.labels);
    network_destroy(trial->whole.network);
}

/* Whether the network can be split so. */
static bool trial_run(struct trial *trial, const struct network_case *c)
{
    whole_make(trial, c);
    ranks_run((int)trial->way->ranks, rank_run, trial);
    if (trial->split)
        results_check(trial);
    for (int r = 0; r < MOST_RANKS; r++)
        result_free(&trial->results[r]);
    whole_free(trial);
    return trial->split;
}

/* Where rounding decides at a ReLU or a maximum where a gradient goes, a case is tried with other
 * numbers: what is wrong is wrong with all of them. */
static bool case_run(struct trial *trial, const struct network_case *c)
{
    const uint64_t first = seed;
    bool split = false;
    for (int attempts = trial->mode->full_float ? 1 : ATTEMPTS; attempts > 0; attempts--, seed++) {
        const size_t failures = check_failures;
        check_tentative = attempts > 1;
        split = trial_run(trial, c);
        if (check_failures == failures || attempts == 1)
            break;
        check_failures = failures;
    }
    check_tentative = false;
    seed = first;
    return split;
}

static void way_run(const struct mode *mode, const struct way *way)
{
    const double begin = ranks_seconds();
    size_t splits = 0;
    for (size_t i = 0; i < NETWORK_CASES; i++) {
        struct trial trial = {.mode = mode, .way = way};
        splits += case_run(&trial, &network_cases[i]);
    }
    printf("%s by %s%s: %zu of %d networks, %.1f s\n", mode->name, way->text,
           way->batch ? ", one image" : "", splits, NETWORK_CASES, ranks_seconds() - begin);
    fflush(stdout);
    check_count++;
    if (splits <= NETWORK_CASES * 3 / 4)
        check_fail("%s: only %zu of %d networks can be split", way->text, splits, NETWORK_CASES);
}

/* Whether an argument names it, or none of its kind does. */
static bool wanted(const char *name, bool way, int count, char **arguments)
{
    bool any = false;
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], name) == 0)
            return true;
        any |= (strchr(arguments[i], '=') != NULL) == way;
    }
    return !any;
}

int main(int count, char **arguments)
{
    gpu_require(1);
    count = check_ways(count, arguments);
    seed = test_seed();
    snprintf(cache, sizeof cache, "/tmp/alnico-split-%d-plans", (int)getpid());
    REQUIRE_STATUS(device_cuda.stream_create(&stream), ALNICO_SUCCESS);
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++)
        for (size_t w = modes[m].full_float || count > 1 ? 0 : WAYS - WAYS_OF_ALL; w < WAYS; w++)
            if (wanted(modes[m].name, false, count, arguments) &&
                wanted(ways[w].text, true, count, arguments))
                way_run(&modes[m], &ways[w]);
    remove(cache);
    return check_result("split networks on cuDNN");
}
