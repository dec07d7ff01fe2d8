/* A network's layers as a table and as JSON: shapes, parameters, and the floating-point operations
 * and bytes of a batch, each layer by itself. See describe.h. */
#include "tools/train/describe.h"

#include "tools/common/program.h"

#include <stdio.h>

/* Of one layer, or of all. */
struct work {
    size_t parameters;
    struct step_cost ways[2]; /* forward, backward */
};

static struct work layer_work(const struct trainer_description *description, size_t layer)
{
    const struct node *node = &description->network->nodes[layer];
    struct work work = {.parameters = node->weight.count + node->bias.count};
    for (int way = 0; way < 2; way++) /* the least times are not used: any rates will do */
        work.ways[way] =
            step_cost(description->plan, &description->rules, &profile_h200, layer, way);
    return work;
}

static struct work all_work(const struct trainer_description *description)
{
    struct work all = {0};
    for (size_t i = 0; i < description->network->count; i++) {
        const struct work work = layer_work(description, i);
        all.parameters += work.parameters;
        for (int way = 0; way < 2; way++) {
            all.ways[way].flops += work.ways[way].flops;
            all.ways[way].bytes += work.ways[way].bytes;
        }
    }
    return all;
}

static void work_print(const struct work *work)
{
    printf(" %11zu", work->parameters);
    for (int way = 0; way < 2; way++)
        printf(" %11.2f %10.3f", work->ways[way].flops * 1e-6, work->ways[way].bytes * 1e-6);
    puts("");
}

static void layer_print(const struct trainer_description *description, size_t layer)
{
    const struct operation *operation = &description->network->nodes[layer].operation;
    const struct tensor *out = network_output(description->network, layer);
    const struct work work = layer_work(description, layer);
    char shape[48];
    snprintf(shape, sizeof shape, "%zux%zux%zu", out->height, out->width, out->channels);
    printf("%-20s %-16s %15s", operation->name, operation_kind_name(operation->kind), shape);
    work_print(&work);
}

void train_description_print(const struct trainer_options *options,
                             const struct trainer_description *description)
{
    const struct tensor *images = &description->network->tensors[0];
    const struct work all = all_work(description);
    const double batch = (double)description->plan->batch;
    printf("%s: images of %zux%zux%zu, batch %zu, %s\n", options->model, images->height,
           images->width, images->channels, description->plan->batch,
           precision_name(description->plan->precision));
    printf("%-20s %-16s %15s %11s %11s %10s %11s %10s\n", "# layer", "operation", "output",
           "parameters", "f MFLOP", "f MB", "b MFLOP", "b MB");
    for (size_t i = 0; i < description->network->count; i++)
        layer_print(description, i);
    printf("%-20s %-16s %15s", "# all", "", "");
    work_print(&all);
    printf("%zu parameters; an image: %.4g GFLOP forward, %.4g backward\n", all.parameters,
           all.ways[0].flops * 1e-9 / batch, all.ways[1].flops * 1e-9 / batch);
}

static void work_json(cJSON *object, const struct work *work)
{
    json_add(object, "parameters %zu", work->parameters);
    for (int way = 0; way < 2; way++)
        cJSON_AddItemToObject(object, way ? "backward" : "forward",
                              json_add(cJSON_CreateObject(), "flop %g bytes %g",
                                       work->ways[way].flops, work->ways[way].bytes));
}

static cJSON *sides_json(const struct tensor *tensor)
{
    const int sides[3] = {(int)tensor->height, (int)tensor->width, (int)tensor->channels};
    return cJSON_CreateIntArray(sides, 3);
}

static void layer_json(cJSON *object, const struct trainer_description *description, size_t layer)
{
    const struct network *network = description->network;
    const struct node *node = &network->nodes[layer];
    const struct work work = layer_work(description, layer);
    json_add(object, "layer %s operation %s", node->operation.name,
             operation_kind_name(node->operation.kind));
    cJSON *reads = cJSON_AddArrayToObject(object, "reads");
    for (size_t i = 0; i < node->inputs; i++)
        cJSON_AddItemToArray(reads, cJSON_CreateString(network_tensor_name(network, node->in[i])));
    cJSON_AddItemToObject(object, "output", sides_json(network_output(network, layer)));
    work_json(object, &work);
}

cJSON *train_description_json(const struct trainer_description *description)
{
    const struct work all = all_work(description);
    cJSON *object = json_add(cJSON_CreateObject(), "batch %zu", description->plan->batch);
    cJSON_AddItemToObject(object, "input", sides_json(&description->network->tensors[0]));
    work_json(object, &all);
    cJSON *layers = cJSON_AddArrayToObject(object, "layers");
    for (size_t i = 0; i < description->network->count; i++)
        layer_json(json_row(layers), description, i);
    return object;
}
