/* See train_read.h. */
#include "tools/train/read.h"

#include "train/optimizers/optimizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

unsigned long long train_read_number(struct argp_state *state, const char *option, const char *text,
                                     unsigned long long least, unsigned long long most)
{
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value < least || value > most)
        argp_error(state, "%s %s: expected a whole number from %llu to %llu", option, text, least,
                   most);
    return value;
}

double train_read_real(struct argp_state *state, const char *option, const char *text, double least,
                       double most)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most))
        argp_error(state, "%s %s: expected a number from %g to %g", option, text, least, most);
    return value;
}

void train_read_drops(struct argp_state *state, const char *text, double *drops)
{
    char *copy = strdup(text), *rest = NULL;
    size_t count = 0;
    for (char *word = copy ? strtok_r(copy, ",", &rest) : NULL; word;
         word = strtok_r(NULL, ",", &rest)) {
        if (count == OPTIMIZER_DROPS)
            argp_error(state, "--drops %s: expected at most %d numbers", text, OPTIMIZER_DROPS);
        drops[count++] = train_read_real(state, "--drops", word, 0, 1);
    }
    if (!count)
        argp_error(state, "--drops: expected numbers from 0 to 1, separated by commas");
    for (; count < OPTIMIZER_DROPS; count++)
        drops[count] = 1;
    free(copy);
}

const char *train_read_name(struct argp_state *state, const char *option, const char *text,
                            const char *const *names)
{
    char list[256] = "";
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(text, names[i]) == 0)
            return names[i];
        const size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s",
                 i == 0         ? ""
                 : names[i + 1] ? ", "
                                : " or ",
                 names[i]);
    }
    argp_error(state, "%s %s: expected %s", option, text, list);
    return NULL;
}

size_t train_read_choice(struct argp_state *state, const char *option, const char *text,
                         const char *const *names)
{
    const char *name = train_read_name(state, option, text, names);
    size_t i = 0;
    while (names[i] && names[i] != name)
        i++;
    return i;
}
