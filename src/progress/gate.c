/* Gates over the device's flags. The host backend calls; the engine thread opens and asks. */
#include "progress/gate.h"

alnico_status_t gate_init(struct gate *gate, const struct device_ops *device)
{
    *gate = (struct gate){.device = device};
    return device->flag_create(&gate->flag);
}

void gate_finish(struct gate *gate)
{
    if (gate->flag)
        gate->device->flag_destroy(gate->flag);
    gate->flag = NULL;
}

void gate_close(struct gate *gate)
{
    gate->epoch++;
}

void gate_open(struct gate *gate)
{
    gate->device->flag_raise(gate->flag, gate->epoch);
}

bool gate_is_open(const struct gate *gate)
{
    return (int32_t)(gate->device->flag_read(gate->flag) - gate->epoch) >= 0;
}

void gate_wait(struct gate *gate)
{
    gate->device->flag_wait(gate->flag, gate->epoch);
}

alnico_status_t gate_open_on(struct gate *gate, void *stream)
{
    return gate->device->stream_raise(stream, gate->flag, gate->epoch);
}

alnico_status_t gate_hold(struct gate *gate, void *stream)
{
    return gate->device->stream_await(stream, gate->flag, gate->epoch);
}

alnico_status_t gate_open_copied(struct gate *gate, void *dst, const void *src, size_t bytes,
                                 void *stream)
{
    return gate->device->copy_raise(dst, src, bytes, gate->flag, gate->epoch, stream);
}

alnico_status_t gate_hold_and_copy(struct gate *gate, void *dst, const void *src, size_t bytes,
                                   struct device_flag *skip, void *stream)
{
    return gate->device->await_copy(dst, src, bytes, gate->flag, gate->epoch, skip, stream);
}
