/* Networks: appending operations, inferring shapes, laying out the arenas. See network.h. */
#include "train/graph/part.h"

#include "base/status.h"
#include "train/base/random.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

uint64_t network_layout(const struct network *network)
{
    uLong sum = 0;
    network = network_whole(network);
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        const uint64_t places[] = {node->weight.offset, node->weight.count, node->bias.offset,
                                   node->bias.count, node->statistics.offset};
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

size_t network_number(const struct network *network, size_t node)
{
    size_t number = 0;
    for (size_t i = 0; i < node; i++)
        number += network->nodes[i].operation.kind != OPERATION_MOVE;
    return number;
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
        height * width * channels > NETWORK_MAX_ELEMENTS)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_create: input %zux%zux%zu, expected sizes from 1 to %zu and at "
                         "most %zu numbers",
                         height, width, channels, most, NETWORK_MAX_ELEMENTS);
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
    network_part_destroy(network->part);
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

static size_t inputs_of(const struct operation *operation)
{
    size_t count = layers_all[operation->kind]->inputs;
    if (count)
        return count;
    for (count = 1; count < NETWORK_INPUTS && operation->in[count][0]; count++)
        ;
    return count;
}

/* Resolves the names of an operation. */
static alnico_status_t node_connect(const struct network *network, struct node *node)
{
    const struct operation *operation = &node->operation;
    const char *kind = operation_kind_name(operation->kind);
    size_t found;
    if (!name_valid(operation->name))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_append: the name of a %s must have 1 to %d characters", kind,
                         NETWORK_NAME_BYTES - 1);
    if (network_find(network, operation->name, &found))
        return error_set(ALNICO_ERROR_ARGUMENT, "network_append: the name '%s' is taken",
                         operation->name);
    node->inputs = inputs_of(operation);
    for (size_t i = 0; i < node->inputs; i++) {
        if (!name_valid(operation->in[i]) || !network_find(network, operation->in[i], &found))
            return error_set(
                ALNICO_ERROR_ARGUMENT,
                "network_append: %s '%s' reads tensor '%.*s', which is not made before", kind,
                operation->name, NETWORK_NAME_BYTES - 1, operation->in[i]);
        if (found > 0 && is_loss(&network->nodes[found - 1].operation))
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "network_append: %s '%s' reads '%s', which is a loss", kind,
                             operation->name, operation->in[i]);
        node->in[i] = found;
    }
    return ALNICO_SUCCESS;
}

/* Infers the output's shape, and the sizes of the parameters. */
static alnico_status_t node_shape(const struct network *network, struct node *node,
                                  struct tensor *out)
{
    const struct layer_ops *layer = layers_all[node->operation.kind];
    const struct tensor *in[NETWORK_INPUTS];
    for (size_t i = 0; i < node->inputs; i++)
        in[i] = &network->tensors[node->in[i]];
    *out = *in[0];
    out->readers = 0;
    if (layer->shape)
        TRY(layer->shape(node, in, out));
    if (out->height * out->width <= NETWORK_MAX_ELEMENTS / out->channels)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "network_append: %s '%s' makes %zux%zux%zu, expected at most %zu numbers",
                     layer->name, node->operation.name, out->height, out->width, out->channels,
                     NETWORK_MAX_ELEMENTS);
}

alnico_status_t network_append(struct network *network, const struct operation *operation)
{
    if ((unsigned)operation->kind >= OPERATION_KINDS || operation->kind == OPERATION_MOVE)
        return error_set(ALNICO_ERROR_ARGUMENT, "network_append: unknown kind %d of operation",
                         (int)operation->kind);
    struct node node = {
        .operation = *operation, .pad_rows = operation->pad, .pad_columns = operation->pad};
    struct tensor out;
    TRY(node_connect(network, &node));
    TRY(node_shape(network, &node, &out));
    TRY(network_reserve(network));
    for (size_t i = 0; i < node.inputs; i++)
        network->tensors[node.in[i]].readers++;
    network->draws |= layers_all[operation->kind]->draws;
    network->nodes[network->count++] = node;
    network->tensors[network->count] = out;
    return ALNICO_SUCCESS;
}

static size_t take(struct parameter *parameter, size_t offset)
{
    parameter->offset = offset;
    return offset + parameter->count;
}

/* All losses must take the labels that the last one does. */
static alnico_status_t labels_find(struct network *network)
{
    for (size_t i = network->count; i-- > 0;) {
        const struct node *node = &network->nodes[i];
        const struct tensor *in = &network->tensors[node->in[0]];
        if (!is_loss(&node->operation))
            continue;
        const size_t labels = in->height * in->width,
                     classes = layers_all[node->operation.kind]->classes(in);
        if (i + 1 == network->count) {
            network->labels = labels;
            network->classes = classes;
        }
        if (labels != network->labels || classes != network->classes)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "network_finish: loss '%s' takes %zu labels of %zu classes, and the "
                             "last one %zu of %zu",
                             node->operation.name, labels, classes, network->labels,
                             network->classes);
    }
    return ALNICO_SUCCESS;
}

alnico_status_t network_finish(struct network *network)
{
    if (!network->count || !is_loss(&network->nodes[network->count - 1].operation))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_finish: the last operation must be a loss");
    for (size_t i = 0; i < network->count; i++)
        if (!network->tensors[i].readers && !(i && is_loss(&network->nodes[i - 1].operation)))
            return error_set(ALNICO_ERROR_ARGUMENT, "network_finish: tensor '%s' is never read",
                             network_tensor_name(network, i));
    TRY(labels_find(network));
    network->parameters = network->statistics = 0;
    for (size_t i = network->count; i-- > 0;) {
        network->parameters = take(&network->nodes[i].weight, network->parameters);
        network->parameters = take(&network->nodes[i].bias, network->parameters);
    }
    network->shared = network->parameters;
    for (size_t i = 0; i < network->count; i++)
        if (network->nodes[i].statistics.count)
            network->statistics = take(&network->nodes[i].statistics, network->statistics);
    network->finished = true;
    return ALNICO_SUCCESS;
}

void network_initialize(const struct network *network, uint64_t seed, float *parameters,
                        float *statistics)
{
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        const struct layer_ops *layer = layers_all[node->operation.kind];
        for (size_t k = 0; k < node->bias.count; k++)
            parameters[node->bias.offset + k] = 0;
        if (layer->initialize)
            layer->initialize(node, network_output(network, i)->channels, random_stream(seed, i),
                              parameters + node->weight.offset,
                              statistics + node->statistics.offset);
    }
}
