/*
 * The algorithms of the peer backend, which have no rounds: every rank reads what the others published in
 * memory that all of them map. Here alpha is the time for a cache line to get from one core to another.
 */
#include "comm/algorithm.h"

const struct algorithm algorithm_one_shot = {
    .name = "one_shot",
    .about = "alpha + (p-1) n (beta + gamma); each rank combines all vectors itself",
};

const struct algorithm algorithm_two_shot = {
    .name = "two_shot",
    .about = "2 alpha + 2 (p-1)/p n beta + (p-1)/p n gamma; each rank combines one block for all",
};

const struct algorithm *const algorithms_peer[] = {&algorithm_one_shot, &algorithm_two_shot, NULL};
