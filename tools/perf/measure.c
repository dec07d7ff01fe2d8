/* Fair timing of several candidates, called by alnico-perf on the main thread of every rank. The
 * length of a block and the number of repetitions come from a first, untimed look at every
 * candidate, and all ranks agree on them. */
#include "tools/perf/measure.h"

#include "tools/common/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

/* A block lasts this long at least, so that neither clock nor barrier shows in it. */
static const double block_seconds = 500e-6;

enum { BLOCK_MOST = 4096, REPETITIONS_LEAST = 7, REPETITIONS_MOST = 2000 };

double measure_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Seconds that this rank needs for one block. */
static double time_block(const struct candidate *candidate, int calls)
{
    if (candidate->prepare)
        candidate->prepare(candidate->context);
    program_barrier();
    double start = measure_now();
    candidate->run(candidate->context, calls);
    return candidate->seconds ? candidate->seconds(candidate->context) : measure_now() - start;
}

/* Roughly the seconds of one call, the slowest rank's: blocks are doubled until one is long enough,
 * or has `most` calls. */
static double estimate(const struct candidate *candidate, long most)
{
    for (int calls = 1;; calls *= 2) {
        double seconds = time_block(candidate, calls);
        program_slowest(&seconds, 1);
        if (seconds >= block_seconds || calls >= most)
            return seconds / calls;
    }
}

static int clamp(double value, int least, int most)
{
    return value < least ? least : value > most ? most : (int)value;
}

static void plan_effort(const struct candidate *candidates, int count,
                        const struct measure_plan *plan, struct measure_effort *effort)
{
    long most = plan->calls > 0 && plan->calls < BLOCK_MOST ? plan->calls : BLOCK_MOST;
    double fastest = INFINITY, together = 0;
    for (int i = 0; i < count; i++) {
        double seconds = estimate(&candidates[i], most);
        fastest = fmin(fastest, seconds);
        together += seconds;
    }
    int least = plan->block_least > 1 ? plan->block_least : 1;
    effort->block = clamp(ceil(block_seconds / fastest), least, BLOCK_MOST);
    effort->repetitions =
        clamp(plan->seconds / (together * effort->block), REPETITIONS_LEAST, REPETITIONS_MOST);
    if (plan->calls > 0) {
        effort->block = clamp((double)plan->calls / REPETITIONS_LEAST, 1, effort->block);
        effort->repetitions = clamp(ceil((double)plan->calls / effort->block), 1, 1 << 20);
    }
}

int measure_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value that the given share of the sorted samples stays below, between neighbours linearly. */
static double quantile(const double *sorted, int count, double share)
{
    double position = share * (count - 1);
    int below = (int)position;
    int above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (position - below) * (sorted[above] - sorted[below]);
}

static void summarise(struct candidate *candidate, double *samples, int count, int block)
{
    program_slowest(samples, count);
    qsort(samples, (size_t)count, sizeof *samples, measure_compare);
    double scale = 1e6 / block;
    candidate->time_us = quantile(samples, count, 0.5) * scale;
    candidate->low_us = quantile(samples, count, 0.1) * scale;
    candidate->high_us = quantile(samples, count, 0.9) * scale;
}

bool measure(struct candidate *candidates, int count, const struct measure_plan *plan,
             struct measure_effort *effort)
{
    for (int i = 0; i < count && plan->warmup > 0; i++)
        time_block(&candidates[i], plan->warmup);
    plan_effort(candidates, count, plan, effort);
    int repetitions = effort->repetitions;
    double *samples = malloc((size_t)count * (size_t)repetitions * sizeof *samples);
    if (!samples)
        return false;
    for (int repetition = 0; repetition < repetitions; repetition++)
        for (int turn = 0; turn < count; turn++) {
            int i = repetition % 2 ? count - 1 - turn : turn;
            samples[(size_t)i * (size_t)repetitions + (size_t)repetition] =
                time_block(&candidates[i], effort->block);
        }
    for (int i = 0; i < count; i++)
        summarise(&candidates[i], samples + (size_t)i * (size_t)repetitions, repetitions,
                  effort->block);
    free(samples);
    return true;
}
