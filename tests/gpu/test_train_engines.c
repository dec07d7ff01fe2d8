/* What cuDNN says, without a GPU, of the convolutions of ResNet-50 that may carry out the batch
 * norm before them: for the properties of an H200 it has engines, compiled beforehand, that make
 * the sums forward, and for the weights' gradient. Skipped without cuDNN 9.8 or newer. */
#include "train/cudnn_steps.h"
#include "train/models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED = 77 };

#if CUDNN_VERSION >= 90800

enum { BATCH = 256, SIDE = 224, CLASSES = 1000, CONFIGURATIONS = 24 };

/* As cuDNN writes them. */
static const char h200[] =
    "{\"schemaVersion\":1,\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,"
    "\"totalGlobalMem\":150754820096,\"maxGridSize\":[2147483647,65535,65535],"
    "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":132,"
    "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
    "\"l2CacheSize\":62914560,\"deviceName\":\"NVIDIA H200\"}";

/* cuDNN's functions, and where plans are made for. */
static struct cudnn_library library;
static const struct cudnn_handle handle = {.library = &library};
static cudnnBackendDescriptor_t properties;
static size_t checks, failures;

static void check(bool right, const char *what, const char *text)
{
    checks++;
    failures += !right;
    if (!right)
        printf("FAIL %s: %s (%s)\n", text, what, alnico_error_detail());
}

/* Without a GPU there is no handle; the heuristics are given the properties instead. */
static __typeof__(cudnnBackendSetAttribute) *set_any;

static cudnnStatus_t set_attribute(cudnnBackendDescriptor_t descriptor,
                                   cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count,
                                   const void *values)
{
    return name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE
               ? CUDNN_STATUS_SUCCESS
               : set_any(descriptor, name, type, count, values);
}

static bool open_library(struct cudnn_bag *bag)
{
    const struct cudnn_attribute json = {CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                         sizeof h200 - 1, h200};
    const struct cudnn_library *found = cudnn_library();
    if (!found || found->cudnnGetVersion() < 90800)
        return false;
    library = *found;
    set_any = library.cudnnBackendSetAttribute;
    library.cudnnBackendSetAttribute = set_attribute;
    return cudnn_make(&library, bag, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &json, 1,
                      "the properties of a GPU", &properties) == ALNICO_SUCCESS;
}

/* ---- Engines ---- */

static alnico_status_t configurations_of(struct cudnn_bag *bag, cudnnBackendDescriptor_t graph,
                                         cudnnBackendDescriptor_t *out, int64_t *count)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    const struct cudnn_attribute attributes[] = {
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph},
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode},
        {CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties},
    };
    cudnnBackendDescriptor_t heuristic;
    alnico_status_t status = cudnn_make(&library, bag, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
                                        attributes, 3, "heuristics of cuDNN", &heuristic);
    for (int i = 0; i < CONFIGURATIONS && status == ALNICO_SUCCESS; i++)
        status = cudnn_empty(&library, bag, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &out[i]);
    if (status != ALNICO_SUCCESS)
        return status;
    return cudnn_status(library.cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                         CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                         CONFIGURATIONS, count, out),
                        "results of cuDNN's heuristics");
}

static bool compiled_beforehand(struct cudnn_bag *bag, cudnnBackendDescriptor_t configuration)
{
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine;
    int64_t count = 0;
    if (cudnn_empty(&library, bag, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) ||
        library.cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine) ||
        library.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                         CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT,
                                         &count, notes))
        return false;
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            return false;
    return true;
}

/* Whether a plan can be made of it that wants no more memory than is set down for that. */
static bool fits(struct cudnn_bag *bag, cudnnBackendDescriptor_t configuration)
{
    const struct cudnn_attribute attributes[] = {
        {CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configuration},
    };
    cudnnBackendDescriptor_t plan;
    int64_t count = 0, bytes = -1;
    return compiled_beforehand(bag, configuration) &&
           cudnn_make(&library, bag, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes, 2,
                      "a plan of cuDNN", &plan) == ALNICO_SUCCESS &&
           !library.cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                             CUDNN_TYPE_INT64, 1, &count, &bytes) &&
           bytes >= 0 && bytes <= WORKSPACE_USUAL;
}

static void check_engines(const struct convolution *convolution)
{
    cudnnBackendDescriptor_t graph, all[CONFIGURATIONS];
    struct cudnn_bag bag = {0};
    char text[128];
    int64_t count = 0, fitting = 0;
    convolution_text(convolution, text, sizeof text);
    alnico_status_t status = convolution_graph(&handle, &bag, convolution, &graph);
    if (status == ALNICO_SUCCESS)
        status = configurations_of(&bag, graph, all, &count);
    for (int64_t i = 0; i < count && i < CONFIGURATIONS; i++)
        fitting += fits(&bag, all[i]);
    check(status == ALNICO_SUCCESS && fitting > 0, "no engine", text);
    printf("%s: %lld of %lld configurations\n", text, (long long)fitting, (long long)count);
    cudnn_bag_clear(&library, &bag);
}

/* ---- Convolutions ---- */

/* Which are in a plan file by their text: it says what they are of. */
static void check_texts(struct convolution convolution)
{
    char with[128], without[128];
    convolution_text(&convolution, with, sizeof with);
    convolution.norm = false;
    convolution_text(&convolution, without, sizeof without);
    check(strcmp(with, without) != 0 && strlen(with) < sizeof with - 1, "is ambiguous", with);
}

static void check_step(const struct plan *plan, const struct step *step)
{
    const struct network *network = plan->network;
    const struct operation *operation = &network->nodes[step->first].operation;
    const struct tensor *in = &network->tensors[step->in[0]], *out = &network->tensors[step->out];
    struct convolution convolution = {.way = CONVOLUTION_FORWARD,
                                      .type = ALNICO_FLOAT16,
                                      .batch = plan->batch,
                                      .height = in->height,
                                      .width = in->width,
                                      .channels = in->channels,
                                      .filters = out->channels,
                                      .rows = operation->window,
                                      .columns = operation->window,
                                      .stride = operation->stride,
                                      .pad = operation->pad,
                                      .out_height = out->height,
                                      .out_width = out->width,
                                      .sums = 1,
                                      .norm = true};
    check_engines(&convolution);
    check_texts(convolution);
    convolution.way = CONVOLUTION_WEIGHTS;
    convolution.sums = 0;
    check_engines(&convolution);
    check_texts(convolution);
}

static void check_model(void)
{
    struct network *network = NULL;
    struct plan *plan = NULL;
    const bool made = !model_network(&model_resnet50, SIDE, SIDE, 3, CLASSES, &network) &&
                      !plan_create(network, &kernels_cudnn.rules, BATCH, PRECISION_FP16, &plan);
    check(made, "no plan", "resnet50");
    for (size_t s = 0; made && s < plan->count; s++)
        if (prologue_norm(plan, &plan->steps[s]) != PLAN_NONE)
            check_step(plan, &plan->steps[s]);
    check(checks > 32, "no convolution may carry out a batch norm", "resnet50");
    plan_destroy(plan);
    network_destroy(network);
}

int main(void)
{
    struct cudnn_bag bag = {0};
    setenv("ALNICO_TRAIN_WAYS", "prologue", 1);
    if (!open_library(&bag)) {
        printf("skipped: %s\n", alnico_error_detail());
        return SKIPPED;
    }
    check_model();
    cudnn_bag_clear(&library, &bag);
    printf("engines: %zu checks, %zu failed\n", checks, failures);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}

#else

int main(void)
{
    printf("skipped: cuDNN's headers are older than 9.8\n");
    return SKIPPED;
}

#endif
