/*
 * The CPU as a device: memory is host memory, and a stream is a first-in first-out queue of
 * functions with a worker thread of its own, so that ordering, overlap and errors mean what they
 * mean on a GPU. Work on the inline stream (NULL) runs on the caller's thread at once. Any thread
 * may call.
 */
#include "device/device.h"

#include "base/datatype.h"
#include "base/status.h"
#include "base/thread.h"
#include "device/backoff.h"
#include "device/cpu/math.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALIGNMENT = 64 };

static alnico_status_t cpu_alloc(size_t bytes, void **out)
{
    *out = NULL;
    if (bytes > SIZE_MAX - ALIGNMENT)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate %zu bytes", bytes);
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *out = aligned_alloc(ALIGNMENT, rounded ? rounded : ALIGNMENT);
    if (!*out)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate %zu bytes", bytes);
    return ALNICO_SUCCESS;
}

/* The kernel's estimate of what a program can still get. */
static alnico_status_t cpu_memory(size_t *available, size_t *total)
{
    unsigned long long all = 0, left = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "MemTotal: %llu", &all);
        sscanf(line, "MemAvailable: %llu", &left);
    }
    if (file)
        fclose(file);
    if (!all || !left)
        return error_set(ALNICO_ERROR_SYSTEM,
                         "/proc/meminfo does not say how much memory there is");
    *available = (size_t)left * 1024;
    *total = (size_t)all * 1024;
    return ALNICO_SUCCESS;
}

struct device_flag {
    _Atomic uint32_t value;
    atomic_int raisers;  /* threads inside a raise */
    atomic_int sleepers; /* threads that hold or want `lock` in order to sleep */
    pthread_mutex_t lock;
    pthread_cond_t raised;
};

/* Values are compared modulo 2^32, so that a flag may be raised for ever. */
static bool reached(uint32_t value, uint32_t target)
{
    return (int32_t)(value - target) >= 0;
}

static alnico_status_t cpu_flag_create(struct device_flag **out)
{
    struct device_flag *flag = calloc(1, sizeof *flag);
    *out = flag;
    if (!flag)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate a flag");
    pthread_mutex_init(&flag->lock, NULL);
    pthread_cond_init(&flag->raised, NULL);
    return ALNICO_SUCCESS;
}

/* A thread that saw the raised value may destroy the flag while the raiser still looks for
 * sleepers: the raiser is waited for. */
static void cpu_flag_destroy(struct device_flag *flag)
{
    if (!flag)
        return;
    while (atomic_load_explicit(&flag->raisers, memory_order_acquire) > 0)
        sched_yield();
    pthread_cond_destroy(&flag->raised);
    pthread_mutex_destroy(&flag->lock);
    free(flag);
}

/* Value and sleepers are sequentially consistent on both sides: either the raiser sees the sleeper
 * or the sleeper the value. The exchange publishes `raisers` with the value; leaving it is the last
 * touch. */
static void cpu_flag_raise(struct device_flag *flag, uint32_t value)
{
    atomic_fetch_add_explicit(&flag->raisers, 1, memory_order_relaxed);
    uint32_t seen = atomic_load(&flag->value);
    while (!reached(seen, value) && !atomic_compare_exchange_weak(&flag->value, &seen, value))
        ;
    if (atomic_load(&flag->sleepers) > 0) {
        pthread_mutex_lock(&flag->lock);
        pthread_cond_broadcast(&flag->raised);
        pthread_mutex_unlock(&flag->lock);
    }
    atomic_fetch_sub_explicit(&flag->raisers, 1, memory_order_release);
}

static uint32_t cpu_flag_read(const struct device_flag *flag)
{
    return atomic_load_explicit(&flag->value, memory_order_acquire);
}

static void cpu_flag_wait(struct device_flag *flag, uint32_t value)
{
    struct backoff backoff = {0};
    while (!reached(cpu_flag_read(flag), value))
        if (backoff_wants_sleep(&backoff))
            break;
    if (reached(cpu_flag_read(flag), value))
        return;
    pthread_mutex_lock(&flag->lock);
    atomic_fetch_add(&flag->sleepers, 1);
    while (!reached(atomic_load(&flag->value), value))
        pthread_cond_wait(&flag->raised, &flag->lock);
    atomic_fetch_sub(&flag->sleepers, 1);
    pthread_mutex_unlock(&flag->lock);
}

struct task {
    struct task *next;
    void (*run)(struct task *);
    union {
        struct {
            void (*function)(void *);
            void *argument;
        } call;
        struct {
            struct device_flag *flag;
            uint32_t value;
        } flag;
        struct {
            void *dst;
            const void *a, *b;
            size_t count;
            alnico_datatype_t type;
            alnico_op_t op;
            int ranks;
            struct device_scalar scalar;
        } math;
    };
};

struct alnico_stream {
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something was enqueued, or a task has run */
    struct task *head, **tail;
    uint64_t enqueued, done; /* tasks so far */
    bool closing;
};

static void *stream_work(void *argument)
{
    struct alnico_stream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (!stream->head && !stream->closing)
            pthread_cond_wait(&stream->changed, &stream->lock);
        struct task *task = stream->head;
        if (!task)
            break;
        stream->head = task->next;
        if (!stream->head)
            stream->tail = &stream->head;
        pthread_mutex_unlock(&stream->lock);
        task->run(task);
        free(task);
        pthread_mutex_lock(&stream->lock);
        stream->done++;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

alnico_status_t alnico_stream_create(alnico_stream_t *out)
{
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "alnico_stream_create: out is NULL");
    *out = NULL;
    struct alnico_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return error_set(ALNICO_ERROR_MEMORY, "alnico_stream_create: no memory");
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    stream->tail = &stream->head;
    int error = thread_create(&stream->worker, stream_work, stream);
    if (error) {
        pthread_cond_destroy(&stream->changed);
        pthread_mutex_destroy(&stream->lock);
        free(stream);
        return error_set(ALNICO_ERROR_SYSTEM, "alnico_stream_create: no thread: %s",
                         strerror(error));
    }
    *out = stream;
    return ALNICO_SUCCESS;
}

void alnico_stream_destroy(alnico_stream_t stream)
{
    if (!stream)
        return;
    pthread_mutex_lock(&stream->lock);
    stream->closing = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->worker, NULL);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

/* Runs the task now on the inline stream, or appends a copy of it. */
static alnico_status_t stream_run(void *opaque, struct task task)
{
    struct alnico_stream *stream = opaque;
    if (!stream) {
        task.run(&task);
        return ALNICO_SUCCESS;
    }
    struct task *copy = malloc(sizeof *copy);
    if (!copy)
        return error_set(ALNICO_ERROR_MEMORY, "cannot enqueue on a stream: no memory");
    *copy = task;
    pthread_mutex_lock(&stream->lock);
    *stream->tail = copy;
    stream->tail = &copy->next;
    stream->enqueued++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return ALNICO_SUCCESS;
}

static void run_call(struct task *task)
{
    task->call.function(task->call.argument);
}

alnico_status_t alnico_stream_enqueue(alnico_stream_t stream, void (*function)(void *),
                                      void *argument)
{
    if (!function)
        return error_set(ALNICO_ERROR_ARGUMENT, "alnico_stream_enqueue: function is NULL");
    return stream_run(stream, (struct task){.run = run_call, .call = {function, argument}});
}

static alnico_status_t cpu_stream_synchronize(void *opaque)
{
    struct alnico_stream *stream = opaque;
    if (!stream)
        return ALNICO_SUCCESS;
    if (pthread_equal(pthread_self(), stream->worker))
        return error_set(ALNICO_ERROR_ARGUMENT, "alnico_stream_synchronize: called by a function "
                                                "of the stream, which would wait for itself");
    pthread_mutex_lock(&stream->lock);
    uint64_t target = stream->enqueued;
    while (stream->done < target)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    return ALNICO_SUCCESS;
}

alnico_status_t alnico_stream_synchronize(alnico_stream_t stream)
{
    return cpu_stream_synchronize(stream);
}

static void run_copy(struct task *task)
{
    memcpy(task->math.dst, task->math.a, task->math.count);
}

static alnico_status_t cpu_copy(void *dst, const void *src, size_t bytes, void *stream)
{
    return bytes ? stream_run(stream, (struct task){.run = run_copy,
                                                    .math = {.dst = dst, .a = src, .count = bytes}})
                 : ALNICO_SUCCESS;
}

static void run_clear(struct task *task)
{
    memset(task->math.dst, 0, task->math.count);
}

static alnico_status_t cpu_clear(void *memory, size_t bytes, void *stream)
{
    return bytes ? stream_run(stream, (struct task){.run = run_clear,
                                                    .math = {.dst = memory, .count = bytes}})
                 : ALNICO_SUCCESS;
}

static void run_stamp(struct task *task)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *(uint64_t *)task->math.dst =
        (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static alnico_status_t cpu_stamp(uint64_t *out, void *stream)
{
    return stream_run(stream, (struct task){.run = run_stamp, .math = {.dst = out}});
}

static void run_reduce(struct task *task)
{
    math_reduce(task->math.dst, task->math.a, task->math.b, task->math.count, task->math.type,
                task->math.op);
}

static alnico_status_t cpu_reduce(void *dst, const void *a, const void *b, size_t count,
                                  alnico_datatype_t type, alnico_op_t op, void *stream)
{
    return stream_run(
        stream, (struct task){
                    .run = run_reduce,
                    .math = {.dst = dst, .a = a, .b = b, .count = count, .type = type, .op = op}});
}

static void run_divide(struct task *task)
{
    math_divide(task->math.dst, task->math.a, task->math.count, task->math.type, task->math.ranks);
}

static alnico_status_t cpu_divide(void *dst, const void *src, size_t count, alnico_datatype_t type,
                                  int ranks, void *stream)
{
    return stream_run(
        stream, (struct task){
                    .run = run_divide,
                    .math = {.dst = dst, .a = src, .count = count, .type = type, .ranks = ranks}});
}

static void run_scale(struct task *task)
{
    const struct device_scalar *factor = &task->math.scalar;
    math_scale(task->math.dst, task->math.a, task->math.count, task->math.type,
               factor->at ? factor->at : &factor->bits);
}

static alnico_status_t cpu_scale(void *dst, const void *src, size_t count, alnico_datatype_t type,
                                 const struct device_scalar *factor, void *stream)
{
    return stream_run(
        stream,
        (struct task){
            .run = run_scale,
            .math = {.dst = dst, .a = src, .count = count, .type = type, .scalar = *factor}});
}

static alnico_status_t cpu_stream_alloc(size_t bytes, void **out, void *stream)
{
    (void)stream;
    return cpu_alloc(bytes, out);
}

static void run_free(struct task *task)
{
    free(task->math.dst);
}

/* Without memory for the task the stream ends what it has first. */
static void cpu_stream_free(void *memory, void *stream)
{
    if (stream_run(stream, (struct task){.run = run_free, .math = {.dst = memory}}) !=
        ALNICO_SUCCESS) {
        cpu_stream_synchronize(stream);
        free(memory);
    }
}

static void run_raise(struct task *task)
{
    cpu_flag_raise(task->flag.flag, task->flag.value);
}

static alnico_status_t cpu_stream_raise(void *stream, struct device_flag *flag, uint32_t value)
{
    return stream_run(stream, (struct task){.run = run_raise, .flag = {flag, value}});
}

static void run_await(struct task *task)
{
    cpu_flag_wait(task->flag.flag, task->flag.value);
}

static alnico_status_t cpu_stream_await(void *stream, struct device_flag *flag, uint32_t value)
{
    return stream_run(stream, (struct task){.run = run_await, .flag = {flag, value}});
}

struct device_event {
    struct device_flag *flag;
    _Atomic uint32_t target;
};

static alnico_status_t cpu_event_create(struct device_event **out)
{
    struct device_event *event = calloc(1, sizeof *event);
    *out = event;
    if (!event)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate an event");
    alnico_status_t status = cpu_flag_create(&event->flag);
    if (status == ALNICO_SUCCESS)
        return status;
    free(event);
    *out = NULL;
    return status;
}

static void cpu_event_destroy(struct device_event *event)
{
    if (!event)
        return;
    cpu_flag_destroy(event->flag);
    free(event);
}

/* The target moves last: a record that fails leaves the event as it was. */
static alnico_status_t cpu_event_record(struct device_event *event, void *stream)
{
    uint32_t target = atomic_load(&event->target) + 1;
    TRY(cpu_stream_raise(stream, event->flag, target));
    atomic_store(&event->target, target);
    return ALNICO_SUCCESS;
}

static bool cpu_event_complete(struct device_event *event)
{
    return reached(cpu_flag_read(event->flag), atomic_load(&event->target));
}

static alnico_status_t cpu_event_synchronize(struct device_event *event)
{
    cpu_flag_wait(event->flag, atomic_load(&event->target));
    return ALNICO_SUCCESS;
}

static alnico_status_t cpu_stream_wait(void *stream, struct device_event *event)
{
    return cpu_stream_await(stream, event->flag, atomic_load(&event->target));
}

static alnico_status_t cpu_stream_create(void **out)
{
    return alnico_stream_create((alnico_stream_t *)out);
}

static void cpu_stream_destroy(void *stream)
{
    alnico_stream_destroy(stream);
}

const struct device_ops device_cpu = {
    .name = "cpu",
    .kind = ALNICO_DEVICE_CPU,
    .host_accessible = true,
    .check_memory = device_check_host,
    .extent = device_host_extent,
    .alloc = cpu_alloc,
    .free = free,
    .memory = cpu_memory,
    .pinned_alloc = cpu_alloc,
    .pinned_free = free,
    .copy = cpu_copy,
    .clear = cpu_clear,
    .stamp = cpu_stamp,
    .reduce = cpu_reduce,
    .divide = cpu_divide,
    .scale = cpu_scale,
    .stream_alloc = cpu_stream_alloc,
    .stream_free = cpu_stream_free,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .stream_synchronize = cpu_stream_synchronize,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_record,
    .event_complete = cpu_event_complete,
    .event_synchronize = cpu_event_synchronize,
    .stream_wait = cpu_stream_wait,
    .flag_create = cpu_flag_create,
    .flag_destroy = cpu_flag_destroy,
    .flag_raise = cpu_flag_raise,
    .flag_read = cpu_flag_read,
    .flag_wait = cpu_flag_wait,
    .stream_raise = cpu_stream_raise,
    .stream_await = cpu_stream_await,
};
