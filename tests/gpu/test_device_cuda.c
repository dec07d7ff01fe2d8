/* Every slot of the CUDA device: memory, copies, arithmetic's order, events, flags by both ways,
 * and what it refuses. Ends by printing what flags, events and short copies cost. */
#include "tests/gpu/support/gpu.h"

#include "device/cuda/math.h"
#include "train/base/random.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/support/patience.h"

static const struct device_ops *const device = &device_cuda;
static uint64_t seed, generator;

#define OK(call) assert_int_equal((call), ALNICO_SUCCESS)

static size_t random_below(size_t bound)
{
    return (size_t)(random_next(&generator) % bound);
}

static void fill(void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)memory)[i] = (unsigned char)random_next(&generator);
}

static void *new_stream(void)
{
    void *stream = NULL;
    OK(device->stream_create(&stream));
    assert_non_null(stream);
    return stream;
}

static struct device_flag *new_flag(void)
{
    struct device_flag *flag = NULL;
    OK(device->flag_create(&flag));
    assert_non_null(flag);
    assert_int_equal(device->flag_read(flag), 0);
    return flag;
}

/* A stream that waits until `gate` is raised to 1. */
static void *held_stream(struct device_flag *gate)
{
    void *stream = new_stream();
    OK(device->stream_await(stream, gate, 1));
    return stream;
}

/* ---- Memory and copies ---- */

static void table_is_found(void **state)
{
    (void)state;
    assert_ptr_equal(device_find(ALNICO_DEVICE_CUDA), device);
    assert_string_equal(device->name, "cuda");
    assert_int_equal(device->kind, ALNICO_DEVICE_CUDA);
    assert_false(device->host_accessible);
    OK(device->probe());
    OK(device->prepare());
    OK(device->prepare());
}

static void memory_is_aligned(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 4097, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *on_gpu = NULL, *pinned = NULL;
        OK(device->alloc(sizes[i], &on_gpu));
        OK(device->pinned_alloc(sizes[i], &pinned));
        assert_true(on_gpu && pinned);
        assert_int_equal((uintptr_t)on_gpu % 64, 0);
        assert_int_equal((uintptr_t)pinned % 64, 0);
        struct cudaPointerAttributes attributes;
        GPU(cudaPointerGetAttributes(&attributes, pinned));
        assert_ptr_equal(attributes.devicePointer, pinned); /* kernels use the host's address */
        memset(pinned, 1, sizes[i]);
        device->free(on_gpu);
        device->pinned_free(pinned);
    }
    device->free(NULL);
    device->pinned_free(NULL);
}

static void pinned_memory_is_used_again(void **state)
{
    (void)state;
    void *first, *second, *other;
    OK(device->pinned_alloc(3 << 20, &first));
    memset(first, 1, 3 << 20);
    OK(device->pinned_alloc(3 << 20, &other));
    assert_ptr_not_equal(first, other);
    device->pinned_free(first);
    OK(device->pinned_alloc((3 << 20) - 100, &second));
    assert_ptr_equal(first, second);
    device->pinned_free(other);
    device->pinned_free(second);
}

static void *raise_later(void *gate)
{
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    device->flag_raise(gate, 1);
    return NULL;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A message of a call whose turn comes behind it may be what the stream waits for. */
static void pinned_memory_is_freed_while_a_stream_waits(void **state)
{
    (void)state;
    struct device_flag *gate = new_flag();
    void *stream, *memory;
    pthread_t thread;
    OK(device->pinned_alloc(5 << 20, &memory));
    stream = held_stream(gate);
    assert_int_equal(pthread_create(&thread, NULL, raise_later, gate), 0);
    double start = seconds_now();
    device->pinned_free(memory);
    OK(device->pinned_alloc(5 << 20, &memory));
    device->pinned_free(memory);
    assert_true(seconds_now() - start < 0.5);
    pthread_join(thread, NULL);
    OK(device->stream_synchronize(stream));
    device->flag_destroy(gate);
    device->stream_destroy(stream);
}

/* Also where some of it waits to be given back. */
static void memory_is_made_while_a_stream_waits(void **state)
{
    (void)state;
    struct device_flag *gate = new_flag();
    void *stream, *memory;
    pthread_t thread;
    OK(device->alloc(16, &memory));
    stream = held_stream(gate);
    device->free(memory);
    assert_int_equal(pthread_create(&thread, NULL, raise_later, gate), 0);
    double start = seconds_now();
    OK(device->alloc(16, &memory));
    double took = seconds_now() - start;
    pthread_join(thread, NULL);
    OK(device->stream_synchronize(stream));
    device->free(memory);
    device->flag_destroy(gate);
    device->stream_destroy(stream);
    assert_true(took < 0.5);
}

static void impossible_sizes_are_errors(void **state)
{
    (void)state;
    void *memory = &generator;
    assert_int_equal(device->alloc(SIZE_MAX / 2, &memory), ALNICO_ERROR_MEMORY);
    assert_null(memory);
    assert_non_null(strstr(alnico_error_detail(), "bytes of GPU memory"));
    memory = &generator;
    assert_true(device->pinned_alloc(SIZE_MAX / 2, &memory) != ALNICO_SUCCESS);
    assert_null(memory);
    assert_non_null(strstr(alnico_error_detail(), "bytes of pinned memory"));
    GPU(cudaGetLastError()); /* nothing is left behind */
    OK(device->alloc(16, &memory));
    device->free(memory);
}

/* From pinned memory to the GPU, within it, and back. */
static void copies_are_exact(void **state)
{
    (void)state;
    enum { BYTES = 5000, ROOM = BYTES + 128 };
    unsigned char *from, *to, *before = malloc(ROOM);
    char *a, *b;
    void *stream = new_stream();
    OK(device->pinned_alloc(ROOM, (void **)&from));
    OK(device->pinned_alloc(ROOM, (void **)&to));
    OK(device->alloc(ROOM, (void **)&a));
    OK(device->alloc(ROOM, (void **)&b));
    assert_non_null(before);
    for (int round = 0; round < 200; round++) {
        size_t bytes = random_below(BYTES), at = random_below(64), into = random_below(64);
        void *on = round % 2 ? stream : NULL;
        fill(from, ROOM);
        fill(to, ROOM);
        memcpy(before, to, ROOM);
        OK(device->copy(a + into, from + at, bytes, on));
        OK(device->copy(b + at, a + into, bytes, on));
        OK(device->copy(to + into, b + at, bytes, on));
        OK(device->stream_synchronize(on));
        assert_memory_equal(to, before, into);
        assert_memory_equal(to + into, from + at, bytes);
        assert_memory_equal(to + into + bytes, before + into + bytes, ROOM - into - bytes);
    }
    OK(device->copy(NULL, NULL, 0, stream));
    device->stream_destroy(stream);
    device->stream_destroy(NULL);
    device->pinned_free(from);
    device->pinned_free(to);
    device->free(a);
    device->free(b);
    free(before);
}

/* The pieces depend on each other: out of order the last one would be wrong. */
static void work_on_a_stream_waits_for_what_came_before(void **state)
{
    (void)state;
    struct device_flag *gate = new_flag();
    void *stream = held_stream(gate);
    int32_t *host, *a, *b;
    OK(device->pinned_alloc(12 * sizeof *host, (void **)&host));
    OK(device->alloc(4 * sizeof *a, (void **)&a));
    OK(device->alloc(4 * sizeof *b, (void **)&b));
    for (int i = 0; i < 12; i++)
        host[i] = i < 4 ? i + 1 : -1;
    OK(device->copy(a, host, 16, stream));
    OK(device->copy(b, a, 16, stream));
    OK(device->reduce(b, b, a, 4, ALNICO_INT32, ALNICO_PRODUCT, stream));
    OK(device->copy(host + 4, b, 16, stream));
    OK(device->divide(a, b, 4, ALNICO_INT32, 2, stream));
    OK(device->copy(host + 8, a, 16, stream));
    nap_us(2000);
    assert_int_equal(host[7], -1);
    host[0] = 10; /* before the stream reads it */
    device->flag_raise(gate, 1);
    OK(device->stream_synchronize(stream));
    static const int32_t expected[] = {100, 4, 9, 16, 50, 2, 4, 8};
    assert_memory_equal(host + 4, expected, sizeof expected);
    device->stream_destroy(stream);
    device->flag_destroy(gate);
    device->pinned_free(host);
    device->free(a);
    device->free(b);
}

/* ---- Events ---- */

static void events_follow_their_streams(void **state)
{
    (void)state;
    struct device_flag *first = new_flag(), *second = new_flag();
    void *a = held_stream(first), *b = held_stream(second), *waiter = new_stream();
    struct device_event *event, *passed;
    OK(device->event_create(&event));
    OK(device->event_create(&passed));
    assert_true(device->event_complete(event)); /* never recorded */
    OK(device->event_synchronize(event));
    OK(device->stream_wait(waiter, event));
    OK(device->event_record(event, a));
    OK(device->stream_wait(waiter, event));
    OK(device->event_record(passed, waiter));
    OK(device->event_record(event, b)); /* it moves; the waiter has the old mark in mind */
    nap_us(2000);
    assert_false(device->event_complete(passed));
    device->flag_raise(first, 1);
    OK(device->event_synchronize(passed));
    assert_false(device->event_complete(event));
    device->flag_raise(second, 1);
    OK(device->event_synchronize(event));
    assert_true(device->event_complete(event));
    OK(device->stream_synchronize(waiter));
    device->event_destroy(event);
    device->event_destroy(passed);
    device->event_destroy(NULL);
    device->stream_destroy(a);
    device->stream_destroy(b);
    device->stream_destroy(waiter);
    device->flag_destroy(first);
    device->flag_destroy(second);
}

/* ---- Flags ---- */

static void flag_only_grows_from_the_host(void **state)
{
    (void)state;
    struct device_flag *flag = new_flag();
    device->flag_wait(flag, 0);
    device->flag_raise(flag, 7);
    device->flag_raise(flag, 3);
    assert_int_equal(device->flag_read(flag), 7);
    device->flag_wait(flag, 7);
    device->flag_raise(flag, UINT32_C(0x7fffffff));
    device->flag_raise(flag, UINT32_C(0xfffffff0));
    device->flag_raise(flag, 5);
    assert_int_equal(device->flag_read(flag), 5);
    device->flag_wait(flag, UINT32_C(0xffffffff));
    device->flag_destroy(flag);
    device->flag_destroy(NULL);
}

/* More than a page has; no two share a cache line; a used one begins at 0 again. */
static void flags_are_apart(void **state)
{
    (void)state;
    enum { MANY = 3000 };
    struct device_flag **flags = malloc(MANY * sizeof *flags);
    assert_non_null(flags);
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < MANY; i++) {
            flags[i] = new_flag();
            assert_int_equal((uintptr_t)flags[i] % 64, 0);
            device->flag_raise(flags[i], i + 1);
        }
        for (uint32_t i = 0; i < MANY; i++)
            assert_int_equal(device->flag_read(flags[i]), i + 1);
        for (int i = 0; i < MANY; i++)
            device->flag_destroy(flags[i]);
    }
    free(flags);
}

struct waiter {
    struct device_flag *flag;
    atomic_bool passed;
};

static void *wait_for_two(void *argument)
{
    struct waiter *waiter = argument;
    device->flag_wait(waiter->flag, 2);
    atomic_store(&waiter->passed, true);
    return NULL;
}

static void host_waits_for_a_stream(void **state)
{
    (void)state;
    struct device_flag *flag = new_flag(), *gate = new_flag();
    struct waiter waiter = {.flag = flag};
    void *stream = held_stream(gate);
    pthread_t thread;
    OK(device->stream_raise(stream, flag, 2));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_two, &waiter), 0);
    nap_us(5000);
    assert_false(atomic_load(&waiter.passed));
    device->flag_raise(gate, 1);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&waiter.passed));
    device->stream_destroy(stream);
    device->flag_destroy(flag);
    device->flag_destroy(gate);
}

/* How a stream raises and awaits: by itself, or by kernels. */
struct way {
    const char *name;
    alnico_status_t (*raise)(void *stream, struct device_flag *flag, uint32_t value);
    alnico_status_t (*await)(void *stream, struct device_flag *flag, uint32_t value);
};

static alnico_status_t raise_by_kernel(void *stream, struct device_flag *flag, uint32_t value)
{
    return flag_cuda_raise((uint32_t *)flag, value, stream) ? ALNICO_ERROR_SYSTEM : ALNICO_SUCCESS;
}

static alnico_status_t await_by_kernel(void *stream, struct device_flag *flag, uint32_t value)
{
    return flag_cuda_await((uint32_t *)flag, value, stream) ? ALNICO_ERROR_SYSTEM : ALNICO_SUCCESS;
}

static struct way ways[] = {{"stream operations", NULL, NULL},
                            {"kernels", raise_by_kernel, await_by_kernel}};

static void raise_and_await_in_order(const struct way *way, uint32_t base)
{
    struct device_flag *ready = new_flag(), *done = new_flag();
    void *stream = new_stream();
    if (base) { /* by steps of less than 2^31 */
        device->flag_raise(ready, INT32_MAX);
        device->flag_raise(ready, base);
        device->flag_raise(done, INT32_MAX);
        device->flag_raise(done, base);
    }
    OK(way->raise(stream, ready, base + 4));
    OK(way->await(stream, done, base + 9));
    OK(way->raise(stream, ready, base + 5));
    device->flag_wait(ready, base + 4);
    device->flag_raise(done, base + 8);
    nap_us(5000);
    assert_int_equal(device->flag_read(ready), base + 4);
    device->flag_raise(done, base + 12); /* beyond what is awaited */
    device->flag_wait(ready, base + 5);
    OK(device->stream_synchronize(stream));
    device->stream_destroy(stream);
    device->flag_destroy(ready);
    device->flag_destroy(done);
}

static void streams_raise_and_await_in_order(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        raise_and_await_in_order(&ways[i], 0);
        raise_and_await_in_order(&ways[i], UINT32_MAX - 6);
    }
}

static void *raise_in_a_while(void *flag)
{
    nap_us(2000000);
    device->flag_raise(flag, 1);
    return NULL;
}

/* Of a little of the GPU's own memory, for which cudaFree waits. */
static void giving_memory_back_waits_for_no_kernel(void **state)
{
    (void)state;
    struct device_flag *gate = new_flag();
    void *stream = new_stream(), *memory = NULL;
    pthread_t thread;
    OK(device->alloc(8192, &memory));
    OK(await_by_kernel(stream, gate, 1));
    assert_int_equal(pthread_create(&thread, NULL, raise_in_a_while, gate), 0);
    double start = now_s();
    device->free(memory);
    double waited = now_s() - start;
    pthread_join(thread, NULL);
    OK(device->stream_synchronize(stream));
    device->stream_destroy(stream);
    device->flag_destroy(gate);
    printf("giving memory back took %.3f s beside a kernel that spins\n", waited);
    assert_true(waited < 1);
}

/* What a stream wrote before a raise is there when the host sees the value, round after round. */
static void raise_publishes_what_came_before(void **state)
{
    (void)state;
    enum { COUNT = 20000, ROUNDS = 200 };
    for (int w = 0; w < 2; w++) {
        struct device_flag *ready = new_flag(), *done = new_flag();
        void *stream = new_stream();
        uint32_t *host, *on_gpu;
        OK(device->pinned_alloc(COUNT * sizeof *host, (void **)&host));
        OK(device->alloc(COUNT * sizeof *on_gpu, (void **)&on_gpu));
        for (int i = 0; i < COUNT; i++)
            host[i] = 1;
        OK(device->copy(on_gpu, host, COUNT * sizeof *host, stream));
        for (uint32_t round = 1; round <= ROUNDS; round++) { /* doubles what the host wrote last */
            OK(device->reduce(host, on_gpu, on_gpu, COUNT, ALNICO_UINT32, ALNICO_SUM, stream));
            OK(ways[w].raise(stream, ready, round));
            OK(ways[w].await(stream, done, round));
            OK(device->copy(on_gpu, host, COUNT * sizeof *host, stream));
            device->flag_wait(ready, round);
            for (int i = 0; i < COUNT; i++)
                assert_int_equal(host[i], 2 * round);
            for (int i = 0; i < COUNT; i++)
                host[i] = round + 1;
            device->flag_raise(done, round);
        }
        OK(device->stream_synchronize(stream));
        device->stream_destroy(stream);
        device->pinned_free(host);
        device->free(on_gpu);
        device->flag_destroy(ready);
        device->flag_destroy(done);
    }
}

/* ---- Short copies with a flag ---- */

enum { SHORT_MOST = 70000, SHORT_ROOM = SHORT_MOST + 256 };

struct short_copies {
    unsigned char *pinned, *on_gpu, *image;
    struct device_flag *ready, *done, *skip;
    void *stream;
    uint32_t round;
};

/* One exchange with the host, which inverts what comes; with `skipped` the result must not
 * arrive. */
static void run_short(struct short_copies *s, size_t bytes, size_t shift, bool skipped)
{
    unsigned char *host = s->pinned + 64 + shift, *memory = s->on_gpu + 64 + shift;
    fill(s->image, SHORT_ROOM);
    GPU(cudaMemcpy(s->on_gpu, s->image, SHORT_ROOM, cudaMemcpyHostToDevice));
    GPU(cudaDeviceSynchronize());
    memset(s->pinned, 0x77, SHORT_ROOM);
    s->round++;
    OK(device->copy_raise(host, memory, bytes, s->ready, s->round, s->stream));
    OK(device->await_copy(memory, host, bytes, s->done, s->round, s->skip, s->stream));
    device->flag_wait(s->ready, s->round);
    assert_memory_equal(host, s->image + 64 + shift, bytes);
    for (size_t i = 0; i < SHORT_ROOM; i++)
        if (i < 64 + shift || i >= 64 + shift + bytes)
            assert_int_equal(s->pinned[i], 0x77);
    for (size_t i = 0; i < bytes; i++)
        host[i] = (unsigned char)~host[i];
    if (skipped)
        device->flag_raise(s->skip, 1);
    device->flag_raise(s->done, s->round);
    OK(device->stream_synchronize(s->stream));
    for (size_t i = 0; i < bytes && !skipped; i++)
        s->image[64 + shift + i] = (unsigned char)~s->image[64 + shift + i];
    GPU(cudaMemcpy(s->pinned, s->on_gpu, SHORT_ROOM, cudaMemcpyDeviceToHost));
    assert_memory_equal(s->pinned, s->image, SHORT_ROOM);
}

static void short_copies_meet_their_flags(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,    1,    4,     15,    16,    17,        64,
                                   1000, 4096, 16384, 32768, 65536, SHORT_MOST};
    struct short_copies s = {.ready = new_flag(), .done = new_flag(), .skip = new_flag()};
    s.stream = new_stream();
    s.image = malloc(SHORT_ROOM);
    assert_non_null(s.image);
    OK(device->pinned_alloc(SHORT_ROOM, (void **)&s.pinned));
    OK(device->alloc(SHORT_ROOM, (void **)&s.on_gpu));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t shift = 0; shift < 17; shift += i % 3 + 1)
            run_short(&s, sizes[i], shift, false);
    for (int i = 0; i < 200; i++)
        run_short(&s, random_below(5000), random_below(16), false);
    run_short(&s, 5000, 3, true);
    device->stream_destroy(s.stream);
    device->pinned_free(s.pinned);
    device->free(s.on_gpu);
    device->flag_destroy(s.ready);
    device->flag_destroy(s.done);
    device->flag_destroy(s.skip);
    free(s.image);
}

/* ---- What it refuses ---- */

static void refused(alnico_status_t status, const char *text)
{
    assert_int_equal(status, ALNICO_ERROR_ARGUMENT);
    if (!strstr(alnico_error_detail(), text))
        fail_msg("'%s' does not say '%s'", alnico_error_detail(), text);
}

static void memory_that_is_not_the_gpus_is_refused(void **state)
{
    (void)state;
    int on_stack = 0, *pinned, *on_gpu, *managed, *heap = malloc(64);
    GPU(cudaMallocHost((void **)&pinned, 64));
    GPU(cudaMalloc((void **)&on_gpu, 64));
    GPU(cudaMallocManaged((void **)&managed, 64, cudaMemAttachGlobal));
    OK(device->check_memory(on_gpu, "send", "who"));
    OK(device->check_memory(on_gpu + 5, "send", "who"));
    OK(device->check_memory(managed, "send", "who"));
    uintptr_t from = 0;
    size_t bytes = 0;
    assert_true(device->extent(on_gpu + 5, &from, &bytes));
    assert_true(from <= (uintptr_t)on_gpu && (uintptr_t)(on_gpu + 16) <= from + bytes);
    refused(device->check_memory(&on_stack, "send", "who"), "who: send");
    refused(device->check_memory(heap, "recv", "who"), "is host memory");
    refused(device->check_memory(pinned, "recv", "who"), "is host memory");
    GPU(cudaGetLastError());
    if (gpu_count() > 1) {
        device->enter(1);
        refused(device->check_memory(on_gpu, "send", "who"),
                "is memory of GPU 0, and the communicator is on GPU 1");
        device->enter(0);
    }
    GPU(cudaFree(managed));
    GPU(cudaFree(on_gpu));
    GPU(cudaFreeHost(pinned));
    free(heap);
}

static void stream_of_another_gpu_is_refused(void **state)
{
    (void)state;
    void *stream = new_stream();
    OK(device->check_stream(NULL, "who"));
    OK(device->check_stream(cudaStreamLegacy, "who"));
    OK(device->check_stream(cudaStreamPerThread, "who"));
    OK(device->check_stream(stream, "who"));
    if (gpu_count() > 1) {
        assert_int_equal(device->current(), 0);
        OK(device->enter(1));
        assert_int_equal(device->current(), 1);
        OK(device->check_stream(NULL, "who"));
        refused(device->check_stream(stream, "who"), "is of GPU 0, and GPU 1 is");
        OK(device->enter(0));
    }
    assert_true(device->enter(gpu_count()) != ALNICO_SUCCESS);
    GPU(cudaGetLastError());
    device->stream_destroy(stream);
}

/* Also before the thread has a context. */
static void *call_from_a_new_thread(void *index)
{
    if (*(int *)index > 0)
        OK(device->enter(*(int *)index));
    assert_int_equal(device->current(), *(int *)index);
    int found = -1;
    GPU(cudaGetDevice(&found));
    assert_int_equal(found, *(int *)index);
    return NULL;
}

static void every_thread_has_a_current_device(void **state)
{
    (void)state;
    for (int i = 0; i < gpu_count() && i < 2; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, call_from_a_new_thread, &i), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_int_equal(device->current(), 0);
}

/* ---- Captures ---- */

static void *work_beside_a_capture(void *argument)
{
    struct device_event *event = argument;
    void *pinned = NULL, *on_gpu = NULL;
    bool good = device->event_complete(event);
    good &= device->event_synchronize(event) == ALNICO_SUCCESS;
    good &= device->pinned_alloc(4096, &pinned) == ALNICO_SUCCESS;
    good &= device->alloc(4096, &on_gpu) == ALNICO_SUCCESS;
    device->pinned_free(pinned);
    device->free(on_gpu);
    return good ? event : NULL;
}

/* The strictest mode, which forbids such calls to all threads: the engine's must not break a user's
 * capture. */
static void captures_are_seen_and_left_alone(void **state)
{
    (void)state;
    cudaStream_t stream = (cudaStream_t)new_stream();
    void *other = new_stream(), *result = NULL;
    struct device_event *event;
    pthread_t thread;
    cudaGraph_t graph = NULL;
    OK(device->event_create(&event));
    OK(device->event_record(event, other));
    OK(device->stream_synchronize(other));
    assert_false(device->capturing(stream));
    assert_false(device->capturing(NULL));
    GPU(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    assert_true(device->capturing(stream));
    assert_false(device->capturing(other));
    assert_non_null(work_beside_a_capture(event));
    assert_int_equal(pthread_create(&thread, NULL, work_beside_a_capture, event), 0);
    pthread_join(thread, &result);
    assert_non_null(result);
    GPU(cudaStreamEndCapture(stream, &graph));
    assert_non_null(graph);
    assert_false(device->capturing(stream));
    GPU(cudaGraphDestroy(graph));
    device->event_destroy(event);
    device->stream_destroy(stream);
    device->stream_destroy(other);
}

/* ---- What it costs ---- */

enum { TIMES = 2000 };

static double raise_us(const struct way *way, void *stream)
{
    struct device_flag *flag = new_flag();
    double begin = now_s();
    for (uint32_t i = 1; i <= TIMES; i++) {
        OK(way->raise(stream, flag, i));
        while (device->flag_read(flag) != i)
            ;
    }
    double us = (now_s() - begin) / TIMES * 1e6;
    device->flag_destroy(flag);
    return us;
}

static double round_trip_us(const struct way *way, void *stream)
{
    struct device_flag *to = new_flag(), *back = new_flag();
    double spent = 0;
    for (uint32_t i = 1; i <= TIMES; i++) {
        OK(way->await(stream, to, i));
        OK(way->raise(stream, back, i));
        nap_us(20); /* the stream is at the await */
        double begin = now_s();
        device->flag_raise(to, i);
        while (device->flag_read(back) != i)
            ;
        spent += now_s() - begin;
    }
    device->flag_destroy(to);
    device->flag_destroy(back);
    return spent / TIMES * 1e6;
}

static double short_copy_us(void *stream, size_t bytes)
{
    struct device_flag *ready = new_flag(), *done = new_flag(), *skip = new_flag();
    void *pinned, *on_gpu;
    OK(device->pinned_alloc(bytes, &pinned));
    OK(device->alloc(bytes, &on_gpu));
    double begin = now_s();
    for (uint32_t i = 1; i <= TIMES; i++) {
        OK(device->copy_raise(pinned, on_gpu, bytes, ready, i, stream));
        OK(device->await_copy(on_gpu, pinned, bytes, done, i, skip, stream));
        while (device->flag_read(ready) != i)
            ;
        device->flag_raise(done, i);
    }
    OK(device->stream_synchronize(stream));
    double us = (now_s() - begin) / TIMES * 1e6;
    device->pinned_free(pinned);
    device->free(on_gpu);
    device->flag_destroy(ready);
    device->flag_destroy(done);
    device->flag_destroy(skip);
    return us;
}

static double event_us(void *stream)
{
    struct device_event *event;
    OK(device->event_create(&event));
    double begin = now_s();
    for (int i = 0; i < TIMES; i++) {
        OK(device->event_record(event, stream));
        while (!device->event_complete(event))
            ;
    }
    double us = (now_s() - begin) / TIMES * 1e6;
    device->event_destroy(event);
    return us;
}

static void costs_are_printed(void **state)
{
    (void)state;
    void *stream = new_stream();
    printf("us until the host sees an event: %.2f\n", event_us(stream));
    for (int i = 0; i < 2; i++) {
        raise_us(&ways[i], stream);
        printf("us by %s: a raise until the host sees it %.2f; host, await, raise, host %.2f\n",
               ways[i].name, raise_us(&ways[i], stream), round_trip_us(&ways[i], stream));
    }
    for (size_t bytes = 4; bytes <= 65536; bytes *= bytes < 4096 ? 32 : 2)
        printf("us for a short message of %zu bytes to the host and back: %.2f\n", bytes,
               short_copy_us(stream, bytes));
    device->stream_destroy(stream);
}

int main(void)
{
    gpu_require(1);
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    generator = seed;
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    ways[0].raise = device->stream_raise;
    ways[0].await = device->stream_await;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_found),
        cmocka_unit_test(memory_is_aligned),
        cmocka_unit_test(pinned_memory_is_used_again),
        cmocka_unit_test(pinned_memory_is_freed_while_a_stream_waits),
        cmocka_unit_test(memory_is_made_while_a_stream_waits),
        cmocka_unit_test(impossible_sizes_are_errors),
        cmocka_unit_test(copies_are_exact),
        cmocka_unit_test(work_on_a_stream_waits_for_what_came_before),
        cmocka_unit_test(events_follow_their_streams),
        cmocka_unit_test(flag_only_grows_from_the_host),
        cmocka_unit_test(flags_are_apart),
        cmocka_unit_test(host_waits_for_a_stream),
        cmocka_unit_test(streams_raise_and_await_in_order),
        cmocka_unit_test(giving_memory_back_waits_for_no_kernel),
        cmocka_unit_test(raise_publishes_what_came_before),
        cmocka_unit_test(short_copies_meet_their_flags),
        cmocka_unit_test(memory_that_is_not_the_gpus_is_refused),
        cmocka_unit_test(stream_of_another_gpu_is_refused),
        cmocka_unit_test(every_thread_has_a_current_device),
        cmocka_unit_test(captures_are_seen_and_left_alone),
        cmocka_unit_test(costs_are_printed),
    };
    alarm(2 * WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
