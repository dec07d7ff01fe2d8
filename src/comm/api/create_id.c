/* Communicators of ranks that meet over TCP: by an id, or by what their launcher
 * says. On the caller's thread. */
#include "comm/api/create.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/rendezvous/callback.h"
#include "comm/rendezvous/launch.h"
#include "comm/rendezvous/root.h"
#include "comm/rendezvous/tree.h"

#include <string.h>

alnico_status_t alnico_id_create(alnico_id_t *out)
{
    const char *who = "alnico_id_create";
    struct place place = {.ports = 1};
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: out is NULL", who);
    TRY(error_of(who, net_address_own(variable_text(VARIABLE_INTERFACE), NULL, &place.address)));
    TRY(error_of(who, net_key_create(&place.key)));
    TRY(error_of(who, root_start(&place, settings_own_timeout())));
    id_write(&place, out);
    return ALNICO_SUCCESS;
}

static alnico_status_t meet(const struct tree_options *options, struct transport **out)
{
    struct tree *tree;
    TRY(tree_create(options, &tree));
    alnico_status_t status = transport_meet(tree_rendezvous(tree), out);
    tree_destroy(tree);
    return status;
}

alnico_status_t comm_create_by_tree(const struct tree_options *options,
                                    const struct device_ops *device, void *stream,
                                    alnico_comm_t *out)
{
    struct transport *transport;
    TRY(error_of(options->who, meet(options, &transport)));
    return comm_build_over(transport, device, stream, options->who, out);
}

alnico_status_t alnico_comm_create_id(const alnico_id_t *id, int rank, int size,
                                      alnico_device_t device, void *stream, alnico_comm_t *out)
{
    const char *who = "alnico_comm_create_id";
    const struct device_ops *ops = NULL;
    struct tree_options options = {.rank = rank,
                                   .size = size,
                                   .timeout = settings_own_timeout(),
                                   .interface = variable_text(VARIABLE_INTERFACE),
                                   .who = who};
    TRY(comm_check_create(device, stream, out, who, &ops));
    if (!id)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: id is NULL", who);
    if (size < 1 || size > RENDEZVOUS_RANKS)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: size %d is not in 1 to %d", who, size,
                         RENDEZVOUS_RANKS);
    if (rank < 0 || rank >= size)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: rank %d is not in 0 to %d", who, rank,
                         size - 1);
    TRY(error_of(who, id_read(id, &options.place)));
    return comm_create_by_tree(&options, ops, stream, out);
}

/* The allgather of one rank. */
static alnico_status_t gather_alone(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    if (all)
        memcpy(all, mine, bytes);
    return ALNICO_SUCCESS;
}

static alnico_status_t create_alone(const char *who, const struct device_ops *device, void *stream,
                                    alnico_comm_t *out)
{
    struct rendezvous r = {
        .allgather = gather_alone, .size = 1, .who = who, .timeout = settings_own_timeout()};
    struct transport *transport;
    TRY(error_of(who, transport_meet(&r, &transport)));
    return comm_build_over(transport, device, stream, who, out);
}

alnico_status_t alnico_comm_create_env(alnico_device_t device, void *stream, alnico_comm_t *out)
{
    const char *who = "alnico_comm_create_env";
    const struct device_ops *ops = NULL;
    struct launch launch;
    TRY(comm_check_create(device, stream, out, who, &ops));
    TRY(error_of(who, launch_find(&launch)));
    log_write(LOG_INFO, "%s: rank %d of %d, started by %s", who, launch.rank, launch.size,
              launch.by ? launch.by->name : "no launcher");
    if (launch.size == 1)
        return create_alone(who, ops, stream, out);
    struct tree_options options = {.rank = launch.rank,
                                   .size = launch.size,
                                   .patient = true,
                                   .timeout = settings_own_timeout(),
                                   .interface = variable_text(VARIABLE_INTERFACE),
                                   .who = who};
    TRY(error_of(who, launch_meet(&launch, options.timeout, &options.place)));
    return comm_create_by_tree(&options, ops, stream, out);
}
