/*
 * [SEAM backend] A way to carry out a whole collective: "host" by an operation of the progress engine,
 * others by the device itself. The public calls check and choose, then call start; the request
 * functions lead back to the backend that made the request. Slots are mandatory unless they say otherwise, and called on
 * the thread that calls on the communicator.
 */
#ifndef ALNICO_SRC_BACKEND_H
#define ALNICO_SRC_BACKEND_H

#include "comm/call.h"
#include "comm/comm.h"

/* What the table, or a forced name, says about it. */
struct choice {
    const struct backend_ops *backend;
    const struct algorithm *algorithm;
    size_t chunk_bytes;
};

struct backend_ops {
    const char *name, *about; /* "host"; one line */

    /* When a communicator is made (collective): prepares what the backend keeps for it, where it can work there at
     * all. Optional. Errors name `who`; all ranks get the same outcome. */
    alnico_status_t (*attach)(alnico_comm_t comm, const char *who);

    /* When it is destroyed, with nothing in flight, or could not be made. Optional. */
    void (*detach)(alnico_comm_t comm);

    /* Begins it, ordered after what the communicator's stream was given before. With `request` NULL the
     * stream's later work comes after it (on the inline stream: it has ended on return). Otherwise
     * the stream goes on, and *request is set. */
    alnico_status_t (*start)(alnico_comm_t comm, const struct call *call,
                             const struct choice *choice, alnico_request_t *request);

    /* The communicator's stream waits for the request; on the inline stream the caller does. */
    alnico_status_t (*join)(alnico_request_t request);

    /* ALNICO_PENDING, or how it ended. May make progress. */
    alnico_status_t (*test)(alnico_request_t request);

    /* Blocks the caller until it has ended; how it did. */
    alnico_status_t (*synchronize)(alnico_request_t request);

    /* The user has no more use for the request. */
    void (*release)(alnico_request_t request);
};

/* The residents, ended by NULL. */
extern const struct backend_ops backend_host, backend_peer;
extern const struct backend_ops *const backend_all[];

#endif
