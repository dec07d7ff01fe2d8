/* See cudnn/engine_search.h. */
#include "train/kernels/cudnn/engine_search.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* The most configurations that are tried of one mode, kernels of a gemm, and how long one is
 * timed. */
enum { CONFIGURATIONS = 24, PRODUCTS = 16, RUNS_MOST = 10, TIMED_US = 2000 };

/* One search. */
struct trial {
    struct engine_search *search;
    const struct convolution *convolution;
    const struct convolution_memory *memory;
    cudnnBackendDescriptor_t graph;
    struct cudnn_bag *best_bag; /* of the fastest plan so far */
    struct engine_choice best;  /* neither plan nor gemm: none so far */
    char text[128];
};

void search_release(struct engine_search *search)
{
    cudaFree(search->workspace);
    search->workspace = NULL;
}

/* Less than asked for if there is less. */
static alnico_status_t workspace_take(struct engine_search *search)
{
    if (search->workspace)
        return ALNICO_SUCCESS;
    cudaError_t error = cudaErrorMemoryAllocation;
    for (size_t bytes = search->options.workspace_most; bytes >= 1 << 20; bytes /= 2) {
        error = cudaMalloc(&search->workspace, bytes);
        search->workspace_bytes = bytes;
        if (error == cudaSuccess)
            return ALNICO_SUCCESS;
        cudaGetLastError();
    }
    search->workspace = NULL;
    return gpu_status((int)error, "a workspace to search cuDNN's engines with");
}

static bool is_found(const struct engine_choice *choice)
{
    return choice->plan || choice->gemm;
}

static alnico_status_t run_many(struct trial *trial, struct engine_choice *choice,
                                cudnnBackendDescriptor_t pack, int runs)
{
    const struct engine_search *search = trial->search;
    const struct cudnn_handle *handle = &search->handle;
    float milliseconds = 0;
    TRY(CUDA(cudaEventRecord, search->begin, handle->stream));
    for (int i = 0; i < runs; i++)
        TRY(engine_run(handle, choice, trial->memory, pack, search->workspace));
    TRY(CUDA(cudaEventRecord, search->end, handle->stream));
    TRY(gpu_status(cudaEventSynchronize(search->end), "a convolution"));
    TRY(CUDA(cudaEventElapsedTime, &milliseconds, search->begin, search->end));
    choice->us = milliseconds * 1000.0 / runs;
    return ALNICO_SUCCESS;
}

/* A first run loads the kernel, a second tells how many are worth it. */
static alnico_status_t choice_time(struct trial *trial, struct engine_choice *choice,
                                   cudnnBackendDescriptor_t pack)
{
    TRY(run_many(trial, choice, pack, 1));
    TRY(run_many(trial, choice, pack, 1));
    if (is_found(&trial->best) && choice->us > 2 * trial->best.us + 10)
        return ALNICO_SUCCESS;
    const double runs = TIMED_US / (choice->us + 1);
    return run_many(trial, choice, pack, runs > RUNS_MOST ? RUNS_MOST : 1 + (int)runs);
}

/* An engine's notes of a type, whose enumerators are below `most`: 1 << each. */
static unsigned notes_of(const struct trial *trial, cudnnBackendDescriptor_t engine,
                         cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         int64_t most)
{
    int notes[32];
    int64_t count = 0;
    unsigned all = 0;
    _Static_assert(sizeof(cudnnBackendNumericalNote_t) == sizeof *notes &&
                       sizeof(cudnnBackendBehaviorNote_t) == sizeof *notes,
                   "notes are ints");
    if (trial->search->handle.library->cudnnBackendGetAttribute(engine, name, type, most, &count,
                                                                notes) != CUDNN_STATUS_SUCCESS)
        return 0;
    for (int64_t i = 0; i < count && i < most; i++)
        all |= 1u << notes[i];
    return all;
}

/* Why an engine is not wanted; NULL: it is. */
static const char *unwanted(const struct trial *trial, cudnnBackendDescriptor_t engine)
{
    const struct engine_options *options = &trial->search->options;
    const bool single = trial->convolution->type == ALNICO_FLOAT32;
    const unsigned numerical = notes_of(trial, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                        CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    const unsigned behavior = notes_of(trial, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                       CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
    if (options->deterministic && numerical & 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
        return "not deterministic";
    if (single && !options->tf32 && numerical & 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE)
        return "TF32";
    if (single && numerical & 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
        return "inputs in less than float32";
    if (numerical & 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
        return "sums in less than float32";
    return !options->thorough && behavior & 1u << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION
               ? "compiled at run time"
               : NULL;
}

/* Makes a plan, which the bag owns, of a handle and one attribute more. */
static alnico_status_t plan_make(const struct engine_search *search, struct cudnn_bag *bag,
                                 const struct cudnn_attribute *attribute, const char *what,
                                 struct engine_choice *choice)
{
    const struct cudnn_library *library = search->handle.library;
    const struct cudnn_attribute attributes[] = {
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &search->handle.cudnn},
        *attribute,
    };
    int64_t workspace = 0, count = 0;
    TRY(cudnn_make(library, bag, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes, 2, what,
                   &choice->plan));
    TRY(cudnn_status(library->cudnnBackendGetAttribute(choice->plan,
                                                       CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                       CUDNN_TYPE_INT64, 1, &count, &workspace),
                     "the workspace of a plan"));
    choice->workspace = workspace > 0 ? (size_t)workspace : 0;
    return ALNICO_SUCCESS;
}

/* The engine of a configuration, which the bag owns, and its number. */
static alnico_status_t engine_of(const struct cudnn_library *library,
                                 cudnnBackendDescriptor_t configuration, struct cudnn_bag *bag,
                                 cudnnBackendDescriptor_t *engine, int64_t *number)
{
    int64_t count = 0;
    TRY(cudnn_empty(library, bag, CUDNN_BACKEND_ENGINE_DESCRIPTOR, engine));
    TRY(cudnn_status(library->cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                                       engine),
                     "the engine of a configuration"));
    return cudnn_status(library->cudnnBackendGetAttribute(*engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                                          CUDNN_TYPE_INT64, 1, &count, number),
                        "the number of an engine");
}

/* Makes a plan of a configuration and times it. */
static alnico_status_t configuration_try(struct trial *trial,
                                         cudnnBackendDescriptor_t configuration,
                                         struct cudnn_bag *bag, struct engine_choice *choice)
{
    struct engine_search *search = trial->search;
    cudnnBackendDescriptor_t engine, pack;
    TRY(engine_of(search->handle.library, configuration, bag, &engine, &choice->engine));
    const char *why = unwanted(trial, engine);
    if (why)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "%s", why);
    TRY(plan_make(search, bag,
                  &(struct cudnn_attribute){CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configuration},
                  "a plan of cuDNN", choice));
    if (choice->workspace > search->workspace_bytes)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "wants a workspace of %zu bytes",
                         choice->workspace);
    TRY(convolution_pack(&search->handle, bag, trial->memory, search->workspace, &pack));
    return choice_time(trial, choice, pack);
}

static void trial_log(const struct trial *trial, const struct engine_choice *choice,
                      alnico_status_t status)
{
    FILE *log = trial->search->options.log;
    if (!log)
        return;
    fprintf(log, "# %s: %s %lld: ", trial->text, choice->gemm ? "product" : "engine",
            (long long)choice->engine);
    if (status == ALNICO_SUCCESS)
        fprintf(log, "%.1f us, workspace %zu\n", choice->us, choice->workspace);
    else
        fprintf(log, "%s\n", alnico_error_detail());
}

/* Keeps the faster of the best and this one. An error that a kernel left ends everything. */
static alnico_status_t trial_one(struct trial *trial, cudnnBackendDescriptor_t configuration)
{
    struct engine_choice choice = {.engine = -1};
    struct cudnn_bag bag = {0}, *loser = &bag;
    const alnico_status_t status = configuration_try(trial, configuration, &bag, &choice);
    trial_log(trial, &choice, status);
    if (status == ALNICO_ERROR_MEMORY)
        trial->search->starved = true;
    if (status == ALNICO_SUCCESS && (!is_found(&trial->best) || choice.us < trial->best.us)) {
        const struct cudnn_bag better = bag;
        bag = *trial->best_bag;
        *trial->best_bag = better;
        trial->best = choice;
    }
    cudnn_bag_clear(trial->search->handle.library, loser);
    const cudaError_t error = cudaStreamSynchronize(trial->search->handle.stream);
    return error == cudaSuccess ? ALNICO_SUCCESS : gpu_status((int)error, trial->text);
}

static alnico_status_t heuristics(struct trial *trial, cudnnBackendHeurMode_t mode,
                                  struct cudnn_bag *bag, cudnnBackendDescriptor_t *out,
                                  int64_t *count)
{
    const struct cudnn_library *library = trial->search->handle.library;
    cudnnBackendDescriptor_t heuristic;
    const struct cudnn_attribute attributes[] = {
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &trial->graph},
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode},
    };
    TRY(cudnn_make(library, bag, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, attributes, 2,
                   "heuristics of cuDNN", &heuristic));
    for (int i = 0; i < CONFIGURATIONS; i++)
        TRY(cudnn_empty(library, bag, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &out[i]));
    *count = 0;
    return cudnn_status(library->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                          CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                          CONFIGURATIONS, count, out),
                        "results of cuDNN's heuristics");
}

static alnico_status_t trial_mode(struct trial *trial, cudnnBackendHeurMode_t mode,
                                  struct cudnn_bag *bag)
{
    cudnnBackendDescriptor_t configurations[CONFIGURATIONS];
    int64_t count = 0;
    const alnico_status_t status = heuristics(trial, mode, bag, configurations, &count);
    if (status == ALNICO_ERROR_MEMORY)
        return status;
    if (status != ALNICO_SUCCESS) /* it names none */
        return ALNICO_SUCCESS;
    for (int64_t i = 0; i < count && i < CONFIGURATIONS; i++)
        TRY(trial_one(trial, configurations[i]));
    return ALNICO_SUCCESS;
}

/* Tries the preferred engines; if none does it, the fallbacks; then those that take seconds to
 * compile. What cuDNN refuses to describe none of its engines does. */
static alnico_status_t trial_all(struct trial *trial, struct cudnn_bag *bag)
{
    struct engine_options *options = &trial->search->options;
    const bool thorough = options->thorough;
    const alnico_status_t described =
        convolution_graph(&trial->search->handle, bag, trial->convolution, &trial->graph);
    if (described != ALNICO_SUCCESS)
        return described == ALNICO_ERROR_MEMORY ? described : ALNICO_SUCCESS;
    TRY(trial_mode(trial, CUDNN_HEUR_MODE_A, bag));
    if (!is_found(&trial->best))
        TRY(trial_mode(trial, CUDNN_HEUR_MODE_FALLBACK, bag));
    if (is_found(&trial->best) || thorough || trial->convolution->sums == 1)
        return ALNICO_SUCCESS;
    options->thorough = true;
    const alnico_status_t status = trial_mode(trial, CUDNN_HEUR_MODE_A, bag);
    options->thorough = thorough;
    return status;
}

alnico_status_t search_gemm(const struct engine_search *search,
                            const struct convolution *convolution, struct gemm **out)
{
    return gemm_make(&search->handle, convolution, !search->options.tf32, out);
}

/* Times all kernels: *found and *best are the fastest, if there is one. What cuBLASLt refuses to
 * describe none of its kernels does. */
static alnico_status_t kernels_time(struct trial *trial, struct gemm *gemm,
                                    struct engine_choice *found, cublasLtMatmulAlgo_t *best)
{
    cublasLtMatmulHeuristicResult_t kernels[PRODUCTS];
    const struct engine_search *search = trial->search;
    int count;
    if (gemm_kernels(&search->handle, gemm, search->workspace_bytes, PRODUCTS, kernels, &count) !=
        ALNICO_SUCCESS)
        return ALNICO_SUCCESS;
    for (int i = 0; i < count; i++) {
        struct engine_choice choice = {
            .gemm = gemm, .workspace = kernels[i].workspaceSize, .engine = i};
        gemm->algorithm = kernels[i].algo;
        const alnico_status_t status = choice_time(trial, &choice, NULL);
        trial_log(trial, &choice, status);
        TRY(gpu_status(cudaStreamSynchronize(search->handle.stream), trial->text));
        if (status == ALNICO_SUCCESS && (!found->gemm || choice.us < found->us)) {
            *found = choice;
            *best = kernels[i].algo;
        }
    }
    return ALNICO_SUCCESS;
}

/* Takes a product's fastest kernel if it is faster than cuDNN's best engine. */
static alnico_status_t gemms_try(struct trial *trial)
{
    const struct engine_search *search = trial->search;
    struct engine_choice found = {.gemm = NULL};
    struct gemm *gemm;
    cublasLtMatmulAlgo_t best;
    if (!search->options.gemms || !gemm_possible(trial->convolution))
        return ALNICO_SUCCESS;
    if (search_gemm(search, trial->convolution, &gemm) != ALNICO_SUCCESS)
        return ALNICO_SUCCESS;
    const alnico_status_t status = kernels_time(trial, gemm, &found, &best);
    const bool first = search->options.gemms == 2 || !is_found(&trial->best);
    if (status != ALNICO_SUCCESS || !found.gemm || !(first || found.us < trial->best.us)) {
        gemm_destroy(&search->handle, gemm);
        return status;
    }
    gemm->algorithm = best;
    cudnn_bag_clear(search->handle.library, trial->best_bag);
    trial->best = found;
    return ALNICO_SUCCESS;
}

alnico_status_t search_run(struct engine_search *search, const struct convolution *convolution,
                           const struct convolution_memory *memory, struct cudnn_bag *bag,
                           struct engine_choice *out)
{
    struct cudnn_bag best = {0};
    struct trial trial = {
        .search = search, .convolution = convolution, .memory = memory, .best_bag = &best};
    char reason[400];
    convolution_text(convolution, trial.text, sizeof trial.text);
    TRY(workspace_take(search));
    search->starved = search->workspace_bytes < search->options.workspace_most;
    error_set(ALNICO_ERROR_UNSUPPORTED, "the heuristics name none");
    alnico_status_t status = trial_all(&trial, bag);
    if (status == ALNICO_SUCCESS)
        status = gemms_try(&trial);
    if (status != ALNICO_SUCCESS || !is_found(&trial.best)) {
        cudnn_bag_clear(search->handle.library, &best);
        TRY(status);
        snprintf(reason, sizeof reason, "%s", alnico_error_detail());
        return error_set(ALNICO_ERROR_UNSUPPORTED, "no engine for %s; the last one: %s", trial.text,
                         reason);
    }
    *out = trial.best;
    return cudnn_bag_append(search->handle.library, bag, &best);
}

char *search_text(const struct engine_search *search, const struct engine_choice *choice)
{
    const struct cudnn_library *library = search->handle.library;
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    int64_t bytes = 0;
    if (library->cudnnBackendGetAttribute(choice->plan, name, CUDNN_TYPE_CHAR, 0, &bytes, NULL) !=
            CUDNN_STATUS_SUCCESS ||
        bytes <= 0)
        return NULL;
    char *text = calloc((size_t)bytes + 1, 1);
    if (text && library->cudnnBackendGetAttribute(choice->plan, name, CUDNN_TYPE_CHAR, bytes,
                                                  &bytes, text) == CUDNN_STATUS_SUCCESS)
        return text;
    free(text);
    return NULL;
}

alnico_status_t search_restore(const struct engine_search *search, const char *text,
                               struct cudnn_bag *bag, struct engine_choice *out)
{
    const struct cudnn_attribute json = {CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                         CUDNN_TYPE_CHAR, (int64_t)strlen(text), text};
    TRY(plan_make(search, bag, &json, "a plan from the plan file", out));
    return out->workspace <= search->options.workspace_most
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_UNSUPPORTED, "workspace");
}

void search_close(struct engine_search *search)
{
    search_release(search);
    if (search->begin)
        cudaEventDestroy(search->begin);
    if (search->end)
        cudaEventDestroy(search->end);
}

alnico_status_t search_open(const struct cudnn_handle *handle, const struct engine_options *options,
                            struct engine_search *out)
{
    *out = (struct engine_search){.handle = *handle, .options = *options};
    TRY(CUDA(cudaEventCreate, &out->begin));
    return CUDA(cudaEventCreate, &out->end);
}
