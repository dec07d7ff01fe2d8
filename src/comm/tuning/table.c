/* From the rows of a table to the steps of one communicator. */
#include "comm/tuning/tuning.h"

#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

const char *const tuning_devices[] = {
    [ALNICO_DEVICE_CPU] = "cpu", [ALNICO_DEVICE_CUDA] = "cuda", NULL};

/* All rows reach down to one rank, one host and no bytes: a row is hidden if an earlier one that
 * asks for no more has its upper corner. There are never more hosts than ranks. */
static bool hides(const struct tuning_row *a, const struct tuning_row *row)
{
    int hosts = row->hosts < row->ranks ? row->hosts : row->ranks;
    bool same = row->device == ALNICO_DEVICE_CPU || strcmp(a->backend, row->backend) == 0;
    return same && a->collective == row->collective && a->device == row->device &&
           !(a->modes & ~row->modes) && a->ranks >= row->ranks && a->hosts >= hosts &&
           a->bytes >= row->bytes;
}

int tuning_shadow(const struct tuning_row *rows, int index)
{
    for (int i = 0; i < index; i++)
        if (hides(&rows[i], &rows[index]))
            return i;
    return -1;
}

void tuning_finish(struct tuning *tuning)
{
    free(tuning->rows);
    free(tuning->machines);
    memset(tuning, 0, sizeof *tuning);
}

struct selection {
    int collective, device, ranks, hosts;
    unsigned modes;
    struct tuning_step *steps;
    int count;
};

static bool is_complete(const struct selection *s)
{
    for (int i = 0; i < s->count; i++)
        if (s->steps[i].bytes == SIZE_MAX)
            return true;
    return false;
}

static bool fits(const struct selection *s, const struct tuning_row *row)
{
    return row->collective == s->collective && row->device == s->device &&
           !(row->modes & ~s->modes) && row->ranks >= s->ranks && row->hosts >= s->hosts;
}

static int count_rows(const struct selection *s, const struct tuning_row *rows, int count)
{
    int fitting = 0;
    for (int i = 0; i < count; i++)
        fitting += fits(s, &rows[i]);
    return fitting;
}

static void select_rows(struct selection *s, const struct tuning_row *rows, int count)
{
    for (int i = 0; i < count; i++) {
        const struct tuning_row *row = &rows[i];
        if (!fits(s, row))
            continue;
        const struct backend *backend = backend_find(row->backend, row->device);
        if (s->ranks < backend->ranks_least || s->ranks > backend->ranks_most ||
            s->hosts > backend->hosts_most)
            continue;
        s->steps[s->count++] = (struct tuning_step){
            row->bytes,
            {.backend = backend,
             .algorithm = backend_algorithm(backend, row->collective, row->algorithm),
             .chunk_bytes = row->chunk_bytes,
             .blocks = row->blocks}};
    }
}

static alnico_status_t select_steps(struct selection *s, const struct tuning *tuning)
{
    int most = count_rows(s, tuning_builtin, tuning_builtin_count) +
               (tuning ? count_rows(s, tuning->rows, tuning->count) : 0);
    s->steps = calloc((size_t)most + 2, sizeof *s->steps); /* two: for tuning_steps_force */
    if (!s->steps)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for a tuning table of %d rows", most);
    if (tuning)
        select_rows(s, tuning->rows, tuning->count);
    select_rows(s, tuning_builtin, tuning_builtin_count);
    return is_complete(s) ? ALNICO_SUCCESS
                          : error_set(ALNICO_ERROR_UNSUPPORTED,
                                      "the tuning table has no row for %s of every size on %s",
                                      collectives[s->collective].name, tuning_devices[s->device]);
}

static bool is_same(const struct choice *a, const struct choice *b)
{
    return a->backend == b->backend && a->algorithm == b->algorithm && a->blocks == b->blocks &&
           a->chunk_bytes == b->chunk_bytes;
}

static bool are_same(const struct tuning_step *a, const struct tuning_step *b)
{
    for (; a->choice.backend && b->choice.backend; a++, b++)
        if (a->bytes != b->bytes || !is_same(&a->choice, &b->choice))
            return false;
    return !a->choice.backend && !b->choice.backend;
}

alnico_status_t tuning_steps_init(struct tuning_steps *out, const struct tuning *tuning, int device,
                                  int ranks, int hosts)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < COLLECTIVES * MODES; i++) {
        int collective = i / MODES;
        unsigned modes = (unsigned)i % MODES;
        struct selection s = {collective, device, ranks, hosts, modes, NULL, 0};
        alnico_status_t status = select_steps(&s, tuning);
        out->of[collective][modes] = s.steps;
        if (status != ALNICO_SUCCESS) {
            tuning_steps_finish(out);
            return status;
        }
    }
    for (int i = 0; i < COLLECTIVES * MODES; i++) {
        struct tuning_step *const *of = out->of[i / MODES];
        out->captured_same[i / MODES][i % MODES] =
            are_same(of[i % MODES], of[i % MODES | MODE_CAPTURED]);
    }
    return ALNICO_SUCCESS;
}

void tuning_steps_force(struct tuning_steps *steps, int collective, const struct choice *only)
{
    for (int modes = 0; modes < MODES; modes++) {
        struct tuning_step *step = steps->of[collective][modes];
        step[0] = (struct tuning_step){SIZE_MAX, *only};
        step[1].choice.backend = NULL;
    }
}

void tuning_steps_finish(struct tuning_steps *steps)
{
    for (int i = 0; i < COLLECTIVES; i++)
        for (int modes = 0; modes < MODES; modes++)
            free(steps->of[i][modes]);
    memset(steps, 0, sizeof *steps);
}

static const struct tuning_step *first_fit(const struct tuning_step *step, size_t bytes)
{
    while (step->choice.backend && step->bytes < bytes)
        step++;
    return step->choice.backend ? step : NULL;
}

const struct tuning_step *tuning_choose(const struct tuning_steps *steps,
                                        alnico_collective_t collective, unsigned modes,
                                        size_t bytes)
{
    return first_fit(steps->of[collective][modes], bytes);
}

const struct tuning_step *tuning_next(const struct tuning_step *step, size_t bytes)
{
    return first_fit(step + 1, bytes);
}

bool tuning_same_captured(const struct tuning_steps *steps, alnico_collective_t collective,
                          unsigned modes, size_t bytes, const struct tuning_step *step)
{
    if (steps->captured_same[collective][modes])
        return true;
    const struct tuning_step *captured =
        tuning_choose(steps, collective, modes | MODE_CAPTURED, bytes);
    return captured && is_same(&step->choice, &captured->choice);
}
