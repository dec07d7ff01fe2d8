/* Moves between the ranks that a network is split over. See replica.h. A move is a pass that packs
 * messages, one group of them, and a pass that unpacks; backward what was received goes back. Passes are
 * the kernels', and run where all their work does; messages are enqueued on the same stream. */
#include "train/replica/replica.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdlib.h>

enum { MARGINS = sizeof((struct move *)0)->margins / sizeof(struct box) };

struct replica_move {
    struct move move;
    char *sends, *receives; /* messages of the device, one behind the other */
};

struct replica_moves {
    struct replica_move *all; /* by step */
    char *messages;           /* of any one move */
    alnico_request_t request; /* of the one that travels */
    bool travels;
    struct box_copy *copies; /* collected for one call of the kernels */
    size_t count;
};

static alnico_datatype_t message_type(const struct plan *plan)
{
    return precision_type(plan->precision);
}

bool replica_moves_step(const struct plan *plan, size_t step)
{
    return step_is(plan->network, &plan->steps[step], 0, OPERATION_MOVE);
}

/* Bytes of the messages of the largest move; `all`: the moves by step, or NULL. */
static alnico_status_t moves_fill(const struct plan *plan, struct replica_move *all, size_t *bytes)
{
    const size_t each = datatype_bytes(message_type(plan));
    struct move own;
    *bytes = 0;
    for (size_t s = 0; plan->network->part && s < plan->count; s++) {
        struct move *move = all ? &all[s].move : &own;
        if (!replica_moves_step(plan, s))
            continue;
        TRY(move_create(plan->network, plan->steps[s].first, plan->batch, move));
        const size_t needs = (move_sends(move) + move_receives(move)) * each;
        *bytes = needs > *bytes ? needs : *bytes;
        if (!all)
            move_destroy(move);
    }
    return ALNICO_SUCCESS;
}

alnico_status_t replica_moves_measure(const struct plan *plan, size_t *bytes)
{
    return moves_fill(plan, NULL, bytes);
}

alnico_status_t replica_moves_create(struct replica *replica)
{
    const size_t count = replica->plan->count;
    size_t bytes;
    struct replica_moves *moves = calloc(1, sizeof *moves);
    replica->moves = moves;
    if (moves) {
        const struct network_part *part = replica->network->part;
        moves->all = calloc(count, sizeof *moves->all);
        moves->copies = calloc(part ? part->ranks + MARGINS + 1 : 1, sizeof *moves->copies);
    }
    if (!moves || !moves->all || !moves->copies)
        return error_set(ALNICO_ERROR_MEMORY, "replica_create: no memory");
    TRY(moves_fill(replica->plan, moves->all, &bytes));
    TRY(replica->device->alloc(bytes + 1, (void **)&moves->messages));
    for (size_t s = 0; s < count; s++) {
        moves->all[s].sends = moves->messages;
        moves->all[s].receives = moves->messages + move_sends(&moves->all[s].move) *
                                                       datatype_bytes(message_type(replica->plan));
    }
    return ALNICO_SUCCESS;
}

void replica_moves_destroy(struct replica *replica)
{
    struct replica_moves *moves = replica->moves;
    if (!moves)
        return;
    for (size_t s = 0; moves->all && s < replica->plan->count; s++)
        move_destroy(&moves->all[s].move);
    replica->device->free(moves->messages);
    free(moves->copies);
    free(moves->all);
    free(moves);
}

/* One side of a move: a tensor, the box that its batch is, and the messages between it and ranks. */
struct move_end {
    size_t tensor;
    const struct box *box;
    const struct move_message *boxes;
    size_t count;
    char *messages;
};

static struct move_end move_held(const struct replica *replica, size_t s)
{
    const struct replica_move *m = &replica->moves->all[s];
    return (struct move_end){replica->plan->steps[s].in[0], &m->move.held, m->move.sends,
                             m->move.send_count, m->sends};
}

static struct move_end move_made(const struct replica *replica, size_t s)
{
    const struct replica_move *m = &replica->moves->all[s];
    return (struct move_end){replica->plan->steps[s].out, &m->move.made, m->move.receives,
                             m->move.receive_count, m->receives};
}

/* Where a box begins in the tensor, in its gradient if `diff`. */
static struct box_end box_in(const struct move_end *end, const struct box *box, bool diff)
{
    struct box_end at = {.tensor = end->tensor, .diff = diff};
    for (enum axis axis = 0; axis < AXES; axis++)
        at.from[axis] = (size_t)(box->from[axis] - end->box->from[axis]);
    return at;
}

static void box_count(const struct box *box, size_t count[AXES])
{
    for (enum axis axis = 0; axis < AXES; axis++)
        count[axis] = box_extent(box, axis);
}

/* Where message i of an end travels from or to: the box itself, if that may be, or `room`. What arrives
 * to be added waits there. */
static void *message_at(const struct replica *replica, const struct move_end *end, size_t i,
                        bool arrives, bool diff, char *room)
{
    const struct box_end at = box_in(end, &end->boxes[i].box, diff);
    size_t count[AXES];
    box_count(&end->boxes[i].box, count);
    void *direct = replica->ops->direct && !(arrives && diff)
                       ? replica->ops->direct(replica->kernels, &at, count)
                       : NULL;
    return direct ? direct : room;
}

/* Collects a copy, unless the box is empty. */
static void copies_add(const struct replica *replica, const struct box *box, struct box_copy copy)
{
    struct replica_moves *moves = replica->moves;
    box_count(box, copy.count);
    if (box_elements(box))
        moves->copies[moves->count++] = copy;
}

static alnico_status_t copies_run(const struct replica *replica)
{
    struct replica_moves *moves = replica->moves;
    const size_t count = moves->count;
    moves->count = 0;
    return count ? replica->ops->copy(replica->kernels, moves->copies, count) : ALNICO_SUCCESS;
}

/* Collects the copies of all messages of an end that need some: into them, or out of them, in its
 * gradient if `diff`. */
static void copies_add_end(const struct replica *replica, const struct move_end *end, bool out,
                           bool diff)
{
    const size_t each = datatype_bytes(message_type(replica->plan));
    char *at = end->messages;
    for (size_t i = 0; i < end->count; i++) {
        const struct box *box = &end->boxes[i].box;
        const struct box_end message = {.message = at}, tensor = box_in(end, box, diff);
        if (message_at(replica, end, i, out, diff, at) == at)
            copies_add(replica, box,
                       (struct box_copy){.from = out ? message : tensor,
                                         .to = out ? tensor : message,
                                         .add = out && diff});
        at += box_elements(box) * each;
    }
}

static alnico_status_t gradient_clear(const struct replica *replica, const struct move_end *end)
{
    const bool cpu = replica->device->kind == ALNICO_DEVICE_CPU;
    const struct plan_rules *rules = &replica->ops->rules;
    return replica->device->clear(setup_diff(&replica->setup, end->tensor),
                                  rules->bytes ? rules->bytes(replica->plan, end->tensor)
                                               : plan_float_bytes(replica->plan, end->tensor),
                                  cpu ? NULL : replica->stream);
}

alnico_status_t replica_moves_pack(struct replica *replica, size_t s, bool backward)
{
    const struct move_end from = backward ? move_made(replica, s) : move_held(replica, s);
    copies_add_end(replica, &from, false, backward);
    return copies_run(replica);
}

alnico_status_t replica_moves_keep(struct replica *replica, size_t s, bool backward)
{
    const struct move *move = &replica->moves->all[s].move;
    const struct move_end held = move_held(replica, s), made = move_made(replica, s);
    const struct move_end *from = backward ? &made : &held, *to = backward ? &held : &made;
    const bool add = backward && replica->plan->steps[s].accumulate[0];
    if (backward && !add && box_elements(&move->kept) < box_elements(to->box))
        TRY(gradient_clear(replica, to));
    for (size_t i = 0; !backward && i < MARGINS; i++)
        copies_add(replica, &move->margins[i],
                   (struct box_copy){.to = box_in(to, &move->margins[i], false), .zero = true});
    copies_add(replica, &move->kept,
               (struct box_copy){.from = box_in(from, &move->kept, backward),
                                 .to = box_in(to, &move->kept, backward),
                                 .add = add});
    return copies_run(replica);
}

alnico_status_t replica_moves_unpack(struct replica *replica, size_t s, bool backward)
{
    const struct move_end to = backward ? move_held(replica, s) : move_made(replica, s);
    copies_add_end(replica, &to, true, backward);
    return copies_run(replica);
}

static alnico_status_t messages_clear(const struct replica *replica, const struct move_end *to,
                                      bool backward)
{
    const size_t each = datatype_bytes(message_type(replica->plan));
    char *receives = to->messages;
    for (size_t i = 0; i < to->count; i++) {
        const size_t bytes = box_elements(&to->boxes[i].box) * each;
        TRY(replica->device->clear(message_at(replica, to, i, true, backward, receives), bytes,
                                   replica->stream));
        receives += bytes;
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t messages_send(struct replica *replica, const struct move_end *from,
                                     const struct move_end *to, bool backward)
{
    const alnico_datatype_t type = message_type(replica->plan);
    alnico_comm_t comm = replica->asked.comm;
    char *sends = from->messages, *receives = to->messages;
    TRY(alnico_group_begin(comm));
    for (size_t i = 0; i < from->count; i++) {
        const size_t count = box_elements(&from->boxes[i].box);
        TRY(alnico_send(message_at(replica, from, i, false, backward, sends), count, type,
                        from->boxes[i].peer, comm));
        sends += count * datatype_bytes(type);
    }
    for (size_t i = 0; i < to->count; i++) {
        const size_t count = box_elements(&to->boxes[i].box);
        TRY(alnico_recv(message_at(replica, to, i, true, backward, receives), count, type,
                        to->boxes[i].peer, comm));
        receives += count * datatype_bytes(type);
    }
    return alnico_group_end(comm, &replica->moves->request);
}

alnico_status_t replica_moves_start(struct replica *replica, size_t s, bool backward)
{
    const struct replica_waiting *waiting = &replica->waiting;
    const struct move_end held = move_held(replica, s), made = move_made(replica, s);
    const struct move_end *from = backward ? &made : &held, *to = backward ? &held : &made;
    if (waiting->start)
        TRY(waiting->start(waiting->context, s, backward));
    replica->moves->travels = held.count || made.count;
    if (!replica->moves->travels)
        return ALNICO_SUCCESS;
    return replica->asked.comm ? messages_send(replica, from, to, backward)
                               : messages_clear(replica, to, backward);
}

static alnico_status_t phase_end(const struct replica *replica, enum phase phase)
{
    const struct replica_waiting *waiting = &replica->waiting;
    return waiting->mark ? waiting->mark(waiting->context, phase) : ALNICO_SUCCESS;
}

/* Messages of a GPU that are not captured are copied by the progress engine. The driver may keep the
 * engine from it while it waits for the stream, as to load a kernel that is launched for the first time;
 * so the stream must not wait for the engine then, but the host does. */
static alnico_status_t request_wait(const struct replica *replica, alnico_request_t *request)
{
    const struct device_ops *device = replica->device;
    return device->capturing && !device->capturing(replica->stream)
               ? alnico_request_synchronize(request)
               : alnico_wait(request);
}

alnico_status_t replica_moves_wait(struct replica *replica, bool backward)
{
    struct replica_moves *moves = replica->moves;
    if (!moves->travels)
        return ALNICO_SUCCESS;
    moves->travels = false;
    TRY(phase_end(replica, backward ? PHASE_BACKWARD : PHASE_FORWARD));
    if (moves->request)
        TRY(request_wait(replica, &moves->request));
    return phase_end(replica, PHASE_HALO);
}

bool replica_moves_nothing(const struct plan *plan, size_t step, bool backward)
{
    return backward && plan->steps[step].in[0] == 0;
}

/* What was received goes back backward. */
size_t replica_moves_sent(const struct replica *replica)
{
    const struct plan *plan = replica->plan;
    size_t elements = 0;
    for (size_t s = 0; s < plan->count; s++) {
        if (!replica_moves_step(plan, s))
            continue;
        elements += move_sends(&replica->moves->all[s].move);
        if (!replica_moves_nothing(plan, s, true))
            elements += move_receives(&replica->moves->all[s].move);
    }
    return elements * datatype_bytes(message_type(plan));
}

size_t replica_waits(const struct replica *replica)
{
    size_t count = 0;
    for (size_t s = 0; replica->network->part && s < replica->plan->count; s++)
        count += replica_moves_step(replica->plan, s) || replica_joint(replica, s);
    return 2 * count;
}

struct replica_messages replica_messages(const struct replica *replica, size_t s)
{
    const struct network *network = replica->network;
    const struct node *node = &network->nodes[replica->plan->steps[s].first];
    const struct move *move = &replica->moves->all[s].move;
    const size_t each = datatype_bytes(message_type(replica->plan)), sends = move_sends(move),
                 receives = move_receives(move);
    struct replica_messages out = {0};
    if (replica_moves_step(replica->plan, s))
        return (struct replica_messages){
            move->send_count > move->receive_count ? move->send_count : move->receive_count,
            (sends > receives ? sends : receives) * each};
    for (size_t n = 1; n < network->part->ranks / network->part->norm_parts; n *= 2)
        out.count++;
    out.bytes = out.count * 2 * node->bias.count * sizeof *replica->arenas.joint;
    return out;
}

bool replica_joint(const struct replica *replica, size_t s)
{
    const struct plan *plan = replica->plan;
    return !replica->asked.options.frozen &&
           network_joint(plan->network, plan->steps[s].first, plan->batch) > 0;
}

alnico_status_t replica_join(struct replica *replica, size_t s, bool backward)
{
    const struct node *node = &replica->network->nodes[replica->plan->steps[s].first];
    const struct replica_waiting *waiting = &replica->waiting;
    double *joint = replica->arenas.joint;
    if (waiting->start)
        TRY(waiting->start(waiting->context, s, backward));
    TRY(phase_end(replica, backward ? PHASE_BACKWARD : PHASE_FORWARD));
    if (replica->asked.norms)
        TRY(alnico_allreduce(ALNICO_IN_PLACE, joint, 2 * node->bias.count, ALNICO_FLOAT64,
                             ALNICO_SUM, replica->asked.norms));
    return phase_end(replica, PHASE_HALO);
}
