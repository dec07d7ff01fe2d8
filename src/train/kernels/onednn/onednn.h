/*
 * The oneDNN library behind one small interface: an engine, the objects made on it, and the clock
 * of the time spent inside. Only onednn/kernels.c uses it, on the thread that trains.
 */
#ifndef ALNICO_TRAIN_KERNELS_ONEDNN_ONEDNN_H
#define ALNICO_TRAIN_KERNELS_ONEDNN_ONEDNN_H

#include <alnico/alnico.h>

#include <dnnl.h>

enum { ONEDNN_MAX_ARGS = 11 };

/* A primitive and the memories that it runs on. */
struct call {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[ONEDNN_MAX_ARGS];
    int count;
};

/* Objects to destroy at the end. */
struct object {
    dnnl_memory_t memory; /* beside a primitive: its scratchpad */
    dnnl_primitive_t primitive;
    dnnl_primitive_desc_t description;
};

struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attributes; /* of all primitives: scratchpads are given by the caller */
    void *scratch;
    size_t scratch_bytes;
    struct object *objects;
    size_t count, capacity;
    double seconds; /* inside the library's executions */
};

/* Whether the processor has vectors of 16 numbers, for which the library has its blocks of channels. */
bool onednn_wide(void);

alnico_status_t onednn_open(struct onednn *library);

/* Destroys everything made. Fine after a failed open, or on zeros. */
void onednn_close(struct onednn *library);

/* Translates a code; on failure the detail names `what`. */
alnico_status_t onednn_status(dnnl_status_t status, const char *what);

/* A memory object over `handle`; NULL: over memory of the library's own. */
alnico_status_t onednn_memory(struct onednn *library, const dnnl_memory_desc_t *layout,
                              void *handle, dnnl_memory_t *out);

/* A primitive of an operation's description; `hint` is the forward one for backward, or NULL. */
alnico_status_t onednn_primitive(struct onednn *library, const_dnnl_op_desc_t operation,
                                 const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *made,
                                 struct call *out);

/* A call that copies one memory to another of the same sizes in another layout. */
alnico_status_t onednn_reorder(struct onednn *library, dnnl_memory_t from, dnnl_memory_t to,
                               struct call *out);

/* The layout that a primitive wants for one of its arguments. */
const dnnl_memory_desc_t *onednn_layout(const_dnnl_primitive_desc_t made, dnnl_query_t what);

/* Whether a primitive is the library's plain, slow code. */
bool onednn_reference(const_dnnl_primitive_desc_t made);

void call_argument(struct call *call, int argument, dnnl_memory_t memory);

/* Runs a call to its end. */
alnico_status_t onednn_execute(struct onednn *library, const struct call *call);

#endif
