/* Planning steps. See graph/memory_plan.h; graph/placement.c finds the places. */
#include "train/graph/memory_plan.h"

#include "base/status.h"
#include "train/graph/placement.h"

#include <assert.h>
#include <stdlib.h>

const char *precision_name(enum precision precision)
{
    static const char *const names[PRECISIONS] = {"fp32", "bf16", "fp16"};
    return names[precision];
}

alnico_datatype_t precision_type(enum precision precision)
{
    return precision == PRECISION_BF16   ? ALNICO_BFLOAT16
           : precision == PRECISION_FP16 ? ALNICO_FLOAT16
                                         : ALNICO_FLOAT32;
}

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

bool step_is(const struct network *network, const struct step *step, int i,
             enum operation_kind kind)
{
    const size_t at = i < 0 ? step->count - (size_t)-i : (size_t)i;
    return at < step->count && network->nodes[step->first + at].operation.kind == kind;
}

size_t plan_images(const struct plan *plan, size_t tensor)
{
    return network_images(plan->network, tensor, plan->batch);
}

bool step_empty(const struct plan *plan, const struct step *step)
{
    return !plan_float_bytes(plan, step->out);
}

size_t plan_float_bytes(const struct plan *plan, size_t tensor)
{
    return plan_images(plan, tensor) * tensor_elements(&plan->network->tensors[tensor]) *
           sizeof(float);
}

/* Collects what the step reads from outside, in the order of its operations. */
static void step_connect(const struct network *network, struct step *step)
{
    for (size_t i = step->first; i < step->first + step->count; i++)
        for (size_t k = 0; k < network->nodes[i].inputs; k++) {
            const size_t tensor = network->nodes[i].in[k];
            if (tensor > step->first && tensor < step->first + step->count)
                continue;
            assert(step->inputs < NETWORK_INPUTS);
            step->in[step->inputs++] = tensor;
        }
    step->out = step->first + step->count;
}

static void plan_steps(struct plan *plan, plan_run_function *run)
{
    const struct network *network = plan->network;
    for (size_t at = 0; at < network->count;) {
        struct step *step = &plan->steps[plan->count++];
        *step = (struct step){.first = at,
                              .count = run ? run(network, at) : 1,
                              .saved = PLAN_NONE,
                              .scratch = {PLAN_NONE, PLAN_NONE}};
        step_connect(network, step);
        at += step->count;
    }
    size_t filled = 0;
    for (size_t s = plan->count; s-- > 0;) {
        for (size_t i = 0; i < plan->steps[s].count; i++) {
            const struct node *node = &network->nodes[plan->steps[s].first + i];
            if (!node_own(network, plan->steps[s].first + i))
                filled += node->weight.count + node->bias.count;
        }
        plan->steps[s].filled = filled;
    }
}

/* The views of steps that run in some. */
static void plan_views(struct plan *plan, const struct plan_rules *rules)
{
    for (size_t s = 1; rules->divides && s < plan->count; s++) {
        struct step *step = &plan->steps[s];
        if (plan->steps[s - 1].out != step->in[0])
            continue;
        step->view_count = views_make(plan->network, step->first, plan->batch, step->views);
        if (step->view_count && !rules->divides(plan, step))
            step->view_count = 0;
    }
}

/* The first step to run backward of those that read a tensor writes its gradient, the others
 * add. */
static void plan_accumulation(struct plan *plan, bool *written)
{
    for (size_t s = plan->count; s-- > 0;) {
        struct step *step = &plan->steps[s];
        for (size_t i = 0; i < step->inputs; i++) {
            step->accumulate[i] = step->in[i] > 0 && written[step->in[i]];
            written[step->in[i]] = true;
        }
    }
}

static size_t backward_time(const struct plan *plan, size_t s)
{
    return 2 * plan->count - 1 - s;
}

/* While the move before a step runs backward, the step may still make gradients of parameters. */
static size_t backward_end(const struct plan *plan, size_t s)
{
    const bool beside = s > 0 && step_is(plan->network, &plan->steps[s - 1], 0, OPERATION_MOVE);
    return backward_time(plan, s) + beside;
}

/* The step from which an output must have its memory: an interior is written while the move before it still
 * travels. */
static size_t forward_begin(const struct plan *plan, size_t s)
{
    return s - (plan->steps[s].view_count > 0);
}

static struct step_needs step_ask(const struct plan *plan, const struct plan_rules *rules, size_t s)
{
    struct step_needs needs = {.out = !rules->needs};
    for (size_t i = 0; i < NETWORK_INPUTS; i++)
        needs.in[i] = !rules->needs;
    if (rules->needs)
        rules->needs(plan, &plan->steps[s], &needs);
    return needs;
}

static void extend(struct buffer *buffer, size_t time)
{
    if (buffer->to < time)
        buffer->to = time;
}

/* Step s makes its tensor's value: buffers[t] is that of tensor t. What the host reads, the last,
 * stays. */
static void value_made(struct plan *plan, const struct plan_rules *rules, size_t s,
                       const struct step_needs *needs, struct buffer *buffers)
{
    const struct step *step = &plan->steps[s];
    const bool last = s + 1 == plan->count;
    buffers[step->out] = (struct buffer){.bytes = rules->bytes(plan, step->out),
                                         .from = forward_begin(plan, s),
                                         .to = s,
                                         .place = &plan->values[step->out]};
    if (last || needs->out)
        extend(&buffers[step->out], last ? 2 * plan->count - 1 : backward_end(plan, s));
    for (size_t i = 0; i < step->inputs; i++)
        extend(&buffers[step->in[i]], needs->in[i] ? backward_end(plan, s) : s);
}

/* Step s reads tensors, whose gradients it makes or adds to. */
static void gradients_made(struct plan *plan, const struct plan_rules *rules, size_t s,
                           struct buffer *buffers)
{
    const struct step *step = &plan->steps[s];
    for (size_t i = 0; i < step->inputs; i++) {
        struct buffer *buffer = &buffers[step->in[i]];
        if (step->in[i] == 0)
            continue;
        if (!step->accumulate[i])
            *buffer = (struct buffer){.bytes = rules->bytes(plan, step->in[i]),
                                      .from = backward_time(plan, s),
                                      .place = &plan->diffs[step->in[i]]};
        extend(buffer, backward_time(plan, s));
    }
    extend(&buffers[step->out], backward_end(plan, s));
}

/* The memory that a step saves, and its scratch. */
static void extras_made(struct plan *plan, size_t s, const struct step_needs *needs,
                        struct buffer *buffers)
{
    struct step *step = &plan->steps[s];
    const size_t backward = backward_time(plan, s), end = backward_end(plan, s);
    buffers[0] = (struct buffer){needs->saved, s, end, &step->saved};
    buffers[1] = (struct buffer){needs->scratch[0], forward_begin(plan, s), s, &step->scratch[0]};
    buffers[2] = (struct buffer){needs->scratch[1], backward, end, &step->scratch[1]};
}

/* The gradient of tensor t begins in the place of the buffer `lower` if that ends then, at step s.
 * under[t] notes the buffer; 0: the gradient has a place of its own. */
static bool share(struct plan *plan, size_t s, size_t t, size_t lower, struct buffer *buffers,
                  size_t *under)
{
    struct buffer *upper = &buffers[plan->network->count + 1 + t], *place = &buffers[lower];
    if (!place->place || place->to != backward_time(plan, s) || place->bytes != upper->bytes)
        return false;
    extend(place, upper->to);
    plan->apart += plan_line(upper->bytes);
    upper->bytes = 0;
    under[t] = lower;
    return true;
}

static struct plan_part part_of(const struct plan *plan, const struct plan_rules *rules,
                                size_t tensor)
{
    return rules->within ? rules->within(plan, tensor) : (struct plan_part){0};
}

/* True if a tensor stands within another, or another within it. */
static bool is_joined(const struct plan *plan, const struct plan_rules *rules, size_t tensor)
{
    bool joined = part_of(plan, rules, tensor).whole;
    for (size_t t = 0; rules->within && t <= plan->network->count; t++)
        joined |= part_of(plan, rules, t).whole == tensor;
    return joined;
}

/* The whole lives while its part does, which needs no memory of its own. */
static void buffer_join(struct buffer *whole, struct buffer *part)
{
    if (part->from < whole->from)
        whole->from = part->from;
    extend(whole, part->to);
    part->bytes = 0;
}

/* `gradients`: the buffers of gradients; they follow those of values. */
static void parts_join(const struct plan *plan, const struct plan_rules *rules,
                       struct buffer *values, struct buffer *gradients)
{
    for (size_t t = 1; t <= plan->network->count; t++) {
        const size_t whole = part_of(plan, rules, t).whole;
        if (!whole)
            continue;
        buffer_join(&values[whole], &values[t]);
        buffer_join(&gradients[whole], &gradients[t]);
    }
}

/* Parts have their places once the wholes have. */
static void parts_place(struct plan *plan, const struct plan_rules *rules)
{
    for (size_t t = 1; t <= plan->network->count; t++) {
        const struct plan_part part = part_of(plan, rules, t);
        if (!part.whole)
            continue;
        plan->values[t] = plan->values[part.whole] + part.offset;
        plan->diffs[t] = plan->diffs[part.whole] + part.offset;
    }
}

/* How many of a step's inputs a tensor is. */
static size_t step_reads(const struct step *step, size_t tensor)
{
    size_t count = 0;
    for (size_t i = 0; i < step->inputs; i++)
        count += step->in[i] == tensor;
    return count;
}

/* Places the gradients that step s may write over a value or gradient that it has read. */
static void gradients_share(struct plan *plan, const struct plan_rules *rules, size_t s,
                            const struct step_needs *needs, struct buffer *buffers, size_t *under)
{
    const struct step *step = &plan->steps[s];
    const size_t gradients = plan->network->count + 1;
    for (size_t i = 0; i < step->inputs; i++) {
        const size_t t = step->in[i];
        if (t == 0 || step->accumulate[i] || step_reads(step, t) > 1 || is_joined(plan, rules, t))
            continue;
        if (needs->over_value[i] && share(plan, s, t, t, buffers, under))
            continue;
        if (needs->over_gradient[i] && !is_joined(plan, rules, step->out))
            share(plan, s, t, gradients + step->out, buffers, under);
    }
}

/* All buffers: values, gradients, and three for each step. Those of no bytes are left out. */
static size_t plan_buffers(struct plan *plan, const struct plan_rules *rules,
                           struct buffer *buffers, size_t *under)
{
    const size_t tensors = plan->network->count + 1;
    size_t count = 2 * tensors, used = 0;
    for (size_t s = plan->count; s-- > 0;)
        gradients_made(plan, rules, s, buffers + tensors);
    for (size_t s = 0; s < plan->count; s++) {
        const struct step_needs needs = step_ask(plan, rules, s);
        value_made(plan, rules, s, &needs, buffers);
        extras_made(plan, s, &needs, buffers + count);
        gradients_share(plan, rules, s, &needs, buffers, under);
        count += 3;
    }
    parts_join(plan, rules, buffers, buffers + tensors);
    for (size_t i = 0; i < count; i++)
        if (buffers[i].bytes && buffers[i].place)
            buffers[used++] = buffers[i];
    return used;
}

/* Gradients that have no place of their own, once all others have. */
static void gradients_place(struct plan *plan, const size_t *under)
{
    const size_t tensors = plan->network->count + 1;
    for (size_t t = 0; t < tensors; t++) {
        size_t lower = under[t];
        while (lower >= tensors && under[lower - tensors])
            lower = under[lower - tensors];
        if (lower)
            plan->diffs[t] = lower < tensors ? plan->values[lower] : plan->diffs[lower - tensors];
    }
}

static void plan_place(struct plan *plan, const struct plan_rules *rules, struct buffer *buffers,
                       size_t *under)
{
    const size_t count = plan_buffers(plan, rules, buffers, under);
    for (size_t i = 0; i < count; i++) {
        buffers[i].bytes = plan_line(buffers[i].bytes);
        plan->apart += buffers[i].bytes;
    }
    plan->least = buffers_least(buffers, count, 2 * plan->count);
    plan->bytes = buffers_place(buffers, count);
    gradients_place(plan, under);
    parts_place(plan, rules);
}

static alnico_status_t plan_memory(struct plan *plan, const struct plan_rules *rules)
{
    const size_t tensors = plan->network->count + 1;
    struct plan_rules filled = *rules;
    struct buffer *buffers = calloc(2 * tensors + 3 * plan->count, sizeof *buffers);
    size_t *under = calloc(tensors, sizeof *under);
    if (!rules->bytes)
        filled.bytes = plan_float_bytes;
    if (buffers && under)
        plan_place(plan, &filled, buffers, under);
    const alnico_status_t status = buffers && under ? ALNICO_SUCCESS : ALNICO_ERROR_MEMORY;
    free(buffers);
    free(under);
    return status;
}

static alnico_status_t plan_check(const struct network *network, size_t batch)
{
    size_t total = 0;
    for (size_t t = 0; t <= network->count; t++)
        total += tensor_elements(&network->tensors[t]) + PLAN_LINE;
    if (batch && batch <= (SIZE_MAX / 256) / total)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "plan_create: batch %zu, expected 1 to %zu", batch,
                     (SIZE_MAX / 256) / total);
}

static alnico_status_t plan_fill(struct plan *plan, const struct plan_rules *rules)
{
    const size_t tensors = plan->network->count + 1;
    bool *written = calloc(tensors, sizeof *written);
    plan->steps = calloc(plan->network->count, sizeof *plan->steps);
    plan->values = malloc(tensors * sizeof *plan->values);
    plan->diffs = malloc(tensors * sizeof *plan->diffs);
    if (!written || !plan->steps || !plan->values || !plan->diffs) {
        free(written);
        return ALNICO_ERROR_MEMORY;
    }
    for (size_t t = 0; t < tensors; t++)
        plan->values[t] = plan->diffs[t] = PLAN_NONE;
    plan_steps(plan, rules->run);
    plan_views(plan, rules);
    plan_accumulation(plan, written);
    free(written);
    return plan_memory(plan, rules);
}

alnico_status_t plan_create(const struct network *network, const struct plan_rules *rules,
                            size_t batch, enum precision precision, struct plan **out)
{
    *out = NULL;
    assert(network->finished);
    TRY(plan_check(network, batch));
    struct plan *plan = calloc(1, sizeof *plan);
    if (plan)
        *plan = (struct plan){.network = network, .batch = batch, .precision = precision};
    if (!plan || plan_fill(plan, rules) != ALNICO_SUCCESS) {
        plan_destroy(plan);
        return error_set(ALNICO_ERROR_MEMORY, "plan_create: no memory");
    }
    *out = plan;
    return ALNICO_SUCCESS;
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
