/* See train_profile.h. */
#include "train_profile.h"

#include <math.h>
#include <stdio.h>

/* Bytes and operations in a microsecond: what a copy and a product of bf16 matrices reached on an H200. */
static const double bytes_us = 4.3e6, flops_us = 790e6;

/* Adds a kernel. */
static void kernel(struct step_cost *cost, double bytes, double flops)
{
    cost->bytes += bytes;
    cost->flops += flops;
    cost->least_us += fmax(bytes / bytes_us, flops / flops_us);
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

static struct subject subject_of(const struct replica *replica, size_t step)
{
    const struct plan *plan = replica->plan;
    const struct plan_rules *rules = &replica->ops->rules;
    struct subject s = {.plan = plan, .step = &plan->steps[step]};
    const struct tensor *out = &plan->network->tensors[s.step->out];
    const double elements = (double)(plan->batch * tensor_elements(out));
    for (size_t i = 0; i < s.step->inputs; i++) {
        s.in[i] = (double)rules->bytes(plan, s.step->in[i]);
        s.added[i] = s.step->accumulate[i] ? s.in[i] : 0;
    }
    s.out = (double)rules->bytes(plan, s.step->out);
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

struct step_cost step_cost(const struct replica *replica, size_t step, bool backward)
{
    const struct subject s = subject_of(replica, step);
    struct step_cost cost = {0};
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

/* ---- Printing ---- */

static void cost_print(struct step_cost cost, double us)
{
    printf(" %9.1f %6.0f", us, cost.bytes / us * 1e-3);
    if (cost.flops > 0)
        printf(" %5.0f", cost.flops / us * 1e-6);
    else
        printf(" %5s", "-");
    printf(" %4.0f %%", 100 * cost.least_us / us);
}

void profile_header(void)
{
    printf(
        "# forward, then backward: time, bytes and products in a second, share of the least time "
        "at 4.3 TB/s and 790 TFLOP/s\n");
    printf("%-18s %-16s %2s %13s", "# step", "operation", "", "output     ");
    for (int i = 0; i < 2; i++)
        printf(" %9s %6s %5s %6s", "us", "GB/s", "TF/s", "least");
    printf("\n");
}

void profile_line(const struct replica *replica, size_t step, double forward_us, double backward_us)
{
    const struct plan *plan = replica->plan;
    const struct step *s = &plan->steps[step];
    const struct operation *operation = &plan->network->nodes[s->first].operation;
    const struct tensor *out = &plan->network->tensors[s->out];
    printf("%-18s %-16s x%zu %3zux%-3zu %5zu", operation->name,
           operation_kind_name(operation->kind), s->count, out->height, out->width, out->channels);
    cost_print(step_cost(replica, step, false), forward_us);
    cost_print(step_cost(replica, step, true), backward_us);
    printf("\n");
}

void profile_sum(const char *what, struct step_cost cost, double us)
{
    printf("# %-34s", what);
    cost_print(cost, us);
    printf(", least %.1f us\n", cost.least_us);
}
