/* Threads for NCCL's calls that may wait: see nccl/worker.h. */
#include "comm/backends/nccl/worker.h"
#include "comm/rendezvous/out_of_band.h"

#include "base/status.h"
#include "device/backoff.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOK_SECONDS 1e-3
enum { LOST_LOOKS = 2 };

struct nccl_worker_state {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended; /* on the monotonic clock */
    bool begun, over, abandoned;
    alnico_status_t status;
    char detail[256];
};

static struct nccl_worker_state *state_create(void)
{
    struct nccl_worker_state *state = calloc(1, sizeof *state);
    pthread_condattr_t clock;
    if (!state)
        return NULL;
    pthread_mutex_init(&state->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&state->ended, &clock);
    pthread_condattr_destroy(&clock);
    return state;
}

struct nccl_worker *nccl_worker_create(alnico_comm_t comm,
                                       alnico_status_t (*run)(struct nccl_worker *))
{
    struct nccl_worker *worker = calloc(1, sizeof *worker);
    if (worker) {
        *worker = (struct nccl_worker){.run = run,
                                       .device = comm->device,
                                       .device_index = comm->device_index,
                                       .most_blocks = comm->limits.blocks,
                                       .rank = comm->rank,
                                       .size = comm->size};
        worker->state = state_create();
    }
    if (worker && worker->state)
        return worker;
    free(worker);
    error_set(ALNICO_ERROR_MEMORY, "no memory for a call of NCCL's");
    return NULL;
}

void nccl_worker_free(struct nccl_worker *worker)
{
    if (!worker)
        return;
    if (worker->finish)
        worker->finish(worker);
    pthread_mutex_destroy(&worker->state->lock);
    pthread_cond_destroy(&worker->state->ended);
    free(worker->state);
    free(worker);
}

/* A graph that is captured elsewhere in the process, in CUDA's global mode, must not keep this
 * thread from allocating. */
static void enter(const struct nccl_worker *worker)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (worker->device->enter)
        worker->device->enter(worker->device_index);
    if (!worker->device->host_accessible && cudaThreadExchangeStreamCaptureMode(&mode) != 0)
        cudaGetLastError();
}

static void *carry_out(void *argument)
{
    struct nccl_worker *worker = argument;
    struct nccl_worker_state *state = worker->state;
    enter(worker);
    alnico_status_t status = worker->run(worker);
    pthread_mutex_lock(&state->lock);
    state->status = status;
    snprintf(state->detail, sizeof state->detail, "%s", alnico_error_detail());
    state->over = true;
    bool abandoned = state->abandoned;
    pthread_cond_signal(&state->ended);
    pthread_mutex_unlock(&state->lock);
    if (abandoned) { /* otherwise it is somebody else's by now */
        if (worker->nccl)
            nccl_library()->ncclCommAbort(worker->nccl);
        nccl_worker_free(worker);
    }
    return NULL;
}

alnico_status_t nccl_worker_start(struct nccl_worker *worker)
{
    int error = pthread_create(&worker->state->thread, NULL, carry_out, worker);
    worker->state->begun = error == 0;
    return error ? error_set(ALNICO_ERROR_SYSTEM, "no thread for a call of NCCL's: error %d", error)
                 : ALNICO_SUCCESS;
}

bool nccl_worker_abandoned(struct nccl_worker *worker)
{
    pthread_mutex_lock(&worker->state->lock);
    bool abandoned = worker->state->abandoned;
    pthread_mutex_unlock(&worker->state->lock);
    return abandoned;
}

/* Up to so many seconds; whether it is over. */
static bool await(struct nccl_worker_state *state, double seconds)
{
    int64_t end_ns = deadline_ns(seconds);
    struct timespec end = {end_ns / 1000000000, end_ns % 1000000000};
    pthread_mutex_lock(&state->lock);
    while (!state->over && pthread_cond_timedwait(&state->ended, &state->lock, &end) == 0)
        ;
    bool over = state->over;
    pthread_mutex_unlock(&state->lock);
    return over;
}

/* False: it is over. Otherwise it belongs to its thread. */
static bool abandon(struct nccl_worker *worker)
{
    struct nccl_worker_state *state = worker->state;
    pthread_t thread = state->thread;
    pthread_mutex_lock(&state->lock);
    bool over = state->over;
    state->abandoned = !over;
    pthread_mutex_unlock(&state->lock);
    if (!over)
        pthread_detach(thread);
    return !over;
}

static alnico_status_t collect(struct nccl_worker *worker)
{
    pthread_join(worker->state->thread, NULL);
    alnico_status_t status = worker->state->status;
    return status == ALNICO_SUCCESS ? status : error_set(status, "%s", worker->state->detail);
}

/* Looks at whether ranks live now and then: NCCL may notice by itself, and then it leaves nothing
 * over. */
struct patience {
    int64_t end_ns, look_ns;
    int lost_looks;
};

static alnico_status_t look(alnico_comm_t comm, const char *who, struct patience *p)
{
    double timeout = comm->family->settings.timeout;
    int64_t now = backoff_now_ns();
    TRY(comm_latched(comm));
    if (now > p->end_ns)
        return error_set(ALNICO_ERROR_TIMEOUT,
                         "%s: NCCL did not come to an end within %g s; a rank did not come", who,
                         timeout);
    if (now < p->look_ns)
        return ALNICO_SUCCESS;
    int lost = out_of_band_find_lost(comm->transport);
    p->look_ns = deadline_ns(out_of_band_patience(timeout));
    p->lost_looks = lost < 0 ? 0 : p->lost_looks + 1;
    return p->lost_looks < LOST_LOOKS
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come: its process has ended",
                           who, comm_name(comm, lost));
}

alnico_status_t nccl_worker_do(alnico_comm_t comm, const char *who, struct nccl_worker **worker)
{
    struct engine *engine = comm->family->engine;
    double timeout = comm->family->settings.timeout;
    struct patience patience = {.end_ns = deadline_ns(timeout),
                                .look_ns = deadline_ns(out_of_band_patience(timeout))};
    TRY(nccl_worker_start(*worker));
    while (!await((*worker)->state, LOOK_SECONDS)) {
        if (!engine_is_threaded(engine))
            engine_pump(engine);
        alnico_status_t status = look(comm, who, &patience);
        if (status != ALNICO_SUCCESS && abandon(*worker)) {
            *worker = NULL;
            return status;
        }
    }
    return collect(*worker);
}

void nccl_worker_finish(struct nccl_worker *worker, double seconds)
{
    if (!worker)
        return;
    bool begun = worker->state->begun;
    if (begun && !await(worker->state, seconds) && abandon(worker))
        return;
    if (begun)
        collect(worker);
    nccl_worker_free(worker);
}
