/* See buckets.h. */
#include "buckets.h"

#include "status.h"

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

alnico_status_t buckets_planned(const struct plan *plan, const double *seconds, size_t width,
                                struct bucket_costs costs, struct buckets *out)
{
    size_t begin = 0, end = 0; /* of the bucket that is being filled */
    double now = 0, idle = 0;  /* backward has come here; the link has sent all closed buckets */
    double filled = 0;         /* when the bucket was last complete */
    TRY(buckets_allocate(plan->count, out));
    for (size_t s = plan->count; s-- > 0;) {
        now += seconds[s];
        if (plan->steps[s].filled == end)
            continue;
        const double start = filled > idle ? filled : idle;
        if (end > begin && now > start && now - start >= costs.alpha) {
            idle = start + costs.alpha + costs.beta * (double)((end - begin) * width);
            out->ends[out->count++] = begin = end;
        }
        end = plan->steps[s].filled;
        filled = now;
    }
    if (end > begin)
        out->ends[out->count++] = end;
    return ALNICO_SUCCESS;
}

void buckets_free(struct buckets *buckets)
{
    free(buckets->ends);
    *buckets = (struct buckets){0};
}
