/* See phase_timer.h. Rows stand in a ring of two intervals: while one is filled the other is
 * read. */
#include "train/replica/phase_timer.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* In one of so many steps waits for other ranks are timed; on the inline stream in each. */
enum { WAITS_EVERY = 8 };

/* A step, in pinned memory. */
struct row {
    uint64_t begin;       /* ns of the device's clock */
    double score[SCORES]; /* running sums, after the last step of an interval */
    double rate;
    float rate_word; /* for the control words */
    double waited;   /* seconds */
    bool resumed;    /* the step before does not count */
    bool waits;      /* are timed */
};

/* The end of a phase. */
struct ended {
    uint64_t at;
    enum phase phase;
};

struct phase_timer {
    struct replica *replica;
    size_t interval;
    struct row *rows; /* 2 * interval */
    /* Stamps, `times` of each phase: in the device's memory those of the step at hand or, of what
     * it is without, of an earlier one; in pinned memory each row's. */
    uint64_t *now, *stamps;
    struct draw *draws; /* `passes` of each row, in pinned memory */
    size_t times, passes;
    size_t marked[PHASES];        /* in the step at hand */
    struct ended *order;          /* of a step that is being read */
    struct device_event *ends[2]; /* of intervals */
    double *seconds;              /* interval */
    size_t opened, closed;        /* steps; intervals that have ended */
    size_t read;                  /* steps that were read */
    size_t stops[2];              /* the steps before which the intervals end */
    size_t told;                  /* intervals read */
    double before[SCORES];
    double halo[PHASES]; /* shares of forward and backward that were waits when last timed */
    uint64_t last;       /* when the last step that was read ended */
    bool resumed;
};

static size_t stamps_bytes(const struct phase_timer *timer)
{
    return PHASES * timer->times * sizeof(uint64_t);
}

static bool is_inline(const struct phase_timer *timer)
{
    return timer->replica->device->kind == ALNICO_DEVICE_CPU && !timer->replica->stream;
}

static alnico_status_t phase_timer_allocate(struct phase_timer *timer)
{
    const struct device_ops *device = timer->replica->device;
    const size_t bytes = 2 * timer->interval * sizeof *timer->rows;
    timer->seconds = malloc(timer->interval * sizeof *timer->seconds);
    timer->order = malloc(PHASES * timer->times * sizeof *timer->order);
    if (!timer->seconds || !timer->order)
        return error_set(ALNICO_ERROR_MEMORY, "phase_timer_create: no memory");
    TRY(device->pinned_alloc(bytes, (void **)&timer->rows));
    TRY(device->pinned_alloc(2 * timer->interval * stamps_bytes(timer), (void **)&timer->stamps));
    TRY(device->pinned_alloc(2 * timer->interval * timer->passes * sizeof *timer->draws,
                             (void **)&timer->draws));
    TRY(device->alloc(stamps_bytes(timer), (void **)&timer->now));
    memset(timer->rows, 0, bytes);
    TRY(device->event_create(&timer->ends[0]));
    TRY(device->clear(timer->now, stamps_bytes(timer), timer->replica->stream));
    return device->event_create(&timer->ends[1]);
}

bool phase_timer_waits(const struct phase_timer *timer)
{
    return timer->opened % WAITS_EVERY == 0 || is_inline(timer) ||
           replica_waits(timer->replica) == 0;
}

/* Computing ends before each wait for other ranks, and the wait behind it. */
static alnico_status_t halo_mark(void *context, enum phase ended)
{
    return phase_timer_waits(context) ? phase_timer_mark(context, ended) : ALNICO_SUCCESS;
}

alnico_status_t phase_timer_create(struct replica *replica, size_t interval, size_t passes,
                                   struct phase_timer **out)
{
    *out = NULL;
    struct phase_timer *timer = calloc(1, sizeof *timer);
    if (!timer)
        return error_set(ALNICO_ERROR_MEMORY, "phase_timer_create: no memory");
    *timer = (struct phase_timer){.replica = replica,
                                  .interval = interval,
                                  .passes = passes,
                                  .times = passes * (1 + replica_waits(replica)),
                                  .resumed = true};
    if (is_inline(timer))
        timer->interval = 1;
    const alnico_status_t status = phase_timer_allocate(timer);
    replica->waiting = (struct replica_waiting){timer, halo_mark, NULL};
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
    timer->replica->waiting = (struct replica_waiting){0};
    device->event_destroy(timer->ends[0]);
    device->event_destroy(timer->ends[1]);
    device->pinned_free(timer->rows);
    device->pinned_free(timer->stamps);
    device->pinned_free(timer->draws);
    device->free(timer->now);
    free(timer->seconds);
    free(timer->order);
    free(timer);
}

static struct row *row_of(struct phase_timer *timer, size_t step)
{
    return &timer->rows[step % (2 * timer->interval)];
}

static uint64_t *stamps_of(struct phase_timer *timer, size_t step)
{
    return timer->stamps + step % (2 * timer->interval) * PHASES * timer->times;
}

alnico_status_t phase_timer_begin(struct phase_timer *timer, double rate)
{
    const struct replica *replica = timer->replica;
    struct row *row = row_of(timer, timer->opened);
    memset(timer->marked, 0, sizeof timer->marked);
    *row = (struct row){.rate = rate,
                        .rate_word = (float)rate,
                        .resumed = timer->resumed,
                        .waits = phase_timer_waits(timer)};
    TRY(replica->device->copy(&replica->arenas.control[CONTROL_RATE], &row->rate_word,
                              sizeof row->rate_word, replica->stream));
    if (!timer->resumed)
        return ALNICO_SUCCESS;
    timer->resumed = false;
    TRY(replica_read(timer->replica, replica->arenas.score, timer->before, sizeof timer->before));
    return replica->device->stamp(&row->begin, replica->stream);
}

alnico_status_t phase_timer_draw(struct phase_timer *timer, size_t pass, struct draw draw)
{
    const struct replica *replica = timer->replica;
    struct draw *row = &timer->draws[timer->opened % (2 * timer->interval) * timer->passes + pass];
    *row = draw;
    return replica->device->copy(replica->arenas.draw, row, sizeof *row, replica->stream);
}

alnico_status_t phase_timer_mark(struct phase_timer *timer, enum phase ended)
{
    const size_t before = timer->marked[ended]++;
    const size_t at = before < timer->times ? before : timer->times - 1;
    return timer->replica->device->stamp(&timer->now[ended * timer->times + at],
                                         timer->replica->stream);
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

/* The ends of a step's phases in their order. Those of earlier steps lie before its begin. */
static size_t ends_sort(struct phase_timer *timer, size_t step, uint64_t begin)
{
    const uint64_t *stamps = stamps_of(timer, step);
    size_t count = 0;
    for (size_t i = 0; i < PHASES * timer->times; i++) {
        size_t at = count;
        if (stamps[i] <= begin)
            continue;
        for (; at && timer->order[at - 1].at > stamps[i]; at--)
            timer->order[at] = timer->order[at - 1];
        timer->order[at] = (struct ended){stamps[i], (enum phase)(i / timer->times)};
        count++;
    }
    return count;
}

static void row_read(struct phase_timer *timer, size_t step, struct phase_times *out)
{
    const struct row *row = row_of(timer, step);
    const uint64_t begin = row->resumed ? row->begin : timer->last;
    const size_t count = ends_sort(timer, step, begin);
    uint64_t last = begin;
    double phases[PHASES] = {0}, halo[PHASES] = {0};
    enum phase pass = PHASE_FORWARD;
    for (size_t i = 0; i < count; i++) {
        const enum phase phase = timer->order[i].phase;
        const double lasted = 1e-9 * (double)(timer->order[i].at - last);
        last = timer->order[i].at;
        phases[phase] += lasted;
        if (phase == PHASE_FORWARD || phase == PHASE_BACKWARD)
            pass = phase;
        else if (phase == PHASE_HALO)
            halo[pass] += lasted;
    }
    for (pass = PHASE_FORWARD; pass <= PHASE_BACKWARD; pass++) {
        if (row->waits && halo[pass] > 0)
            timer->halo[pass] = halo[pass] / (phases[pass] + halo[pass]);
        else if (!row->waits)
            halo[pass] = timer->halo[pass] * phases[pass];
    }
    for (size_t phase = 0; phase < PHASES; phase++)
        out->phases[phase] += phases[phase];
    for (pass = PHASE_FORWARD; pass <= PHASE_BACKWARD && !row->waits; pass++) {
        out->phases[PHASE_HALO] += halo[pass];
        out->phases[pass] -= halo[pass];
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
        row_read(timer, timer->read, out);
    out->outcome = (struct outcome){
        .loss = last->score[SCORE_LOSS] - timer->before[SCORE_LOSS],
        .correct = (size_t)(last->score[SCORE_CORRECT] - timer->before[SCORE_CORRECT]),
        .count = (size_t)(last->score[SCORE_TERMS] - timer->before[SCORE_TERMS]),
        .images = out->steps * timer->passes * replica_counted(timer->replica)};
    memcpy(timer->before, last->score, sizeof timer->before);
    return ALNICO_SUCCESS;
}

alnico_status_t phase_timer_end(struct phase_timer *timer, struct phase_times *out)
{
    uint64_t *stamps = stamps_of(timer, timer->opened++);
    *out = (struct phase_times){0};
    TRY(timer->replica->device->copy(stamps, timer->now, stamps_bytes(timer),
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
