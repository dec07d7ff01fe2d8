/*
 * The shared segment is a sealed memfd of rank 0: the ranks' members, in whole pages, then the owner's
 * bytes. The other ranks learn from the first exchange where rank 0 listens, and connect. In the second
 * one they say whether they could, so that nobody waits for those that cannot. Then they get the
 * descriptor (hostmem/descriptor_passing.h).
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
    struct descriptor_address first; /* rank 0's; no address: it failed */
};

/* While a segment is made. */
struct making {
    struct segment *out;
    out_of_band_allgather *exchange;
    void *context;
    struct introduction *introductions;
    struct introduction mine;
    struct step_result *results; /* of connecting and then of mapping; the address: the mapping */
    int leader, own_ranks;       /* the lowest rank of this process, and how many ranks it has */
    int other_processes;         /* other processes than rank 0's */
    int memory, listener;        /* rank 0's descriptors, or -1 */
    int connection;              /* to rank 0, or -1 */
    double timeout;
    int64_t end_ns;
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

static alnico_status_t begin_first(struct making *m)
{
    TRY(make_memory(m, whole_bytes(m->out)));
    return descriptor_listen(m->out->size, &m->listener, &m->mine.first);
}

/* Hands the descriptor to the other processes, which have connected. */
static alnico_status_t serve(const struct making *m)
{
    for (int served = 0; served < m->other_processes;) {
        int rank, connection;
        alnico_status_t status =
            descriptor_accept(m->listener, &m->mine.first, m->end_ns, &connection, &rank);
        if (status == ALNICO_ERROR_TIMEOUT)
            return error_set(status, "%d of %d processes did not fetch the shared segment",
                             m->other_processes - served, m->other_processes);
        TRY(status);
        served += descriptor_send(connection, m->memory);
        close(connection);
    }
    return ALNICO_SUCCESS;
}

/* Before the ranks agree: a late connection is refused at once. */
static void stop_listening(struct making *m)
{
    if (m->listener >= 0)
        close(m->listener);
    m->listener = -1;
}

/* A process that dies closes its sockets a little before its end can be seen. */
static alnico_status_t explain_loss(const struct making *m, alnico_status_t status)
{
    enum { DYING_MS = 200 };
    if (status != ALNICO_ERROR_SYSTEM || !process_ends(&m->introductions[0].process, DYING_MS))
        return status;
    return error_set(ALNICO_ERROR_TIMEOUT, "rank 0 did not come: its process has ended");
}

static alnico_status_t fetch(const struct making *m)
{
    int memory;
    struct segment *s = m->out;
    if (!descriptor_receive(m->connection, m->end_ns, &memory))
        return descriptor_left_ms(m->end_ns) == 0
                   ? error_set(ALNICO_ERROR_TIMEOUT, "rank 0 sent no shared segment")
                   : explain_loss(m,
                                  error_set(ALNICO_ERROR_SYSTEM, "rank 0 closed the connection"));
    alnico_status_t status = mapping_create(memory, whole_bytes(s), m->own_ranks, &s->mapping);
    close(memory);
    return status;
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
            return error_set(ALNICO_ERROR_MISMATCH,
                             "rank 0 asks for a segment of %llu bytes, and rank %d for %llu",
                             (unsigned long long)m->introductions[0].bytes, i,
                             (unsigned long long)m->introductions[i].bytes);
    return ALNICO_SUCCESS;
}

/* Each of the two waits ends well before the waits of the exchange after it. */
static void begin_wait(struct making *m)
{
    m->end_ns = deadline_ns(m->timeout / 2);
}

/* The leader of another process than rank 0's connects to it, which may accept later. */
static alnico_status_t connect_to_first(struct making *m)
{
    struct segment *s = m->out;
    m->leader = leader_of(m, s->rank);
    for (int i = 0; i < s->size; i++) {
        m->other_processes += i > 0 && leader_of(m, i) == i;
        m->own_ranks += leader_of(m, i) == m->leader;
    }
    TRY(check_bytes(m));
    if (s->rank != m->leader || s->rank == 0)
        return ALNICO_SUCCESS;
    begin_wait(m);
    return explain_loss(
        m, descriptor_connect(&m->introductions[0].first, 0, s->rank, m->end_ns, &m->connection));
}

/* The leader of a process maps the segment for all its ranks, and enters them. */
static alnico_status_t map_memory(struct making *m)
{
    struct segment *s = m->out;
    if (s->rank != m->leader)
        return ALNICO_SUCCESS;
    begin_wait(m);
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
    return ALNICO_SUCCESS;
}

static alnico_status_t agree(struct making *m, alnico_status_t *status)
{
    return agree_on_status(m->exchange, m->context, m->results, m->out->size, m->out->mapping,
                           status);
}

/* The leader's mapping is that of all its ranks, or nobody's. */
static void adopt_mapping(struct making *m, alnico_status_t status)
{
    struct segment *s = m->out;
    if (status != ALNICO_SUCCESS) {
        mapping_leave(s->mapping, m->own_ranks);
        s->mapping = NULL;
        return;
    }
    s->mapping = m->results[m->leader].address;
    s->members = (struct segment_member *)(void *)s->mapping->start;
    s->base = s->mapping->start + members_bytes(s->size);
}

/* If the last exchange itself fails, a mapping for several ranks stays: one of them may have got
 * it. */
static alnico_status_t create(struct making *m)
{
    alnico_status_t status = m->out->rank == 0 ? begin_first(m) : ALNICO_SUCCESS;
    if (status != ALNICO_SUCCESS)
        m->mine.first.address_bytes = 0;
    TRY(m->exchange(m->context, &m->mine, m->introductions, sizeof m->mine));
    if (m->introductions[0].first.address_bytes)
        status = connect_to_first(m);
    TRY(agree(m, &status));
    TRY(status);
    status = map_memory(m);
    stop_listening(m);
    TRY(agree(m, &status));
    adopt_mapping(m, status);
    return status;
}

alnico_status_t segment_create(out_of_band_allgather *exchange, void *context, int rank, int size,
                               size_t bytes, double timeout, struct segment *out)
{
    memset(out, 0, sizeof *out);
    *out = (struct segment){.rank = rank, .size = size, .bytes = bytes};
    struct making m = {.out = out,
                       .exchange = exchange,
                       .context = context,
                       .mine.bytes = bytes,
                       .memory = -1,
                       .listener = -1,
                       .connection = -1,
                       .timeout = timeout};
    process_identify(&m.mine.process);
    m.introductions = calloc((size_t)size, sizeof *m.introductions);
    m.results = calloc((size_t)size, sizeof *m.results);
    out->pidfds = malloc((size_t)size * sizeof *out->pidfds);
    alnico_status_t status = ALNICO_ERROR_MEMORY;
    if (!m.introductions || !m.results || !out->pidfds) {
        error_set(status, "no memory for %d ranks", size);
        goto close_descriptors;
    }
    for (int i = 0; i < size; i++)
        atomic_init(&out->pidfds[i], -1);
    status = create(&m);
close_descriptors:
    stop_listening(&m);
    if (m.memory >= 0)
        close(m.memory);
    if (m.connection >= 0)
        close(m.connection);
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
