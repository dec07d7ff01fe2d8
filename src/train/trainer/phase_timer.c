/* See phase_timer.h. Rows stand in a ring of two intervals: while one is filled the other is
 * read. */
#include "train/trainer/phase_timer.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* A step, in pinned memory. */
struct row {
    uint64_t begin, ends[PHASES]; /* ns of the device's clock */
    double score[SCORES];         /* running sums, after the last step of an interval */
    double rate;
    float rate_word; /* for the control words */
    double waited;   /* seconds */
    bool resumed;    /* the step before does not count */
};

struct phase_timer {
    struct replica *replica;
    size_t interval;
    struct row *rows; /* 2 * interval */
    uint64_t *now; /* PHASES marks in the device's memory; copied to the row at the end of a step */
    struct device_event *ends[2]; /* of intervals */
    double *seconds;              /* interval */
    size_t opened, closed;        /* steps; intervals that have ended */
    size_t read;                  /* steps that were read */
    size_t stops[2];              /* the steps before which the intervals end */
    size_t told;                  /* intervals read */
    double before[SCORES];
    uint64_t last; /* when the last step that was read ended */
    bool resumed;
};

static bool is_inline(const struct phase_timer *timer)
{
    return timer->replica->device->kind == ALNICO_DEVICE_CPU && !timer->replica->stream;
}

static alnico_status_t phase_timer_allocate(struct phase_timer *timer)
{
    const struct device_ops *device = timer->replica->device;
    const size_t bytes = 2 * timer->interval * sizeof *timer->rows;
    timer->seconds = malloc(timer->interval * sizeof *timer->seconds);
    if (!timer->seconds)
        return error_set(ALNICO_ERROR_MEMORY, "phase_timer_create: no memory");
    TRY(device->pinned_alloc(bytes, (void **)&timer->rows));
    TRY(device->alloc(PHASES * sizeof *timer->now, (void **)&timer->now));
    memset(timer->rows, 0, bytes);
    TRY(device->event_create(&timer->ends[0]));
    TRY(device->clear(timer->now, PHASES * sizeof *timer->now, timer->replica->stream));
    return device->event_create(&timer->ends[1]);
}

alnico_status_t phase_timer_create(struct replica *replica, size_t interval,
                                   struct phase_timer **out)
{
    *out = NULL;
    struct phase_timer *timer = calloc(1, sizeof *timer);
    if (!timer)
        return error_set(ALNICO_ERROR_MEMORY, "phase_timer_create: no memory");
    *timer = (struct phase_timer){.replica = replica, .interval = interval, .resumed = true};
    if (is_inline(timer))
        timer->interval = 1;
    const alnico_status_t status = phase_timer_allocate(timer);
    if (status != ALNICO_SUCCESS)
        phase_timer_destroy(timer);
    else
        *out = timer;
    return status;
}

void phase_timer_destroy(struct phase_timer *timer)
{
    if (!timer)
        return;
    const struct device_ops *device = timer->replica->device;
    device->event_destroy(timer->ends[0]);
    device->event_destroy(timer->ends[1]);
    device->pinned_free(timer->rows);
    device->free(timer->now);
    free(timer->seconds);
    free(timer);
}

static struct row *row_of(struct phase_timer *timer, size_t step)
{
    return &timer->rows[step % (2 * timer->interval)];
}

alnico_status_t phase_timer_begin(struct phase_timer *timer, double rate)
{
    const struct replica *replica = timer->replica;
    struct row *row = row_of(timer, timer->opened);
    *row = (struct row){.rate = rate, .rate_word = (float)rate, .resumed = timer->resumed};
    TRY(replica->device->copy(&replica->arenas.control[CONTROL_RATE], &row->rate_word,
                              sizeof row->rate_word, replica->stream));
    if (!timer->resumed)
        return ALNICO_SUCCESS;
    timer->resumed = false;
    TRY(replica_read(timer->replica, replica->arenas.score, timer->before, sizeof timer->before));
    return replica->device->stamp(&row->begin, replica->stream);
}

alnico_status_t phase_timer_mark(struct phase_timer *timer, enum phase ended)
{
    return timer->replica->device->stamp(&timer->now[ended], timer->replica->stream);
}

void phase_timer_waited(struct phase_timer *timer, double seconds)
{
    row_of(timer, timer->opened)->waited += seconds;
}

/* Ends the interval after the steps opened so far. */
static alnico_status_t interval_close(struct phase_timer *timer)
{
    const struct replica *replica = timer->replica;
    struct row *row = row_of(timer, timer->opened - 1);
    TRY(replica->device->copy(row->score, replica->arenas.score, sizeof row->score,
                              replica->stream));
    TRY(replica->device->event_record(timer->ends[timer->closed % 2], replica->stream));
    timer->stops[timer->closed++ % 2] = timer->opened;
    return ALNICO_SUCCESS;
}

static void row_read(struct phase_timer *timer, const struct row *row, struct phase_times *out)
{
    const uint64_t begin = row->resumed ? row->begin : timer->last;
    uint64_t last = begin;
    for (int i = 0; i < PHASES; i++) {
        if (row->ends[i] <= last) /* not marked in this step */
            continue;
        out->phases[i] += 1e-9 * (double)(row->ends[i] - last);
        last = row->ends[i];
    }
    out->phases[PHASE_BACKWARD] -= row->waited;
    out->phases[PHASE_COMMUNICATION] += row->waited;
    timer->seconds[out->steps++] = 1e-9 * (double)(last - begin);
    timer->last = last;
}

/* Waits for the oldest interval that was not read, and reads it. */
static alnico_status_t interval_read(struct phase_timer *timer, struct phase_times *out)
{
    const size_t stop = timer->stops[timer->told % 2];
    const struct row *last = row_of(timer, stop - 1);
    TRY(stream_wait_for(&timer->replica->wait, timer->ends[timer->told % 2]));
    timer->told++;
    *out = (struct phase_times){.seconds = timer->seconds, .rate = last->rate};
    for (; timer->read < stop; timer->read++)
        row_read(timer, row_of(timer, timer->read), out);
    out->outcome = (struct outcome){
        .loss = last->score[SCORE_LOSS] - timer->before[SCORE_LOSS],
        .correct = (size_t)(last->score[SCORE_CORRECT] - timer->before[SCORE_CORRECT]),
        .count = (size_t)(last->score[SCORE_IMAGES] - timer->before[SCORE_IMAGES])};
    memcpy(timer->before, last->score, sizeof timer->before);
    return ALNICO_SUCCESS;
}

alnico_status_t phase_timer_end(struct phase_timer *timer, struct phase_times *out)
{
    struct row *row = row_of(timer, timer->opened++);
    *out = (struct phase_times){0};
    TRY(timer->replica->device->copy(row->ends, timer->now, sizeof row->ends,
                                     timer->replica->stream));
    TRY(timer->replica->device->stream_raise(timer->replica->stream, timer->replica->wait.ended,
                                             (uint32_t)timer->opened));
    const size_t stop = timer->closed ? timer->stops[(timer->closed - 1) % 2] : 0;
    if (timer->opened - stop < timer->interval)
        return ALNICO_SUCCESS;
    TRY(interval_close(timer));
    if (timer->closed - timer->told > (is_inline(timer) ? 0 : 1))
        return interval_read(timer, out);
    return ALNICO_SUCCESS;
}

alnico_status_t phase_timer_pause(struct phase_timer *timer, struct phase_times *out)
{
    const size_t stop = timer->closed ? timer->stops[(timer->closed - 1) % 2] : 0;
    *out = (struct phase_times){0};
    if (timer->told < timer->closed)
        return interval_read(timer, out);
    if (timer->opened > stop) {
        TRY(interval_close(timer));
        return interval_read(timer, out);
    }
    timer->resumed = true;
    return ALNICO_SUCCESS;
}
