/*
 * Memory that all ranks of one host map. It has no name in any file system: rank 0 makes it and
 * hands a descriptor to the other processes (descriptor_passing.h), so that nothing is left when they
 * end, however they end, and the size of /dev/shm does not matter. Made and destroyed on the
 * caller's thread.
 */
#ifndef ALNICO_COMM_HOSTMEM_SEGMENT_H
#define ALNICO_COMM_HOSTMEM_SEGMENT_H

#include "comm/agree.h"

struct mapping;
struct segment_member;

struct segment {
    void *base;   /* zero at first, aligned to a page */
    size_t bytes; /* as asked for */
    int rank, size;

    struct mapping *mapping; /* shared by the ranks of a process */
    struct segment_member *members;
    _Atomic int *pidfds; /* of the other ranks' processes, opened when first asked for */
};

/* Makes a segment of `bytes` bytes for the ranks of `r` (collective). `mine` is how this rank's steps
 * before went: if not SUCCESS, it takes part so that nobody waits for it, and all fail. Ranks that are
 * threads of one process share one mapping. Waits for `r`'s timeout at most, besides what its
 * allgather waits, and hardly at all where ranks cannot reach each other. Every rank gets the same
 * status, with the detail of the lowest rank that failed, unless the allgather itself fails. On
 * failure *out is zeroed. Errors: SYSTEM, MEMORY, TIMEOUT, MISMATCH (`bytes` differ), and those of
 * the allgather and of `mine`. */
alnico_status_t segment_create(struct rendezvous *r, alnico_status_t mine, size_t bytes,
                               struct segment *out);

/* The part of a mapped segment of `bytes` bytes that is counted for `rank`. All parts together are
 * what is mapped; rank 0's is the largest. */
size_t segment_part(size_t bytes, int size, int rank);

/* Whether a status that all ranks got says that they cannot share memory, and may do without. */
bool segment_is_refused(alnico_status_t status);

/* Marks this rank as left and unmaps, without waiting for the others, which may go on using theirs. A
 * zeroed segment is fine. */
void segment_destroy(struct segment *segment);

/* Keeps the segment mapped until segment_release, also after segment_destroy. */
struct mapping *segment_hold(const struct segment *segment);
void segment_release(struct mapping *mapping);

/* Whether the process of `rank` ended before the rank left: it was killed, or exited in between. False
 * if nobody can tell. Never blocks; any thread, until segment_destroy. */
bool segment_gone(const struct segment *segment, int rank);

/* True once `rank` has called segment_destroy. Thread rule as for segment_gone. */
bool segment_left(const struct segment *segment, int rank);

/* Whether `rank` is a thread of the calling process and shares its addresses. */
bool segment_same_process(const struct segment *segment, int rank);

/* The process number of `rank` as the calling process sees it; 0 if it cannot. */
int segment_pid(const struct segment *segment, int rank);

#endif
