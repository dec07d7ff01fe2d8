/* Messages between ranks: who sends what to whom, and the order in which each rank calls. Messages
 * of a pair keep their order. A group's calls are in an order of each rank's own; calls by
 * themselves follow the messages' numbers on all ranks, so that they end even where a send waits
 * for its receive. */
#include "base/datatype.h"
#include "tests/conformance/operations.h"

#include <string.h>

enum { FOR_PEERS = 16, FOR_TYPE, FOR_SHARE, FOR_ROOM, FOR_TURN, FOR_KIND, FOR_FUSE };

enum { ALIGNED = 8 };

static bool is_ring(const struct plan *plan)
{
    return strcmp(plan->operation->name, "sendrecv") == 0;
}

static bool is_group(const struct plan *plan)
{
    return strcmp(plan->operation->name, "group") == 0;
}

/* ---- Who sends what to whom ---- */

static alnico_datatype_t message_type(const struct plan *plan, uint64_t m)
{
    bool mixed = is_group(plan) && plan_draw(plan, FOR_TYPE, 0) % 2;
    return mixed ? (alnico_datatype_t)(plan_draw(plan, FOR_TYPE, m + 1) % DATATYPES)
                 : (alnico_datatype_t)plan->trial->type;
}

/* A ring in either direction and with any step, or any ranks. */
static struct message make_message(const struct plan *plan, uint64_t m)
{
    uint64_t size = (uint64_t)plan->size, random = plan_draw(plan, FOR_PEERS, m),
             ring = plan_draw(plan, FOR_PEERS, ~(uint64_t)0);
    struct message message = {.from = (int)(random % size),
                              .to = (int)((random >> 32) % size),
                              .count = plan_count(plan, m, (uint64_t)plan->messages_count),
                              .type = message_type(plan, m),
                              .data = m};
    if (is_ring(plan)) {
        message.from = (int)m;
        message.to = (int)((ring % size + (ring >> 32 & 1 ? m : size - m)) % size);
    }
    return message;
}

/* Some are sent from the same place as the one before of the same rank. */
static void share_data(const struct plan *plan, int m)
{
    struct message *message = &plan->messages[m];
    if (is_ring(plan) || plan_draw(plan, FOR_SHARE, (uint64_t)m) % 4)
        return;
    for (int i = m - 1; i >= 0; i--)
        if (plan->messages[i].from == message->from) {
            message->count = plan->messages[i].count;
            message->type = plan->messages[i].type;
            message->data = plan->messages[i].data;
            return;
        }
}

/* ---- Where they stand ---- */

static struct piece *add_piece(const struct plan *plan, struct area *area,
                               const struct message *message)
{
    uint64_t which = (uint64_t)(area->number + RANKS_MOST * plan->rank);
    size_t gap = plan->trial->layout >= LAYOUT_GAPS
                     ? ALIGNED * (size_t)(plan_draw(plan, FOR_ROOM, which) % 5)
                     : 0;
    struct piece *piece = &area->pieces[area->number++];
    *piece = (struct piece){.at = (area->bytes + ALIGNED - 1) / ALIGNED * ALIGNED + gap,
                            .count = message->count,
                            .type = message->type,
                            .owner = message->from,
                            .data = message->data};
    if (piece->count)
        area->bytes = piece->at + piece->count * datatype_bytes(piece->type);
    return piece;
}

static void place_message(struct plan *plan, int m)
{
    struct message *message = &plan->messages[m];
    if (message->to == plan->rank)
        message->in = add_piece(plan, &plan->writes, message);
    if (message->from != plan->rank)
        return;
    for (int i = 0; i < m; i++)
        if (plan->messages[i].from == plan->rank && plan->messages[i].data == message->data) {
            message->out = plan->messages[i].out;
            return;
        }
    message->out = add_piece(plan, &plan->reads, message);
}

/* ---- In which order ---- */

static void add_action(struct plan *plan, int send, int receive)
{
    int i = plan->actions_count++;
    uint64_t which = (uint64_t)(i + 4 * RANKS_MOST * plan->rank);
    plan->actions[i] = (struct action){.send = send,
                                       .receive = receive,
                                       .nonblocking = plan->trial->ending != END_BLOCKING &&
                                                      plan_draw(plan, FOR_KIND, which) % 4};
}

/* A message to oneself is one call, or two that do not block, in any order. What the device carries
 * out in the order of the calls, which only a forced algorithm is, needs one. */
static void add_own(struct plan *plan, int m, bool self)
{
    uint64_t random = plan_draw(plan, FOR_FUSE, (uint64_t)m);
    if (!self || *plan->trial->algorithm || plan->trial->ending == END_BLOCKING || random % 2) {
        add_action(plan, m, m);
        return;
    }
    bool first = random >> 8 & 1;
    add_action(plan, first ? m : -1, first ? -1 : m);
    add_action(plan, first ? -1 : m, first ? m : -1);
    plan->actions[plan->actions_count - 1].nonblocking = true;
    plan->actions[plan->actions_count - 2].nonblocking = true;
}

static void act_in_turn(struct plan *plan, bool self)
{
    for (int m = 0; m < plan->messages_count; m++) {
        bool sends = plan->messages[m].from == plan->rank,
             receives = plan->messages[m].to == plan->rank;
        if (sends && receives && !is_group(plan))
            add_own(plan, m, self);
        else if (sends && receives) {
            add_action(plan, m, -1);
            add_action(plan, -1, m);
        } else if (sends || receives)
            add_action(plan, sends ? m : -1, receives ? m : -1);
    }
}

/* Both sides of a rank in a ring are one call. */
static void act_in_ring(struct plan *plan)
{
    int send = -1, receive = -1;
    for (int m = 0; m < plan->messages_count; m++) {
        send = plan->messages[m].from == plan->rank ? m : send;
        receive = plan->messages[m].to == plan->rank ? m : receive;
    }
    add_action(plan, send, receive);
    plan->actions[0].nonblocking = plan->trial->ending != END_BLOCKING;
}

static bool same_pair(const struct plan *plan, const struct action *a, const struct action *b)
{
    const struct message *messages = plan->messages;
    if (a->send >= 0 && b->send >= 0)
        return messages[a->send].to == messages[b->send].to;
    return a->receive >= 0 && b->receive >= 0 &&
           messages[a->receive].from == messages[b->receive].from;
}

static void swap(struct action *a, struct action *b)
{
    struct action was = *a;
    *a = *b;
    *b = was;
}

/* Any order, and then those of each pair by their numbers. */
static void shuffle(struct plan *plan)
{
    struct action *actions = plan->actions;
    int number = plan->actions_count;
    for (int i = 1; i < number; i++) {
        uint64_t which = (uint64_t)(i + 4 * RANKS_MOST * plan->rank);
        swap(&actions[i], &actions[plan_draw(plan, FOR_TURN, which) % (uint64_t)(i + 1)]);
    }
    for (int i = 0; i < number; i++)
        for (int j = i + 1; j < number; j++)
            if (same_pair(plan, &actions[i], &actions[j]) &&
                (actions[i].send > actions[j].send || actions[i].receive > actions[j].receive))
                swap(&actions[i], &actions[j]);
}

/* A send and a receive of one type that follow each other may be one call. */
static void fuse(struct plan *plan)
{
    struct action *actions = plan->actions;
    int kept = 0;
    for (int i = 0; i < plan->actions_count; i++) {
        actions[kept] = actions[i];
        const struct action *next = &actions[i + 1];
        bool pair = i + 1 < plan->actions_count && actions[i].send >= 0 && next->receive >= 0 &&
                    plan->messages[actions[i].send].type == plan->messages[next->receive].type;
        uint64_t which = (uint64_t)(i + 4 * RANKS_MOST * plan->rank);
        if (pair && plan_draw(plan, FOR_FUSE, which) % 2)
            actions[kept].receive = actions[++i].receive;
        kept++;
    }
    plan->actions_count = kept;
}

/* ---- The whole ---- */

static void allocate(struct plan *plan)
{
    size_t number = (size_t)plan->messages_count;
    plan->messages = need(number, sizeof *plan->messages);
    plan->actions = need(2 * number + 1, sizeof *plan->actions);
    plan->reads.pieces = need(number, sizeof *plan->reads.pieces);
    plan->writes.pieces = need(number, sizeof *plan->writes.pieces);
}

void plan_messages(struct plan *plan, bool self)
{
    plan->messages_count = is_ring(plan) ? plan->size : (int)plan->trial->messages;
    allocate(plan);
    for (int m = 0; m < plan->messages_count; m++) {
        plan->messages[m] = make_message(plan, (uint64_t)m);
        share_data(plan, m);
        place_message(plan, m);
    }
    if (is_ring(plan)) {
        act_in_ring(plan);
        return;
    }
    act_in_turn(plan, self);
    if (is_group(plan)) {
        shuffle(plan);
        fuse(plan);
    }
}
