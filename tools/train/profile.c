/* The profile of a step as a table and as JSON. Main thread. */
#include "tools/train/profile.h"

#include "tools/common/program.h"

#include <stdio.h>

enum { KINDS = OPERATION_KINDS };

/* Time and cost of several things. */
struct sums {
    double us;
    struct step_cost cost;
};

static void sums_add(struct sums *sums, struct step_cost cost, double us)
{
    sums->us += us;
    sums->cost.bytes += cost.bytes;
    sums->cost.flops += cost.flops;
    sums->cost.least_us += cost.least_us;
}

static void cost_print(struct step_cost cost, double us)
{
    printf(" %9.1f %6.0f", us, cost.bytes / us * 1e-3);
    if (cost.flops > 0)
        printf(" %5.*f", cost.flops / us < 1e7 ? 2 : 0, cost.flops / us * 1e-6);
    else
        printf(" %5s", "-");
    printf(" %4.0f %%", 100 * cost.least_us / us);
}

static void sum_print(const char *what, struct step_cost cost, double us)
{
    printf("# %-34s", what);
    cost_print(cost, us);
    printf(", least %.1f us\n", cost.least_us);
}

static void header_print(const struct profile_rates *rates)
{
    printf(
        "# forward, then backward: time, bytes and products in a second, share of the least time "
        "at %.4g GB/s and %.4g TFLOP/s\n",
        rates->bytes_us * 1e-3, rates->flops_us * 1e-6);
    printf("%-18s %-16s %2s %13s", "# step", "operation", "", "output     ");
    for (int i = 0; i < 2; i++)
        printf(" %9s %6s %5s %6s", "us", "GB/s", "TF/s", "least");
    printf("\n");
}

static struct step_cost cost_of(const struct profile *profile, size_t step, bool backward)
{
    const struct replica *replica = profile->replica;
    return step_cost(replica->plan, &replica->ops->rules, &profile->rates, step, backward);
}

static const struct operation *operation_of(const struct profile *profile, size_t step)
{
    const struct plan *plan = profile->replica->plan;
    return &plan->network->nodes[plan->steps[step].first].operation;
}

static void line_print(const struct profile *profile, size_t step)
{
    const struct plan *plan = profile->replica->plan;
    const struct tensor *out = &plan->network->tensors[plan->steps[step].out];
    const struct operation *operation = operation_of(profile, step);
    printf("%-18s %-16s x%zu %3zux%-3zu %5zu", operation->name,
           operation_kind_name(operation->kind), plan->steps[step].count, out->height, out->width,
           out->channels);
    for (int way = 0; way < 2; way++)
        cost_print(cost_of(profile, step, way), profile->us[step][way]);
    printf("\n");
}

static void kinds_print(const struct sums *kinds)
{
    for (int k = 0; k < 2 * KINDS; k++)
        if (kinds[k].us > 0) {
            char what[64];
            snprintf(what, sizeof what, "%s, %s", operation_kind_name((enum operation_kind)(k / 2)),
                     k % 2 ? "backward" : "forward");
            sum_print(what, kinds[k].cost, kinds[k].us);
        }
}

void train_profile_print(const struct profile *profile)
{
    const struct replica *replica = profile->replica;
    const struct step_cost update = update_cost(replica, &profile->rates);
    struct sums kinds[2 * KINDS] = {0}, all = {0};
    header_print(&profile->rates);
    for (size_t s = 0; s < replica->plan->count; s++) {
        const int kind = operation_of(profile, s)->kind;
        line_print(profile, s);
        for (int way = 0; way < 2; way++) {
            const struct step_cost cost = cost_of(profile, s, way);
            sums_add(&kinds[2 * kind + way], cost, profile->us[s][way]);
            sums_add(&all, cost, profile->us[s][way]);
        }
    }
    kinds_print(kinds);
    sum_print("update", update, profile->update_us);
    sums_add(&all, update, profile->update_us);
    sum_print("all, one by one", all.cost, all.us);
    sum_print("all, as one step", all.cost, profile->step_us);
}

static cJSON *cost_json(struct step_cost cost, double us)
{
    return json_add(cJSON_CreateObject(), "us %g gbytes_per_second %g tflops %g share_of_least %g",
                    us, cost.bytes / us * 1e-3, cost.flops / us * 1e-6, cost.least_us / us);
}

static void add_step(cJSON *object, const struct profile *profile, size_t step)
{
    const struct plan *plan = profile->replica->plan;
    const struct tensor *out = &plan->network->tensors[plan->steps[step].out];
    const int sides[3] = {(int)out->height, (int)out->width, (int)out->channels};
    json_add(object, "step %s operation %s operations %zu", operation_of(profile, step)->name,
             operation_kind_name(operation_of(profile, step)->kind), plan->steps[step].count);
    cJSON_AddItemToObject(object, "output", cJSON_CreateIntArray(sides, 3));
    for (int way = 0; way < 2; way++)
        cJSON_AddItemToObject(object, way ? "backward" : "forward",
                              cost_json(cost_of(profile, step, way), profile->us[step][way]));
}

cJSON *train_profile_json(const struct profile *profile)
{
    const struct replica *replica = profile->replica;
    cJSON *object =
        json_add(cJSON_CreateObject(), "copy_gbytes_per_second %g product_tflops %g step_us %g",
                 profile->rates.bytes_us * 1e-3, profile->rates.flops_us * 1e-6, profile->step_us);
    cJSON_AddItemToObject(object, "update",
                          cost_json(update_cost(replica, &profile->rates), profile->update_us));
    cJSON *steps = cJSON_AddArrayToObject(object, "steps");
    for (size_t s = 0; s < replica->plan->count; s++)
        add_step(json_row(steps), profile, s);
    return object;
}
