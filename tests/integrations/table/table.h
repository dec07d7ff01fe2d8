/* One table of cases for alnico.h, nccl.h, Python and torch.distributed: table.py makes it, works out what must come of
 * each, and compares. Here are its lines as the C programs read them, and what they print. */
#ifndef ALNICO_TESTS_INTEGRATIONS_TABLE_TABLE_H
#define ALNICO_TESTS_INTEGRATIONS_TABLE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { TABLE_RANKS = 4, TABLE_BYTES = 32 * TABLE_RANKS * 8 };

/* Types and reductions have alnico.h's numbers. */
struct table_case {
    int number, type, op, root;
    char operation[20];
    size_t count, bytes; /* elements of a block, bytes of one */
    bool in_place;
    unsigned char codes[3][8]; /* the elements that are 0, 1 and 2 */
};

/* False at the end. */
static inline bool table_read(FILE *file, int size, struct table_case *out)
{
    char codes[3][17], place[4];
    if (fscanf(file, "%d %19s %d %d %zu %3s %zu %16s %16s %16s", &out->number, out->operation,
               &out->type, &out->op, &out->count, place, &out->bytes, codes[0], codes[1],
               codes[2]) != 10)
        return false;
    out->in_place = strcmp(place, "in") == 0;
    out->root = out->number % size;
    for (int c = 0; c < 3; c++)
        for (size_t i = 0; i < out->bytes; i++) {
            unsigned byte = 0;
            sscanf(codes[c] + 2 * i, "%2x", &byte);
            out->codes[c][i] = (unsigned char)byte;
        }
    return true;
}

static inline bool table_is(const struct table_case *c, const char *operation)
{
    return strcmp(c->operation, operation) == 0;
}

/* Elements that a rank passes and gets. */
static inline size_t table_sends(const struct table_case *c, int size)
{
    bool all = table_is(c, "reduce_scatter") || table_is(c, "scatter") || table_is(c, "alltoall");
    return c->count * (all ? (size_t)size : 1);
}

static inline size_t table_receives(const struct table_case *c, int size)
{
    bool all = table_is(c, "allgather") || table_is(c, "gather") || table_is(c, "alltoall");
    return c->count * (all ? (size_t)size : 1);
}

/* A product has no zeros. */
static inline void table_fill(const struct table_case *c, int rank, int size, char *send)
{
    for (size_t i = 0; i < table_sends(c, size); i++) {
        size_t draw = 3 * i + 5 * (size_t)rank + (size_t)c->number + i / 3;
        size_t value = c->op == 1 ? 1 + draw % 2 : draw % 3;
        memcpy(send + i * c->bytes, c->codes[value], c->bytes);
    }
}

/* A line: the case, the rank, its result. */
static inline void table_print(const struct table_case *c, int rank, int size, const char *recv)
{
    bool none = (table_is(c, "reduce") || table_is(c, "gather")) && rank != c->root;
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < table_receives(c, size) * c->bytes; i++)
        hash = (hash ^ (unsigned char)recv[i]) * UINT64_C(1099511628211);
    if (none)
        printf("%d %d -\n", c->number, rank);
    else
        printf("%d %d %016llx\n", c->number, rank, (unsigned long long)hash);
}

#endif
