/* What the suite needs of a device: memory, copies ordered by streams, and memory that is
 * registered. One site a rank; its calls come from the rank's threads, but take and give_all from
 * one only. */
#ifndef ALNICO_TESTS_CONFORMANCE_SITE_H
#define ALNICO_TESTS_CONFORMANCE_SITE_H

#include "tests/conformance/case.h"
#include "tests/support/ranks.h"

/* A copy between the host's memory and the device's, which a stream carries out; stays until it
 * has. */
struct copy {
    char *to;
    const char *from;
    size_t bytes;
    double time; /* when it was, on the steady clock; 0: the device does not say */
};

struct site_ops {
    const char *name;       /* of --device */
    alnico_device_t device; /* whose algorithms there are */
    const char
        *only; /* algorithms of other backends than this one would crash here; NULL: all are fine */
    bool staged; /* a call may be longer than what the host backend has for it */
    bool self;   /* a send to oneself and its receive may be two calls */
    /* Algorithms are forced while nothing is in flight: to make what they need may wait for the
     * device. */
    bool calm;
    uint64_t renew; /* after so many calls communicators are made anew */

    int (*most)(void); /* ranks that there may be */
    void *(*open)(const struct rank *rank, bool mpi);
    void (*close)(void *site);

    /* A communicator of all ranks. Optional: by alnico_comm_create, or _mpi. */
    alnico_comm_t (*world)(struct rank *rank, alnico_stream_t stream);

    /* Of another thread of the rank: makes the device current. */
    void (*enter)(void *site);

    /* A lane's stream; the same numbers are one stream. */
    void *(*stream_create)(void *site);
    void (*stream_destroy)(void *stream);
    void (*drain)(void *stream);

    /* Stream of each lane: equal numbers share one; -1: the inline stream. */
    int streams[LANES];

    /* Memory of the device, or of the host for its copies; aligned to 64. All is given back at
     * once. Of a registered buffer the address is the same on all ranks for the same slot. */
    char *(*take)(void *site, size_t bytes);
    char *(*take_host)(void *site, size_t bytes);
    char *(*take_registered)(void *site, int lane, int slot, size_t bytes);
    void (*give_all)(void *site);

    void (*put)(void *site, void *stream, struct copy *copy);
    void (*get)(void *site, void *stream, struct copy *copy);

    /* Forces one of `only`'s algorithms (collective). Optional: as the library does. */
    alnico_status_t (*force)(alnico_comm_t comm, alnico_collective_t collective, const char *name);

    /* After a communicator was made, and before it is destroyed (collective over its ranks). NULL:
     * nothing to do. */
    void (*lane_open)(void *site, int lane, alnico_comm_t comm);
    void (*lane_close)(void *site, int lane, alnico_comm_t comm);
};

extern const struct site_ops site_cpu, site_far, site_aware, site_hierarchical;
#ifdef ALNICO_HAVE_CUDA
extern const struct site_ops site_cuda;
#endif

#endif
