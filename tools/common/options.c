/* Options by table: each argp key is a row's letter or 256 + its place. Main thread. */
#include "tools/common/options.h"

#include "base/number.h"

#include "tools/common/program.h"
#include "tools/common/ranks.h"

#include <float.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MOST = 128, KEY_FIRST = 256 };

const char *const option_devices[] = {"cpu", "cuda", NULL};
const char *const option_memories[] = {"cuda", "nccl", NULL};

/* The callbacks' context. */
struct reader {
    const struct option_table *table;
    void *options;
};

void text_append(char *text, size_t room, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, room - used, format, arguments);
    va_end(arguments);
}

unsigned long long option_number(struct argp_state *state, const char *option, const char *text,
                                 unsigned long long least, unsigned long long most)
{
    uint64_t value = 0;
    if (!number_whole(text, least, most, &value))
        argp_error(state, "%s %s: expected a whole number from %llu to %llu", option, text, least,
                   most);
    return value;
}

double option_real(struct argp_state *state, const char *option, const char *text, double low,
                   double high)
{
    double value = 0;
    if (!number_real(text, low, high, &value))
        argp_error(state, "%s %s: expected a number from %g to %g", option, text, low, high);
    return value;
}

static double read_positive(struct argp_state *state, const char *option, const char *text,
                            double high)
{
    double value = 0;
    if (!number_real(text, DBL_MIN, high, &value))
        argp_error(state, "%s %s: expected a number above 0, at most %g", option, text, high);
    return value;
}

size_t option_size(struct argp_state *state, const char *option, const char *text, size_t least)
{
    static const char units[] = "KMG";
    const char *end = text;
    uint64_t value = 0;
    bool good = number_leading(&end, UINT64_MAX, &value);
    const char *unit = *end ? strchr(units, *end >= 'a' ? *end - 32 : *end) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    good = good && (!*end || (unit && !end[1]));
    if (!good || value > SIZE_MAX >> shift || (size_t)value << shift < least)
        argp_error(state, "%s %s: expected a size of at least %zu such as 8, 64K or 64M", option,
                   text, least);
    return (size_t)value << shift;
}

static const char *choice_at(const struct option_row *option, int i)
{
    return option->choices ? option->choices[i] : option->choice(i);
}

static int read_choice(struct argp_state *state, const struct option_row *option, const char *name,
                       const char *text)
{
    char list[256] = "";
    for (int i = 0; choice_at(option, i); i++) {
        const char *choice = choice_at(option, i);
        if (strcmp(text, choice) == 0)
            return i;
        bool last = !choice_at(option, i + 1);
        text_append(list, sizeof list, "%s%s", i == 0 ? "" : last ? " or " : ", ", choice);
    }
    argp_error(state, "%s %s: expected %s", name, text, list);
    return 0;
}

static void store_number(const struct option_row *option, void *field, unsigned long long value)
{
    if (option->bytes == sizeof(bool))
        *(bool *)field = value;
    else if (option->bytes == sizeof(int))
        *(int *)field = (int)value;
    else
        *(uint64_t *)field = value;
}

static double load_number(const struct option_row *option, const void *field)
{
    return option->bytes == sizeof(bool)  ? *(const bool *)field
           : option->bytes == sizeof(int) ? *(const int *)field
                                          : (double)*(const uint64_t *)field;
}

static void store_real(const struct option_row *option, void *field, double value)
{
    if (option->bytes == sizeof(float))
        *(float *)field = (float)value;
    else
        *(double *)field = value;
}

static void read_value(struct argp_state *state, const struct option_row *option, char *text,
                       void *options)
{
    void *field = (char *)options + option->at;
    char name[32];
    snprintf(name, sizeof name, option->letter ? "-%.1s" : "--%s",
             option->letter ? &option->letter : option->name);
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        break;
    case OPTION_TEXT:
        *(const char **)field = text;
        break;
    case OPTION_SIZE:
        store_number(option, field, option_size(state, name, text, option->least));
        break;
    case OPTION_NUMBER:
        store_number(option, field, option_number(state, name, text, option->least, option->most));
        break;
    case OPTION_REAL:
        store_real(option, field, option_real(state, name, text, option->low, option->high));
        break;
    case OPTION_POSITIVE:
        store_real(option, field, read_positive(state, name, text, option->high));
        break;
    case OPTION_NAME:
        *(const char **)field = choice_at(option, read_choice(state, option, name, text));
        break;
    case OPTION_CHOICE:
        store_number(option, field, (unsigned)read_choice(state, option, name, text));
        break;
    case OPTION_OTHER:
        break;
    }
    if (option->read)
        option->read(state, text, options);
}

static bool is_end(const struct option_row *option)
{
    return !option->name && !option->help;
}

static int key_of(const struct option_row *options, const struct option_row *option)
{
    return option->letter ? option->letter : KEY_FIRST + (int)(option - options);
}

/* The row of a key; NULL: none. */
static const struct option_row *find(const struct option_table *table, int key)
{
    const struct option_row *option = table->options;
    while (!is_end(option) && !(option->name && key_of(table->options, option) == key))
        option++;
    return is_end(option) ? NULL : option;
}

static void read_initial(struct argp_state *state, const struct option_table *table, void *options)
{
    for (const struct option_row *option = table->options; !is_end(option); option++)
        if (option->initial)
            read_value(state, option, (char *)option->initial, options);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    const struct reader *reader = state->input;
    const struct option_table *table = reader->table;
    const struct option_row *option = find(table, key);
    if (option) {
        read_value(state, option, text, reader->options);
        if (option->given)
            *(bool *)((char *)reader->options + option->given) = true;
    } else if (key == ARGP_KEY_INIT) {
        read_initial(state, table, reader->options);
    } else if (key == ARGP_KEY_ARG && table->argument) {
        table->argument(state, text, reader->options);
    } else if (key == ARGP_KEY_ARG) {
        argp_error(state, "%s: expected options only", text);
    } else if (key == ARGP_KEY_END && table->finish) {
        table->finish(state, reader->options);
    } else {
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* argp's help_filter: adds the default to an option's text. */
static char *help_of(int key, const char *text, void *input)
{
    const struct option_table *table = ((const struct reader *)input)->table;
    const struct option_row *option = find(table, key);
    char *out = NULL;
    if (key == ARGP_KEY_HELP_EXTRA && table->help)
        return table->help();
    if (!option || !option->initial || asprintf(&out, "%s (%s)", text, option->initial) < 0)
        return (char *)text;
    return out;
}

void options_read(const struct option_table *table, int argc, char **argv, void *options)
{
    struct argp_option rows[ROWS_MOST] = {{0}};
    struct reader reader = {table, options};
    for (const struct option_row *from = table->options; !is_end(from); from++)
        rows[from - table->options] =
            (struct argp_option){.name = from->name,
                                 .key = from->name ? key_of(table->options, from) : 0,
                                 .arg = from->value,
                                 .doc = from->help};
    struct argp argp = {.options = rows,
                        .parser = parse,
                        .args_doc = table->arguments,
                        .doc = table->about,
                        .help_filter = help_of};
    argp_err_exit_status = EXIT_USAGE;
    argp_program_version = alnico_version();
    struct program_streams streams = program_silence(table->every_rank ? 0 : program_launch_rank());
    argp_parse(&argp, argc, argv, 0, NULL, &reader);
    program_restore(streams);
}

const char *options_differ(const struct option_row *options, const void *values)
{
    for (const struct option_row *option = options; !is_end(option); option++) {
        if (!option->agreed)
            continue;
        int value = (int)load_number(option, (const char *)values + option->at);
        int bounds[2] = {value, -value};
        program_least(bounds, 2);
        if (bounds[0] != -bounds[1])
            return option->name;
    }
    return NULL;
}

static cJSON *value_json(const struct option_row *option, const void *field)
{
    switch (option->kind) {
    case OPTION_TEXT:
    case OPTION_NAME:
        return cJSON_CreateString(*(const char *const *)field);
    case OPTION_REAL:
    case OPTION_POSITIVE:
        return cJSON_CreateNumber(option->bytes == sizeof(float) ? (double)*(const float *)field
                                                                 : *(const double *)field);
    case OPTION_CHOICE:
        if (option->bytes != sizeof(bool))
            return cJSON_CreateString(choice_at(option, *(const int *)field));
        return cJSON_CreateBool(*(const bool *)field);
    case OPTION_FLAG:
        return cJSON_CreateBool(*(const bool *)field);
    default:
        return cJSON_CreateNumber(load_number(option, field));
    }
}

void options_json(const struct option_row *options, const void *values, cJSON *object)
{
    for (const struct option_row *option = options; !is_end(option); option++)
        if (option->key)
            cJSON_AddItemToObject(object, option->key,
                                  value_json(option, (const char *)values + option->at));
}
