/* Inputs and reference values of alnico-perf in host memory, element by element as perf/values.h
 * says, and how far a result may be from its reference. Any thread. */
#include "tools/perf/check.h"

#include "tools/perf/values.h"

void check_fill(const struct check *check, int rank, void *out, size_t count)
{
    size_t bytes = value_bytes(check->type);
    for (size_t i = 0; i < count; i++)
        value_fill(check, rank, i, (char *)out + i * bytes);
}

/* The greatest relative error of the result: ranks - 1 roundings of the wire type, each of a
 * float32 result for the short ones; three more for an average (1/n, the product with it, the
 * wire). The float64 reference makes as many errors as a float64 result. */
static double relative_bound(const struct check *check)
{
    int precision = value_precision(check->type);
    bool few = check->type >= ALNICO_FLOAT8_E4M3 && check->ranks > VALUE_FLOAT8_TERMS;
    int terms = few ? VALUE_FLOAT8_TERMS : check->ranks;
    int roundings = terms - 1 + (check->op == ALNICO_AVERAGE ? 3 : 0);
    double each = log1p(ldexp(1, -precision));
    if (precision < 24)
        each += log1p(ldexp(1, -24));
    return expm1(roundings * each * (check->type == ALNICO_FLOAT64 ? 2 : 1));
}

/* The greatest error by subnormal results, one for every rounding. */
static double absolute_bound(const struct check *check)
{
    static const double smallest[] = {
        [ALNICO_FLOAT16] = 0x1p-24,    [ALNICO_BFLOAT16] = 0x1p-133,
        [ALNICO_FLOAT32] = 0x1p-149,   [ALNICO_FLOAT64] = 0x1p-1074,
        [ALNICO_FLOAT8_E4M3] = 0x1p-9, [ALNICO_FLOAT8_E5M2] = 0x1p-16};
    return (check->ranks + 2) * smallest[check->type];
}

struct check_bounds check_bounds(const struct check *check)
{
    bool copy = check->ranks == 1 && check->op != ALNICO_AVERAGE;
    if (copy || check->op == ALNICO_MINIMUM || check->op == ALNICO_MAXIMUM)
        return (struct check_bounds){0, 0};
    return (struct check_bounds){relative_bound(check), absolute_bound(check)};
}

size_t check_compare(const struct check *check, const void *result, size_t begin, size_t end,
                     struct check_fault *first)
{
    size_t wrong = 0, bytes = value_bytes(check->type);
    struct check_bounds bounds = check_bounds(check);
    for (size_t i = begin; i < end; i++) {
        struct check_fault fault;
        if (value_check(check, &bounds, (const char *)result + i * bytes, i, &fault))
            continue;
        if (wrong++ == 0)
            *first = fault;
    }
    return wrong;
}

uint64_t check_hash(const void *data, size_t bytes)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ bytes;
    const char *from = data;
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, from + at, bytes - at < 8 ? bytes - at : 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    return hash;
}
