/* A device whose memory the host does not reach, made of the CPU's streams: its addresses are not
 * the host's, so that whatever loads or stores there by itself crashes. Messages go through pinned
 * memory, as those of a GPU do, or over a made-up transport that takes the device's addresses. */
#ifndef ALNICO_TESTS_SUPPORT_FAR_H
#define ALNICO_TESTS_SUPPORT_FAR_H

#include <alnico/alnico.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The device's address of memory of this process, and the reverse. */
void *far_of(const void *host);
void *host_of(const void *pointer);

/* Copies by the device so far, and those by kernels of a stream. */
extern atomic_int far_copies, far_short_copies;

/* The next copy on this stream succeeds, the one after it fails. NULL: none does. */
void far_fail_second(void *stream);

struct device_ops;
const struct device_ops *far_device(void);

/* A communicator over all ranks, which are threads, on the device (collective). It calls itself a
 * CPU's, so that only the host backend is to be forced on it. */
struct rank;
alnico_comm_t far_comm(struct rank *rank, alnico_stream_t stream);

/* Messages of the device's memory that the made-up transport took. */
extern atomic_int far_messages;

/* Gives a communicator on the device the aware backend (collective), and over ranks that are
 * threads a transport that takes the device's memory. */
void far_be_aware(alnico_comm_t comm);

/* Gives a communicator on the device the hierarchical backend (collective), its ranks being on the
 * hosts of these identities; inside and between them the rows for GPUs choose. */
void far_be_hierarchical(alnico_comm_t comm, const uint64_t *hosts);

/* Forces an algorithm of either backend, on all ranks; false if they have none of that name. */
bool far_force(alnico_comm_t comm, alnico_collective_t collective, const char *name);

#endif
