/* The table of what is shared, and what the ranks post to each other for it. */
#include "comm/communicator/sharing.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/communicator/comm.h"
#include "comm/communicator/out_of_band.h"
#include "comm/communicator/registration.h"
#include "comm/communicator/shareable.h"
#include "comm/communicator/vote.h"
#include "comm/hostmem/segment.h"
#include "device/backoff.h"

#include <stdlib.h>

/* Patience: whoever is later than that is waited for no more, and the call goes as if nothing were registered. A
 * rank that has waited in vain leaves out the next votes, twice as many each time. */
enum { SIDES = 2, PLACES = 64, EAGER_NS = 100000, CAPTURED_NS = 1000000000, LATE_MOST = 8 };

_Static_assert((int)SHARING_RANKS == (int)VOTE_RANKS, "all ranks can vote");

/* One rank's buffers. */
struct post {
    _Alignas(64) struct {
        uint64_t number; /* of the memory that it lies in */
        uint64_t at;     /* in there; 0 if the side is alone */
    } sides[SIDES];
    uint64_t gone; /* of its memory in the table: places that it has removed */
};

/* Shared by the ranks. */
struct board {
    _Alignas(64) struct vote vote;
    _Alignas(64) atomic_bool wanted; /* some rank has voted for something */
    _Alignas(64) _Atomic uint64_t gone[VOTE_RANKS];
    struct post posts[VOTE_RANKS];
};

/* A place of the table. */
struct shared {
    struct alnico_registration registration; /* of this rank's memory */
    uint64_t numbers[VOTE_RANKS];
    bool refused; /* some rank's cannot be shared */
};

struct sharing {
    struct shareable_keeper keeper;
    struct segment segment;
    struct board *board;
    int rank;
    uint64_t calls;
    uint64_t used;           /* places, equal on all ranks; changed with shareable_lock */
    uint64_t held;           /* those that are mapped here */
    uint64_t agreed;         /* places of the call that is made; 0: none */
    unsigned late, left_out; /* votes: in vain, and still to be left out */
    struct shared table[PLACES];
};

/* This rank's side of a call. */
struct mine {
    struct shareable memory;
    uint64_t at;
};

static const struct backend_ops *next_backend(const struct backend_ops *const **list)
{
    const struct backend_ops *ops;
    while ((ops = **list) && !(ops->direct && ops->enroll))
        ++*list;
    *list += ops != NULL;
    return ops;
}

static bool is_wanted(alnico_comm_t comm)
{
    const struct backend_ops *const *list = comm->backends, *ops;
    while ((ops = next_backend(&list)))
        if (ops->direct(comm, NULL, NULL))
            return true;
    return false;
}

static void withdraw(struct alnico_registration *r)
{
    const struct backend_ops *const *list = r->comm->backends, *ops;
    while ((ops = next_backend(&list)))
        if (ops->withdraw)
            ops->withdraw(r->comm, r);
}

/* Another rank may read it at once, and lets go. */
static void gone(struct shareable_keeper *keeper, uint64_t number)
{
    struct sharing *s = (struct sharing *)keeper;
    for (int i = 0; i < PLACES; i++)
        if (s->used >> i & 1 && s->table[i].numbers[s->rank] == number)
            atomic_fetch_or(&s->board->gone[s->rank], UINT64_C(1) << i);
}

alnico_status_t sharing_attach(alnico_comm_t comm, const char *who)
{
    struct comm_rendezvous r;
    if (comm->size < 2 || comm->size > VOTE_RANKS || comm->hosts > 1 || !is_wanted(comm) ||
        !comm_take_scratch(comm, "sharing", segment_part(sizeof(struct board), comm->size, 0)))
        return ALNICO_SUCCESS;
    struct sharing *s = calloc(1, sizeof *s);
    struct segment segment;
    comm_rendezvous_init(&r, comm, who);
    alnico_status_t status = segment_create(
        &r.base, s ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "no memory for sharing"),
        sizeof(struct board), &segment);
    if (status != ALNICO_SUCCESS) {
        free(s);
        return r.base.failed || !segment_is_refused(status) ? status : ALNICO_SUCCESS;
    }
    *s = (struct sharing){
        .keeper = {.gone = gone}, .segment = segment, .board = segment.base, .rank = comm->rank};
    comm->sharing = s;
    shareable_keep(&s->keeper);
    return ALNICO_SUCCESS;
}

void sharing_detach(alnico_comm_t comm)
{
    struct sharing *s = comm->sharing;
    if (!s)
        return;
    shareable_keep_no_more(&s->keeper);
    for (int i = 0; i < PLACES; i++)
        if (s->held >> i & 1)
            withdraw(&s->table[i].registration);
    segment_destroy(&s->segment);
    free(s);
    comm->sharing = NULL;
}

size_t sharing_bytes(const struct alnico_comm *comm)
{
    return comm->sharing ? segment_part(sizeof(struct board), comm->size, comm->rank) : 0;
}

bool sharing_begin(alnico_comm_t comm)
{
    struct sharing *s = comm->sharing;
    if (!s)
        return false;
    s->calls++;
    return shareable_some() || atomic_load_explicit(&s->board->wanted, memory_order_relaxed);
}

void sharing_end(alnico_comm_t comm)
{
    if (comm->sharing)
        comm->sharing->agreed = 0;
}

static void let_go(struct sharing *s, uint64_t places)
{
    for (int i = 0; places; i++, places >>= 1)
        if (places & s->held >> i & 1) {
            withdraw(&s->table[i].registration);
            s->held &= ~(UINT64_C(1) << i);
        }
}

void sharing_sweep(alnico_comm_t comm)
{
    struct sharing *s = comm->sharing;
    uint64_t places = 0;
    if (!s || !s->held)
        return;
    for (int i = 0; i < comm->size; i++)
        places |= atomic_load_explicit(&s->board->gone[i], memory_order_acquire);
    if (!(places & s->held))
        return;
    comm_settle(comm);
    let_go(s, places);
}

static bool holds(const struct alnico_registration *r, const void *memory, size_t bytes)
{
    size_t at = (size_t)((const char *)memory - r->base);
    return (const char *)memory >= r->base && at <= r->bytes && bytes <= r->bytes - at;
}

/* The newest that holds it, as shareable_find has chosen. */
struct alnico_registration *sharing_find(const struct alnico_comm *comm, const void *memory,
                                         size_t bytes)
{
    struct sharing *s = comm->sharing;
    struct shared *found = NULL;
    for (int i = 0; s && i < PLACES && s->agreed >> i; i++) {
        struct shared *shared = &s->table[i];
        if (s->agreed >> i & 1 && holds(&shared->registration, memory, bytes) &&
            (!found || found->numbers[s->rank] < shared->numbers[s->rank]))
            found = shared;
    }
    return found ? &found->registration : NULL;
}

/* Memory that was refused here once is not asked for again. */
static bool was_refused(const struct sharing *s, uint64_t number)
{
    for (int i = 0; i < PLACES; i++)
        if (s->used >> i & 1 && s->table[i].refused && s->table[i].numbers[s->rank] == number)
            return true;
    return false;
}

/* This rank's vote: yes if both buffers lie in memory that may be shared, which `mine` then describes. */
static bool describe(alnico_comm_t comm, const struct sharing_side sides[SIDES],
                     struct mine mine[SIDES])
{
    for (int i = 0; i < SIDES; i++) {
        struct shareable *memory = &mine[i].memory;
        if (!shareable_find(comm, sides[i].memory, sides[i].bytes, memory) ||
            was_refused(comm->sharing, memory->number))
            return false;
        mine[i].at = sides[i].alone ? 0 : (uint64_t)((const char *)sides[i].memory - memory->base);
    }
    return true;
}

static void post(struct sharing *s, const struct mine mine[SIDES])
{
    struct post *own = &s->board->posts[s->rank];
    own->gone = atomic_load(&s->board->gone[s->rank]);
    for (int i = 0; i < SIDES; i++) {
        own->sides[i].number = mine[i].memory.number;
        own->sides[i].at = mine[i].at;
    }
}

struct look {
    alnico_comm_t comm;
    const struct ballot *ballot;
};

static enum wait look_for_free(void *context)
{
    return vote_is_free(((struct look *)context)->ballot) ? WAIT_DONE : WAIT_IDLE;
}

static enum wait look_for_outcome(void *context)
{
    const struct look *look = context;
    bool over = vote_look(look->ballot) != VOTE_OPEN ||
                atomic_load(&look->comm->latch.status) != ALNICO_SUCCESS;
    return over ? WAIT_DONE : WAIT_IDLE;
}

/* Who waited in vain does not do so in every call: a thread may be several ranks. */
static void leave_out(struct sharing *s)
{
    s->left_out = (1u << s->late) - 1;
    s->late += s->late < LATE_MOST;
}

/* A rank that would have to wait before it can say that it is against it says nothing. */
static bool vote(alnico_comm_t comm, const struct mine *mine, bool captured,
                 struct post posts[VOTE_RANKS])
{
    struct sharing *s = comm->sharing;
    const struct ballot ballot = {&s->board->vote, s->calls, comm->rank, comm->size};
    struct look look = {comm, &ballot};
    int64_t end_ns = backoff_now_ns() + (captured ? CAPTURED_NS : EAGER_NS);
    if (!wait_until(look_for_free, &look, end_ns, comm->crowded))
        return false;
    if (!mine || s->left_out > 0) {
        s->left_out -= mine != NULL;
        vote_refuse(&ballot);
        return false;
    }
    atomic_store_explicit(&s->board->wanted, true, memory_order_relaxed);
    post(s, mine);
    vote_join(&ballot);
    bool late = !wait_until(look_for_outcome, &look, end_ns, comm->crowded);
    if (vote_give_up(&ballot) != VOTE_ALL) {
        if (late)
            leave_out(s);
        return false;
    }
    s->late = 0;
    for (int i = 0; i < comm->size; i++)
        posts[i] = s->board->posts[i];
    vote_leave(&ballot);
    return true;
}

/* Places of which some rank's memory is gone are free again: all know it by the same posts. */
static void free_places(alnico_comm_t comm, const struct post *posts)
{
    struct sharing *s = comm->sharing;
    uint64_t places = 0;
    for (int i = 0; i < comm->size; i++)
        places |= posts[i].gone;
    if (!places)
        return;
    let_go(s, places);
    shareable_lock();
    s->used &= ~places;
    atomic_fetch_and(&s->board->gone[s->rank], ~places);
    shareable_unlock();
}

/* No number comes again, so that a place that is free again is not found. */
static int find_place(const struct sharing *s, const struct post *posts, int size, int side)
{
    for (int i = 0; i < PLACES; i++) {
        int same = 0;
        while (same < size && s->table[i].numbers[same] == posts[same].sides[side].number)
            same++;
        if (same == size)
            return i;
    }
    return -1;
}

/* The backends say alike on all ranks whether it works. What one rank cannot share is kept, too. */
static alnico_status_t share(alnico_comm_t comm, int place, const char *who)
{
    struct sharing *s = comm->sharing;
    struct shared *shared = &s->table[place];
    const struct backend_ops *const *list = comm->backends, *ops;
    comm_settle(comm);
    while (!shared->refused && (ops = next_backend(&list)))
        shared->refused = ops->enroll(comm, &shared->registration, who) != ALNICO_SUCCESS;
    if (!shared->refused) {
        s->held |= UINT64_C(1) << place;
        return ALNICO_SUCCESS;
    }
    log_write(LOG_INFO, "communicator %d: ranks go on without sharing memory: %s", comm->id,
              alnico_error_detail());
    withdraw(&shared->registration);
    return comm_latched(comm);
}

/* The place of one side, a new one if need be; -1: it is not shared. */
static alnico_status_t find_or_share(alnico_comm_t comm, const struct post *posts, int side,
                                     const struct shareable *mine, const char *who, int *place)
{
    struct sharing *s = comm->sharing;
    *place = find_place(s, posts, comm->size, side);
    if (*place < 0 && ~s->used != 0) {
        *place = __builtin_ctzll(~s->used);
        struct shared *shared = &s->table[*place];
        shareable_lock();
        *shared = (struct shared){
            .registration = {.comm = comm, .base = mine->base, .bytes = mine->bytes, .late = true}};
        for (int i = 0; i < comm->size; i++)
            shared->numbers[i] = posts[i].sides[side].number;
        s->used |= UINT64_C(1) << *place;
        shareable_unlock();
        TRY(share(comm, *place, who));
    }
    if (*place >= 0 && s->table[*place].refused)
        *place = -1;
    return ALNICO_SUCCESS;
}

static bool same_offsets(const struct post *posts, int size, int side)
{
    for (int i = 1; i < size; i++)
        if (posts[i].sides[side].at != posts[0].sides[side].at)
            return false;
    return true;
}

alnico_status_t sharing_agree(alnico_comm_t comm, const struct sharing_side sides[SIDES],
                              bool captured, const char *who, bool *agreed)
{
    struct post posts[VOTE_RANKS];
    struct mine mine[SIDES];
    *agreed = false;
    bool wants = describe(comm, sides, mine);
    if (!vote(comm, wants ? mine : NULL, captured, posts))
        return ALNICO_SUCCESS;
    free_places(comm, posts);
    uint64_t places = 0;
    bool all = true;
    for (int i = 0; i < SIDES; i++) {
        int place;
        TRY(find_or_share(comm, posts, i, &mine[i].memory, who, &place));
        all = all && place >= 0 && same_offsets(posts, comm->size, i);
        places |= place >= 0 ? UINT64_C(1) << place : 0;
    }
    *agreed = all;
    comm->sharing->agreed = all ? places : 0;
    return ALNICO_SUCCESS;
}
