/* The machine, by hwloc: host, cores, caches, NUMA nodes; and the place of the engine thread. */
#ifndef ALNICO_DEVICE_TOPOLOGY_H
#define ALNICO_DEVICE_TOPOLOGY_H

#include <alnico/alnico.h>

#include <stdbool.h>
#include <stdint.h>

enum { CORE_SET_WORDS = 16, CORE_SET_UNITS = CORE_SET_WORDS * 64 };

/* A set of processing units by their operating-system number, 0 to 1023. */
struct core_set {
    uint64_t bits[CORE_SET_WORDS];
};

struct topology {
    char host[64];           /* name, for people */
    uint64_t host_id;        /* equal exactly for processes that share a kernel (boot id)
                                and its network, as processes must that share memory, and
                                whose ALNICO_HOST is the same */
    uint64_t kernel_id;      /* equal for all hosts of one kernel, such as containers */
    int cores, units;        /* physical cores, and processing units that may be used at all */
    int numa_nodes;          /* at least 1 */
    size_t l1, l2, l3;       /* data cache bytes seen by one core; 0 if unknown */
    struct core_set usable;  /* units that this process could be bound to */
    struct core_set process; /* units that its threads are bound to now, all together */
    struct {
        uint16_t core, node; /* the first unit of its core, and its NUMA node */
    } places[CORE_SET_UNITS];
};

/* Reads the machine, which takes some milliseconds. Any thread. Errors: SYSTEM, with the reason. */
alnico_status_t topology_read(struct topology *out);

/* Only the host's identity, at once: struct topology's host_id. */
uint64_t topology_host_id(void);

/* True if the process, of the same kernel, may run on one of the usable units. */
bool topology_shares(const struct topology *topology, const struct core_set *process);

/* The unit for a rank's engine thread: one that no bound rank of the host uses, or -1 for none (do
 * not bind). `process` holds each of the host's `ranks` ranks' own sets; `rank` is the caller's
 * place among them. Where a rank is not bound (its set is all usable units), neither is its engine:
 * the system moves its threads, and one that stood still would often be in another's way. A bound
 * rank uses the units of its set. Engines take what is left in rank order, each its own: first
 * where nobody uses the core, then on the NUMA node of their rank, then, where no core shows
 * threads, beside a free one, then the last. */
int topology_engine_core(const struct topology *topology, const struct core_set *process, int rank,
                         int ranks);

/* Binds the calling thread to one unit. Errors: SYSTEM. */
alnico_status_t topology_bind_thread(int unit);

#endif
