/* Decimal numbers without the program's locale. See number.h. */
#include "base/number.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

bool number_leading(const char **text, uint64_t most, uint64_t *out)
{
    const char *digit = *text;
    uint64_t value = 0;
    for (; *digit >= '0' && *digit <= '9'; digit++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*digit - '0'), &value))
            return false;
    if (digit == *text || value > most)
        return false;
    *text = digit;
    *out = value;
    return true;
}

bool number_whole(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    uint64_t value;
    if (!number_leading(&text, most, &value) || *text || value < least)
        return false;
    *out = value;
    return true;
}

bool number_real(const char *text, double least, double most, double *out)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", NULL); /* a constant of the C library's */
    char *end;
    if (!plain || !*text || text[strspn(text, "+-.0123456789eE")])
        return false;
    double value = strtod_l(text, &end, plain);
    if (end == text || *end || !(value >= least && value <= most))
        return false;
    *out = value;
    return true;
}
