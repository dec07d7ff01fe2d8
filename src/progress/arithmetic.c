/* The stream and the scratch of device arithmetic. On the caller's thread. */
#include "progress/arithmetic.h"

#include "base/status.h"
#include "device/deferred_free.h"

#include <stdlib.h>

/* Device memory that is freed later. */
struct arithmetic_memory {
    struct deferred later; /* first */
    const struct device_ops *device;
    void *address;
};

static void release(struct deferred *item)
{
    struct arithmetic_memory *memory = (struct arithmetic_memory *)item;
    (memory->device->free)(memory->address);
    free(memory);
}

static alnico_status_t take_memory(struct arithmetic *a)
{
    struct arithmetic_memory *memory = malloc(sizeof *memory);
    if (!memory)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for device arithmetic");
    *memory = (struct arithmetic_memory){.later = {.bytes = ARITHMETIC_BYTES, .release = release},
                                         .device = a->device};
    alnico_status_t status = a->device->alloc(ARITHMETIC_BYTES, &memory->address);
    if (status != ALNICO_SUCCESS) {
        free(memory);
        return status;
    }
    a->memory = memory;
    for (int i = 0; i < ARITHMETIC_CHUNKS; i++)
        a->scratch[i] = (char *)memory->address + (size_t)i * ARITHMETIC_CHUNK_BYTES;
    return ALNICO_SUCCESS;
}

static alnico_status_t fill(struct arithmetic *a)
{
    TRY(take_memory(a));
    for (int i = 0; i < ARITHMETIC_CHUNKS; i++)
        TRY(gate_init(&a->ended[i], a->device));
    return a->device->stream_create(&a->stream);
}

alnico_status_t arithmetic_create(const struct device_ops *device, struct arithmetic **out)
{
    struct arithmetic *a = calloc(1, sizeof *a);
    *out = NULL;
    if (!a)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for device arithmetic");
    a->device = device;
    alnico_status_t status = fill(a);
    if (status == ALNICO_SUCCESS)
        *out = a;
    else
        arithmetic_destroy(a);
    return status;
}

/* What the stream runs last may be an operation's that failed. */
void arithmetic_destroy(struct arithmetic *a)
{
    if (!a)
        return;
    if (a->stream) {
        a->device->stream_synchronize(a->stream);
        a->device->stream_destroy(a->stream);
    }
    for (int i = 0; i < ARITHMETIC_CHUNKS; i++)
        if (a->ended[i].device)
            gate_finish(&a->ended[i]);
    if (a->memory)
        deferred_free(&a->memory->later);
    free(a);
}
