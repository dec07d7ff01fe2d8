/* Numbers in the texts of settings, options and files: decimal, in the same form whatever the
 * program's locale is, and used to the last character. Any thread. */
#ifndef ALNICO_BASE_NUMBER_H
#define ALNICO_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* The longest time that a setting or an option gives: 30 years. */
#define NUMBER_MOST_SECONDS 1e9

/* The digits that *text begins with, a number up to `most`; moves *text behind them. False, with both
 * as they were, otherwise. */
bool number_leading(const char **text, uint64_t most, uint64_t *out);

/* A whole number from `least` to `most`: digits only. False, with *out as it was, otherwise. */
bool number_whole(const char *text, uint64_t least, uint64_t most, uint64_t *out);

/* A number from `least` to `most`, such as 2, 0.5, .5, -1 or 1e-3. False, with *out as it was,
 * otherwise: hexadecimal, infinite, NaN and empty texts are none. */
bool number_real(const char *text, double least, double most, double *out);

#endif
