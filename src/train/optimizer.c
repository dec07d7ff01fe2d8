/* See optimizer.h. */
#include "optimizer.h"

#include "status.h"
#include "vectorised.h"

#include <math.h>
#include <stdlib.h>

struct optimizer_options optimizer_defaults(size_t images)
{
    return (struct optimizer_options){.rate = 0.1 * (double)images / 128,
                                      .momentum = 0.9,
                                      .decay = 5e-4,
                                      .warmup = 0.05,
                                      .drops = {0.6, 0.85, 1}};
}

static alnico_status_t option_check(const char *name, double value, double most)
{
    if (value >= 0 && value <= most)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "optimizer: %s %g, expected 0 to %g", name, value,
                     most);
}

static alnico_status_t options_check(const struct optimizer_options *options)
{
    TRY(option_check("learning rate", options->rate, 1e6));
    TRY(option_check("momentum", options->momentum, 0.999999));
    TRY(option_check("weight decay", options->decay, 1e6));
    TRY(option_check("warm-up", options->warmup, 1));
    for (size_t i = 0; i < OPTIMIZER_DROPS; i++)
        if (!(options->drops[i] >= 0))
            return error_set(ALNICO_ERROR_ARGUMENT, "optimizer: drop at %g, expected at least 0",
                             options->drops[i]);
    return ALNICO_SUCCESS;
}

alnico_status_t optimizer_create(const struct network *network,
                                 const struct optimizer_options *options, struct optimizer **out)
{
    *out = NULL;
    TRY(options_check(options));
    struct optimizer *optimizer = malloc(sizeof *optimizer);
    float *velocity = calloc(network->parameters + 1, sizeof *velocity);
    if (!optimizer || !velocity) {
        free(optimizer);
        free(velocity);
        return error_set(ALNICO_ERROR_MEMORY, "optimizer_create: no memory");
    }
    *optimizer = (struct optimizer){.network = network, .options = *options, .velocity = velocity};
    *out = optimizer;
    return ALNICO_SUCCESS;
}

void optimizer_destroy(struct optimizer *optimizer)
{
    if (!optimizer)
        return;
    free(optimizer->velocity);
    free(optimizer);
}

double optimizer_rate(const struct optimizer_options *options, double done)
{
    double rate = options->rate;
    if (done < options->warmup)
        rate *= done / options->warmup;
    for (size_t i = 0; i < OPTIMIZER_DROPS; i++)
        if (done > options->drops[i])
            rate /= 10;
    return rate;
}

struct update {
    float rate, momentum, decay;
};

VECTORISED static void update_run(struct update update, float *parameters, float *velocity,
                                  const float *gradients, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const float slope = gradients[i] + update.decay * parameters[i];
        velocity[i] = update.momentum * velocity[i] + slope;
        parameters[i] -= update.rate * velocity[i];
    }
}

void optimizer_step(struct optimizer *optimizer, double rate, float *parameters,
                    const float *gradients)
{
    const struct optimizer_options *options = &optimizer->options;
    const struct update plain = {.rate = (float)rate, .momentum = (float)options->momentum};
    struct update decaying = plain;
    decaying.decay = (float)options->decay;
    for (size_t i = 0; i < optimizer->network->count; i++) {
        const struct node *node = &optimizer->network->nodes[i];
        const bool norm = node->operation.kind == OPERATION_BATCH_NORM;
        const size_t weight = node->weight.offset, bias = node->bias.offset;
        update_run(norm ? plain : decaying, parameters + weight, optimizer->velocity + weight,
                   gradients + weight, node->weight.count);
        update_run(plain, parameters + bias, optimizer->velocity + bias, gradients + bias,
                   node->bias.count);
    }
}
