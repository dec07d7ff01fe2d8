/* See meter.h. Rows stand in a ring of two intervals: while one is filled the other is read. */
#include "train/trainer/phase_timer.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* A step, in pinned memory. */
struct row {
    uint64_t begin, ends[PHASES]; /* ns of the device's clock */
    double score[SCORES];         /* running sums, after the last step of an interval */
    float rate;
    double waited; /* seconds */
    bool resumed;  /* the step before does not count */
};

struct meter {
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

static bool is_inline(const struct meter *meter)
{
    return meter->replica->device->kind == ALNICO_DEVICE_CPU && !meter->replica->stream;
}

static alnico_status_t meter_allocate(struct meter *meter)
{
    const struct device_ops *device = meter->replica->device;
    const size_t bytes = 2 * meter->interval * sizeof *meter->rows;
    meter->seconds = malloc(meter->interval * sizeof *meter->seconds);
    if (!meter->seconds)
        return error_set(ALNICO_ERROR_MEMORY, "meter_create: no memory");
    TRY(device->pinned_alloc(bytes, (void **)&meter->rows));
    TRY(device->alloc(PHASES * sizeof *meter->now, (void **)&meter->now));
    memset(meter->rows, 0, bytes);
    TRY(device->event_create(&meter->ends[0]));
    return device->event_create(&meter->ends[1]);
}

alnico_status_t meter_create(struct replica *replica, size_t interval, struct meter **out)
{
    *out = NULL;
    struct meter *meter = calloc(1, sizeof *meter);
    if (!meter)
        return error_set(ALNICO_ERROR_MEMORY, "meter_create: no memory");
    *meter = (struct meter){.replica = replica, .interval = interval, .resumed = true};
    if (is_inline(meter))
        meter->interval = 1;
    const alnico_status_t status = meter_allocate(meter);
    if (status != ALNICO_SUCCESS)
        meter_destroy(meter);
    else
        *out = meter;
    return status;
}

void meter_destroy(struct meter *meter)
{
    if (!meter)
        return;
    const struct device_ops *device = meter->replica->device;
    device->event_destroy(meter->ends[0]);
    device->event_destroy(meter->ends[1]);
    device->pinned_free(meter->rows);
    device->free(meter->now);
    free(meter->seconds);
    free(meter);
}

static struct row *row_of(struct meter *meter, size_t step)
{
    return &meter->rows[step % (2 * meter->interval)];
}

alnico_status_t meter_begin(struct meter *meter, double rate)
{
    const struct replica *replica = meter->replica;
    struct row *row = row_of(meter, meter->opened);
    *row = (struct row){.rate = (float)rate, .resumed = meter->resumed};
    TRY(replica->device->copy(&replica->arenas.control[CONTROL_RATE], &row->rate, sizeof row->rate,
                              replica->stream));
    if (!meter->resumed)
        return ALNICO_SUCCESS;
    meter->resumed = false;
    TRY(replica_read(meter->replica, replica->arenas.score, meter->before, sizeof meter->before));
    return replica->device->stamp(&row->begin, replica->stream);
}

alnico_status_t meter_mark(struct meter *meter, enum phase ended)
{
    return meter->replica->device->stamp(&meter->now[ended], meter->replica->stream);
}

void meter_waited(struct meter *meter, double seconds)
{
    row_of(meter, meter->opened)->waited += seconds;
}

/* Ends the interval after the steps opened so far. */
static alnico_status_t interval_close(struct meter *meter)
{
    const struct replica *replica = meter->replica;
    struct row *row = row_of(meter, meter->opened - 1);
    TRY(replica->device->copy(row->score, replica->arenas.score, sizeof row->score,
                              replica->stream));
    TRY(replica->device->event_record(meter->ends[meter->closed % 2], replica->stream));
    meter->stops[meter->closed++ % 2] = meter->opened;
    return ALNICO_SUCCESS;
}

static void row_read(struct meter *meter, const struct row *row, struct meter_reading *out)
{
    const uint64_t begin = row->resumed ? row->begin : meter->last;
    double step = 0;
    for (int i = 0; i < PHASES; i++) {
        const uint64_t from = i ? row->ends[i - 1] : begin;
        const double seconds = 1e-9 * (double)(int64_t)(row->ends[i] - from);
        out->phases[i] += seconds;
        step += seconds;
    }
    out->phases[PHASE_BACKWARD] -= row->waited;
    out->phases[PHASE_COMMUNICATION] += row->waited;
    meter->seconds[out->steps++] = step;
    meter->last = row->ends[PHASES - 1];
}

/* Waits for the oldest interval that was not read, and reads it. */
static alnico_status_t interval_read(struct meter *meter, struct meter_reading *out)
{
    const size_t stop = meter->stops[meter->told % 2];
    const struct row *last = row_of(meter, stop - 1);
    TRY(waiting_for(&meter->replica->waiting, meter->ends[meter->told % 2]));
    meter->told++;
    *out = (struct meter_reading){.seconds = meter->seconds};
    for (; meter->read < stop; meter->read++)
        row_read(meter, row_of(meter, meter->read), out);
    out->outcome = (struct outcome){
        .loss = last->score[SCORE_LOSS] - meter->before[SCORE_LOSS],
        .correct = (size_t)(last->score[SCORE_CORRECT] - meter->before[SCORE_CORRECT]),
        .count = (size_t)(last->score[SCORE_IMAGES] - meter->before[SCORE_IMAGES])};
    memcpy(meter->before, last->score, sizeof meter->before);
    return ALNICO_SUCCESS;
}

alnico_status_t meter_end(struct meter *meter, struct meter_reading *out)
{
    struct row *row = row_of(meter, meter->opened++);
    *out = (struct meter_reading){0};
    TRY(meter->replica->device->copy(row->ends, meter->now, sizeof row->ends,
                                     meter->replica->stream));
    TRY(meter->replica->device->stream_raise(meter->replica->stream, meter->replica->waiting.ended,
                                             (uint32_t)meter->opened));
    const size_t stop = meter->closed ? meter->stops[(meter->closed - 1) % 2] : 0;
    if (meter->opened - stop < meter->interval)
        return ALNICO_SUCCESS;
    TRY(interval_close(meter));
    if (meter->closed - meter->told > (is_inline(meter) ? 0 : 1))
        return interval_read(meter, out);
    return ALNICO_SUCCESS;
}

alnico_status_t meter_pause(struct meter *meter, struct meter_reading *out)
{
    const size_t stop = meter->closed ? meter->stops[(meter->closed - 1) % 2] : 0;
    *out = (struct meter_reading){0};
    if (meter->told < meter->closed)
        return interval_read(meter, out);
    if (meter->opened > stop) {
        TRY(interval_close(meter));
        return interval_read(meter, out);
    }
    meter->resumed = true;
    return ALNICO_SUCCESS;
}
