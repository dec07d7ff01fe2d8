/* Gradients of weights on a second stream. See struct cudnn_beside in cudnn_steps.h. */
#include "cudnn_steps.h"

#include "status.h"

#include <stdlib.h>

bool beside_wanted(const struct plan *plan, const struct step *step)
{
    return way_taken(WAY_BESIDE) && step->in[0] != 0 &&
           plan->network->nodes[step->first].operation.kind == OPERATION_CONVOLUTION;
}

static alnico_status_t event_make(cudaEvent_t *out)
{
    return gpu_status(cudaEventCreateWithFlags(out, cudaEventDisableTiming), "cudaEventCreate");
}

static alnico_status_t stream_make(struct cudnn_beside *beside)
{
    int least, greatest;
    TRY(gpu_status(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                   "cudaDeviceGetStreamPriorityRange"));
    return gpu_status(cudaStreamCreateWithPriority(&beside->stream, cudaStreamNonBlocking, least),
                      "cudaStreamCreateWithPriority");
}

alnico_status_t beside_open(struct cudnn_net *self)
{
    struct cudnn_beside *beside = &self->beside;
    const size_t count = self->setup.plan->count;
    const unsigned most = way_number(WAY_BESIDE);
    self->norm_gpu = self->gpu;
    if (!way_taken(WAY_BESIDE))
        return ALNICO_SUCCESS;
    if (most && most < (unsigned)self->gpu.multiprocessors)
        self->norm_gpu.multiprocessors = (int)most;
    beside->pending = calloc(count + 1, sizeof *beside->pending);
    if (!beside->pending)
        return error_set(ALNICO_ERROR_MEMORY, "cuDNN kernels: no memory");
    TRY(stream_make(beside));
    TRY(event_make(&beside->ready));
    for (size_t s = 0; s < count; s++)
        if (self->steps[s].beside)
            TRY(event_make(&self->steps[s].done));
    beside->behind = way_taken(WAY_BEHIND);
    beside->gpu = self->gpu;
    beside->gpu.stream = beside->stream;
    return ALNICO_SUCCESS;
}

void beside_close(struct cudnn_net *self)
{
    struct cudnn_beside *beside = &self->beside;
    if (beside->stream)
        cudaStreamSynchronize(beside->stream);
    for (size_t s = 0; self->steps && s < self->setup.plan->count; s++)
        if (self->steps[s].done)
            cudaEventDestroy(self->steps[s].done);
    if (beside->ready)
        cudaEventDestroy(beside->ready);
    if (beside->stream)
        cudaStreamDestroy(beside->stream);
    cudaFree(beside->workspace);
    free(beside->pending);
}

alnico_status_t beside_begin(struct cudnn_net *self)
{
    struct cudnn_beside *beside = &self->beside;
    TRY(gpu_status(cudaEventRecord(beside->ready, self->handle.stream), "cudaEventRecord"));
    TRY(gpu_status(cudaStreamWaitEvent(beside->stream, beside->ready, 0), "cudaStreamWaitEvent"));
    return cudnn_status(self->handle.library->cudnnSetStream(self->handle.cudnn, beside->stream),
                        "cudnnSetStream");
}

alnico_status_t beside_end(struct cudnn_net *self, struct cudnn_step *step)
{
    struct cudnn_beside *beside = &self->beside;
    TRY(cudnn_status(self->handle.library->cudnnSetStream(self->handle.cudnn, self->handle.stream),
                     "cudnnSetStream"));
    if (beside->begun == self->setup.plan->count) /* one step again and again */
        TRY(beside_join(self, 0));
    TRY(gpu_status(cudaEventRecord(step->done, beside->stream), "cudaEventRecord"));
    beside->pending[beside->begun++] = (size_t)(step - self->steps);
    return ALNICO_SUCCESS;
}

void beside_forget(struct cudnn_net *self)
{
    self->beside.joined = self->beside.begun = 0;
}

/* Of those that may not linger the last, which ends after the others. */
alnico_status_t beside_join(struct cudnn_net *self, size_t s)
{
    struct cudnn_beside *beside = &self->beside;
    const size_t before = beside->joined;
    while (beside->joined < beside->begun &&
           (s == 0 || beside->pending[beside->joined] >= s + BESIDE_LINGERS))
        beside->joined++;
    if (beside->joined == before)
        return ALNICO_SUCCESS;
    const struct cudnn_step *last = &self->steps[beside->pending[beside->joined - 1]];
    if (beside->joined == beside->begun)
        beside_forget(self);
    return gpu_status(cudaStreamWaitEvent(self->handle.stream, last->done, 0),
                      "cudaStreamWaitEvent");
}
