/* The update on a GPU against formulas in float64: every optimizer with every type of gradients and
 * of working weights, weight decay, LARS, clipping, a fixed and a searched loss scale with an
 * update that is skipped, launched one by one and as a graph that is replayed; and a replica's
 * update against the CPU's. Prints every difference and goes on. */
#include "tests/gpu/train/check.h"
#include "tests/train/cases.h"
#include "tests/train/formulas.h"

#include "train/base/random.h"
#include "train/kernels/cuda/launch.h"
#include "train/replica/replica.h"

#include <math.h>
#include <string.h>

enum { PIECES = 4, CHUNKS = 16, STEPS = 4, SKIPPED = 2 };

/* Weights, biases, weights: sizes around a chunk's, and beginnings that are no multiples of 8. */
static const size_t sizes[PIECES] = {3 * TRAIN_CHUNK + 5, 17, 3, 1000};

static bool is_weight(size_t piece)
{
    return piece != 1;
}

static const int types[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
static struct train_gpu gpu;
static uint64_t state;

/* One way of updating. */
struct way {
    struct optimizer_options options;
    int gradient_type, working_type;
    bool find;  /* the loss scale is searched, and one update skipped */
    bool graph; /* replays */
};

static const char *say(const struct way *way, const char *part)
{
    static char text[160];
    snprintf(text, sizeof text, "%s, %s to %s, decay %g, trust %g, clip %g%s%s: %s",
             optimizers_all[way->options.kind]->name, type_name(way->gradient_type),
             type_name(way->working_type), way->options.decay, way->options.trust,
             way->options.clip, way->find ? ", search" : "", way->graph ? ", graph" : "", part);
    return text;
}

/* The arenas on the GPU, and what is expected of them. */
struct bench {
    struct way way;
    struct vector p, g, s[OPTIMIZER_STATES], working;
    struct train_update update;
    struct train_chunk *chunks;
    struct train_segment *segments;
    size_t total;
    double *expected, *states[OPTIMIZER_STATES];
    int updates; /* not skipped */
};

static double *doubles_of(const struct vector *v)
{
    double *all = calloc(v->count + 1, sizeof *all);
    for (size_t i = 0; all && i < v->count; i++)
        all[i] = v->host[i];
    if (!all)
        exit(EXIT_FAILURE);
    return all;
}

static void *gpu_zeros(size_t bytes)
{
    void *memory;
    GPU(cudaMalloc(&memory, bytes));
    GPU(cudaMemset(memory, 0, bytes));
    return memory;
}

static void tables_make(struct bench *b)
{
    struct train_chunk chunks[CHUNKS] = {0};
    struct train_segment segments[PIECES];
    struct train_update *u = &b->update;
    size_t at = 0;
    for (uint32_t s = 0; s < PIECES; at += sizes[s++]) {
        segments[s] = (struct train_segment){.first = u->chunk_count, .decays = is_weight(s)};
        for (size_t done = 0; done < sizes[s]; done += TRAIN_CHUNK)
            chunks[u->chunk_count++] = (struct train_chunk){
                at + done,
                (uint32_t)(sizes[s] - done < TRAIN_CHUNK ? sizes[s] - done : TRAIN_CHUNK),
                is_weight(s), s};
        segments[s].chunks = u->chunk_count - segments[s].first;
    }
    b->chunks = gpu_zeros(sizeof chunks);
    b->segments = gpu_zeros(sizeof segments);
    GPU(cudaMemcpy(b->chunks, chunks, sizeof chunks, cudaMemcpyHostToDevice));
    GPU(cudaMemcpy(b->segments, segments, sizeof segments, cudaMemcpyHostToDevice));
    u->chunks = b->chunks;
    u->segments = b->segments;
    u->segment_count = PIECES;
}

/* As the cuDNN kernels describe an update. */
static void update_describe(struct bench *b)
{
    const struct optimizer_options *o = &b->way.options;
    struct train_update *u = &b->update;
    tables_make(b);
    u->parameters = b->p.gpu;
    for (size_t i = 0; i < OPTIMIZER_STATES; i++)
        u->states[i] = i < optimizers_all[o->kind]->states ? b->s[i].gpu : NULL;
    u->gradients = b->g.gpu;
    u->working = b->working.gpu;
    u->count = b->total;
    u->gradient_type = b->way.gradient_type;
    u->working_type = b->way.working_type;
    u->optimizer = (int)o->kind;
    u->rule = optimizer_rule(o);
    u->rule.decay = (float)o->decay;
    u->beta1 = o->beta1;
    u->beta2 = o->beta2;
    u->trust = (float)o->trust;
    u->clip = (float)o->clip;
    u->counts = optimizers_all[o->kind]->counts;
    u->sums = gpu_zeros((2 * CHUNKS + PIECES) * sizeof *u->sums);
    u->numbers = gpu_zeros(UPDATE_NUMBERS * sizeof *u->numbers);
    u->bad = gpu_zeros(sizeof *u->bad);
    u->find_scale = b->way.find;
}

static struct bench bench_make(const struct way *way)
{
    struct bench b = {.way = *way};
    for (size_t s = 0; s < PIECES; s++)
        b.total += sizes[s];
    b.p = vector_random(b.total, ALNICO_FLOAT32, &state, 0, 1);
    b.g = vector_make(b.total, way->gradient_type);
    b.working = vector_poisoned(b.total, way->working_type);
    b.expected = doubles_of(&b.p);
    for (size_t i = 0; i < OPTIMIZER_STATES; i++) {
        b.s[i] = vector_random(b.total, ALNICO_FLOAT32, &state, 0, 0); /* zeros */
        b.states[i] = doubles_of(&b.s[i]);
    }
    update_describe(&b);
    return b;
}

static void bench_free(struct bench *b)
{
    struct vector *const all[] = {&b->p, &b->g, &b->working, &b->s[0], &b->s[1]};
    void *const memory[] = {b->chunks, b->segments, b->update.sums, b->update.numbers,
                            b->update.bad};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vector_free(all[i]);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        GPU(cudaFree(memory[i]));
    free(b->expected);
    free(b->states[0]);
    free(b->states[1]);
}

static double sum_squares(const double *expected, const float *x, double factor, size_t begin,
                          size_t count)
{
    double sum = 0;
    for (size_t i = begin; i < begin + count; i++)
        sum += expected ? expected[i] * expected[i] : factor * x[i] * factor * x[i];
    return sum;
}

/* An update in float64, of gradients that are divided by `scale`. */
static void bench_expect(struct bench *b, double rate, double scale)
{
    const struct optimizer_options *o = &b->way.options;
    const double norm = sqrt(sum_squares(NULL, b->g.host, 1 / scale, 0, b->total)),
                 clip = o->clip > 0 && norm + 1e-6 > o->clip ? o->clip / (norm + 1e-6) : 1;
    size_t at = 0;
    b->updates++;
    for (size_t s = 0; s < PIECES; at += sizes[s++]) {
        const double decay = is_weight(s) ? o->decay : 0,
                     w = sqrt(sum_squares(b->expected, NULL, 1, at, sizes[s])),
                     g = sqrt(sum_squares(NULL, b->g.host, clip / scale, at, sizes[s])),
                     trust = is_weight(s) && o->trust > 0 ? o->trust * w / (g + decay * w) : 1;
        for (size_t i = at; i < at + sizes[s]; i++)
            optimizer_formula(o, rate, b->updates, trust * clip / scale * b->g.host[i],
                              trust * decay, &b->expected[i], &b->states[0][i], &b->states[1][i]);
    }
}

/* New gradients, a few of them infinite if the update is to be skipped. */
static void gradients_put(struct bench *b, bool infinite)
{
    for (size_t i = 0; i < b->total; i++)
        b->g.host[i] = (float)(100 * (2 * random_unit(&state) - 1));
    if (infinite)
        b->g.host[b->total - 3] = INFINITY;
    vector_put(&b->g);
}

static void controls_check(const struct bench *b, const float *control, double scale, double good)
{
    const bool counts = optimizers_all[b->way.options.kind]->counts;
    const double wanted[CONTROLS] = {[CONTROL_RATE] = (double)control[CONTROL_RATE],
                                     [CONTROL_LOSS_SCALE] = scale,
                                     [CONTROL_GOOD_STEPS] = good,
                                     [CONTROL_UPDATES] = counts ? b->updates : 0};
    check_close(say(&b->way, "rate, loss scale, good steps, updates"), control, wanted, CONTROLS, 0,
                0);
}

static void bench_compare(struct bench *b)
{
    static const char *const names[OPTIMIZER_STATES] = {"first state", "second state"};
    vector_get(&b->p);
    vector_get(&b->working);
    check_close(say(&b->way, "parameters"), b->p.host, b->expected, b->total, 1e-5, 1e-5);
    check_close(say(&b->way, "working"), b->working.host, b->expected, b->total, 1e-5,
                type_epsilon(b->way.working_type) + 1e-5);
    for (size_t i = 0; i < optimizers_all[b->way.options.kind]->states; i++) {
        vector_get(&b->s[i]);
        check_close(say(&b->way, names[i]), b->s[i].host, b->states[i], b->total, 1e-6, 1e-5);
    }
}

static cudaGraphExec_t update_capture(const struct train_update *update)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    GPU(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
    const int error = train_update(&gpu, update);
    GPU(cudaStreamEndCapture(gpu.stream, &graph));
    launched(gpu.stream, error, "train_update, captured");
    GPU(cudaGraphInstantiate(&executable, graph, 0));
    GPU(cudaGraphDestroy(graph));
    return executable;
}

/* After the first update the searched loss scale has been good often enough to be doubled. */
static void way_check(const struct way *way)
{
    const int multiprocessors = gpu.multiprocessors;
    if (way->graph)
        gpu.multiprocessors = 1; /* blocks have several chunks each */
    struct bench b = bench_make(way);
    float control[CONTROLS] = {[CONTROL_LOSS_SCALE] = 128, [CONTROL_GOOD_STEPS] = 1999};
    double scale = 128, good = 1999;
    cudaGraphExec_t graph = way->graph ? update_capture(&b.update) : NULL;
    launched(gpu.stream, train_refresh(&gpu, &b.update), "train_refresh");
    for (int step = 0; step < STEPS; step++) {
        const bool skip = way->find && step == SKIPPED;
        control[CONTROL_RATE] = (float)way->options.rate / (float)(step + 1);
        GPU(cudaMemcpy(gpu.control, control, sizeof control, cudaMemcpyHostToDevice));
        gradients_put(&b, skip);
        if (!skip)
            bench_expect(&b, (double)control[CONTROL_RATE], scale);
        if (graph)
            GPU(cudaGraphLaunch(graph, gpu.stream));
        launched(gpu.stream, graph ? cudaSuccess : train_update(&gpu, &b.update), "train_update");
        if (way->find) {
            scale *= step == 0 ? 2 : skip ? 0.5 : 1;
            good = step == 0 || skip ? 0 : good + 1;
        }
        GPU(cudaMemcpy(control, gpu.control, sizeof control, cudaMemcpyDeviceToHost));
        controls_check(&b, control, scale, good);
    }
    bench_compare(&b);
    if (graph)
        GPU(cudaGraphExecDestroy(graph));
    gpu.multiprocessors = multiprocessors;
    bench_free(&b);
}

/* ---- Bandwidth, printed ---- */

enum { LARGE = 6250 * TRAIN_CHUNK, REPLAYS = 20, IN_GRAPH = 10 }; /* about ResNet-50's parameters */

/* Seconds of one of a graph's launches, the least of some replays. */
static double graph_seconds(cudaGraphExec_t graph)
{
    cudaEvent_t begin, end;
    float least = HUGE_VALF, ms;
    GPU(cudaEventCreate(&begin));
    GPU(cudaEventCreate(&end));
    for (int i = 0; i < REPLAYS; i++) {
        GPU(cudaEventRecord(begin, gpu.stream));
        GPU(cudaGraphLaunch(graph, gpu.stream));
        GPU(cudaEventRecord(end, gpu.stream));
        GPU(cudaEventSynchronize(end));
        GPU(cudaEventElapsedTime(&ms, begin, end));
        least = fminf(least, ms);
    }
    GPU(cudaEventDestroy(begin));
    GPU(cudaEventDestroy(end));
    return 1e-3 * (double)least / IN_GRAPH;
}

/* update NULL: a copy between two vectors of LARGE float32. */
static double seconds_of(const struct train_update *update, float *to, const float *from)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    GPU(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < IN_GRAPH; i++)
        if (update)
            train_update(&gpu, update);
        else
            GPU(cudaMemcpyAsync(to, from, LARGE * sizeof *to, cudaMemcpyDeviceToDevice,
                                gpu.stream));
    GPU(cudaStreamEndCapture(gpu.stream, &graph));
    GPU(cudaGraphInstantiate(&executable, graph, 0));
    const double seconds = graph_seconds(executable);
    GPU(cudaGraphExecDestroy(executable));
    GPU(cudaGraphDestroy(graph));
    return seconds;
}

static void chunks_fill(struct train_update *update)
{
    struct train_chunk *chunks = calloc(LARGE / TRAIN_CHUNK, sizeof *chunks);
    const struct train_segment segment = {.chunks = LARGE / TRAIN_CHUNK, .decays = 1};
    void *on_gpu = gpu_zeros(LARGE / TRAIN_CHUNK * sizeof *chunks),
         *segment_on_gpu = gpu_zeros(sizeof segment);
    for (size_t i = 0; i < LARGE / TRAIN_CHUNK; i++)
        chunks[i] = (struct train_chunk){i * TRAIN_CHUNK, TRAIN_CHUNK, 1, 0};
    GPU(cudaMemcpy(on_gpu, chunks, LARGE / TRAIN_CHUNK * sizeof *chunks, cudaMemcpyHostToDevice));
    GPU(cudaMemcpy(segment_on_gpu, &segment, sizeof segment, cudaMemcpyHostToDevice));
    update->chunks = on_gpu;
    update->segments = segment_on_gpu;
    update->chunk_count = LARGE / TRAIN_CHUNK;
    update->segment_count = 1;
    free(chunks);
}

/* Every optimizer in fp32, and with gradients and working weights in bf16. */
static void bandwidths_print(void)
{
    float *arenas[4]; /* parameters, states, gradients */
    void *working = gpu_zeros(LARGE * sizeof(uint16_t));
    const float control[CONTROLS] = {[CONTROL_LOSS_SCALE] = 1};
    struct train_update update = {.working_type = ALNICO_FLOAT32, .count = LARGE};
    for (int i = 0; i < 4; i++)
        arenas[i] = gpu_zeros(LARGE * sizeof(float));
    GPU(cudaMemcpy(gpu.control, control, sizeof control, cudaMemcpyHostToDevice));
    chunks_fill(&update);
    update.parameters = arenas[0];
    update.states[0] = arenas[1];
    update.states[1] = arenas[2];
    update.gradients = arenas[3];
    update.numbers = gpu_zeros(UPDATE_NUMBERS * sizeof *update.numbers);
    const double copy = 2e-9 * LARGE * sizeof(float) / seconds_of(NULL, arenas[0], arenas[1]);
    printf("copy: %.0f GB/s\n", copy);
    for (int kind = 0; kind < OPTIMIZERS; kind++)
        for (int narrow = 0; narrow < 2; narrow++) {
            const struct optimizer_options options =
                optimizer_defaults((enum optimizer_kind)kind, 128);
            const double bytes = LARGE * (8.0 + 8.0 * (double)optimizers_all[kind]->states + 4);
            update.optimizer = kind;
            update.rule = optimizer_rule(&options);
            update.counts = optimizers_all[kind]->counts;
            update.gradient_type = update.working_type = narrow ? ALNICO_BFLOAT16 : ALNICO_FLOAT32;
            update.working = narrow ? working : NULL;
            const double seconds = seconds_of(&update, NULL, NULL);
            printf("%s, %s: %.1f us, %.0f GB/s, %.2f of a copy\n", optimizers_all[kind]->name,
                   type_name(update.gradient_type), 1e6 * seconds, 1e-9 * bytes / seconds,
                   1e-9 * bytes / seconds / copy);
        }
}

static void optimizer_check_types(struct optimizer_options options)
{
    for (size_t g = 0; g < 3; g++)
        for (size_t w = 0; w < 3; w++)
            for (int find = 0; find <= (types[w] == ALNICO_FLOAT16); find++)
                way_check(&(struct way){options, types[g], types[w], find, (g + w) % 2 == 0});
}

/* ---- Through a replica ---- */

static void require(alnico_status_t status, const char *doing)
{
    if (status == ALNICO_SUCCESS)
        return;
    printf("FAIL %s: %s\n", doing, alnico_error_detail());
    exit(EXIT_FAILURE);
}

static struct replica *replica_open(const struct network *network, enum optimizer_kind kind,
                                    enum precision precision)
{
    struct replica *replica;
    const struct replica_setup setup = {.kernels = &kernels_cudnn,
                                        .batch = 2,
                                        .seed = 7,
                                        .options = {.precision = precision, .loss_scale = 64},
                                        .gradient_type = types[precision],
                                        .optimizer = kind,
                                        .stream = gpu.stream};
    require(replica_create(network, &setup, &replica), "making a replica");
    return replica;
}

/* The same update of the same parameters and gradients by the CPU. */
struct twin {
    float *parameters, *states[OPTIMIZER_STATES], *gradients;
};

static void twin_update(struct twin *twin, const struct replica *replica,
                        const struct optimizer_options *options, double updates, float scale)
{
    const size_t count = replica->network->parameters;
    for (size_t i = 0; i < count; i++)
        twin->gradients[i] /= scale;
    const struct optimizer_update update = {.network = replica->network,
                                            .options = options,
                                            .rate = (float)options->rate,
                                            .updates = updates,
                                            .parameters = twin->parameters,
                                            .states = twin->states,
                                            .gradients = twin->gradients};
    if (!optimizer_update(&update))
        check_fail("the CPU's parameters are not finite");
}

/* Terms of a sum may cancel: what is left is as far off as they were, each rounding half a last
 * place of the largest number. */
enum { ROUNDINGS = 4 };

static void twin_compare(struct replica *replica, const char *part, const float *arena,
                         const float *expected)
{
    const size_t count = replica->network->parameters;
    struct vector got = vector_make(count, ALNICO_FLOAT32);
    double *wanted = calloc(count, sizeof *wanted);
    double largest = 0;
    if (!wanted)
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < count; i++) {
        wanted[i] = expected[i];
        largest = fmax(largest, fabs(wanted[i]));
    }
    require(replica_read(replica, arena, got.host, count * sizeof(float)), "reading");
    check_close(part, got.host, wanted, count, STEPS * ROUNDINGS * 0x1p-24 * largest, 1e-5);
    vector_free(&got);
    free(wanted);
}

/* Gradients that the loss scale has multiplied, on both sides. */
static void gradients_share(struct replica *replica, struct twin *twin)
{
    const size_t count = replica->network->parameters;
    const int type = (int)replica->setup.gradient_type;
    struct vector g = vector_random(count, type, &state, 0, 50);
    GPU(cudaMemcpy(replica->arenas.gradients, g.gpu,
                   count * (type == ALNICO_FLOAT32 ? sizeof(float) : sizeof(uint16_t)),
                   cudaMemcpyDeviceToDevice));
    memcpy(twin->gradients, g.host, count * sizeof(float));
    vector_free(&g);
}

static void replica_check(const struct network *network, struct optimizer_options options,
                          enum precision precision)
{
    const size_t bytes = network->parameters * sizeof(float);
    struct replica *replica = replica_open(network, options.kind, precision);
    struct twin twin = {malloc(bytes), {calloc(1, bytes), calloc(1, bytes)}, malloc(bytes)};
    const float rate = (float)options.rate;
    char part[100];
    if (!twin.parameters || !twin.states[0] || !twin.states[1] || !twin.gradients)
        exit(EXIT_FAILURE);
    require(replica_read(replica, replica->arenas.parameters, twin.parameters, bytes), "reading");
    require(replica_write(replica, &replica->arenas.control[CONTROL_RATE], &rate, sizeof rate),
            "writing the rate");
    for (int t = 1; t <= STEPS; t++) {
        gradients_share(replica, &twin);
        require(replica_update(replica, &options), "updating");
        require(replica_synchronize(replica), "updating");
        twin_update(&twin, replica, &options, t, precision == PRECISION_FP16 ? 64 : 1);
    }
    for (size_t i = 0; i <= optimizers_all[options.kind]->states; i++) {
        snprintf(part, sizeof part, "replica, %s, %s: %s", optimizers_all[options.kind]->name,
                 precision_name(precision), i ? "state" : "parameters");
        twin_compare(replica, part, i ? replica->arenas.states[i - 1] : replica->arenas.parameters,
                     i ? twin.states[i - 1] : twin.parameters);
    }
    replica_destroy(replica);
    free(twin.parameters);
    free(twin.states[0]);
    free(twin.states[1]);
    free(twin.gradients);
}

static void check_replicas(void)
{
    static const struct network_case small = {"small",
                                              2,
                                              6,
                                              6,
                                              3,
                                              {CONVOLUTION("a", "input", 16, 3, 1, 1, true),
                                               NORM("n", "a"), RELU("r", "n"), DENSE("d", "r", 10),
                                               LOSS("d")},
                                              0};
    struct network *network = case_network(&small);
    for (int kind = 0; kind < OPTIMIZERS; kind++)
        for (int p = 0; p < PRECISIONS; p++) {
            struct optimizer_options options = optimizer_defaults((enum optimizer_kind)kind, 128);
            options.decay = 0.01;
            options.clip = p == PRECISION_BF16 ? 30 : 0;
            options.trust = kind == OPTIMIZER_SGD ? 0.02 : 0;
            if (options.epsilon > 0)
                options.epsilon = 0.01; /* slopes that nearly vanish make no large changes */
            replica_check(network, options, (enum precision)p);
        }
    network_destroy(network);
}

int main(void)
{
    struct cudaDeviceProp properties;
    cudaStream_t stream;
    gpu_require(1);
    GPU(cudaGetDeviceProperties(&properties, 0));
    gpu.multiprocessors = properties.multiProcessorCount;
    GPU(cudaStreamCreate(&stream));
    gpu.stream = stream;
    gpu.scratch = gpu_zeros(TRAIN_SCRATCH_BYTES);
    gpu.control = gpu_zeros(CONTROLS * sizeof *gpu.control);
    GPU(cudaDeviceSynchronize());
    printf("%s, %d multiprocessors\n", properties.name, gpu.multiprocessors);
    state = 2026;
    launched(gpu.stream, train_update_load(), "loading kernels");
    for (int kind = 0; kind < OPTIMIZERS; kind++) {
        struct optimizer_options options = optimizer_defaults((enum optimizer_kind)kind, 128);
        optimizer_check_types(options);
        options.decay = 0.01;
        options.clip = 20; /* of a length of about 50 */
        if (options.epsilon > 0)
            options.epsilon = 0.01; /* its place shows */
        optimizer_check_types(options);
        options.clip = 0;
        options.trust = kind == OPTIMIZER_SGD ? 0.02 : 0;
        if (options.trust > 0)
            optimizer_check_types(options);
        options.clip = 20;
        if (options.trust > 0)
            optimizer_check_types(options);
    }
    check_replicas();
    bandwidths_print();
    return check_result("update");
}
