/* See buckets.h. */
#include "train/strategies/buckets.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>

static alnico_status_t buckets_allocate(size_t most, struct buckets *out)
{
    *out = (struct buckets){.ends = malloc((most + 1) * sizeof *out->ends)};
    return out->ends ? ALNICO_SUCCESS
                     : error_set(ALNICO_ERROR_MEMORY, "buckets: no memory for %zu of them", most);
}

alnico_status_t buckets_of_size(size_t elements, size_t each, struct buckets *out)
{
    const size_t count = elements / each + (elements % each > 0);
    TRY(buckets_allocate(count, out));
    for (size_t i = 1; i <= count; i++)
        out->ends[out->count++] = i < count ? i * each : elements;
    return ALNICO_SUCCESS;
}

alnico_status_t buckets_of_count(size_t elements, size_t count, struct buckets *out)
{
    if (count > elements)
        count = elements;
    TRY(buckets_allocate(count, out));
    for (size_t i = 1; i <= count; i++)
        out->ends[out->count++] = elements / count * i + elements % count * i / count;
    return ALNICO_SUCCESS;
}

/* Gradients up to an end that are final at a time. */
struct point {
    double time;
    size_t end;
};

/* The best way to send what is final at the first k points in m buckets. */
struct share {
    double idle; /* when the link has sent all of it */
    size_t from; /* the last bucket begins behind point `from` */
};

static size_t points_collect(const struct plan *plan, const double *seconds, struct point *points)
{
    size_t count = 0;
    double now = 0;
    points[count++] = (struct point){0, 0};
    for (size_t s = plan->count; s-- > 0;) {
        now += seconds[s];
        if (plan->steps[s].filled != points[count - 1].end)
            points[count++] = (struct point){now, plan->steps[s].filled};
    }
    return count - 1;
}

/* The last of m buckets, of points up to k, given all for m - 1. */
static struct share share_best(const struct point *points, const struct share *fewer, size_t m,
                               size_t k, size_t width, struct bucket_costs costs)
{
    struct share best = {HUGE_VAL, 0};
    for (size_t i = m - 1; i < k; i++) {
        const double start = fmax(fewer[i].idle, points[k].time);
        const double bytes = (double)((points[k].end - points[i].end) * width);
        const double idle = start + costs.alpha + costs.beta * bytes;
        if (idle < best.idle)
            best = (struct share){idle, i};
    }
    return best;
}

/* All shares: row m has m buckets. Returns the number that is worth it for all points. */
static size_t shares_fill(const struct point *points, size_t count, size_t width,
                          struct bucket_costs costs, struct share *shares)
{
    double least = HUGE_VAL;
    size_t chosen = 0;
    for (size_t m = 0; m <= count; m++) {
        struct share *row = &shares[m * (count + 1)];
        for (size_t k = 0; k <= count; k++)
            row[k] = (struct share){m == 0 && k == 0 ? 0 : HUGE_VAL, 0};
        for (size_t k = m; k <= count && m > 0; k++)
            row[k] = share_best(points, row - (count + 1), m, k, width, costs);
        const double end = row[count].idle + costs.alpha * (double)m;
        if (end < least) {
            least = end;
            chosen = m;
        }
    }
    return chosen;
}

alnico_status_t buckets_planned(const struct plan *plan, const double *seconds, size_t width,
                                struct bucket_costs costs, struct buckets *out)
{
    const size_t most = plan->count + 1;
    struct point *points = malloc(most * sizeof *points);
    struct share *shares = malloc(most * most * sizeof *shares);
    alnico_status_t status = buckets_allocate(plan->count, out);
    if (status == ALNICO_SUCCESS && (!points || !shares))
        status =
            error_set(ALNICO_ERROR_MEMORY, "buckets: no memory to plan %zu steps", plan->count);
    if (status == ALNICO_SUCCESS) {
        const size_t count = points_collect(plan, seconds, points);
        out->count = shares_fill(points, count, width, costs, shares);
        size_t k = count;
        for (size_t m = out->count; m > 0; m--) {
            out->ends[m - 1] = points[k].end;
            k = shares[m * (count + 1) + k].from;
        }
    } else {
        buckets_free(out);
    }
    free(points);
    free(shares);
    return status;
}

void buckets_free(struct buckets *buckets)
{
    free(buckets->ends);
    *buckets = (struct buckets){0};
}
