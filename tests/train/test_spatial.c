/* Networks split over ranks, which are threads, against one rank with all images: losses, gradients and
 * running statistics, for every network of the test table and every way to split it, by the kernels of
 * the CPU, inline and on streams. */
#include "tests/support/ranks.h"
#include "tests/train/cases.h"

#include "base/status.h"
#include "device/device.h"
#include "train/graph/split.h"
#include "train/kernels/methods.h"
#include "train/models/models.h"
#include "train/replica/replica.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_RANKS = 4 };

static uint64_t seed;

/* A pass over a batch. */
struct result {
    struct outcome outcome;
    float *gradients, *statistics;
};

/* A network with a batch, and what one rank makes of it. */
struct whole {
    const struct network_case *c;
    size_t batch;
    struct network *network;
    float *images;
    int32_t *labels;
    struct result one;
};

/* All networks, split in one way. */
struct trial {
    const struct kernels_ops *kernels;
    const char *way;
    enum norm_group norm;
    size_t ranks;
    bool streamed;
    struct whole *wholes;
    size_t count, splits; /* networks, and those that can be split so */
    /* Of rank 0: steps that run in views, tensors that stand between margins. */
    size_t divided, between;
    bool twice; /* again without: the same bits */
    struct result results[MOST_RANKS];
};

static struct replica_setup setup_of(const struct kernels_ops *kernels, const struct whole *whole)
{
    return (struct replica_setup){.kernels = kernels,
                                  .batch = whole->batch,
                                  .seed = seed,
                                  .options = {.threads = 1, .seed = seed},
                                  .gradient_type = ALNICO_FLOAT32};
}

/* Parameters that are not those of the seed, the same on all ranks. */
static void parameters_shake(struct replica *replica)
{
    const struct network *whole = network_whole(replica->network);
    float *all = malloc(2 * whole->parameters * sizeof *all + 1), *own = all + whole->parameters;
    uint64_t state = seed;
    for (size_t i = 0; i < whole->parameters; i++)
        own[i] = all[i] = 0.2f * (float)(random_unit(&state) - 0.5);
    if (replica->network->part)
        part_take(replica->network, all, own);
    for (size_t i = 0; i < replica->network->parameters; i++)
        replica->arenas.parameters[i] += own[i];
    free(all);
}

/* A rank's gradients in the places of the whole's. Of what it has alone they are so many times as large,
 * as the mean over the ranks is taken of all. */
static float *gradients_of(const struct replica *replica)
{
    const struct network *network = replica->network, *whole = network_whole(network);
    const float *gradients = replica->arenas.gradients;
    float *out = calloc(whole->parameters + 1, sizeof *out),
          *own = malloc(network->parameters * sizeof *own + 1);
    for (size_t i = 0; i < network->parameters; i++)
        own[i] = gradients[i] * (i < network->shared ? 1 : (float)network->part->ranks);
    if (network->part)
        part_give(network, own, out, true);
    else
        memcpy(out, own, network->parameters * sizeof *out);
    free(own);
    return out;
}

/* A pass on images from `first` on. */
static void pass_run(const struct whole *whole, struct replica *replica, size_t first, size_t count,
                     struct result *out)
{
    const float *images = whole->images + first * tensor_elements(&whole->network->tensors[0]);
    const int32_t *labels = whole->labels + first * whole->network->labels;
    const size_t parameters = replica->network->parameters * sizeof(float),
                 statistics = replica->network->statistics * sizeof(float);
    parameters_shake(replica);
    REQUIRE_STATUS(replica_load(replica, images, labels, count), ALNICO_SUCCESS);
    REQUIRE_STATUS(replica_synchronize(replica), ALNICO_SUCCESS);
    memset(replica->arenas.activations, 0xff, replica->plan->bytes);
    memset(replica->arenas.gradients, 0xff, parameters);
    REQUIRE_STATUS(replica_forward(replica, true), ALNICO_SUCCESS);
    REQUIRE_STATUS(replica_backward(replica, NULL, NULL), ALNICO_SUCCESS);
    REQUIRE_STATUS(replica_synchronize(replica), ALNICO_SUCCESS);
    out->outcome = replica_outcome(replica);
    REQUIRE_STATUS(replica_forward(replica, false), ALNICO_SUCCESS); /* leaves the statistics */
    REQUIRE_STATUS(replica_synchronize(replica), ALNICO_SUCCESS);
    out->gradients = gradients_of(replica);
    out->statistics = malloc(statistics + 1);
    memcpy(out->statistics, replica->arenas.statistics, statistics);
}

static void result_free(struct result *result)
{
    free(result->gradients);
    free(result->statistics);
    *result = (struct result){0};
}

/* The largest difference of two arrays, over the largest number of the first. */
static double difference(const float *a, const float *b, size_t count)
{
    double most = 1e-6, apart = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)a[i]));
        apart = fmax(apart, fabs((double)a[i] - (double)b[i]));
        if (!isfinite(b[i]))
            return INFINITY;
    }
    return apart / most;
}

/* The largest difference of a tensor's gradients over the largest of them, or a share of the largest of
 * all: of plain loops, which sum in float64, a hundredth; of a library all, since gradients that are
 * small because large terms cancel have the rounding of those. */
static double gradients_differ(const struct network *network, const float *a, const float *b,
                               bool plain)
{
    double most = 1e-6, apart = 0;
    for (size_t i = 0; i < network->parameters; i++)
        most = fmax(most, fabs((double)a[i]));
    for (size_t i = 0; i < network->count; i++) {
        const struct parameter parts[] = {network->nodes[i].weight, network->nodes[i].bias};
        for (int k = 0; k < 2; k++) {
            double own = plain ? most / 100 : most, far = 0;
            for (size_t j = parts[k].offset; j < parts[k].offset + parts[k].count; j++) {
                own = fmax(own, fabs((double)a[j]));
                far = isfinite(b[j]) ? fmax(far, fabs((double)a[j] - (double)b[j])) : INFINITY;
            }
            apart = fmax(apart, far / own);
        }
    }
    return apart;
}

/* The mean of the ranks' gradients, and the sum of their outcomes, become rank 0's. */
static void results_join(struct trial *trial, const struct whole *whole)
{
    struct result *all = trial->results;
    for (size_t i = 0; i < whole->network->parameters; i++) {
        double sum = 0;
        for (size_t r = 0; r < trial->ranks; r++)
            sum += (double)all[r].gradients[i];
        all[0].gradients[i] = (float)(sum / (double)trial->ranks);
    }
    for (size_t r = 1; r < trial->ranks; r++) {
        all[0].outcome.loss += all[r].outcome.loss;
        all[0].outcome.correct += all[r].outcome.correct;
        all[0].outcome.count += all[r].outcome.count;
    }
}

/* Against what one rank made of all images. */
static void results_check(struct trial *trial, const struct whole *whole)
{
    const struct result *one = &whole->one, *joined = &trial->results[0];
    const struct network *network = whole->network;
    results_join(trial, whole);
    const double gradients = gradients_differ(network, one->gradients, joined->gradients,
                                              trial->kernels == &kernels_naive),
                 loss = fabs(one->outcome.loss - joined->outcome.loss) /
                        fmax(fabs(one->outcome.loss), 1);
    double statistics = 0;
    for (size_t r = 0; r < trial->ranks; r++)
        statistics = fmax(statistics, difference(one->statistics, trial->results[r].statistics,
                                                 network->statistics));
    if (gradients < 2e-5 && loss < 2e-5 && statistics < 2e-5 &&
        one->outcome.count == joined->outcome.count)
        return;
    printf("'%s' by %s, %s%s: gradients differ by %g, the loss by %g, statistics by %g; %zu labels "
           "of %zu\n",
           whole->c->name, trial->way, trial->kernels->name, trial->streamed ? " on streams" : "",
           gradients, loss, statistics, joined->outcome.count, one->outcome.count);
    fflush(stdout);
    REQUIRE(false);
}

/* This rank's part of a network, in a pass over its images. False: it cannot be split so. */
static bool part_run(struct trial *trial, const struct whole *whole, const struct rank *rank,
                     struct replica_setup setup, struct result *result)
{
    struct network *network;
    struct replica *replica;
    struct split split = case_split(whole->network, trial->way);
    split.norm = trial->norm;
    if (network_split(whole->network, &split, (size_t)rank->rank, trial->ranks, &network))
        return false;
    REQUIRE_STATUS(replica_create(network, &setup, &replica), ALNICO_SUCCESS);
    const struct box box = part_box(network, 0, (size_t)rank->rank, setup.batch);
    pass_run(whole, replica, (size_t)box.from[AXIS_IMAGES], box_extent(&box, AXIS_IMAGES), result);
    const struct plan *plan = replica->plan;
    for (size_t s = 0; rank->rank == 0 && s < plan->count; s++)
        trial->divided += plan->steps[s].view_count > 0;
    for (size_t t = 1; rank->rank == 0 && setup.kernels->rules.within && t <= network->count; t++)
        trial->between += setup.kernels->rules.within(plan, t).whole > 0;
    replica_destroy(replica);
    network_destroy(network);
    return true;
}

static void rank_run(struct rank *rank)
{
    struct trial *trial = rank->argument;
    const struct device_ops *device = device_find(ALNICO_DEVICE_CPU);
    void *stream = NULL;
    if (trial->streamed)
        REQUIRE_STATUS(device->stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, stream);
    for (size_t i = 0; i < trial->count; i++) {
        const struct whole *whole = &trial->wholes[i];
        struct replica_setup setup = setup_of(trial->kernels, whole);
        setup.stream = stream;
        setup.comm = setup.norms = comm;
        struct result *result = &trial->results[rank->rank], again;
        const bool run = part_run(trial, whole, rank, setup, result);
        setup.late = true;
        if (run && trial->twice && part_run(trial, whole, rank, setup, &again)) {
            const struct network *network = whole->network;
            REQUIRE(memcmp(result->gradients, again.gradients,
                           network->parameters * sizeof(float)) == 0);
            REQUIRE(memcmp(result->statistics, again.statistics,
                           network->statistics * sizeof(float)) == 0);
            REQUIRE(result->outcome.loss == again.outcome.loss);
            result_free(&again);
        }
        ranks_barrier(rank);
        if (run && rank->rank == 0) {
            results_check(trial, whole);
            trial->splits++;
        }
        ranks_barrier(rank);
        result_free(result);
    }
    alnico_comm_destroy(comm);
    if (stream)
        device->stream_destroy(stream);
}

/* The last rank does not come to a pass: the others find out in the first move, by name. */
static void rank_lost(struct rank *rank)
{
    const struct trial *trial = rank->argument;
    const struct whole *whole = trial->wholes;
    struct replica_setup setup = setup_of(trial->kernels, whole);
    struct network *network;
    struct replica *replica;
    struct split split;
    setup.comm = setup.norms = ranks_comm(rank, NULL);
    REQUIRE_STATUS(split_parse(trial->way, &split), ALNICO_SUCCESS);
    REQUIRE_STATUS(
        network_split(whole->network, &split, (size_t)rank->rank, trial->ranks, &network),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(replica_create(network, &setup, &replica), ALNICO_SUCCESS);
    if (rank->rank + 1 < rank->size) {
        char name[32];
        snprintf(name, sizeof name, "rank %d", rank->size - 1);
        REQUIRE_STATUS(replica_forward(replica, true), ALNICO_ERROR_TIMEOUT);
        ranks_require_detail(name);
    }
    ranks_barrier(rank);
    replica_destroy(replica);
    network_destroy(network);
    alnico_comm_destroy(setup.comm);
}

static struct whole whole_make(const struct network_case *c, const struct kernels_ops *kernels,
                               size_t batch)
{
    struct whole whole = {.c = c, .batch = batch, .network = case_network(c)};
    const size_t elements = batch * tensor_elements(&whole.network->tensors[0]);
    struct replica *replica;
    uint64_t state = seed;
    whole.images = malloc(elements * sizeof *whole.images);
    random_fill(whole.images, elements, &state);
    whole.labels = random_labels(whole.network, batch, &state);
    const struct replica_setup setup = setup_of(kernels, &whole);
    REQUIRE_STATUS(replica_create(whole.network, &setup, &replica), ALNICO_SUCCESS);
    pass_run(&whole, replica, 0, batch, &whole.one);
    replica_destroy(replica);
    return whole;
}

static void whole_free(struct whole *whole)
{
    result_free(&whole->one);
    free(whole->images);
    free(whole->labels);
    network_destroy(whole->network);
}

static const struct way {
    const char *text;
    size_t ranks;
} ways[] = {{"images=2", 2},        {"rows=2", 2},     {"columns=2", 2},
            {"rows=3", 3},          {"rows=4", 4},     {"rows=2,columns=2", 4},
            {"images=2,rows=2", 4}, {"channels=2", 2}, {"channels=3", 3}};
enum { WAYS = sizeof ways / sizeof *ways };

/* Most networks can be split in most ways; by the plain loops many operations run in views. Batch 0: each
 * network's; of one image rows that stand in one piece are not copied. */
static void networks_check(const struct kernels_ops *kernels, bool streamed, size_t batch)
{
    const bool plain = kernels == &kernels_naive;
    struct whole wholes[NETWORK_CASES];
    size_t splits = 0, divided = 0, between = 0;
    for (size_t i = 0; i < NETWORK_CASES; i++)
        wholes[i] = whole_make(&network_cases[i], kernels, batch ? batch : network_cases[i].batch);
    for (size_t w = 0; w < WAYS; w++) {
        struct trial trial = {.kernels = kernels,
                              .way = ways[w].text,
                              .norm = NORM_ALL,
                              .ranks = ways[w].ranks,
                              .streamed = streamed,
                              .twice = plain && ways[w].ranks > 2,
                              .wholes = wholes,
                              .count = NETWORK_CASES};
        ranks_run((int)trial.ranks, rank_run, &trial);
        splits += trial.splits;
        divided += trial.divided;
        between += trial.between;
    }
    for (size_t i = 0; i < NETWORK_CASES; i++)
        whole_free(&wholes[i]);
    assert_true(splits > NETWORK_CASES * WAYS * 3 / 4);
    printf("%s: %zu of rank 0's steps run in views, %zu tensors stand between margins\n",
           kernels->name, divided, between);
    assert_true(!plain || divided > 50);
}

static void plain_loops(void **unused)
{
    (void)unused;
    networks_check(&kernels_naive, false, 0);
}

static void library(void **unused)
{
    (void)unused;
    networks_check(kernels_default(ALNICO_DEVICE_CPU), false, 0);
}

static void library_on_streams(void **unused)
{
    (void)unused;
    networks_check(kernels_default(ALNICO_DEVICE_CPU), true, 0);
}

static void library_on_one_image(void **unused)
{
    (void)unused;
    networks_check(kernels_default(ALNICO_DEVICE_CPU), false, 1);
}

/* ---- What is computed while a halo travels ---- */

static struct {
    bool travels;
    size_t interiors, parameters; /* while it does */
    size_t borders;               /* behind it */
} seen;

static alnico_status_t halo_starts(void *context, size_t step, bool backward)
{
    (void)context;
    (void)step;
    (void)backward;
    seen.travels = true;
    return ALNICO_SUCCESS;
}

static alnico_status_t halo_ends(void *context, enum phase ended)
{
    (void)context;
    seen.travels &= ended != PHASE_HALO;
    return ALNICO_SUCCESS;
}

static alnico_status_t interior_watched(void *self, size_t step)
{
    seen.interiors += seen.travels;
    return kernels_naive.forward_interior(self, step);
}

static alnico_status_t border_watched(void *self, size_t step)
{
    seen.borders += !seen.travels;
    return kernels_naive.forward_border(self, step);
}

static alnico_status_t parameters_watched(void *self, size_t step)
{
    seen.parameters += seen.travels;
    return kernels_onednn.backward_parameters(self, step);
}

/* A pass in training of rows in the middle, by themselves: one convolution reads a halo. */
static void pass_watch(const struct kernels_ops *kernels, bool late)
{
    const struct operation operations[] = {CONVOLUTION("a", "input", 2, 3, 1, 1, false),
                                           CONVOLUTION("b", "a", 2, 3, 1, 1, false), LOSS("b")};
    const struct replica_setup setup = {
        .kernels = kernels, .batch = 2, .late = late, .gradient_type = ALNICO_FLOAT32};
    const float images[2 * 12 * 12] = {1};
    const int32_t labels[2 * 12 * 12] = {0};
    struct network *whole, *part;
    struct replica *replica;
    struct split split;
    REQUIRE_STATUS(network_create(12, 12, 1, &whole), ALNICO_SUCCESS);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        REQUIRE_STATUS(network_append(whole, &operations[i]), ALNICO_SUCCESS);
    REQUIRE_STATUS(network_finish(whole), ALNICO_SUCCESS);
    REQUIRE_STATUS(split_parse("rows=3", &split), ALNICO_SUCCESS);
    REQUIRE_STATUS(network_split(whole, &split, 1, 3, &part), ALNICO_SUCCESS);
    REQUIRE_STATUS(replica_create(part, &setup, &replica), ALNICO_SUCCESS);
    replica->waiting = (struct replica_waiting){.mark = halo_ends, .start = halo_starts};
    memset(&seen, 0, sizeof seen);
    REQUIRE_STATUS(replica_load(replica, images, labels, 2), ALNICO_SUCCESS);
    REQUIRE_STATUS(replica_forward(replica, true), ALNICO_SUCCESS);
    REQUIRE_STATUS(replica_backward(replica, NULL, NULL), ALNICO_SUCCESS);
    replica_destroy(replica);
    network_destroy(part);
    network_destroy(whole);
}

/* Interiors forward, gradients of weights backward; unless gradients travel by themselves. */
static void halos_travel_beside_computing(void **unused)
{
    (void)unused;
    for (int late = 0; late < 2; late++) {
        struct kernels_ops plain = kernels_naive, library = kernels_onednn;
        plain.forward_interior = interior_watched;
        plain.forward_border = border_watched;
        library.backward_parameters = parameters_watched;
        pass_watch(&plain, late);
        assert_int_equal(seen.interiors, !late);
        assert_int_equal(seen.borders, !late);
        pass_watch(&library, late);
        assert_int_equal(seen.parameters, !late);
    }
}

/* The convolutions of a mesh network that make their interior by themselves. */
static size_t divided_of(size_t side, size_t *between)
{
    struct model model;
    struct network *whole, *part;
    struct plan *plan;
    struct split split;
    size_t divided = 0;
    char name[32];
    snprintf(name, sizeof name, "mesh:%zu", side);
    assert_true(model_find(name, &model));
    REQUIRE_STATUS(model_network(&model, side, side, 18, 2, &whole), ALNICO_SUCCESS);
    REQUIRE_STATUS(split_parse("rows=2", &split), ALNICO_SUCCESS);
    REQUIRE_STATUS(network_split(whole, &split, 1, 2, &part), ALNICO_SUCCESS);
    REQUIRE_STATUS(plan_create(part, &kernels_onednn.rules, 1, PRECISION_FP32, &plan),
                   ALNICO_SUCCESS);
    for (size_t s = 0; s < plan->count; s++)
        divided += plan->steps[s].view_count > 0;
    *between = 0;
    for (size_t t = 1; t <= part->count; t++)
        *between += kernels_onednn.rules.within(plan, t).whole > 0;
    plan_destroy(plan);
    network_destroy(part);
    network_destroy(whole);
    return divided;
}

/* Unless all are asked for: of the first blocks, not of those with few pixels and many weights. */
static void interiors_are_where_they_pay(void **unused)
{
    (void)unused;
    size_t between;
    const bool asked = method_number(METHOD_INTERIOR) == 2;
    const size_t small = divided_of(256, &between);
    if (!between)
        return; /* channels stand in blocks */
    const size_t large = divided_of(2048, &between);
    printf("convolutions in views: %zu of mesh:256, %zu of mesh2k\n", small, large);
    assert_true(small > 4 && large > small && (asked || small < 14));
}

static void lost_ranks_are_named(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < NETWORK_CASES; i++)
        if (strcmp(network_cases[i].name, "a small mesh") == 0) {
            struct whole whole = whole_make(&network_cases[i], &kernels_naive, 1);
            struct trial trial = {
                .kernels = &kernels_naive, .way = "rows=2", .ranks = 2, .wholes = &whole};
            ranks_run(2, rank_lost, &trial);
            whole_free(&whole);
            return;
        }
    fail();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest lost[] = {cmocka_unit_test(lost_ranks_are_named)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halos_travel_beside_computing),
        cmocka_unit_test(interiors_are_where_they_pay),
        cmocka_unit_test(plain_loops),
        cmocka_unit_test(library),
        cmocka_unit_test(library_on_streams),
        cmocka_unit_test(library_on_one_image),
    };
    seed = test_seed();
    if (argc > 1 && strcmp(argv[1], "lost") == 0)
        return cmocka_run_group_tests(lost, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
