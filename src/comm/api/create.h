/* Building communicators over a transport, for those that create and split them. */
#ifndef ALNICO_COMM_API_CREATE_H
#define ALNICO_COMM_API_CREATE_H

#include "comm/communicator/comm.h"

/* Makes a communicator, with its backends (collective). Errors: comm_create's, a backend's,
 * UNSUPPORTED. */
alnico_status_t comm_build(const struct creation *made, alnico_comm_t *out);

/* Ranks of a communicator, of which this one is members[place]. */
struct comm_part {
    const int *members;
    int count, place;
};

/* comm_build of a part's ranks (collective over these), whose transport it makes: made->transport is
 * not set yet. Errors also: the transport's. */
alnico_status_t comm_build_part(alnico_comm_t comm, const struct comm_part *part,
                                struct creation *made, alnico_comm_t *out);

/* Attaches its backends, as far as its limits let them, and detaches them (collective). After an error some
 * may be attached. Errors: a backend's, ARGUMENT (the limits let none in), UNSUPPORTED. */
alnico_status_t comm_attach(alnico_comm_t comm, const char *who);
void comm_detach(alnico_comm_t comm);

/* Has the watchdog look at it, where it needs that. */
void comm_watch(alnico_comm_t comm, const char *who);

/* The device that a public call names. Errors: ARGUMENT, UNSUPPORTED. */
alnico_status_t comm_find_device(alnico_device_t device, const char *who,
                                 const struct device_ops **ops);

/* The arguments that every call has that creates a communicator. *out becomes NULL. Errors: ARGUMENT,
 * UNSUPPORTED. */
alnico_status_t comm_check_create(alnico_device_t device, void *stream, alnico_comm_t *out,
                                  const char *who, const struct device_ops **ops);

/* comm_build over a transport that is made, which is the communicator's then (collective). */
alnico_status_t comm_build_over(struct transport *transport, const struct device_ops *device,
                                void *stream, const char *who, alnico_comm_t *out);

/* A communicator of ranks that meet over TCP (collective). Errors: as the public calls. */
struct tree_options;
alnico_status_t comm_create_by_tree(const struct tree_options *options,
                                    const struct device_ops *device, void *stream,
                                    alnico_comm_t *out);

#endif
