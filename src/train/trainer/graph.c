/*
 * Running a step's computing, communication and update: launch by launch at first, then, on a
 * device that has graphs, by replaying one that holds them all; with several batches a step one for
 * each, since their images come between, and other ones for steps whose waits are timed. What changes
 * between steps stands in memory: the images, the rate, the loss scale. See trainer/state.h.
 */
#include "train/trainer/state.h"

#include "base/log.h"
#include "base/status.h"

/* So many steps run launch by launch: what is made when it is first used is made then. */
enum { EAGER_STEPS = 3 };

/* The place of the graph for the pass at hand. */
static struct device_graph **graph_place(const struct trainer *trainer)
{
    return &trainer->graphs[2 * trainer->pass + (phase_timer_waits(trainer->timer) ? 1 : 0)];
}

/* Captures a pass, which does not run. UNSUPPORTED: some call cannot be captured. */
static alnico_status_t graph_capture(struct trainer *trainer)
{
    const struct device_ops *device = trainer->replica->device;
    TRY(device->graph_begin(trainer->place.stream));
    const alnico_status_t status = trainer_compute(trainer);
    if (status == ALNICO_SUCCESS)
        return device->graph_end(trainer->place.stream, graph_place(trainer));
    device->graph_end(trainer->place.stream, NULL);
    return status;
}

/* Whether to capture now. All ranks decide alike. */
static bool graph_due(const struct trainer *trainer)
{
    return trainer->replica->device->graph_begin && trainer->place.stream &&
           trainer->strategy->capturable && !trainer->options->no_graph && !trainer->ungraphed &&
           trainer->eager == EAGER_STEPS;
}

alnico_status_t trainer_launch(struct trainer *trainer)
{
    const struct device_ops *device = trainer->replica->device;
    if (!*graph_place(trainer) && graph_due(trainer)) {
        const alnico_status_t status = graph_capture(trainer);
        if (status == ALNICO_ERROR_UNSUPPORTED) {
            log_write(trainer->rank ? LOG_INFO : LOG_WARNING,
                      "trainer: steps are launched call by call, not as graphs: %s",
                      alnico_error_detail());
            trainer->ungraphed = true;
            trainer->strategy->destroy(trainer->strategy_self);
            trainer->strategy_self = NULL;
            TRY(trainer_strategy(trainer));
        } else {
            TRY(status);
        }
    }
    if (*graph_place(trainer))
        return device->graph_launch(*graph_place(trainer), trainer->place.stream);
    if (trainer->eager < EAGER_STEPS && trainer->pass + 1 == trainer->passes)
        trainer->eager++;
    return trainer_compute(trainer);
}
