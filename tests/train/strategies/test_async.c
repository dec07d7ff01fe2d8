/* The strategy async on ranks that are threads, with gradients that are a function of weights,
 * worker and step: what its interleavings say, done again serially, gives the same bits; the bound
 * holds; and a rank that stays away, fails or is told to stop ends the others. */
#include "tests/support/ranks.h"
#include "tests/train/cases.h"

#include "base/status.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/patience.h"

enum { RANKS = 4, COUNT = 23, STEPS = 12, ROUNDS = 3, ALL = RANKS * STEPS * ROUNDS };

/* The deadline of this program's waits. */
#define DEADLINE_S 5

static uint64_t seed;
static char folder[] = "/tmp/alnico_async_XXXXXX";

/* What a rank ended with. */
struct end {
    float parameters[COUNT], velocity[COUNT];
    size_t steps, step; /* its own, and the run's */
    struct strategy_staleness staleness;
    alnico_status_t status;
    char detail[512];
};

/* A run: how, and what came of it. */
struct play {
    int size, rounds;
    size_t staleness;
    bool streamed;
    const char *record, *replay;
    int slow;      /* a rank that takes so much longer; -1: none */
    long pause_us; /* for a step of the others; 0: at random, up to 0.3 ms */
    int stay_away; /* a rank that does nothing after two steps; -1: none */
    int fail;      /* a rank whose updates fail after three; -1: none */
    int stop;      /* a rank that is told to stop after two steps; -1: none */
    struct end ends[RANKS];
};

static const struct play play_plain = {.size = RANKS,
                                       .rounds = ROUNDS,
                                       .staleness = SIZE_MAX,
                                       .slow = -1,
                                       .stay_away = -1,
                                       .fail = -1,
                                       .stop = -1};

static float rate_of(size_t step)
{
    return 0.3f / (float)(1 + step);
}

static float gradient_of(float weight, uint64_t worker, uint64_t step, size_t element)
{
    uint64_t state = seed + 1000003 * worker + 7919 * step + element;
    return 0.7f * weight + (float)(2 * random_unit(&state) - 1);
}

/* Momentum, as a plain loop. */
static void update(float *parameters, float *velocity, const float *gradients, size_t count,
                   float rate)
{
    for (size_t i = 0; i < count; i++) {
        velocity[i] = 0.9f * velocity[i] + gradients[i];
        parameters[i] -= rate * velocity[i];
    }
}

/* ---- A rank ---- */

struct worker {
    struct play *play;
    int rank;
    size_t step, steps; /* the run's, and its own */
    float parameters[COUNT], gradients[COUNT], velocity[COUNT], control[CONTROLS];
};

static alnico_status_t call_nothing(void *context)
{
    (void)context;
    return ALNICO_SUCCESS;
}

static alnico_status_t call_mark(void *context, enum phase ended)
{
    (void)context;
    (void)ended;
    return ALNICO_SUCCESS;
}

static alnico_status_t call_update_range(void *context, const struct strategy_range *range)
{
    const struct worker *worker = context;
    if (worker->play->fail == worker->rank && range->updates > 3)
        return error_set(ALNICO_ERROR_SYSTEM, "update %zu is refused", (size_t)range->updates);
    update(range->parameters, range->states[0], range->gradients, range->count, range->rate);
    return ALNICO_SUCCESS;
}

static struct strategy_pace call_pace(void *context)
{
    const struct worker *worker = context;
    return (struct strategy_pace){.step = worker->step,
                                  .until = worker->step - worker->step % STEPS + STEPS,
                                  .stop = worker->play->stop == worker->rank && worker->steps > 1};
}

/* On the stream, if there is one. */
static void compute(void *argument)
{
    struct worker *worker = argument;
    const struct play *play = worker->play;
    uint64_t state = seed ^ (worker->steps * RANKS + (uint64_t)worker->rank);
    const long pause = play->pause_us ? play->pause_us : (long)(300 * random_unit(&state));
    nap_us(worker->rank == play->slow ? 10 * pause : pause);
    for (size_t i = 0; i < COUNT; i++)
        worker->gradients[i] =
            gradient_of(worker->parameters[i], (uint64_t)worker->rank, worker->steps, i);
    worker->control[CONTROL_RATE] = rate_of(worker->step);
}

static alnico_status_t one_round(struct worker *worker, void *strategy, alnico_stream_t stream)
{
    struct strategy_round round = {0};
    while (!round.over) {
        if (worker->play->stay_away == worker->rank && worker->steps == 2)
            return ALNICO_ERROR_ABORTED;
        TRY(alnico_stream_enqueue(stream, compute, worker));
        TRY(strategy_async.advance(strategy, COUNT));
        TRY(strategy_async.finish(strategy));
        worker->steps++;
        TRY(strategy_async.share(strategy, &round));
        worker->step = round.step;
    }
    return strategy_async.settle(strategy);
}

static void end_keep(struct end *end, const struct worker *worker, const void *strategy,
                     alnico_status_t status)
{
    memcpy(end->parameters, worker->parameters, sizeof end->parameters);
    memcpy(end->velocity, worker->velocity, sizeof end->velocity);
    end->steps = worker->steps;
    end->step = worker->step;
    if (status == ALNICO_SUCCESS) /* and the server rests */
        end->staleness = *strategy_async.staleness(strategy);
    end->status = status;
    snprintf(end->detail, sizeof end->detail, "%s", alnico_error_detail());
}

static void worker_start(struct worker *worker)
{
    uint64_t state = seed;
    random_fill(worker->parameters, COUNT, &state);
    memset(worker->velocity, 0, sizeof worker->velocity);
}

static void rank_play(struct rank *rank)
{
    struct play *play = rank->argument;
    struct worker worker = {.play = play, .rank = rank->rank};
    const size_t ends[] = {COUNT};
    alnico_stream_t stream = NULL;
    alnico_comm_t host = rank->size > 1 ? ranks_comm(rank, NULL) : NULL, comm = host;
    if (play->streamed) {
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
        comm = rank->size > 1 ? ranks_comm(rank, stream) : NULL;
    }
    const struct arenas arenas = {.parameters = worker.parameters,
                                  .gradients = worker.gradients,
                                  .states = {worker.velocity},
                                  .control = worker.control};
    const struct strategy_setup setup = {.comm = comm,
                                         .host = host,
                                         .device = &device_cpu,
                                         .stream = stream,
                                         .arenas = &arenas,
                                         .count = COUNT,
                                         .states = 1,
                                         .type = ALNICO_FLOAT32,
                                         .wire = ALNICO_FLOAT32,
                                         .ends = ends,
                                         .buckets = 1,
                                         .staleness = play->staleness,
                                         .record = play->record,
                                         .replay = play->replay,
                                         .calls = {.context = &worker,
                                                   .loaded = call_nothing,
                                                   .mark = call_mark,
                                                   .update_range = call_update_range,
                                                   .pace = call_pace}};
    void *strategy;
    worker_start(&worker);
    alnico_status_t status = strategy_async.create(&setup, &strategy);
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
    for (int i = 0; i < play->rounds && status == ALNICO_SUCCESS; i++)
        status = one_round(&worker, strategy, stream);
    end_keep(&play->ends[rank->rank], &worker, strategy, status);
    if (play->stay_away == rank->rank)
        nap_us(3 * DEADLINE_S * 1000000L / 2);
    strategy_async.destroy(strategy);
    if (comm != host)
        alnico_comm_destroy(comm);
    alnico_comm_destroy(host);
    alnico_stream_destroy(stream);
}

static void play_run(struct play *play)
{
    ranks_run(play->size, rank_play, play);
}

static void check_success(const struct play *play)
{
    size_t steps = 0;
    for (int r = 0; r < play->size; r++) {
        const struct end *end = &play->ends[r];
        if (end->status)
            fail_msg("rank %d: %s", r, end->detail);
        assert_memory_equal(end->parameters, play->ends[0].parameters, sizeof end->parameters);
        assert_memory_equal(end->velocity, play->ends[0].velocity, sizeof end->velocity);
        steps += end->steps;
    }
    assert_int_equal(steps, play->size * play->rounds * STEPS);
    assert_int_equal(play->ends[0].step, play->rounds * STEPS);
}

/* ---- The same serially ---- */

struct line {
    int worker;
    size_t step, pulled;
};

/* One process and thread that does what the interleavings of all shards say. */
struct serial {
    int size;
    size_t begin[RANKS + 1], lines[RANKS], version[RANKS];
    struct line line[RANKS][ALL];
    float history[ALL + 1][COUNT]; /* parameters of each shard, after so many updates of it */
    float velocity[COUNT];
    float gradients[RANKS][ALL][COUNT]; /* of each worker's steps */
    bool computed[RANKS][ALL];
};

static void lines_read(struct serial *serial, const char *path, int shard)
{
    char name[128];
    int ranks, number, parameters, at = 0;
    snprintf(name, sizeof name, "%s.%d", path, shard);
    FILE *file = fopen(name, "r");
    if (!file)
        fail_msg("%s: there is no such file", name);
    assert_int_equal(fscanf(file, "alnico interleaving 1: %d ranks, shard %d, %d parameters",
                            &ranks, &number, &parameters),
                     3);
    assert_int_equal(ranks, serial->size);
    assert_int_equal(number, shard);
    assert_int_equal(parameters, COUNT);
    for (struct line line; fscanf(file, "%d %zu %zu", &line.worker, &line.step, &line.pulled) == 3;)
        serial->line[shard][at++] = line;
    serial->lines[shard] = (size_t)at;
    fclose(file);
}

/* What a worker's step pulled from a shard; false: it is not there yet. */
static bool pulled_find(const struct serial *serial, int shard, int worker, size_t step,
                        size_t *out)
{
    for (size_t i = 0; i < serial->lines[shard]; i++) {
        const struct line *line = &serial->line[shard][i];
        if (line->worker == worker && line->step == step) {
            *out = line->pulled;
            return line->pulled <= serial->version[shard];
        }
    }
    fail_msg("shard %d has no line of rank %d, step %zu", shard, worker, step);
    return false;
}

static bool gradients_compute(struct serial *serial, int worker, size_t step)
{
    for (int s = 0; s < serial->size; s++) {
        size_t version;
        if (!pulled_find(serial, s, worker, step, &version))
            return false;
        for (size_t i = serial->begin[s]; i < serial->begin[s + 1]; i++)
            serial->gradients[worker][step][i] =
                gradient_of(serial->history[version][i], (uint64_t)worker, step, i);
    }
    return true;
}

/* The rate is by shard 0's updates when it sent the weights; in a round they count as a step at
 * least, and at its beginning as none. */
static float serial_rate(const struct serial *serial, int worker, size_t step)
{
    const size_t size = (size_t)serial->size;
    size_t pulled;
    pulled_find(serial, 0, worker, step, &pulled);
    const size_t done = pulled / size, inside = pulled % (size * STEPS);
    return rate_of(inside && inside < size ? done + 1 : done);
}

static bool serial_update(struct serial *serial, int s)
{
    const size_t version = serial->version[s], from = serial->begin[s];
    const struct line *line = &serial->line[s][version];
    if (version == serial->lines[s])
        return false;
    bool *computed = &serial->computed[line->worker][line->step];
    *computed = *computed || gradients_compute(serial, line->worker, line->step);
    if (!*computed)
        return false;
    const size_t count = serial->begin[s + 1] - from;
    float *next = serial->history[version + 1] + from;
    memcpy(next, serial->history[version] + from, count * sizeof *next);
    update(next, serial->velocity + from, serial->gradients[line->worker][line->step] + from, count,
           serial_rate(serial, line->worker, line->step) / (float)serial->size);
    serial->version[s]++;
    return true;
}

/* Shards are as equal as can be, the larger first. */
static struct serial *serial_make(const struct play *play)
{
    struct serial *serial = calloc(1, sizeof *serial);
    uint64_t state = seed;
    serial->size = play->size;
    for (int s = 0; s < play->size; s++) {
        const int count = COUNT / play->size + (s < COUNT % play->size);
        serial->begin[s + 1] = serial->begin[s] + (size_t)count;
        lines_read(serial, play->record, s);
        assert_int_equal(serial->lines[s], play->size * play->rounds * STEPS);
    }
    random_fill(serial->history[0], COUNT, &state);
    return serial;
}

/* Without staleness each step is computed from the weights after all ranks' step before, of every
 * shard. */
static void check_in_step(const struct serial *serial)
{
    for (int s = 0; s < serial->size; s++)
        for (size_t i = 0; i < serial->lines[s]; i++)
            assert_int_equal(serial->line[s][i].pulled,
                             serial->line[s][i].step * (size_t)serial->size);
}

static void check_serially(const struct play *play)
{
    struct serial *serial = serial_make(play);
    if (play->staleness == 0)
        check_in_step(serial);
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < play->size; s++)
            while (serial_update(serial, s))
                moved = true;
    }
    for (int s = 0; s < play->size; s++) {
        const size_t at = serial->begin[s], bytes = (serial->begin[s + 1] - at) * sizeof(float);
        assert_int_equal(serial->version[s], serial->lines[s]);
        assert_memory_equal(serial->history[serial->version[s]] + at, play->ends[0].parameters + at,
                            bytes);
        assert_memory_equal(serial->velocity + at, play->ends[0].velocity + at, bytes);
    }
    free(serial);
}

static const char *path_of(const char *name)
{
    static char paths[2][128];
    static int next;
    char *path = paths[next++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* ---- Tests ---- */

static void interleavings_are_what_happened(void **unused)
{
    (void)unused;
    const size_t bounds[] = {0, 1, 3, SIZE_MAX};
    for (int i = 0; i < 16; i++) {
        struct play play = play_plain;
        play.size = 1 + i % RANKS;
        play.staleness = bounds[i / RANKS];
        play.streamed = (i + i / RANKS) % 2;
        play.record = path_of("record");
        play_run(&play);
        check_success(&play);
        check_serially(&play);
    }
}

static void check_same_file(const char *a, const char *b, int shard)
{
    char names[2][160], lines[2][128];
    snprintf(names[0], sizeof names[0], "%s.%d", a, shard);
    snprintf(names[1], sizeof names[1], "%s.%d", b, shard);
    FILE *one = fopen(names[0], "r"), *other = fopen(names[1], "r");
    assert_true(one && other);
    while (fgets(lines[0], sizeof lines[0], one)) {
        assert_non_null(fgets(lines[1], sizeof lines[1], other));
        assert_string_equal(lines[0], lines[1]);
    }
    assert_null(fgets(lines[1], sizeof lines[1], other));
    fclose(one);
    fclose(other);
}

/* Though other ranks are the slow ones, and none is bound to wait. */
static void replays_have_the_same_bits(void **unused)
{
    (void)unused;
    const size_t bounds[] = {0, 2, SIZE_MAX};
    for (int i = 0; i < 6; i++) {
        struct play first = play_plain;
        first.size = 2 + i % 3;
        first.staleness = bounds[i % 3];
        first.slow = 0;
        first.record = path_of("first");
        play_run(&first);
        check_success(&first);
        struct play again = first;
        again.slow = first.size - 1;
        again.streamed = i % 2;
        again.replay = first.record;
        again.record = path_of("again");
        play_run(&again);
        check_success(&again);
        assert_memory_equal(again.ends[0].parameters, first.ends[0].parameters,
                            sizeof first.ends[0].parameters);
        for (int s = 0; s < first.size; s++) {
            assert_int_equal(again.ends[s].steps, first.ends[s].steps);
            check_same_file(first.record, again.record, s);
        }
    }
}

/* Between a pull and the push after it another worker can do twice the bound and one step. */
static void the_bound_holds(void **unused)
{
    (void)unused;
    for (size_t bound = 0; bound < 4; bound++)
        for (int i = 0; i < 2; i++) {
            struct play play = play_plain;
            play.staleness = bound;
            play.slow = i * (RANKS - 1);
            play.pause_us = 100;
            play_run(&play);
            check_success(&play);
            for (int r = 0; r < RANKS; r++) {
                const struct strategy_staleness *staleness = &play.ends[r].staleness;
                uint64_t pushes = 0, sum = 0;
                for (uint64_t k = 0; k < STALENESS_BINS; k++) {
                    pushes += staleness->counts[k];
                    sum += staleness->counts[k] * k;
                }
                assert_int_equal(pushes, ALL);
                assert_int_equal(sum, staleness->sum);
                assert_in_range(staleness->most, 0, (RANKS - 1) * (2 * bound + 1));
            }
        }
}

/* A rank that takes ten times as long does fewer of the steps, and its gradients are old. */
static void without_a_bound_nobody_waits(void **unused)
{
    (void)unused;
    struct play play = play_plain;
    play.slow = 2;
    play.pause_us = 20000;
    play_run(&play);
    check_success(&play);
    assert_true(play.ends[2].steps < (size_t)3 * ROUNDS * STEPS / 4);
    assert_true(play.ends[0].staleness.most > RANKS - 1); /* more than with a bound of 0 */
    struct play bound = play;
    bound.staleness = 0;
    bound.rounds = 1;
    play_run(&bound);
    check_success(&bound);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(bound.ends[r].steps, STEPS);
}

static void one_worker_is_plain_descent(void **unused)
{
    (void)unused;
    struct play play = play_plain;
    struct worker plain = {.play = &play};
    play.size = 1;
    play_run(&play);
    worker_start(&plain);
    for (; plain.steps < (size_t)ROUNDS * STEPS; plain.steps++) {
        plain.step = plain.steps;
        compute(&plain);
        update(plain.parameters, plain.velocity, plain.gradients, COUNT,
               plain.control[CONTROL_RATE]);
    }
    assert_memory_equal(play.ends[0].parameters, plain.parameters, sizeof plain.parameters);
    assert_int_equal(play.ends[0].staleness.most, 0);
}

static void a_told_rank_ends_all(void **unused)
{
    (void)unused;
    for (int rank = 0; rank < 2; rank++) {
        struct play play = play_plain;
        play.stop = rank;
        play.rounds = 1;
        play_run(&play);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(play.ends[r].status, ALNICO_SUCCESS);
            assert_int_equal(play.ends[r].step, play.ends[0].step);
            assert_in_range(play.ends[r].step, 1, STEPS - 1);
            assert_memory_equal(play.ends[r].parameters, play.ends[0].parameters,
                                sizeof play.ends[0].parameters);
        }
    }
}

static void a_lost_rank_is_named(void **unused)
{
    (void)unused;
    for (int i = 0; i < 2; i++) {
        struct play play = play_plain;
        play.staleness = i ? 1 : SIZE_MAX;
        play.stay_away = 2;
        const double begin = now_s();
        play_run(&play);
        assert_true(now_s() - begin < 3 * DEADLINE_S);
        for (int r = 0; r < RANKS; r++)
            if (r != 2 && (play.ends[r].status != ALNICO_ERROR_TIMEOUT ||
                           !strstr(play.ends[r].detail, "rank 2 ")))
                fail_msg("rank %d: %d, %s", r, (int)play.ends[r].status, play.ends[r].detail);
    }
}

static void a_failing_server_ends_all(void **unused)
{
    (void)unused;
    struct play play = play_plain;
    play.fail = 1;
    play_run(&play);
    for (int r = 0; r < RANKS; r++)
        assert_int_not_equal(play.ends[r].status, ALNICO_SUCCESS);
    assert_int_equal(play.ends[1].status, ALNICO_ERROR_SYSTEM);
    assert_non_null(strstr(play.ends[1].detail, "is refused"));
}

/* While one worker computes for long and the others wait for it, no thread is busy. */
static void waiting_takes_no_time(void **unused)
{
    (void)unused;
    struct play play = play_plain;
    play.staleness = 0;
    play.rounds = 1;
    play.slow = 1;
    play.pause_us = 10000;
    const double begin = now_s(), cpu = ranks_cpu_seconds();
    play_run(&play);
    const double wall = now_s() - begin, share = (ranks_cpu_seconds() - cpu) / wall;
    check_success(&play);
    print_message("%.1f %% of a core in %.2f s\n", 100 * share, wall);
    assert_true(wall > 0.9 * STEPS * 0.1);
    if (!ranks_sanitized())
        assert_true(share < 0.5);
}

/* ---- Runs ---- */

struct together {
    struct trainer_options options;
    uint64_t hash[RANKS];
    size_t steps;
};

static struct trainer_options run_options(enum optimizer_kind kind, const char *strategy)
{
    struct optimizer_options optimizer = optimizer_defaults(kind, 8);
    optimizer.warmup = 0; /* rates that do not depend on the run's length */
    optimizer.drops[0] = optimizer.drops[1] = 1;
    return (struct trainer_options){.model = "resnet20",
                                    .data = "synthetic:4x4x1",
                                    .kernels = "naive",
                                    .strategy = strategy,
                                    .batch = 4,
                                    .steps = STEPS,
                                    .tests = 1,
                                    .seed = seed,
                                    .compute = {.threads = 1},
                                    .wire = ALNICO_FLOAT32,
                                    .optimizer = optimizer};
}

static void rank_run(struct rank *rank)
{
    struct together *together = rank->argument;
    const struct trainer_place place = {.host = ranks_comm(rank, NULL)};
    struct trainer_report report;
    REQUIRE_STATUS(trainer_run(&together->options, &place, &report), ALNICO_SUCCESS);
    together->hash[rank->rank] = report.hash;
    if (rank->rank == 0)
        together->steps = report.steps;
    alnico_comm_destroy(place.host);
}

/* The hash of the parameters, which are the same on all ranks. */
static uint64_t run(const struct trainer_options *options, int ranks)
{
    struct together together = {.options = *options};
    ranks_run(ranks, rank_run, &together);
    for (int r = 1; r < ranks; r++)
        assert_int_equal(together.hash[r], together.hash[0]);
    assert_int_equal(together.steps, options->steps);
    return together.hash[0];
}

/* Optimizers with one state and with two, which count updates; in one go and in two. */
static void one_rank_trains_as_allreduce(void **unused)
{
    (void)unused;
    const enum optimizer_kind kinds[] = {OPTIMIZER_SGD, OPTIMIZER_ADAM};
    const char *path = path_of("checkpoint");
    for (int i = 0; i < 2; i++) {
        struct trainer_options options = run_options(kinds[i], "allreduce");
        options.rule = BUCKETS_OF_COUNT;
        options.buckets = 1;
        options.save = path;
        options.save_every = STEPS / 2; /* settles there */
        const uint64_t expected = run(&options, 1);
        options.strategy = "async";
        options.buckets = 0;
        assert_int_equal(run(&options, 1), expected);
        options.steps = STEPS / 2;
        run(&options, 1);
        options.steps = STEPS;
        options.load = path;
        assert_int_equal(run(&options, 1), expected);
    }
    unlink(path);
}

/* With tests and checkpoints in between, from a checkpoint on. */
static void runs_are_replayed(void **unused)
{
    (void)unused;
    const char *saved = path_of("checkpoint"), *record = path_of("record");
    struct trainer_options options = run_options(OPTIMIZER_ADAM, "async");
    options.save = saved;
    options.validate_every = 5;
    run(&options, 3);
    for (int ranks = 3; ranks > 1; ranks--) {
        struct trainer_options first = options;
        first.load = ranks == 3 ? saved : NULL;
        first.save = NULL;
        first.steps = 2 * STEPS;
        first.record = record;
        first.bounded = ranks == 2;
        first.staleness = 1;
        const uint64_t expected = run(&first, ranks);
        first.record = NULL;
        first.replay = record;
        first.bounded = false;
        assert_int_equal(run(&first, ranks), expected);
    }
    unlink(saved);
}

/* ---- Bad input ---- */

static void bad_options_are_refused(void **unused)
{
    (void)unused;
    const struct trainer_options good = run_options(OPTIMIZER_SGD, "async");
    struct trainer_options rows[] = {good, good, good, good, good, good};
    const char *const details[] = {"time limit", "LARS",      "clipping",
                                   "fp16",       "same bits", "wire type"};
    const struct trainer_place place = {0};
    struct trainer_report report;
    rows[0].steps = 0;
    rows[0].seconds = 1;
    rows[1].optimizer.trust = 0.1;
    rows[2].optimizer.clip = 1;
    rows[3].compute.precision = PRECISION_FP16;
    rows[4].compute.deterministic = true;
    rows[5].wire = ALNICO_BFLOAT16;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(trainer_run(&rows[i], &place, &report), ALNICO_ERROR_ARGUMENT);
        if (!strstr(alnico_error_detail(), details[i]) || !strstr(alnico_error_detail(), "async"))
            fail_msg("'%s' does not say '%s'", alnico_error_detail(), details[i]);
    }
    struct trainer_options other = run_options(OPTIMIZER_SGD, "allreduce");
    other.bounded = true;
    assert_int_equal(trainer_run(&other, &place, &report), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "staleness"));
    other.bounded = false;
    other.replay = "file";
    assert_int_equal(trainer_run(&other, &place, &report), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "interleaving"));
}

static alnico_status_t create_alone(const struct strategy_setup *change, const char *replay)
{
    static float numbers[COUNT];
    const size_t ends[] = {COUNT};
    const struct arenas arenas = {.parameters = numbers, .gradients = numbers, .control = numbers};
    struct strategy_setup setup = *change;
    void *strategy;
    setup.device = &device_cpu;
    setup.arenas = &arenas;
    setup.count = COUNT;
    setup.ends = ends;
    setup.buckets = 1;
    setup.replay = replay;
    const alnico_status_t status = strategy_async.create(&setup, &strategy);
    assert_int_equal(!strategy, status != ALNICO_SUCCESS);
    strategy_async.destroy(strategy);
    return status;
}

static void bad_types_are_refused(void **unused)
{
    (void)unused;
    const struct strategy_setup narrow = {.type = ALNICO_FLOAT32, .wire = ALNICO_FLOAT16};
    assert_int_equal(create_alone(&narrow, NULL), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "float16"));
    strategy_async.destroy(NULL);
}

static void bad_interleavings_are_refused(void **unused)
{
    (void)unused;
#define GOOD "alnico interleaving 1: 1 ranks, shard 0, 23 parameters\n"
    const struct {
        const char *text, *detail;
    } rows[] = {{"", "does not begin with"},
                {"alnico interleaving 1: 2 ranks, shard 0, 23 parameters\n", "does not begin with"},
                {"alnico interleaving 1: 1 ranks, shard 0, 24 parameters\n", "does not begin with"},
                {GOOD "0 0 0\n1 1 1\n", "line 3"},
                {GOOD "0 0 0\n0 1 2\n", "line 3"},
                {GOOD "0 0 0\n0 2 1\n", "line 3"},
                {GOOD "0 0 0\n0 1 1", "line 3"},
                {GOOD "0 0\n", "line 2"},
                {GOOD "0 0 0 0\n", "line 2"},
                {GOOD "-1 0 0\n", "line 2"}};
    const struct strategy_setup plain = {.type = ALNICO_FLOAT32, .wire = ALNICO_FLOAT32};
    const char *path = path_of("bad");
    char name[160];
    snprintf(name, sizeof name, "%s.0", path);
    assert_int_equal(create_alone(&plain, path_of("none")), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "none.0"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FILE *file = fopen(name, "w");
        fputs(rows[i].text, file);
        fclose(file);
        assert_int_equal(create_alone(&plain, path), ALNICO_ERROR_ARGUMENT);
        if (!strstr(alnico_error_detail(), rows[i].detail))
            fail_msg("row %zu: '%s' does not say '%s'", i, alnico_error_detail(), rows[i].detail);
    }
}

/* An interleaving of a longer run, or of other workers' steps, is no hang. */
static void foreign_interleavings_end(void **unused)
{
    (void)unused;
    struct play first = play_plain, again;
    char name[160];
    first.size = 2;
    first.rounds = 1;
    first.record = path_of("foreign");
    play_run(&first);
    check_success(&first);
    again = first;
    again.record = NULL;
    again.replay = first.record;
    snprintf(name, sizeof name, "%s.1", first.record);
    FILE *file = fopen(name, "w");
    fputs("alnico interleaving 1: 2 ranks, shard 1, 23 parameters\n", file);
    for (int i = 0; i < 2 * STEPS; i++) /* the second rank never pushes */
        fprintf(file, "0 %d %d\n", i, i);
    fclose(file);
    play_run(&again);
    assert_int_equal(again.ends[1].status, ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(again.ends[1].detail, "cannot follow it"));
    assert_int_not_equal(again.ends[0].status, ALNICO_SUCCESS);
}

static void files_remove(void)
{
    const char *const names[] = {"record", "first", "again", "bad", "foreign"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int s = 0; s < RANKS; s++) {
            char name[160];
            snprintf(name, sizeof name, "%s/%s.%d", folder, names[i], s);
            unlink(name);
        }
    rmdir(folder);
}

int main(void)
{
    char deadline[16];
    snprintf(deadline, sizeof deadline, "%d", DEADLINE_S);
    setenv("ALNICO_TIMEOUT", deadline, 1); /* before the library reads its environment */
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interleavings_are_what_happened),
        cmocka_unit_test(replays_have_the_same_bits),
        cmocka_unit_test(the_bound_holds),
        cmocka_unit_test(without_a_bound_nobody_waits),
        cmocka_unit_test(one_worker_is_plain_descent),
        cmocka_unit_test(a_told_rank_ends_all),
        cmocka_unit_test(a_lost_rank_is_named),
        cmocka_unit_test(a_failing_server_ends_all),
        cmocka_unit_test(waiting_takes_no_time),
        cmocka_unit_test(one_rank_trains_as_allreduce),
        cmocka_unit_test(runs_are_replayed),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(bad_types_are_refused),
        cmocka_unit_test(bad_interleavings_are_refused),
        cmocka_unit_test(foreign_interleavings_end),
    };
    if (!mkdtemp(folder))
        return 1;
    alarm(4 * WATCHDOG_S);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    files_remove();
    return failed;
}
