/* The layout of each operation's data, as perf/operations.h says. Each part_ function says what the
 * i-th part of a rank's result is. Any thread. */
#include "tools/perf/operations.h"

#include <stdlib.h>

bool blocks_init(struct perf_blocks *blocks, int ranks)
{
    size_t n = (size_t)ranks;
    *blocks = (struct perf_blocks){calloc(n, sizeof(size_t)), calloc(n, sizeof(size_t)),
                                   calloc(n, sizeof(int)), calloc(n, sizeof(int))};
    return blocks->counts && blocks->at && blocks->mpi_counts && blocks->mpi_at;
}

void blocks_finish(struct perf_blocks *blocks)
{
    free(blocks->counts);
    free(blocks->at);
    free(blocks->mpi_counts);
    free(blocks->mpi_at);
}

/* The length of block b of a vector form; all together are ranks * count. */
static size_t uneven(size_t count, int b, int ranks)
{
    if (b == ranks - 1 && ranks % 2)
        return count;
    return b % 2 ? count + (count + 1) / 2 : count / 2;
}

/* The length of the block that a rank has for rank b. */
static size_t block_count(const struct perf_operation *operation, size_t count, int rank, int b,
                          int ranks)
{
    if (!collectives[operation->collective].vector)
        return count;
    return uneven(count, operation->collective == ALNICO_ALLTOALLV ? (rank + b) % ranks : b, ranks);
}

void blocks_set(struct perf_blocks *blocks, const struct perf_operation *operation, size_t count,
                int rank, int ranks)
{
    size_t at = 0;
    for (int b = 0; b < ranks; b++) {
        blocks->counts[b] = block_count(operation, count, rank, b, ranks);
        blocks->at[b] = at;
        blocks->mpi_counts[b] = (int)blocks->counts[b];
        blocks->mpi_at[b] = (int)at;
        at += blocks->counts[b];
    }
}

struct perf_job job_make(const struct perf_operation *operation, size_t count, bool in_place,
                         int root, int rank, int ranks, const struct perf_blocks *blocks)
{
    bool rooted = collectives[operation->collective].rooted;
    return (struct perf_job){.operation = operation,
                             .in_place = in_place && (!rooted || rank == root),
                             .count = count,
                             .blocks = blocks,
                             .root = root,
                             .rank = rank,
                             .ranks = ranks};
}

static bool is_root(const struct perf_job *job)
{
    return job->rank == job->root;
}

bool job_part(const struct perf_job *job, int i, struct perf_part *out)
{
    bool none = collectives[job->operation->collective].writes_at_root && !is_root(job);
    return !none && job->operation->part && job->operation->part(job, i, out);
}

size_t job_result_count(const struct perf_job *job)
{
    struct perf_part part;
    size_t end = 0;
    for (int i = 0; job_part(job, i, &part); i++)
        end = part.at + part.count;
    return end;
}

struct perf_input job_input(const struct perf_job *job)
{
    const struct collective *kind = &collectives[job->operation->collective];
    if (kind->reads_at_root && !is_root(job))
        return (struct perf_input){0};
    if (kind->reads == OWN_BLOCK && kind->writes == ALL_BLOCKS)
        return (struct perf_input){job->in_place, job->in_place ? job->blocks->at[job->rank] : 0,
                                   job->blocks->counts[job->rank]};
    bool in_place = job->in_place || job->operation->collective == ALNICO_BROADCAST;
    return (struct perf_input){in_place, 0, perf_extent(job->operation, job->count, job->ranks)};
}

bool part_all(const struct perf_job *job, int i, struct perf_part *out)
{
    *out = (struct perf_part){0, job->count, 0, 0, job->ranks};
    return i == 0;
}

bool part_copy(const struct perf_job *job, int i, struct perf_part *out)
{
    *out = (struct perf_part){0, job->count, 0, job->root, 1};
    return i == 0;
}

/* Rank i's block. In an alltoall it stands there behind those for the ranks below this one. */
bool part_blocks(const struct perf_job *job, int i, struct perf_part *out)
{
    if (i >= job->ranks)
        return false;
    *out = (struct perf_part){job->blocks->at[i], job->blocks->counts[i], 0, i, 1};
    int before = collectives[job->operation->collective].reads == ALL_BLOCKS ? job->rank : 0;
    for (int b = 0; b < before; b++)
        out->index += block_count(job->operation, job->count, i, b, job->ranks);
    return true;
}

/* The own block of the result. In place the other blocks of the input stay. */
bool part_reduced(const struct perf_job *job, int i, struct perf_part *out)
{
    const struct perf_blocks *blocks = job->blocks;
    int b = job->in_place ? i : job->rank;
    if (i >= (job->in_place ? job->ranks : 1))
        return false;
    *out = (struct perf_part){job->in_place ? blocks->at[b] : 0, blocks->counts[b], blocks->at[b],
                              0, job->ranks};
    if (b != job->rank) {
        out->first = job->rank;
        out->ranks = 1;
    }
    return true;
}

/* The own block of the root's vector. In place at the root that vector stays. */
bool part_scattered(const struct perf_job *job, int i, struct perf_part *out)
{
    const struct perf_blocks *blocks = job->blocks;
    *out = job->in_place ? (struct perf_part){0, job->count * (size_t)job->ranks, 0, job->root, 1}
                         : (struct perf_part){0, blocks->counts[job->rank], blocks->at[job->rank],
                                              job->root, 1};
    return i == 0;
}

bool part_previous(const struct perf_job *job, int i, struct perf_part *out)
{
    *out = (struct perf_part){0, job->count, 0, job_neighbour(job, -1), 1};
    return i == 0;
}

/* From the left what it sent to the right, its second message; from the right its first. */
bool part_pair(const struct perf_job *job, int i, struct perf_part *out)
{
    *out = i == 0 ? (struct perf_part){0, job->count, job->count, job_neighbour(job, -1), 1}
                  : (struct perf_part){job->count, job->count, 0, job_neighbour(job, 1), 1};
    return i < 2;
}

bool part_partner(const struct perf_job *job, int i, struct perf_part *out)
{
    *out = (struct perf_part){0, job->count, 0, 1 - job->rank, 1};
    return i == 0 && job->rank < 2;
}
