/* The options of a program as one table, from which parsing, --help, the agreement of the ranks and
 * the JSON of the options follow. argp works below it. Main thread. */
#ifndef ALNICO_TOOLS_COMMON_OPTIONS_H
#define ALNICO_TOOLS_COMMON_OPTIONS_H

#include <argp.h>
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

/* The kind of an option: its value as a user writes it, and the field that holds it. */
enum option_kind {
    OPTION_FLAG,     /* no value: bool */
    OPTION_TEXT,     /* any: const char * */
    OPTION_SIZE,     /* bytes from `least` on, with an optional K, M or G (of 1024): size_t */
    OPTION_NUMBER,   /* whole, from `least` to `most`: int, or 64 bits */
    OPTION_REAL,     /* from `low` to `high`: float or double */
    OPTION_POSITIVE, /* above 0, at most `high`: double */
    OPTION_NAME,     /* one of the choices: const char * */
    OPTION_CHOICE,   /* one of the choices: its place among them, as int, enum or bool */
    OPTION_OTHER     /* as `read` has it; no field */
};

struct option_row {
    const char *name;  /* --NAME; NULL: `help` heads the options that follow */
    char letter;       /* -L; 0: none */
    const char *value; /* what --help calls the value */
    const char *help;  /* one sentence, to which --help adds (`initial`) */
    enum option_kind kind;
    const char *initial; /* the default as a user would write it; NULL: the field as it is */
    size_t at, bytes;    /* OPTION_FIELD: the field */
    size_t given;        /* offset of a bool that becomes true if the option is given; 0: none */
    unsigned long long least, most;
    double low, high;
    const char *const *choices;   /* ends with NULL; or: */
    const char *(*choice)(int i); /* the i-th; NULL after the last */
    /* Called with the value, after it is stored; NULL: nothing more to do. */
    void (*read)(struct argp_state *state, char *text, void *options);
    const char *key; /* in JSON; NULL: not there */
    bool agreed;     /* all ranks must have the same: a flag or choice */
};

#define OPTION_FIELD(type, member)                                                                 \
    .at = offsetof(type, member), .bytes = sizeof(((type *)NULL)->member)

/* The words of options that several programs have. */
extern const char *const option_devices[];  /* cpu, cuda: ALNICO_DEVICE_CPU, CUDA */
extern const char *const option_memories[]; /* cuda, nccl */

struct option_table {
    const struct option_row *options; /* ends with {0} */
    const char *arguments;            /* of the usage line; NULL: none */
    const char *about;                /* before the options and, after \v, behind them */
    /* An argument that is no option; NULL: none is expected, and it is named. */
    void (*argument)(struct argp_state *state, char *text, void *options);
    void (*finish)(struct argp_state *state, void *options); /* after the last; NULL: nothing */
    char *(*help)(void); /* the end of --help, which is freed; NULL: none */
    bool every_rank;     /* each rank prints its errors; otherwise the launcher's rank 0 only */
};

/* Fills a program's own struct of options. A usage error is printed and ends the program with
 * status 2, --help with 0. */
void options_read(const struct option_table *table, int argc, char **argv, void *options);

/* Collective: the first `agreed` option on which the ranks differ, or NULL. */
const char *options_differ(const struct option_row *options, const void *values);

/* Adds every option that has a key. A choice in a bool is true or false. */
void options_json(const struct option_row *options, const void *values, cJSON *object);

/* Values by themselves; what they cannot be is a usage error that names `option`. */
unsigned long long option_number(struct argp_state *state, const char *option, const char *text,
                                 unsigned long long least, unsigned long long most);
double option_real(struct argp_state *state, const char *option, const char *text, double low,
                   double high);
size_t option_size(struct argp_state *state, const char *option, const char *text, size_t least);

/* Appends to a text in `room` bytes; what does not fit is left out. */
void text_append(char *text, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
