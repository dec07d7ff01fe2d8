/*
 * A group of messages in one kernel: strands as peer_exchange.h describes them, a warp each, sent by stores to the
 * receiver's scratch, in lines that carry their flag.
 *
 * A warp of a strand reads the sender's buffer, or writes the receiver's, and waits for the warp of the same strand on the
 * other rank only: for units to arrive, or for room in the ring. All blocks must be resident.
 */
#include "comm/peer_exchange.h"
#include "comm/peer_lines.cuh"

#include <stddef.h>

enum { BATCH = 4 }; /* units of a strand that are under way in registers */

/* The kernel with few messages gets fewer arguments. */
template <int MESSAGES> struct arguments {
    peer_group group;
    int messages_count;
    peer_message messages[MESSAGES];
};

static_assert(offsetof(arguments<1>, messages) == offsetof(peer_exchange, messages),
              "the host's arguments begin as the kernel's");

/* A warp of a job. */
struct warp {
    const peer_group &group;
    const peer_job &job;
    const epoch &e;
    u32 strand;
};

/* The unit that a batch has as its k-th, which begins with unit u of the message. */
static __device__ __forceinline__ u64 unit_at(u64 u, u32 strands, int k)
{
    return u + (u64)k * strands;
}

static __device__ __forceinline__ u64 line_of(u64 unit)
{
    return unit * PEER_UNIT_LINES + threadIdx.x % 32 / 8;
}

/* This lane's part of a place in a strand's ring. */
static __device__ __forceinline__ char *place_of(char *ring, u64 number)
{
    return ring + (u32)number % PEER_DEPTH * PEER_UNIT_BYTES + threadIdx.x % 32 * 16;
}

static __device__ __forceinline__ u32 batch_units(u64 u, u64 units, u32 strands)
{
    u32 n = 0;
#pragma unroll
    for (int k = 0; k < BATCH; k++)
        n += unit_at(u, strands, k) < units;
    return n;
}

/* ---- Sending ---- */

/* Until n units fit into the ring. False: give up. */
static __device__ __forceinline__ bool wait_for_room(const warp &w, char *counts, pair &strand,
                                                     u32 n)
{
    const peer_arguments &a = w.group.base;
    spin s = {0, 0, 0};
    while (strand.x + n > strand.y + PEER_DEPTH) {
        strand.y = load_pair(counts).y;
        if (strand.x + n > strand.y + PEER_DEPTH && spin_failed(s, a, w.e, w.job.peer))
            return false;
    }
    return true;
}

/* strand.x and .y: units sent and received. */
static __device__ __forceinline__ bool send_message(const warp &w, const peer_message &m,
                                                    char *ring, char *counts, pair &strand)
{
    u64 bytes = m.bytes, units = peer_message_units(bytes);
    u32 strands = peer_message_strands(bytes, w.group.strands);
    bool aligned = (u64)m.at % 8 == 0;
    for (u64 u = w.strand; u < units; u += (u64)BATCH * strands) {
        u32 n = batch_units(u, units, strands);
        pair v[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (k < n)
                v[k] = load_line(m.at, line_of(unit_at(u, strands, k)), bytes, aligned);
        if (!wait_for_room(w, counts, strand, n))
            return false;
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (k < n)
                store_pair(place_of(ring, strand.x + k),
                           with_flag(v[k], peer_line_flag(strand.x + k, bytes,
                                                          line_of(unit_at(u, strands, k)))));
        strand.x += n;
    }
    return true;
}

static __device__ __forceinline__ void send_all(const warp &w, const peer_message *messages)
{
    const peer_arguments &a = w.group.base;
    char *counts = own_scratch(a) + peer_sent_at(w.job.peer, w.strand);
    char *ring = a.world.scratch[w.job.peer] +
                 peer_ring_at(a.world.rank, w.job.peer, a.world.size, w.strand);
    pair strand = load_pair(counts);
#pragma unroll 1
    for (int i = 0; i < w.job.count; i++)
        if (!send_message(w, messages[w.job.first + i], ring, counts, strand))
            return;
    if (threadIdx.x % 32 == 0)
        store_relaxed(counts, strand.x);
}

/* ---- Receiving ---- */

/* Of the lanes that see another message than they expect the first one says so. */
static __device__ __noinline__ void contradict(const peer_arguments &a, u64 epoch, int peer,
                                               u64 sent, u64 received, u32 lanes)
{
    if (threadIdx.x % 32 == __ffs((int)lanes) - 1)
        give_up(a, epoch, PEER_FAULT_MISMATCH, peer, sent, received);
}

/* Waits for n units. False: give up. */
static __device__ __forceinline__ bool receive_units(const warp &w, const peer_message &m,
                                                     char *ring, u64 number, u64 u, u32 strands,
                                                     u32 n, pair (&got)[BATCH])
{
    u64 lines = peer_message_lines(m.bytes);
    spin s = {0, 0, 0};
    for (;;) {
        int missing = -1;
        bool wrong = false;
        u64 flag = 0, line = 0;
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (k < n)
                got[k] = load_pair(place_of(ring, number + k));
#pragma unroll
        for (int k = BATCH - 1; k >= 0; k--) {
            u64 i = line_of(unit_at(u, strands, k)),
                wanted = peer_line_flag(number + k, m.bytes, i);
            if (k >= n || i >= lines || line_lane() != 7 || got[k].y == wanted)
                continue;
            missing = w.job.peer;
            if (!peer_flag_contradicts(got[k].y, wanted))
                continue;
            wrong = true;
            flag = got[k].y;
            line = i;
        }
        if (__all_sync(~0u, missing < 0))
            return true;
        u32 lanes = __ballot_sync(~0u, wrong);
        if (lanes)
            contradict(w.group.base, w.e.now, w.job.peer, peer_flag_bytes(flag, line), m.bytes,
                       lanes);
        if (lanes || spin_failed(s, w.group.base, w.e, missing))
            return false;
    }
}

/* `number`: units received. Who sends may use their places again once all lanes have them. */
static __device__ __forceinline__ bool receive_message(const warp &w, const peer_message &m,
                                                       char *ring, char *told, u64 &number)
{
    u64 units = peer_message_units(m.bytes);
    u32 strands = peer_message_strands(m.bytes, w.group.strands);
    bool aligned = (u64)m.at % 8 == 0;
    for (u64 u = w.strand; u < units; u += (u64)BATCH * strands) {
        u32 n = batch_units(u, units, strands);
        pair got[BATCH];
        if (!receive_units(w, m, ring, number, u, strands, n, got))
            return false;
        number += n;
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            store_relaxed(told, number);
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (k < n)
                store_line(m.at, line_of(unit_at(u, strands, k)), m.bytes, aligned, got[k]);
    }
    return true;
}

static __device__ __forceinline__ void receive_all(const warp &w, const peer_message *messages)
{
    const peer_arguments &a = w.group.base;
    char *count = own_scratch(a) + peer_received_at(w.job.peer, w.strand);
    char *ring = own_scratch(a) + peer_ring_at(w.job.peer, a.world.rank, a.world.size, w.strand);
    char *told = a.world.scratch[w.job.peer] + peer_sent_at(a.world.rank, w.strand) +
                 offsetof(peer_strand, received);
    u64 number = *(volatile u64 *)count;
#pragma unroll 1
    for (int i = 0; i < w.job.count; i++)
        if (!receive_message(w, messages[w.job.first + i], ring, told, number))
            return;
    if (threadIdx.x % 32 == 0)
        store_relaxed(count, number);
}

/* ---- To this rank itself ---- */

static __device__ __forceinline__ void copy_message(const warp &w, const peer_message &from,
                                                    const peer_message &to)
{
    u64 thread = (u64)w.strand * 32 + threadIdx.x % 32,
        step = (u64)(w.job.end - w.job.block) * blockDim.x;
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

/* ---- The kernel ---- */

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
    u64 at = line_of(w.strand) * PEER_LINE_PAYLOAD + line_lane() * 16;
    if (w.job.kind == PEER_JOB_SEND && at < m.bytes)
        prefetch(m.at + at);
    if (w.job.kind == PEER_JOB_SEND)
        prefetch(own_scratch(w.group.base) + peer_sent_at(w.job.peer, w.strand));
    else if (w.job.kind == PEER_JOB_RECEIVE)
        prefetch(own_scratch(w.group.base) + peer_received_at(w.job.peer, w.strand));
}

/* The epoch stays what it is. Who gave up before this kernel may have been missed by those that did not wait. */
static __device__ __forceinline__ void finish(const peer_arguments &a, const epoch &e, u32 told)
{
    if (blockIdx.x != 0 || threadIdx.x != 0)
        return;
    if (e.was_running)
        give_up(a, e.now, PEER_FAULT_BUSY, a.world.rank);
    else if (told)
        give_up(a, e.now, PEER_FAULT_TOLD, PEER_TOLD_BY(told));
    *(volatile u32 *)(own_scratch(a) + PEER_AT_RUNNING) = 0;
}

template <int MESSAGES>
static __global__ void __launch_bounds__(PEER_BLOCK_WARPS * 32)
    exchange(const __grid_constant__ arguments<MESSAGES> x)
{
    const peer_arguments &a = x.group.base;
    const peer_job &job = find_job(x.group);
    u32 strand = (blockIdx.x - job.block) * (blockDim.x / 32) + threadIdx.x / 32, told = 0;
    epoch e;
    warp w = {x.group, job, e, strand};
    if (strand < job.warps)
        fetch_first(w, x.messages);
    e = epoch_begin(a);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        told = *told_word(a, a.world.rank);
    if (e.broken)
        return;
    if (job.kind == PEER_JOB_OWN)
        copy_all(w, x.messages);
    else if (strand >= job.warps)
        return finish(a, e, told);
    else if (job.kind == PEER_JOB_SEND)
        send_all(w, x.messages);
    else
        receive_all(w, x.messages);
    finish(a, e, told);
}

extern "C" const void *peer_exchange_function(int many)
{
    return many ? (const void *)exchange<PEER_MESSAGES_MOST>
                : (const void *)exchange<PEER_MESSAGES_FEW>;
}
