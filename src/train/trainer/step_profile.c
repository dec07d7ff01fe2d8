/* Times of the steps of a plan, and the rates of the device. See step_profile.h. */
#include "train/trainer/step_profile.h"

#include "base/status.h"
#include "train/base/random.h"

#include <math.h>
#include <stdlib.h>

enum {
    RUNS = 10, /* between two stamps */
    TRIALS = 3 /* of which the fastest counts */
};

const struct profile_rates profile_h200 = {.bytes_us = 4.3e6, .flops_us = 790e6};

/* One thing to measure: a step of the plan in one direction, the update, or all of a training
 * step. */
enum subject_kind { FORWARD, BACKWARD, UPDATE, WHOLE };

struct work {
    struct replica *replica;
    const struct optimizer_options *optimizer;
    enum subject_kind kind;
    size_t step;
};

static alnico_status_t work_run(const struct work *work)
{
    struct replica *replica = work->replica;
    switch (work->kind) {
    case FORWARD:
        return replica->ops->forward(replica->kernels, work->step, true);
    case BACKWARD:
        return replica->ops->backward(replica->kernels, work->step);
    case UPDATE:
        return replica_update(replica, work->optimizer);
    case WHOLE:
        TRY(replica_forward(replica, true));
        TRY(replica_backward(replica, NULL, NULL));
        return replica_update(replica, work->optimizer);
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t work_repeat(const struct work *work)
{
    for (int i = 0; i < RUNS; i++)
        TRY(work_run(work));
    return ALNICO_SUCCESS;
}

/* As a graph where the device has them, so that launching is not what is measured. NULL: it has
 * not, or something cannot be captured. */
static alnico_status_t work_capture(const struct work *work, struct device_graph **out)
{
    const struct replica *replica = work->replica;
    *out = NULL;
    if (!replica->device->graph_begin || !replica->stream)
        return ALNICO_SUCCESS;
    TRY(replica->device->graph_begin(replica->stream));
    const alnico_status_t status = work_repeat(work);
    if (status == ALNICO_SUCCESS)
        return replica->device->graph_end(replica->stream, out);
    replica->device->graph_end(replica->stream, NULL);
    return status == ALNICO_ERROR_UNSUPPORTED ? ALNICO_SUCCESS : status;
}

/* Lowers *us to what a run takes now. */
static alnico_status_t work_stamp(const struct work *work, struct device_graph *graph,
                                  uint64_t *stamps, double *us)
{
    struct replica *replica = work->replica;
    TRY(replica->device->stamp(&stamps[0], replica->stream));
    TRY(graph ? replica->device->graph_launch(graph, replica->stream) : work_repeat(work));
    TRY(replica->device->stamp(&stamps[1], replica->stream));
    TRY(replica_synchronize(replica));
    *us = fmin(*us, 1e-3 * (double)(stamps[1] - stamps[0]) / RUNS);
    return ALNICO_SUCCESS;
}

/* Microseconds of one run. */
static alnico_status_t work_time(const struct work *work, double *us)
{
    const struct device_ops *device = work->replica->device;
    struct device_graph *graph = NULL;
    void *stamps;
    TRY(device->pinned_alloc(2 * sizeof(uint64_t), &stamps));
    alnico_status_t status = work_run(work); /* what is made when it is first used is made now */
    if (status == ALNICO_SUCCESS)
        status = replica_synchronize(work->replica);
    if (status == ALNICO_SUCCESS)
        status = work_capture(work, &graph);
    *us = INFINITY;
    for (int i = 0; i < TRIALS && status == ALNICO_SUCCESS; i++)
        status = work_stamp(work, graph, stamps, us);
    if (graph)
        device->graph_destroy(graph);
    if (status == ALNICO_SUCCESS) /* otherwise the stream may still write to them */
        device->pinned_free(stamps);
    return status;
}

static alnico_status_t profile_fill(struct replica *replica,
                                    const struct optimizer_options *optimizer, struct profile *out)
{
    struct work work = {.replica = replica, .optimizer = optimizer, .kind = WHOLE};
    out->us = calloc(replica->plan->count, sizeof *out->us);
    if (!out->us)
        return error_set(ALNICO_ERROR_MEMORY, "profile_create: no memory");
    TRY(work_time(&work, &out->step_us));
    for (work.step = 0; work.step < replica->plan->count; work.step++)
        for (int way = 0; way < 2; way++) {
            work.kind = way ? BACKWARD : FORWARD;
            TRY(work_time(&work, &out->us[work.step][way]));
        }
    work.kind = UPDATE;
    return work_time(&work, &out->update_us);
}

alnico_status_t profile_create(struct replica *replica, const struct optimizer_options *optimizer,
                               const struct profile_rates *rates, struct profile *out)
{
    *out = (struct profile){.replica = replica, .rates = *rates};
    const alnico_status_t status = profile_fill(replica, optimizer, out);
    if (status != ALNICO_SUCCESS)
        profile_free(out);
    return status;
}

void profile_free(struct profile *profile)
{
    free(profile->us);
    profile->us = NULL;
}

/* The best of some copies within the device's memory: read and written. */
static alnico_status_t copies_measure(const struct device_ops *device, void *stream, char *memory,
                                      size_t bytes, uint64_t *stamps, double *bytes_us)
{
    for (int i = 0; i <= TRIALS; i++) {
        TRY(device->stamp(&stamps[0], stream));
        TRY(device->copy(memory + bytes, memory, bytes, stream));
        TRY(device->stamp(&stamps[1], stream));
        TRY(device->stream_synchronize(stream));
        const double us = 1e-3 * (double)(stamps[1] - stamps[0]);
        if (i && 2 * (double)bytes / us > *bytes_us)
            *bytes_us = 2 * (double)bytes / us;
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t bytes_measure(const struct device_ops *device, void *stream,
                                     double *bytes_us)
{
    const size_t bytes = (size_t)(device->host_accessible ? 64 : 512) << 20;
    void *memory, *stamps;
    *bytes_us = 0;
    TRY(device->alloc(2 * bytes, &memory));
    alnico_status_t status = device->pinned_alloc(2 * sizeof(uint64_t), &stamps);
    if (status == ALNICO_SUCCESS)
        status = device->clear(memory, 2 * bytes, stream);
    if (status == ALNICO_SUCCESS)
        status = copies_measure(device, stream, memory, bytes, stamps, bytes_us);
    device->pinned_free(stamps);
    device->free(memory);
    return status;
}

/* Three dense layers, the second of which is square. */
static alnico_status_t square_network(size_t side, struct network **out)
{
    const struct operation operations[] = {
        {.kind = OPERATION_DENSE, .name = "narrow", .in = {"input"}, .filters = side},
        {.kind = OPERATION_DENSE, .name = "square", .in = {"narrow"}, .filters = side},
        {.kind = OPERATION_DENSE, .name = "last", .in = {"square"}, .filters = 16},
        {.kind = OPERATION_CROSS_ENTROPY, .name = "loss", .in = {"last"}}};
    TRY(network_create(1, 1, 64, out));
    alnico_status_t status = ALNICO_SUCCESS;
    const size_t count = sizeof operations / sizeof *operations;
    for (size_t i = 0; i < count && status == ALNICO_SUCCESS; i++)
        status = network_append(*out, &operations[i]);
    return status == ALNICO_SUCCESS ? network_finish(*out) : status;
}

static alnico_status_t square_load(struct replica *replica, size_t batch)
{
    uint64_t state = 1;
    float *images = malloc(batch * 64 * sizeof *images);
    int32_t *labels = calloc(batch, sizeof *labels);
    for (size_t i = 0; images && i < batch * 64; i++)
        images[i] = (float)(2 * random_unit(&state) - 1);
    const alnico_status_t status =
        images && labels ? replica_load(replica, images, labels, batch)
                         : error_set(ALNICO_ERROR_MEMORY, "profile_measure: no memory");
    free(images);
    free(labels);
    return status;
}

/* Times the square layer forward: a product of batch x side with side x side. */
static alnico_status_t square_measure(struct replica *replica, double *flops_us)
{
    const size_t batch = replica->plan->batch, side = replica->network->tensors[1].channels;
    const struct work work = {.replica = replica, .kind = FORWARD, .step = 1};
    double us;
    TRY(square_load(replica, batch));
    TRY(replica_forward(replica, true));
    TRY(work_time(&work, &us));
    *flops_us = 2 * (double)batch * (double)side * (double)side / us;
    return ALNICO_SUCCESS;
}

static alnico_status_t flops_measure(const struct replica_setup *setup, double *flops_us)
{
    struct replica_setup own = *setup;
    struct network *network = NULL;
    struct replica *replica = NULL;
    const size_t side = setup->kernels->device == ALNICO_DEVICE_CPU ? 1024 : 8192;
    own.batch = side;
    own.memory_limit = 0;
    own.levels = NULL;
    alnico_status_t status = square_network(side, &network);
    if (status == ALNICO_SUCCESS)
        status = replica_create(network, &own, &replica);
    if (status == ALNICO_SUCCESS)
        status = square_measure(replica, flops_us);
    replica_destroy(replica);
    network_destroy(network);
    return status;
}

alnico_status_t profile_measure(const struct replica_setup *setup, struct profile_rates *out)
{
    const struct device_ops *device = device_find(setup->kernels->device);
    if (!device)
        return ALNICO_ERROR_UNSUPPORTED;
    TRY(bytes_measure(device, setup->stream, &out->bytes_us));
    return flops_measure(setup, &out->flops_us);
}
