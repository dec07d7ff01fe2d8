/* What follows from a table for one communicator, and rank 0's settings. */
#include "comm/tuning/tuning.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/backends/peer/peer.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Names ---- */

const char *const tuning_collectives[] = {
    [ALNICO_ALLREDUCE] = "allreduce",
    [ALNICO_REDUCE] = "reduce",
    [ALNICO_BROADCAST] = "broadcast",
    [ALNICO_ALLGATHER] = "allgather",
    [ALNICO_ALLGATHERV] = "allgatherv",
    [ALNICO_REDUCE_SCATTER] = "reduce_scatter",
    [ALNICO_REDUCE_SCATTERV] = "reduce_scatterv",
    [ALNICO_GATHER] = "gather",
    [ALNICO_GATHERV] = "gatherv",
    [ALNICO_SCATTER] = "scatter",
    [ALNICO_SCATTERV] = "scatterv",
    [ALNICO_ALLTOALL] = "alltoall",
    [ALNICO_ALLTOALLV] = "alltoallv",
    [ALNICO_BARRIER] = "barrier",
    [ALNICO_SENDRECV] = "sendrecv",
    [COLLECTIVES] = NULL,
};

const char *const tuning_devices[] = {
    [ALNICO_DEVICE_CPU] = "cpu", [ALNICO_DEVICE_CUDA] = "cuda", NULL};

enum { CPU = 1u << ALNICO_DEVICE_CPU, CUDA = 1u << ALNICO_DEVICE_CUDA };

const struct tuning_backend tuning_backends[] = {
    {"host",
     CPU | CUDA,
     {
         [ALNICO_ALLREDUCE] = algorithms_allreduce,
         [ALNICO_REDUCE] = algorithms_reduce,
         [ALNICO_BROADCAST] = algorithms_broadcast,
         [ALNICO_ALLGATHER] = algorithms_allgather,
         [ALNICO_ALLGATHERV] = algorithms_allgatherv,
         [ALNICO_REDUCE_SCATTER] = algorithms_reduce_scatter,
         [ALNICO_REDUCE_SCATTERV] = algorithms_reduce_scatterv,
         [ALNICO_GATHER] = algorithms_gather,
         [ALNICO_GATHERV] = algorithms_gatherv,
         [ALNICO_SCATTER] = algorithms_scatter,
         [ALNICO_SCATTERV] = algorithms_scatterv,
         [ALNICO_ALLTOALL] = algorithms_alltoall,
         [ALNICO_ALLTOALLV] = algorithms_alltoallv,
         [ALNICO_BARRIER] = algorithms_barrier,
         [ALNICO_SENDRECV] = algorithms_sendrecv,
     },
     1,
     INT_MAX,
     INT_MAX},
    {"peer",
     CPU,
     {
         [ALNICO_ALLREDUCE] = algorithms_peer,
         [ALNICO_REDUCE] = algorithms_peer,
         [ALNICO_BROADCAST] = algorithms_peer_copies,
         [ALNICO_ALLGATHER] = algorithms_peer_copies,
         [ALNICO_ALLGATHERV] = algorithms_peer_copies,
         [ALNICO_REDUCE_SCATTER] = algorithms_peer_copies,
         [ALNICO_REDUCE_SCATTERV] = algorithms_peer_copies,
         [ALNICO_GATHER] = algorithms_peer_groups,
         [ALNICO_GATHERV] = algorithms_peer_copies,
         [ALNICO_SCATTER] = algorithms_peer_copies,
         [ALNICO_SCATTERV] = algorithms_peer_copies,
         [ALNICO_ALLTOALL] = algorithms_peer_copies,
         [ALNICO_ALLTOALLV] = algorithms_peer_copies,
         [ALNICO_BARRIER] = algorithms_peer_groups,
     },
     2,
     PEER_RANKS,
     1},
    {"peer",
     CUDA,
     {
         [ALNICO_ALLREDUCE] = algorithms_peer_cuda,
         [ALNICO_BROADCAST] = algorithms_peer_line,
         [ALNICO_ALLGATHER] = algorithms_peer_blocks,
         [ALNICO_REDUCE_SCATTER] = algorithms_peer_blocks,
         [ALNICO_ALLTOALL] = algorithms_peer_blocks,
         [ALNICO_BARRIER] = algorithms_peer_line,
         [ALNICO_SENDRECV] = algorithms_peer_messages,
     },
     2,
     PEER_GPUS,
     1},
    {"shared", CUDA, {[ALNICO_ALLREDUCE] = algorithms_shared}, 2, PEER_GPUS, 1},
    {"nccl",
     CUDA,
     {
         [ALNICO_ALLREDUCE] = algorithms_nccl,
         [ALNICO_REDUCE] = algorithms_nccl_plain,
         [ALNICO_BROADCAST] = algorithms_nccl_plain,
         [ALNICO_ALLGATHER] = algorithms_nccl,
         [ALNICO_ALLGATHERV] = algorithms_nccl_messages,
         [ALNICO_REDUCE_SCATTER] = algorithms_nccl,
         [ALNICO_REDUCE_SCATTERV] = algorithms_nccl_plain,
         [ALNICO_GATHER] = algorithms_nccl_messages,
         [ALNICO_GATHERV] = algorithms_nccl_messages,
         [ALNICO_SCATTER] = algorithms_nccl_messages,
         [ALNICO_SCATTERV] = algorithms_nccl_messages,
         [ALNICO_ALLTOALL] = algorithms_nccl_messages,
         [ALNICO_ALLTOALLV] = algorithms_nccl_messages,
         [ALNICO_BARRIER] = algorithms_nccl_plain,
         [ALNICO_SENDRECV] = algorithms_nccl_messages,
     },
     1,
     INT_MAX,
     INT_MAX},
    {NULL, 0, {NULL}, 0, 0, 0},
};

const struct tuning_backend *tuning_backend_find(const char *name, int device)
{
    for (const struct tuning_backend *b = tuning_backends; b->name; b++)
        if (b->devices & 1u << device && strcmp(b->name, name) == 0)
            return b;
    return NULL;
}

const struct algorithm *tuning_algorithm_find(const struct tuning_backend *backend, int collective,
                                              const char *name)
{
    for (const struct algorithm *const *a = backend->algorithms[collective]; a && *a; a++)
        if (strcmp((*a)->name, name) == 0)
            return *a;
    return NULL;
}

const struct algorithm *tuning_algorithm_at(int device, int collective, int i,
                                            const struct tuning_backend **backend)
{
    for (const struct tuning_backend *b = tuning_backends; b->name; b++) {
        if (!(b->devices & 1u << device))
            continue;
        for (const struct algorithm *const *a = b->algorithms[collective]; a && *a; a++)
            if (i-- == 0) {
                if (backend)
                    *backend = b;
                return *a;
            }
    }
    return NULL;
}

const struct algorithm *tuning_algorithm_named(int device, int collective, const char *name,
                                               const struct tuning_backend **backend)
{
    const struct algorithm *algorithm;
    for (int i = 0; (algorithm = tuning_algorithm_at(device, collective, i, backend)); i++)
        if (strcmp(algorithm->name, name) == 0)
            return algorithm;
    return NULL;
}

/* ---- The table ---- */

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

/* ---- The choice of one communicator ---- */

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
        const struct tuning_backend *backend = tuning_backend_find(row->backend, row->device);
        if (s->ranks < backend->ranks_least || s->ranks > backend->ranks_most ||
            s->hosts > backend->hosts_most)
            continue;
        s->steps[s->count++] = (struct tuning_step){
            .bytes = row->bytes,
            .backend = backend->name,
            .algorithm = tuning_algorithm_find(backend, row->collective, row->algorithm),
            .chunk_bytes = row->chunk_bytes,
            .blocks = row->blocks};
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
                                      tuning_collectives[s->collective], tuning_devices[s->device]);
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
    return ALNICO_SUCCESS;
}

void tuning_steps_force(struct tuning_steps *steps, int collective, const struct tuning_step *only)
{
    for (int modes = 0; modes < MODES; modes++) {
        struct tuning_step *step = steps->of[collective][modes];
        *step = *only;
        step->bytes = SIZE_MAX;
        step[1].backend = NULL;
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
    while (step->backend && step->bytes < bytes)
        step++;
    return step->backend ? step : NULL;
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

/* ---- Settings ---- */

static void refuse(struct settings *s, enum variable variable, const char *expected)
{
    s->status = ALNICO_ERROR_ARGUMENT;
    snprintf(s->detail, sizeof s->detail, "%s is '%.40s' on rank 0, expected %s",
             variable_info(variable)->name, variable_text(variable), expected);
}

static void read_timeout(struct settings *s)
{
    const char *text = variable_text(VARIABLE_TIMEOUT);
    char *end;
    s->timeout = strtod(text, &end);
    if (end == text || *end || !isfinite(s->timeout) || s->timeout <= 0)
        refuse(s, VARIABLE_TIMEOUT, "a positive number of seconds");
}

static void read_chunk(struct settings *s)
{
    const char *text = variable_text(VARIABLE_CHUNK);
    char *end;
    errno = 0;
    unsigned long long bytes = strtoull(text, &end, 10);
    s->chunk_bytes = (size_t)bytes;
    bool number = *text >= '0' && *text <= '9' && !*end && errno == 0;
    if (*text && (!number || bytes < CHUNK_BYTES_LEAST || bytes > INT_MAX))
        refuse(s, VARIABLE_CHUNK, "bytes from 1024 to 2147483647");
}

static void read_check(struct settings *s)
{
    const char *text = variable_text(VARIABLE_CHECK);
    s->check = strcmp(text, "1") == 0;
    if (!s->check && *text && strcmp(text, "0") != 0)
        refuse(s, VARIABLE_CHECK, "0 or 1");
}

static void read_transport(struct settings *s)
{
    const char *text = variable_text(VARIABLE_TRANSPORT);
    s->over_mpi = strcmp(text, "mpi") == 0;
    if (!s->over_mpi && *text && strcmp(text, "auto") != 0)
        refuse(s, VARIABLE_TRANSPORT, "auto or mpi");
}

static void read_algorithm(struct settings *s, int collective)
{
    enum variable variable = (enum variable)(VARIABLE_ALLREDUCE + collective);
    const char *text = variable_text(variable);
    bool known = !*text;
    for (int device = 0; device < DEVICES; device++)
        known |= tuning_algorithm_named(device, collective, text, NULL) != NULL;
    if (!known)
        refuse(s, variable, "the name of an algorithm, as alnico-info lists them");
    snprintf(s->algorithm[collective], sizeof s->algorithm[collective], "%s", text);
}

void settings_read(struct settings *s)
{
    memset(s, 0, sizeof *s);
    read_timeout(s);
    read_chunk(s);
    read_check(s);
    read_transport(s);
    for (int c = 0; c < COLLECTIVES; c++)
        read_algorithm(s, c);
}

void settings_read_tuning(struct settings *s, struct tuning *out)
{
    const char *path = variable_text(VARIABLE_TUNING);
    memset(out, 0, sizeof *out);
    if (!*path || s->status != ALNICO_SUCCESS)
        return;
    s->status = tuning_file_read(path, out);
    s->tuning_rows = out->count;
    if (s->status != ALNICO_SUCCESS)
        snprintf(s->detail, sizeof s->detail, "%s on rank 0: %s",
                 variable_info(VARIABLE_TUNING)->name, alnico_error_detail());
}
