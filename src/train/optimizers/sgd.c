/* Stochastic gradient descent with momentum; with layer-wise rates (LARS: You, Gitman, Ginsburg
 * 2017) if options->trust > 0. slope = gradient + decay * parameter; velocity = momentum * velocity
 * + slope; parameter -= rate * velocity. */
#include "train/optimizers/optimizer.h"

#include "base/vectorised.h"

#include <math.h>

struct update {
    float rate, momentum, decay, trust;
};

/* Returns whether the new parameters are finite. */
VECTORISED static bool update_run(struct update update, float *parameters, float *velocity,
                                  const float *gradients, size_t count)
{
    float sum = 0; /* of zeros, or of numbers that are none */
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++) {
        const float slope = update.trust * (gradients[i] + update.decay * parameters[i]);
        velocity[i] = update.momentum * velocity[i] + slope;
        parameters[i] -= update.rate * velocity[i];
        sum += 0 * parameters[i];
    }
    return sum == 0;
}

/* The square of a vector's length. */
static double square(const float *x, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* The factor of LARS for one operation's weights. */
static float trust_of(const struct optimizer_options *options, const float *weights,
                      const float *gradients, size_t count)
{
    const double w = sqrt(square(weights, count)), g = sqrt(square(gradients, count));
    if (options->trust <= 0 || w <= 0 || g <= 0)
        return 1;
    return (float)(options->trust * w / (g + options->decay * w));
}

static bool sgd_step(const struct network *network, const struct optimizer_options *options,
                     float rate, float *parameters, float *const states[], const float *gradients)
{
    float *velocity = states[0];
    bool finite = true;
    const struct update plain = {.rate = rate, .momentum = (float)options->momentum, .trust = 1};
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        const size_t weight = node->weight.offset, bias = node->bias.offset;
        struct update weights = plain;
        if (layers_all[node->operation.kind]->decays) {
            weights.decay = (float)options->decay;
            weights.trust =
                trust_of(options, parameters + weight, gradients + weight, node->weight.count);
        }
        finite &= update_run(weights, parameters + weight, velocity + weight, gradients + weight,
                             node->weight.count);
        finite &= update_run(plain, parameters + bias, velocity + bias, gradients + bias,
                             node->bias.count);
    }
    return finite;
}

const struct optimizer_ops optimizer_sgd = {.name = "sgd", .states = 1, .step = sgd_step};
