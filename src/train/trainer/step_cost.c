/* What the steps of a plan must move and compute. See profile.h. */
#include "train/trainer/step_profile.h"

#include <math.h>

/* Adds a kernel. */
static void kernel(struct step_cost *cost, double bytes, double flops)
{
    cost->bytes += bytes;
    cost->flops += flops;
    cost->least_us += fmax(bytes / cost->rates->bytes_us, flops / cost->rates->flops_us);
}

/* What the rules below are about. */
struct subject {
    const struct plan *plan;
    const struct step *step;
    double in[2], out, mask; /* bytes of values; of a bit for each element of out */
    double weights;
    double flops;    /* forward */
    double added[2]; /* bytes read of gradients of inputs that are added to */
};

static const struct node *node_of(const struct subject *s, size_t i)
{
    return &s->plan->network->nodes[s->step->first + i];
}

static size_t value_bytes(const struct replica *replica, size_t tensor)
{
    const struct plan_rules *rules = &replica->ops->rules;
    return rules->bytes ? rules->bytes(replica->plan, tensor)
                        : plan_float_bytes(replica->plan, tensor);
}

static struct subject subject_of(const struct replica *replica, size_t step)
{
    const struct plan *plan = replica->plan;
    struct subject s = {.plan = plan, .step = &plan->steps[step]};
    const struct tensor *out = &plan->network->tensors[s.step->out];
    const double elements = (double)(plan->batch * tensor_elements(out));
    for (size_t i = 0; i < s.step->inputs; i++) {
        s.in[i] = (double)value_bytes(replica, s.step->in[i]);
        s.added[i] = s.step->accumulate[i] ? s.in[i] : 0;
    }
    s.out = (double)value_bytes(replica, s.step->out);
    s.mask = elements / 8;
    const struct node *node = node_of(&s, 0);
    const struct tensor *made = network_output(plan->network, s.step->first);
    s.weights = (double)node->weight.count * (plan->precision == PRECISION_FP32 ? 4 : 2);
    s.flops = 2.0 * (double)node->weight.count * (double)(made->height * made->width) *
              (double)plan->batch;
    return s;
}

/* A 1x1 window with a stride reads some of the pixels only; the gradient is of all. */
static void convolution_cost(const struct subject *s, bool backward, struct step_cost *cost)
{
    const struct operation *operation = &node_of(s, 0)->operation;
    const double stride = (double)operation->stride, others = s->out + s->weights;
    const bool sparse = operation->kind == OPERATION_CONVOLUTION && operation->window == 1;
    /* Forward, or the gradient of weights. */
    kernel(cost, others + s->in[0] / (sparse ? stride * stride : 1), s->flops);
    if (backward && s->step->in[0] != 0)
        kernel(cost, others + s->in[0] + s->added[0], s->flops);
}

/* One batch norm or two, and what is added to the one. */
static void norm_cost(const struct subject *s, bool backward, struct step_cost *cost)
{
    const bool two = s->step->count > 1 && node_of(s, 1)->operation.kind == OPERATION_BATCH_NORM;
    const bool relu = node_of(s, s->step->count - 1)->operation.kind == OPERATION_RELU;
    const double norms = s->in[0] + (two ? s->in[1] : 0), inputs = s->in[0] + s->in[1];
    const double mask = relu && s->step->inputs > 1 ? s->mask : 0;
    if (node_of(s, s->step->count - 1)->operation.kind == OPERATION_MAX_POOL) {
        /* Of each window's winner its x and place, and a mask; sums are over windows. */
        kernel(cost, backward ? 2 * s->out + s->mask : s->in[0], 0);
        kernel(cost,
               s->in[0] + (backward ? s->in[0] + s->added[0] + s->out : 2 * s->out + s->mask) +
                   8 * s->mask,
               0);
        return;
    }
    kernel(cost, norms + (backward ? s->out + mask : 0), 0);
    kernel(cost, (backward ? norms + s->added[0] + s->added[1] : 0) + inputs + s->out + mask, 0);
}

static void pointwise_cost(const struct subject *s, bool backward, struct step_cost *cost)
{
    const bool relu = node_of(s, s->step->count - 1)->operation.kind == OPERATION_RELU;
    if (!backward) {
        kernel(cost, s->in[0] + s->in[1] + s->out, 0);
        return;
    }
    for (size_t i = 0; i < s->step->inputs; i++)
        kernel(cost, s->in[i] + s->added[i] + (relu ? 2 : 1) * s->out, 0);
}

static void pool_cost(const struct subject *s, bool backward, struct step_cost *cost)
{
    const double index = node_of(s, 0)->operation.kind == OPERATION_MAX_POOL ? 8 * s->mask : 0;
    kernel(cost, s->in[0] + s->out + index + (backward ? s->added[0] : 0), 0);
}

struct step_cost step_cost(const struct replica *replica, const struct profile_rates *rates,
                           size_t step, bool backward)
{
    const struct subject s = subject_of(replica, step);
    struct step_cost cost = {.rates = rates};
    switch (node_of(&s, 0)->operation.kind) {
    case OPERATION_CONVOLUTION:
    case OPERATION_DENSE:
        convolution_cost(&s, backward, &cost);
        break;
    case OPERATION_BATCH_NORM:
        norm_cost(&s, backward, &cost);
        break;
    case OPERATION_RELU:
    case OPERATION_ADD:
        pointwise_cost(&s, backward, &cost);
        break;
    case OPERATION_MAX_POOL:
    case OPERATION_AVERAGE_POOL:
        pool_cost(&s, backward, &cost);
        break;
    case OPERATION_CROSS_ENTROPY:
        kernel(&cost, s.in[0] + s.out, 0);
        break;
    }
    return cost;
}

/* Float32 parameters and velocities read and written, gradients read, working parameters
 * written. */
struct step_cost update_cost(const struct replica *replica, const struct profile_rates *rates)
{
    const size_t narrow = replica->setup.options.precision == PRECISION_FP32 ? 0 : 2;
    const size_t wire = replica->setup.gradient_type == ALNICO_FLOAT32 ? 4 : 2;
    struct step_cost cost = {.rates = rates};
    kernel(&cost, (double)(replica->network->parameters * (16 + wire + narrow)), 0);
    return cost;
}
