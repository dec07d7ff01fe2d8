/* See median.h. */
#include "train/base/median.h"

#include <stdlib.h>

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_size);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}
