/*
 * Ranks of a simulated machine in virtual time, all driven by one thread of one process. Every rank
 * has a clock. Messages and reductions take the time that the machine's figures say, and move real
 * bytes as well unless that is switched off. The owner polls the rank that sim_next names, until
 * nothing is left:
 *
 *     poll every rank once; while ((rank = sim_next(sim, &status)) >= 0) poll that rank;
 */
#ifndef ALNICO_COMM_TRANSPORTS_SIM_SIM_H
#define ALNICO_COMM_TRANSPORTS_SIM_SIM_H

#include "comm/transports/transport.h"
#include "device/device.h"

enum sim_class { SIM_SAME_HOST, SIM_SAME_LEAF, SIM_OTHER_LEAF, SIM_CLASSES };

/*
 * A message of n bytes takes latency + n / bandwidth of the link between its ranks; a rank sends
 * one message after another. Messages that leave a host share its injection limit, as do those that
 * enter it; those that leave or enter a leaf switch share hosts_per_leaf * injection / taper. Shared
 * parts serve messages in the order of sending, and are never idle while one waits.
 */
struct sim_machine {
    struct sim_link {
        double latency_us, bandwidth_gbps; /* gigabytes per second, > 0 */
    } link[SIM_CLASSES];
    double reduce_gbps;    /* gigabytes of a vector combined per second; 0: in no time */
    double injection_gbps; /* of a host, each way; 0: unlimited, and the leaves are too */
    double taper; /* 1: the leaves' uplinks carry all that their hosts inject; 2: half of it */
    int ranks_per_host; /* consecutive ranks; at least 1 */
    int hosts_per_leaf; /* consecutive hosts; 0: all at one leaf */
};

struct sim;

/* `size` ranks at time 0. Without `data` no bytes are moved or reduced: the buffers are never
 * touched. Errors: MEMORY. */
alnico_status_t sim_create(const struct sim_machine *machine, int size, bool data,
                           struct sim **out);

/* Ends everything that is on its way. NULL is fine. */
void sim_destroy(struct sim *sim);

/* A rank's end, which belongs to the simulation: its destroy does nothing, and it has no
 * subsets. */
struct transport *sim_transport(struct sim *sim, int rank);

/* The CPU device, but for its streams, which are ranks' clocks: reduce takes sim_stream of the rank
 * that reduces, and moves its clock on. */
const struct device_ops *sim_device(struct sim *sim);
void *sim_stream(struct sim *sim, int rank);

/* Saves polls, and changes only the order of events at one instant. Call it after each poll of a rank,
 * or never. pair: the rank waits for one exchange only, and need not be polled at the end of its send
 * while its receive is on its way. Errors: MEMORY. */
alnico_status_t sim_hint_pair(struct sim *sim, int rank, bool pair);

/* Moves virtual time to the next end of a transfer, and returns the rank to poll; -1 when nothing
 * is on its way, or on an error, which *status says. */
int sim_next(struct sim *sim, alnico_status_t *status);

/* A rank's clock in microseconds. */
double sim_clock_us(const struct sim *sim, int rank);

/* Messages sent so far. */
uint64_t sim_messages(const struct sim *sim);

#endif
