/* One rank's state of the shared-memory transport, under the rank's lock, and what its files offer each
 * other: the seam, the two sides of a message, the shared copy and calibration. */
#ifndef ALNICO_COMM_TRANSPORTS_SHM_SHM_H
#define ALNICO_COMM_TRANSPORTS_SHM_SHM_H

#include "comm/hostmem/segment.h"
#include "comm/transports/shm/channel.h"
#include "comm/transports/transport.h"

enum message_state {
    SEND_QUEUED,     /* waits for room in the channel, behind older ones */
    SEND_OFFERED,    /* the receiver is to copy it or to ask for fragments */
    RECEIVE_POSTED,  /* nothing has come for it */
    RECEIVE_ARRIVES, /* in fragments */
    RECEIVE_SHARED,  /* the sender still copies a piece */
    ENDED
};

/* Either side of a message that is not over. */
struct message {
    struct message *next;
    char *buffer;
    size_t bytes, moved;  /* in fragments so far */
    uint64_t address;     /* of a shared copy the sender's buffer, */
    uint32_t taken, read; /* and how many pieces the receiver has taken, and read; */
    uint32_t unread;      /* the number, from 1, of one that it has still to read, or 0 */
    int peer;             /* for a receive also TRANSPORT_ANY, until something has come */
    uint32_t tag;
    enum message_state state;
    alnico_status_t status; /* once ENDED */
    uint32_t offer, word;   /* which offer, and its number */
    int64_t began;          /* ns: its copy, where methods are measured */
    bool measured;          /* this one is */
};

struct message_list {
    struct message *first, **end;
};

/* An unexpected message: it came before its receive. */
struct arrival {
    struct arrival *next;
    struct cell cell; /* a copy; for a whole message the bytes follow */
    char data[];
};

/* A message between two ranks may wait for a receive that comes after anything else, and must not hold
 * up collectives: it has a queue of its own, and only half of the offers. */
enum queue_kind { QUEUE_MESSAGES, QUEUE_OPERATIONS, QUEUES };

struct shm_peer {
    struct channel_end out, in;
    struct message_list queues[QUEUES];
    struct arrival *arrivals, **arrivals_end;
    int offers;         /* in use */
    bool same_process;  /* a thread of this process */
    size_t direct_from; /* bytes from which an offer is copied from the sender's memory */
    /* A long one also by the sender, to the receiver's: reading has worked before. */
    bool shares;
    bool writes; /* this rank's part in that has not failed yet */
    int pid;
    struct message *offered[CHANNEL_OFFERS], *arrives[CHANNEL_OFFERS];
};

/* The least time that a byte took in messages of about one size from another process. */
enum copy_method { COPY_DIRECTLY, COPY_IN_FRAGMENTS, COPY_METHODS };
enum { SIZE_CLASSES = 40 }; /* powers of two */
struct copy_times {
    int64_t picoseconds[COPY_METHODS];
    unsigned tries[COPY_METHODS];
    int late; /* messages in fragments that were given up halfway, less those that were not */
};

struct transport_shm {
    struct transport base;
    struct segment segment;
    struct shm_options options;
    size_t eager, fragment; /* bytes */
    atomic_bool locked;
    struct message_list posted;
    struct message *spare;
    struct copy_times times[SIZE_CLASSES];
    int look; /* the peer to look at next, besides the one that is waited for */
    struct shm_peer peer[];
};

static inline void list_clear(struct message_list *list)
{
    list->first = NULL;
    list->end = &list->first;
}

static inline void list_append(struct message_list *list, struct message *m)
{
    m->next = NULL;
    *list->end = m;
    list->end = &m->next;
}

static inline void list_unlink(struct message_list *list, struct message **link)
{
    struct message *m = *link;
    *link = m->next;
    if (list->end == &m->next)
        list->end = link;
}

static inline void list_remove(struct message_list *list, struct message *m)
{
    for (struct message **link = &list->first; *link; link = &(*link)->next)
        if (*link == m) {
            list_unlink(list, link);
            return;
        }
}

static inline enum queue_kind queue_of(const struct message *m)
{
    return m->tag == TAG_MESSAGE ? QUEUE_MESSAGES : QUEUE_OPERATIONS;
}

static inline void message_end(struct message *m, alnico_status_t status)
{
    m->state = ENDED;
    m->status = status;
}

static inline enum offer_state state_of(uint32_t word)
{
    return (enum offer_state)(word % OFFER_NUMBER);
}

/* `number` is the offer's word in any state. False if it is not in state `from` any more. */
static inline bool offer_move(struct channel *channel, uint32_t offer, uint32_t number,
                              enum offer_state from, enum offer_state to)
{
    uint32_t base = number - number % OFFER_NUMBER, expected = base + from;
    return atomic_compare_exchange_strong_explicit(&channel->offers[offer], &expected, base + to,
                                                   memory_order_acq_rel, memory_order_acquire);
}

/* Bytes up to which a message is eager: it goes into the channel. Less for messages between two ranks,
 * which wait for each other anyway, so that one copy is worth more than running ahead. */
size_t send_eager(const struct transport_shm *t, const struct message *m);

/* A small message at once. False if the channel has no room. */
bool send_whole(struct shm_peer *p, struct message *m);

/* A message of any size, at once or behind older ones of its kind. */
void send_message(struct transport_shm *t, struct message *m);

/* Sends the queued messages that find room at a rank, in order. */
void send_queued(struct transport_shm *t, struct shm_peer *p);

/* Advances all sends to a rank. */
void send_advance_all(struct transport_shm *t, struct shm_peer *p);

void send_advance(struct transport_shm *t, struct message *m);
void send_cancel(struct transport_shm *t, struct message *m);

/* The method for a message that may be copied directly; notes when it begins. */
enum copy_method calibrate_begin(const struct transport_shm *t, struct message *m);

/* Whether fragments take too long: none has come for longer than a polling sender needs, or those that
 * came took longer than a direct copy of all. */
bool calibrate_is_over(const struct transport_shm *t, const struct message *m);

/* A message of that rank, copied by that method, has ended well. */
void calibrate_end(struct transport_shm *t, const struct shm_peer *p, const struct message *m,
                   enum copy_method method);

/* Reads another process's memory. False if that is forbidden, or it is not there. */
bool read_process(int pid, char *to, uint64_t from, size_t bytes);

/* Whether a message is long enough, and its sender has probably nothing else to do. */
bool share_suits(const struct transport_shm *t, const struct shm_peer *p, const struct message *m);

/* The receiver: sets the copy up, takes its part, and goes on with it. False if the sender has
 * withdrawn the offer. */
bool share_begin(struct transport_shm *t, struct shm_peer *p, struct message *m,
                 const struct cell *cell);
void share_advance(struct transport_shm *t, struct shm_peer *p, struct message *m);

/* The receiver gives up: the sender takes no more pieces, and copies none unless it is stopped. */
void share_cancel(struct transport_shm *t, struct message *m);

/* The sender: copies pieces that nobody has taken. */
void share_write(struct shm_peer *p, const struct message *m);

/* Takes its message if that has come, or posts the receive. */
void receive_post(struct transport_shm *t, struct message *m);

/* Receives a message at once if it is the next cell and no earlier receive waits for it. */
bool receive_now(struct transport_shm *t, const struct message *m);

/* Reads the cells that have come from a rank, at most a ring full; with `until` not NULL none after its
 * end. Later cells then stay in the ring, uncopied, until a receive waits for them. */
void receive_all(struct transport_shm *t, int from, const struct message *until);

/* After receive_all: goes on with a message that is copied, unless its sender has withdrawn it. */
void receive_check(struct transport_shm *t, struct message *m);

void receive_cancel(struct transport_shm *t, struct message *m);

/* Frees unexpected messages that nobody received. */
void receive_forget(struct shm_peer *p);

#endif
