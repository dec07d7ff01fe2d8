/* Batches as texts. One table of fields serves printing and parsing. */
#include "tests/conformance/case.h"

#include "base/datatype.h"
#include "base/number.h"
#include "tests/conformance/operations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Names of values: that of number i, NULL after the last ---- */

#define NAMES(FUNCTION, ...)                                                                       \
    static const char *FUNCTION(int i)                                                             \
    {                                                                                              \
        static const char *const names[] = {__VA_ARGS__, NULL};                                    \
        return names[i];                                                                           \
    }
NAMES(lane_text, "world", "twin", "half", "stream", "shared", "reversed")
NAMES(place_text, "apart", "named", "address", "mixed")
NAMES(ending_text, "blocking", "wait", "test", "host", "comm")
NAMES(pattern_text, "equal", "random", "sparse", "lone", "ramp", "none")
NAMES(layout_text, "null", "packed", "gaps", "shuffled")

static const char *type_text(int i)
{
    return i < DATATYPES ? datatype_name((alnico_datatype_t)i) : NULL;
}

static const char *op_text(int i)
{
    return i < OPS ? op_name((alnico_op_t)i) : NULL;
}

/* ---- Fields ---- */

/* An int with names, a text, or a number. */
static const struct field {
    const char *key;
    size_t offset;
    const char *(*name)(int);
    bool text;
} fields[] = {
    {"operation", offsetof(struct trial, operation), operation_name, false},
    {"lane", offsetof(struct trial, lane), lane_text, false},
    {"type", offsetof(struct trial, type), type_text, false},
    {"op", offsetof(struct trial, op), op_text, false},
    {"algorithm", offsetof(struct trial, algorithm), NULL, true},
    {"place", offsetof(struct trial, place), place_text, false},
    {"ending", offsetof(struct trial, ending), ending_text, false},
    {"late", offsetof(struct trial, late), NULL, false},
    {"root", offsetof(struct trial, root), NULL, false},
    {"count", offsetof(struct trial, count), NULL, false},
    {"counts", offsetof(struct trial, pattern), pattern_text, false},
    {"at", offsetof(struct trial, layout), layout_text, false},
    {"messages", offsetof(struct trial, messages), NULL, false},
    {"nan", offsetof(struct trial, nan), NULL, false},
    {"offset", offsetof(struct trial, offset), NULL, false},
    {"registered", offsetof(struct trial, registered), NULL, false},
    {"salt", offsetof(struct trial, salt), NULL, false},
};

enum { FIELDS = sizeof fields / sizeof *fields };

static size_t print_field(const struct field *f, const struct trial *trial, char *text,
                          size_t bytes)
{
    const char *at = (const char *)trial + f->offset;
    int named = 0;
    uint64_t number = 0;
    if (f->text)
        return *at ? (size_t)snprintf(text, bytes, " %s=%s", f->key, at) : 0;
    if (!f->name) {
        memcpy(&number, at, sizeof number);
        return number
                   ? (size_t)snprintf(text, bytes, " %s=%llu", f->key, (unsigned long long)number)
                   : 0;
    }
    memcpy(&named, at, sizeof named);
    return named || f == fields ? (size_t)snprintf(text, bytes, " %s=%s", f->key, f->name(named))
                                : 0;
}

const char *batch_print(const struct batch *batch, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "ranks=%d threads=%d", batch->ranks, batch->threads);
    for (int t = 0; t < batch->number; t++) {
        if (at + 1 < bytes)
            text[at++] = ';';
        text[at] = '\0';
        for (int i = 0; i < FIELDS && at < bytes; i++)
            at += print_field(&fields[i], &batch->trial[t], text + at, bytes - at);
    }
    return text;
}

/* ---- Parsing ---- */

static bool parse_value(const struct field *f, const char *value, struct trial *trial)
{
    char *at = (char *)trial + f->offset;
    uint64_t number;
    if (f->text)
        return strlen(value) < ALGORITHM_BYTES && strcpy(at, value);
    if (!f->name)
        return number_whole(value, 0, UINT64_MAX, &number) && memcpy(at, &number, sizeof number);
    for (int i = 0; f->name(i); i++)
        if (strcmp(f->name(i), value) == 0)
            return memcpy(at, &i, sizeof i);
    return false;
}

static bool parse_head(const char *key, const char *value, struct batch *out)
{
    uint64_t number;
    bool good = number_whole(value, 1, RANKS_MOST, &number);
    if (strcmp(key, "ranks") == 0)
        out->ranks = good ? (int)number : 0;
    else if (strcmp(key, "threads") == 0)
        out->threads = good && number <= LANES ? (int)number : 0;
    else
        return false;
    return out->ranks > 0 && out->threads > 0;
}

/* One "key=value"; trial -1 is the head. */
static bool parse_word(char *word, int trial, struct batch *out)
{
    char *value = strchr(word, '=');
    if (!value)
        return false;
    *value++ = '\0';
    if (trial < 0)
        return parse_head(word, value, out);
    for (int i = 0; i < FIELDS; i++)
        if (strcmp(fields[i].key, word) == 0)
            return parse_value(&fields[i], value, &out->trial[trial]);
    return false;
}

static bool parse_part(char *part, int trial, struct batch *out, char *error, size_t bytes)
{
    char *rest;
    for (char *word = strtok_r(part, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char shown[64];
        snprintf(shown, sizeof shown, "%s", word);
        if (!parse_word(word, trial, out)) {
            snprintf(error, bytes, "'%s' is not understood", shown);
            return false;
        }
    }
    return true;
}

static bool is_possible(const struct trial *t, char *error, size_t bytes)
{
    const struct operation *o = &operations[t->operation];
    snprintf(error, bytes, "%s cannot be so", o->name);
    if (o->reduces && !op_supports((alnico_op_t)t->op, (alnico_datatype_t)t->type))
        return false;
    return (!t->place || o->in_place) && t->messages <= MESSAGES_MOST;
}

bool batch_parse(const char *text, struct batch *out, char *error, size_t bytes)
{
    *out = (struct batch){.ranks = 2, .threads = 1, .number = -1};
    char *copy = strdup(text), *rest;
    bool good = copy != NULL;
    for (char *part = strtok_r(copy, ";", &rest); part && good; part = strtok_r(NULL, ";", &rest)) {
        if (out->number == TRIALS) {
            snprintf(error, bytes, "more than %d calls", TRIALS);
            good = false;
            break;
        }
        if (strstr(part, "operation=") && out->number < 0)
            out->number = 0;
        good = parse_part(part, out->number, out, error, bytes);
        if (good && out->number >= 0)
            good = is_possible(&out->trial[out->number], error, bytes);
        out->number++;
    }
    free(copy);
    if (good && out->number < 1)
        snprintf(error, bytes, "no call");
    return good && out->number >= 1;
}
