/* Communicators whose ranks are threads: allreduce in all its ways on the inline and on real
 * streams, requests, parts, and everything at once. No MPI is initialised. */
#include "comm/algorithms/algorithm.h"
#include "comm/communicator/comm.h"

#include "base/datatype.h"
#include "tests/support/cases.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t seed;

/* One allreduce of a rank with its own buffers. */
struct job {
    size_t count;
    alnico_datatype_t type;
    alnico_op_t op;
    uint64_t seed;
    char *send, *recv;
};

static struct job job_create(struct rank *rank, size_t count, alnico_datatype_t type,
                             alnico_op_t op, uint64_t salt)
{
    struct job job = {.count = count, .type = type, .op = op, .seed = seed + salt};
    job.send = malloc(count * 8 + 8);
    job.recv = malloc(count * 8 + 8);
    REQUIRE(job.send && job.recv);
    reference_fill(job.send, count, type, op, job.seed, rank->rank);
    memset(job.recv, 0x5a, count * 8 + 8);
    return job;
}

static void job_check(struct job *job, struct rank *rank)
{
    int ranks[64];
    char text[128] = "";
    for (int i = 0; i < rank->size; i++)
        ranks[i] = i;
    size_t bytes = job->count * datatype_bytes(job->type);
    if (reference_check(job->recv, job->count, job->type, job->op, job->seed, ranks, rank->size,
                        text, sizeof text)) {
        fprintf(stderr, "rank %d: %s\n", rank->rank, text);
        REQUIRE(!"right");
    }
    for (size_t i = bytes; i < job->count * 8 + 8; i++)
        REQUIRE(job->recv[i] == 0x5a); /* nothing beyond the end is written */
    free(job->send);
    free(job->recv);
}

static void blocking(struct rank *rank, alnico_comm_t comm, size_t count, alnico_datatype_t type,
                     alnico_op_t op)
{
    struct job job = job_create(rank, count, type, op, count);
    REQUIRE_STATUS(alnico_allreduce(job.send, job.recv, count, type, op, comm), ALNICO_SUCCESS);
    job_check(&job, rank);
}

/* ---- Blocking, on the inline stream ---- */

static void every_type_body(struct rank *rank)
{
    static const size_t counts[] = {37};
    alnico_comm_t comm = ranks_comm(rank, NULL);
    REQUIRE(alnico_comm_rank(comm) == rank->rank && alnico_comm_size(comm) == rank->size);
    cases_run_all(comm, counts, 1, seed);
    alnico_comm_destroy(comm);
}

static void test_every_type_and_operation(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++)
        ranks_run(size, every_type_body, NULL);
}

static void every_algorithm_body(struct rank *rank)
{
    static const size_t counts[] = {0, 1, 2, 3, 1000, 20011};
    alnico_comm_t comm = ranks_comm(rank, NULL);
    for (int a = 0; cases_algorithm(a); a++) {
        if (!cases_force(comm, cases_algorithm(a)))
            continue;
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            blocking(rank, comm, counts[i], ALNICO_FLOAT32, ALNICO_SUM);
    }
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, NULL), ALNICO_SUCCESS);
    if (rank->size == 3)
        blocking(rank, comm, 600000, ALNICO_FLOAT32,
                 ALNICO_AVERAGE); /* more chunks than are in flight */
    alnico_comm_destroy(comm);
}

static void test_every_algorithm(void **state)
{
    (void)state;
    for (int size = 1; size <= 6; size++)
        ranks_run(size, every_algorithm_body, NULL);
}

static void in_place_body(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    struct job a = job_create(rank, 500, ALNICO_INT32, ALNICO_SUM, 1);
    struct job b = job_create(rank, 500, ALNICO_INT32, ALNICO_AVERAGE, 2);
    memcpy(a.recv, a.send, 500 * 4);
    memcpy(b.recv, b.send, 500 * 4);
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, a.recv, 500, a.type, a.op, comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_allreduce(b.recv, b.recv, 500, b.type, b.op, comm), ALNICO_SUCCESS);
    job_check(&a, rank);
    job_check(&b, rank);
    alnico_comm_destroy(comm);
}

static void test_in_place(void **state)
{
    (void)state;
    ranks_run(3, in_place_body, NULL);
}

static void no_thread_body(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    for (int i = 0; i < 50; i++)
        blocking(rank, comm, (size_t)i * 100, ALNICO_FLOAT32, ALNICO_SUM);
    ranks_barrier(rank);
    if (rank->rank == 0)
        REQUIRE(ranks_threads() <= *(int *)rank->argument + rank->size);
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void test_blocking_inline_starts_no_thread(void **state)
{
    (void)state;
    int before = ranks_threads();
    ranks_run(2, no_thread_body, &before);
}

/* ---- Nonblocking ---- */

static void out_of_order_body(struct rank *rank)
{
    enum { JOBS = 40 };
    alnico_comm_t comm = ranks_comm(rank, NULL);
    struct job jobs[JOBS];
    alnico_request_t requests[JOBS];
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = job_create(rank, (size_t)i * 997, ALNICO_FLOAT64, ALNICO_SUM, (uint64_t)i);
        REQUIRE_STATUS(alnico_iallreduce(jobs[i].send, jobs[i].recv, jobs[i].count, jobs[i].type,
                                         jobs[i].op, comm, &requests[i]),
                       ALNICO_SUCCESS);
        REQUIRE(requests[i]);
    }
    for (int i = 0; i < JOBS; i++) { /* each rank in another order, in three ways */
        int k = (i * 7 + rank->rank * 11) % JOBS;
        bool done = false;
        if (k % 3 == 0)
            REQUIRE_STATUS(alnico_wait(&requests[k]), ALNICO_SUCCESS);
        else if (k % 3 == 1)
            REQUIRE_STATUS(alnico_request_synchronize(&requests[k]), ALNICO_SUCCESS);
        else
            while (!done)
                REQUIRE_STATUS(alnico_test(&requests[k], &done), ALNICO_SUCCESS);
        REQUIRE(requests[k] == NULL);
        job_check(&jobs[k], rank);
    }
    alnico_comm_destroy(comm);
}

static void test_requests_out_of_order(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++)
        ranks_run(size, out_of_order_body, NULL);
}

static void mixed_body(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    for (int i = 0; i < 30; i++) {
        struct job job = job_create(rank, 5000, ALNICO_INT64, ALNICO_MAXIMUM, (uint64_t)i);
        alnico_request_t request;
        REQUIRE_STATUS(
            alnico_iallreduce(job.send, job.recv, job.count, job.type, job.op, comm, &request),
            ALNICO_SUCCESS);
        blocking(rank, comm, 64, ALNICO_FLOAT32, ALNICO_SUM);
        REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
        job_check(&job, rank);
    }
    alnico_comm_destroy(comm);
}

static void test_blocking_between_nonblocking(void **state)
{
    (void)state;
    ranks_run(3, mixed_body, NULL);
}

static void forgotten_body(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    struct job job = job_create(rank, 3000, ALNICO_FLOAT32, ALNICO_SUM, 0);
    alnico_request_t request;
    REQUIRE_STATUS(
        alnico_iallreduce(job.send, job.recv, job.count, job.type, job.op, comm, &request),
        ALNICO_SUCCESS);
    alnico_comm_destroy(comm); /* drains, and frees the request */
    job_check(&job, rank);
}

static void test_destroy_drains_what_was_not_waited_for(void **state)
{
    (void)state;
    ranks_run(3, forgotten_body, NULL);
}

/* ---- Streams ---- */

struct step {
    float *values;
    size_t count;
    float factor;
};

static void scale(void *argument)
{
    struct step *step = argument;
    usleep(2000);
    for (size_t i = 0; i < step->count; i++)
        step->values[i] *= step->factor;
}

/* Fill late on the stream, reduce, use on the stream: the host waits only at the end. */
static void ordered_body(struct rank *rank)
{
    enum { COUNT = 10000 };
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, stream);
    float *values = malloc(COUNT * sizeof *values);
    REQUIRE(values);
    for (int i = 0; i < COUNT; i++)
        values[i] = 1;
    struct step before = {values, COUNT, 2}, after = {values, COUNT, 3};
    REQUIRE_STATUS(alnico_stream_enqueue(stream, scale, &before), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_allreduce(values, values, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_enqueue(stream, scale, &after), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_allreduce(values, values, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_synchronize(stream), ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(values[i] == 6.0f * (float)(rank->size * rank->size));
    free(values);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

/* Three allreduces of one vector on three streams, the last one the inline stream; then requests that
 * begin without a stream and are waited for on one, and the other way round. */
static void moving_body(struct rank *rank)
{
    alnico_stream_t first, second;
    alnico_request_t request;
    REQUIRE_STATUS(alnico_stream_create(&first), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_create(&second), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, first);
    alnico_stream_t streams[] = {first, second, NULL};
    float value = 1, expected = 1;
    struct step late = {&value, 1, 2};
    for (int i = 0; i < 9; i++, expected *= 2 * (float)rank->size) {
        REQUIRE_STATUS(alnico_comm_set_stream(comm, streams[i % 3]), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_stream_enqueue(streams[i % 3], scale, &late), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_allreduce(&value, &value, 1, ALNICO_FLOAT32, ALNICO_SUM, comm),
                       ALNICO_SUCCESS);
    }
    REQUIRE(value == expected);
    for (int i = 0; i < 2; i++, expected *= (float)rank->size) {
        struct step after = {&value, 1, 2};
        REQUIRE_STATUS(alnico_comm_set_stream(comm, i ? first : NULL), ALNICO_SUCCESS);
        REQUIRE_STATUS(
            alnico_iallreduce(&value, &value, 1, ALNICO_FLOAT32, ALNICO_SUM, comm, &request),
            ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_comm_set_stream(comm, i ? NULL : second), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_stream_enqueue(i ? NULL : second, scale, &after), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    }
    REQUIRE(value == 4 * expected);
    REQUIRE_STATUS(alnico_group_begin(comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_set_stream(comm, first), ALNICO_ERROR_ARGUMENT);
    REQUIRE_STATUS(alnico_group_end(comm, NULL), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_set_stream(NULL, first), ALNICO_ERROR_ARGUMENT);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(first);
    alnico_stream_destroy(second);
}

static void test_the_stream_may_change(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++)
        ranks_run(size, moving_body, NULL);
}

static void test_memory_of_the_library(void **state)
{
    (void)state;
    void *memory = &memory, *none = &memory;
    assert_int_equal(alnico_memory_allocate(ALNICO_DEVICE_CPU, 1000, &memory), ALNICO_SUCCESS);
    assert_int_equal((uintptr_t)memory % 64, 0);
    memset(memory, 1, 1000);
    assert_int_equal(alnico_memory_free(ALNICO_DEVICE_CPU, memory), ALNICO_SUCCESS);
    assert_int_equal(alnico_memory_free(ALNICO_DEVICE_CPU, NULL), ALNICO_SUCCESS);
    assert_int_equal(alnico_memory_allocate(ALNICO_DEVICE_CPU, SIZE_MAX, &none),
                     ALNICO_ERROR_ARGUMENT);
    assert_null(none);
    assert_int_equal(alnico_memory_allocate(ALNICO_DEVICE_CPU, SIZE_MAX / 4, &none),
                     ALNICO_ERROR_MEMORY);
    assert_non_null(strstr(alnico_error_detail(), "alnico_memory_allocate: cannot allocate"));
    assert_int_equal(alnico_memory_allocate(ALNICO_DEVICE_CPU, 1, NULL), ALNICO_ERROR_ARGUMENT);
    assert_int_equal(alnico_memory_allocate((alnico_device_t)9, 1, &none), ALNICO_ERROR_ARGUMENT);
    assert_int_equal(alnico_memory_free((alnico_device_t)9, &none), ALNICO_ERROR_ARGUMENT);
}

static void test_a_stream_orders(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++)
        ranks_run(size, ordered_body, NULL);
}

/* A stream is busy until it is let go, or for so long that whoever waited for it has failed. */
struct hold {
    atomic_bool go, over;
};

static void hold_up(void *argument)
{
    struct hold *hold = argument;
    double end = ranks_seconds() + 10;
    while (!atomic_load(&hold->go) && ranks_seconds() < end)
        usleep(100);
    atomic_store(&hold->over, true);
}

/* While the stream is busy before the operation, calls return; nonblocking work lets the stream go
 * on. */
static void host_free_body(struct rank *rank)
{
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, stream);
    struct job a = job_create(rank, 2000, ALNICO_FLOAT32, ALNICO_SUM, 1);
    struct job b = job_create(rank, 2000, ALNICO_FLOAT32, ALNICO_SUM, 2);
    struct hold hold = {false, false};
    alnico_request_t request;
    bool done = true;
    REQUIRE_STATUS(alnico_stream_enqueue(stream, hold_up, &hold), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_allreduce(a.send, a.recv, a.count, a.type, a.op, comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_iallreduce(b.send, b.recv, b.count, b.type, b.op, comm, &request),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_test(&request, &done), ALNICO_SUCCESS);
    REQUIRE(!done);
    REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS); /* the stream waits, not the host */
    REQUIRE(!atomic_load(&hold.over));
    atomic_store(&hold.go, true);
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    REQUIRE(atomic_load(&hold.over));
    job_check(&a, rank);
    job_check(&b, rank);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void test_the_host_is_never_blocked_on_a_stream(void **state)
{
    (void)state;
    ranks_run(2, host_free_body, NULL);
}

/* A nonblocking operation sees what the stream did before, and alnico_wait makes its later work see
 * it. */
static void join_body(struct rank *rank)
{
    enum { COUNT = 4000 };
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, stream);
    float *values = malloc(COUNT * sizeof *values), *sums = malloc(COUNT * sizeof *sums);
    REQUIRE(values && sums);
    for (int i = 0; i < COUNT; i++)
        values[i] = 1;
    struct step before = {values, COUNT, 5}, after = {sums, COUNT, 7};
    alnico_request_t request;
    REQUIRE_STATUS(alnico_stream_enqueue(stream, scale, &before), ALNICO_SUCCESS);
    REQUIRE_STATUS(
        alnico_iallreduce(values, sums, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm, &request),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_enqueue(stream, scale, &after), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_synchronize(stream), ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(sums[i] == 35.0f * (float)rank->size);
    free(values);
    free(sums);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void test_wait_joins_the_stream(void **state)
{
    (void)state;
    ranks_run(3, join_body, NULL);
}

/* ---- Parts ---- */

static void parts_body(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL), part, twin, none;
    /* Odd and even ranks, each in reverse order. */
    REQUIRE_STATUS(alnico_comm_split(comm, rank->rank % 2, -rank->rank, NULL, &part),
                   ALNICO_SUCCESS);
    int members = rank->rank % 2 ? rank->size / 2 : (rank->size + 1) / 2;
    REQUIRE(alnico_comm_size(part) == members);
    REQUIRE(alnico_comm_rank(part) == members - 1 - rank->rank / 2);
    int64_t value = rank->rank, sum, expected = 0;
    for (int r = rank->rank % 2; r < rank->size; r += 2)
        expected += r;
    REQUIRE_STATUS(alnico_allreduce(&value, &sum, 1, ALNICO_INT64, ALNICO_SUM, part),
                   ALNICO_SUCCESS);
    REQUIRE(sum == expected);
    REQUIRE_STATUS(alnico_comm_duplicate(part, NULL, &twin), ALNICO_SUCCESS);
    alnico_comm_destroy(part); /* the twin lives on */
    REQUIRE_STATUS(alnico_comm_split(comm, rank->rank == 0 ? 3 : -1, 0, NULL, &none),
                   ALNICO_SUCCESS);
    REQUIRE((none != NULL) == (rank->rank == 0));
    alnico_comm_destroy(comm);
    REQUIRE_STATUS(alnico_allreduce(&value, &sum, 1, ALNICO_INT64, ALNICO_SUM, twin),
                   ALNICO_SUCCESS);
    REQUIRE(sum == expected);
    alnico_comm_destroy(none);
    alnico_comm_destroy(twin);
}

static void test_duplicate_and_split(void **state)
{
    (void)state;
    for (int size = 1; size <= 7; size++)
        ranks_run(size, parts_body, NULL);
}

/* ---- Everything at once ---- */

struct stress {
    struct rank *rank;
    alnico_comm_t comm;
    int salt;
};

static void *stress_run(void *argument)
{
    struct stress *s = argument;
    for (int i = 0; i < 60; i++) {
        size_t count = reference_random(seed, (uint64_t)s->salt, (uint64_t)i) % 20000;
        struct job job =
            job_create(s->rank, count, ALNICO_FLOAT32, ALNICO_SUM, (uint64_t)(1000 * s->salt + i));
        alnico_request_t request;
        if (i % 2) {
            REQUIRE_STATUS(alnico_allreduce(job.send, job.recv, count, job.type, job.op, s->comm),
                           ALNICO_SUCCESS);
            REQUIRE_STATUS(alnico_synchronize(s->comm), ALNICO_SUCCESS);
        } else {
            REQUIRE_STATUS(
                alnico_iallreduce(job.send, job.recv, count, job.type, job.op, s->comm, &request),
                ALNICO_SUCCESS);
            REQUIRE_STATUS(alnico_request_synchronize(&request), ALNICO_SUCCESS);
        }
        job_check(&job, s->rank);
    }
    return NULL;
}

/* Four communicators of one family, two of them on streams, each used by a thread of its own. */
static void stress_body(struct rank *rank)
{
    alnico_stream_t streams[2];
    struct stress s[4];
    pthread_t threads[4];
    alnico_comm_t comm = ranks_comm(rank, NULL);
    for (int i = 0; i < 2; i++)
        REQUIRE_STATUS(alnico_stream_create(&streams[i]), ALNICO_SUCCESS);
    for (int i = 0; i < 4; i++) {
        s[i] = (struct stress){rank, NULL, i};
        REQUIRE_STATUS(alnico_comm_duplicate(comm, i < 2 ? streams[i] : NULL, &s[i].comm),
                       ALNICO_SUCCESS);
    }
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, stress_run, &s[i]) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        alnico_comm_destroy(s[i].comm);
    for (int i = 0; i < 2; i++)
        alnico_stream_destroy(streams[i]);
    alnico_comm_destroy(comm);
}

static void test_many_communicators_and_threads(void **state)
{
    (void)state;
    ranks_run(3, stress_body, NULL);
}

static void idle_body(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    struct job job = job_create(rank, 100, ALNICO_FLOAT32, ALNICO_SUM, 0);
    alnico_request_t request;
    REQUIRE_STATUS(alnico_iallreduce(job.send, job.recv, 100, job.type, job.op, comm, &request),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    job_check(&job, rank);
    usleep(50000);
    ranks_barrier(rank);
    double before = ranks_cpu_seconds();
    usleep(1000000);
    if (rank->rank == 0)
        REQUIRE(ranks_cpu_seconds() - before < 0.01);
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void test_idle_uses_no_cpu(void **state)
{
    (void)state;
    ranks_run(2, idle_body, NULL);
}

/* 18,000 operations after the first 2,000 may not cost a megabyte. */
static void growth_body(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    long pages[2] = {0, 0};
    float value = 1, sum;
    alnico_request_t request;
    for (int i = 0; i < 20000; i++) {
        if (i % 4)
            REQUIRE_STATUS(alnico_allreduce(&value, &sum, 1, ALNICO_FLOAT32, ALNICO_SUM, comm),
                           ALNICO_SUCCESS);
        else {
            REQUIRE_STATUS(
                alnico_iallreduce(&value, &sum, 1, ALNICO_FLOAT32, ALNICO_SUM, comm, &request),
                ALNICO_SUCCESS);
            REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
        }
        if (i == 2000 || i == 19999) {
            FILE *file = fopen("/proc/self/statm", "r");
            REQUIRE(file && fscanf(file, "%*d %ld", &pages[i > 2000]) == 1);
            fclose(file);
        }
    }
    REQUIRE(ranks_sanitized() || pages[1] - pages[0] < 256);
    alnico_comm_destroy(comm);
}

static void test_no_growth(void **state)
{
    (void)state;
    ranks_run(2, growth_body, NULL);
}

/* ---- Registered memory ---- */

static void register_and_forget(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    alnico_registration_t a = NULL, b = NULL, none = NULL;
    float memory[64];
    REQUIRE_STATUS(alnico_comm_register(comm, memory, sizeof memory, &a), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_register(comm, memory + 8, 32, &b), ALNICO_SUCCESS);
    for (int i = 0; i < 64; i++)
        memory[i] = (float)i;
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, memory, 64, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    REQUIRE(memory[63] == 63.0f * (float)rank->size);
    REQUIRE_STATUS(alnico_comm_deregister(comm, a), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_deregister(comm, a), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("is not one of communicator");
    REQUIRE_STATUS(alnico_comm_deregister(comm, none), ALNICO_ERROR_ARGUMENT);
    REQUIRE_STATUS(alnico_comm_register(comm, memory, 0, &none), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("bytes is 0");
    REQUIRE_STATUS(alnico_comm_register(comm, memory, 8 + 8 * (size_t)rank->rank, &none),
                   ALNICO_ERROR_MISMATCH);
    ranks_require_detail("bytes is 8 on rank 0 and 16 on rank 1");
    REQUIRE_STATUS(alnico_comm_register(comm, rank->rank ? memory : NULL, 8, &none),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail(rank->rank ? "rank 0: memory is NULL" : "memory is NULL");
    REQUIRE_STATUS(alnico_comm_register(comm, memory, 8, NULL), ALNICO_ERROR_ARGUMENT);
    REQUIRE(none == NULL);
    REQUIRE_STATUS(alnico_comm_status(comm), ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
}

static void registrations_come_and_go(void **state)
{
    (void)state;
    ranks_run(3, register_and_forget, NULL);
}

/* ---- Without shared memory ---- */

static atomic_bool refuses;

/* In place of the C library's: a kernel may have none. */
int memfd_create(const char *name, unsigned flags)
{
    if (!refuses)
        return (int)syscall(SYS_memfd_create, name, flags);
    errno = ENOSYS;
    return -1;
}

static void messages_body(struct rank *rank)
{
    static const size_t counts[] = {3, 5000};
    alnico_comm_t comm = ranks_comm(rank, NULL), copy;
    REQUIRE(!comm->state[BACKEND_PEER]);
    REQUIRE_STATUS(alnico_comm_duplicate(comm, NULL, &copy), ALNICO_SUCCESS);
    cases_run_all(copy, counts, 2, seed);
    alnico_comm_destroy(copy);
    alnico_comm_destroy(comm);
}

static void test_without_shared_memory_messages_go(void **state)
{
    (void)state;
    refuses = true;
    ranks_run(3, messages_body, NULL);
    refuses = false;
}

int main(void)
{
    seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registrations_come_and_go),
        cmocka_unit_test(test_every_type_and_operation),
        cmocka_unit_test(test_every_algorithm),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_blocking_inline_starts_no_thread),
        cmocka_unit_test(test_requests_out_of_order),
        cmocka_unit_test(test_blocking_between_nonblocking),
        cmocka_unit_test(test_destroy_drains_what_was_not_waited_for),
        cmocka_unit_test(test_a_stream_orders),
        cmocka_unit_test(test_the_stream_may_change),
        cmocka_unit_test(test_memory_of_the_library),
        cmocka_unit_test(test_the_host_is_never_blocked_on_a_stream),
        cmocka_unit_test(test_wait_joins_the_stream),
        cmocka_unit_test(test_duplicate_and_split),
        cmocka_unit_test(test_without_shared_memory_messages_go),
        cmocka_unit_test(test_many_communicators_and_threads),
        cmocka_unit_test(test_idle_uses_no_cpu),
        cmocka_unit_test(test_no_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
