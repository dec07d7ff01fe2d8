/* See predict.h. */
#include "tools/train/predict.h"

#include "base/status.h"
#include "tools/common/program.h"
#include "tools/common/ranks.h"
#include "tools/common/step_model.h"
#include "train/base/median.h"

#include <math.h>
#include <stdlib.h>

enum { READINGS_MOST = 4096 };

/* One rank alone, all ranks overlapped, and all not, are measured by turns, as machines change their
 * speed: each has its share of the steps in every round, and some, as the first are slower. A GPU
 * changes its speed less, and takes longer to begin. */
enum { ROUNDS = 30, ROUNDS_GPU = 3, ROUND_STEPS = 4 };

static size_t rounds_of(const struct trainer_options *options)
{
    const bool cpu = kernels_find(options->kernels)->device == ALNICO_DEVICE_CPU;
    const size_t most = cpu ? ROUNDS : ROUNDS_GPU, rounds = options->steps / ROUND_STEPS;
    return rounds < 1 ? 1 : rounds < most ? rounds : most;
}

/* Times of a run: of a step's phases for each reading, and of each step. */
struct readings {
    size_t count, step;                    /* numbers of both */
    double seconds[PHASES][READINGS_MOST]; /* of one step */
    double steps[READINGS_MOST];
};

/* Times of a step in each round. */
struct rounds {
    double step[ROUNDS], phases[PHASES][ROUNDS];
    double slowest[ROUNDS]; /* the slowest rank's of each step */
};

/* Everything measured. */
struct measured {
    int ranks;
    struct step_parts parts;
    double *seconds;         /* of each bucket's communication, alone */
    struct step_costs costs; /* of the communicator; ranks 1: none */
    double alone;            /* a step of one rank by itself */
    double step[2];          /* of all ranks: overlapped, then not; 0: not measured */
    double pace[2];          /* of the slowest rank alone over that, in the same round */
    double halo[2];          /* waits of a split network in it */
};

static void readings_append(void *context, const struct trainer_progress *progress)
{
    struct readings *r = context;
    const size_t steps = progress->latest_steps;
    for (size_t i = 0; i < steps && r->step < READINGS_MOST; i++)
        r->steps[r->step++] = progress->latest_seconds[i];
    if (!steps || r->count == READINGS_MOST)
        return;
    for (int i = 0; i < PHASES; i++)
        r->seconds[i][r->count] = progress->latest_phases[i] / (double)steps;
    r->count++;
}

/* The median over the readings behind the first fifth; sorts them. */
static double readings_median(struct readings *r, enum phase phase)
{
    const size_t skipped = r->count / 5;
    return median(r->seconds[phase] + skipped, r->count - skipped);
}

/* The median over steps of the slowest rank's: ranks that wait for each other take as long. */
static double readings_slowest(struct readings *r)
{
    const size_t skipped = r->step / 5;
    program_slowest(r->steps, (int)r->step);
    return median(r->steps + skipped, r->step - skipped);
}

/* Each rank trains its part by itself, all at once: they share their hosts as they will. Without what
 * the others know of their parts there is nothing to learn. */
static alnico_status_t alone_run(struct trainer_options options, const struct trainer_place *all,
                                 size_t round, struct rounds *out)
{
    const struct trainer_place place = {
        .stream = all->stream, .part = all->part, .parts = all->parts};
    struct trainer_report report;
    struct readings *readings = calloc(1, sizeof *readings);
    if (!readings)
        return error_set(ALNICO_ERROR_MEMORY, "predict: no memory");
    if (place.parts)
        options.optimizer.rate = 0;
    options.progress = readings_append;
    options.context = readings;
    const alnico_status_t status = trainer_run(&options, &place, &report);
    if (status == ALNICO_SUCCESS) {
        out->step[round] = report.step_seconds;
        out->slowest[round] = readings_slowest(readings);
        for (enum phase phase = 0; phase < PHASES; phase++)
            out->phases[phase][round] = readings_median(readings, phase);
    }
    free(readings);
    return status;
}

static alnico_status_t all_run(struct trainer_options options, const struct trainer_place *place,
                               bool late, size_t round, struct rounds *out)
{
    struct trainer_report report;
    options.late = late;
    TRY(trainer_run(&options, place, &report));
    out->step[round] = report.step_seconds;
    out->phases[PHASE_HALO][round] = report.phases[PHASE_HALO] / (double)report.own_steps;
    return ALNICO_SUCCESS;
}

/* *backward: of one rank alone. */
static alnico_status_t steps_measure(struct trainer_options options,
                                     const struct trainer_place *place,
                                     const struct trainer_place *apart, struct measured *out,
                                     double *backward)
{
    struct rounds alone, all[2];
    double paces[ROUNDS];
    const size_t rounds = rounds_of(&options);
    options.steps = (options.steps + rounds - 1) / rounds;
    for (size_t round = 0; round < rounds; round++) {
        TRY(alone_run(options, apart, round, &alone));
        for (int late = 0; late < 2 && out->ranks > 1; late++)
            TRY(all_run(options, place, late, round, &all[late]));
    }
    out->alone = median(alone.step, rounds);
    out->parts.lag = median(alone.slowest, rounds);
    out->parts.input =
        median(alone.phases[PHASE_IO], rounds) + median(alone.phases[PHASE_COPY], rounds);
    out->parts.forward = median(alone.phases[PHASE_FORWARD], rounds);
    out->parts.update = median(alone.phases[PHASE_UPDATE], rounds);
    *backward = median(alone.phases[PHASE_BACKWARD], rounds);
    for (int late = 0; late < 2 && out->ranks > 1; late++) {
        for (size_t round = 0; round < rounds; round++)
            paces[round] = alone.slowest[round] / all[late].step[round];
        out->pace[late] = median(paces, rounds);
        out->step[late] = median(all[late].step, rounds);
        out->halo[late] = median(all[late].phases[PHASE_HALO], rounds);
    }
    return ALNICO_SUCCESS;
}

/* Those of the slowest rank, which the others wait for. */
static void parts_agree(struct measured *out, double *backward)
{
    double numbers[] = {out->parts.input, out->parts.forward, out->parts.update, out->alone,
                        *backward};
    double longest = out->alone;
    program_slowest(&longest, 1);
    out->parts.lag = fmax(out->parts.lag - longest, 0);
    int slowest = out->alone == longest ? program_rank() : program_size();
    program_least(&slowest, 1);
    program_broadcast(numbers, sizeof numbers, slowest);
    out->parts.input = numbers[0];
    out->parts.forward = numbers[1];
    out->parts.update = numbers[2];
    out->alone = numbers[3];
    *backward = numbers[4];
}

static alnico_status_t moves_fill(struct measured *out,
                                  const struct trainer_communication *communication)
{
    const size_t count = communication->moves;
    const struct trainer_move *move = communication->move;
    out->parts.moves = calloc(count + 1, sizeof *out->parts.moves);
    if (!out->parts.moves)
        return error_set(ALNICO_ERROR_MEMORY, "predict: no memory for %zu moves", count);
    for (out->parts.move_count = 0; out->parts.move_count < count; out->parts.move_count++, move++)
        out->parts.moves[out->parts.move_count] =
            (struct step_move){move->bucket, move->messages, move->bytes, move->beside};
    if (!count || out->ranks == 1)
        return ALNICO_SUCCESS;
    const struct step_costs costs = step_costs_fit(
        communication->message_bytes, communication->message_seconds, TRAINER_SIZES, out->ranks);
    out->parts.alpha = costs.alpha;
    out->parts.beta = costs.beta;
    return ALNICO_SUCCESS;
}

/* Takes the buckets over, whose backward times become shares of what the whole took in a run. */
static alnico_status_t
parts_fill(struct measured *out, const struct trainer_communication *communication, double backward)
{
    const size_t count = communication->buckets;
    double sum = 0;
    out->parts.count = count;
    out->parts.hidden = fmax(communication->hidden, STEP_HIDDEN_LEAST);
    out->parts.buckets = calloc(count + 1, sizeof *out->parts.buckets);
    out->seconds = calloc(count + 1, sizeof *out->seconds);
    if (!out->parts.buckets || !out->seconds)
        return error_set(ALNICO_ERROR_MEMORY, "predict: no memory for %zu buckets", count);
    for (size_t i = 0; i < count; i++)
        sum += communication->backward[i];
    for (size_t i = 0; i < count; i++) {
        out->parts.buckets[i] =
            (struct step_bucket){.backward = backward * communication->backward[i] / sum,
                                 .bytes = communication->bytes[i]};
        out->seconds[i] = communication->seconds[i];
    }
    if (out->ranks > 1)
        out->costs =
            step_costs_fit(communication->bytes, communication->seconds, count, out->ranks);
    return moves_fill(out, communication);
}

static alnico_status_t measure(const struct train_options *options,
                               const struct trainer_place *place, struct measured *out)
{
    struct trainer_communication communication;
    struct trainer_place apart = *place;
    double backward = 0;
    if (trainer_splits(&options->trainer)) {
        apart.part = alnico_comm_rank(place->host);
        apart.parts = out->ranks;
    }
    TRY(trainer_communication(&options->trainer, &apart, &communication));
    alnico_status_t status = ALNICO_SUCCESS;
    for (int i = 0; status == ALNICO_SUCCESS && i < options->predict_count; i++)
        if (communication.own && options->predict[i] > out->ranks)
            status = error_set(ALNICO_ERROR_ARGUMENT,
                               "--predict %d: expected the %d ranks at hand, over which channels "
                               "are split",
                               options->predict[i], out->ranks);
    if (status == ALNICO_SUCCESS)
        status = steps_measure(options->trainer, place, &apart, out, &backward);
    if (status == ALNICO_SUCCESS) {
        parts_agree(out, &backward);
        status = parts_fill(out, &communication, backward);
    }
    trainer_communication_free(&communication);
    return status;
}

/* Seconds of a step on so many ranks: overlapped, then not. */
static void predict(const struct measured *m, int ranks, double out[2])
{
    double *communication = calloc(m->parts.count + 1, sizeof *communication);
    if (!communication)
        program_fail("no memory to predict %d ranks", ranks);
    for (size_t i = 0; i < m->parts.count && ranks > 1; i++)
        communication[i] = ranks == m->ranks
                               ? m->seconds[i]
                               : step_costs_at(m->costs, ranks, m->parts.buckets[i].bytes);
    for (int late = 0; late < 2; late++)
        out[late] = step_seconds(&m->parts, communication, !late);
    free(communication);
}

/* Predicted over measured, both of the same round: the machine's speed is another in the next. */
static double nearness(const struct measured *m, double step, int late)
{
    return step / (m->alone + m->parts.lag) * m->pace[late];
}

static void head_print(const struct measured *m)
{
    double backward = 0, sent = 0;
    for (size_t i = 0; i < m->parts.count; i++) {
        backward += m->parts.buckets[i].backward;
        sent += m->seconds[i];
    }
    printf("# one rank alone: step %.3f ms: input %.3f, forward %.3f, backward %.3f, update %.3f\n",
           1e3 * m->alone, 1e3 * m->parts.input, 1e3 * m->parts.forward, 1e3 * backward,
           1e3 * m->parts.update);
    if (m->ranks > 1)
        printf("# %zu buckets on %d ranks: %.3f ms of communication, %.0f %% of it %sbeside "
               "computing; "
               "%.1f us and %.2f GB/s a message; the slowest rank of a step takes %.3f ms more\n",
               m->parts.count, m->ranks, 1e3 * sent, 100 * fabs(m->parts.hidden),
               m->parts.hidden < 0 ? "more " : "", 1e6 * m->costs.alpha, 1e-9 / m->costs.beta,
               1e3 * m->parts.lag);
    if (m->parts.move_count)
        printf("# %zu moves and sums: %.3f ms by themselves, prolong the step by %.3f ms; measured "
               "waits %.3f ms, overlapped %.3f ms; %.1f us and %.2f GB/s a message\n",
               m->parts.move_count, 1e3 * step_moves_exposed(&m->parts, false),
               1e3 * step_moves_exposed(&m->parts, true), 1e3 * m->halo[1], 1e3 * m->halo[0],
               1e6 * m->parts.alpha, 1e-9 / m->parts.beta);
    printf("#%6s  %-30s  %-30s  %s\n", "", "overlapped", "not overlapped",
           "measured, predicted / measured");
    printf("#%6s", "ranks");
    for (int i = 0; i < 2; i++)
        printf("  %10s %10s %8s", "step ms", "images/s", "speed-up");
    printf("  %10s %6s %10s %6s\n", "ms", "", "ms", "");
}

static void row_print(const struct measured *m, int ranks, const double step[2])
{
    printf(" %6d", ranks);
    for (int late = 0; late < 2; late++)
        printf("  %10.3f %10.0f %8.2f", 1e3 * step[late], m->parts.images * ranks / step[late],
               ranks * m->alone / step[late]);
    for (int late = 0; late < 2 && ranks == m->ranks; late++)
        printf("  %10.3f %5.2f", 1e3 * m->step[late], nearness(m, step[late], late));
    printf("\n");
}

static void row_json(cJSON *rows, const struct measured *m, int ranks, const double step[2])
{
    static const char *const names[] = {"overlapped", "not_overlapped"};
    cJSON *row = json_add(json_row(rows), "ranks %d", ranks);
    for (int late = 0; late < 2; late++) {
        cJSON *way = json_add(cJSON_AddObjectToObject(row, names[late]),
                              "step %g images_per_second %g speed_up %g", step[late],
                              m->parts.images * ranks / step[late], ranks * m->alone / step[late]);
        if (ranks == m->ranks && m->step[late] > 0)
            json_add(way, "measured %g predicted_over_measured %g", m->step[late],
                     nearness(m, step[late], late));
    }
}

static cJSON *measured_print(const struct train_options *options, const struct measured *m)
{
    cJSON *object = json_add(cJSON_CreateObject(), "ranks %d alone %g alpha %g beta %g", m->ranks,
                             m->alone, m->costs.alpha, m->costs.beta);
    cJSON_AddItemToObject(object, "parts", step_parts_json(&m->parts));
    cJSON_AddItemToObject(object, "communication",
                          cJSON_CreateDoubleArray(m->seconds, (int)m->parts.count));
    cJSON *rows = cJSON_AddArrayToObject(object, "predicted");
    head_print(m);
    for (int i = 0; i < options->predict_count; i++) {
        double step[2];
        predict(m, options->predict[i], step);
        row_print(m, options->predict[i], step);
        row_json(rows, m, options->predict[i], step);
    }
    return object;
}

alnico_status_t train_predict(const struct train_options *options,
                              const struct trainer_place *place, cJSON **out)
{
    const int ranks = alnico_comm_size(place->host);
    struct measured m = {.ranks = ranks,
                         .parts = {.images = (double)options->trainer.batch *
                                             trainer_image_parts(&options->trainer, ranks) /
                                             ranks}};
    *out = NULL;
    for (int i = 0; m.ranks == 1 && i < options->predict_count; i++)
        if (options->predict[i] > 1)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "--predict %d: one rank measures no communicator; expected two or "
                             "more, or --predict 1 --json FILE and alnico-simulate --profile FILE",
                             options->predict[i]);
    for (int i = 0; trainer_splits(&options->trainer) && i < options->predict_count; i++)
        if (options->predict[i] % ranks)
            return error_set(
                ALNICO_ERROR_ARGUMENT,
                "--predict %d: expected a multiple of the %d ranks that the network is "
                "split over: each takes images of its own",
                options->predict[i], ranks);
    const alnico_status_t status = measure(options, place, &m);
    if (status == ALNICO_SUCCESS && alnico_comm_rank(place->host) == 0)
        *out = measured_print(options, &m);
    step_parts_free(&m.parts);
    free(m.seconds);
    return status;
}
