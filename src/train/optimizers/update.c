/* An update on the CPU: the factors of clipping and LARS, then the optimizer's pass over every
 * tensor, on all threads. See optimizer.h. */
#include "train/optimizers/optimizer.h"

#include "base/vectorised.h"
#include "train/base/threads.h"

/* Into so many parts vectors are cut that are summed, whatever the number of threads. */
enum { PARTS = 256 };

VECTORISED static double squares_part(const float *x, size_t count)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* A vector's length. */
static double norm_of(const float *x, size_t count, int threads)
{
    double parts[PARTS], sum = 0;
#pragma omp parallel for schedule(static) num_threads(threads) if (count > THREADS_SHARE)
    for (size_t i = 0; i < PARTS; i++) {
        const size_t begin = count * i / PARTS, end = count * (i + 1) / PARTS;
        parts[i] = squares_part(x + begin, end - begin);
    }
    for (size_t i = 0; i < PARTS; i++)
        sum += parts[i];
    return sqrt(sum);
}

/* The factor of LARS for one operation's weights. */
static float trust_of(const struct optimizer_update *update, const struct parameter *weight,
                      float scale)
{
    const struct optimizer_options *options = update->options;
    if (options->trust <= 0)
        return 1;
    const double w = norm_of(update->parameters + weight->offset, weight->count, update->threads),
                 g = norm_of(update->gradients + weight->offset, weight->count, update->threads) *
                     (double)scale;
    return w > 0 && g > 0 ? (float)(options->trust * w / (g + options->decay * w)) : 1;
}

/* Returns whether the tensor's new parameters are finite. */
static bool tensor_update(const struct optimizer_update *update, struct rule rule,
                          const struct parameter *tensor)
{
    const struct optimizer_ops *ops = optimizers_all[update->options->kind];
    bool finite = true;
#pragma omp parallel num_threads(update->threads) if (tensor->count > THREADS_SHARE)               \
    reduction(&& : finite)
    {
        size_t at, count = thread_part(tensor->count, &at);
        struct optimizer_part part = {.count = count};
        at += tensor->offset;
        part.parameters = update->parameters + at;
        part.gradients = update->gradients + at;
        for (size_t i = 0; i < ops->states; i++)
            part.states[i] = update->states[i] + at;
        finite = ops->pass(rule, &part);
    }
    return finite;
}

/* The rule of biases and batch norms. */
static struct rule plain_rule(const struct optimizer_update *update)
{
    const struct optimizer_options *options = update->options;
    struct rule rule = optimizer_rule(options);
    rule.rate = update->rate;
    if (options->clip > 0)
        rule.scale =
            rule_clip(options->clip,
                      norm_of(update->gradients, update->network->parameters, update->threads));
    if (optimizers_all[options->kind]->counts) {
        float factor;
        rule_correct(options->beta1, options->beta2, update->updates, &factor, &rule.root);
        rule.rate *= factor;
    }
    return rule;
}

bool optimizer_update(const struct optimizer_update *asked)
{
    struct optimizer_update update = *asked;
    bool finite = true;
    if (!update.threads)
        update.threads = omp_get_max_threads();
    const struct rule plain = plain_rule(&update);
    for (size_t i = 0; i < update.network->count; i++) {
        const struct node *node = &update.network->nodes[i];
        struct rule weights = plain;
        if (layers_all[node->operation.kind]->decays) {
            weights.decay = (float)update.options->decay;
            weights.trust = trust_of(&update, &node->weight, plain.scale);
        }
        finite &= tensor_update(&update, weights, &node->weight);
        finite &= tensor_update(&update, plain, &node->bias);
    }
    return finite;
}
