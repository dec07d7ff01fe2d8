/*
 * The shared segment is a sealed memfd of rank 0: the ranks' members, in whole pages, then the owner's
 * bytes. In the first exchange the ranks learn each other's sockets, and the lowest rank of each other
 * process expects rank 0's. In the second one they say how that went, so that nobody waits for those
 * that cannot. Then they get the descriptor (hostmem/descriptor_passing.h).
 */
#include "comm/hostmem/segment.h"

#include "base/status.h"
#include "comm/hostmem/descriptor_passing.h"
#include "comm/hostmem/process.h"
#include "device/backoff.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* One a rank, in the segment. Its rank writes it before the last exchange; `left` later. */
struct segment_member {
    struct process_id process;
    atomic_bool left;
};

/* One process's view of the segment. */
struct mapping {
    atomic_int users; /* ranks of this process that have not left */
    char *start;
    size_t bytes; /* with the members */
};

/* The first exchange. */
struct introduction {
    struct process_id process;
    uint64_t bytes;
    struct descriptor_address socket;
    int32_t failed;
};

/* While a segment is made. */
struct making {
    struct segment *out;
    struct rendezvous *r;
    struct introduction *introductions;
    struct introduction mine;
    struct step_result *results; /* of connecting and then of mapping; the address: the mapping */
    int leader, own_ranks;       /* the lowest rank of this process, and how many ranks it has */
    int memory, socket;          /* descriptors, or -1; rank 0's memory */
};

static size_t page_round(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static size_t members_bytes(int size)
{
    return page_round((size_t)size * sizeof(struct segment_member));
}

static size_t whole_bytes(const struct segment *s)
{
    return members_bytes(s->size) + page_round(s->bytes);
}

size_t segment_part(size_t bytes, int size, int rank)
{
    const struct segment s = {.bytes = bytes, .size = size};
    size_t whole = whole_bytes(&s), part = whole / (size_t)size;
    return rank == 0 ? whole - part * (size_t)(size - 1) : part;
}

static alnico_status_t mapping_create(int memory, size_t bytes, int users, struct mapping **out)
{
    struct mapping *mapping = malloc(sizeof *mapping);
    if (!mapping)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for a segment");
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (start == MAP_FAILED) {
        free(mapping);
        return descriptor_error("mmap of a segment");
    }
    *mapping = (struct mapping){.start = start, .bytes = bytes};
    atomic_init(&mapping->users, users);
    *out = mapping;
    return ALNICO_SUCCESS;
}

static void mapping_leave(struct mapping *mapping, int users)
{
    if (!mapping || atomic_fetch_sub(&mapping->users, users) != users)
        return;
    munmap(mapping->start, mapping->bytes);
    free(mapping);
}

static alnico_status_t make_memory(struct making *m, size_t bytes)
{
    m->memory = memfd_create("alnico", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (m->memory < 0)
        return descriptor_error("memfd_create");
    if (ftruncate(m->memory, (off_t)bytes) != 0)
        return descriptor_error("ftruncate of a segment");
    if (fcntl(m->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return descriptor_error("fcntl of a segment's seals");
    return ALNICO_SUCCESS;
}

static int leader_of(const struct making *m, int rank)
{
    int leader = 0;
    while (!process_same(&m->introductions[leader].process, &m->introductions[rank].process))
        leader++;
    return leader;
}

static alnico_status_t check_bytes(const struct making *m)
{
    for (int i = 1; i < m->out->size; i++)
        if (m->introductions[i].bytes != m->introductions[0].bytes)
            return error_set(
                ALNICO_ERROR_MISMATCH,
                "rank %d asks for a segment of %llu bytes, and rank %d for %llu",
                rendezvous_name(m->r, 0), (unsigned long long)m->introductions[0].bytes,
                rendezvous_name(m->r, i), (unsigned long long)m->introductions[i].bytes);
    return ALNICO_SUCCESS;
}

static struct descriptor_peer peer_of(const struct making *m, int rank)
{
    const struct introduction *other = &m->introductions[rank];
    return (struct descriptor_peer){&other->socket, &other->process, rendezvous_name(m->r, rank)};
}

static alnico_status_t begin(struct making *m)
{
    if (m->out->rank == 0)
        TRY(make_memory(m, whole_bytes(m->out)));
    return descriptor_open(&m->socket, &m->mine.socket);
}

/* The leader of another process than rank 0's gets the descriptor. */
static alnico_status_t expect_first(struct making *m)
{
    struct segment *s = m->out;
    m->leader = leader_of(m, s->rank);
    for (int i = 0; i < s->size; i++) {
        m->own_ranks += leader_of(m, i) == m->leader;
        if (m->introductions[i].failed)
            return ALNICO_SUCCESS; /* its own error becomes everybody's */
    }
    TRY(check_bytes(m));
    if (s->rank != m->leader || s->rank == 0)
        return ALNICO_SUCCESS;
    struct descriptor_peer first = peer_of(m, 0);
    return descriptor_expect(m->socket, &first);
}

/* Waits for less than the exchange after it does, which then waits for the rest. */
static alnico_status_t fetch(struct making *m)
{
    struct segment *s = m->out;
    struct descriptor_peer first = peer_of(m, 0);
    double most = m->r->timeout / 2;
    alnico_status_t status = descriptor_receive(m->socket, &first, deadline_ns(most), &m->memory);
    m->r->spent = status == ALNICO_ERROR_TIMEOUT ? most : 0;
    TRY(status);
    return mapping_create(m->memory, whole_bytes(s), m->own_ranks, &s->mapping);
}

/* Nobody waits because another one could not be reached. */
static alnico_status_t serve(const struct making *m)
{
    alnico_status_t status = ALNICO_SUCCESS;
    for (int i = 1; i < m->out->size; i++) {
        struct descriptor_peer to = peer_of(m, i);
        alnico_status_t sent = leader_of(m, i) == i
                                   ? descriptor_send(m->socket, &m->mine.socket, &to, m->memory)
                                   : ALNICO_SUCCESS;
        status = sent == ALNICO_SUCCESS ? status : sent;
    }
    return status;
}

/* The leader of a process maps the segment for all its ranks, and enters them. */
static alnico_status_t map_memory(struct making *m)
{
    struct segment *s = m->out;
    if (s->rank != m->leader)
        return ALNICO_SUCCESS;
    if (s->rank > 0) {
        TRY(fetch(m));
    } else {
        TRY(mapping_create(m->memory, whole_bytes(s), m->own_ranks, &s->mapping));
        TRY(serve(m));
    }
    struct segment_member *members = (struct segment_member *)(void *)s->mapping->start;
    for (int i = 0; i < s->size; i++)
        if (leader_of(m, i) == m->leader)
            members[i].process = m->mine.process;
    atomic_store(&s->mapping->users, m->own_ranks);
    return ALNICO_SUCCESS;
}

/* The leader's mapping is that of all its ranks, or nobody's. The exchange orders what the leader has
 * written before, perhaps by way of another process, and so does `users` within this one. */
static void adopt_mapping(struct making *m, alnico_status_t status)
{
    struct segment *s = m->out;
    if (status != ALNICO_SUCCESS) {
        mapping_leave(s->mapping, m->own_ranks);
        s->mapping = NULL;
        return;
    }
    s->mapping = m->results[m->leader].address;
    (void)atomic_load(&s->mapping->users);
    s->members = (struct segment_member *)(void *)s->mapping->start;
    s->base = s->mapping->start + members_bytes(s->size);
}

/* If the last exchange itself fails, another rank may have got the segment: this one leaves it, and a
 * mapping for several ranks stays. */
static alnico_status_t create(struct making *m, alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        status = begin(m);
    m->mine.failed = status != ALNICO_SUCCESS;
    TRY(rendezvous_gather(m->r, &m->mine, m->introductions, sizeof m->mine));
    if (status == ALNICO_SUCCESS)
        status = expect_first(m);
    TRY(agree_on_status(m->r, m->results, NULL, status));
    status = map_memory(m);
    status = agree_on_status(m->r, m->results, m->out->mapping, status);
    if (!m->r->failed)
        adopt_mapping(m, status);
    else if (m->out->mapping)
        m->out->members = (struct segment_member *)(void *)m->out->mapping->start;
    return status;
}

static void close_if_open(int descriptor)
{
    if (descriptor >= 0)
        close(descriptor);
}

alnico_status_t segment_create(struct rendezvous *r, alnico_status_t status, size_t bytes,
                               struct segment *out)
{
    size_t size = (size_t)r->size;
    *out = (struct segment){.rank = r->rank, .size = r->size, .bytes = bytes};
    struct making m = {.out = out, .r = r, .memory = -1, .socket = -1};
    m.mine.bytes = bytes;
    process_identify(&m.mine.process);
    m.introductions = calloc(size, sizeof *m.introductions);
    m.results = calloc(size, sizeof *m.results);
    out->pidfds = malloc(size * sizeof *out->pidfds);
    for (size_t i = 0; out->pidfds && i < size; i++)
        atomic_init(&out->pidfds[i], -1);
    if (status == ALNICO_SUCCESS && (!m.introductions || !m.results || !out->pidfds))
        status = error_set(ALNICO_ERROR_MEMORY, "no memory for %d ranks", r->size);
    status = create(&m, status);
    close_if_open(m.memory);
    close_if_open(m.socket);
    free(m.introductions);
    free(m.results);
    if (status != ALNICO_SUCCESS)
        segment_destroy(out);
    return status;
}

bool segment_is_refused(alnico_status_t status)
{
    return status == ALNICO_ERROR_UNSUPPORTED || status == ALNICO_ERROR_SYSTEM ||
           status == ALNICO_ERROR_TIMEOUT;
}

void segment_destroy(struct segment *s)
{
    if (s->members)
        atomic_store_explicit(&s->members[s->rank].left, true, memory_order_release);
    mapping_leave(s->mapping, 1);
    for (int i = 0; s->pidfds && i < s->size; i++)
        if (atomic_load(&s->pidfds[i]) >= 0)
            close(atomic_load(&s->pidfds[i]));
    free(s->pidfds);
    memset(s, 0, sizeof *s);
}

struct mapping *segment_hold(const struct segment *s)
{
    atomic_fetch_add(&s->mapping->users, 1);
    return s->mapping;
}

void segment_release(struct mapping *mapping)
{
    mapping_leave(mapping, 1);
}

bool segment_same_process(const struct segment *s, int rank)
{
    return process_same(&s->members[rank].process, &s->members[s->rank].process);
}

int segment_pid(const struct segment *s, int rank)
{
    const struct process_id *process = &s->members[rank].process;
    return process_visible(process) ? (int)process->pid : 0;
}

/* Opens the process's descriptor once; of two threads that do, one closes its own again. */
static int descriptor_of(const struct segment *s, int rank)
{
    int pidfd = atomic_load(&s->pidfds[rank]);
    if (pidfd >= 0)
        return pidfd;
    pidfd = process_open(&s->members[rank].process);
    int none = -1;
    if (pidfd >= 0 && !atomic_compare_exchange_strong(&s->pidfds[rank], &none, pidfd)) {
        close(pidfd);
        return none;
    }
    return pidfd;
}

/* `left` is read after the end of the process, when it is final. */
bool segment_gone(const struct segment *s, int rank)
{
    const struct segment_member *member = &s->members[rank];
    return !segment_same_process(s, rank) &&
           process_ended(&member->process, descriptor_of(s, rank)) &&
           !atomic_load_explicit(&member->left, memory_order_acquire);
}

bool segment_left(const struct segment *s, int rank)
{
    return atomic_load_explicit(&s->members[rank].left, memory_order_acquire);
}
