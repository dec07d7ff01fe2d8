/* Datatypes and operations as tables: sizes, names, and which operation a type has. Pure; any
 * thread. */
#ifndef ALNICO_BASE_DATATYPE_H
#define ALNICO_BASE_DATATYPE_H

#include <alnico/alnico.h>

enum { DATATYPES = ALNICO_FLOAT8_E5M2 + 1, OPS = ALNICO_BITWISE_XOR + 1 };

extern const struct datatype {
    const char *name;
    size_t bytes;
    bool integer;
} datatypes[DATATYPES];

/* Whether the value is one of the enumeration's. */
static inline bool datatype_valid(alnico_datatype_t type)
{
    return (int)type >= 0 && (int)type < DATATYPES;
}
bool op_valid(alnico_op_t op);

/* Bytes of one element. */
static inline size_t datatype_bytes(alnico_datatype_t type)
{
    return datatypes[type].bytes;
}

static inline bool datatype_is_integer(alnico_datatype_t type)
{
    return datatypes[type].integer;
}

/* A float of 16 or 8 bits, which is computed in float32. */
static inline bool datatype_is_short_float(alnico_datatype_t type)
{
    return !datatypes[type].integer && datatypes[type].bytes < 4;
}

/* Whether the type has the operation: the logical and bitwise ones are for integers only. */
bool op_supports(alnico_op_t op, alnico_datatype_t type);

/* "float32", "sum", ...: the enumerators in lower case without the prefix. */
const char *datatype_name(alnico_datatype_t type);
const char *op_name(alnico_op_t op);

/* The reverse; false if there is none of that name. */
bool datatype_find(const char *name, alnico_datatype_t *out);
bool op_find(const char *name, alnico_op_t *out);

#endif
