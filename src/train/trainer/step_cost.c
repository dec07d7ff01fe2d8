/* Cost of the steps of a plan: bytes moved, products made. What stands in the step's output already is
 * not moved. See step_profile.h. */
#include "train/trainer/step_profile.h"

static size_t value_bytes(const struct plan *plan, const struct plan_rules *rules, size_t tensor)
{
    return rules->bytes ? rules->bytes(plan, tensor) : plan_float_bytes(plan, tensor);
}

static bool is_in_place(const struct plan *plan, const struct plan_rules *rules,
                        const struct step *step, size_t i)
{
    return rules->within && rules->within(plan, step->in[i]).whole == step->out;
}

static struct layer_work work_of(const struct plan *plan, const struct plan_rules *rules,
                                 const struct step *step)
{
    const struct node *node = &plan->network->nodes[step->first];
    const struct tensor *made = network_output(plan->network, step->first);
    struct layer_work work = {
        .operation = &node->operation,
        .inputs = step->inputs,
        .out = (double)value_bytes(plan, rules, step->out),
        .mask = (double)plan_float_bytes(plan, step->out) / sizeof(float) / 8,
        .weights = (double)node->weight.count * (plan->precision == PRECISION_FP32 ? 4 : 2),
        .flops = 2.0 * (double)node->weight.count * (double)(made->height * made->width) *
                 (double)plan_images(plan, step->out),
        .images = step->in[0] == 0,
        .two = step_is(plan->network, step, 1, OPERATION_BATCH_NORM),
        .relu = step_is(plan->network, step, -1, OPERATION_RELU),
        .pool = step_is(plan->network, step, -1, OPERATION_MAX_POOL)};
    for (size_t i = 0; i < step->inputs; i++) {
        work.in[i] = (double)value_bytes(plan, rules, step->in[i]);
        work.added[i] = step->accumulate[i] ? work.in[i] : 0;
        if (!is_in_place(plan, rules, step, i))
            continue;
        work.out -= work.in[i];
        work.in[i] = 0;
    }
    return work;
}

struct step_cost step_cost(const struct plan *plan, const struct plan_rules *rules,
                           const struct profile_rates *rates, size_t step, bool backward)
{
    const struct layer_work work = work_of(plan, rules, &plan->steps[step]);
    struct step_cost cost = {.rates = rates};
    layers_all[work.operation->kind]->cost(&work, backward, &cost);
    return cost;
}

/* Float32 parameters and states read and written, gradients read, working parameters written. */
struct step_cost update_cost(const struct replica *replica, const struct profile_rates *rates)
{
    const size_t narrow = replica->setup.options.precision == PRECISION_FP32 ? 0 : 2;
    const size_t wire = replica->setup.gradient_type == ALNICO_FLOAT32 ? 4 : 2;
    const size_t arenas = 1 + optimizers_all[replica->asked.optimizer]->states;
    struct step_cost cost = {.rates = rates};
    cost_add(&cost, (double)(replica->network->parameters * (8 * arenas + wire + narrow)), 0);
    return cost;
}
