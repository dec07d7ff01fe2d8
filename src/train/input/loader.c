/*
 * See loader.h. Everything that is shared stands under one lock, which nobody holds while a batch
 * is begun or a part prepared. Threads with nothing to do sleep.
 */
#include "train/input/loader.h"

#include "base/status.h"
#include "base/thread.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct slot {
    size_t parts, taken, done;
    size_t failed; /* the first of the parts that failed, if status says so */
    alnico_status_t status;
    char detail[512];
};

struct worker {
    struct loader *loader;
    size_t number;
    pthread_t thread;
};

struct loader {
    struct loader_options options;
    pthread_mutex_t lock;
    pthread_cond_t done;   /* the caller waits for a batch */
    pthread_cond_t wanted; /* threads wait for parts, or for a slot to begin a batch in */
    uint64_t begun, given; /* the next batch to begin and to give; slot i % slots holds batch i */
    uint64_t returned;     /* the batches before this one are no longer the caller's */
    bool beginning, stop;
    struct slot *slots;
    struct worker *workers;
    size_t started; /* workers */
};

static struct slot *slot_of(struct loader *loader, uint64_t number)
{
    return &loader->slots[number % loader->options.slots];
}

/* The batch that was begun last, of the others no part is left; NULL: of this one neither. */
static struct slot *open_slot(struct loader *loader)
{
    struct slot *last = slot_of(loader, loader->begun - 1);
    return loader->begun > loader->options.first && last->taken < last->parts ? last : NULL;
}

static bool may_begin(const struct loader *loader)
{
    return !loader->beginning && loader->begun - loader->returned < loader->options.slots;
}

static void slot_fail(struct slot *slot, size_t part, alnico_status_t status)
{
    if (slot->status != ALNICO_SUCCESS && slot->failed < part)
        return;
    slot->status = status;
    slot->failed = part;
    snprintf(slot->detail, sizeof slot->detail, "%s", alnico_error_detail());
}

/* Under the lock, which it gives up meanwhile. One thread goes on with the next batch, all help
 * with the parts of this one. */
static void batch_begin(struct loader *loader)
{
    const struct loader_options *options = &loader->options;
    struct slot *slot = slot_of(loader, loader->begun);
    loader->beginning = true;
    pthread_mutex_unlock(&loader->lock);
    const size_t parts =
        options->begin(options->context, loader->begun, loader->begun % options->slots);
    pthread_mutex_lock(&loader->lock);
    *slot = (struct slot){.parts = parts};
    loader->begun++;
    loader->beginning = false;
    if (!parts)
        pthread_cond_signal(&loader->done);
    if (parts > 1)
        pthread_cond_broadcast(&loader->wanted);
    else
        pthread_cond_signal(&loader->wanted);
}

/* Under the lock, which it gives up meanwhile. */
static void part_prepare(struct loader *loader, struct slot *slot, size_t thread)
{
    const struct loader_options *options = &loader->options;
    const size_t part = slot->taken++;
    pthread_mutex_unlock(&loader->lock);
    const alnico_status_t status =
        options->prepare(options->context, thread, (size_t)(slot - loader->slots), part);
    pthread_mutex_lock(&loader->lock);
    if (status != ALNICO_SUCCESS)
        slot_fail(slot, part, status);
    if (++slot->done == slot->parts)
        pthread_cond_signal(&loader->done);
}

/* Under the lock: does what is to be done next; false: there is nothing now. */
static bool work_once(struct loader *loader, size_t thread)
{
    struct slot *slot = open_slot(loader);
    if (slot)
        part_prepare(loader, slot, thread);
    else if (may_begin(loader))
        batch_begin(loader);
    else
        return false;
    return true;
}

static void *work(void *argument)
{
    const struct worker *worker = argument;
    struct loader *loader = worker->loader;
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop)
        if (!work_once(loader, worker->number))
            pthread_cond_wait(&loader->wanted, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static alnico_status_t workers_start(struct loader *loader)
{
    for (size_t i = 0; i < loader->options.threads; i++) {
        struct worker *worker = &loader->workers[i];
        *worker = (struct worker){.loader = loader, .number = i};
        const int error = thread_create(&worker->thread, work, worker);
        if (error)
            return error_set(ALNICO_ERROR_SYSTEM, "cannot start a thread: %s", strerror(error));
        loader->started++;
    }
    return ALNICO_SUCCESS;
}

alnico_status_t loader_create(const struct loader_options *options, struct loader **out)
{
    assert(options->held > 0 && options->slots >= options->held + (options->threads > 0));
    *out = NULL;
    struct loader *loader = malloc(sizeof *loader);
    if (!loader)
        return error_set(ALNICO_ERROR_MEMORY, "loader_create: no memory");
    *loader = (struct loader){.options = *options,
                              .begun = options->first,
                              .given = options->first,
                              .returned = options->first,
                              .slots = calloc(options->slots, sizeof *loader->slots),
                              .workers = calloc(options->threads + 1, sizeof *loader->workers)};
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->done, NULL);
    pthread_cond_init(&loader->wanted, NULL);
    const alnico_status_t status = loader->slots && loader->workers
                                       ? workers_start(loader)
                                       : error_set(ALNICO_ERROR_MEMORY, "loader_create: no memory");
    if (status != ALNICO_SUCCESS)
        loader_destroy(loader);
    else
        *out = loader;
    return status;
}

/* Under the lock: whether the next batch is there. */
static bool next_ready(struct loader *loader)
{
    const struct slot *slot = slot_of(loader, loader->given);
    return loader->given < loader->begun && slot->done == slot->parts;
}

alnico_status_t loader_next(struct loader *loader, size_t *out)
{
    alnico_status_t status = ALNICO_SUCCESS;
    pthread_mutex_lock(&loader->lock);
    if (loader->given - loader->returned == loader->options.held) {
        loader->returned++;
        pthread_cond_signal(&loader->wanted);
    }
    while (!next_ready(loader))
        if (loader->options.threads || !work_once(loader, 0))
            pthread_cond_wait(&loader->done, &loader->lock);
    const struct slot *slot = slot_of(loader, loader->given);
    *out = (size_t)(slot - loader->slots);
    if (slot->status != ALNICO_SUCCESS)
        status = error_set(slot->status, "%s", slot->detail);
    else
        loader->given++;
    pthread_mutex_unlock(&loader->lock);
    return status;
}

void loader_destroy(struct loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->wanted);
    pthread_mutex_unlock(&loader->lock);
    for (size_t i = 0; i < loader->started; i++)
        pthread_join(loader->workers[i].thread, NULL);
    pthread_cond_destroy(&loader->wanted);
    pthread_cond_destroy(&loader->done);
    pthread_mutex_destroy(&loader->lock);
    free(loader->workers);
    free(loader->slots);
    free(loader);
}
