/* oneDNN 2.x objects, their ownership and the clock. See onednn.h. */
#include "train/kernels/onednn/onednn.h"

#include "base/status.h"
#include "train/base/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

alnico_status_t onednn_status(dnnl_status_t status, const char *what)
{
    switch (status) {
    case dnnl_success:
        return ALNICO_SUCCESS;
    case dnnl_out_of_memory:
        return error_set(ALNICO_ERROR_MEMORY, "oneDNN: no memory for %s", what);
    case dnnl_unimplemented:
    case dnnl_invalid_arguments:
        return error_set(ALNICO_ERROR_UNSUPPORTED, "oneDNN cannot do %s (status %d)", what,
                         (int)status);
    default:
        return error_set(ALNICO_ERROR_SYSTEM, "oneDNN: %s failed with status %d", what,
                         (int)status);
    }
}

bool onednn_wide(void)
{
    const int wide = dnnl_cpu_isa_avx512_core;
    return ((int)dnnl_get_effective_cpu_isa() & wide) == wide;
}

alnico_status_t onednn_open(struct onednn *library)
{
    *library = (struct onednn){0};
    TRY(onednn_status(dnnl_engine_create(&library->engine, dnnl_cpu, 0), "an engine"));
    TRY(onednn_status(dnnl_primitive_attr_create(&library->attributes), "attributes"));
    TRY(onednn_status(
        dnnl_primitive_attr_set_scratchpad_mode(library->attributes, dnnl_scratchpad_mode_user),
        "a scratchpad"));
    return onednn_status(
        dnnl_stream_create(&library->stream, library->engine, dnnl_stream_default_flags),
        "a stream");
}

void onednn_close(struct onednn *library)
{
    for (size_t i = 0; i < library->count; i++) {
        const struct object *object = &library->objects[i];
        dnnl_primitive_destroy(object->primitive);
        dnnl_primitive_desc_destroy(object->description);
        dnnl_memory_destroy(object->memory);
    }
    free(library->objects);
    free(library->scratch);
    dnnl_primitive_attr_destroy(library->attributes);
    dnnl_stream_destroy(library->stream);
    dnnl_engine_destroy(library->engine);
    *library = (struct onednn){0};
}

/* Room for one more object, zeroed; it counts as soon as it is filled. */
static alnico_status_t onednn_slot(struct onednn *library, struct object **out)
{
    if (library->count == library->capacity) {
        const size_t capacity = library->capacity ? 2 * library->capacity : 64;
        struct object *objects = realloc(library->objects, capacity * sizeof *objects);
        if (!objects)
            return error_set(ALNICO_ERROR_MEMORY, "oneDNN kernels: no memory");
        library->objects = objects;
        library->capacity = capacity;
    }
    *out = &library->objects[library->count++];
    **out = (struct object){0};
    return ALNICO_SUCCESS;
}

alnico_status_t onednn_memory(struct onednn *library, const dnnl_memory_desc_t *layout,
                              void *handle, dnnl_memory_t *out)
{
    struct object *slot;
    TRY(onednn_slot(library, &slot));
    TRY(onednn_status(dnnl_memory_create(&slot->memory, layout, library->engine,
                                         handle ? handle : DNNL_MEMORY_ALLOCATE),
                      "a memory object"));
    *out = slot->memory;
    return ALNICO_SUCCESS;
}

/* Room for what a call needs while it runs, shared by all, as they run one by one. oneDNN's own would
 * be of the thread that makes a primitive, and missing on the one that executes it. */
static alnico_status_t scratch_reserve(struct onednn *library, size_t bytes)
{
    enum { LINE = 64 };
    if (bytes <= library->scratch_bytes)
        return ALNICO_SUCCESS;
    const size_t room = (bytes + LINE - 1) / LINE * LINE;
    void *scratch = aligned_alloc(LINE, room);
    if (!scratch)
        return error_set(ALNICO_ERROR_MEMORY, "oneDNN kernels: no memory for %zu bytes", room);
    free(library->scratch);
    library->scratch = scratch;
    library->scratch_bytes = room;
    for (size_t i = 0; i < library->count; i++)
        if (library->objects[i].primitive && library->objects[i].memory)
            TRY(onednn_status(dnnl_memory_set_data_handle(library->objects[i].memory, scratch),
                              "a scratchpad"));
    return ALNICO_SUCCESS;
}

/* Makes the primitive of a slot's description, and the memory over its part of the scratch. */
static alnico_status_t slot_primitive(struct onednn *library, struct object *slot, struct call *out)
{
    const dnnl_memory_desc_t *scratch = onednn_layout(slot->description, dnnl_query_scratchpad_md);
    const size_t bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    TRY(onednn_status(dnnl_primitive_create(&slot->primitive, slot->description), "a primitive"));
    *out = (struct call){.primitive = slot->primitive};
    if (bytes == 0)
        return ALNICO_SUCCESS;
    TRY(scratch_reserve(library, bytes));
    TRY(onednn_status(dnnl_memory_create(&slot->memory, scratch, library->engine, library->scratch),
                      "a scratchpad"));
    call_argument(out, DNNL_ARG_SCRATCHPAD, slot->memory);
    return ALNICO_SUCCESS;
}

alnico_status_t onednn_primitive(struct onednn *library, const_dnnl_op_desc_t operation,
                                 const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *made,
                                 struct call *out)
{
    struct object *slot = NULL;
    TRY(onednn_slot(library, &slot));
    TRY(onednn_status(dnnl_primitive_desc_create(&slot->description, operation, library->attributes,
                                                 library->engine, hint),
                      "an operation of this shape"));
    *made = slot->description;
    return slot_primitive(library, slot, out);
}

alnico_status_t onednn_reorder(struct onednn *library, dnnl_memory_t from, dnnl_memory_t to,
                               struct call *out)
{
    const dnnl_memory_desc_t *source, *target;
    struct object *slot;
    TRY(onednn_status(dnnl_memory_get_memory_desc(from, &source), "a layout"));
    TRY(onednn_status(dnnl_memory_get_memory_desc(to, &target), "a layout"));
    TRY(onednn_slot(library, &slot));
    TRY(onednn_status(dnnl_reorder_primitive_desc_create(&slot->description, source,
                                                         library->engine, target, library->engine,
                                                         library->attributes),
                      "a reorder"));
    TRY(slot_primitive(library, slot, out));
    call_argument(out, DNNL_ARG_FROM, from);
    call_argument(out, DNNL_ARG_TO, to);
    return ALNICO_SUCCESS;
}

const dnnl_memory_desc_t *onednn_layout(const_dnnl_primitive_desc_t made, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(made, what, 0);
}

bool onednn_reference(const_dnnl_primitive_desc_t made)
{
    const char *name = "";
    dnnl_primitive_desc_query(made, dnnl_query_impl_info_str, 0, &name);
    return strncmp(name, "ref", 3) == 0;
}

void call_argument(struct call *call, int argument, dnnl_memory_t memory)
{
    assert(call->count < ONEDNN_MAX_ARGS);
    call->args[call->count++] = (dnnl_exec_arg_t){argument, memory};
}

alnico_status_t onednn_execute(struct onednn *library, const struct call *call)
{
    const double begin = clock_seconds();
    dnnl_status_t status =
        dnnl_primitive_execute(call->primitive, library->stream, call->count, call->args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(library->stream);
    library->seconds += clock_seconds() - begin;
    return onednn_status(status, "an execution");
}
