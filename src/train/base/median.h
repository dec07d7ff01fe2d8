/* The median of measured times. Pure. */
#ifndef ALNICO_TRAIN_BASE_MEDIAN_H
#define ALNICO_TRAIN_BASE_MEDIAN_H

#include <stddef.h>

/* The median of `count` (> 0) values, which it sorts. */
double median(double *values, size_t count);

#endif
