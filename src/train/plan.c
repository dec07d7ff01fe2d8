/* Planning steps and memory. See plan.h. */
#include "plan.h"

#include "status.h"

#include <assert.h>
#include <stdlib.h>

/* Elements in a cache line: every tensor begins on one. */
enum { LINE = 16 };

bool plan_chained(const struct network *network, size_t at, const enum operation_kind *kinds,
                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (at + i >= network->count)
            return false;
        const struct node *node = &network->nodes[at + i];
        if (node->operation.kind != kinds[i])
            return false;
        if (i > 0 && (node->in[0] != at + i || network->tensors[at + i].readers != 1))
            return false;
    }
    return true;
}

static bool step_inside(const struct step *step, size_t tensor)
{
    return tensor > step->first && tensor < step->first + step->count;
}

/* Collects what the step reads from outside, in the order of its operations. */
static void step_connect(const struct network *network, struct step *step)
{
    for (size_t i = step->first; i < step->first + step->count; i++)
        for (size_t k = 0; k < network->nodes[i].inputs; k++) {
            const size_t tensor = network->nodes[i].in[k];
            if (step_inside(step, tensor))
                continue;
            assert(step->inputs < 2);
            step->in[step->inputs++] = tensor;
        }
    step->out = step->first + step->count;
}

static void plan_steps(struct plan *plan, plan_run_function *run)
{
    const struct network *network = plan->network;
    for (size_t at = 0; at < network->count;) {
        struct step *step = &plan->steps[plan->count++];
        *step = (struct step){.first = at, .count = run(network, at)};
        step_connect(network, step);
        at += step->count;
    }
    size_t filled = 0;
    for (size_t s = plan->count; s-- > 0;) {
        for (size_t i = 0; i < plan->steps[s].count; i++) {
            const struct node *node = &network->nodes[plan->steps[s].first + i];
            filled += node->weight.count + node->bias.count;
        }
        plan->steps[s].filled = filled;
    }
}

static size_t plan_elements(const struct plan *plan, size_t tensor)
{
    const size_t elements = plan->batch * tensor_elements(&plan->network->tensors[tensor]);
    return (elements + LINE - 1) / LINE * LINE;
}

static void plan_values(struct plan *plan)
{
    for (size_t s = 0; s < plan->count; s++) {
        const size_t tensor = plan->steps[s].out;
        plan->values[tensor] = plan->value_elements;
        plan->value_elements += plan_elements(plan, tensor);
    }
}

/* Whether `elements` from `at` on meet no live gradient; if one is met, *next is where it ends. */
static bool plan_free(const struct plan *plan, const bool *live, size_t at, size_t elements,
                      size_t *next)
{
    for (size_t t = 0; t <= plan->network->count; t++) {
        const size_t begin = plan->diffs[t], end = begin + plan_elements(plan, t);
        if (live[t] && begin < at + elements && at < end) {
            *next = end;
            return false;
        }
    }
    return true;
}

static void plan_place(struct plan *plan, bool *live, size_t tensor)
{
    const size_t elements = plan_elements(plan, tensor);
    size_t at = 0, next;
    while (!plan_free(plan, live, at, elements, &next))
        at = next;
    plan->diffs[tensor] = at;
    live[tensor] = true;
    if (plan->diff_elements < at + elements)
        plan->diff_elements = at + elements;
}

static void plan_diffs(struct plan *plan, bool *live)
{
    for (size_t s = plan->count; s-- > 0;) {
        struct step *step = &plan->steps[s];
        for (size_t i = 0; i < step->inputs; i++) {
            const size_t tensor = step->in[i];
            if (tensor == 0)
                continue;
            step->accumulate[i] = live[tensor];
            if (!live[tensor])
                plan_place(plan, live, tensor);
        }
        live[step->out] = false;
    }
}

static alnico_status_t plan_check(const struct network *network, size_t batch)
{
    size_t total = 0;
    for (size_t t = 0; t <= network->count; t++)
        total += tensor_elements(&network->tensors[t]) + LINE;
    if (batch && batch <= (SIZE_MAX / 64) / total)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "plan_create: batch %zu, expected 1 to %zu", batch,
                     (SIZE_MAX / 64) / total);
}

alnico_status_t plan_create(const struct network *network, plan_run_function *run, size_t batch,
                            struct plan **out)
{
    *out = NULL;
    assert(network->finished);
    TRY(plan_check(network, batch));
    const size_t tensors = network->count + 1;
    struct plan *plan = calloc(1, sizeof *plan);
    bool *live = calloc(tensors, sizeof *live);
    if (!plan || !live)
        goto free_plan;
    *plan = (struct plan){.network = network,
                          .batch = batch,
                          .steps = calloc(network->count, sizeof *plan->steps),
                          .values = malloc(tensors * sizeof *plan->values),
                          .diffs = malloc(tensors * sizeof *plan->diffs)};
    if (!plan->steps || !plan->values || !plan->diffs)
        goto free_plan;
    for (size_t t = 0; t < tensors; t++)
        plan->values[t] = plan->diffs[t] = PLAN_NONE;
    plan_steps(plan, run);
    plan_values(plan);
    plan_diffs(plan, live);
    free(live);
    *out = plan;
    return ALNICO_SUCCESS;

free_plan:
    free(live);
    plan_destroy(plan);
    return error_set(ALNICO_ERROR_MEMORY, "plan_create: no memory");
}

void plan_destroy(struct plan *plan)
{
    if (!plan)
        return;
    free(plan->steps);
    free(plan->values);
    free(plan->diffs);
    free(plan);
}
