/* The nccl backend: ranks are threads with a GPU each, one rank up to as many as there are GPUs.
 * Inputs and results are compared on the host. Skipped without a GPU. */
#include "base/datatype.h"
#include "comm/backends/nccl/nccl.h"
#include "tests/gpu/support/seats.h"

#include <nccl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { SECONDS = 120 };

static int gpus; /* to use */

static void on_gpus(int least, void (*body)(struct rank *))
{
    if (gpus < least)
        skip();
    for (int size = least; size <= gpus; size++)
        ranks_run(size, body, NULL);
}

/* ---- Every type and operation ---- */

static bool is_supported(alnico_datatype_t type, alnico_op_t op)
{
    bool extreme = op == ALNICO_MINIMUM || op == ALNICO_MAXIMUM;
    if (type == ALNICO_FLOAT8_E4M3 || type == ALNICO_FLOAT8_E5M2)
        return false;
    return op <= ALNICO_AVERAGE && (datatype_is_integer(type) || !extreme);
}

static void run_kind(struct seat *s, alnico_datatype_t type, alnico_op_t op)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 255, 1025, 65537};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (unsigned variant = 0; variant < 4; variant++) {
            struct one c = {.count = counts[i], .at = variant, .type = type, .op = op};
            c.in_place = variant & 1;
            c.nonblocking = variant & 2;
            c.salt = (((uint64_t)type * OPS + (uint64_t)op) * 8 + i) * 4 + variant;
            seat_run(s, &c, s->send, s->recv);
        }
}

static void refuse_kind(struct seat *s, alnico_datatype_t type, alnico_op_t op)
{
    REQUIRE_STATUS(alnico_allreduce(s->send, s->recv, 1, type, op, s->comm),
                   ALNICO_ERROR_UNSUPPORTED);
    ranks_require_detail("nccl");
}

static void kinds_body(struct rank *rank)
{
    struct seat s;
    seat_open(&s, rank, 1 << 20, "nccl");
    for (int type = 0; type < DATATYPES; type++)
        for (int op = 0; op < OPS; op++) {
            alnico_datatype_t t = (alnico_datatype_t)type;
            alnico_op_t o = (alnico_op_t)op;
            if (rank->size == 1 ? op_supports(o, t) : is_supported(t, o))
                run_kind(&s, t, o);
            else if (op_supports(o, t))
                refuse_kind(&s, t, o);
        }
    seat_close(&s);
}

static void test_every_type_and_operation(void **state)
{
    (void)state;
    on_gpus(1, kinds_body);
}

/* ---- Large ---- */

static void large_body(struct rank *rank)
{
    struct seat s;
    seat_open(&s, rank, (size_t)24 << 20, "nccl");
    struct one c = {
        .count = 3000017, .type = ALNICO_FLOAT64, .op = ALNICO_SUM, .nonblocking = true};
    seat_run(&s, &c, s.send, s.recv);
    c = (struct one){.count = 5000011, .type = ALNICO_FLOAT32, .op = ALNICO_AVERAGE, .salt = 1};
    seat_run(&s, &c, s.send, s.recv);
    seat_close(&s);
}

static void test_large(void **state)
{
    (void)state;
    on_gpus(gpus, large_body);
}

/* More than 2^31 elements: rank r sends r + 1 everywhere; looked at in three places. */
static void huge_body(struct rank *rank)
{
    enum { PIECE = 1 << 20 };
    const size_t count = ((size_t)1 << 31) + 4097, places[] = {0, (size_t)1 << 31, count - PIECE};
    struct seat s;
    char *memory;
    seat_open(&s, rank, PIECE, "nccl");
    GPU(cudaMalloc((void **)&memory, count));
    GPU(cudaMemsetAsync(memory, rank->rank + 1, count, s.stream));
    OK(alnico_allreduce(ALNICO_IN_PLACE, memory, count, ALNICO_INT8, ALNICO_SUM, s.comm));
    int expected = rank->size * (rank->size + 1) / 2;
    for (int i = 0; i < 3; i++) {
        size_t bytes = places[i] + PIECE < count ? PIECE : count - places[i];
        GPU(cudaMemcpyAsync(s.host, memory + places[i], bytes, cudaMemcpyDeviceToHost, s.stream));
        GPU(cudaStreamSynchronize(s.stream));
        for (size_t k = 0; k < bytes; k++)
            if (s.host[k] != expected) {
                fprintf(stderr, "rank %d: element %zu is %d, expected %d\n", rank->rank,
                        places[i] + k, s.host[k], expected);
                _Exit(1);
            }
    }
    GPU(cudaFree(memory));
    seat_close(&s);
}

static void test_more_than_2_31_elements(void **state)
{
    (void)state;
    on_gpus(gpus, huge_body);
}

/* ---- Order ---- */

enum { FLIGHTS = 6 };

/* Nonblocking ones in flight, a blocking one behind them, waits in reverse; each in its own part of
 * the areas. */
static void flights_body(struct rank *rank)
{
    struct seat s, parts[FLIGHTS];
    struct one cases[FLIGHTS];
    alnico_request_t requests[FLIGHTS] = {NULL};
    seat_open(&s, rank, FLIGHTS << 17, "nccl");
    for (int i = 0; i < FLIGHTS; i++) {
        size_t from = (size_t)i << 17;
        parts[i] = s;
        parts[i].send += from, parts[i].recv += from, parts[i].host += from;
        parts[i].room = 1 << 17;
        cases[i] = (struct one){.count = 1000 + 4001 * (size_t)i,
                                .type = ALNICO_FLOAT32,
                                .nonblocking = i != 3,
                                .salt = 100 + (uint64_t)i};
        seat_put(&parts[i], &cases[i], parts[i].send);
        GPU(cudaMemsetAsync(parts[i].recv, SEAT_POISON, parts[i].room, s.stream));
    }
    for (int i = 0; i < FLIGHTS; i++)
        OK(seat_begin(&parts[i], &cases[i], parts[i].send, parts[i].recv, &requests[i]));
    bool done = false;
    while (!done)
        OK(alnico_test(&requests[0], &done));
    OK(alnico_request_synchronize(&requests[1]));
    for (int i = FLIGHTS - 1; i > 1; i--)
        if (requests[i])
            OK(alnico_wait(&requests[i]));
    for (int i = 0; i < FLIGHTS; i++)
        seat_check(&parts[i], &cases[i], parts[i].recv);
    seat_close(&s);
}

static void test_several_in_flight(void **state)
{
    (void)state;
    on_gpus(1, flights_body);
}

/* Three communicators of one stream each; even ranks go through them in another order than odd
 * ones. */
static void communicators_body(struct rank *rank)
{
    enum { COMMS = 3, ROUNDS = 20 };
    struct seat seats[COMMS];
    for (int i = 0; i < COMMS; i++)
        seat_open(&seats[i], rank, 1 << 16, "nccl");
    for (int round = 0; round < ROUNDS; round++) {
        struct one c = {.count = 3001, .type = ALNICO_FLOAT32, .nonblocking = round & 1};
        alnico_request_t requests[COMMS] = {NULL};
        for (int k = 0; k < COMMS; k++) {
            c.salt = (uint64_t)(round * COMMS + k);
            seat_put(&seats[k], &c, seats[k].send);
            GPU(cudaMemsetAsync(seats[k].recv, SEAT_POISON, 1 << 16, seats[k].stream));
        }
        for (int k = 0; k < COMMS; k++) {
            int i = rank->rank % 2 ? k : COMMS - 1 - k;
            OK(seat_begin(&seats[i], &c, seats[i].send, seats[i].recv, &requests[i]));
        }
        for (int k = 0; k < COMMS; k++) {
            if (requests[k])
                OK(alnico_wait(&requests[k]));
            c.salt = (uint64_t)(round * COMMS + k);
            seat_check(&seats[k], &c, seats[k].recv);
        }
    }
    for (int i = 0; i < COMMS; i++)
        seat_close(&seats[i]);
}

static void test_several_communicators(void **state)
{
    (void)state;
    on_gpus(1, communicators_body);
}

/* A duplicate, and a part of one rank each. */
static void parts_body(struct rank *rank)
{
    struct seat s, d;
    seat_open(&s, rank, 1 << 16, "nccl");
    d = s;
    OK(alnico_comm_duplicate(s.comm, s.stream, &d.comm));
    OK(alnico_comm_set_algorithm(d.comm, ALNICO_ALLREDUCE, "nccl"));
    struct one c = {.count = 777, .type = ALNICO_INT32, .op = ALNICO_MAXIMUM, .salt = 9};
    seat_run(&d, &c, d.send, d.recv);
    alnico_comm_destroy(d.comm);
    OK(alnico_comm_split(s.comm, rank->rank, 0, s.stream, &d.comm));
    REQUIRE(alnico_comm_size(d.comm) == 1);
    OK(alnico_comm_set_algorithm(d.comm, ALNICO_ALLREDUCE, "nccl"));
    char mine = (char)(rank->rank + 1), got = 0;
    GPU(cudaMemcpyAsync(s.send, &mine, 1, cudaMemcpyHostToDevice, s.stream));
    OK(alnico_allreduce(s.send, s.recv, 1, ALNICO_INT8, ALNICO_AVERAGE, d.comm));
    GPU(cudaMemcpyAsync(&got, s.recv, 1, cudaMemcpyDeviceToHost, s.stream));
    GPU(cudaStreamSynchronize(s.stream));
    REQUIRE(got == mine);
    alnico_comm_destroy(d.comm);
    seat_close(&s);
}

static void test_duplicates_and_parts(void **state)
{
    (void)state;
    on_gpus(1, parts_body);
}

/* ---- Graphs ---- */

/* One blocking and one nonblocking call, the second on the first's result: send -> recv -> send. */
static cudaGraphExec_t capture(struct seat *s, const struct one *c)
{
    struct one second = *c;
    alnico_request_t request;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    second.nonblocking = true;
    GPU(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal));
    OK(seat_begin(s, c, s->send, s->recv, NULL));
    OK(seat_begin(s, &second, s->recv, s->send, &request));
    OK(alnico_wait(&request));
    GPU(cudaStreamEndCapture(s->stream, &graph));
    GPU(cudaGraphInstantiate(&exec, graph, 0));
    GPU(cudaGraphDestroy(graph));
    return exec;
}

/* Replays with other inputs each time, between eager calls. A maximum twice is the maximum. */
static void graph_body(struct rank *rank)
{
    struct seat s;
    seat_open(&s, rank, 1 << 16, "nccl");
    struct one c = {.count = 5003, .type = ALNICO_INT64, .op = ALNICO_MAXIMUM};
    cudaGraphExec_t exec = capture(&s, &c);
    for (int i = 0; i < 30; i++) {
        c.salt = 500 + (uint64_t)i;
        seat_put(&s, &c, s.send);
        GPU(cudaMemsetAsync(s.recv, SEAT_POISON, s.room, s.stream));
        GPU(cudaGraphLaunch(exec, s.stream));
        seat_check(&s, &c, s.recv);
        seat_check(&s, &c, s.send);
        if (i % 3 == 0) {
            struct one eager = {.count = 100, .type = ALNICO_FLOAT32, .nonblocking = i & 1};
            eager.salt = c.salt;
            seat_run(&s, &eager, s.send, s.recv);
        }
    }
    GPU(cudaGraphExecDestroy(exec)); /* before its communicator */
    seat_close(&s);
}

static void test_capture_and_replay(void **state)
{
    (void)state;
    on_gpus(1, graph_body);
}

/* The event of an eager request that has ended marks a captured one next; an eager call that
 * follows must not wait for that. */
static void recycled_body(struct rank *rank)
{
    struct seat s;
    alnico_request_t request;
    bool done = false;
    seat_open(&s, rank, 1 << 16, "nccl");
    struct one c = {.count = 5003,
                    .type = ALNICO_INT64,
                    .op = ALNICO_MAXIMUM,
                    .nonblocking = true,
                    .salt = 700};
    seat_put(&s, &c, s.send);
    GPU(cudaMemsetAsync(s.recv, SEAT_POISON, s.room, s.stream));
    OK(seat_begin(&s, &c, s.send, s.recv, &request));
    while (!done)
        OK(alnico_test(&request, &done));
    seat_check(&s, &c, s.recv);
    c.nonblocking = false;
    cudaGraphExec_t exec = capture(&s, &c);
    for (int i = 0; i < 3; i++) {
        c.salt++;
        seat_run(&s, &c, s.send, s.recv);
        c.salt++;
        seat_put(&s, &c, s.send);
        GPU(cudaMemsetAsync(s.recv, SEAT_POISON, s.room, s.stream));
        GPU(cudaGraphLaunch(exec, s.stream));
        seat_check(&s, &c, s.recv);
        seat_check(&s, &c, s.send);
    }
    GPU(cudaGraphExecDestroy(exec));
    seat_close(&s);
}

static void test_an_event_goes_from_eager_to_captured(void **state)
{
    (void)state;
    on_gpus(1, recycled_body);
}

/* ---- Registered memory ---- */

static bool all_peers(void)
{
    for (int i = 0; i < gpus; i++)
        for (int j = 0; j < gpus; j++) {
            int can = 1;
            if (i != j)
                GPU(cudaDeviceCanAccessPeer(&can, i, j));
            if (!can)
                return false;
        }
    return true;
}

static void symmetric_kinds(struct seat *s, char *from, char *to)
{
    static const alnico_datatype_t types[] = {ALNICO_FLOAT32, ALNICO_FLOAT16, ALNICO_BFLOAT16};
    for (int type = 0; type < 3; type++)
        for (unsigned variant = 0; variant < 4; variant++) {
            struct one c = {.count = 50001, .type = types[type], .salt = variant};
            c.in_place = variant & 1;
            c.nonblocking = variant & 2;
            seat_run(s, &c, from, to);
        }
    for (size_t i = 0; i < 96; i++) { /* halves that begin at words, and results anywhere */
        struct one c = {.count = i / 4 + 1, .type = ALNICO_FLOAT16, .salt = i};
        seat_run(s, &c, from + 4, to + 2 * (i % 4));
    }
    REQUIRE_STATUS(alnico_allreduce(from + 2, to, 4, ALNICO_FLOAT16, ALNICO_SUM, s->comm),
                   ALNICO_ERROR_UNSUPPORTED);
    REQUIRE_STATUS(alnico_allreduce(from, to, 1, ALNICO_INT32, ALNICO_SUM, s->comm),
                   ALNICO_ERROR_UNSUPPORTED);
    REQUIRE_STATUS(alnico_allreduce(from, to, 1, ALNICO_FLOAT32, ALNICO_AVERAGE, s->comm),
                   ALNICO_ERROR_UNSUPPORTED);
    REQUIRE_STATUS(alnico_allreduce(s->send, to, 1, ALNICO_FLOAT32, ALNICO_SUM, s->comm),
                   ALNICO_ERROR_UNSUPPORTED);
}

static void symmetric_body(struct rank *rank)
{
    enum { BYTES = 1 << 20 };
    struct seat s;
    void *memory;
    alnico_registration_t windows, plain;
    seat_open(&s, rank, BYTES / 2, "nccl");
    REQUIRE(ncclMemAlloc(&memory, BYTES) == ncclSuccess);
    char *from = memory, *to = from + BYTES / 2;
    OK(alnico_comm_register(s.comm, memory, BYTES, &windows));
    OK(alnico_comm_register(s.comm, s.send, s.room, &plain)); /* cudaMalloc: no window, no error */
    OK(alnico_comm_set_algorithm(s.comm, ALNICO_ALLREDUCE, "nccl_symmetric"));
    symmetric_kinds(&s, from, to);
    OK(alnico_comm_set_algorithm(s.comm, ALNICO_ALLREDUCE, "nccl"));
    struct one c = {.count = 50001, .type = ALNICO_FLOAT32, .salt = 77};
    seat_run(&s, &c, from, to);
    OK(alnico_comm_deregister(s.comm, windows));
    OK(alnico_comm_set_algorithm(s.comm, ALNICO_ALLREDUCE, "nccl_symmetric"));
    REQUIRE_STATUS(alnico_allreduce(from, to, 1, ALNICO_FLOAT32, ALNICO_SUM, s.comm),
                   ALNICO_ERROR_UNSUPPORTED);
    OK(alnico_comm_register(s.comm, memory, BYTES,
                            &windows)); /* again; the communicator's end drops it */
    symmetric_kinds(&s, from, to);
    seat_close(&s);
    REQUIRE(ncclMemFree(memory) == ncclSuccess);
}

static void test_symmetric_windows(void **state)
{
    (void)state;
    if (!all_peers())
        skip();
    on_gpus(2, symmetric_body);
}

/* ---- When it is made ---- */

enum { LAZY_COUNT = 8 << 20, LAZY_ROOM = 34 << 20 };

/* Nonblocking and captured calls go to the peer backend until a blocking one makes it. */
static void lazy_body(struct rank *rank)
{
    struct seat s;
    seat_open(&s, rank, LAZY_ROOM, NULL);
    const struct nccl_state *nccl = nccl_state_of(s.comm);
    REQUIRE(nccl && !nccl->tried);
    struct one c = {.count = LAZY_COUNT, .type = ALNICO_FLOAT32, .nonblocking = true, .salt = 800};
    seat_run(&s, &c, s.send, s.recv);
    REQUIRE(!nccl->tried);
    c.nonblocking = false;
    cudaGraphExec_t exec = capture(&s, &c);
    REQUIRE(!nccl->tried);
    double start = ranks_seconds();
    seat_put(&s, &c, s.send);
    OK(seat_begin(&s, &c, s.send, s.recv, NULL));
    REQUIRE(nccl->tried && !nccl->absent && nccl->plain && nccl->used);
    if (rank->rank == 0)
        printf("the call that makes NCCL takes %.2f s with %d ranks\n", ranks_seconds() - start,
               rank->size);
    seat_check(&s, &c, s.recv);
    for (int i = 0; i < 2; i++) {
        c.salt++;
        c.nonblocking = i;
        seat_run(&s, &c, s.send, s.recv);
    }
    c.salt++;
    seat_put(&s, &c, s.send);
    GPU(cudaGraphLaunch(exec, s.stream));
    seat_check(&s, &c, s.recv);
    GPU(cudaGraphExecDestroy(exec));
    seat_close(&s);
}

static bool all_nvlink(void)
{
    for (int i = 0; i < gpus; i++)
        for (int j = 0; j < gpus; j++) {
            int native = 1;
            if (i != j)
                GPU(cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, i, j));
            if (!native)
                return false;
        }
    return true;
}

static void test_a_blocking_call_makes_it(void **state)
{
    (void)state;
    if (!all_peers() || !all_nvlink())
        skip();
    on_gpus(2, lazy_body);
}

/* ---- Abort and errors ---- */

static void *abort_soon(void *comm)
{
    struct timespec pause = {.tv_nsec = 200000000};
    nanosleep(&pause, NULL);
    OK(alnico_comm_abort(comm));
    OK(alnico_comm_abort(comm));
    return NULL;
}

/* Rank 0 calls alone; another thread aborts, and its kernels end. Then everybody makes a new
 * communicator. */
static void abort_body(struct rank *rank)
{
    struct seat s;
    seat_open(&s, rank, 1 << 16, "nccl");
    struct one c = {.count = 1000, .type = ALNICO_FLOAT32};
    seat_run(&s, &c, s.send, s.recv);
    if (rank->rank == 0) {
        pthread_t thread;
        alnico_request_t request = NULL;
        struct one nonblocking = c;
        nonblocking.nonblocking = true;
        OK(seat_begin(&s, &c, s.send, s.recv, NULL));
        OK(seat_begin(&s, &nonblocking, s.send, s.recv, &request));
        double start = ranks_seconds();
        REQUIRE(pthread_create(&thread, NULL, abort_soon, s.comm) == 0);
        GPU(cudaStreamSynchronize(s.stream));
        pthread_join(thread, NULL);
        double took = ranks_seconds() - start;
        if (took > 20)
            seat_complain(&s, &c, "the abort took more than 20 s");
        REQUIRE_STATUS(alnico_comm_status(s.comm), ALNICO_ERROR_ABORTED);
        REQUIRE_STATUS(seat_begin(&s, &c, s.send, s.recv, NULL), ALNICO_ERROR_ABORTED);
        REQUIRE_STATUS(alnico_request_synchronize(&request), ALNICO_ERROR_ABORTED);
    }
    ranks_barrier(rank);
    OK(alnico_comm_abort(s.comm));
    seat_close(&s);
    seat_open(&s, rank, 1 << 16, "nccl");
    seat_run(&s, &c, s.send, s.recv);
    seat_close(&s);
}

static void test_abort(void **state)
{
    (void)state;
    on_gpus(2, abort_body);
}

static void same_gpu_body(struct rank *rank)
{
    alnico_comm_t comm = NULL;
    GPU(cudaSetDevice(0));
    REQUIRE_STATUS(alnico_comm_create(&rank->bootstrap, ALNICO_DEVICE_CUDA, NULL, &comm),
                   ALNICO_ERROR_ARGUMENT);
    REQUIRE(comm == NULL);
    ranks_require_detail("ranks 0 and 1");
    ranks_require_detail("GPU");
}

static void test_two_ranks_on_one_gpu(void **state)
{
    (void)state;
    ranks_run(2, same_gpu_body, NULL);
}

/* A hang is an end with a name. */
static int watch(void **state)
{
    (void)state;
    alarm(SECONDS);
    return 0;
}

static const char prefers_nccl[] =
    "{\"alnico_tuning\": 1, \"rows\": [{\"collective\": \"allreduce\", \"device\": \"cuda\","
    " \"ranks_up_to\": null, \"hosts_up_to\": null, \"bytes_up_to\": null, \"backend\": \"nccl\","
    " \"algorithm\": \"nccl\", \"chunk_bytes\": 65536}]}";

/* The built-in table may not prefer it at any size. */
static void set_table(char *path)
{
    int file = mkstemp(path);
    REQUIRE(file >= 0 && write(file, prefers_nccl, strlen(prefers_nccl)) > 0 && close(file) == 0);
    REQUIRE(setenv("ALNICO_TUNING", path, 1) == 0);
}

int main(void)
{
    char path[] = "/tmp/alnico-tuning-XXXXXX";
    gpus = gpu_require(1);
    gpus = gpus < SEATS_MOST ? gpus : SEATS_MOST;
    seats_seed = (uint64_t)time(NULL);
    printf("seed %llu, %d GPUs\n", (unsigned long long)seats_seed, gpus);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_every_type_and_operation, watch),
        cmocka_unit_test_setup(test_large, watch),
        cmocka_unit_test_setup(test_more_than_2_31_elements, watch),
        cmocka_unit_test_setup(test_several_in_flight, watch),
        cmocka_unit_test_setup(test_several_communicators, watch),
        cmocka_unit_test_setup(test_duplicates_and_parts, watch),
        cmocka_unit_test_setup(test_capture_and_replay, watch),
        cmocka_unit_test_setup(test_an_event_goes_from_eager_to_captured, watch),
        cmocka_unit_test_setup(test_symmetric_windows, watch),
        cmocka_unit_test_setup(test_a_blocking_call_makes_it, watch),
        cmocka_unit_test_setup(test_two_ranks_on_one_gpu, watch),
        cmocka_unit_test_setup(test_abort, watch),
    };
    set_table(path);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
