/* Updates of a replica on the CPU, and gradients of parameters that are its rank's alone (graph/part.h).
 * See replica.h. What runs is the replica's job on its stream; the sum over the ranks is enqueued there. */
#include "train/replica/replica.h"

#include "base/datatype.h"
#include "base/status.h"
#include "train/kernels/elementwise.h"

static struct optimizer_update update_of(struct replica *replica,
                                         const struct optimizer_options *options)
{
    const struct arenas *arenas = &replica->arenas;
    return (struct optimizer_update){
        .network = replica->network,
        .options = options,
        .rate = arenas->control[CONTROL_RATE],
        .updates = (double)arenas->control[CONTROL_UPDATES],
        .threads = replica->setup.options.threads,
        .parameters = arenas->parameters,
        .states = arenas->states,
        .gradients = arenas->gradients,
        .squares = replica_own_squares(replica, options) ? arenas->squares : NULL};
}

/* The loss alone would not tell: maxima, and ReLUs are one, may drop what is not a number. */
alnico_status_t replica_update_run(struct replica *replica, const struct optimizer_options *options,
                                   bool squares)
{
    struct optimizer_update update = update_of(replica, options);
    if (squares) {
        optimizer_squares(&update, replica->arenas.squares);
        return ALNICO_SUCCESS;
    }
    if (optimizers_all[options->kind]->counts)
        update.updates = (double)++replica->arenas.control[CONTROL_UPDATES];
    if (optimizer_update(&update))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_SYSTEM,
                     "trainer: after an update with a learning rate of %g a parameter is not a "
                     "number; a lower one may help",
                     (double)update.rate);
}

bool replica_own_squares(const struct replica *replica, const struct optimizer_options *options)
{
    return replica->arenas.squares && (options->clip > 0 || options->trust > 0);
}

alnico_status_t replica_squares_join(struct replica *replica)
{
    return replica->asked.comm ? alnico_allreduce(ALNICO_IN_PLACE, replica->arenas.squares,
                                                  optimizer_squares_count(replica->network),
                                                  ALNICO_FLOAT64, ALNICO_SUM, replica->asked.comm)
                               : ALNICO_SUCCESS;
}

/* They are of all terms over the terms of one rank (network_terms), and meet no others. */
alnico_status_t replica_own_divide(struct replica *replica, size_t s)
{
    const struct network *network = replica->network;
    const struct step *step = &replica->plan->steps[s];
    const alnico_datatype_t type = replica->asked.gradient_type;
    char *gradients = replica->arenas.gradients;
    for (size_t i = step->first; i < step->first + step->count; i++) {
        const struct node *node = &network->nodes[i];
        if (!node_own(network, i))
            continue;
        const struct division division = {gradients + node->weight.offset * datatype_bytes(type),
                                          type, node->weight.count + node->bias.count,
                                          (int)network->part->ranks};
        if (replica->ops->divide)
            TRY(replica->ops->divide(replica->kernels, &division));
        else
            elementwise_divide(division.numbers, (float)division.by, division.count);
    }
    return ALNICO_SUCCESS;
}
