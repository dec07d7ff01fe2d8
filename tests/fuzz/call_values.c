/* See call_values.h. */
#include "tests/fuzz/call_values.h"

#include <alnico/alnico.h>

#include <stdint.h>
#include <string.h>

size_t values_bytes(int type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1};
    return type >= 0 && type < 12 ? bytes[type] : 0;
}

bool values_have(int type, int op)
{
    return op >= 0 && op <= 10 && (op <= 4 || type <= 5);
}

static bool has_sign(int type)
{
    return type == ALNICO_INT8 || type == ALNICO_INT32 || type == ALNICO_INT64;
}

/* As a number of the type, in 64 bits. */
static uint64_t load(const unsigned char *from, int type)
{
    size_t bytes = values_bytes(type);
    uint64_t value = 0;
    memcpy(&value, from, bytes);
    if (has_sign(type) && bytes < 8 && value >> (8 * bytes - 1))
        value |= UINT64_MAX << 8 * bytes;
    return value;
}

static uint64_t combine(uint64_t a, uint64_t b, int op, bool is_signed)
{
    bool less = is_signed ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case ALNICO_PRODUCT:
        return a * b;
    case ALNICO_MINIMUM:
        return less ? a : b;
    case ALNICO_MAXIMUM:
        return less ? b : a;
    case ALNICO_LOGICAL_AND:
        return a && b;
    case ALNICO_LOGICAL_OR:
        return a || b;
    case ALNICO_LOGICAL_XOR:
        return !a != !b;
    case ALNICO_BITWISE_AND:
        return a & b;
    case ALNICO_BITWISE_OR:
        return a | b;
    case ALNICO_BITWISE_XOR:
        return a ^ b;
    default:
        return a + b;
    }
}

void values_reduce(int type, int op, int size, const unsigned char *const *from, unsigned char *to)
{
    bool is_signed = has_sign(type);
    uint64_t value = load(from[0], type);
    for (int rank = 1; rank < size; rank++)
        value = combine(value, load(from[rank], type), op, is_signed);
    if (op == ALNICO_AVERAGE) {
        unsigned char wrapped[8];
        memcpy(wrapped, &value, sizeof wrapped);
        value = load(wrapped, type);
        value = is_signed ? (uint64_t)((int64_t)value / size) : value / (uint64_t)size;
    }
    memcpy(to, &value, values_bytes(type));
}
