/*
 * Datatypes and operations as two tables. Called wherever arguments are checked, sizes computed or
 * names printed. Pure; any thread.
 */
#include "base/datatype.h"

#include <string.h>

const struct datatype datatypes[DATATYPES] = {
    [ALNICO_INT8] = {"int8", 1, true},
    [ALNICO_UINT8] = {"uint8", 1, true},
    [ALNICO_INT32] = {"int32", 4, true},
    [ALNICO_UINT32] = {"uint32", 4, true},
    [ALNICO_INT64] = {"int64", 8, true},
    [ALNICO_UINT64] = {"uint64", 8, true},
    [ALNICO_FLOAT16] = {"float16", 2, false},
    [ALNICO_BFLOAT16] = {"bfloat16", 2, false},
    [ALNICO_FLOAT32] = {"float32", 4, false},
    [ALNICO_FLOAT64] = {"float64", 8, false},
    [ALNICO_FLOAT8_E4M3] = {"float8_e4m3", 1, false},
    [ALNICO_FLOAT8_E5M2] = {"float8_e5m2", 1, false},
};

static const struct {
    const char *name;
    bool integers_only;
} ops[OPS] = {
    [ALNICO_SUM] = {"sum", false},
    [ALNICO_PRODUCT] = {"product", false},
    [ALNICO_MINIMUM] = {"minimum", false},
    [ALNICO_MAXIMUM] = {"maximum", false},
    [ALNICO_AVERAGE] = {"average", false},
    [ALNICO_LOGICAL_AND] = {"logical_and", true},
    [ALNICO_LOGICAL_OR] = {"logical_or", true},
    [ALNICO_LOGICAL_XOR] = {"logical_xor", true},
    [ALNICO_BITWISE_AND] = {"bitwise_and", true},
    [ALNICO_BITWISE_OR] = {"bitwise_or", true},
    [ALNICO_BITWISE_XOR] = {"bitwise_xor", true},
};

bool op_valid(alnico_op_t op)
{
    return (int)op >= 0 && (int)op < OPS;
}

bool op_supports(alnico_op_t op, alnico_datatype_t type)
{
    return datatypes[type].integer || !ops[op].integers_only;
}

const char *datatype_name(alnico_datatype_t type)
{
    return datatypes[type].name;
}

const char *op_name(alnico_op_t op)
{
    return ops[op].name;
}

bool datatype_find(const char *name, alnico_datatype_t *out)
{
    for (int i = 0; i < DATATYPES; i++)
        if (strcmp(name, datatypes[i].name) == 0) {
            *out = (alnico_datatype_t)i;
            return true;
        }
    return false;
}

bool op_find(const char *name, alnico_op_t *out)
{
    for (int i = 0; i < OPS; i++)
        if (strcmp(name, ops[i].name) == 0) {
            *out = (alnico_op_t)i;
            return true;
        }
    return false;
}
