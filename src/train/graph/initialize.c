/* The first values of the parameters: see network_initialize in network.h. */
#include "train/graph/network.h"

#include "train/base/random.h"

#include <math.h>

/* A normal deviate by the polar form of Box and Muller (Marsaglia 1962); one of each pair is
 * used. */
static double normal(uint64_t *state)
{
    double x, y, square;
    do {
        x = 2 * random_unit(state) - 1;
        y = 2 * random_unit(state) - 1;
        square = x * x + y * y;
    } while (square >= 1 || square == 0);
    return x * sqrt(-2 * log(square) / square);
}

static void fill(float *out, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        out[i] = value;
}

static void weights_initialize(const struct network *network, size_t i, uint64_t state,
                               float *weights)
{
    const struct node *node = &network->nodes[i];
    const size_t inputs = node->weight.count / network_output(network, i)->channels;
    const double deviation = sqrt(2.0 / (double)inputs);
    for (size_t k = 0; k < node->weight.count; k++)
        weights[k] = (float)(deviation * normal(&state));
}

static void norm_initialize(const struct network *network, size_t i, float *scale, float *running)
{
    const size_t channels = network_output(network, i)->channels;
    fill(scale, channels, network->nodes[i].operation.zero ? 0 : 1);
    fill(running, channels, 0);
    fill(running + channels, channels, 1);
}

void network_initialize(const struct network *network, uint64_t seed, float *parameters,
                        float *statistics)
{
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        uint64_t state = random_stream(seed, i);
        fill(parameters + node->bias.offset, node->bias.count, 0);
        if (node->operation.kind == OPERATION_BATCH_NORM)
            norm_initialize(network, i, parameters + node->weight.offset,
                            statistics + node->statistics);
        else if (node->weight.count)
            weights_initialize(network, i, state, parameters + node->weight.offset);
    }
}
