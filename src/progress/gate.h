/* A gate: a stream and the engine wait for each other at a device's flag, and the caller of neither
 * is held up. One side opens it, the other passes. gate_close arms it for the next use. Engine
 * operations and staging call these; the engine's thread opens and asks. */
#ifndef ALNICO_PROGRESS_GATE_H
#define ALNICO_PROGRESS_GATE_H

#include "device/backoff.h"
#include "device/device.h"

struct gate {
    const struct device_ops *device;
    struct device_flag *flag;
    uint32_t epoch; /* the gate is open once the flag has reached this */
};

/* A new gate is open. */
static inline alnico_status_t gate_init(struct gate *gate, const struct device_ops *device)
{
    *gate = (struct gate){.device = device};
    return device->flag_create(&gate->flag);
}

static inline void gate_finish(struct gate *gate)
{
    if (gate->flag)
        gate->device->flag_destroy(gate->flag);
    gate->flag = NULL;
}

/* Arms the gate. Only while nobody waits at it. */
static inline void gate_close(struct gate *gate)
{
    gate->epoch++;
}

/* From the host: open, ask, and block the caller until it is open. */
static inline void gate_open(struct gate *gate)
{
    gate->device->flag_raise(gate->flag, gate->epoch);
}

static inline bool gate_is_open(const struct gate *gate)
{
    return (int32_t)(gate->device->flag_read(gate->flag) - gate->epoch) >= 0;
}

/* No stream is to open it: it is open, or was never made. */
static inline bool gate_is_idle(const struct gate *gate)
{
    return !gate->device || gate_is_open(gate);
}

static inline void gate_wait(struct gate *gate)
{
    gate->device->flag_wait(gate->flag, gate->epoch);
}

static inline enum wait gate_look(void *gate)
{
    return gate_is_open(gate) ? WAIT_DONE : WAIT_IDLE;
}

/* Blocks until a stream has opened it, for a second or two at most. */
static inline void gate_settle(struct gate *gate)
{
    wait_until(gate_look, gate, deadline_ns(2), false);
}

/* gate_finish, once the stream that is to open it has. False: it does not go on, and may still write to
 * the gate and read what stands before it. */
static inline bool gate_finish_idle(struct gate *gate)
{
    if (gate->device)
        gate_settle(gate);
    if (!gate_is_idle(gate))
        return false;
    gate_finish(gate);
    return true;
}

/* On a stream, in its order: open, and hold the stream until it is open. The caller goes on. */
static inline alnico_status_t gate_open_on(struct gate *gate, void *stream)
{
    return gate->device->stream_raise(stream, gate->flag, gate->epoch);
}

static inline alnico_status_t gate_hold(struct gate *gate, void *stream)
{
    return gate->device->stream_await(stream, gate->flag, gate->epoch);
}

/* gate_open_on behind a short copy, and gate_hold with a copy behind it unless `skip` was raised.
 * One side is pinned memory; dst and src are aligned alike, modulo 16. Only for a device whose
 * memory the host does not reach. */
static inline alnico_status_t gate_open_copied(struct gate *gate, void *dst, const void *src,
                                               size_t bytes, void *stream)
{
    return gate->device->copy_raise(dst, src, bytes, gate->flag, gate->epoch, stream);
}

static inline alnico_status_t gate_hold_and_copy(struct gate *gate, void *dst, const void *src,
                                                 size_t bytes, struct device_flag *skip,
                                                 void *stream)
{
    return gate->device->await_copy(dst, src, bytes, gate->flag, gate->epoch, skip, stream);
}

#endif
