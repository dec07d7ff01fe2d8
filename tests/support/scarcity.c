/* An allocator that fails on demand, and the trials. */
#include "tests/support/scarcity.h"

#include "comm/communicator/comm.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 8, MOST = 3000 };

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *memory);

static _Thread_local int countdown = -1; /* -1: none fails */
static _Thread_local bool has_failed;
static atomic_long live;

static bool fails(void)
{
    if (countdown < 0 || countdown-- > 0)
        return false;
    has_failed = true;
    return true;
}

static void *counted(void *memory)
{
    if (memory)
        atomic_fetch_add(&live, 1);
    return memory;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : counted(__real_calloc(count, bytes));
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : counted(__real_aligned_alloc(alignment, bytes));
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    if (fails())
        return NULL;
    void *moved = __real_realloc(memory, bytes);
    return memory ? moved : counted(moved);
}

void __wrap_free(void *memory)
{
    if (memory)
        atomic_fetch_sub(&live, 1);
    __real_free(memory);
}

/* One thread at a time: looking needs one, too. */
static int descriptors(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int count = 0;
    pthread_mutex_lock(&lock);
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    pthread_mutex_unlock(&lock);
    return count;
}

struct told {
    alnico_status_t status;
    bool has_failed;
};

static void gather(struct rank *rank, const struct told *mine, struct told *all)
{
    REQUIRE(rank->bootstrap.allgather(rank->bootstrap.context, mine, all, sizeof *mine) == 0);
}

static void wait_all(struct rank *rank)
{
    struct told none = {0}, all[RANKS_MOST];
    gather(rank, &none, all);
}

/* One allocation that fails. */
struct trial {
    struct rank *rank;
    const struct scarce_call *call;
    int victim, k;
    struct told all[RANKS_MOST];
    char detail[512]; /* of this rank's error */
};

static void complain(const struct trial *t, const char *what)
{
    fprintf(stderr, "%s, rank %d, victim %d, allocation %d: %s; statuses", t->call->name,
            t->rank->rank, t->victim, t->k, what);
    for (int i = 0; i < t->rank->size; i++)
        fprintf(stderr, " %d", (int)t->all[i].status);
    fprintf(stderr, "; detail: %s\n", t->detail);
    REQUIRE(!"right");
}

static bool is_named(const struct trial *t)
{
    return *t->detail && (!t->call->named || strstr(t->detail, t->call->name) ||
                          strstr(t->detail, t->call->named));
}

/* Whether any allocation failed: otherwise k is past the last. */
static bool judge(const struct trial *t)
{
    bool any_failed = false, any_error = false, all_error = true, alike = true;
    int rank = t->rank->rank, parts = t->call->parts ? t->call->parts : 1;
    for (int i = 0; i < t->rank->size; i++) {
        bool together = i % parts == rank % parts, error = t->all[i].status != ALNICO_SUCCESS;
        any_failed |= t->all[i].has_failed;
        any_error |= together && error;
        all_error &= !together || error;
        alike &= !together || t->all[i].status == t->all[rank].status;
    }
    if (!any_failed && any_error)
        complain(t, "an error with memory enough");
    if (t->all[rank].status != ALNICO_SUCCESS && !is_named(t))
        complain(t, "the detail does not name the call");
    if (t->call->collective && any_error != all_error)
        complain(t, "some ranks fail and others do not");
    if (t->call->alike && !alike)
        complain(t, "ranks get different errors");
    return any_failed;
}

static bool try_once(struct trial *t)
{
    struct told mine = {0};
    void *out = NULL;
    wait_all(t->rank);
    alnico_comm_t base = t->call->base ? t->call->base(t->rank) : NULL;
    has_failed = false;
    countdown = t->victim == SCARCE_ALL || t->victim == t->rank->rank ? t->k : -1;
    mine.status = t->call->call(t->rank, base, &out);
    countdown = -1;
    mine.has_failed = has_failed;
    snprintf(t->detail, sizeof t->detail, "%s", alnico_error_detail());
    gather(t->rank, &mine, t->all);
    bool any_failed = judge(t);
    if (out && t->call->undo)
        t->call->undo(out);
    alnico_comm_destroy(base);
    return any_failed;
}

void scarce_try(struct rank *rank, const struct scarce_call *call, int victim)
{
    struct trial t = {.rank = rank, .call = call, .victim = rank->size};
    REQUIRE(rank->size <= RANKS_MOST);
    try_once(&t); /* what is made once and kept */
    wait_all(rank);
    long before = atomic_load(&live);
    int opened = descriptors();
    wait_all(rank);
    t.victim = victim;
    while (t.k < MOST && try_once(&t))
        t.k++;
    wait_all(rank);
    if (rank->rank == 0)
        printf("%s, victim %d: %d allocations\n", call->name, victim, t.k);
    REQUIRE(t.k < MOST);
    int open_now = descriptors();
    if (atomic_load(&live) != before || open_now != opened) {
        fprintf(stderr,
                "%s, victim %d: %ld allocations and %d descriptors before, %ld and %d after\n",
                call->name, victim, before, opened, atomic_load(&live), open_now);
        REQUIRE(!"without a leak");
    }
    wait_all(rank);
}

static alnico_status_t duplicate(struct rank *rank, alnico_comm_t base, void **out)
{
    (void)rank;
    return alnico_comm_duplicate(base, NULL, (alnico_comm_t *)out);
}

static alnico_status_t split(struct rank *rank, alnico_comm_t base, void **out)
{
    return alnico_comm_split(base, rank->rank % 2, 0, NULL, (alnico_comm_t *)out);
}

static alnico_status_t registers(struct rank *rank, alnico_comm_t base, void **out)
{
    static char memory[RANKS_MOST][64];
    return alnico_comm_register(base, memory[rank->rank], 64, (alnico_registration_t *)out);
}

static alnico_status_t make_stream(struct rank *rank, alnico_comm_t base, void **out)
{
    (void)rank, (void)base;
    return alnico_stream_create((alnico_stream_t *)out);
}

static void destroy_stream(void *stream)
{
    alnico_stream_destroy(stream);
}

static alnico_status_t reduce(struct rank *rank, alnico_comm_t base, void **out)
{
    static float values[RANKS_MOST][5000];
    alnico_request_t request;
    (void)out;
    base->family->settings.timeout = 1; /* the others wait for a rank that cannot begin */
    alnico_status_t status = alnico_iallreduce(ALNICO_IN_PLACE, values[rank->rank], 5000,
                                               ALNICO_FLOAT32, ALNICO_MAXIMUM, base, &request);
    return status == ALNICO_SUCCESS ? alnico_wait(&request) : status;
}

void scarce_destroy(void *comm)
{
    alnico_comm_destroy(comm);
}

void scarce_try_calls(struct rank *rank, alnico_comm_t (*base)(struct rank *), int victim)
{
    const struct scarce_call calls[] = {
        {"alnico_comm_duplicate", "duplicate", true, true, 1, duplicate, base, scarce_destroy},
        {"alnico_comm_split", "split", true, true, 2, split, base, scarce_destroy},
        {"alnico_comm_register", "register", true, true, 1, registers, base, NULL},
        {"alnico_iallreduce", "alnico_allreduce", false, false, 1, reduce, base, NULL},
        {"alnico_stream_create", "stream", false, false, 1, make_stream, NULL, destroy_stream},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        scarce_try(rank, &calls[i], victim);
}
