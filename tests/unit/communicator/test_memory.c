/*
 * Memory that runs out: allocation k fails, for every k, while communicators are made, duplicated,
 * split and used, on one rank or on all. Each call ends, names itself where it fails, fails on all
 * ranks or on none, and leaves neither memory nor descriptors behind. Links with --wrap.
 */
#include "tests/support/forks.h"
#include "tests/support/ranks.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { RANKS = 3, ALL = RANKS, MOST = 400 };

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

enum { SLOTS = 64, BLOCK_BYTES = 4096 };

/* One allgather; zeroed before the next trial. */
struct slot {
    atomic_bool here[RANKS];
    char block[RANKS][BLOCK_BYTES];
};

static struct slot *slots; /* shared by the processes */

struct trial {
    struct rank *rank;
    alnico_comm_t base;
    int slot; /* the next one */
};

static int allgather(void *context, const void *mine, void *all, size_t bytes)
{
    struct trial *t = context;
    REQUIRE(t->slot < SLOTS && bytes <= BLOCK_BYTES);
    struct slot *slot = &slots[t->slot++];
    double end = ranks_seconds() + 0.3;
    memcpy(slot->block[t->rank->rank], mine, bytes);
    atomic_store(&slot->here[t->rank->rank], true);
    for (int i = 0; i < RANKS; i++) {
        while (!atomic_load(&slot->here[i]) && ranks_seconds() < end)
            sched_yield();
        if (!atomic_load(&slot->here[i]))
            return 1;
        memcpy((char *)all + (size_t)i * bytes, slot->block[i], bytes);
    }
    return 0;
}

struct call_kind {
    const char *name;
    bool needs_base, collective;
    alnico_status_t (*call)(struct trial *t, void **out);
    void (*undo)(void *out); /* NULL: it ends with the communicator */
};

static void destroy_comm(void *comm)
{
    alnico_comm_destroy(comm);
}

static alnico_status_t create(struct trial *t, void **out)
{
    alnico_bootstrap_t bootstrap = {t->rank->rank, t->rank->size, allgather, t};
    return alnico_comm_create(&bootstrap, ALNICO_DEVICE_CPU, NULL, (alnico_comm_t *)out);
}

static alnico_status_t duplicate(struct trial *t, void **out)
{
    return alnico_comm_duplicate(t->base, NULL, (alnico_comm_t *)out);
}

static alnico_status_t split(struct trial *t, void **out)
{
    return alnico_comm_split(t->base, t->rank->rank % 2, 0, NULL, (alnico_comm_t *)out);
}

static alnico_status_t registers(struct trial *t, void **out)
{
    static char memory[RANKS][64];
    return alnico_comm_register(t->base, memory[t->rank->rank], 64, (alnico_registration_t *)out);
}

static alnico_status_t make_stream(struct trial *t, void **out)
{
    (void)t;
    return alnico_stream_create((alnico_stream_t *)out);
}

static void undo_stream(void *stream)
{
    alnico_stream_destroy(stream);
}

static alnico_status_t reduce(struct trial *t, void **out)
{
    static float values[RANKS][5000];
    alnico_request_t request;
    (void)out;
    alnico_status_t status = alnico_iallreduce(ALNICO_IN_PLACE, values[t->rank->rank], 5000,
                                               ALNICO_FLOAT32, ALNICO_MAXIMUM, t->base, &request);
    return status == ALNICO_SUCCESS ? alnico_wait(&request) : status;
}

static const struct call_kind kinds[] = {
    {"alnico_comm_create", false, true, create, destroy_comm},
    {"alnico_comm_duplicate", true, true, duplicate, destroy_comm},
    {"alnico_comm_split", true, true, split, destroy_comm},
    {"alnico_comm_register", true, true, registers, NULL},
    {"alnico_iallreduce", true, false, reduce, NULL},
    {"alnico_stream_create", false, false, make_stream, undo_stream},
};

struct told {
    alnico_status_t status;
    bool has_failed;
};

static void gather(struct rank *rank, const struct told *mine, struct told *all)
{
    REQUIRE(rank->bootstrap.allgather(rank->bootstrap.context, mine, all, sizeof *mine) == 0);
}

static void complain(const struct call_kind *kind, int rank, int victim, int k, const char *what,
                     const struct told *all)
{
    fprintf(stderr, "%s, rank %d, victim %d, allocation %d: %s; statuses", kind->name, rank, victim,
            k, what);
    for (int i = 0; i < RANKS; i++)
        fprintf(stderr, " %d", (int)all[i].status);
    fprintf(stderr, "; detail: %s\n", alnico_error_detail());
    REQUIRE(!"right");
}

/* Whether any allocation failed: otherwise k is past the last. */
static bool try_once(struct trial *t, const struct call_kind *kind, int victim, int k)
{
    struct told mine = {0}, all[RANKS];
    void *out = NULL;
    int rank = t->rank->rank;
    t->slot = 0;
    if (rank == 0)
        memset(slots, 0, SLOTS * sizeof *slots);
    gather(t->rank, &mine, all);
    if (kind->needs_base)
        t->base = ranks_comm(t->rank, NULL);
    has_failed = false;
    countdown = victim == ALL || victim == rank ? k : -1;
    mine.status = kind->call(t, &out);
    countdown = -1;
    mine.has_failed = has_failed;
    char detail[512];
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    gather(t->rank, &mine, all);
    bool any_failed = false, any_error = false, all_error = true;
    for (int i = 0; i < RANKS; i++) {
        bool together = kind->call != split || i % 2 == rank % 2;
        any_failed |= all[i].has_failed;
        any_error |= together && all[i].status != ALNICO_SUCCESS;
        all_error &= !together || all[i].status != ALNICO_SUCCESS;
    }
    if (!any_failed && any_error)
        complain(kind, rank, victim, k, "an error with memory enough", all);
    if (mine.status != ALNICO_SUCCESS && !strstr(detail, kind->name) &&
        !(kind->call == reduce && strstr(detail, "alnico_allreduce")))
        complain(kind, rank, victim, k, "the detail does not name the call", all);
    if (kind->collective && any_error != all_error)
        complain(kind, rank, victim, k, "some ranks fail and others do not", all);
    if (out && kind->undo)
        kind->undo(out);
    if (kind->needs_base)
        alnico_comm_destroy(t->base);
    return any_failed;
}

static void try_kind(struct rank *rank, const struct call_kind *kind, int victim)
{
    struct trial t = {.rank = rank};
    struct told none = {0}, all[RANKS];
    int k = 0;
    try_once(&t, kind, RANKS + 1, 0); /* what is made once and kept */
    gather(rank, &none, all);
    long before = atomic_load(&live);
    int opened = descriptors();
    gather(rank, &none, all);
    while (k < MOST && try_once(&t, kind, victim, k))
        k++;
    gather(rank, &none, all);
    if (rank->rank == 0)
        printf("%s, victim %d: %d allocations\n", kind->name, victim, k);
    REQUIRE(k < MOST);
    int open_now = descriptors();
    if (atomic_load(&live) != before || open_now != opened) {
        fprintf(stderr,
                "%s, victim %d: %ld allocations and %d descriptors before, %ld and %d after\n",
                kind->name, victim, before, opened, atomic_load(&live), open_now);
        REQUIRE(!"without a leak");
    }
    gather(rank, &none, all);
}

static void try_all(struct rank *rank)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int victim = 0; victim <= ALL; victim += victim ? 2 : 1) /* 0, 1 and all */
            try_kind(rank, &kinds[i], victim);
}

static void test_threads(void **state)
{
    (void)state;
    ranks_run(RANKS, try_all, NULL);
}

static void test_processes(void **state)
{
    (void)state;
    forks_run_for(200, RANKS, 1, try_all, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_processes),
    };
    setenv("ALNICO_TIMEOUT", "0.5", 1);
    slots = mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
    assert_true(slots != MAP_FAILED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
