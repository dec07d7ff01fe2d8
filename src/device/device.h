/*
 * [SEAM device] Where bytes live and in which order work runs on them.
 *
 * A resident fills one struct device_ops. The host backend, the gates and the trainer call it;
 * unless a slot says otherwise it may be called on any thread, is mandatory, and returns at once.
 * `stream` is the resident's own kind of stream; work on one stream runs in the order of the calls.
 * For the CPU it is an alnico_stream_t, and NULL runs the work before the call returns.
 */
#ifndef ALNICO_DEVICE_DEVICE_H
#define ALNICO_DEVICE_DEVICE_H

#include <alnico/alnico.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A mark in a stream's order. */
struct device_event;

/* Work captured from a stream, to be run any number of times. */
struct device_graph;

/* An element of some type: its bits, or where the device reads them when a stream gets there. */
struct device_scalar {
    uint64_t bits;
    const void *at; /* NULL: `bits` */
};

/* A word that host and streams both see, and that only grows. It starts at 0. */
struct device_flag;

struct device_ops {
    const char *name; /* "cpu" */
    alnico_device_t kind;
    bool host_accessible; /* the host may load and store the device's memory: no staging copies */

    /* Whether a device of the kind is there for this process; if not, UNSUPPORTED with the reason.
     * Optional: it is. */
    alnico_status_t (*probe)(void);

    /* Makes ready what the calling thread's device runs, so that no later call has to wait for what
     * runs there. Called whenever a communicator is made; may block. Optional. */
    alnico_status_t (*prepare)(void);

    /* Which of several devices of the kind the calling thread uses, and making it that one: a
     * thread of the library does so before it calls anything else. Both optional: there is one
     * only. */
    int (*current)(void);
    alnico_status_t (*enter)(int index);

    /* A name of the calling thread's device that no other of its host has. Optional: ranks may
     * share one. */
    void (*identify)(char *out, size_t bytes);

    /* Refuse, for a public call `who`, memory that the device cannot use, which the caller passed
     * as `name`, and a stream of another device. Optional: anything may be right. */
    alnico_status_t (*check_memory)(const void *memory, const char *name, const char *who);
    alnico_status_t (*check_stream)(void *stream, const char *who);

    /* The addresses around `memory`, which check_memory did not refuse, for which its answer stays
     * the same until the memory is freed. False: it has to be asked again, which costs little then.
     * Optional: it has. */
    bool (*extent)(const void *memory, uintptr_t *from, size_t *bytes);

    /* The number of the graph that is being captured on the stream, 0 if none is: what is enqueued
     * runs later, any number of times. Optional: never. */
    uint64_t (*capturing)(void *stream);

    /* Graphs. What the calling thread enqueues on the stream between begin and end is captured and
     * does not run; out NULL throws it away, whatever it was. A launch runs all of it, in the order
     * of the launching stream. A graph is destroyed once no launch of it runs. Optional, all or
     * none. */
    alnico_status_t (*graph_begin)(void *stream);
    alnico_status_t (*graph_end)(void *stream, struct device_graph **out);
    alnico_status_t (*graph_launch)(struct device_graph *graph, void *stream);
    void (*graph_destroy)(struct device_graph *graph);

    /* For short copies through pinned memory: copy, and then raise the flag; and await the flag,
     * and then copy unless `skip` is not 0. dst and src are aligned alike, modulo 16. Optional
     * where the memory is host_accessible. */
    alnico_status_t (*copy_raise)(void *dst, const void *src, size_t bytes,
                                  struct device_flag *flag, uint32_t value, void *stream);
    alnico_status_t (*await_copy)(void *dst, const void *src, size_t bytes,
                                  struct device_flag *flag, uint32_t value,
                                  struct device_flag *skip, void *stream);

    /* A stream for a program's own work, over which the library's go first, and which goes before
     * streams of the least priority. Optional: as stream_create. */
    alnico_status_t (*work_stream_create)(void **out);

    /* Memory of the device, aligned to 64 bytes; *out is NULL on failure. free(NULL) is fine. Both
     * may block. */
    alnico_status_t (*alloc)(size_t bytes, void **out);
    void (*free)(void *memory);

    /* Memory that the calling thread's device has for this process now, and in all. Optional:
     * unknown. */
    alnico_status_t (*memory)(size_t *available, size_t *total);

    /* Host memory that the device copies from and to at full speed, aligned to 64 bytes.
     * pinned_free never waits for the device; pinned_alloc may, for more or larger memory than the
     * process ever had. */
    alnico_status_t (*pinned_alloc)(size_t bytes, void **out);
    void (*pinned_free)(void *memory);

    /* dst[0..bytes) = src[0..bytes) on the stream; no overlap. */
    alnico_status_t (*copy)(void *dst, const void *src, size_t bytes, void *stream);

    /* memory[0..bytes) = 0 on the stream. */
    alnico_status_t (*clear)(void *memory, size_t bytes, void *stream);

    /* Writes the time at which the stream gets here, in ns of the device's own clock, to pinned
     * memory or the device's. */
    alnico_status_t (*stamp)(uint64_t *out, void *stream);

    /* dst[i] = a[i] op b[i] on the stream; dst may be a or b. AVERAGE adds. */
    alnico_status_t (*reduce)(void *dst, const void *a, const void *b, size_t count,
                              alnico_datatype_t type, alnico_op_t op, void *stream);

    /* The part of AVERAGE that is not addition, on the stream; dst may be src. Floats: dst[i] =
     * src[i] * (1 / ranks). Integers: dst[i] = src[i] / ranks, truncating. */
    alnico_status_t (*divide)(void *dst, const void *src, size_t count, alnico_datatype_t type,
                              int ranks, void *stream);

    /* dst[i] = src[i] * factor on the stream; dst may be src. */
    alnico_status_t (*scale)(void *dst, const void *src, size_t count, alnico_datatype_t type,
                             const struct device_scalar *factor, void *stream);

    /* Memory in the order of a stream: what the stream is given between the two may use it. Never waits
     * for the device; may be captured. */
    alnico_status_t (*stream_alloc)(size_t bytes, void **out, void *stream);
    void (*stream_free)(void *memory, void *stream);

    /* A stream of the library's own, which waits for no other by itself. */
    alnico_status_t (*stream_create)(void **out);
    void (*stream_destroy)(void *stream);

    /* The caller blocks until the stream has run everything enqueued so far. */
    alnico_status_t (*stream_synchronize)(void *stream);

    /* Events. A recorded event is complete once the stream has passed it; one that was never
     * recorded is complete. Recording again moves it; one thread at a time records. It may be
     * destroyed once it is complete and no stream waits for it any more. */
    alnico_status_t (*event_create)(struct device_event **out);
    void (*event_destroy)(struct device_event *event);
    alnico_status_t (*event_record)(struct device_event *event, void *stream);
    bool (*event_complete)(struct device_event *event);
    alnico_status_t (*event_synchronize)(struct device_event *event); /* blocks the caller */
    alnico_status_t (*stream_wait)(void *stream, struct device_event *event); /* the stream waits */

    /* Flags, from the host: raise to at least `value`, read, and block until at least `value`. What
     * was written before a raise is seen by whoever saw the raised value. Values are compared
     * modulo 2^32: one raise goes up by less than 2^31. Whoever saw the last value that is raised
     * to may destroy. */
    alnico_status_t (*flag_create)(struct device_flag **out);
    void (*flag_destroy)(struct device_flag *flag);
    void (*flag_raise)(struct device_flag *flag, uint32_t value);
    uint32_t (*flag_read)(const struct device_flag *flag);
    void (*flag_wait)(struct device_flag *flag, uint32_t value);

    /* On a stream, in its order. A flag is raised from the host or on streams, not on both; one
     * that streams raise goes up with every raise. */
    alnico_status_t (*stream_raise)(void *stream, struct device_flag *flag, uint32_t value);
    alnico_status_t (*stream_await)(void *stream, struct device_flag *flag, uint32_t value);
};

extern const struct device_ops device_cpu, device_cuda;

/* The CPU's check_memory and extent: refuses memory of a GPU where the library uses one in this
 * process. */
alnico_status_t device_check_host(const void *memory, const char *name, const char *who);
bool device_host_extent(const void *memory, uintptr_t *from, size_t *bytes);

/* The resident for a public device; NULL, with the reason as the thread's detail, if this build has
 * none or the machine has no such device. */
const struct device_ops *device_find(alnico_device_t device);

/* Checks the stream of a communicator that is being made, and readies the calling thread's device
 * for it. */
alnico_status_t device_ready(const struct device_ops *device, void *stream, const char *who);

#endif
