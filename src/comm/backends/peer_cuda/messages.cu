/*
 * A group of messages in one kernel: strands as peer_cuda/messages.h describes them, a warp each, sent
 * by stores to the receiver's scratch, in lines that carry their flag.
 *
 * A warp of a strand reads the sender's buffer, or writes the receiver's, and waits for the warp of
 * the same strand on the other rank only: for units to arrive, or for room in the ring. All blocks
 * must be resident.
 */
#include "comm/backends/peer_cuda/messages.h"
#include "comm/backends/peer_cuda/scratch.cuh"

#include <stddef.h>

enum {
    BATCH = 4,            /* units of a strand that are under way in registers */
    SUSPICIOUS_TRIES = 64 /* after which what is there is looked at */
};

/* The kernel with few messages gets fewer arguments. */
template <int MESSAGES> struct arguments {
    peer_group group;
    int messages_count;
    peer_message messages[MESSAGES];
};

static_assert(offsetof(arguments<1>, messages) == offsetof(peer_messages, messages),
              "the host's arguments begin as the kernel's");

/* A warp of a job. */
struct warp {
    const peer_group &group;
    const peer_job &job;
    const epoch &e;
    u32 strand;
};

static __device__ __forceinline__ u32 lane_of()
{
    return threadIdx.x % 32;
}

static __device__ __forceinline__ u32 line_of(u32 unit)
{
    return unit * PEER_UNIT_LINES + lane_of() / 8;
}

/* This lane's part of the place that the unit with that number has in a strand's ring. */
static __device__ __forceinline__ char *place_of(char *ring, u32 number)
{
    return ring + number % PEER_DEPTH * PEER_UNIT_BYTES + lane_of() * 16;
}

static __device__ __forceinline__ u32 load_count(const void *at)
{
    return *(const volatile u32 *)at;
}

static __device__ __forceinline__ void store_count(void *at, u32 count)
{
    *(volatile u32 *)at = count;
}

/* A message as a warp of a strand sees it, with the unit that comes next. */
struct part {
    char *at;
    u64 bytes;
    u32 unit, units, step;
    bool aligned;
};

static __device__ __forceinline__ part part_of(const warp &w, const peer_message &m)
{
    part p;
    p.at = m.at;
    p.bytes = m.bytes;
    p.unit = w.strand;
    p.units = peer_message_units(m.bytes);
    p.step = p.units < w.group.strands ? p.units : w.group.strands;
    p.aligned = (u64)m.at % 8 == 0;
    return p;
}

/* The number of next units that make a batch. */
static __device__ __forceinline__ int batch_of(const part &p)
{
    int n = 0;
#pragma unroll
    for (int k = 0; k < BATCH; k++)
        n += p.unit + k * p.step < p.units;
    return n;
}

/* Until n units fit into the ring. False: give up. */
static __device__ __forceinline__ bool wait_for_room(const warp &w, const char *counts, u32 sent,
                                                     u32 &received, u32 n)
{
    spin s = {0, 0, 0};
    while (!peer_has_room(sent, received, n)) {
        received = load_count(counts + offsetof(peer_strand, received));
        if (!peer_has_room(sent, received, n) && spin_failed(s, w.group.base, w.e, w.job.peer))
            return false;
    }
    return true;
}

static __device__ __forceinline__ bool send_message(const warp &w, const peer_message &m,
                                                    char *ring, const char *counts, u32 &sent,
                                                    u32 &received)
{
    part p = part_of(w, m);
    while (p.unit < p.units) {
        int n = batch_of(p);
        pair v[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (k < n)
                v[k] = load_line(p.at, line_of(p.unit + k * p.step), p.bytes, p.aligned);
        if (!wait_for_room(w, counts, sent, received, n))
            return false;
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (k < n)
                store_pair(place_of(ring, sent + k),
                           with_flag(v[k], peer_line_flag(sent + k, p.bytes,
                                                          line_of(p.unit + k * p.step))));
        sent += n;
        p.unit = n < BATCH ? p.units : p.unit + BATCH * p.step;
    }
    return true;
}

static __device__ __forceinline__ void send_all(const warp &w, const peer_message *messages)
{
    const peer_arguments &a = w.group.base;
    char *counts = own_scratch(a) + peer_sent_at(w.job.peer, w.strand);
    char *ring = a.world.scratch[w.job.peer] +
                 peer_ring_at(a.world.rank, w.job.peer, a.world.size, w.strand);
    u64 both = *(const volatile u64 *)counts;
    u32 sent = (u32)both, received = (u32)(both >> 32);
#pragma unroll 1
    for (int i = 0; i < w.job.count; i++)
        if (!send_message(w, messages[w.job.first + i], ring, counts, sent, received))
            return;
    if (lane_of() == 0)
        store_count(counts, sent);
}

/* Whether all lines of the next n units are of this message. The first lane that sees another's
 * reports it. */
static __device__ __noinline__ bool is_right(const peer_arguments &a, u64 epoch, int peer,
                                             char *ring, u32 number, u32 line, u64 bytes)
{
    u64 flag = load_pair(place_of(ring, number)).y, wanted = peer_line_flag(number, bytes, line);
    bool wrong =
        line < peer_message_lines(bytes) && line_lane() == 7 && peer_flag_contradicts(flag, wanted);
    u32 lanes = __ballot_sync(~0u, wrong);
    if (lanes && lane_of() == __ffs((int)lanes) - 1)
        give_up(a, epoch, PEER_FAULT_MISMATCH, peer, peer_flag_bytes(flag, line), bytes);
    return lanes == 0;
}

static __device__ __forceinline__ bool is_possible(const warp &w, const part &p, char *ring,
                                                   u32 number, int n)
{
#pragma unroll 1
    for (int k = 0; k < n; k++)
        if (!is_right(w.group.base, w.e.now, w.job.peer, ring, number + k,
                      line_of(p.unit + k * p.step), p.bytes))
            return false;
    return true;
}

/* Waits for n units. False: give up. */
static __device__ __forceinline__ bool receive_units(const warp &w, const part &p, char *ring,
                                                     u32 number, int n, pair (&got)[BATCH])
{
    spin s = {0, 0, 0};
    u32 lines = peer_message_lines(p.bytes);
    for (;;) {
        int missing = -1;
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (k < n)
                got[k] = load_pair(place_of(ring, number + k));
#pragma unroll
        for (int k = BATCH - 1; k >= 0; k--) {
            u32 line = line_of(p.unit + k * p.step);
            if (k < n && line < lines && line_lane() == 7 &&
                got[k].y != peer_line_flag(number + k, p.bytes, line))
                missing = w.job.peer;
        }
        if (__all_sync(~0u, missing < 0))
            return true;
        if (s.tries % SUSPICIOUS_TRIES == SUSPICIOUS_TRIES - 1 &&
            !is_possible(w, p, ring, number, n))
            return false;
        if (spin_failed(s, w.group.base, w.e, missing))
            return false;
    }
}

/* `number`: units received. Who sends may use their places again once all lanes have them. */
static __device__ __forceinline__ bool receive_message(const warp &w, const peer_message &m,
                                                       char *ring, char *room, u32 &number)
{
    part p = part_of(w, m);
    while (p.unit < p.units) {
        int n = batch_of(p);
        pair got[BATCH];
        if (!receive_units(w, p, ring, number, n, got))
            return false;
        number += n;
        __syncwarp();
        if (lane_of() == 0)
            store_count(room, number);
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (k < n)
                store_line(p.at, line_of(p.unit + k * p.step), p.bytes, p.aligned, got[k]);
        p.unit = n < BATCH ? p.units : p.unit + BATCH * p.step;
    }
    return true;
}

static __device__ __forceinline__ void receive_all(const warp &w, const peer_message *messages)
{
    const peer_arguments &a = w.group.base;
    char *count = own_scratch(a) + peer_received_at(w.job.peer, w.strand);
    char *ring = own_scratch(a) + peer_ring_at(w.job.peer, a.world.rank, a.world.size, w.strand);
    char *room = a.world.scratch[w.job.peer] + peer_sent_at(a.world.rank, w.strand) +
                 offsetof(peer_strand, received);
    u32 number = load_count(count);
#pragma unroll 1
    for (int i = 0; i < w.job.count; i++)
        if (!receive_message(w, messages[w.job.first + i], ring, room, number))
            return;
    if (lane_of() == 0)
        store_count(count, number);
}

static __device__ __forceinline__ void copy_message(const warp &w, const peer_message &from,
                                                    const peer_message &to)
{
    u64 thread = (u64)w.strand * 32 + lane_of(), step = (u64)(w.job.end - w.job.block) * blockDim.x;
    bool reads = (u64)from.at % 8 == 0, writes = (u64)to.at % 8 == 0;
#pragma unroll 4
    for (u64 at = thread * 8; at < from.bytes; at += step * 8)
        store_word(to.at, at, to.bytes, writes, load_word(from.at, at, from.bytes, reads));
}

static __device__ __forceinline__ void copy_all(const warp &w, const peer_message *messages)
{
    const peer_arguments &a = w.group.base;
#pragma unroll 1
    for (int i = w.job.first; i < w.job.first + w.job.count; i++) {
        const peer_message &from = messages[i], &to = messages[i + w.job.count];
        if (from.bytes == to.bytes)
            copy_message(w, from, to);
        else if (w.strand == 0 && threadIdx.x == 0)
            give_up(a, w.e.now, PEER_FAULT_MISMATCH, a.world.rank, from.bytes, to.bytes);
    }
}

static __device__ __forceinline__ const peer_job &find_job(const peer_group &group)
{
    int i = 0;
    while (i < group.jobs - 1 && blockIdx.x >= group.job[i].end)
        i++;
    return group.job[i];
}

/* While the kernel before this one ends: into the second-level cache, without looking at it. */
static __device__ __forceinline__ void fetch_first(const warp &w, const peer_message *messages)
{
    const peer_message &m = messages[w.job.first];
    u64 at = (u64)line_of(w.strand) * PEER_LINE_PAYLOAD + line_lane() * 16;
    if (w.job.kind == PEER_JOB_SEND && at < m.bytes)
        prefetch(m.at + at);
    if (w.job.kind == PEER_JOB_SEND)
        prefetch(own_scratch(w.group.base) + peer_sent_at(w.job.peer, w.strand));
    else if (w.job.kind == PEER_JOB_RECEIVE)
        prefetch(own_scratch(w.group.base) + peer_received_at(w.job.peer, w.strand));
}

/* The epoch stays the same. A rank that gave up before this kernel may have been missed by ranks
 * that did not wait. */
static __device__ __forceinline__ void finish(const peer_arguments &a, const epoch &e, u32 report)
{
    if (blockIdx.x != 0 || threadIdx.x != 0)
        return;
    if (e.was_running)
        give_up(a, e.now, PEER_FAULT_BUSY, a.world.rank);
    else if (report)
        give_up(a, e.now, PEER_FAULT_REPORTED, PEER_REPORT_BY(report));
    *(volatile u32 *)(own_scratch(a) + PEER_AT_RUNNING) = 0;
}

template <int MESSAGES>
static __global__ void __launch_bounds__(PEER_BLOCK_WARPS * 32)
    carry_messages(const __grid_constant__ arguments<MESSAGES> x)
{
    const peer_arguments &a = x.group.base;
    const peer_job &job = find_job(x.group);
    u32 strand = (blockIdx.x - job.block) * (blockDim.x / 32) + threadIdx.x / 32, report = 0;
    epoch e;
    warp w = {x.group, job, e, strand};
    if (strand < job.warps)
        fetch_first(w, x.messages);
    e = epoch_begin(a);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        report = *report_word(a, a.world.rank);
    if (e.broken)
        return;
    if (job.kind == PEER_JOB_OWN)
        copy_all(w, x.messages);
    else if (strand >= job.warps)
        return finish(a, e, report);
    else if (job.kind == PEER_JOB_SEND)
        send_all(w, x.messages);
    else
        receive_all(w, x.messages);
    finish(a, e, report);
}

const void *peer_messages_few_function(int, int)
{
    return (const void *)carry_messages<PEER_MESSAGES_FEW>;
}

const void *peer_messages_many_function(int, int)
{
    return (const void *)carry_messages<PEER_MESSAGES_MOST>;
}
