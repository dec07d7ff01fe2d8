/* The output of alnico-tune. Rank 0's main thread only. */
#ifndef ALNICO_TOOLS_TUNE_PRINT_H
#define ALNICO_TOOLS_TUNE_PRINT_H

#include "tools/tune/measure.h"

/* A line for every size and mode: the fastest way, and what the table in force takes. */
void tune_print_head(const struct tuner *tuner);
void tune_print_size(const struct tuner *tuner, unsigned modes, const struct tune_size *size);

void tune_print_rows(const struct tuner *tuner, const struct tuning_row *rows, int count);

/* Whether the table in force takes, everywhere, a way within 3 % or 0.2 us of the fastest; returns
 * how often not. */
int tune_print_comparison(const struct tuner *tuner);

#endif
