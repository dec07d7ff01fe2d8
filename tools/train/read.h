/* Values of alnico-train's options. What makes no sense is a usage error that names the option. */
#ifndef ALNICO_TOOLS_TRAIN_READ_H
#define ALNICO_TOOLS_TRAIN_READ_H

#include <argp.h>
#include <stddef.h>

/* A whole number within the bounds. */
unsigned long long train_read_number(struct argp_state *state, const char *option, const char *text,
                                     unsigned long long least, unsigned long long most);

/* A number within the bounds. */
double train_read_real(struct argp_state *state, const char *option, const char *text, double least,
                       double most);

/* At most OPTIMIZER_DROPS numbers with commas between them; the rest become 1. */
void train_read_drops(struct argp_state *state, const char *text, double *drops);

/* One of a list of names, which ends with NULL; and its place in the list. */
const char *train_read_name(struct argp_state *state, const char *option, const char *text,
                            const char *const *names);
size_t train_read_choice(struct argp_state *state, const char *option, const char *text,
                         const char *const *names);

#endif
