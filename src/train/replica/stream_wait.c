/* See stream_wait.h. */
#include "train/replica/stream_wait.h"

#include "base/log.h"
#include "base/number.h"
#include "base/status.h"
#include "train/base/clock.h"

#include <float.h>
#include <time.h>

/* Between two looks. */
enum { SLEEP_NS = 100000 };

static void sleep_briefly(void)
{
    nanosleep(&(struct timespec){0, SLEEP_NS}, NULL);
}

double stream_wait_deadline(void)
{
    double seconds = 600; /* where the setting is wrong, creating a communicator says so */
    number_real(variable_text(VARIABLE_TIMEOUT), DBL_MIN, NUMBER_MOST_SECONDS, &seconds);
    return seconds;
}

alnico_status_t stream_wait_init(struct stream_wait *wait, const struct device_ops *device)
{
    *wait = (struct stream_wait){.device = device, .patience = 1.5 * stream_wait_deadline()};
    return device->flag_create(&wait->ended);
}

void stream_wait_finish(struct stream_wait *wait)
{
    if (wait->ended)
        wait->device->flag_destroy(wait->ended);
    wait->ended = NULL;
}

alnico_status_t stream_wait_for(const struct stream_wait *wait, struct device_event *event)
{
    const struct device_ops *device = wait->device;
    uint32_t ended = device->flag_read(wait->ended), now;
    double since = clock_seconds();
    for (; !device->event_complete(event); ended = now) {
        now = device->flag_read(wait->ended);
        if (now != ended)
            since = clock_seconds();
        if (wait->watched)
            TRY(wait->status(wait->watched));
        if (clock_seconds() - since > wait->patience)
            return error_set(ALNICO_ERROR_TIMEOUT,
                             "trainer: what follows step %lu of this run has not ended on the "
                             "device within %g seconds",
                             (unsigned long)now, wait->patience);
        sleep_briefly();
    }
    return device->event_synchronize(event);
}

bool stream_wait_rest(const struct stream_wait *wait, void *stream, double seconds)
{
    const struct device_ops *device = wait->device;
    const double begin = clock_seconds();
    struct device_event *event;
    if (device->event_create(&event) != ALNICO_SUCCESS)
        return false;
    bool rests = device->event_record(event, stream) != ALNICO_SUCCESS;
    while (!rests && clock_seconds() - begin < seconds) {
        sleep_briefly();
        rests = device->event_complete(event);
    }
    if (rests)
        device->event_destroy(event);
    return rests;
}
