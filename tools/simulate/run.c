/* Drives executors over virtual time. A rank is polled when one of its transfers ends; it starts
 * its next chunk when one has finished. */
#include "tools/simulate/run.h"

#include "base/status.h"
#include "comm/operations/rounds.h"

#include <stdlib.h>

enum { CHUNKS_IN_FLIGHT = 3 };

struct lane {
    struct rounds rounds;
    bool busy;
};

struct rank {
    size_t begun, finished;  /* chunks */
    size_t room_at;          /* elements, where that of its first lane begins */
    struct exchange message; /* of a group */
};

struct run {
    const struct simulate_case *what;
    struct sim *sim;
    size_t chunk_count, chunks;
    int lanes;         /* of a rank */
    struct lane *lane; /* by rank */
    int unfinished;    /* ranks */
    struct rank *rank; /* and one more, where the room of all ends */
    struct simulate_buffers buffers;
    float *room; /* what arrives and WORK, of all lanes; shared by all without data */
    size_t room_bytes;
    size_t *counts, *at; /* of the blocks of a vector form */
    double time_us;
};

/* The shape of a chunk of so many elements, without lengths of blocks: they are equal. */
static struct shape plain_shape(const struct simulate_case *what, int rank, size_t count)
{
    return (struct shape){
        .rank = rank, .size = what->ranks, .map = what->map, .count = count, .stride = what->count};
}

static struct shape shape_of(const struct run *run, int rank, size_t count)
{
    const struct collective *operation = operation_of(run->what);
    struct shape shape = plain_shape(run->what, rank, count);
    if (operation->vector && operation->reads == ALL_BLOCKS) {
        shape.send_counts = run->counts;
        shape.send_at = run->at;
    }
    if (operation->vector && operation->writes == ALL_BLOCKS) {
        shape.recv_counts = run->counts;
        shape.recv_at = run->at;
    }
    if (operation_is_ring(operation)) {
        shape.messages = &run->rank[rank].message;
        shape.messages_count = 1;
    }
    return shape;
}

struct host_map *simulate_map(int ranks, int per_host)
{
    uint64_t *identities = calloc((size_t)ranks, sizeof *identities);
    for (int r = 0; identities && r < ranks; r++)
        identities[r] = (uint64_t)(r / per_host);
    struct host_map *map = identities ? host_map_create(identities, ranks) : NULL;
    free(identities);
    return map;
}

static size_t arrivals_of(const struct algorithm *algorithm, const struct shape *shape)
{
    return algorithm->arrivals ? algorithm->arrivals(shape) : shape->count;
}

/* Elements of room for one lane of a rank. */
static size_t lane_room(const struct simulate_case *what, int rank, size_t chunk_count)
{
    struct shape shape = plain_shape(what, rank, chunk_count);
    size_t work = what->algorithm->work ? what->algorithm->work(&shape) : 0;
    return arrivals_of(what->algorithm, &shape) + work;
}

static float *room_of(const struct run *run, int rank, int number)
{
    if (!run->what->data)
        return run->room;
    size_t at = run->rank[rank].room_at,
           each = (run->rank[rank + 1].room_at - at) / (size_t)run->lanes;
    return run->room + at + (size_t)number * each;
}

static void begin_chunk(struct run *run, int rank, int number)
{
    const struct simulate_case *what = run->what;
    struct rounds *r = &run->lane[rank * run->lanes + number].rounds;
    size_t chunk = run->rank[rank].begun++, at = chunk * run->chunk_count, left = what->count - at;
    float *send = buffers_side(&run->buffers, rank, true) + at,
          *recv = buffers_side(&run->buffers, rank, false) + at, *room = room_of(run, rank, number);
    struct shape shape = shape_of(run, rank, left < run->chunk_count ? left : run->chunk_count);
    float *scratch = room + arrivals_of(what->algorithm, &shape);
    *r = (struct rounds){.algorithm = what->algorithm,
                         .shape = shape,
                         .transport = sim_transport(run->sim, rank),
                         .tag = (uint32_t)(TAG_OPERATIONS + chunk % (1 << 20)),
                         .device = sim_device(run->sim),
                         .stream = sim_stream(run->sim, rank),
                         .type = ALNICO_FLOAT32,
                         .op = ALNICO_SUM,
                         .buffer = {(char *)send, (char *)recv, (char *)scratch},
                         .arrivals = (char *)room};
    rounds_begin(r);
}

static alnico_status_t poll_lane(struct run *run, int rank, int number)
{
    struct lane *lane = &run->lane[rank * run->lanes + number];
    while (lane->busy || run->rank[rank].begun < run->chunks) {
        bool moved = false;
        if (!lane->busy)
            begin_chunk(run, rank, number);
        lane->busy = true;
        alnico_status_t status = rounds_poll(&lane->rounds, &moved);
        if (status == ALNICO_PENDING)
            return ALNICO_SUCCESS;
        TRY(status);
        lane->busy = false;
        run->rank[rank].finished++;
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t poll_rank(struct run *run, int rank)
{
    if (run->rank[rank].finished == run->chunks)
        return ALNICO_SUCCESS;
    for (int l = 0; l < run->lanes; l++)
        TRY(poll_lane(run, rank, l));
    bool pair = run->lanes == 1 && run->lane[rank].rounds.open == 1;
    TRY(sim_hint_pair(run->sim, rank, pair));
    if (run->rank[rank].finished < run->chunks)
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

static void run_free(struct run *run)
{
    sim_destroy(run->sim);
    buffers_destroy(&run->buffers);
    memory_give(run->room, run->room_bytes, run->what->data);
    free(run->lane);
    free(run->rank);
    free(run->counts);
    free(run->at);
}

static void cut(struct run *run)
{
    const struct simulate_case *what = run->what;
    const struct collective *operation = operation_of(what);
    bool whole = what->chunk_count == 0 || what->chunk_count >= what->count ||
                 what->algorithm->whole || operation->vector || operation_is_ring(operation);
    run->chunk_count = whole ? what->count : what->chunk_count;
    run->chunks = what->count ? (what->count - 1) / run->chunk_count + 1 : 1;
    run->lanes = run->chunks < CHUNKS_IN_FLIGHT ? (int)run->chunks : CHUNKS_IN_FLIGHT;
}

static void set_rooms(struct run *run)
{
    const struct simulate_case *what = run->what;
    size_t most = 0;
    for (int r = 0; r < what->ranks; r++) {
        size_t room = (size_t)run->lanes * lane_room(what, r, run->chunk_count);
        run->rank[r + 1].room_at = run->rank[r].room_at + room;
        most = room > most ? room : most;
    }
    run->room_bytes = (what->data ? run->rank[what->ranks].room_at : most) * sizeof *run->room;
}

/* Equal blocks for all; each rank sends to the next. */
static void set_lists(struct run *run)
{
    int p = run->what->ranks;
    struct span send = {BUFFER_SEND, 0, run->what->count}, recv = {BUFFER_RECV, 0, send.len};
    for (int r = 0; r < p; r++) {
        run->counts[r] = send.len;
        run->at[r] = (size_t)r * send.len;
        exchange_both(&run->rank[r].message, (r + 1) % p, send, (r + p - 1) % p, recv, false);
    }
}

static alnico_status_t allocate(struct run *run)
{
    const struct simulate_case *what = run->what;
    size_t ranks = (size_t)what->ranks;
    run->lane = calloc(ranks * (size_t)run->lanes, sizeof *run->lane);
    run->rank = calloc(ranks + 1, sizeof *run->rank);
    run->counts = calloc(ranks, sizeof *run->counts);
    run->at = calloc(ranks, sizeof *run->at);
    if (run->rank)
        set_rooms(run);
    run->room = memory_take(run->room_bytes, what->data);
    if (!run->lane || !run->rank || !run->room || !run->counts || !run->at)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for %d ranks", what->ranks);
    set_lists(run);
    TRY(buffers_create(what, &run->buffers));
    struct sim_machine machine = *what->machine;
    if (what->staging)
        machine.reduce_gbps = what->staging->reduce_gbps;
    return sim_create(&machine, what->ranks, what->data, &run->sim);
}

/* Copies of the first chunk to the host and of the last one back: those between go on meanwhile. */
static double staging_us(const struct run *run)
{
    const struct simulate_staging *staging = run->what->staging;
    if (!staging)
        return 0;
    double bytes = (double)(run->chunk_count * sizeof(float));
    return 2 * (staging->latency_us + 1e-3 * bytes / staging->bandwidth_gbps);
}

alnico_status_t simulate_run(const struct simulate_case *what, struct simulate_result *out)
{
    struct run run = {.what = what, .unfinished = what->ranks};
    cut(&run);
    alnico_status_t status = allocate(&run);
    if (status == ALNICO_SUCCESS)
        status = drive(&run);
    if (status == ALNICO_SUCCESS)
        *out = (struct simulate_result){.time_us = run.time_us + staging_us(&run),
                                        .messages = sim_messages(run.sim),
                                        .wrong = what->data ? buffers_wrong(&run.buffers) : 0};
    run_free(&run);
    return status;
}

double simulate_data_bytes(const struct simulate_case *what)
{
    struct run run = {.what = what};
    double rooms = 0;
    cut(&run);
    for (int r = 0; r < what->ranks; r++)
        rooms += (double)lane_room(what, r, run.chunk_count);
    return buffers_bytes(what) + run.lanes * rooms * sizeof(float);
}

double simulate_rounds(const struct simulate_case *what)
{
    struct run run = {.what = what};
    double rounds = 0;
    cut(&run);
    for (int r = 0; r < what->ranks; r++) {
        struct shape shape = plain_shape(what, r, run.chunk_count);
        shape.messages_count = 1;
        rounds += what->algorithm->rounds(&shape);
    }
    return (double)run.chunks * rounds;
}
