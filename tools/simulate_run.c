/* Driving executors over virtual time. A rank is polled when one of its transfers ends; it starts its next
 * chunk when one has finished. Inputs are whole numbers whose sums float32 holds exactly. */
#include "simulate_run.h"

#include "comm/rounds.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNKS_IN_FLIGHT = 3, VALUES = 128 /* of an input: 0 to 127 */ };

struct lane {
    struct rounds rounds;
    bool busy;
};

struct run {
    const struct simulate_case *what;
    struct sim *sim;
    size_t chunk_count, chunks;
    int lanes;         /* of a rank */
    struct lane *lane; /* by rank */
    size_t *begun;     /* chunks, by rank */
    int unfinished;    /* ranks */
    size_t *finished;  /* chunks, by rank */
    float *recv,
        *room; /* by rank: the vector, and its lanes' arrivals; shared by all without data */
    size_t stride, room_stride; /* elements from rank to rank */
    double time_us;
};

/* ---- Inputs and what must come of them ---- */

static unsigned scramble(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (unsigned)(x >> 57); /* below VALUES */
}

static unsigned of_rank(int rank)
{
    return scramble((uint64_t)rank + 1);
}

static unsigned of_element(size_t i)
{
    return scramble(~(uint64_t)i);
}

static void fill(float *recv, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        recv[i] = (float)(of_rank(rank) ^ of_element(i));
}

/* sums[v] is the sum over ranks of of_rank(rank) ^ v. */
static void add_up(int ranks, float *sums)
{
    for (unsigned v = 0; v < VALUES; v++) {
        uint64_t sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += of_rank(r) ^ v;
        sums[v] = (float)sum;
    }
}

static size_t count_wrong(const struct run *run)
{
    float sums[VALUES];
    size_t wrong = 0;
    add_up(run->what->ranks, sums);
    for (int r = 0; r < run->what->ranks; r++)
        for (size_t i = 0; i < run->what->count; i++)
            wrong += run->recv[(size_t)r * run->stride + i] != sums[of_element(i)];
    return wrong;
}

/* ---- One rank ---- */

static size_t work_count(const struct simulate_case *what, size_t count)
{
    struct shape shape = {.rank = 0, .size = what->ranks, .count = count};
    return what->algorithm->work ? what->algorithm->work(&shape) : 0;
}

static void begin_chunk(struct run *run, int rank, int number)
{
    const struct simulate_case *what = run->what;
    struct rounds *r = &run->lane[rank * run->lanes + number].rounds;
    size_t chunk = run->begun[rank]++, at = chunk * run->chunk_count;
    float *recv = run->recv + (size_t)rank * run->stride + at;
    float *room = run->room + (size_t)rank * run->room_stride +
                  (size_t)number * (run->room_stride / (size_t)run->lanes);
    size_t left = what->count - at;
    *r = (struct rounds){.algorithm = what->algorithm,
                         .shape = {.rank = rank,
                                   .size = what->ranks,
                                   .count = left < run->chunk_count ? left : run->chunk_count},
                         .transport = sim_transport(run->sim, rank),
                         .tag = (uint32_t)(TAG_OPERATIONS + chunk % (1 << 20)),
                         .device = sim_device(run->sim),
                         .stream = sim_stream(run->sim, rank),
                         .type = ALNICO_FLOAT32,
                         .op = ALNICO_SUM,
                         .buffer = {(char *)recv, (char *)recv, (char *)(room + run->chunk_count)},
                         .arrivals = (char *)room};
    rounds_begin(r);
}

static alnico_status_t poll_lane(struct run *run, int rank, int number)
{
    struct lane *lane = &run->lane[rank * run->lanes + number];
    while (lane->busy || run->begun[rank] < run->chunks) {
        bool moved = false;
        if (!lane->busy)
            begin_chunk(run, rank, number);
        lane->busy = true;
        alnico_status_t status = rounds_poll(&lane->rounds, &moved);
        if (status == ALNICO_PENDING)
            return ALNICO_SUCCESS;
        TRY(status);
        lane->busy = false;
        run->finished[rank]++;
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t poll_rank(struct run *run, int rank)
{
    if (run->finished[rank] == run->chunks)
        return ALNICO_SUCCESS;
    for (int l = 0; l < run->lanes; l++)
        TRY(poll_lane(run, rank, l));
    bool pair = run->lanes == 1 && run->lane[rank].rounds.open == 1;
    TRY(sim_hint_pair(run->sim, rank, pair));
    if (run->finished[rank] < run->chunks)
        return ALNICO_SUCCESS;
    double clock = sim_clock_us(run->sim, rank);
    run->time_us = clock > run->time_us ? clock : run->time_us;
    run->unfinished--;
    return ALNICO_SUCCESS;
}

static alnico_status_t drive(struct run *run)
{
    alnico_status_t status;
    for (int r = 0; r < run->what->ranks; r++)
        TRY(poll_rank(run, r));
    for (int rank; (rank = sim_next(run->sim, &status)) >= 0;)
        TRY(poll_rank(run, rank));
    if (status == ALNICO_SUCCESS && run->unfinished)
        return error_set(ALNICO_ERROR_SYSTEM, "%s: %d of %d ranks wait for ever",
                         run->what->algorithm->name, run->unfinished, run->what->ranks);
    return status;
}

/* ---- The whole ---- */

static void run_free(struct run *run)
{
    sim_destroy(run->sim);
    free(run->lane);
    free(run->begun);
    free(run->finished);
    free(run->recv);
    free(run->room);
}

static void cut(struct run *run)
{
    const struct simulate_case *what = run->what;
    bool whole = what->chunk_count == 0 || what->chunk_count >= what->count;
    run->chunk_count = whole ? what->count : what->chunk_count;
    run->chunks = what->count ? (what->count - 1) / run->chunk_count + 1 : 1;
    run->lanes = run->chunks < CHUNKS_IN_FLIGHT ? (int)run->chunks : CHUNKS_IN_FLIGHT;
    size_t lane_room = run->chunk_count + work_count(what, run->chunk_count);
    run->stride = what->data ? what->count : 0;
    run->room_stride = what->data ? (size_t)run->lanes * lane_room : 0;
}

/* Without data the buffers are of one rank, and only their addresses are used. */
static alnico_status_t allocate(struct run *run)
{
    const struct simulate_case *what = run->what;
    size_t ranks = (size_t)what->ranks, holders = what->data ? ranks : 1;
    size_t lane_room = run->chunk_count + work_count(what, run->chunk_count);
    run->lane = calloc(ranks * (size_t)run->lanes, sizeof *run->lane);
    run->begun = calloc(ranks, sizeof *run->begun);
    run->finished = calloc(ranks, sizeof *run->finished);
    run->recv = malloc(holders * what->count * sizeof *run->recv + 1);
    run->room = malloc(holders * (size_t)run->lanes * lane_room * sizeof *run->room + 1);
    if (!run->lane || !run->begun || !run->finished || !run->recv || !run->room)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for %d ranks of %zu elements%s",
                         what->ranks, what->count, what->data ? " with data" : "");
    for (int r = 0; what->data && r < what->ranks; r++)
        fill(run->recv + (size_t)r * run->stride, what->count, r);
    return sim_create(what->machine, what->ranks, what->data, &run->sim);
}

alnico_status_t simulate_run(const struct simulate_case *what, struct simulate_result *out)
{
    struct run run = {.what = what, .unfinished = what->ranks};
    cut(&run);
    alnico_status_t status = allocate(&run);
    if (status == ALNICO_SUCCESS)
        status = drive(&run);
    if (status == ALNICO_SUCCESS)
        *out = (struct simulate_result){.time_us = run.time_us,
                                        .messages = sim_messages(run.sim),
                                        .wrong = what->data ? count_wrong(&run) : 0};
    run_free(&run);
    return status;
}

double simulate_data_bytes(const struct simulate_case *what)
{
    struct run run = {.what = what};
    cut(&run);
    double lane_room = (double)(run.chunk_count + work_count(what, run.chunk_count));
    return (double)what->ranks * ((double)what->count + run.lanes * lane_room) * sizeof(float);
}

double simulate_rounds(const struct simulate_case *what)
{
    struct run run = {.what = what};
    cut(&run);
    struct shape shape = {.rank = 0, .size = what->ranks, .count = run.chunk_count};
    return (double)what->ranks * (double)run.chunks * what->algorithm->rounds(&shape);
}
