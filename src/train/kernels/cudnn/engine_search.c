/* See cudnn_search.h. */
#include "train/kernels/cudnn/engine_search.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* The most configurations that are tried of one mode, kernels of a product, and how long one is
 * timed. */
enum { CONFIGURATIONS = 24, PRODUCTS = 16, RUNS_MOST = 10, TIMED_US = 2000 };

/* What one search works with. */
struct hunt {
    struct search *search;
    const struct convolution *convolution;
    const struct convolution_memory *memory;
    cudnnBackendDescriptor_t graph;
    struct cudnn_bag *best_bag; /* of the fastest plan so far */
    struct plans_choice best;   /* neither plan nor product: none so far */
    char text[128];
};

/* ---- The workspace ---- */

void search_release(struct search *search)
{
    cudaFree(search->workspace);
    search->workspace = NULL;
}

/* Less than asked for if there is less. */
static alnico_status_t workspace_take(struct search *search)
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

/* ---- Timing ---- */

static bool is_found(const struct plans_choice *choice)
{
    return choice->plan || choice->product;
}

static alnico_status_t run_many(struct hunt *hunt, struct plans_choice *choice,
                                cudnnBackendDescriptor_t pack, int runs)
{
    const struct search *search = hunt->search;
    const struct cudnn_handle *handle = &search->handle;
    float milliseconds = 0;
    TRY(gpu_status(cudaEventRecord(search->begin, handle->stream), "cudaEventRecord"));
    for (int i = 0; i < runs; i++)
        TRY(plans_run(handle, choice, hunt->memory, pack, search->workspace));
    TRY(gpu_status(cudaEventRecord(search->end, handle->stream), "cudaEventRecord"));
    TRY(gpu_status(cudaEventSynchronize(search->end), "a convolution"));
    TRY(gpu_status(cudaEventElapsedTime(&milliseconds, search->begin, search->end),
                   "cudaEventElapsedTime"));
    choice->us = milliseconds * 1000.0 / runs;
    return ALNICO_SUCCESS;
}

/* A first run loads the kernel, a second tells how many are worth it. */
static alnico_status_t choice_time(struct hunt *hunt, struct plans_choice *choice,
                                   cudnnBackendDescriptor_t pack)
{
    TRY(run_many(hunt, choice, pack, 1));
    TRY(run_many(hunt, choice, pack, 1));
    if (is_found(&hunt->best) && choice->us > 2 * hunt->best.us + 10)
        return ALNICO_SUCCESS;
    const double runs = TIMED_US / (choice->us + 1);
    return run_many(hunt, choice, pack, runs > RUNS_MOST ? RUNS_MOST : 1 + (int)runs);
}

/* ---- One configuration ---- */

static bool noted(const struct cudnn_library *library, cudnnBackendDescriptor_t engine,
                  cudnnBackendNumericalNote_t note)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (library->cudnnBackendGetAttribute(
            engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        if (notes[i] == note)
            return true;
    return false;
}

static bool compiled(const struct cudnn_library *library, cudnnBackendDescriptor_t engine)
{
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (library->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                          CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT,
                                          &count, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count && i < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT; i++)
        if (notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            return true;
    return false;
}

/* Why an engine is not wanted; NULL: it is. */
static const char *unwanted(const struct hunt *hunt, cudnnBackendDescriptor_t engine)
{
    const struct plans_options *options = &hunt->search->options;
    const struct cudnn_library *library = hunt->search->handle.library;
    const bool exact = hunt->convolution->type == ALNICO_FLOAT32 && !options->tf32;
    if (options->deterministic && noted(library, engine, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
        return "not deterministic";
    if (exact && noted(library, engine, CUDNN_NUMERICAL_NOTE_TENSOR_CORE))
        return "TF32";
    if (hunt->convolution->type == ALNICO_FLOAT32 &&
        noted(library, engine, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
        return "inputs in less than float32";
    if (noted(library, engine, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION))
        return "sums in less than float32";
    return !options->thorough && compiled(library, engine) ? "compiled at run time" : NULL;
}

static alnico_status_t plan_make(const struct search *search,
                                 cudnnBackendDescriptor_t configuration, struct cudnn_bag *bag,
                                 struct plans_choice *choice)
{
    const struct cudnn_library *library = search->handle.library;
    const struct cudnn_attribute attributes[] = {
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &search->handle.cudnn},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configuration},
    };
    int64_t workspace = 0;
    TRY(cudnn_make(library, bag, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes, 2,
                   "a plan of cuDNN", &choice->plan));
    TRY(cudnn_status(library->cudnnBackendGetAttribute(choice->plan,
                                                       CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                       CUDNN_TYPE_INT64, 1, NULL, &workspace),
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
static alnico_status_t configuration_try(struct hunt *hunt, cudnnBackendDescriptor_t configuration,
                                         struct cudnn_bag *bag, struct plans_choice *choice)
{
    struct search *search = hunt->search;
    cudnnBackendDescriptor_t engine, pack;
    TRY(engine_of(search->handle.library, configuration, bag, &engine, &choice->engine));
    const char *why = unwanted(hunt, engine);
    if (why)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "%s", why);
    TRY(plan_make(search, configuration, bag, choice));
    if (choice->workspace > search->workspace_bytes)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "wants a workspace of %zu bytes",
                         choice->workspace);
    TRY(convolution_pack(&search->handle, bag, hunt->memory, search->workspace, &pack));
    return choice_time(hunt, choice, pack);
}

static void hunt_log(const struct hunt *hunt, const struct plans_choice *choice,
                     alnico_status_t status)
{
    FILE *log = hunt->search->options.log;
    if (!log)
        return;
    fprintf(log, "# %s: %s %lld: ", hunt->text, choice->product ? "product" : "engine",
            (long long)choice->engine);
    if (status == ALNICO_SUCCESS)
        fprintf(log, "%.1f us, workspace %zu\n", choice->us, choice->workspace);
    else
        fprintf(log, "%s\n", alnico_error_detail());
}

/* Keeps the faster of the best and this one. An error that a kernel left ends everything. */
static alnico_status_t hunt_one(struct hunt *hunt, cudnnBackendDescriptor_t configuration)
{
    struct plans_choice choice = {.engine = -1};
    struct cudnn_bag bag = {0}, *loser = &bag;
    const alnico_status_t status = configuration_try(hunt, configuration, &bag, &choice);
    hunt_log(hunt, &choice, status);
    if (status == ALNICO_ERROR_MEMORY)
        hunt->search->starved = true;
    if (status == ALNICO_SUCCESS && (!is_found(&hunt->best) || choice.us < hunt->best.us)) {
        const struct cudnn_bag better = bag;
        bag = *hunt->best_bag;
        *hunt->best_bag = better;
        hunt->best = choice;
    }
    cudnn_bag_clear(hunt->search->handle.library, loser);
    const cudaError_t error = cudaStreamSynchronize(hunt->search->handle.stream);
    return error == cudaSuccess ? ALNICO_SUCCESS : gpu_status((int)error, hunt->text);
}

/* ---- All configurations ---- */

static alnico_status_t heuristics(struct hunt *hunt, cudnnBackendHeurMode_t mode,
                                  struct cudnn_bag *bag, cudnnBackendDescriptor_t *out,
                                  int64_t *count)
{
    const struct cudnn_library *library = hunt->search->handle.library;
    cudnnBackendDescriptor_t heuristic;
    const struct cudnn_attribute attributes[] = {
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &hunt->graph},
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

static alnico_status_t hunt_mode(struct hunt *hunt, cudnnBackendHeurMode_t mode,
                                 struct cudnn_bag *bag)
{
    cudnnBackendDescriptor_t configurations[CONFIGURATIONS];
    int64_t count = 0;
    const alnico_status_t status = heuristics(hunt, mode, bag, configurations, &count);
    if (status == ALNICO_ERROR_MEMORY)
        return status;
    if (status != ALNICO_SUCCESS) /* it names none */
        return ALNICO_SUCCESS;
    for (int64_t i = 0; i < count && i < CONFIGURATIONS; i++)
        TRY(hunt_one(hunt, configurations[i]));
    return ALNICO_SUCCESS;
}

/* What the heuristics prefer; else what nearly always works; else even what takes seconds to
 * compile. What cuDNN refuses to describe none of its engines does. */
static alnico_status_t hunt_all(struct hunt *hunt, struct cudnn_bag *bag)
{
    struct plans_options *options = &hunt->search->options;
    const bool thorough = options->thorough;
    const alnico_status_t described =
        convolution_graph(&hunt->search->handle, bag, hunt->convolution, &hunt->graph);
    if (described != ALNICO_SUCCESS)
        return described == ALNICO_ERROR_MEMORY ? described : ALNICO_SUCCESS;
    TRY(hunt_mode(hunt, CUDNN_HEUR_MODE_A, bag));
    if (!is_found(&hunt->best))
        TRY(hunt_mode(hunt, CUDNN_HEUR_MODE_FALLBACK, bag));
    if (is_found(&hunt->best) || thorough || hunt->convolution->sums == 1)
        return ALNICO_SUCCESS;
    options->thorough = true;
    const alnico_status_t status = hunt_mode(hunt, CUDNN_HEUR_MODE_A, bag);
    options->thorough = thorough;
    return status;
}

/* ---- Kernels of a product ---- */

alnico_status_t search_product(const struct search *search, const struct convolution *convolution,
                               struct product **out)
{
    return product_make(&search->handle, convolution, !search->options.tf32, out);
}

/* Times all kernels: *found and *best are the fastest, if there is one. What cuBLASLt refuses to
 * describe none of its kernels does. */
static alnico_status_t kernels_time(struct hunt *hunt, struct product *product,
                                    struct plans_choice *found, cublasLtMatmulAlgo_t *best)
{
    cublasLtMatmulHeuristicResult_t kernels[PRODUCTS];
    const struct search *search = hunt->search;
    int count;
    if (product_kernels(&search->handle, product, search->workspace_bytes, PRODUCTS, kernels,
                        &count) != ALNICO_SUCCESS)
        return ALNICO_SUCCESS;
    for (int i = 0; i < count; i++) {
        struct plans_choice choice = {
            .product = product, .workspace = kernels[i].workspaceSize, .engine = i};
        product->algorithm = kernels[i].algo;
        const alnico_status_t status = choice_time(hunt, &choice, NULL);
        hunt_log(hunt, &choice, status);
        TRY(gpu_status(cudaStreamSynchronize(search->handle.stream), hunt->text));
        if (status == ALNICO_SUCCESS && (!found->product || choice.us < found->us)) {
            *found = choice;
            *best = kernels[i].algo;
        }
    }
    return ALNICO_SUCCESS;
}

/* Takes a product's fastest kernel if it is faster than cuDNN's best engine. */
static alnico_status_t hunt_products(struct hunt *hunt)
{
    const struct search *search = hunt->search;
    struct plans_choice found = {.product = NULL};
    struct product *product;
    cublasLtMatmulAlgo_t best;
    if (!search->options.products || !product_possible(hunt->convolution))
        return ALNICO_SUCCESS;
    if (search_product(search, hunt->convolution, &product) != ALNICO_SUCCESS)
        return ALNICO_SUCCESS;
    const alnico_status_t status = kernels_time(hunt, product, &found, &best);
    const bool first = search->options.products == 2 || !is_found(&hunt->best);
    if (status != ALNICO_SUCCESS || !found.product || !(first || found.us < hunt->best.us)) {
        product_destroy(&search->handle, product);
        return status;
    }
    product->algorithm = best;
    cudnn_bag_clear(search->handle.library, hunt->best_bag);
    hunt->best = found;
    return ALNICO_SUCCESS;
}

/* ---- The fastest of all ---- */

alnico_status_t search_run(struct search *search, const struct convolution *convolution,
                           const struct convolution_memory *memory, struct cudnn_bag *bag,
                           struct plans_choice *out)
{
    struct cudnn_bag best = {0};
    struct hunt hunt = {
        .search = search, .convolution = convolution, .memory = memory, .best_bag = &best};
    char reason[400];
    convolution_text(convolution, hunt.text, sizeof hunt.text);
    TRY(workspace_take(search));
    search->starved = search->workspace_bytes < search->options.workspace_most;
    error_set(ALNICO_ERROR_UNSUPPORTED, "the heuristics name none");
    alnico_status_t status = hunt_all(&hunt, bag);
    if (status == ALNICO_SUCCESS)
        status = hunt_products(&hunt);
    if (status != ALNICO_SUCCESS || !is_found(&hunt.best)) {
        cudnn_bag_clear(search->handle.library, &best);
        TRY(status);
        snprintf(reason, sizeof reason, "%s", alnico_error_detail());
        return error_set(ALNICO_ERROR_UNSUPPORTED, "no engine for %s; the last one: %s", hunt.text,
                         reason);
    }
    *out = hunt.best;
    return cudnn_bag_append(search->handle.library, bag, &best);
}

/* ---- Plans as text ---- */

char *search_text(const struct search *search, const struct plans_choice *choice)
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

alnico_status_t search_restore(const struct search *search, const char *text, struct cudnn_bag *bag,
                               struct plans_choice *out)
{
    const struct cudnn_library *library = search->handle.library;
    const struct cudnn_attribute attributes[] = {
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &search->handle.cudnn},
        {CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(text),
         text},
    };
    int64_t workspace = 0, count = 0;
    TRY(cudnn_make(library, bag, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes, 2,
                   "a plan from the plan file", &out->plan));
    TRY(cudnn_status(library->cudnnBackendGetAttribute(out->plan,
                                                       CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                       CUDNN_TYPE_INT64, 1, &count, &workspace),
                     "the workspace of a plan"));
    out->workspace = workspace > 0 ? (size_t)workspace : 0;
    return out->workspace <= search->options.workspace_most
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_UNSUPPORTED, "workspace");
}

/* ---- Beginning and end ---- */

void search_close(struct search *search)
{
    search_release(search);
    if (search->begin)
        cudaEventDestroy(search->begin);
    if (search->end)
        cudaEventDestroy(search->end);
}

alnico_status_t search_open(const struct cudnn_handle *handle, const struct plans_options *options,
                            struct search *out)
{
    *out = (struct search){.handle = *handle, .options = *options};
    TRY(gpu_status(cudaEventCreate(&out->begin), "cudaEventCreate"));
    return gpu_status(cudaEventCreate(&out->end), "cudaEventCreate");
}
