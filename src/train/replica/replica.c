/* See replica.h. Work of CPU kernels on a stream is a job, which the stream's thread runs. */
#include "train/replica/replica.h"

#include "base/datatype.h"
#include "base/status.h"
#include "train/kernels/elementwise.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a step that communicates, also what comes before that, and of a move what it does meanwhile; the
 * parts of forward, and the halves of backward. */
enum job_kind {
    JOB_FORWARD,
    JOB_INFERENCE,
    JOB_INTERIOR,
    JOB_BORDER,
    JOB_BEFORE_FORWARD,
    JOB_BESIDE_FORWARD,
    JOB_BACKWARD, /* and all behind it */
    JOB_BACKWARD_INPUTS,
    JOB_BACKWARD_PARAMETERS,
    JOB_BEFORE_BACKWARD,
    JOB_BESIDE_BACKWARD,
    JOB_KINDS
};

struct replica_job {
    struct replica *replica;
    enum job_kind kind;
    size_t step;
    const struct optimizer_options *optimizer; /* of an update */
    bool squares;                              /* what comes before it: optimizer_squares */
    struct gradient_blocks others;             /* of an average */
};

struct replica_failure {
    atomic_int status;
    char detail[256];
};

/* Allocates and zeroes one arena. */
static alnico_status_t arena_create(const struct replica *replica, size_t bytes, void **out)
{
    TRY(replica->device->alloc(bytes ? bytes : 1, out));
    return replica->device->clear(*out, bytes, replica->stream);
}

static alnico_status_t arenas_create(struct replica *replica, const struct replica_setup *setup)
{
    struct arenas *out = &replica->arenas;
    const size_t parameters = replica->network->parameters;
    const size_t images = replica->ops->load ? 0 : plan_float_bytes(replica->plan, 0);
    TRY(arena_create(replica, parameters * sizeof(float), (void **)&out->parameters));
    TRY(arena_create(replica, parameters * datatype_bytes(setup->gradient_type), &out->gradients));
    if (setup->sums)
        TRY(arena_create(replica, parameters * sizeof(float), (void **)&out->sums));
    for (size_t i = 0; i < optimizers_all[setup->optimizer]->states; i++)
        TRY(arena_create(replica, parameters * sizeof(float), (void **)&out->states[i]));
    TRY(arena_create(replica, replica->network->statistics * sizeof(float),
                     (void **)&out->statistics));
    TRY(arena_create(replica, replica->plan->bytes, &out->activations));
    if (images)
        TRY(arena_create(replica, images, (void **)&out->images));
    TRY(arena_create(replica, replica_labels(replica) * sizeof(int32_t), (void **)&out->labels));
    TRY(arena_create(replica, SCORES * sizeof(double), (void **)&out->score));
    TRY(arena_create(replica, sizeof *out->draw, (void **)&out->draw));
    if (replica->network->part)
        TRY(arena_create(replica, replica->network->statistics * sizeof *out->joint,
                         (void **)&out->joint));
    if (replica->network->shared < parameters)
        TRY(arena_create(replica, optimizer_squares_count(replica->network) * sizeof *out->squares,
                         (void **)&out->squares));
    return arena_create(replica, CONTROLS * sizeof(float), (void **)&out->control);
}

static void arenas_destroy(const struct replica *replica)
{
    const struct arenas *arenas = &replica->arenas;
    void *const all[] = {arenas->parameters, arenas->gradients,   arenas->sums,
                         arenas->states[0],  arenas->states[1],   arenas->statistics,
                         arenas->images,     arenas->activations, arenas->labels,
                         arenas->score,      arenas->control,     arenas->draw,
                         arenas->joint,      arenas->squares};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        replica->device->free(all[i]);
}

static alnico_status_t failure_check(const struct replica *replica)
{
    const int status = atomic_load(&replica->failure->status);
    return status ? error_set((alnico_status_t)status, "%s", replica->failure->detail)
                  : ALNICO_SUCCESS;
}

/* Keeps the first failure: one thread runs all jobs. The text is there before the status is
 * seen. */
static void failure_keep(struct replica *replica, alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        return;
    snprintf(replica->failure->detail, sizeof replica->failure->detail, "%s",
             alnico_error_detail());
    atomic_store(&replica->failure->status, (int)status);
}

/* Adds the loaded batch, by the last loss, to sums. */
static void score_add(const struct replica *replica, double smoothing, double *score)
{
    const size_t last = replica->network->count;
    const struct node *node = &replica->network->nodes[last - 1];
    const struct layer_pass pass = {.node = node,
                                    .in = &replica->network->tensors[node->in[0]],
                                    .batch = plan_images(replica->plan, last),
                                    .y = setup_value(&replica->setup, last),
                                    .labels = replica->arenas.labels,
                                    .smoothing = smoothing};
    layers_all[node->operation.kind]->score(&pass, score);
}

/* The gradients of parameters of a step of which this rank has nothing. */
static alnico_status_t gradients_clear(const struct replica *replica, const struct step *step)
{
    const bool cpu = replica->device->kind == ALNICO_DEVICE_CPU;
    const size_t each = datatype_bytes(replica->asked.gradient_type);
    char *gradients = replica->arenas.gradients;
    for (size_t i = step->first; i < step->first + step->count; i++) {
        const struct node *node = &replica->network->nodes[i];
        const size_t count = node->weight.count + node->bias.count;
        if (count)
            TRY(replica->device->clear(gradients + node->weight.offset * each, count * each,
                                       cpu ? NULL : replica->stream));
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t step_do(struct replica *replica, size_t s, enum job_kind kind)
{
    const struct step *step = &replica->plan->steps[s];
    const bool backward = kind >= JOB_BACKWARD;
    const bool move = replica_moves_step(replica->plan, s);
    const bool before = kind == JOB_BEFORE_FORWARD || kind == JOB_BEFORE_BACKWARD;
    if (kind == JOB_BESIDE_FORWARD || kind == JOB_BESIDE_BACKWARD)
        return replica_moves_keep(replica, s, backward);
    if (move)
        return before ? replica_moves_pack(replica, s, backward)
                      : replica_moves_unpack(replica, s, backward);
    if (kind == JOB_INTERIOR)
        return replica->ops->forward_interior(replica->kernels, s);
    if (kind == JOB_BORDER)
        return replica->ops->forward_border(replica->kernels, s);
    if (backward && step_empty(replica->plan, step))
        TRY(gradients_clear(replica, step));
    if (before)
        return replica->ops->sums(replica->kernels, s, backward);
    if (step_empty(replica->plan, step) && (kind == JOB_INFERENCE || !replica_joint(replica, s)))
        return ALNICO_SUCCESS;
    if (kind == JOB_BACKWARD_INPUTS)
        return replica->ops->backward_inputs(replica->kernels, s);
    if (!backward)
        return replica->ops->forward(replica->kernels, s, kind == JOB_FORWARD);
    TRY((kind == JOB_BACKWARD ? replica->ops->backward
                              : replica->ops->backward_parameters)(replica->kernels, s));
    return replica_own_divide(replica, s);
}

static alnico_status_t job_do(const struct replica_job *job)
{
    struct replica *replica = job->replica;
    const bool training = job->kind == JOB_FORWARD;
    if (job->optimizer)
        return replica_update_run(replica, job->optimizer, job->squares);
    if (job->others.count) {
        elementwise_average(replica->arenas.gradients, job->others.first, job->others.stride,
                            job->others.count, replica->network->parameters);
        return ALNICO_SUCCESS;
    }
    TRY(step_do(replica, job->step, job->kind));
    if ((training || job->kind == JOB_INFERENCE) && replica->device->kind == ALNICO_DEVICE_CPU &&
        job->step + 1 == replica->plan->count)
        score_add(replica, training ? (double)replica->setup.options.smoothing : 0,
                  replica->arenas.score);
    return ALNICO_SUCCESS;
}

static void job_run(void *argument)
{
    const struct replica_job *job = argument;
    if (!atomic_load(&job->replica->failure->status))
        failure_keep(job->replica, job_do(job));
}

/* Does a job, which stays where it is; on a CPU stream enqueues it. */
static alnico_status_t job_start(struct replica *replica, struct replica_job *job)
{
    if (replica->device->kind != ALNICO_DEVICE_CPU || !replica->stream)
        return job_do(job);
    TRY(failure_check(replica));
    return alnico_stream_enqueue(replica->stream, job_run, job);
}

static alnico_status_t jobs_create(struct replica *replica)
{
    const size_t count = replica->plan->count;
    replica->failure = calloc(1, sizeof *replica->failure);
    replica->jobs = calloc(JOB_KINDS * count + 3, sizeof *replica->jobs);
    if (!replica->jobs || !replica->failure)
        return error_set(ALNICO_ERROR_MEMORY, "replica_create: no memory");
    for (size_t i = 0; i < JOB_KINDS * count + 3; i++)
        replica->jobs[i] = (struct replica_job){
            .replica = replica, .kind = (enum job_kind)(i % JOB_KINDS), .step = i / JOB_KINDS};
    return ALNICO_SUCCESS;
}

/* The first values, made on the host. */
static alnico_status_t replica_initialize(struct replica *replica, uint64_t seed)
{
    const struct network *network = replica->network, *whole = network_whole(network);
    const size_t parameters = network->parameters * sizeof(float);
    const size_t statistics = network->statistics * sizeof(float);
    float *values = malloc(parameters + whole->parameters * sizeof *values + statistics + 1);
    if (!values)
        return error_set(ALNICO_ERROR_MEMORY, "replica_create: no memory");
    float *all = values + network->parameters, *running = all + whole->parameters;
    network_initialize(whole, seed, all, running);
    if (network->part)
        part_take(network, all, values);
    alnico_status_t status = replica_write(replica, replica->arenas.parameters,
                                           network->part ? values : all, parameters);
    if (status == ALNICO_SUCCESS)
        status = replica_write(replica, replica->arenas.statistics, running, statistics);
    free(values);
    return status;
}

static alnico_status_t replica_build(struct replica *replica, const struct replica_setup *setup)
{
    TRY(plan_create(replica->network, &setup->kernels->rules, setup->batch,
                    setup->options.precision, &replica->plan));
    TRY(replica_fits(replica->network, setup));
    TRY(stream_wait_init(&replica->wait, replica->device));
    TRY(replica->device->event_create(&replica->reached));
    TRY(jobs_create(replica));
    TRY(arenas_create(replica, setup));
    TRY(replica_moves_create(replica));
    TRY(replica_input_create(replica));
    TRY(replica->device->stream_synchronize(replica->stream)); /* the zeros stand */
    replica->setup = (struct kernels_setup){.network = replica->network,
                                            .plan = replica->plan,
                                            .arenas = &replica->arenas,
                                            .options = setup->options,
                                            .gradient_type = setup->gradient_type,
                                            .stream = replica->stream};
    TRY(replica->ops->create(&replica->setup, &replica->kernels));
    return replica_initialize(replica, setup->seed);
}

alnico_status_t replica_create(const struct network *network, const struct replica_setup *setup,
                               struct replica **out)
{
    *out = NULL;
    if (!(setup->kernels->precisions & 1u << setup->options.precision))
        return error_set(ALNICO_ERROR_UNSUPPORTED, "the %s kernels do not compute in %s",
                         setup->kernels->name, precision_name(setup->options.precision));
    if (network->part && !setup->kernels->copy)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "the %s kernels take no network that is split over ranks",
                         setup->kernels->name);
    const struct device_ops *device = device_find(setup->kernels->device);
    if (!device)
        return ALNICO_ERROR_UNSUPPORTED;
    struct replica *replica = malloc(sizeof *replica);
    if (!replica)
        return error_set(ALNICO_ERROR_MEMORY, "replica_create: no memory");
    *replica = (struct replica){.network = network,
                                .ops = setup->kernels,
                                .device = device,
                                .stream = setup->stream,
                                .asked = *setup};
    const alnico_status_t status = replica_build(replica, setup);
    if (status != ALNICO_SUCCESS) {
        replica_destroy(replica);
        return status;
    }
    *out = replica;
    return ALNICO_SUCCESS;
}

void replica_destroy(struct replica *replica)
{
    if (!replica)
        return;
    replica->device->stream_synchronize(replica->stream);
    if (replica->kernels)
        replica->ops->destroy(replica->kernels);
    replica_input_destroy(replica);
    replica_moves_destroy(replica);
    arenas_destroy(replica);
    plan_destroy(replica->plan);
    free(replica->jobs);
    replica->device->event_destroy(replica->reached);
    stream_wait_finish(&replica->wait);
    free(replica->failure);
    free(replica);
}

static alnico_status_t step_job(struct replica *replica, size_t s, enum job_kind kind)
{
    return job_start(replica, &replica->jobs[JOB_KINDS * s + kind]);
}

/* Up to where only its messages are missing. */
static alnico_status_t move_start(struct replica *replica, size_t s, bool backward)
{
    TRY(step_job(replica, s, backward ? JOB_BEFORE_BACKWARD : JOB_BEFORE_FORWARD));
    TRY(replica_moves_start(replica, s, backward));
    return step_job(replica, s, backward ? JOB_BESIDE_BACKWARD : JOB_BESIDE_FORWARD);
}

static alnico_status_t step_start(struct replica *replica, size_t s, enum job_kind kind)
{
    struct replica_job *jobs = &replica->jobs[JOB_KINDS * s];
    const bool backward = kind == JOB_BACKWARD;
    if (replica_moves_step(replica->plan, s)) {
        if (replica_moves_nothing(replica->plan, s, backward))
            return ALNICO_SUCCESS;
        TRY(move_start(replica, s, backward));
        TRY(replica_moves_wait(replica, backward));
    } else if (kind != JOB_INFERENCE && replica_joint(replica, s)) {
        TRY(job_start(replica, &jobs[backward ? JOB_BEFORE_BACKWARD : JOB_BEFORE_FORWARD]));
        TRY(replica_join(replica, s, backward));
    }
    return job_start(replica, &jobs[kind]);
}

/* Whether the step behind s, a move, makes its interior while that travels. */
static bool runs_in_views(const struct replica *replica, size_t s)
{
    return s + 1 < replica->plan->count && !replica->asked.late &&
           replica->plan->steps[s + 1].view_count;
}

alnico_status_t replica_forward(struct replica *replica, bool training)
{
    const enum job_kind kind = training ? JOB_FORWARD : JOB_INFERENCE;
    for (size_t s = 0; s < replica->plan->count; s++) {
        if (!runs_in_views(replica, s)) {
            TRY(step_start(replica, s, kind));
            continue;
        }
        TRY(move_start(replica, s, false));
        TRY(step_job(replica, s + 1, JOB_INTERIOR));
        TRY(replica_moves_wait(replica, false));
        TRY(step_job(replica, s++, kind));
        TRY(step_job(replica, s, JOB_BORDER));
    }
    return ALNICO_SUCCESS;
}

/* Whether step s runs backward in halves: in the second, the gradient that the first made travels in
 * the move before it. */
static bool runs_in_halves(const struct replica *replica, size_t s)
{
    return s > 0 && !replica->asked.late && replica->ops->backward_inputs &&
           !replica_joint(replica, s) && replica_moves_step(replica->plan, s - 1) &&
           !replica_moves_nothing(replica->plan, s - 1, true) &&
           replica->plan->steps[s].in[0] == replica->plan->steps[s - 1].out;
}

alnico_status_t replica_backward(struct replica *replica,
                                 alnico_status_t (*filled)(void *context, size_t elements),
                                 void *context)
{
    for (size_t s = replica->plan->count; s-- > 0;) {
        const bool halves = runs_in_halves(replica, s);
        if (halves) {
            TRY(step_job(replica, s, JOB_BACKWARD_INPUTS));
            TRY(move_start(replica, s - 1, true));
            TRY(step_job(replica, s, JOB_BACKWARD_PARAMETERS));
        } else {
            TRY(step_start(replica, s, JOB_BACKWARD));
        }
        if (filled)
            TRY(filled(context, replica->plan->steps[s].filled));
        if (halves) {
            s--;
            TRY(replica_moves_wait(replica, true));
            TRY(step_job(replica, s, JOB_BACKWARD));
        }
    }
    return ALNICO_SUCCESS;
}

alnico_status_t replica_update(struct replica *replica, const struct optimizer_options *options)
{
    struct replica_job *job = &replica->jobs[JOB_KINDS * replica->plan->count];
    if (replica->ops->update)
        return replica->ops->update(replica->kernels, options);
    if (replica_own_squares(replica, options)) {
        struct replica_job *squares = job + 2;
        squares->optimizer = options;
        squares->squares = true;
        TRY(job_start(replica, squares));
        TRY(replica_squares_join(replica));
    }
    job->optimizer = options;
    return job_start(replica, job);
}

alnico_status_t replica_average(struct replica *replica, const struct gradient_blocks *others)
{
    struct replica_job *job = &replica->jobs[JOB_KINDS * replica->plan->count + 1];
    if (replica->ops->average)
        return replica->ops->average(replica->kernels, others);
    job->others = *others;
    return job_start(replica, job);
}

static void division_run(void *argument)
{
    const struct division *division = argument;
    elementwise_divide(division->numbers, (float)division->by, division->count);
}

alnico_status_t replica_divide(struct replica *replica, const struct division *division)
{
    if (replica->ops->divide)
        return replica->ops->divide(replica->kernels, division);
    return alnico_stream_enqueue(replica->stream, division_run, (void *)division);
}

struct outcome replica_outcome(const struct replica *replica)
{
    double score[SCORES] = {0};
    score_add(replica, 0, score);
    return (struct outcome){.loss = score[SCORE_LOSS],
                            .correct = (size_t)score[SCORE_CORRECT],
                            .count = (size_t)score[SCORE_TERMS]};
}

alnico_status_t replica_synchronize(struct replica *replica)
{
    TRY(replica->device->event_record(replica->reached, replica->stream));
    TRY(stream_wait_for(&replica->wait, replica->reached));
    return failure_check(replica);
}

/* A copy from or to memory that is not pinned waits by itself, without a deadline: so the stream is
 * idle before. */
alnico_status_t replica_read(struct replica *replica, const void *arena, void *out, size_t bytes)
{
    TRY(replica_synchronize(replica));
    TRY(replica->device->copy(out, arena, bytes, replica->stream));
    return replica_synchronize(replica);
}

alnico_status_t replica_write(struct replica *replica, void *arena, const void *data, size_t bytes)
{
    TRY(replica_synchronize(replica));
    TRY(replica->device->copy(arena, data, bytes, replica->stream));
    if (replica->ops->loaded)
        TRY(replica->ops->loaded(replica->kernels));
    return replica_synchronize(replica);
}
