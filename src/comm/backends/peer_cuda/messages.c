/* The plan of a kernel of messages: which warps take which. Pure; the thread that calls on the
 * communicator. */
#include "comm/backends/peer_cuda/messages.h"

#include "comm/algorithms/algorithm.h"

enum {
    WARPS_LEAST = 3,       /* of a block: small messages are fastest where a block has few */
    OWN_WARP_BYTES = 4096, /* that a warp copies of messages to this rank itself, if it can */
    OWN_WARPS_MOST = 64,
    STRANDS_DEFAULT = 128 /* leaves room for what else runs on the GPU */
};

_Static_assert(PEER_RANK_STRANDS *PEER_STRAND_BYTES <= PEER_MESSAGES_BYTES - (64 << 10), "");

static int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* Appends those of one kind and rank; returns how many they are. */
static int add_messages(struct peer_messages *out, const struct exchange *messages, int count,
                        enum peer_job_kind kind, int peer, char *base)
{
    int before = out->messages_count;
    for (int i = 0; i < count; i++) {
        const struct exchange *x = &messages[i];
        const struct span *span = kind == PEER_JOB_SEND ? &x->send : &x->recv;
        if (kind == PEER_JOB_SEND ? x->to == peer : x->from == peer)
            out->messages[out->messages_count++] =
                (struct peer_message){.at = base + span->at, .bytes = span->len};
    }
    return out->messages_count - before;
}

/* Strands that its longest message needs. */
static uint32_t warps_for(const struct peer_messages *out, const struct peer_job *job)
{
    uint64_t longest = 0, all = 0;
    for (int i = job->first; i < job->first + job->count; i++) {
        uint64_t bytes = out->messages[i].bytes;
        longest = bytes > longest ? bytes : longest;
        all += bytes;
    }
    if (job->kind != PEER_JOB_OWN)
        return peer_message_strands(longest, out->group.strands);
    uint64_t most = out->group.base.world.most_blocks > 0 ? PEER_BLOCK_WARPS : OWN_WARPS_MOST;
    return all / OWN_WARP_BYTES < most ? (uint32_t)(all / OWN_WARP_BYTES) + 1 : (uint32_t)most;
}

static void add_job(struct peer_messages *out, enum peer_job_kind kind, int peer, int first,
                    int count)
{
    struct peer_job *job = &out->group.job[out->group.jobs];
    if (count == 0)
        return;
    *job = (struct peer_job){.kind = (int32_t)kind, .peer = peer, .first = first, .count = count};
    job->warps = warps_for(out, job);
    out->group.jobs++;
}

/* Each rank begins with another, so that not all send to the same one first. */
static void add_jobs(struct peer_messages *out, const struct exchange *messages, int count,
                     enum peer_job_kind kind, char *base)
{
    const struct peer_world *world = &out->group.base.world;
    for (int k = 1; k < world->size; k++) {
        int peer = (world->rank + (kind == PEER_JOB_SEND ? k : world->size - k)) % world->size;
        int first = out->messages_count;
        add_job(out, kind, peer, first, add_messages(out, messages, count, kind, peer, base));
    }
}

static int blocks_with(const struct peer_group *group, int warps)
{
    int blocks = 0;
    for (int i = 0; i < group->jobs; i++)
        blocks += divide_up((int)group->job[i].warps, warps);
    return blocks;
}

/* As few warps in a block as the grid has room for. */
static void divide_grid(struct peer_group *group, struct peer_grid *grid)
{
    int limit = group->base.world.most_blocks, warps = WARPS_LEAST, block = 0;
    int most = limit > 0 && limit < PEER_GRID_BLOCKS ? limit : PEER_GRID_BLOCKS;
    while (warps < PEER_BLOCK_WARPS && blocks_with(group, warps) > most)
        warps++;
    for (int i = 0; i < group->jobs; i++) {
        struct peer_job *job = &group->job[i];
        job->block = block;
        block += divide_up((int)job->warps, warps);
        job->end = block;
    }
    *grid = (struct peer_grid){.blocks = block, .threads = 32 * warps};
}

/* A limited grid has one block for messages to this rank itself, and shares the others among the channels. */
static uint32_t strands_for(const struct peer_world *world, int blocks)
{
    uint32_t most = peer_strands_most(world->size),
             wanted = blocks > 0 ? (uint32_t)blocks * PEER_BLOCK_STRANDS : STRANDS_DEFAULT;
    if (world->most_blocks > 0) {
        uint32_t limit = (uint32_t)((world->most_blocks - 1) / (2 * (world->size - 1)));
        most = most < limit * PEER_BLOCK_WARPS ? most : limit * PEER_BLOCK_WARPS;
    }
    return wanted < most ? wanted : most;
}

int peer_messages_plan(struct peer_messages *out, struct peer_grid *grid,
                       const struct exchange *messages, int count, int blocks)
{
    struct peer_arguments *base = &out->group.base;
    char *send = (char *)base->send, *recv = base->recv;
    int rank = base->world.rank;
    if (count > PEER_MESSAGES_MOST)
        return 1;
    out->group.strands = strands_for(&base->world, blocks);
    out->group.jobs = 0;
    out->messages_count = 0;
    add_jobs(out, messages, count, PEER_JOB_SEND, send);
    add_jobs(out, messages, count, PEER_JOB_RECEIVE, recv);
    int first = out->messages_count;
    int own = add_messages(out, messages, count, PEER_JOB_SEND, rank, send);
    add_messages(out, messages, count, PEER_JOB_RECEIVE, rank, recv);
    add_job(out, PEER_JOB_OWN, rank, first, own);
    divide_grid(&out->group, grid);
    base->kernel =
        out->messages_count > PEER_MESSAGES_FEW ? PEER_CUDA_MESSAGES_MANY : PEER_CUDA_MESSAGES_FEW;
    return 0;
}
