/*
 * See shard.h. The server's thread makes passes over the workers, and sleeps when a pass moved
 * nothing: 20 us at first, up to 1 ms, as a message cannot wake it; between rounds until it is
 * woken.
 */
#include "train/strategies/shard_state.h"

#include "base/status.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAP_LEAST_NS = 20000, NAP_MOST_NS = 1000000 };

/* ---- The thread ---- */

static struct timespec after(long ns)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_nsec += ns;
    time.tv_sec += time.tv_nsec / 1000000000L;
    time.tv_nsec %= 1000000000L;
    return time;
}

static void fail(struct shard *shard, alnico_status_t status)
{
    shard->status = status;
    snprintf(shard->detail, sizeof shard->detail, "%s", alnico_error_detail());
    pthread_cond_broadcast(&shard->changed);
}

static void *serve(void *argument)
{
    struct shard *shard = argument;
    long nap = NAP_LEAST_NS;
    pthread_mutex_lock(&shard->lock);
    while (!shard->stopping) {
        bool moved = false;
        if (!shard->open || shard->status != ALNICO_SUCCESS) {
            pthread_cond_wait(&shard->woken, &shard->lock);
            continue;
        }
        const alnico_status_t status = shard_pass(shard, &moved);
        if (status != ALNICO_SUCCESS)
            fail(shard, status);
        const struct timespec until = after(nap);
        if (!moved && !pthread_cond_timedwait(&shard->woken, &shard->lock, &until))
            moved = true;
        nap = moved ? NAP_LEAST_NS : nap < NAP_MOST_NS / 2 ? 2 * nap : NAP_MOST_NS;
    }
    pthread_mutex_unlock(&shard->lock);
    return NULL;
}

/* ---- For the thread that trains ---- */

static alnico_status_t files_open(struct shard *shard)
{
    const struct shard_setup *setup = &shard->setup;
    const struct interleaving_head head = {setup->size, setup->rank, setup->parameters};
    if (setup->replay)
        TRY(interleaving_read(setup->replay, &head, &shard->replay));
    return setup->record ? interleaving_create(setup->record, &head, &shard->record)
                         : ALNICO_SUCCESS;
}

static alnico_status_t buffers_create(struct shard *shard)
{
    const size_t bytes = (shard->setup.count + 1) * sizeof(float);
    shard->values = malloc(bytes * (1 + shard->setup.states));
    shard->workers = calloc((size_t)shard->setup.size, sizeof *shard->workers);
    bool all = shard->values && shard->workers;
    for (int i = 0; all && i < shard->setup.size; i++) {
        struct worker *worker = &shard->workers[i];
        worker->phase = WORKER_RESTS;
        if (i == shard->setup.rank)
            continue;
        worker->received = malloc(bytes);
        worker->sent = malloc(bytes);
        all = worker->received && worker->sent;
    }
    return all ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_MEMORY, "strategy async: no memory for a shard of %zu",
                           shard->setup.count);
}

static void locks_create(struct shard *shard)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&shard->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&shard->woken, &attributes);
    pthread_cond_init(&shard->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static alnico_status_t shard_prepare(struct shard *shard)
{
    TRY(buffers_create(shard));
    TRY(files_open(shard));
    const int error = thread_create(&shard->thread, serve, shard);
    shard->threaded = error == 0;
    return error ? error_set(ALNICO_ERROR_SYSTEM, "strategy async: no thread for a server: %s",
                             strerror(error))
                 : ALNICO_SUCCESS;
}

alnico_status_t shard_create(const struct shard_setup *setup, struct shard **out)
{
    *out = NULL;
    struct shard *shard = calloc(1, sizeof *shard);
    if (!shard)
        return error_set(ALNICO_ERROR_MEMORY, "strategy async: no memory");
    shard->setup = *setup;
    locks_create(shard);
    const alnico_status_t status = shard_prepare(shard);
    if (status != ALNICO_SUCCESS)
        shard_destroy(shard);
    else
        *out = shard;
    return status;
}

static void thread_join(struct shard *shard)
{
    pthread_mutex_lock(&shard->lock);
    shard->stopping = true;
    pthread_cond_signal(&shard->woken);
    pthread_mutex_unlock(&shard->lock);
    pthread_join(shard->thread, NULL);
}

void shard_destroy(struct shard *shard)
{
    if (!shard)
        return;
    if (shard->threaded)
        thread_join(shard);
    for (int i = 0; shard->workers && i < shard->setup.size; i++) {
        if (shard->workers[i].request)
            alnico_request_synchronize(&shard->workers[i].request);
        free(shard->workers[i].received);
        free(shard->workers[i].sent);
    }
    if (shard->record)
        fclose(shard->record);
    interleaving_free(&shard->replay);
    pthread_cond_destroy(&shard->woken);
    pthread_cond_destroy(&shard->changed);
    pthread_mutex_destroy(&shard->lock);
    free(shard->workers);
    free(shard->values);
    free(shard);
}

float *shard_values(struct shard *shard, size_t which)
{
    return shard->values + which * shard->setup.count;
}

alnico_status_t shard_begin(struct shard *shard, uint64_t steps, uint64_t before)
{
    alnico_status_t status = ALNICO_SUCCESS;
    pthread_mutex_lock(&shard->lock);
    shard->before = before;
    shard->planned = shard->version + steps;
    shard->left = steps - (uint64_t)shard->setup.size;
    shard->resting = 0;
    for (int i = 0; i < shard->setup.size && status == ALNICO_SUCCESS; i++) {
        shard->workers[i].steps = 0;
        shard->workers[i].pulled = shard->version;
        status = shard_await(shard, &shard->workers[i]);
    }
    shard->open = true;
    pthread_cond_signal(&shard->woken);
    pthread_mutex_unlock(&shard->lock);
    return status;
}

void shard_push(struct shard *shard, const struct push *push, const float *gradients,
                float *parameters)
{
    struct worker *worker = &shard->workers[shard->setup.rank];
    pthread_mutex_lock(&shard->lock);
    worker->push = *push;
    worker->gradients = gradients;
    worker->parameters = parameters;
    worker->phase = WORKER_PUSHED;
    pthread_cond_signal(&shard->woken);
    pthread_mutex_unlock(&shard->lock);
}

static alnico_status_t ended(const struct shard *shard)
{
    return shard->status == ALNICO_SUCCESS ? ALNICO_SUCCESS
                                           : error_set(shard->status, "%s", shard->detail);
}

alnico_status_t shard_wait(struct shard *shard, struct pull *out)
{
    const struct worker *worker = &shard->workers[shard->setup.rank];
    pthread_mutex_lock(&shard->lock);
    while (worker->phase != WORKER_COMPUTES && shard->status == ALNICO_SUCCESS)
        pthread_cond_wait(&shard->changed, &shard->lock);
    *out = worker->pull;
    const alnico_status_t status = ended(shard);
    pthread_mutex_unlock(&shard->lock);
    return status;
}

alnico_status_t shard_rest(struct shard *shard, uint64_t *version)
{
    pthread_mutex_lock(&shard->lock);
    while (shard->open && shard->status == ALNICO_SUCCESS)
        pthread_cond_wait(&shard->changed, &shard->lock);
    *version = shard->version;
    const alnico_status_t status = ended(shard);
    pthread_mutex_unlock(&shard->lock);
    return status;
}

alnico_status_t shard_status(struct shard *shard)
{
    const struct timespec until = after(GRACE_NS);
    int error = 0;
    pthread_mutex_lock(&shard->lock);
    while (shard->open && shard->status == ALNICO_SUCCESS && !error)
        error = pthread_cond_timedwait(&shard->changed, &shard->lock, &until);
    const alnico_status_t status = ended(shard);
    pthread_mutex_unlock(&shard->lock);
    return status;
}

const struct strategy_staleness *shard_staleness(const struct shard *shard)
{
    return &shard->staleness;
}
