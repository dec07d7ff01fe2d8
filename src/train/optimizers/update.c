/* An update on the CPU: the factors of clipping and LARS, then the optimizer's pass over all
 * tensors, on all threads. See optimizer.h. */
#include "train/optimizers/optimizer.h"

#include "base/vectorised.h"
#include "train/base/threads.h"
#include "train/graph/part.h"

/* Into so many parts vectors are cut that are summed, whatever the number of threads; and so many
 * nodes are updated together. */
enum { PARTS = 256, GROUP = 64 };

VECTORISED static double squares_part(const float *x, size_t count)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* A vector's squared length. */
static double squares_of(const float *x, size_t count, int threads)
{
    double parts[PARTS], sum = 0;
#pragma omp parallel for schedule(static) num_threads(threads) if (count > THREADS_SHARE)
    for (size_t i = 0; i < PARTS; i++) {
        const size_t begin = count * i / PARTS, end = count * (i + 1) / PARTS;
        parts[i] = squares_part(x + begin, end - begin);
    }
    for (size_t i = 0; i < PARTS; i++)
        sum += parts[i];
    return sum;
}

static int threads_of(const struct optimizer_update *update)
{
    return update->threads ? update->threads : omp_get_max_threads();
}

static double weights_squares(const struct optimizer_update *update, const float *arena,
                              size_t node)
{
    const struct parameter *weight = &update->network->nodes[node].weight;
    return squares_of(arena + weight->offset, weight->count, threads_of(update));
}

size_t optimizer_squares_count(const struct network *network)
{
    return 2 * network->count + 1;
}

void optimizer_squares(const struct optimizer_update *update, double *out)
{
    const struct network *network = update->network;
    for (size_t i = 0; i < network->count; i++) {
        const bool own = node_own(network, i);
        out[2 * i] = own ? weights_squares(update, update->parameters, i) : 0;
        out[2 * i + 1] = own ? weights_squares(update, update->gradients, i) : 0;
    }
    out[2 * network->count] = squares_of(update->gradients + network->shared,
                                         network->parameters - network->shared, threads_of(update));
}

/* The factor of LARS for one operation's weights. */
static float trust_of(const struct optimizer_update *update, size_t node, float scale)
{
    const struct optimizer_options *options = update->options;
    const double *own =
        update->squares && node_own(update->network, node) ? update->squares + 2 * node : NULL;
    if (options->trust <= 0)
        return 1;
    const double w = sqrt(own ? own[0] : weights_squares(update, update->parameters, node)),
                 g = sqrt(own ? own[1] : weights_squares(update, update->gradients, node)) *
                     (double)scale;
    return w > 0 && g > 0 ? (float)(options->trust * w / (g + options->decay * w)) : 1;
}

/* What the arenas hold of a tensor, and where. */
static struct parameter tensor_held(const struct optimizer_update *update,
                                    const struct parameter *tensor)
{
    const struct parameter *only = update->only;
    if (!only)
        return *tensor;
    const size_t begin = tensor->offset > only->offset ? tensor->offset : only->offset;
    const size_t ends[] = {tensor->offset + tensor->count, only->offset + only->count};
    const size_t end = ends[0] < ends[1] ? ends[0] : ends[1];
    return (struct parameter){.offset = begin - only->offset,
                              .count = begin < end ? end - begin : 0};
}

/* Changes this thread's part of a tensor. Returns whether its new parameters are finite. */
static bool tensor_update(const struct optimizer_update *update, struct rule rule,
                          const struct parameter *tensor)
{
    const struct optimizer_ops *ops = optimizers_all[update->options->kind];
    const struct parameter held = tensor_held(update, tensor);
    size_t at, count = thread_part(held.count, &at);
    struct optimizer_part part = {.count = count};
    at += held.offset;
    part.parameters = update->parameters + at;
    part.gradients = update->gradients + at;
    for (size_t i = 0; i < ops->states; i++)
        part.states[i] = update->states[i] + at;
    return ops->pass(rule, &part);
}

/* Of all gradients; those of filters that are split are in a sum over the ranks. */
static double gradients_squares(const struct optimizer_update *update)
{
    const struct network *network = update->network;
    const size_t count = update->squares ? network->shared : network->parameters;
    return squares_of(update->gradients, count, update->threads) +
           (update->squares ? update->squares[2 * network->count] : 0);
}

/* The rule of biases and batch norms. */
static struct rule plain_rule(const struct optimizer_update *update)
{
    const struct optimizer_options *options = update->options;
    struct rule rule = optimizer_rule(options);
    rule.rate = update->rate;
    if (options->clip > 0)
        rule.scale = rule_clip(options->clip, sqrt(gradients_squares(update)));
    if (optimizers_all[options->kind]->counts) {
        float factor;
        rule_correct(options->beta1, options->beta2, update->updates, &factor, &rule.root);
        rule.rate *= factor;
    }
    return rule;
}

/* The rule of a node's weights. */
static struct rule weight_rule(const struct optimizer_update *update, struct rule plain,
                               size_t node)
{
    if (!layers_all[update->network->nodes[node].operation.kind]->decays)
        return plain;
    plain.decay = (float)update->options->decay;
    plain.trust = trust_of(update, node, plain.scale);
    return plain;
}

/* Changes the parameters of some nodes, up to GROUP. The threads meet only at the end. */
static bool group_update(const struct optimizer_update *update, struct rule plain, size_t first,
                         size_t end)
{
    const struct node *nodes = update->network->nodes;
    struct rule weights[GROUP];
    size_t elements = 0;
    bool finite = true;
    for (size_t i = first; i < end; i++) {
        weights[i - first] = weight_rule(update, plain, i);
        elements += nodes[i].weight.count + nodes[i].bias.count;
    }
#pragma omp parallel num_threads(update->threads) if (elements > THREADS_SHARE)                   \
    reduction(&& : finite)
    for (size_t i = first; i < end; i++) {
        finite &= tensor_update(update, weights[i - first], &nodes[i].weight);
        finite &= tensor_update(update, plain, &nodes[i].bias);
    }
    return finite;
}

bool optimizer_update(const struct optimizer_update *asked)
{
    struct optimizer_update update = *asked;
    const size_t count = update.network->count;
    bool finite = true;
    update.threads = threads_of(asked);
    const struct rule plain = plain_rule(&update);
    for (size_t i = 0; i < count; i += GROUP)
        finite &= group_update(&update, plain, i, i + GROUP < count ? i + GROUP : count);
    return finite;
}
