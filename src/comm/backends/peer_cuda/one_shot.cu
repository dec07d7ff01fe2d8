/*
 * One-shot allreduce: every rank pushes its whole vector into every peer's scratch and combines
 * everybody's itself. Data travel with their flags, so there is no other synchronisation: one way
 * over the link. One rank sends (size - 1) * bytes, times 2 in slots or 16/15 in lines.
 *
 * Slot or line i of rank r is written by r's thread or group of lanes i and read by the same of
 * every peer; blocks wait for the block of the same number of the peers only, and all blocks must
 * be resident.
 */
#include "comm/backends/peer_cuda/scratch.cuh"

template <int KIND, int RANKS>
static __global__ void __launch_bounds__(512, RANKS <= 4 ? 2 : 1)
    one_shot(const __grid_constant__ peer_arguments a)
{
    fetch_ahead(a, 8);
    epoch e = epoch_begin(a);
    u64 words = (a.bytes + 7) / 8, step = (u64)gridDim.x * blockDim.x;
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    bool load_aligned = a.aligned & 1, store_aligned = a.aligned & 2;
    u64 mine = load_word(a.send, first * 8, a.bytes, load_aligned);
    if (e.broken)
        return;
    u64 at = PEER_AT_LL + parity_of(e) * PEER_LL_BYTES;
    u64 own = at + (u64)a.world.rank * words * 16, word = mine;
    for (u64 i = first; i < words; i += step) {
        if (i != first)
            word = load_word(a.send, i * 8, a.bytes, load_aligned);
#pragma unroll
        for (int k = 1; k < RANKS; k++)
            if (k < a.world.size) {
                int r = beyond(a, k);
                store_slot(a.world.scratch[r] + own + i * 16, word, (u32)e.now);
            }
    }
    const char *buffer = own_scratch(a) + at;
    /* Whole warps take part; lanes behind the end have nothing to do. */
    for (u64 i = first; i - threadIdx.x % 32 < words; i += step) {
        u64 got[RANKS], parts[RANKS];
        word = i == first ? mine : load_word(a.send, i * 8, a.bytes, load_aligned);
        auto at = [=](int r) { return buffer + ((u64)r * words + i) * 16; };
        if (!receive_slots<RANKS>(a, e, i < words, at, got))
            break;
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            parts[r] = r == a.world.rank ? word : got[r];
        if (i < words)
            store_word(a.recv, i * 8, a.bytes, store_aligned, combine<KIND, RANKS>(parts, a));
    }
    epoch_end(a, e);
}

template <int KIND, int RANKS>
static __global__ void __launch_bounds__(512, RANKS <= 4 ? 2 : 1)
    one_shot_line(const __grid_constant__ peer_arguments a)
{
    fetch_ahead(a, PEER_LINE_PAYLOAD / 8);
    epoch e = epoch_begin(a);
    u64 lines = line_count(a.bytes), step = (u64)gridDim.x * blockDim.x / 8;
    u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 8;
    pair early = load_user_line(a, first, 0);
    if (e.broken)
        return;
    u64 flag = line_flag(e, 0), own = (u64)a.world.rank * lines;
    for (u64 i = first; i < lines; i += step) {
        pair mine = with_flag(i == first ? early : load_user_line(a, i, 0), flag);
#pragma unroll
        for (int k = 1; k < RANKS; k++)
            if (k < a.world.size) {
                int r = beyond(a, k);
                store_pair(line_at(line_buffer(a, e, r), own + i), mine);
            }
    }
    for (u64 i = first; i - threadIdx.x % 32 / 8 < lines; i += step) {
        pair got[RANKS];
        const char *from[RANKS];
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            from[r] = line_at(line_buffer(a, e, a.world.rank), (u64)r * lines + i);
        pair mine = i == first ? early : load_user_line(a, i, 0);
        if (!receive_lines<RANKS>(a, e, from, flag, i < lines ? all_others(a) : 0, 0, got))
            break;
        if (i < lines)
            store_user_line(a, i, combine_pairs<KIND, RANKS>(a, got, mine));
    }
    epoch_end(a, e);
}

KERNEL_FUNCTION(peer_one_shot_function, one_shot)
KERNEL_FUNCTION(peer_one_shot_line_function, one_shot_line)
