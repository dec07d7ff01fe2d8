/* Threads for what NCCL may wait in: see nccl_errand.h. */
#include "comm/backends/nccl/worker.h"

#include "base/status.h"
#include "device/backoff.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOOK_NS = 1000000, LOST_LOOKS = 2 };

struct nccl_errand_state {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended; /* on the monotonic clock */
    bool begun, over, abandoned;
    alnico_status_t status;
    char detail[256];
};

/* ---- Making ---- */

static struct nccl_errand_state *state_create(void)
{
    struct nccl_errand_state *state = calloc(1, sizeof *state);
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

struct nccl_errand *nccl_errand_create(alnico_comm_t comm,
                                       alnico_status_t (*run)(struct nccl_errand *))
{
    struct nccl_errand *errand = calloc(1, sizeof *errand);
    if (errand) {
        *errand = (struct nccl_errand){.run = run,
                                       .device = comm->device,
                                       .device_index = comm->device_index,
                                       .rank = comm->rank,
                                       .size = comm->size};
        errand->state = state_create();
    }
    if (errand && errand->state)
        return errand;
    free(errand);
    error_set(ALNICO_ERROR_MEMORY, "no memory for a call of NCCL's");
    return NULL;
}

void nccl_errand_free(struct nccl_errand *errand)
{
    if (!errand)
        return;
    if (errand->finish)
        errand->finish(errand);
    pthread_mutex_destroy(&errand->state->lock);
    pthread_cond_destroy(&errand->state->ended);
    free(errand->state);
    free(errand);
}

/* ---- The thread ---- */

/* A graph that is captured elsewhere in the process, in CUDA's global mode, must not keep this
 * thread from allocating. */
static void enter(const struct nccl_errand *errand)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (errand->device->enter)
        errand->device->enter(errand->device_index);
    if (!errand->device->host_accessible && cudaThreadExchangeStreamCaptureMode(&mode) != 0)
        cudaGetLastError();
}

static void *carry_out(void *argument)
{
    struct nccl_errand *errand = argument;
    struct nccl_errand_state *state = errand->state;
    enter(errand);
    alnico_status_t status = errand->run(errand);
    pthread_mutex_lock(&state->lock);
    state->status = status;
    snprintf(state->detail, sizeof state->detail, "%s", alnico_error_detail());
    state->over = true;
    bool abandoned = state->abandoned;
    pthread_cond_signal(&state->ended);
    pthread_mutex_unlock(&state->lock);
    if (abandoned) { /* otherwise it is somebody else's by now */
        if (errand->nccl)
            ncclCommAbort(errand->nccl);
        nccl_errand_free(errand);
    }
    return NULL;
}

alnico_status_t nccl_errand_start(struct nccl_errand *errand)
{
    int error = pthread_create(&errand->state->thread, NULL, carry_out, errand);
    errand->state->begun = error == 0;
    return error ? error_set(ALNICO_ERROR_SYSTEM, "no thread for a call of NCCL's: error %d", error)
                 : ALNICO_SUCCESS;
}

bool nccl_errand_abandoned(struct nccl_errand *errand)
{
    pthread_mutex_lock(&errand->state->lock);
    bool abandoned = errand->state->abandoned;
    pthread_mutex_unlock(&errand->state->lock);
    return abandoned;
}

/* ---- Whoever waits ---- */

/* Up to so long; whether it is over. */
static bool await(struct nccl_errand_state *state, int64_t ns)
{
    int64_t end_ns = backoff_now_ns() + ns;
    struct timespec end = {end_ns / 1000000000, end_ns % 1000000000};
    pthread_mutex_lock(&state->lock);
    while (!state->over && pthread_cond_timedwait(&state->ended, &state->lock, &end) == 0)
        ;
    bool over = state->over;
    pthread_mutex_unlock(&state->lock);
    return over;
}

/* False: it is over. Otherwise it belongs to its thread. */
static bool abandon(struct nccl_errand *errand)
{
    struct nccl_errand_state *state = errand->state;
    pthread_t thread = state->thread;
    pthread_mutex_lock(&state->lock);
    bool over = state->over;
    state->abandoned = !over;
    pthread_mutex_unlock(&state->lock);
    if (!over)
        pthread_detach(thread);
    return !over;
}

static alnico_status_t collect(struct nccl_errand *errand)
{
    pthread_join(errand->state->thread, NULL);
    alnico_status_t status = errand->state->status;
    return status == ALNICO_SUCCESS ? status : error_set(status, "%s", errand->state->detail);
}

/* Looks at whether ranks live now and then: NCCL may notice by itself, and then it leaves nothing
 * over. */
struct patience {
    int64_t end_ns, look_ns;
    int lost_looks;
};

static int find_lost(struct transport *t)
{
    for (int i = 0; t->ops->gone && i < t->size; i++)
        if (i != t->rank && t->ops->gone(t, i))
            return i;
    return -1;
}

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
    int lost = find_lost(comm->transport);
    p->look_ns = now + (int64_t)(1e9 * watch_patience(timeout));
    p->lost_looks = lost < 0 ? 0 : p->lost_looks + 1;
    return p->lost_looks < LOST_LOOKS
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come: its process has ended",
                           who, lost);
}

alnico_status_t nccl_errand_do(alnico_comm_t comm, const char *who, struct nccl_errand **errand)
{
    struct engine *engine = comm->family->engine;
    double timeout = comm->family->settings.timeout;
    int64_t now = backoff_now_ns();
    struct patience patience = {.end_ns = now + (int64_t)(1e9 * (timeout < 1e9 ? timeout : 1e9)),
                                .look_ns = now + (int64_t)(1e9 * watch_patience(timeout))};
    TRY(nccl_errand_start(*errand));
    while (!await((*errand)->state, LOOK_NS)) {
        if (!engine_is_threaded(engine))
            engine_pump(engine);
        alnico_status_t status = look(comm, who, &patience);
        if (status != ALNICO_SUCCESS && abandon(*errand)) {
            *errand = NULL;
            return status;
        }
    }
    return collect(*errand);
}

void nccl_errand_finish(struct nccl_errand *errand, double seconds)
{
    if (!errand)
        return;
    bool begun = errand->state->begun;
    if (begun && !await(errand->state, (int64_t)(1e9 * (seconds < 1e9 ? seconds : 1e9))) &&
        abandon(errand))
        return;
    if (begun)
        collect(errand);
    nccl_errand_free(errand);
}
