/* One neuron: the sigmoid of one number times a weight plus a bias, which learns the label as a
 * number by its squared error (as Biswas's SHM-Learn-Dist does a step at x = 0.5). */
#include "train/models/models.h"

#include "base/status.h"

static alnico_status_t neuron_build(struct network *network, const void *design, size_t classes)
{
    const struct operation operations[] = {
        {.kind = OPERATION_DENSE, .name = "sum", .in = {"input"}, .filters = 1},
        {.kind = OPERATION_SIGMOID, .name = "neuron", .in = {"sum"}},
        {.kind = OPERATION_SQUARED_ERROR, .name = "loss", .in = {"neuron"}},
    };
    (void)design, (void)classes;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        TRY(network_append(network, &operations[i]));
    return ALNICO_SUCCESS;
}

const struct model model_neuron = {
    .name = "neuron",
    .about = "one sigmoid neuron",
    .build = neuron_build,
    .images = {1, 1, 1, 2},
    .fixed = true,
    .data = "step",
};
