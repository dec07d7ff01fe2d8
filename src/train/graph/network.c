/* Networks: appending operations, inferring shapes, laying out the arenas. See network.h. */
#include "train/graph/network.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const char *const kind_names[] = {
    [OPERATION_CONVOLUTION] = "convolution",
    [OPERATION_BATCH_NORM] = "batch norm",
    [OPERATION_RELU] = "relu",
    [OPERATION_ADD] = "addition",
    [OPERATION_MAX_POOL] = "max pooling",
    [OPERATION_AVERAGE_POOL] = "average pooling",
    [OPERATION_DENSE] = "dense",
    [OPERATION_CROSS_ENTROPY] = "cross-entropy",
};

/* The most numbers in one image of a tensor, or in a weight: products of sizes stay far below
 * 2^64. */
static const size_t max_elements = (size_t)1 << 31;

const char *operation_kind_name(enum operation_kind kind)
{
    return kind_names[kind];
}

size_t tensor_elements(const struct tensor *tensor)
{
    return tensor->height * tensor->width * tensor->channels;
}

uint64_t network_layout(const struct network *network)
{
    uLong sum = 0;
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        const uint64_t places[] = {node->weight.offset, node->weight.count, node->bias.offset,
                                   node->bias.count, node->statistics};
        const char *name = node->operation.name;
        sum = crc32_z(sum, (const Bytef *)name, strlen(name));
        sum = crc32_z(sum, (const Bytef *)places, sizeof places);
    }
    return sum;
}

const char *network_tensor_name(const struct network *network, size_t tensor)
{
    return tensor == 0 ? "input" : network->nodes[tensor - 1].operation.name;
}

const struct tensor *network_output(const struct network *network, size_t node)
{
    return &network->tensors[node + 1];
}

void network_window(const struct network *network, size_t node, size_t *rows, size_t *columns)
{
    const struct operation *operation = &network->nodes[node].operation;
    const struct tensor *in = &network->tensors[network->nodes[node].in[0]];
    *rows = operation->window ? operation->window : in->height;
    *columns = operation->window ? operation->window : in->width;
}

alnico_status_t network_create(size_t height, size_t width, size_t channels, struct network **out)
{
    *out = NULL;
    const size_t most = NETWORK_MAX_SIDE;
    if (!height || !width || !channels || height > most || width > most || channels > most ||
        height * width * channels > max_elements)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_create: input %zux%zux%zu, expected sizes from 1 to %zu and at "
                         "most %zu numbers",
                         height, width, channels, most, max_elements);
    struct network *network = calloc(1, sizeof *network);
    struct tensor *tensors = calloc(1, sizeof *tensors);
    if (!network || !tensors) {
        free(network);
        free(tensors);
        return error_set(ALNICO_ERROR_MEMORY, "network_create: no memory");
    }
    tensors[0] = (struct tensor){.height = height, .width = width, .channels = channels};
    network->tensors = tensors;
    *out = network;
    return ALNICO_SUCCESS;
}

void network_destroy(struct network *network)
{
    if (!network)
        return;
    free(network->nodes);
    free(network->tensors);
    free(network);
}

/* Makes room for one more node and its tensor. */
static alnico_status_t network_reserve(struct network *network)
{
    if (network->count < network->capacity)
        return ALNICO_SUCCESS;
    size_t capacity = network->capacity ? 2 * network->capacity : 16;
    struct node *nodes = realloc(network->nodes, capacity * sizeof *nodes);
    if (nodes)
        network->nodes = nodes;
    struct tensor *tensors = realloc(network->tensors, (capacity + 1) * sizeof *tensors);
    if (tensors)
        network->tensors = tensors;
    if (!nodes || !tensors)
        return error_set(ALNICO_ERROR_MEMORY, "network_append: no memory");
    network->capacity = capacity;
    return ALNICO_SUCCESS;
}

static bool network_find(const struct network *network, const char *name, size_t *tensor)
{
    for (size_t i = 0; i <= network->count; i++)
        if (strcmp(network_tensor_name(network, i), name) == 0) {
            *tensor = i;
            return true;
        }
    return false;
}

static bool name_valid(const char *name)
{
    return name[0] && memchr(name, '\0', NETWORK_NAME_BYTES);
}

/* Resolves the names of an operation. */
static alnico_status_t node_connect(const struct network *network, struct node *node)
{
    const struct operation *operation = &node->operation;
    const char *kind = kind_names[operation->kind];
    size_t found;
    if (!name_valid(operation->name))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_append: the name of a %s must have 1 to %d characters", kind,
                         NETWORK_NAME_BYTES - 1);
    if (network_find(network, operation->name, &found))
        return error_set(ALNICO_ERROR_ARGUMENT, "network_append: the name '%s' is taken",
                         operation->name);
    node->inputs = operation->kind == OPERATION_ADD ? 2 : 1;
    for (size_t i = 0; i < node->inputs; i++) {
        if (!name_valid(operation->in[i]) || !network_find(network, operation->in[i], &found))
            return error_set(
                ALNICO_ERROR_ARGUMENT,
                "network_append: %s '%s' reads tensor '%.*s', which is not made before", kind,
                operation->name, NETWORK_NAME_BYTES - 1, operation->in[i]);
        node->in[i] = found;
    }
    return ALNICO_SUCCESS;
}

/* Numbers along one side after sliding a window: checked before, so nothing wraps. */
static size_t slide(size_t side, size_t window, size_t stride, size_t pad)
{
    return (side + 2 * pad - window) / stride + 1;
}

static alnico_status_t window_shape(const struct operation *operation, const struct tensor *in,
                                    struct tensor *out)
{
    const size_t window = operation->window, pad = operation->pad, stride = operation->stride;
    const char *kind = kind_names[operation->kind];
    if (!window || !stride || window > NETWORK_MAX_SIDE || stride > NETWORK_MAX_SIDE)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_append: %s '%s' has window %zu and stride %zu, expected 1 to %d",
                         kind, operation->name, window, stride, NETWORK_MAX_SIDE);
    if (pad >= window)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_append: %s '%s' has pad %zu, expected less than its window %zu",
                         kind, operation->name, pad, window);
    if (window > in->height + 2 * pad || window > in->width + 2 * pad)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_append: %s '%s' has window %zu, which does not fit into its "
                         "input of %zux%zu with pad %zu",
                         kind, operation->name, window, in->height, in->width, pad);
    out->height = slide(in->height, window, stride, pad);
    out->width = slide(in->width, window, stride, pad);
    return ALNICO_SUCCESS;
}

static alnico_status_t filters_check(const struct operation *operation, size_t inputs)
{
    if (operation->filters && operation->filters <= NETWORK_MAX_SIDE &&
        inputs <= max_elements / operation->filters)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "network_append: %s '%s' has %zu filters of %zu weights, expected 1 to %d "
                     "filters and at most %zu weights",
                     kind_names[operation->kind], operation->name, operation->filters, inputs,
                     NETWORK_MAX_SIDE, max_elements);
}

static alnico_status_t convolution_shape(struct node *node, const struct tensor *in,
                                         struct tensor *out)
{
    const struct operation *operation = &node->operation;
    TRY(window_shape(operation, in, out));
    const size_t inputs = operation->window * operation->window * in->channels;
    TRY(filters_check(operation, inputs));
    out->channels = operation->filters;
    node->weight.count = operation->filters * inputs;
    node->bias.count = operation->bias ? operation->filters : 0;
    return ALNICO_SUCCESS;
}

static alnico_status_t dense_shape(struct node *node, const struct tensor *in, struct tensor *out)
{
    const size_t inputs = tensor_elements(in), filters = node->operation.filters;
    TRY(filters_check(&node->operation, inputs));
    *out = (struct tensor){.height = 1, .width = 1, .channels = filters};
    node->weight.count = filters * inputs;
    node->bias.count = filters;
    return ALNICO_SUCCESS;
}

static alnico_status_t pool_shape(const struct operation *operation, const struct tensor *in,
                                  struct tensor *out)
{
    if (operation->kind == OPERATION_AVERAGE_POOL && operation->window == 0) {
        if (operation->pad || operation->stride)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "network_append: %s '%s' over the whole image has pad %zu and stride "
                             "%zu, expected 0",
                             kind_names[operation->kind], operation->name, operation->pad,
                             operation->stride);
        out->height = out->width = 1;
        return ALNICO_SUCCESS;
    }
    return window_shape(operation, in, out);
}

static alnico_status_t add_shape(const struct operation *operation, const struct tensor *a,
                                 const struct tensor *b)
{
    if (a->height == b->height && a->width == b->width && a->channels == b->channels)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "network_append: addition '%s' of '%s' (%zux%zux%zu) and '%s' (%zux%zux%zu), "
                     "expected equal shapes",
                     operation->name, operation->in[0], a->height, a->width, a->channels,
                     operation->in[1], b->height, b->width, b->channels);
}

static alnico_status_t cross_entropy_shape(const struct operation *operation,
                                           const struct tensor *in)
{
    if (in->height == 1 && in->width == 1)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "network_append: cross-entropy '%s' reads '%s' of %zux%zux%zu, expected "
                     "1x1xclasses",
                     operation->name, operation->in[0], in->height, in->width, in->channels);
}

/* Infers the output's shape, and the sizes of the parameters. */
static alnico_status_t node_shape(const struct network *network, struct node *node,
                                  struct tensor *out)
{
    const struct operation *operation = &node->operation;
    const struct tensor *in = &network->tensors[node->in[0]];
    *out = (struct tensor){.height = in->height, .width = in->width, .channels = in->channels};
    switch (operation->kind) {
    case OPERATION_CONVOLUTION:
        return convolution_shape(node, in, out);
    case OPERATION_BATCH_NORM:
        node->weight.count = node->bias.count = in->channels;
        return ALNICO_SUCCESS;
    case OPERATION_RELU:
        return ALNICO_SUCCESS;
    case OPERATION_ADD:
        return add_shape(operation, in, &network->tensors[node->in[1]]);
    case OPERATION_MAX_POOL:
    case OPERATION_AVERAGE_POOL:
        return pool_shape(operation, in, out);
    case OPERATION_DENSE:
        return dense_shape(node, in, out);
    case OPERATION_CROSS_ENTROPY:
        return cross_entropy_shape(operation, in);
    }
    return error_set(ALNICO_ERROR_ARGUMENT, "network_append: unknown kind %d of operation",
                     (int)operation->kind);
}

alnico_status_t network_append(struct network *network, const struct operation *operation)
{
    const size_t last = network->count - 1;
    if ((unsigned)operation->kind > OPERATION_CROSS_ENTROPY)
        return error_set(ALNICO_ERROR_ARGUMENT, "network_append: unknown kind %d of operation",
                         (int)operation->kind);
    if (network->count && network->nodes[last].operation.kind == OPERATION_CROSS_ENTROPY)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_append: %s '%s' after the cross-entropy, which must be the last",
                         kind_names[operation->kind], operation->name);
    struct node node = {.operation = *operation};
    struct tensor out;
    TRY(node_connect(network, &node));
    TRY(node_shape(network, &node, &out));
    if (out.height * out.width > max_elements / out.channels)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_append: %s '%s' makes %zux%zux%zu, expected at most %zu numbers",
                         kind_names[operation->kind], operation->name, out.height, out.width,
                         out.channels, max_elements);
    TRY(network_reserve(network));
    for (size_t i = 0; i < node.inputs; i++)
        network->tensors[node.in[i]].readers++;
    network->nodes[network->count++] = node;
    network->tensors[network->count] = out;
    return ALNICO_SUCCESS;
}

static size_t take(struct parameter *parameter, size_t offset)
{
    parameter->offset = offset;
    return offset + parameter->count;
}

alnico_status_t network_finish(struct network *network)
{
    if (!network->count ||
        network->nodes[network->count - 1].operation.kind != OPERATION_CROSS_ENTROPY)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_finish: the last operation must be a cross-entropy");
    for (size_t i = 0; i < network->count; i++)
        if (!network->tensors[i].readers)
            return error_set(ALNICO_ERROR_ARGUMENT, "network_finish: tensor '%s' is never read",
                             network_tensor_name(network, i));
    network->parameters = network->statistics = 0;
    for (size_t i = network->count; i-- > 0;) {
        network->parameters = take(&network->nodes[i].weight, network->parameters);
        network->parameters = take(&network->nodes[i].bias, network->parameters);
    }
    for (size_t i = 0; i < network->count; i++)
        if (network->nodes[i].operation.kind == OPERATION_BATCH_NORM) {
            network->nodes[i].statistics = network->statistics;
            network->statistics += 2 * network_output(network, i)->channels;
        }
    network->finished = true;
    return ALNICO_SUCCESS;
}
