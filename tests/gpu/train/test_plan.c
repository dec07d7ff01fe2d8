/* The plans that the cuDNN kernels ask for, replayed: whatever is read is still what was written.
 * Needs no GPU. One process for each set of ways, since the environment is read once. */
#include "tests/train/cases.h"
#include "train/graph/split.h"
#include "train/kernels/methods.h"
#include "train/models/models.h"
#include "train/replica/replica.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Who wrote each line of the allocation last: a place of the plan. */
struct replay {
    const struct plan *plan;
    const void **owner;
    const char *name;
    size_t wrong, shared;
    size_t scratch; /* bytes, forward */
    size_t interiors;
};

static void replay_write(struct replay *r, const size_t *place, size_t bytes)
{
    for (size_t i = 0; i < (bytes + PLAN_LINE - 1) / PLAN_LINE; i++)
        r->owner[*place / PLAN_LINE + i] = place;
}

static void replay_read(struct replay *r, const size_t *place, size_t bytes, size_t s,
                        const char *what)
{
    for (size_t i = 0; i < (bytes + PLAN_LINE - 1) / PLAN_LINE; i++)
        if (r->owner[*place / PLAN_LINE + i] != place) {
            if (r->wrong++ < 5)
                printf("FAIL %s: step %zu: %s was overwritten\n", r->name, s, what);
            return;
        }
}

/* The tensor in whose memory one stands, perhaps itself. Parts side by side share lines, so that the
 * whole is what is owned. */
static size_t home_of(const struct replay *r, size_t tensor)
{
    const struct plan_part part = kernels_cudnn.rules.within(r->plan, tensor);
    return part.whole ? part.whole : tensor;
}

static struct step_needs needs_of(const struct replay *r, size_t s)
{
    struct step_needs needs = {0};
    kernels_cudnn.rules.needs(r->plan, &r->plan->steps[s], &needs);
    return needs;
}

static size_t bytes_of(const struct replay *r, size_t tensor)
{
    return tensor ? kernels_cudnn.rules.bytes(r->plan, tensor) : 0;
}

static void value_read(struct replay *r, size_t tensor, size_t s, const char *what)
{
    const size_t home = home_of(r, tensor);
    replay_read(r, &r->plan->values[home], bytes_of(r, home), s, what);
}

static void diff_read(struct replay *r, size_t tensor, size_t s, const char *what)
{
    const size_t home = home_of(r, tensor);
    replay_read(r, &r->plan->diffs[home], bytes_of(r, home), s, what);
}

/* An interior is made, and its scratch written, while what the move before it reads still travels. */
static void interior(struct replay *r, size_t s)
{
    const struct plan *plan = r->plan;
    const struct step *step = &plan->steps[s + 1];
    if (s + 1 == plan->count || !step->view_count)
        return;
    const size_t home = home_of(r, step->out);
    replay_write(r, &step->scratch[0], needs_of(r, s + 1).scratch[0]);
    replay_write(r, &plan->values[home], bytes_of(r, home));
    value_read(r, plan->steps[s].in[0], s, "what travels");
    value_read(r, step->in[0], s, "what an interior reads");
    r->interiors++;
}

static void forward(struct replay *r, size_t s)
{
    const struct step *step = &r->plan->steps[s];
    const struct step_needs needs = needs_of(r, s);
    replay_write(r, &step->saved, needs.saved);
    if (!step->view_count)
        replay_write(r, &step->scratch[0], needs.scratch[0]);
    const size_t home = home_of(r, step->out);
    if (!step->view_count)
        replay_write(r, &r->plan->values[home], bytes_of(r, home));
    interior(r, s);
    for (size_t i = 0; i < step->inputs; i++)
        value_read(r, step->in[i], s, "a value");
    replay_read(r, &step->scratch[0], needs.scratch[0], s, "scratch");
    r->scratch += needs.scratch[0];
}

/* What a step reads backward. */
static void reads(struct replay *r, size_t s)
{
    const struct step *step = &r->plan->steps[s];
    const struct step_needs needs = needs_of(r, s);
    for (size_t i = 0; i < step->inputs; i++)
        if (needs.in[i])
            value_read(r, step->in[i], s, "an input");
    if (needs.out)
        value_read(r, step->out, s, "its output");
    if (!is_loss(&r->plan->network->nodes[step->out - 1].operation))
        diff_read(r, step->out, s, "its gradient");
    replay_read(r, &step->saved, needs.saved, s, "what was saved");
    replay_read(r, &step->scratch[1], needs.scratch[1], s, "scratch");
}

/* Whether the gradient of in[i] may begin where it does, over something that the step reads: the
 * rules allow it, and it is the same place. */
static bool shares(const struct replay *r, size_t s, size_t i)
{
    const struct step *step = &r->plan->steps[s];
    const struct step_needs needs = needs_of(r, s);
    const size_t t = step->in[i], at = r->plan->diffs[t];
    return (needs.over_value[i] && at == r->plan->values[t]) ||
           (needs.over_gradient[i] && at == r->plan->diffs[step->out]);
}

/* Writes those gradients that the step has still to read what is under, or the others. */
static void gradients(struct replay *r, size_t s, bool sharing)
{
    const struct step *step = &r->plan->steps[s];
    for (size_t i = 0; i < step->inputs; i++) {
        const size_t t = step->in[i];
        if (!t || step->accumulate[i] || shares(r, s, i) != sharing)
            continue;
        if (home_of(r, t) == t) /* otherwise it is there with the whole's */
            replay_write(r, &r->plan->diffs[t], bytes_of(r, t));
        r->shared += sharing;
    }
}

static void backward(struct replay *r, size_t s)
{
    const struct step *step = &r->plan->steps[s];
    const struct step_needs needs = needs_of(r, s);
    replay_write(r, &step->scratch[1], needs.scratch[1]);
    gradients(r, s, false);
    reads(r, s);
    gradients(r, s, true);
    for (size_t i = 0; i < step->inputs; i++)
        if (step->in[i])
            diff_read(r, step->in[i], s, "a gradient that it makes or adds to");
}

static size_t parameters_from(const struct plan *plan, size_t first)
{
    size_t count = 0;
    for (size_t i = first; i < plan->network->count; i++)
        count += plan->network->nodes[i].weight.count + plan->network->nodes[i].bias.count;
    return count;
}

/* The gradients that are called final are those that were made. */
static void filled(struct replay *r, size_t s)
{
    const struct plan *plan = r->plan;
    const size_t made = parameters_from(plan, plan->steps[s].first);
    if (plan->steps[s].filled == made)
        return;
    printf("FAIL %s: step %zu: %zu gradients are called final, expected %zu\n", r->name, s,
           plan->steps[s].filled, made);
    r->wrong++;
}

/* What all replays together came upon; between: tensors that stand between margins; interiors that are
 * made by themselves. */
struct found {
    size_t shared, scratch, between, interiors;
};

static size_t check_network(const char *name, const struct network *network, size_t batch,
                            struct found *found)
{
    struct plan *plan;
    if (plan_create(network, &kernels_cudnn.rules, batch, PRECISION_BF16, &plan)) {
        printf("FAIL %s: no plan\n", name);
        return 1;
    }
    struct replay r = {plan, calloc(plan->bytes / PLAN_LINE + 1, sizeof(void *)), name, 0, 0, 0, 0};
    for (size_t s = 0; s < plan->count; s++)
        forward(&r, s);
    for (size_t s = plan->count; s-- > 0;) {
        backward(&r, s);
        filled(&r, s);
    }
    for (size_t t = 1; network->part && t <= network->count; t++) {
        const size_t home = home_of(&r, t);
        found->between += home != t && network->nodes[home - 1].operation.kind == OPERATION_MOVE;
    }
    found->shared += r.shared;
    found->scratch += r.scratch;
    found->interiors += r.interiors;
    free(r.owner);
    plan_destroy(plan);
    return r.wrong;
}

/* All ranks' parts of a network, where it can be split so. */
static size_t check_parts(const struct network_case *c, const struct network *whole,
                          const char *way, size_t ranks, struct found *found)
{
    size_t wrong = 0;
    struct split split;
    if (split_parse(way, &split))
        return 1;
    split.norm = NORM_ALL;
    for (size_t rank = 0; rank < ranks; rank++) {
        struct network *part;
        char name[128];
        if (network_split(whole, &split, rank, ranks, &part))
            return wrong;
        snprintf(name, sizeof name, "%s, rank %zu of %s", c->name, rank, way);
        wrong += check_network(name, part, 1, found) + check_network(name, part, 3, found);
        network_destroy(part);
    }
    return wrong;
}

static size_t check_all(struct found *found)
{
    size_t wrong = 0;
    for (size_t i = 0; i < NETWORK_CASES; i++) {
        struct network *network = case_network(&network_cases[i]);
        wrong += check_network(network_cases[i].name, network, 3, found);
        wrong += check_parts(&network_cases[i], network, "rows=2", 2, found);
        wrong += check_parts(&network_cases[i], network, "images=2,rows=2", 4, found);
        network_destroy(network);
    }
    for (size_t m = 0; models_all[m]; m++) {
        struct network *network;
        if (model_network(models_all[m], 64, 64, 3, 10, &network))
            continue; /* images too small for it */
        wrong += check_network(models_all[m]->name, network, 3, found);
        network_destroy(network);
    }
    return wrong;
}

/* What the variable says, and what is then taken. */
struct setting {
    const char *text;
    unsigned taken; /* 1 << each way */
    unsigned number, unknown;
};
enum { ALL = (1 << METHODS) - 1 };
static const struct setting settings[] = {
    {"", ALL, 0, 0},
    {"no-sums,stem", ALL & ~(1 << METHOD_STATISTICS), 0, 0},
    {"sums=2,no-stem,no-rows", ALL & ~(1 << METHOD_NORM_POOL | 1 << METHOD_IM2COL), 2, 0},
    {"stem,no-stem,no-sums", ALL & ~(1 << METHOD_NORM_POOL | 1 << METHOD_STATISTICS), 0, 0},
    {"stems,,no-ste,no-sums,stem=x=,no-rows", ALL & ~(1 << METHOD_STATISTICS | 1 << METHOD_IM2COL),
     0, 2},
    {"no-rows", ALL & ~(1 << METHOD_IM2COL), 0, 0},
    {"rows=2,no-rows,no-stem,no-sums,no-products,no-spread,no-early,no-join,no-interior", 0, 0, 0},
    {"no-stem,no-sums,no-products,no-spread,no-early,no-join,no-interior", 1 << METHOD_IM2COL, 0,
     0},
    {"interior=2", ALL, 0, 0},
};

static size_t check_names(const struct setting *setting)
{
    size_t wrong = 0;
    for (int way = 0; way < METHODS; way++)
        wrong += method_taken((enum kernels_method)way) != (setting->taken >> way & 1);
    wrong += method_number(METHOD_STATISTICS) != setting->number;
    wrong += methods_unknown() != setting->unknown;
    wrong += method_number(METHOD_INTERIOR) != (strcmp(setting->text, "interior=2") ? 0 : 2);
    if (wrong)
        printf("FAIL '%s' is misunderstood\n", setting->text);
    return wrong;
}

/* What processes report: bytes planned for a batch of each residual network for large images. */
static const struct model *const large[] = {&model_resnet18, &model_resnet50, &model_resnet152};
enum { LARGE = sizeof large / sizeof *large, SETTINGS = sizeof settings / sizeof *settings };
typedef size_t planned[LARGE][PRECISIONS];

static size_t measure(planned bytes)
{
    size_t failed = 0;
    for (size_t m = 0; m < LARGE; m++) {
        struct network *network;
        if (model_network(large[m], 224, 224, 3, 1000, &network))
            return 1;
        for (int p = 0; p < PRECISIONS; p++) {
            struct plan *plan = NULL;
            failed += plan_create(network, &kernels_cudnn.rules, 256, (enum precision)p, &plan) !=
                      ALNICO_SUCCESS;
            bytes[m][p] = plan ? plan->bytes : 0;
            plan_destroy(plan);
        }
        network_destroy(network);
    }
    return failed;
}

/* The exit status of a process with this setting. Only `rows` and `join` want scratch forward. */
static int check_setting(const struct setting *setting, planned bytes)
{
    const unsigned scratched = 1 << METHOD_IM2COL | 1 << METHOD_JOIN;
    struct found found = {0};
    setenv("ALNICO_TRAIN_WAYS", setting->text, 1);
    const size_t wrong = check_names(setting) + check_all(&found) + measure(bytes);
    printf("ways '%s': %zu wrong, %zu gradients written over something, %zu bytes of scratch, %zu "
           "tensors between margins, %zu interiors\n",
           setting->text, wrong, found.shared, found.scratch, found.between, found.interiors);
    fflush(stdout);
    return wrong || !found.shared || !found.between ||
           (found.interiors > 0) != (method_number(METHOD_INTERIOR) == 2) ||
           (found.scratch > 0) != ((setting->taken & scratched) != 0);
}

/* What `rows` expands finds room: no plan is larger for it. */
static int check_room(planned bytes[SETTINGS])
{
    int failed = 0, compared = 0;
    for (size_t i = 0; i < SETTINGS; i++)
        for (size_t k = 0; k < SETTINGS; k++) {
            if (settings[k].taken != (settings[i].taken | 1 << METHOD_IM2COL) || i == k)
                continue;
            compared++;
            for (size_t m = 0; m < LARGE * PRECISIONS; m++)
                failed += bytes[k][m / PRECISIONS][m % PRECISIONS] >
                          bytes[i][m / PRECISIONS][m % PRECISIONS];
        }
    printf("rows: %d of %d plans take more memory with it\n", failed,
           compared * LARGE * PRECISIONS);
    return failed || compared < 3;
}

int main(void)
{
    int failed = 0;
    planned *bytes = mmap(NULL, SETTINGS * sizeof *bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return EXIT_FAILURE;
    for (size_t i = 0; i < SETTINGS; i++) {
        int status = 1;
        const pid_t child = fork();
        if (child == 0)
            _exit(check_setting(&settings[i], bytes[i]));
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    failed += check_room(bytes);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
