/*
 * Messages in virtual time (costs: sim/sim.h). One struct message stands for both sides, and waits at
 * the receiving rank while it has one side only. transfer.word[0] holds the message, word[1] is 1 for
 * its receive. Time is in picoseconds, so that sums are exact and runs repeat. One thread.
 */
#include "comm/transports/sim/sim.h"

#include "base/datatype.h"
#include "base/status.h"
#include "comm/transports/sim/queue.h"

#include <stdlib.h>
#include <string.h>

enum { SLAB_MESSAGES = 1024 };

#define NEVER UINT64_MAX

struct message {
    struct message *next; /* among those that wait, or are free */
    int from, to;
    uint32_t tag;
    bool sent, awaited;             /* the side was posted */
    bool send_ended, receive_ended; /* its owner knows that it ended, or cancelled it */
    bool queued, withdrawn;         /* an event has it; and is to free it */
    size_t bytes, room;
    const void *source;
    void *target;
    void *kept;                 /* a copy of the bytes, once the sender has his buffer back */
    uint64_t departed, arrived; /* the last byte; NEVER while it is not known */
};

struct slab {
    struct slab *next;
    struct message message[SLAB_MESSAGES];
};

struct sim_rank {
    struct transport base;
    struct sim *sim;
    int host, leaf;
    uint64_t clock, port; /* port: when it has sent what it was given */
    bool pair, owes;      /* the hint; and whether a poll at the end of a send was put off */
    int receives;         /* posted, and not known to have ended */
    uint64_t owed;        /* to when */
    struct message *waiting;
};

/* When a shared part has carried what it was given, each way. */
struct shared {
    uint64_t out, in;
};

struct sim {
    uint64_t latency[SIM_CLASSES];
    double link[SIM_CLASSES], injection, uplink, reduction; /* picoseconds per byte; 0: no limit */
    struct device_ops device;
    bool data;
    uint64_t messages;
    struct sim_queue queue;
    struct message *spare;
    struct slab *slabs;
    struct shared *hosts, *leaves;
    struct sim_rank rank[];
};

static uint64_t carry_time(size_t bytes, double per_byte)
{
    return (uint64_t)((double)bytes * per_byte + 0.5);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static enum sim_class class_of(const struct sim *sim, const struct message *m)
{
    const struct sim_rank *a = &sim->rank[m->from], *b = &sim->rank[m->to];
    if (a->host == b->host)
        return SIM_SAME_HOST;
    return a->leaf == b->leaf ? SIM_SAME_LEAF : SIM_OTHER_LEAF;
}

/* A shared part takes more to carry from `start` on; returns when it has carried it. */
static uint64_t carry(uint64_t *busy, uint64_t start, uint64_t time)
{
    *busy = later(*busy, start) + time;
    return *busy;
}

/* When the last byte of a message that starts now has passed all shared parts. */
static uint64_t pass_shared(struct sim *sim, const struct message *m, enum sim_class class,
                            uint64_t start)
{
    const struct sim_rank *from = &sim->rank[m->from], *to = &sim->rank[m->to];
    uint64_t time = carry_time(m->bytes, sim->injection);
    uint64_t out = carry(&sim->hosts[from->host].out, start, time);
    uint64_t in = carry(&sim->hosts[to->host].in, start, time);
    if (class != SIM_OTHER_LEAF)
        return later(out, in);
    time = carry_time(m->bytes, sim->uplink);
    uint64_t up = carry(&sim->leaves[from->leaf].out, start, time);
    uint64_t down = carry(&sim->leaves[to->leaf].in, start, time);
    return later(later(out, in), later(up, down));
}

static alnico_status_t push(struct sim *sim, uint64_t time, uintptr_t what)
{
    if (sim_queue_push(&sim->queue, time, what))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_MEMORY, "cannot allocate an event");
}

/* Messages are aligned, so that the lowest bit can be a rank's. */
static alnico_status_t push_wake(struct sim *sim, uint64_t time, int rank)
{
    return push(sim, time, 2 * (uintptr_t)rank + 1);
}

/* The poll at the end of a send that was put off. */
static alnico_status_t push_owed(struct sim_rank *rank)
{
    rank->owes = false;
    return push_wake(rank->sim, later(rank->owed, rank->sim->queue.now), rank->base.rank);
}

/* The sender is to be polled when its message has left: later, if a receive may make that
 * needless. */
static alnico_status_t push_departure(struct sim_rank *sender, const struct message *m)
{
    if (m->send_ended)
        return ALNICO_SUCCESS;
    if (!sender->pair)
        return push_wake(sender->sim, m->departed, m->from);
    if (sender->owes && sender->owed > sender->clock)
        TRY(push_owed(sender));
    sender->owes = true;
    sender->owed = m->departed;
    return ALNICO_SUCCESS;
}

/* The message starts; both ends are polled when their part is over. */
static alnico_status_t depart(struct sim *sim, struct message *m, uint64_t time)
{
    struct sim_rank *sender = &sim->rank[m->from];
    enum sim_class class = class_of(sim, m);
    uint64_t start = later(time, sender->port);
    uint64_t end = start + carry_time(m->bytes, sim->link[class]);
    if (class != SIM_SAME_HOST && sim->injection > 0)
        end = later(end, pass_shared(sim, m, class, start));
    sender->port = end;
    m->departed = end;
    m->arrived = end + sim->latency[class];
    TRY(push_departure(sender, m));
    return m->awaited ? push_wake(sim, m->arrived, m->to) : ALNICO_SUCCESS;
}

/* A rank that posts without having been polled does so now. A message over shared parts starts by an
 * event, so that messages reach those parts in the order of time. */
static alnico_status_t start(struct sim *sim, struct message *m)
{
    struct sim_rank *rank = &sim->rank[m->from];
    rank->clock = later(rank->clock, sim->queue.now);
    if (sim->injection == 0 || class_of(sim, m) == SIM_SAME_HOST)
        return depart(sim, m, rank->clock);
    m->queued = true;
    return push(sim, rank->clock, (uintptr_t)m);
}

static alnico_status_t message_take(struct sim *sim, struct message **out)
{
    if (!sim->spare) {
        struct slab *slab = malloc(sizeof *slab);
        if (!slab)
            return error_set(ALNICO_ERROR_MEMORY, "cannot allocate messages");
        slab->next = sim->slabs;
        sim->slabs = slab;
        for (int i = 0; i < SLAB_MESSAGES; i++) {
            slab->message[i].kept = NULL;
            slab->message[i].next = sim->spare;
            sim->spare = &slab->message[i];
        }
    }
    *out = sim->spare;
    sim->spare = (*out)->next;
    **out = (struct message){.departed = NEVER, .arrived = NEVER};
    return ALNICO_SUCCESS;
}

/* An event that still has the message frees it later. */
static void message_give(struct sim *sim, struct message *m)
{
    m->withdrawn = m->queued;
    if (m->queued)
        return;
    free(m->kept);
    m->kept = NULL;
    m->next = sim->spare;
    sim->spare = m;
}

/* The oldest waiting message that lacks this side and fits; NULL: none. */
static struct message *find(struct message **list, int from, uint32_t tag, bool receives)
{
    for (; *list; list = &(*list)->next) {
        struct message *m = *list;
        bool fits = from == TRANSPORT_ANY || m->from == TRANSPORT_ANY || m->from == from;
        if (!fits || m->tag != tag || m->awaited == receives)
            continue;
        *list = m->next;
        return m;
    }
    return NULL;
}

/* The message of one more side: one that waits for it, or a new one that will wait. */
static alnico_status_t join(struct sim *sim, int from, int to, uint32_t tag, bool receives,
                            struct message **out)
{
    *out = find(&sim->rank[to].waiting, from, tag, receives);
    if (*out)
        return ALNICO_SUCCESS;
    TRY(message_take(sim, out));
    (*out)->from = from;
    (*out)->to = to;
    (*out)->tag = tag;
    struct message **end = &sim->rank[to].waiting;
    while (*end)
        end = &(*end)->next;
    (*out)->next = NULL;
    *end = *out;
    return ALNICO_SUCCESS;
}

/* Both sides are there: the bytes move now; the receiver learns of them at their arrival. */
static void deliver(struct sim *sim, struct message *m)
{
    if (sim->data && m->bytes && m->bytes == m->room)
        memcpy(m->target, m->kept ? m->kept : m->source, m->bytes);
}

static alnico_status_t sim_isend(struct transport *t, int to, uint32_t tag, const void *buffer,
                                 size_t bytes, struct transfer *out)
{
    struct sim *sim = ((struct sim_rank *)t)->sim;
    struct message *m;
    TRY(join(sim, t->rank, to, tag, false, &m));
    m->from = t->rank;
    m->source = buffer;
    m->bytes = bytes;
    m->sent = true;
    *out = (struct transfer){{(uintptr_t)m, 0}};
    sim->messages++;
    if (m->awaited)
        deliver(sim, m);
    return start(sim, m);
}

static alnico_status_t sim_irecv(struct transport *t, int from, uint32_t tag, void *buffer,
                                 size_t bytes, struct transfer *out)
{
    struct sim_rank *rank = (struct sim_rank *)t;
    struct message *m;
    TRY(join(rank->sim, from, t->rank, tag, true, &m));
    m->target = buffer;
    m->room = bytes;
    m->awaited = true;
    rank->receives++;
    *out = (struct transfer){{(uintptr_t)m, 1}};
    if (!m->sent)
        return ALNICO_SUCCESS;
    deliver(rank->sim, m);
    if (m->arrived == NEVER || m->arrived <= rank->clock)
        return ALNICO_SUCCESS;
    return push_wake(rank->sim, later(m->arrived, rank->sim->queue.now), t->rank);
}

/* The sender gets its buffer back before there is a receive. */
static alnico_status_t keep_bytes(struct sim *sim, struct message *m)
{
    if (!sim->data || m->awaited || !m->bytes)
        return ALNICO_SUCCESS;
    m->kept = malloc(m->bytes);
    if (!m->kept)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate a message of %zu bytes", m->bytes);
    memcpy(m->kept, m->source, m->bytes);
    return ALNICO_SUCCESS;
}

static void end_side(struct sim *sim, struct message *m, bool receives)
{
    if (receives)
        m->receive_ended = true;
    else
        m->send_ended = true;
    sim->rank[m->to].receives -= receives;
    if (m->send_ended && m->receive_ended)
        message_give(sim, m);
}

static alnico_status_t sim_test(struct transport *t, struct transfer *transfer)
{
    struct sim_rank *rank = (struct sim_rank *)t;
    struct message *m = (struct message *)transfer->word[0];
    bool receives = transfer->word[1];
    if (!m)
        return ALNICO_SUCCESS;
    if ((receives ? m->arrived : m->departed) > rank->clock)
        return ALNICO_PENDING;
    bool equal = !m->sent || !m->awaited || m->bytes == m->room;
    if (!receives)
        TRY(keep_bytes(rank->sim, m));
    transfer->word[0] = 0;
    end_side(rank->sim, m, receives);
    return equal ? ALNICO_SUCCESS
                 : error_set(ALNICO_ERROR_MISMATCH, "a message and its receiver differ in size");
}

static bool withdraw(struct message **list, struct message *m)
{
    for (; *list; list = &(*list)->next)
        if (*list == m) {
            *list = m->next;
            return true;
        }
    return false;
}

/* A message without its other side vanishes; the bytes of one with both were delivered already. */
static bool sim_cancel(struct transport *t, struct transfer *transfer)
{
    struct sim *sim = ((struct sim_rank *)t)->sim;
    struct message *m = (struct message *)transfer->word[0];
    if (!m)
        return true;
    transfer->word[0] = 0;
    if (withdraw(&sim->rank[m->to].waiting, m)) {
        sim->rank[m->to].receives -= m->awaited;
        message_give(sim, m);
    } else
        end_side(sim, m, transfer->word[1]);
    return true;
}

static double sim_now(struct transport *t)
{
    return (double)((struct sim_rank *)t)->clock * 1e-12;
}

static alnico_status_t sim_subset(struct transport *t, struct rendezvous *r, struct transport **out)
{
    (void)t, (void)r;
    *out = NULL;
    return error_set(ALNICO_ERROR_UNSUPPORTED, "a simulated machine has no subsets");
}

static void sim_leave(struct transport *t)
{
    (void)t;
}

static const struct transport_ops transport_sim = {
    .name = "sim",
    .isend = sim_isend,
    .irecv = sim_irecv,
    .test = sim_test,
    .cancel = sim_cancel,
    .now = sim_now,
    .subset = sim_subset,
    .destroy = sim_leave,
};

static alnico_status_t sim_reduce(void *dst, const void *a, const void *b, size_t count,
                                  alnico_datatype_t type, alnico_op_t op, void *stream)
{
    struct sim_rank *rank = stream;
    rank->clock += carry_time(count * datatype_bytes(type), rank->sim->reduction);
    return rank->sim->data ? device_cpu.reduce(dst, a, b, count, type, op, NULL) : ALNICO_SUCCESS;
}

static alnico_status_t sim_copy(void *dst, const void *src, size_t bytes, void *stream)
{
    const struct sim_rank *rank = stream;
    return rank->sim->data ? device_cpu.copy(dst, src, bytes, NULL) : ALNICO_SUCCESS;
}

const struct device_ops *sim_device(struct sim *sim)
{
    return &sim->device;
}

void *sim_stream(struct sim *sim, int rank)
{
    return &sim->rank[rank];
}

static double per_byte(double gbps)
{
    return gbps > 0 ? 1e3 / gbps : 0;
}

static void set_times(struct sim *sim, const struct sim_machine *machine)
{
    for (int c = 0; c < SIM_CLASSES; c++) {
        sim->latency[c] = (uint64_t)(machine->link[c].latency_us * 1e6 + 0.5);
        sim->link[c] = per_byte(machine->link[c].bandwidth_gbps);
    }
    sim->reduction = per_byte(machine->reduce_gbps);
    sim->injection = per_byte(machine->injection_gbps);
    if (machine->hosts_per_leaf)
        sim->uplink = sim->injection * machine->taper / machine->hosts_per_leaf;
}

static void set_rank(struct sim *sim, const struct sim_machine *machine, int rank, int size)
{
    int host = rank / machine->ranks_per_host;
    sim->rank[rank] = (struct sim_rank){
        .base = {.ops = &transport_sim, .rank = rank, .size = size, .tags = 1u << 30},
        .sim = sim,
        .host = host,
        .leaf = machine->hosts_per_leaf ? host / machine->hosts_per_leaf : 0};
}

alnico_status_t sim_create(const struct sim_machine *machine, int size, bool data, struct sim **out)
{
    struct sim *sim = calloc(1, sizeof *sim + (size_t)size * sizeof(struct sim_rank));
    *out = sim;
    if (!sim)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate %d simulated ranks", size);
    for (int r = 0; r < size; r++)
        set_rank(sim, machine, r, size);
    set_times(sim, machine);
    sim->data = data;
    sim->device = device_cpu;
    sim->device.name = "sim";
    sim->device.reduce = sim_reduce;
    sim->device.copy = sim_copy;
    const struct sim_rank *last = &sim->rank[size - 1];
    sim->hosts = calloc((size_t)last->host + 1, sizeof *sim->hosts);
    sim->leaves = calloc((size_t)last->leaf + 1, sizeof *sim->leaves);
    if (sim->hosts && sim->leaves)
        return ALNICO_SUCCESS;
    sim_destroy(sim);
    *out = NULL;
    return error_set(ALNICO_ERROR_MEMORY, "cannot allocate the hosts of %d simulated ranks", size);
}

void sim_destroy(struct sim *sim)
{
    if (!sim)
        return;
    while (sim->slabs) {
        struct slab *slab = sim->slabs;
        sim->slabs = slab->next;
        for (int i = 0; i < SLAB_MESSAGES; i++)
            free(slab->message[i].kept);
        free(slab);
    }
    sim_queue_finish(&sim->queue);
    free(sim->hosts);
    free(sim->leaves);
    free(sim);
}

struct transport *sim_transport(struct sim *sim, int rank)
{
    return &sim->rank[rank].base;
}

static alnico_status_t inject(struct sim *sim, struct message *m, uint64_t time)
{
    struct sim_rank *sender = &sim->rank[m->from];
    m->queued = false;
    if (m->withdrawn) {
        message_give(sim, m);
        return ALNICO_SUCCESS;
    }
    TRY(depart(sim, m, time));
    return sender->owes && !sender->receives ? push_owed(sender) : ALNICO_SUCCESS;
}

alnico_status_t sim_hint_pair(struct sim *sim, int number, bool pair)
{
    struct sim_rank *rank = &sim->rank[number];
    rank->pair = pair;
    rank->owes = rank->owes && rank->owed > rank->clock; /* otherwise this poll saw it */
    return rank->owes && (!pair || !rank->receives) ? push_owed(rank) : ALNICO_SUCCESS;
}

int sim_next(struct sim *sim, alnico_status_t *status)
{
    struct sim_event event;
    bool failed = false;
    *status = ALNICO_SUCCESS;
    while (sim_queue_take(&sim->queue, &event, &failed)) {
        if (event.what & 1) {
            struct sim_rank *rank = &sim->rank[event.what / 2];
            rank->clock = later(rank->clock, event.time);
            return rank->base.rank;
        }
        *status = inject(sim, (struct message *)event.what, event.time);
        if (*status != ALNICO_SUCCESS)
            return -1;
    }
    if (failed)
        *status = error_set(ALNICO_ERROR_MEMORY, "cannot allocate an event");
    return -1;
}

double sim_clock_us(const struct sim *sim, int rank)
{
    return (double)sim->rank[rank].clock * 1e-6;
}

uint64_t sim_messages(const struct sim *sim)
{
    return sim->messages;
}
