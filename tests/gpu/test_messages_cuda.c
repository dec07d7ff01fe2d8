/* Messages between GPUs by the peer kernel: random lists of them in groups that each rank cuts
 * otherwise, blocking, nonblocking and as replayed graphs whose inputs change; long chains, streams
 * of messages in one direction, collectives in between; and what goes wrong. All bytes of the
 * buffers are looked at. By the host and NCCL they are alnico-conformance's.
 *
 *     gpu_exchange_cuda                  ranks as threads, on 1 to 4 GPUs one after the other
 *     mpirun -n 4 gpu_exchange_cuda      a process a GPU
 * */
#include "comm/backends/peer_cuda/messages.h"
#include "tests/gpu/support/graph.h"
#include "tests/gpu/support/site.h"
#include "tests/support/reference.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROOM = 24 << 20, MESSAGES = 24, LISTS = 8, REPLAYS = 3, POISON = 0x5a };

#define DEADLINE_TEXT "4"
#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* At the same place of the sender's `send` and the receiver's `recv`. */
struct message {
    int from, to;
    size_t at, bytes;
};

enum kind { BLOCKING, NONBLOCKING, CAPTURED };

struct job {
    struct gpu_site site;
    struct gpu_rank *rank;
    char *send, *recv; /* on the GPU */
    char *host, *expected;
    uint64_t seed, drawn;
    struct message messages[MESSAGES];
    const char *what;
};

/* Equal on all ranks. */
static uint64_t draw(struct job *job, uint64_t below)
{
    return reference_random(job->seed, job->drawn++, 7) % below;
}

static bool open_job(struct job *job, struct gpu_rank *rank, const char *algorithm)
{
    *job = (struct job){.rank = rank, .seed = rank->seed};
    gpu_site_open(&job->site, rank, 2 * ROOM);
    job->send = gpu_arena_take(&job->site.plain, ROOM);
    job->recv = (char *)job->send + ROOM;
    job->host = malloc(ROOM);
    job->expected = malloc(ROOM);
    REQUIRE(job->host && job->expected);
    alnico_status_t status = alnico_comm_set_algorithm(job->site.comm, ALNICO_SENDRECV, algorithm);
    if (status != ALNICO_ERROR_UNSUPPORTED)
        REQUIRE_STATUS(status, ALNICO_SUCCESS);
    else
        gpu_note(rank, "unsupported");
    return status == ALNICO_SUCCESS;
}

static void close_job(struct job *job)
{
    gpu_arena_give(&job->site.plain);
    gpu_site_close(&job->site);
    free(job->host);
    free(job->expected);
}

/* ---- Contents ---- */

static void put_message(const struct job *job, char *to, int m, int turn)
{
    const struct message *message = &job->messages[m];
    for (size_t i = 0; i < message->bytes; i += 8) {
        uint64_t word = reference_random(job->seed + (uint64_t)turn, (uint64_t)m, i);
        size_t left = message->bytes - i;
        memcpy(to + message->at + i, &word, left < 8 ? left : 8);
    }
}

static void fill(struct job *job, int turn)
{
    memset(job->host, POISON, ROOM);
    memset(job->expected, POISON, ROOM);
    for (int m = 0; m < MESSAGES; m++) {
        if (job->messages[m].from == job->rank->rank)
            put_message(job, job->host, m, turn);
        if (job->messages[m].to == job->rank->rank)
            put_message(job, job->expected, m, turn);
    }
    cudaStream_t stream = job->site.stream;
    CUDA(cudaMemcpyAsync(job->send, job->host, ROOM, cudaMemcpyHostToDevice, stream));
    CUDA(cudaMemsetAsync(job->recv, POISON, ROOM, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void fail(const struct job *job, int turn, size_t i)
{
    fprintf(stderr, "%s, turn %d, rank %d of %d, seed %llu: byte %zu of recv is %02x, not %02x\n",
            job->what, turn, job->rank->rank, job->rank->size, (unsigned long long)job->seed, i,
            (unsigned char)job->host[i], (unsigned char)job->expected[i]);
    for (int m = 0; m < MESSAGES; m++)
        if (i - job->messages[m].at < job->messages[m].bytes)
            fprintf(stderr, "    it is byte %zu of message %d, from %d to %d, of %zu bytes\n",
                    i - job->messages[m].at, m, job->messages[m].from, job->messages[m].to,
                    job->messages[m].bytes);
    abort();
}

static void check(struct job *job, int turn)
{
    REQUIRE_STATUS(alnico_synchronize(job->site.comm), ALNICO_SUCCESS);
    CUDA(cudaMemcpyAsync(job->host, job->recv, ROOM, cudaMemcpyDeviceToHost, job->site.stream));
    CUDA(cudaStreamSynchronize(job->site.stream));
    if (memcmp(job->host, job->expected, ROOM) == 0)
        return;
    for (size_t i = 0; i < ROOM; i++)
        if (job->host[i] != job->expected[i])
            fail(job, turn, i);
}

/* ---- Random lists ---- */

static size_t draw_bytes(struct job *job)
{
    static const size_t limits[] = {1, 130, 130, 500, 5000, 70000, 300000, 3000000};
    return draw(job, limits[draw(job, LENGTH(limits))]);
}

/* One behind the other, most aligned. What no longer fits is short. */
static void make_list(struct job *job)
{
    uint64_t size = (uint64_t)job->rank->size;
    size_t next = 0;
    for (int m = 0; m < MESSAGES; m++) {
        struct message *message = &job->messages[m];
        *message = (struct message){.from = (int)draw(job, size), .to = (int)draw(job, size)};
        message->bytes = draw_bytes(job);
        if (next + message->bytes > ROOM - MESSAGES * 1024)
            message->bytes = draw(job, 500);
        message->at = (next + 15) / 16 * 16 + (draw(job, 4) ? 16 : draw(job, 16));
        next = message->at + message->bytes;
    }
    REQUIRE(next <= ROOM);
}

static void call_message(const struct job *job, const struct message *m, bool sends)
{
    alnico_comm_t comm = job->site.comm;
    if (sends)
        REQUIRE_STATUS(alnico_send(job->send + m->at, m->bytes, ALNICO_UINT8, m->to, comm),
                       ALNICO_SUCCESS);
    else
        REQUIRE_STATUS(alnico_recv(job->recv + m->at, m->bytes, ALNICO_UINT8, m->from, comm),
                       ALNICO_SUCCESS);
}

/* Messages [begin, end) that are this rank's, in an order of its own for different ranks. */
static void call_group(const struct job *job, int begin, int end, alnico_request_t *request)
{
    int rank = job->rank->rank;
    REQUIRE_STATUS(alnico_group_begin(job->site.comm), ALNICO_SUCCESS);
    for (int pass = 0; pass < 2; pass++)
        for (int i = begin; i < end; i++) {
            const struct message *m = &job->messages[i];
            bool first = (m->from + m->to + rank) % 2 == 0;
            if (m->from == rank && first == (pass == 0))
                call_message(job, m, true);
            if (m->to == rank && first == (pass == 1))
                call_message(job, m, false);
        }
    REQUIRE_STATUS(alnico_group_end(job->site.comm, request), ALNICO_SUCCESS);
}

/* Cut where this rank draws. The list's order on all ranks lets the first message that has not
 * ended always do so. */
static void call_list(const struct job *job, enum kind kind, uint64_t salt)
{
    alnico_request_t requests[MESSAGES];
    int count = 0;
    for (int m = 0; m < MESSAGES;) {
        uint64_t place = (uint64_t)(m * GPU_RANKS + job->rank->rank);
        int end = m + 1 + (int)(reference_random(job->seed, salt, place) % 10);
        bool blocking = kind != NONBLOCKING || place % 5 == 0;
        end = end < MESSAGES ? end : MESSAGES;
        call_group(job, m, end, blocking ? NULL : &requests[count++]);
        m = end;
    }
    while (count > 0)
        REQUIRE_STATUS(alnico_wait(&requests[--count]), ALNICO_SUCCESS);
}

static void run_captured(struct job *job, uint64_t salt)
{
    gpu_capture_begin(&job->site);
    call_list(job, CAPTURED, salt);
    cudaGraphExec_t graph = gpu_capture_end(&job->site);
    for (int turn = 0; turn < REPLAYS; turn++) {
        fill(job, turn);
        gpu_replay(&job->site, graph);
        check(job, turn);
    }
    CUDA(cudaGraphExecDestroy(graph));
}

static void run_lists(struct gpu_rank *rank, const char *what, const char *algorithm,
                      enum kind kind)
{
    struct job job;
    bool able = open_job(&job, rank, algorithm);
    job.what = what;
    for (int list = 0; list < LISTS && able; list++) {
        make_list(&job);
        if (kind == CAPTURED) {
            run_captured(&job, (uint64_t)list);
            continue;
        }
        fill(&job, list);
        call_list(&job, kind, (uint64_t)list);
        check(&job, list);
    }
    close_job(&job);
}

static void lists_of_blocking_groups(struct gpu_rank *rank)
{
    run_lists(rank, "blocking", "exchange", BLOCKING);
}

static void lists_of_nonblocking_groups(struct gpu_rank *rank)
{
    run_lists(rank, "nonblocking", "exchange", NONBLOCKING);
}

static void lists_in_graphs(struct gpu_rank *rank)
{
    run_lists(rank, "captured, exchange", "exchange", CAPTURED);
    run_lists(rank, "captured, by the table", NULL, CAPTURED);
}

/* ---- Chains ---- */

enum { CHAIN = 300, CHAIN_BYTES = 70000 };

/* What a rank got last it gives to the next one, and an allreduce of some ranks' kernels comes in
 * between. */
static void chain(struct job *job, char *buffers[2], int steps, bool together)
{
    int size = job->rank->size, rank = job->rank->rank;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int i = 0; i < steps; i++) {
        size_t bytes = i % 2 ? CHAIN_BYTES : CHAIN_BYTES / 7;
        alnico_comm_t comm = job->site.comm;
        REQUIRE_STATUS(alnico_sendrecv(buffers[i % 2], CHAIN_BYTES, next, buffers[1 - i % 2],
                                       CHAIN_BYTES, before, ALNICO_UINT8, comm),
                       ALNICO_SUCCESS);
        if (together && i % 7 == 0)
            REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, job->recv, bytes / 4, ALNICO_INT32,
                                            ALNICO_SUM, comm),
                           ALNICO_SUCCESS);
    }
}

static void put_chain(struct job *job, char *to, int owner, int turn)
{
    for (size_t i = 0; i < CHAIN_BYTES; i++)
        job->host[i] = (char)(reference_random(job->seed, (uint64_t)(owner + 100 * turn), i) >> 13);
    CUDA(cudaMemcpyAsync(to, job->host, CHAIN_BYTES, cudaMemcpyHostToDevice, job->site.stream));
    CUDA(cudaStreamSynchronize(job->site.stream));
}

static void check_chain(struct job *job, const char *from, int owner, int turn)
{
    CUDA(cudaMemcpyAsync(job->expected, from, CHAIN_BYTES, cudaMemcpyDeviceToHost,
                         job->site.stream));
    REQUIRE_STATUS(alnico_synchronize(job->site.comm), ALNICO_SUCCESS);
    CUDA(cudaStreamSynchronize(job->site.stream));
    for (size_t i = 0; i < CHAIN_BYTES; i++) {
        char want = (char)(reference_random(job->seed, (uint64_t)(owner + 100 * turn), i) >> 13);
        if (job->expected[i] != want)
            fprintf(stderr, "chain, turn %d, rank %d of %d: byte %zu is %02x, not %02x\n", turn,
                    job->rank->rank, job->rank->size, i, (unsigned char)job->expected[i],
                    (unsigned char)want);
        REQUIRE(job->expected[i] == want);
    }
}

static void chains_pass_on_what_came(struct gpu_rank *rank)
{
    struct job job;
    bool able = open_job(&job, rank, "exchange");
    char *buffers[2] = {job.send, job.send + (1 << 20)};
    int size = rank->size, owner = (rank->rank + size - CHAIN % size) % size;
    if (able) {
        put_chain(&job, buffers[0], rank->rank, 0);
        chain(&job, buffers, CHAIN, true);
        check_chain(&job, buffers[CHAIN % 2], owner, 0);
        gpu_capture_begin(&job.site);
        chain(&job, buffers, 20, true);
        cudaGraphExec_t graph = gpu_capture_end(&job.site);
        for (int turn = 1; turn < 4; turn++) {
            put_chain(&job, buffers[0], rank->rank, turn);
            for (int i = 0; i < 30; i++)
                gpu_replay(&job.site, graph);
            check_chain(&job, buffers[0], (rank->rank + size - 600 % size) % size, turn);
        }
        CUDA(cudaGraphExecDestroy(graph));
    }
    close_job(&job);
}

/* ---- One direction ---- */

enum { PARTS = 60, PART_BYTES = 300001 };

/* More than the rings hold, before the receiver begins; the other ranks have collectives with them
 * meanwhile. */
static void a_stream_of_messages_waits_for_room(struct gpu_rank *rank)
{
    struct job job;
    if (open_job(&job, rank, "exchange")) {
        int last = rank->size - 1;
        job.what = "one direction";
        job.messages[0] = (struct message){0, last, 0, (size_t)PARTS * PART_BYTES};
        for (int m = 1; m < MESSAGES; m++)
            job.messages[m] = (struct message){-1, -1, 0, 0};
        fill(&job, 0);
        if (rank->rank == last)
            usleep(300000);
        for (size_t i = 0; i < PARTS; i++) {
            struct message part = {0, last, i * PART_BYTES, PART_BYTES};
            if (rank->rank == 0)
                call_message(&job, &part, true);
            if (rank->rank == last)
                call_message(&job, &part, false);
        }
        REQUIRE_STATUS(alnico_barrier(job.site.comm), ALNICO_SUCCESS);
        check(&job, 0);
    }
    close_job(&job);
}

/* ---- Many in one group ---- */

static void call_many(struct job *job, int count, alnico_status_t expected)
{
    int size = job->rank->size, rank = job->rank->rank;
    alnico_comm_t comm = job->site.comm;
    REQUIRE_STATUS(alnico_group_begin(comm), ALNICO_SUCCESS);
    for (int i = 0; i < count / 2; i++) {
        char *to = job->recv + 40 * i, *from = job->send + 40 * i;
        REQUIRE_STATUS(alnico_recv(to, 5, ALNICO_INT32, (rank + size - 1) % size, comm),
                       ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_send(from, 5, ALNICO_INT32, (rank + 1) % size, comm), ALNICO_SUCCESS);
    }
    REQUIRE_STATUS(alnico_group_end(comm, NULL), expected);
}

static void groups_of_many_messages(struct gpu_rank *rank)
{
    static const int counts[] = {PEER_MESSAGES_FEW, PEER_MESSAGES_FEW + 2, PEER_MESSAGES_MOST};
    struct job job;
    bool able = open_job(&job, rank, "exchange");
    int before = (rank->rank + rank->size - 1) % rank->size;
    for (int c = 0; c < LENGTH(counts) && able; c++) {
        memset(job.host, rank->rank + c, ROOM);
        CUDA(cudaMemcpyAsync(job.send, job.host, ROOM, cudaMemcpyHostToDevice, job.site.stream));
        CUDA(cudaMemsetAsync(job.recv, POISON, ROOM, job.site.stream));
        call_many(&job, counts[c], ALNICO_SUCCESS);
        memset(job.expected, POISON, ROOM);
        for (int i = 0; i < counts[c] / 2; i++)
            memset(job.expected + 40 * i, before + c, 20);
        job.what = "many messages";
        check(&job, c);
    }
    if (able)
        call_many(&job, PEER_MESSAGES_MOST + 2, ALNICO_ERROR_UNSUPPORTED);
    close_job(&job);
}

/* ---- What goes wrong ---- */

/* Both ranks are told, the receiver how long both are. */
static void lengths_that_differ_fail_on_both_sides(struct gpu_rank *rank)
{
    static const size_t sent[] = {1000, 0, 1000000, 7}, received[] = {1001, 4, 999999, 800000};
    for (int i = 0; i < LENGTH(sent); i++) {
        struct job job;
        char text[64];
        alnico_status_t status = ALNICO_SUCCESS;
        bool able = open_job(&job, rank, "exchange");
        struct message m = {0, 1, 0, rank->rank ? received[i] : sent[i]};
        if (able && rank->rank <= 1)
            call_message(&job, &m, rank->rank == 0);
        if (able && rank->rank == 1)
            status = alnico_synchronize(job.site.comm);
        gpu_barrier(rank);
        if (able && rank->rank == 1) {
            REQUIRE_STATUS(status, ALNICO_ERROR_MISMATCH);
            snprintf(text, sizeof text, "rank 0 of %zu bytes", sent[i]);
            ranks_require_detail(text);
        }
        if (able && rank->rank == 0)
            REQUIRE_STATUS(alnico_synchronize(job.site.comm), ALNICO_ERROR_MISMATCH);
        close_job(&job);
    }
}

static void a_partner_that_never_calls_is_named(struct gpu_rank *rank)
{
    for (int sends = 0; sends < 2; sends++) {
        struct job job;
        if (open_job(&job, rank, "exchange") && rank->rank == 0) {
            double start = ranks_seconds();
            struct message m = {0, 1, 0, ROOM};
            if (!sends)
                m = (struct message){1, 0, 0, 100};
            call_message(&job, &m, sends);
            REQUIRE_STATUS(alnico_synchronize(job.site.comm), ALNICO_ERROR_TIMEOUT);
            ranks_require_detail("rank 1 did not come");
            REQUIRE(ranks_seconds() - start < 2 * atof(DEADLINE_TEXT));
        }
        gpu_barrier(rank);
        close_job(&job);
        gpu_require_alive(rank);
    }
}

static void a_late_partner_is_waited_for(struct gpu_rank *rank)
{
    struct job job;
    if (open_job(&job, rank, "exchange")) {
        job.what = "late";
        make_list(&job);
        fill(&job, 0);
        if (rank->rank == 1)
            sleep(2);
        call_list(&job, BLOCKING, 0);
        check(&job, 0);
    }
    close_job(&job);
}

static void an_abort_frees_both(struct gpu_rank *rank)
{
    struct job job;
    bool able = open_job(&job, rank, "exchange");
    struct message m = {1, 0, 0, 1000};
    double start = ranks_seconds();
    if (able && rank->rank == 0)
        call_message(&job, &m, false);
    if (able && rank->rank == 1)
        REQUIRE_STATUS(alnico_comm_abort(job.site.comm), ALNICO_SUCCESS);
    if (able && rank->rank == 0)
        REQUIRE_STATUS(alnico_synchronize(job.site.comm), ALNICO_ERROR_ABORTED);
    REQUIRE(ranks_seconds() - start < atof(DEADLINE_TEXT));
    gpu_barrier(rank);
    close_job(&job);
    gpu_require_alive(rank);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        GPU_TEST(lists_of_blocking_groups, 2),
        GPU_TEST(lists_of_nonblocking_groups, 2),
        GPU_TEST(lists_in_graphs, 2),
        GPU_TEST(chains_pass_on_what_came, 2),
        GPU_TEST(a_stream_of_messages_waits_for_room, 2),
        GPU_TEST(groups_of_many_messages, 2),
        GPU_TEST(a_late_partner_is_waited_for, 2),
        GPU_TEST(lengths_that_differ_fail_on_both_sides, 2),
        GPU_TEST(a_partner_that_never_calls_is_named, 2),
        GPU_TEST(an_abort_frees_both, 2),
    };
    setenv("ALNICO_TIMEOUT", DEADLINE_TEXT, 1); /* before the library reads its environment */
    return gpu_world_run(tests, LENGTH(tests));
}
