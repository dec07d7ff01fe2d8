/*
 * Messages between two GPUs through the peers' scratch: the part of it that they have, how a
 * message lies in it, and the plan of a kernel that carries out a group of them. Shared by C and
 * CUDA C.
 *
 * Only the ranks concerned launch such a kernel, each for its own calls. So nothing here is an
 * epoch: for each ordered pair of ranks the receiver's scratch has a channel, divided into strands,
 * which are rings of units; who sends and who receives count the units of a strand, in their own
 * scratch, so that graphs may be replayed. A unit is four lines of 128 bytes, each with a flag that
 * holds the unit's number and how many bytes of the message begin with this line. Unit u of a
 * message goes to strand u mod s, where s follows from its length: both sides agree, or see at once
 * that their lengths differ. A sender looks at what was received of a strand before it writes to a
 * unit again.
 *
 * Each strand of a channel has a warp on either side, which takes its units in the order of
 * messages and units. Of all units that are not received yet the first one is there, or can be
 * sent: its strand's ring has no unit that is not received. So groups end in whatever order others
 * call, if all blocks of a kernel are resident.
 */
#ifndef ALNICO_COMM_BACKENDS_PEER_CUDA_MESSAGES_H
#define ALNICO_COMM_BACKENDS_PEER_CUDA_MESSAGES_H

#include "comm/backends/peer_cuda/peer_cuda.h"

struct exchange;

#ifdef __CUDACC__
#define PEER_SHARED static __host__ __device__ __forceinline__
#else
#define PEER_SHARED static inline
#endif

enum {
    PEER_STRANDS = 256, /* of a channel, at most */
    PEER_DEPTH = 16,    /* units of a strand */
    PEER_UNIT_LINES = 4,
    PEER_UNIT_BYTES = PEER_UNIT_LINES * 128,
    PEER_STRAND_BYTES = PEER_DEPTH * PEER_UNIT_BYTES,
    PEER_AT_SENT = PEER_AT_MESSAGES, /* struct peer_strand [rank][strand]: to that rank */
    PEER_AT_RECEIVED = PEER_AT_SENT + (16 << 10), /* uint32_t [rank][strand]: units, from it */
    PEER_AT_RINGS = PEER_AT_SENT + (64 << 10),
    PEER_RANK_STRANDS = 736, /* of all channels to a rank: their rings have room */

    PEER_GRID_BLOCKS =
        96, /* at most, and warps of a block: a GPU with so many multiprocessors has */
    PEER_BLOCK_WARPS = 16,  /* all of them resident, whatever the group is */
    PEER_BLOCK_STRANDS = 8, /* a row's `blocks` are so many strands of each channel */
    PEER_MESSAGES_FEW = 16, /* that the smaller of two kernels takes */
    PEER_MESSAGES_MOST = 1024,
    PEER_JOBS = 2 * (PEER_GPUS - 1) + 1
};

/* Units sent, by the sender; and received, which the receiver writes here. They wrap around. */
struct peer_strand {
    uint32_t sent, received;
};

struct peer_message {
    char *at;
    uint64_t bytes;
};

/* All messages to one rank, or from one, in their order; or to this rank itself, with their
 * receives behind them. */
enum peer_job_kind { PEER_JOB_SEND, PEER_JOB_RECEIVE, PEER_JOB_OWN };
struct peer_job {
    int32_t kind, peer;
    int32_t first, count; /* among the messages */
    int32_t block, end;   /* of the grid */
    uint32_t warps;       /* that have something to do */
};

/* The arguments of a kernel of messages. */
struct peer_group {
    struct peer_arguments base; /* world, kernel, and what all messages lie behind */
    uint32_t strands;           /* of each channel */
    int32_t jobs;
    struct peer_job job[PEER_JOBS];
};

struct peer_messages {
    struct peer_group group;
    int messages_count;
    struct peer_message messages[PEER_MESSAGES_MOST];
};

/* A message without bytes is a line, too. GPUs' memory has fewer than 2^32 lines. */
PEER_SHARED uint32_t peer_message_lines(uint64_t bytes)
{
    return bytes ? (uint32_t)((bytes + PEER_LINE_PAYLOAD - 1) / PEER_LINE_PAYLOAD) : 1;
}

PEER_SHARED uint32_t peer_message_units(uint64_t bytes)
{
    return (peer_message_lines(bytes) + PEER_UNIT_LINES - 1) / PEER_UNIT_LINES;
}

/* Over how many of so many strands it is spread. */
PEER_SHARED uint32_t peer_message_strands(uint64_t bytes, uint32_t strands)
{
    uint32_t units = peer_message_units(bytes);
    return units < strands ? units : strands;
}

/* Bytes of a message from a line on, as far as a flag can say. */
PEER_SHARED uint32_t peer_bytes_from(uint64_t bytes, uint32_t line)
{
    uint64_t at = (uint64_t)line * PEER_LINE_PAYLOAD, left = at < bytes ? bytes - at : 0;
    return left < 0xffffffffu ? (uint32_t)left : 0xffffffffu;
}

/* The flag of a line, of a strand's unit with that number. Units before it in the same place have
 * other numbers. */
PEER_SHARED uint64_t peer_line_flag(uint32_t number, uint64_t bytes, uint32_t line)
{
    return (uint64_t)(number + 1) << 32 | peer_bytes_from(bytes, line);
}

/* Whether a flag is of the same unit as this one but of another message, and how many bytes that
 * one has. */
PEER_SHARED int peer_flag_contradicts(uint64_t flag, uint64_t wanted)
{
    return flag != wanted && (flag ^ wanted) >> 32 == 0;
}

PEER_SHARED uint64_t peer_flag_bytes(uint64_t flag, uint32_t line)
{
    return (uint64_t)line * PEER_LINE_PAYLOAD + (flag & 0xffffffffu);
}

/* Whether so many more units may be sent. */
PEER_SHARED int peer_has_room(uint32_t sent, uint32_t received, uint32_t more)
{
    return sent - received + more <= PEER_DEPTH;
}

/* Strands that each channel has between so many ranks: whole blocks of the largest grid. */
PEER_SHARED uint32_t peer_strands_most(int size)
{
    int fit = PEER_RANK_STRANDS / (size - 1) / PEER_BLOCK_WARPS * PEER_BLOCK_WARPS;
    return (uint32_t)(fit < PEER_STRANDS ? fit : PEER_STRANDS);
}

/* The place of a strand of the sender's channel in the receiver's scratch, and of either side's
 * counts for it in its own. */
PEER_SHARED uint64_t peer_ring_at(int from, int to, int size, uint32_t strand)
{
    uint64_t place = (uint64_t)(from < to ? from : from - 1);
    return PEER_AT_RINGS + (place * peer_strands_most(size) + strand) * PEER_STRAND_BYTES;
}

PEER_SHARED uint64_t peer_sent_at(int to, uint32_t strand)
{
    return PEER_AT_SENT + ((uint64_t)to * PEER_STRANDS + strand) * sizeof(struct peer_strand);
}

PEER_SHARED uint64_t peer_received_at(int from, uint32_t strand)
{
    return PEER_AT_RECEIVED + ((uint64_t)from * PEER_STRANDS + strand) * sizeof(uint32_t);
}

/* The fewest blocks to which a grid can be limited: one for each direction of each channel, and one. */
PEER_SHARED int peer_messages_blocks_least(int size)
{
    return 2 * (size - 1) + 1;
}

/* Plans the messages of a call of this rank, at least one, for out->group.base, of which world, send
 * and recv are set: they lie so many bytes behind these two. Messages to the rank itself have as
 * many receives. `blocks` is the tuning row's, 0: by itself; the strands follow from it, so both
 * sides have the same. Pure. Returns 0, or 1 if there are more messages than a kernel takes. */
int peer_messages_plan(struct peer_messages *out, struct peer_grid *grid,
                       const struct exchange *messages, int count, int blocks);

#endif
