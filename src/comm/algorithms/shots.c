/*
 * The algorithms of the backends that do not work in rounds. Those of the peer backend: every rank
 * reads what the others published in memory that all of them map. Here alpha is the time for a
 * cache line to get from one core, or GPU, to another.
 */
#include "comm/algorithms/algorithm.h"

const struct algorithm algorithm_one_shot = {
    .name = "one_shot",
    .about = "alpha + (p-1) n (beta + gamma); each rank combines all vectors itself",
};

const struct algorithm algorithm_two_shot = {
    .name = "two_shot",
    .about = "2 alpha + 2 (p-1)/p n beta + (p-1)/p n gamma; each rank combines one block for all",
};

const struct algorithm algorithm_recursive_multiplying = {
    .name = "recursive_multiplying",
    .about = "2 alpha + 2 sqrt(p) n (beta + gamma); groups of sqrt(p), then one of each "
             "(Ruefenacht, Bull, Booth 2017)",
};

const struct algorithm *const algorithms_peer[] = {&algorithm_one_shot, &algorithm_two_shot,
                                                   &algorithm_recursive_multiplying, NULL};

/* Of collectives that reduce no vector: those whose ranks read what they need, and what goes by
 * groups, too: barriers and gathers. */
const struct algorithm *const algorithms_peer_copies[] = {&algorithm_one_shot, NULL};
const struct algorithm *const algorithms_peer_groups[] = {&algorithm_one_shot,
                                                          &algorithm_recursive_multiplying, NULL};

/* On GPUs, whose stores go to each other's memory. */
const struct algorithm algorithm_one_shot_line = {
    .name = "one_shot_line",
    .about = "one_shot in lines of 128 bytes with one flag each: 16/15 of the bytes instead of 2",
};

const struct algorithm algorithm_two_shot_line = {
    .name = "two_shot_line",
    .about = "2 alpha + 2 (p-1)/p n beta; blocks, then results, pushed in lines of 128 bytes",
};

const struct algorithm algorithm_two_shot_direct = {
    .name = "two_shot_direct",
    .about = "2 barriers + 2 (p-1)/p n beta; loads from and stores to registered buffers",
};

const struct algorithm algorithm_two_shot_staged = {
    .name = "two_shot_staged",
    .about = "2 barriers a piece + 2 (p-1)/p n beta + 2 copies; through memory that all map",
};

const struct algorithm algorithm_peer_recursive_doubling = {
    .name = "peer_recursive_doubling",
    .about = "ceil(lg p) (alpha + n (beta + gamma)); vectors pushed to one partner a round",
};

const struct algorithm *const algorithms_peer_cuda[] = {&algorithm_one_shot,
                                                        &algorithm_one_shot_line,
                                                        &algorithm_two_shot_line,
                                                        &algorithm_two_shot_direct,
                                                        &algorithm_two_shot_staged,
                                                        &algorithm_peer_recursive_doubling,
                                                        NULL};

const struct algorithm algorithm_one_shot_direct = {
    .name = "one_shot_direct",
    .about = "2 barriers + (p-1) n beta; blocks stored to, or loaded from, registered buffers",
};

/* Of the other collectives: of all, and of those of blocks. */
const struct algorithm *const algorithms_peer_line[] = {&algorithm_one_shot_line, NULL};
const struct algorithm *const algorithms_peer_blocks[] = {&algorithm_one_shot_line,
                                                          &algorithm_one_shot_direct, NULL};

/* Of messages between two ranks. */
const struct algorithm algorithm_exchange = {
    .name = "exchange",
    .about =
        "alpha + 16/15 n beta; all messages of a group pushed in lines, by rings of the receivers",
};

const struct algorithm *const algorithms_peer_messages[] = {&algorithm_exchange, NULL};

/* On GPUs, through the host's memory. */
const struct algorithm algorithm_shared_one_shot = {
    .name = "shared_one_shot",
    .about = "alpha + 2 (p-1) n beta; vectors posted in host memory, each rank combines all",
};

const struct algorithm algorithm_shared_two_shot = {
    .name = "shared_two_shot",
    .about = "2 alpha a piece + 2 (p-1)/p n beta; blocks, then results, posted in host memory",
};

const struct algorithm *const algorithms_shared[] = {&algorithm_shared_one_shot,
                                                     &algorithm_shared_two_shot, NULL};

const struct algorithm algorithm_nccl = {
    .name = "nccl",
    .about = "NCCL's own choice among its rings and trees",
};

const struct algorithm algorithm_nccl_symmetric = {
    .name = "nccl_symmetric",
    .about = "NCCL's kernels for registered buffers in symmetric windows",
};

const struct algorithm algorithm_nccl_messages = {
    .name = "nccl_messages",
    .about = "NCCL's sends and receives, all in one group",
};

const struct algorithm *const algorithms_nccl[] = {&algorithm_nccl, &algorithm_nccl_symmetric,
                                                   NULL};
const struct algorithm *const algorithms_nccl_plain[] = {&algorithm_nccl, NULL};
const struct algorithm *const algorithms_nccl_messages[] = {&algorithm_nccl_messages, NULL};
