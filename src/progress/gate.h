/* A gate lets a stream and the engine wait for each other without holding up whoever calls: opened
 * on one side, passed on the other. A gate is used again and again: gate_close arms it for the next
 * use. */
#ifndef ALNICO_PROGRESS_GATE_H
#define ALNICO_PROGRESS_GATE_H

#include "device/device.h"

struct gate {
    const struct device_ops *device;
    struct device_flag *flag;
    uint32_t epoch; /* the gate is open once the flag has reached this */
};

/* A new gate is open. */
alnico_status_t gate_init(struct gate *gate, const struct device_ops *device);
void gate_finish(struct gate *gate);

/* Arms the gate. Only while nobody waits at it. */
void gate_close(struct gate *gate);

/* From the host: open, ask, and block the caller until it is open. */
void gate_open(struct gate *gate);
bool gate_is_open(const struct gate *gate);
void gate_wait(struct gate *gate);

/* On a stream, in its order: open, and hold the stream until it is open. The caller goes on. */
alnico_status_t gate_open_on(struct gate *gate, void *stream);
alnico_status_t gate_hold(struct gate *gate, void *stream);

/* The same with a short copy before the opening, or behind the hold unless `skip` was raised:
 * through pinned memory, dst and src aligned alike, modulo 16. Only where the device's memory is
 * out of the host's reach. */
alnico_status_t gate_open_copied(struct gate *gate, void *dst, const void *src, size_t bytes,
                                 void *stream);
alnico_status_t gate_hold_and_copy(struct gate *gate, void *dst, const void *src, size_t bytes,
                                   struct device_flag *skip, void *stream);

#endif
