/*
 * The network on an NVIDIA GPU: convolutions by cuDNN or cuBLASLt, whichever was faster on that
 * GPU, dense layers by cuBLAS, all else by our own kernels (kernels/cuda), batch norms together
 * with the additions and ReLUs that follow. Called through kernels_cudnn (kernels.h); the steps are
 * made in cudnn/. A pass allocates nothing and waits for nothing.
 */
#include "train/kernels/cudnn/steps.h"

#include "base/log.h"
#include "base/status.h"

#include <assert.h>
#include <stdlib.h>

/* Workspaces: the most of a plan of cuDNN, and that of cuBLAS. */
enum { WORKSPACE_MOST = 1 << 30, BLAS_WORKSPACE = 32 << 20 };

/* The loss scale that a search begins with. */
static const float first_scale = 65536;

static size_t counted_bytes(const struct plan *plan)
{
    const struct network *network = plan->network;
    size_t bytes = weights_own_bytes(plan) + update_own_bytes(network) +
                   plan_line(TRAIN_SCRATCH_BYTES) + plan_line(BLAS_WORKSPACE);
    for (size_t i = 0; i < network->count; i++)
        if (network->nodes[i].operation.kind == OPERATION_BATCH_NORM)
            bytes += plan_line(NORM_NUMBERS * padded_channels(network, i + 1) * sizeof(float));
    for (size_t s = 0; s < plan->count; s++) {
        const struct step *step = &plan->steps[s];
        const struct train_fold fold = input_fold(plan, step);
        bytes += statistics_wanted(plan, step) ? statistics_bytes(plan, step) : 0;
        bytes += reads_images(step) ? plan_line(fold_bytes(&fold)) : 0;
    }
    return bytes;
}

/* The workspace is known only when cuDNN was asked: what is the fastest takes up to 17 MB for
 * ResNet-50 on an H200. */
static size_t cudnn_own_bytes(const struct plan *plan)
{
    enum { WORKSPACE_USUAL = 32 << 20 };
    return counted_bytes(plan) + WORKSPACE_USUAL;
}

static size_t cudnn_held_bytes(const void *pointer)
{
    const struct cudnn_net *self = pointer;
    return self->own_bytes + self->workspace_bytes;
}

void *own_take(struct cudnn_net *self, size_t bytes)
{
    char *at = self->own + self->own_taken;
    self->own_taken += plan_line(bytes);
    assert(self->own_taken <= self->own_bytes);
    return at;
}

alnico_status_t copy_in(struct cudnn_net *self, void *to, const void *from, size_t bytes)
{
    return CUDA(cudaMemcpyAsync, to, from, bytes, cudaMemcpyHostToDevice, self->setup.stream);
}

static alnico_status_t own_allocate(struct cudnn_net *self)
{
    const struct plan *plan = self->setup.plan;
    void *memory;
    self->own_bytes = counted_bytes(plan);
    TRY(gpu_status(cudaMalloc(&memory, self->own_bytes), "memory of the cuDNN kernels"));
    self->own = memory;
    TRY(CUDA(cudaMemsetAsync, memory, 0, self->own_bytes, self->setup.stream));
    self->gpu.scratch = own_take(self, TRAIN_SCRATCH_BYTES);
    self->blas_workspace = own_take(self, BLAS_WORKSPACE);
    self->working =
        self->type == ALNICO_FLOAT32
            ? (void *)self->setup.arenas->parameters
            : own_take(self, self->setup.network->parameters * datatype_bytes(self->type));
    return ALNICO_SUCCESS;
}

static alnico_status_t device_check(struct cudnn_net *self)
{
    int device, major, minor;
    TRY(CUDA(cudaGetDevice, &device));
    TRY(CUDA(cudaDeviceGetAttribute, &major, cudaDevAttrComputeCapabilityMajor, device));
    TRY(CUDA(cudaDeviceGetAttribute, &minor, cudaDevAttrComputeCapabilityMinor, device));
    TRY(CUDA(cudaDeviceGetAttribute, &self->gpu.multiprocessors, cudaDevAttrMultiProcessorCount,
             device));
    self->gpu.programmatic = method_taken(METHOD_PROGRAMMATIC_LAUNCH) && train_norm_programmatic();
    return kernels_capability(self->setup.options.precision, major, minor);
}

/* Kernels are loaded now: loading one later may wait for kernels of a communicator. */
static alnico_status_t kernels_load(void)
{
    int (*const loads[])(void) = {
        train_norm_load,    train_norm_backward_load, train_norm_pool_load, train_pointwise_load,
        train_pool_load,    train_loss_load,          train_upsample_load,  train_update_load,
        train_average_load, train_accumulate_load,    train_epilogue_load,  train_local_norm_load,
        train_concat_load,  train_boxes_load};
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        TRY(gpu_status(loads[i](), "loading the trainer's kernels"));
    return ALNICO_SUCCESS;
}

static alnico_status_t handles_open(struct cudnn_net *self)
{
    const struct cudnn_library *library = cudnn_library();
    if (!library)
        return ALNICO_ERROR_UNSUPPORTED;
    self->handle = (struct cudnn_handle){.library = library, .stream = self->setup.stream};
    TRY(cudnn_status(library->cudnnCreate(&self->handle.cudnn), "cudnnCreate"));
    TRY(cudnn_status(library->cudnnSetStream(self->handle.cudnn, self->handle.stream),
                     "cudnnSetStream"));
    TRY(cublas_status(library->cublasCreate_v2(&self->handle.cublas), "cublasCreate"));
    TRY(cublas_status(library->cublasSetStream_v2(self->handle.cublas, self->handle.stream),
                      "cublasSetStream"));
    return cublas_status(
        library->cublasSetWorkspace_v2(self->handle.cublas, self->blas_workspace, BLAS_WORKSPACE),
        "cublasSetWorkspace");
}

static alnico_status_t engines_open(struct cudnn_net *self)
{
    const struct kernels_options *options = &self->setup.options;
    const struct engine_options plans = {.file = options->cache,
                                         .workspace_most = WORKSPACE_MOST,
                                         .deterministic = options->deterministic,
                                         .tf32 = !options->full_float,
                                         .gemms = !method_taken(METHOD_GEMM)        ? 0
                                                  : method_number(METHOD_GEMM) == 2 ? 2
                                                                                    : 1};
    return engine_cache_open(&self->handle, &plans, &self->engines);
}

/* By the kind of a step's first operation; NULL: these kernels have none. */
static make_function *const makes[OPERATION_KINDS] = {
    [OPERATION_CONVOLUTION] = cudnn_convolution_make,
    [OPERATION_BATCH_NORM] = cudnn_norm_make,
    [OPERATION_RELU] = cudnn_add_make,
    [OPERATION_SIGMOID] = cudnn_sigmoid_make,
    [OPERATION_ADD] = cudnn_add_make,
    [OPERATION_MAX_POOL] = cudnn_pool_make,
    [OPERATION_AVERAGE_POOL] = cudnn_pool_make,
    [OPERATION_DENSE] = cudnn_dense_make,
    [OPERATION_LOCAL_NORM] = cudnn_local_norm_make,
    [OPERATION_DROPOUT] = cudnn_dropout_make,
    [OPERATION_CONCAT] = cudnn_concat_make,
    [OPERATION_UPSAMPLE] = cudnn_upsample_make,
    [OPERATION_CROSS_ENTROPY] = cudnn_loss_make,
    [OPERATION_SQUARED_ERROR] = cudnn_loss_make,
};

static alnico_status_t step_make(struct cudnn_net *self, struct cudnn_step *step)
{
    const struct operation *operation = &step->node->operation;
    if (makes[operation->kind])
        return makes[operation->kind](self, step);
    return error_set(ALNICO_ERROR_UNSUPPORTED, "cuDNN kernels: no %s, which '%s' is",
                     operation_kind_name(operation->kind), operation->name);
}

/* Moves are the replica's; and of steps of which this rank has nothing only batch norms that others
 * have parts of. */
static bool is_made(const struct plan *plan, const struct cudnn_step *step)
{
    return step->node->operation.kind != OPERATION_MOVE &&
           (!step_empty(plan, step->step) ||
            network_joint(plan->network, step->step->first, plan->batch) > 0);
}

static alnico_status_t steps_make(struct cudnn_net *self)
{
    const struct plan *plan = self->setup.plan;
    self->steps = calloc(plan->count, sizeof *self->steps);
    if (!self->steps)
        return error_set(ALNICO_ERROR_MEMORY, "cuDNN kernels: no memory");
    for (size_t s = 0; s < plan->count; s++) {
        struct cudnn_step *step = &self->steps[s];
        step->step = &plan->steps[s];
        step->node = &plan->network->nodes[step->step->first];
        step->input = input_fold(plan, step->step);
        if (reads_images(step->step))
            step->images = own_take(self, fold_bytes(&step->input));
        if (is_made(plan, step))
            TRY(step_make(self, step));
    }
    return ALNICO_SUCCESS;
}

static bool is_convolution(const struct cudnn_step *step)
{
    return step->node->operation.kind == OPERATION_CONVOLUTION && step->forward;
}

static alnico_status_t noise(struct cudnn_net *self, void *at, size_t bytes)
{
    const size_t count = bytes / datatype_bytes(self->type);
    return gpu_status(train_noise(&self->gpu, at, count, (int)self->type), "noise");
}

/* Noise where values will be: multiplying zeros would look faster than it is. */
static alnico_status_t steps_noise(struct cudnn_net *self)
{
    TRY(noise(self, self->setup.arenas->activations, self->setup.plan->bytes));
    for (size_t s = 0; s < self->setup.plan->count; s++) {
        const struct cudnn_step *step = &self->steps[s];
        const struct cudnn_weights *w = &step->weights;
        if (step->images)
            TRY(noise(self, step->images, fold_bytes(&step->input)));
        if (w->node && w->working && self->type != ALNICO_FLOAT32)
            TRY(noise(self, w->working, w->bytes));
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t steps_search(struct cudnn_net *self)
{
    TRY(steps_noise(self));
    for (size_t s = 0; s < self->setup.plan->count; s++)
        if (is_convolution(&self->steps[s]))
            TRY(cudnn_convolution_search(self, &self->steps[s]));
    engine_cache_save(self->engines);
    if (self->workspace_bytes)
        TRY(gpu_status(cudaMalloc(&self->workspace, self->workspace_bytes),
                       "the workspace of convolutions"));
    for (size_t s = 0; s < self->setup.plan->count; s++)
        if (is_convolution(&self->steps[s]))
            TRY(cudnn_convolution_finish(self, &self->steps[s]));
    return ALNICO_SUCCESS;
}

/* Runs what the libraries load when it first runs, on noise: later a stream may wait for another rank,
 * and loading for the stream. */
static alnico_status_t steps_warm(struct cudnn_net *self)
{
    for (size_t s = 0; self->setup.network->part && s < self->setup.plan->count; s++) {
        struct cudnn_step *step = &self->steps[s];
        if (!step->forward || !step->weights.node)
            continue;
        TRY(step->forward(self, step, false));
        TRY(step->backward(self, step));
    }
    return ALNICO_SUCCESS;
}

static void cudnn_destroy(void *pointer)
{
    struct cudnn_net *self = pointer;
    if (!self)
        return;
    const struct cudnn_library *library = self->handle.library;
    if (library) {
        cudnn_bag_clear(library, &self->packs);
        engine_cache_close(self->engines);
        if (self->handle.cublas)
            library->cublasDestroy_v2(self->handle.cublas);
        if (self->handle.cudnn)
            library->cudnnDestroy(self->handle.cudnn);
    }
    cudaFree(self->workspace);
    cudaFree(self->own);
    free(self->steps);
    free(self);
}

static alnico_status_t control_set(struct cudnn_net *self)
{
    const float asked = self->setup.options.loss_scale;
    float control[CONTROLS] = {0};
    control[CONTROL_LOSS_SCALE] = self->type != ALNICO_FLOAT16 ? 1
                                  : asked > 0                  ? asked
                                                               : first_scale;
    return copy_in(self, self->setup.arenas->control, control, sizeof control);
}

static alnico_status_t cudnn_build(struct cudnn_net *self)
{
    methods_unknown();
    TRY(device_check(self));
    TRY(CUDA(cudaStreamSynchronize, self->setup.stream));
    TRY(kernels_load());
    TRY(own_allocate(self));
    TRY(handles_open(self));
    TRY(engines_open(self));
    TRY(steps_make(self));
    TRY(update_make(self));
    TRY(control_set(self));
    TRY(steps_search(self));
    TRY(steps_warm(self));
    if (method_taken(METHOD_STATISTICS))
        log_write(LOG_INFO, "cuDNN kernels: %zu convolutions make sums for batch norms",
                  self->with_statistics);
    TRY(weights_refresh(self));
    return gpu_status(cudaStreamSynchronize(self->setup.stream), "making the cuDNN kernels");
}

static alnico_status_t cudnn_create(const struct kernels_setup *setup, void **out)
{
    *out = NULL;
    struct cudnn_net *self = calloc(1, sizeof *self);
    if (!self)
        return error_set(ALNICO_ERROR_MEMORY, "cuDNN kernels: no memory");
    self->setup = *setup;
    self->type = precision_type(setup->options.precision);
    self->gpu = (struct train_gpu){.stream = setup->stream, .control = setup->arenas->control};
    const alnico_status_t status = cudnn_build(self);
    if (status != ALNICO_SUCCESS)
        cudnn_destroy(self);
    else
        *out = self;
    return status;
}

/* Packs the images for each step that reads them. */
static alnico_status_t cudnn_load(void *pointer, const void *images, const float *levels)
{
    struct cudnn_net *self = pointer;
    for (size_t s = 0; s < self->setup.plan->count; s++) {
        const struct cudnn_step *step = &self->steps[s];
        struct train_fold fold = step->input;
        fold.levels = levels;
        if (step->images)
            TRY(gpu_status(train_fold(&self->gpu, &fold, step->images, images),
                           "packing the images"));
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t cudnn_forward(void *pointer, size_t step, bool training)
{
    struct cudnn_net *self = pointer;
    return self->steps[step].forward(self, &self->steps[step], training);
}

static alnico_status_t cudnn_interior(void *pointer, size_t step)
{
    struct cudnn_net *self = pointer;
    return self->steps[step].forward_interior(self, &self->steps[step]);
}

static alnico_status_t cudnn_border(void *pointer, size_t step)
{
    struct cudnn_net *self = pointer;
    return self->steps[step].forward_border(self, &self->steps[step]);
}

static alnico_status_t cudnn_backward(void *pointer, size_t step)
{
    struct cudnn_net *self = pointer;
    return self->steps[step].backward(self, &self->steps[step]);
}

static alnico_status_t cudnn_inputs(void *pointer, size_t step)
{
    struct cudnn_net *self = pointer;
    struct cudnn_step *s = &self->steps[step];
    return s->backward_inputs ? s->backward_inputs(self, s) : s->backward(self, s);
}

static alnico_status_t cudnn_parameters(void *pointer, size_t step)
{
    struct cudnn_net *self = pointer;
    struct cudnn_step *s = &self->steps[step];
    return s->backward_parameters ? s->backward_parameters(self, s) : ALNICO_SUCCESS;
}

static alnico_status_t cudnn_sums(void *pointer, size_t step, bool backward)
{
    struct cudnn_net *self = pointer;
    return self->steps[step].sums_join(self, &self->steps[step], backward);
}

static alnico_status_t cudnn_update(void *pointer, const struct optimizer_options *options)
{
    struct cudnn_net *self = pointer;
    struct train_update *update = &self->update;
    update->optimizer = (int)options->kind;
    update->rule = optimizer_rule(options);
    update->rule.decay = (float)options->decay;
    update->beta1 = options->beta1;
    update->beta2 = options->beta2;
    update->trust = (float)options->trust;
    update->clip = (float)options->clip;
    update->counts = optimizers_all[options->kind]->counts;
    TRY(gpu_status(train_update(&self->gpu, update), "the update"));
    return weights_fold_all(pointer);
}

static alnico_status_t cudnn_average(void *pointer, const struct gradient_blocks *others)
{
    const struct cudnn_net *self = pointer;
    const struct train_average pass = {.mine = self->setup.arenas->gradients,
                                       .others = others->first,
                                       .stride = others->stride,
                                       .count = self->setup.network->parameters,
                                       .blocks = others->count,
                                       .type = (int)self->setup.gradient_type};
    return gpu_status(train_average(&self->gpu, &pass), "averaging gradients");
}

static alnico_status_t cudnn_accumulate(void *pointer, const struct gradient_part *part)
{
    const struct cudnn_net *self = pointer;
    const struct train_accumulate pass = {.gradients = self->setup.arenas->gradients,
                                          .sums = self->setup.arenas->sums,
                                          .begin = part->begin,
                                          .count = part->count,
                                          .share = part->share,
                                          .type = (int)self->setup.gradient_type,
                                          .pass = (int)part->pass};
    return gpu_status(train_accumulate(&self->gpu, &pass), "adding up gradients");
}

static alnico_status_t cudnn_divide(void *pointer, const struct division *division)
{
    const struct cudnn_net *self = pointer;
    return gpu_status(train_divide(&self->gpu, division->numbers, (int)division->type,
                                   division->count, division->by),
                      "dividing a sum");
}

static alnico_status_t cudnn_loaded(void *pointer)
{
    return weights_refresh(pointer);
}

const struct kernels_ops kernels_cudnn = {
    .name = "cudnn",
    .about = "convolutions by cuDNN and cuBLAS, own kernels for all else, on an NVIDIA GPU",
    .device = ALNICO_DEVICE_CUDA,
    .precisions = 1 << PRECISION_FP32 | 1 << PRECISION_BF16 | 1 << PRECISION_FP16,
    .wire_gradients = true,
    .rules = {.run = cudnn_run_rule,
              .divides = cudnn_divides_rule,
              .bytes = cudnn_bytes_rule,
              .within = cudnn_within_rule,
              .needs = cudnn_needs_rule},
    .own_bytes = cudnn_own_bytes,
    .held_bytes = cudnn_held_bytes,
    .create = cudnn_create,
    .destroy = cudnn_destroy,
    .load = cudnn_load,
    .forward = cudnn_forward,
    .backward = cudnn_backward,
    .forward_interior = cudnn_interior,
    .forward_border = cudnn_border,
    .backward_inputs = cudnn_inputs,
    .backward_parameters = cudnn_parameters,
    .sums = cudnn_sums,
    .copy = cudnn_copy,
    .direct = cudnn_direct,
    .update = cudnn_update,
    .average = cudnn_average,
    .accumulate = cudnn_accumulate,
    .divide = cudnn_divide,
    .loaded = cudnn_loaded,
};
