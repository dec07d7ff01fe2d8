/* See stream_wait.h. */
#include "train/trainer/stream_wait.h"

#include "base/log.h"
#include "base/status.h"
#include "train/base/clock.h"

#include <stdlib.h>
#include <time.h>

/* Between two looks. */
enum { NAP_NS = 100000 };

static void doze(void)
{
    nanosleep(&(struct timespec){0, NAP_NS}, NULL);
}

double stream_wait_deadline(void)
{
    const double seconds = strtod(variable_text(VARIABLE_TIMEOUT), NULL);
    return seconds > 0 ? seconds : 600;
}

alnico_status_t stream_wait_init(struct stream_wait *waiting, const struct device_ops *device)
{
    *waiting = (struct stream_wait){.device = device, .patience = 1.5 * stream_wait_deadline()};
    return device->flag_create(&waiting->ended);
}

void stream_wait_finish(struct stream_wait *waiting)
{
    if (waiting->ended)
        waiting->device->flag_destroy(waiting->ended);
    waiting->ended = NULL;
}

alnico_status_t stream_wait_for(const struct stream_wait *waiting, struct device_event *event)
{
    const struct device_ops *device = waiting->device;
    uint32_t ended = device->flag_read(waiting->ended), now;
    double since = clock_seconds();
    for (; !device->event_complete(event); ended = now) {
        now = device->flag_read(waiting->ended);
        if (now != ended)
            since = clock_seconds();
        if (waiting->watched)
            TRY(waiting->status(waiting->watched));
        if (clock_seconds() - since > waiting->patience)
            return error_set(ALNICO_ERROR_TIMEOUT,
                             "trainer: what follows step %lu of this run has not ended on the "
                             "device within %g seconds",
                             (unsigned long)now, waiting->patience);
        doze();
    }
    return device->event_synchronize(event);
}

bool stream_wait_rest(const struct stream_wait *waiting, void *stream, double seconds)
{
    const struct device_ops *device = waiting->device;
    const double begin = clock_seconds();
    struct device_event *event;
    if (device->event_create(&event) != ALNICO_SUCCESS)
        return false;
    bool rests = device->event_record(event, stream) != ALNICO_SUCCESS;
    while (!rests && clock_seconds() - begin < seconds) {
        doze();
        rests = device->event_complete(event);
    }
    if (rests)
        device->event_destroy(event);
    return rests;
}
