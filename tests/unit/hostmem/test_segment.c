/* The segment between threads, processes and both: all see the same bytes, agree on failure, know
 * who lives, and leave nothing behind. */
#include "comm/hostmem/process.h"
#include "comm/hostmem/segment.h"

#include "tests/support/forks.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static alnico_status_t exchange(void *context, const void *mine, void *all, size_t bytes)
{
    struct rank *rank = context;
    return rank->bootstrap.allgather(rank->bootstrap.context, mine, all, bytes)
               ? ALNICO_ERROR_SYSTEM
               : ALNICO_SUCCESS;
}

/* With another allgather than the bootstrap's. */
static alnico_status_t create_over(rendezvous_allgather *allgather, struct rank *rank, size_t bytes,
                                   double timeout, struct segment *out)
{
    struct rendezvous r = ranks_rendezvous(rank, timeout);
    r.allgather = allgather;
    return segment_create(&r, ALNICO_SUCCESS, bytes, out);
}

static alnico_status_t create(struct rank *rank, size_t bytes, struct segment *out)
{
    return create_over(exchange, rank, bytes, 10, out);
}

static struct segment make(struct rank *rank, size_t bytes)
{
    struct segment s;
    REQUIRE_STATUS(create(rank, bytes, &s), ALNICO_SUCCESS);
    return s;
}

static void wait_all(struct rank *rank)
{
    char one = 1, all[128];
    REQUIRE_STATUS(exchange(rank, &one, all, 1), ALNICO_SUCCESS);
}

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count++;
    if (folder)
        closedir(folder);
    return count;
}

/* Every rank writes its own place and reads all others'. */
static void share_body(struct rank *rank)
{
    size_t bytes = 100000;
    wait_all(rank);
    int before = rank->rank == 0 ? descriptors() : 0;
    wait_all(rank);
    struct segment s = make(rank, bytes);
    REQUIRE((uintptr_t)s.base % 4096 == 0 && s.bytes == bytes);
    for (size_t i = 0; i < bytes; i++)
        REQUIRE(((char *)s.base)[i] == 0);
    wait_all(rank);
    ((atomic_int *)s.base)[rank->rank] = 1000 + rank->rank;
    ((char *)s.base)[bytes - 1 - (size_t)rank->rank] = (char)(rank->rank + 1);
    wait_all(rank);
    for (int i = 0; i < rank->size; i++) {
        REQUIRE(((atomic_int *)s.base)[i] == 1000 + i);
        REQUIRE(((char *)s.base)[bytes - 1 - (size_t)i] == (char)(i + 1));
        REQUIRE(!segment_gone(&s, i));
    }
    wait_all(rank);
    segment_destroy(&s);
    segment_destroy(&s);
    wait_all(rank);
    REQUIRE(rank->rank != 0 || descriptors() == before);
    wait_all(rank);
}

static void test_all_ranks_share_the_bytes(void **state)
{
    (void)state;
    for (int size = 1; size <= 6; size++) {
        ranks_run(size, share_body, NULL);
        forks_run(size, 1, share_body, NULL);
    }
    forks_run(3, 2, share_body, NULL);
    forks_run(24, 1, share_body, NULL);
}

/* The ranks of a process share a mapping, which each may hold. */
static void hold_body(struct rank *rank)
{
    enum { BYTES = 5000 };
    struct segment s = make(rank, BYTES);
    struct mapping *held = segment_hold(&s);
    char *base = s.base;
    unsigned char pages[2];
    base[rank->rank] = (char)(rank->rank + 1);
    wait_all(rank);
    segment_destroy(&s);
    wait_all(rank);
    for (int i = 0; i < rank->size; i++)
        REQUIRE(base[i] == i + 1);
    wait_all(rank);
    segment_release(held);
    wait_all(rank);
    REQUIRE(mincore(base, BYTES, pages) != 0 && errno == ENOMEM);
    wait_all(rank);
}

static void test_who_holds_it_has_it_mapped(void **state)
{
    (void)state;
    ranks_run(3, hold_body, NULL);
    forks_run(3, 1, hold_body, NULL);
    forks_run(2, 2, hold_body, NULL);
}

static void near_body(struct rank *rank)
{
    struct segment s = make(rank, 64);
    for (int i = 0; i < rank->size; i++) {
        REQUIRE(segment_same_process(&s, i) == (i / 2 == rank->rank / 2));
        REQUIRE(segment_pid(&s, i) == forks_pid(rank, i));
    }
    wait_all(rank);
    segment_destroy(&s);
}

static void test_who_is_near(void **state)
{
    (void)state;
    forks_run(2, 2, near_body, NULL);
}

/* ---- Failures are everybody's ---- */

static void disagree_body(struct rank *rank)
{
    struct segment s;
    REQUIRE_STATUS(create(rank, rank->rank == rank->size - 1 ? 4096 : 8192, &s),
                   ALNICO_ERROR_MISMATCH);
    ranks_require_detail("rank 3 for 4096");
    REQUIRE(s.base == NULL && s.mapping == NULL);
}

static void impossible_body(struct rank *rank)
{
    struct segment s;
    REQUIRE_STATUS(create(rank, (size_t)1 << 62, &s), ALNICO_ERROR_MEMORY);
    ranks_require_detail("rank 0: mmap of a segment");
}

static void test_failures_are_everybodys(void **state)
{
    (void)state;
    ranks_run(4, disagree_body, NULL);
    forks_run(4, 1, disagree_body, NULL);
    forks_run(2, 2, disagree_body, NULL);
    forks_run(3, 1, impossible_body, NULL);
}

static struct rlimit descriptors_before;

/* Leaves the process room for so many descriptors more. */
static void limit_descriptors(int more)
{
    REQUIRE(getrlimit(RLIMIT_NOFILE, &descriptors_before) == 0);
    struct rlimit limit = {256, descriptors_before.rlim_max};
    int last = -1, first;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int i = first = dup(0); i >= 0; i = dup(0))
        last = i;
    for (int i = 0; i < more; i++)
        close(last - i);
    REQUIRE(last - more >= first);
}

/* What looks for leaks at the end opens files. */
static void free_descriptors(void)
{
    REQUIRE(setrlimit(RLIMIT_NOFILE, &descriptors_before) == 0);
}

/* Rank 1 has no descriptor to connect with: all know at once. */
static void alone_body(struct rank *rank)
{
    struct segment s;
    if (rank->rank == 1)
        limit_descriptors(0);
    double start = ranks_seconds();
    REQUIRE_STATUS(create(rank, 4096, &s), ALNICO_ERROR_SYSTEM);
    ranks_require_detail("rank 1: socket: Too many open files");
    REQUIRE(ranks_seconds() - start < 3);
    if (rank->rank == 1)
        free_descriptors();
}

static void test_who_cannot_connect_keeps_nobody_waiting(void **state)
{
    (void)state;
    forks_run(3, 1, alone_body, NULL);
}

/* Rank 1 has room for its socket, and not for the descriptor. */
static void crowded_body(struct rank *rank)
{
    struct segment s;
    if (rank->rank == 1)
        limit_descriptors(1);
    double start = ranks_seconds();
    REQUIRE_STATUS(create(rank, 4096, &s), ALNICO_ERROR_SYSTEM);
    ranks_require_detail("rank 1: too many open files for the descriptor that rank 0 sends");
    REQUIRE(ranks_seconds() - start < 3);
    if (rank->rank == 1)
        free_descriptors();
}

static void test_too_many_open_files_are_an_error(void **state)
{
    (void)state;
    forks_run(3, 1, crowded_body, NULL);
}

/* ---- Deadlines ---- */

static int exchanges; /* of this rank, which is a process */

enum { LATE_US = 800000 };

/* Rank 1 is held up once it has connected. */
static alnico_status_t exchange_late(void *context, const void *mine, void *all, size_t bytes)
{
    const struct rank *rank = context;
    alnico_status_t status = exchange(context, mine, all, bytes);
    if (++exchanges == 2 && rank->rank == 1)
        usleep(LATE_US);
    return status;
}

static void late_body(struct rank *rank)
{
    struct segment s;
    REQUIRE_STATUS(create_over(exchange_late, rank, 4096, 0.5e-6 * LATE_US, &s), ALNICO_SUCCESS);
    segment_destroy(&s);
}

static void test_a_late_rank_finds_the_memory(void **state)
{
    (void)state;
    forks_run(3, 1, late_body, NULL);
}

/* Rank 1 expects another token than rank 0 has. */
static alnico_status_t exchange_wrong(void *context, const void *mine, void *all, size_t bytes)
{
    const struct rank *rank = context;
    alnico_status_t status = exchange(context, mine, all, bytes);
    if (++exchanges == 1 && rank->rank == 1)
        ((char *)all)[sizeof(struct process_id) + sizeof(uint64_t)] ^= 1;
    return status;
}

static void refused_body(struct rank *rank)
{
    struct segment s;
    double start = ranks_seconds();
    REQUIRE_STATUS(create_over(exchange_wrong, rank, 4096, 10, &s), ALNICO_ERROR_SYSTEM);
    ranks_require_detail("rank 1: a stranger answers in the place of rank 0");
    REQUIRE(ranks_seconds() - start < 3);
}

static void test_a_wrong_token_is_refused(void **state)
{
    (void)state;
    forks_run(3, 1, refused_body, NULL);
}

/* Rank 0 takes rank 1 for a thread of its own process, and sends it nothing. */
static alnico_status_t exchange_alike(void *context, const void *mine, void *all, size_t bytes)
{
    const struct rank *rank = context;
    alnico_status_t status = exchange(context, mine, all, bytes);
    if (++exchanges == 1 && rank->rank == 0)
        memcpy((char *)all + bytes, all, sizeof(struct process_id));
    return status;
}

/* The other ranks wait in the exchange meanwhile, for the timeout. */
static void unserved_body(struct rank *rank)
{
    const double timeout = 2;
    struct segment s;
    double start = ranks_seconds();
    REQUIRE_STATUS(create_over(exchange_alike, rank, 4096, timeout, &s), ALNICO_ERROR_TIMEOUT);
    ranks_require_detail("rank 0 sent no descriptor in time");
    REQUIRE(ranks_seconds() - start < 0.9 * timeout);
}

static void test_a_rank_waits_less_for_memory_than_the_others_for_it(void **state)
{
    (void)state;
    forks_run(3, 1, unserved_body, NULL);
}

/* ---- Strangers ---- */

enum { STRANGER = 65534, HELD = 200, TIMES = 30 };

/* Sends rubbish to every abstract name there is, and holds connections to those that listen. */
static void molest(int *held, int *next)
{
    char line[512];
    FILE *names = fopen("/proc/net/unix", "r");
    while (names && fgets(line, sizeof line, names)) {
        const char *name = strchr(line, '@');
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        if (!name)
            continue;
        size_t length = strcspn(name + 1, "\n");
        memcpy(address.sun_path + 1, name + 1, length);
        socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
        for (int kind = 0; kind < 2; kind++) {
            int *place = &held[(*next)++ % HELD];
            close(*place);
            *place = socket(AF_UNIX, (kind ? SOCK_DGRAM : SOCK_SEQPACKET) | SOCK_NONBLOCK, 0);
            sendto(*place, line, 100, MSG_NOSIGNAL, (struct sockaddr *)&address, bytes);
            if (connect(*place, (struct sockaddr *)&address, bytes) == 0)
                send(*place, line, 24, MSG_NOSIGNAL);
        }
    }
    if (names)
        fclose(names);
}

static pid_t start_stranger(void)
{
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child > 0)
        return child;
    int held[HELD], next = 0;
    for (int i = 0; i < HELD; i++)
        held[i] = -1;
    if (setgid(STRANGER) != 0 || setuid(STRANGER) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        _Exit(1);
    for (;; usleep(200))
        molest(held, &next);
}

static int compare_seconds(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median_seconds(struct rank *rank)
{
    double seconds[TIMES];
    for (int i = 0; i < TIMES; i++) {
        double start = ranks_seconds();
        struct segment s = make(rank, 4096);
        seconds[i] = ranks_seconds() - start;
        wait_all(rank);
        segment_destroy(&s);
    }
    qsort(seconds, TIMES, sizeof *seconds, compare_seconds);
    return seconds[TIMES / 2];
}

/* The stranger works while a segment is made: it needs a moment between the exchanges. */
static alnico_status_t exchange_slowly(void *context, const void *mine, void *all, size_t bytes)
{
    alnico_status_t status = exchange(context, mine, all, bytes);
    usleep(2000);
    return status;
}

static void molested_body(struct rank *rank)
{
    pid_t stranger = 0;
    wait_all(rank);
    double alone = median_seconds(rank), end = ranks_seconds() + 0.5;
    if (rank->rank == 0)
        stranger = start_stranger();
    wait_all(rank);
    double molested = median_seconds(rank);
    for (bool more = true; more;) {
        struct segment s;
        REQUIRE_STATUS(create_over(exchange_slowly, rank, 4096, 10, &s), ALNICO_SUCCESS);
        segment_destroy(&s);
        more = ranks_seconds() < end;
        bool all[3];
        REQUIRE_STATUS(exchange(rank, &more, all, sizeof more), ALNICO_SUCCESS);
        more = all[0];
    }
    if (rank->rank == 0) {
        REQUIRE(waitpid(stranger, NULL, WNOHANG) == 0); /* it still lives */
        kill(stranger, SIGKILL);
        waitpid(stranger, NULL, 0);
        printf("%.0f us alone, %.0f us with a stranger\n", 1e6 * alone, 1e6 * molested);
    }
    REQUIRE(ranks_sanitized() || molested < 2 * alone + 0.002); /* it takes processor time, too */
}

static void test_another_user_cannot_get_in_the_way(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* no one else to be */
    forks_run(3, 1, molested_body, NULL);
}

/* ---- Who lives ---- */

static bool comes_true(bool (*question)(const struct segment *, int), const struct segment *s,
                       int rank)
{
    double end = ranks_seconds() + 5;
    while (!question(s, rank) && ranks_seconds() < end)
        usleep(1000);
    return question(s, rank);
}

static void victim_body(struct rank *rank)
{
    int number = *(const int *)rank->argument;
    struct segment s = make(rank, 4096);
    ((char *)s.base)[rank->rank] = 7;
    wait_all(rank);
    if (rank->rank == 1 && number == SIGKILL)
        kill(getpid(), number);
    if (rank->rank == 1)
        _Exit(9);
    REQUIRE(comes_true(segment_gone, &s, 1));
    for (int i = 0; i < rank->size; i++)
        REQUIRE(i == 1 || !segment_gone(&s, i));
    REQUIRE(((char *)s.base)[1] == 7); /* what it wrote stays */
    wait_all(rank);
    segment_destroy(&s);
}

static void test_an_ended_process_is_known(void **state)
{
    (void)state;
    int numbers[] = {SIGKILL, 0};
    for (int i = 0; i < 2; i++)
        forks_run_victim(3, 1, numbers[i], victim_body, &numbers[i]);
}

/* Rank 0 ends before the others connect to it, or before it lets them in: they know why. */
static struct process_id first_process;
static int exchanges;

static alnico_status_t deadly_exchange(void *context, const void *mine, void *all, size_t bytes)
{
    struct rank *rank = context;
    const int last = *(const int *)rank->argument;
    alnico_status_t status = exchange(context, mine, all, bytes);
    if (++exchanges == last && rank->rank == 0)
        kill(getpid(), SIGKILL);
    if (exchanges == last)
        REQUIRE(process_ends(&first_process, 5000));
    return status;
}

static void first_dies_body(struct rank *rank)
{
    struct process_id mine, all[3];
    struct segment s;
    process_identify(&mine);
    REQUIRE_STATUS(exchange(rank, &mine, all, sizeof mine), ALNICO_SUCCESS);
    first_process = all[0];
    REQUIRE(!process_ends(&first_process, 0));
    REQUIRE_STATUS(create_over(deadly_exchange, rank, 4096, 10, &s), ALNICO_ERROR_TIMEOUT);
    ranks_require_detail("rank 0 did not come: its process has ended");
}

static void test_who_makes_it_may_die(void **state)
{
    (void)state;
    int calls[] = {1, 2};
    for (int i = 0; i < 2; i++)
        forks_run_victim(3, 0, SIGKILL, first_dies_body, &calls[i]);
}

static void leave_body(struct rank *rank)
{
    struct segment s = make(rank, 4096);
    wait_all(rank);
    if (rank->rank == 0)
        segment_destroy(&s);
    wait_all(rank);
    if (rank->rank == 0)
        return;
    usleep(20000);
    REQUIRE(!segment_gone(&s, 0)); /* it left before its process ended */
    ((char *)s.base)[rank->rank] = 1;
    segment_destroy(&s);
}

static void test_one_that_left_is_not_gone(void **state)
{
    (void)state;
    ranks_run(3, leave_body, NULL);
    forks_run(3, 1, leave_body, NULL);
}

/* A SIGKILL leaves no file: what a process shares has no name in any folder. */
static void nameless_body(struct rank *rank)
{
    struct segment s = make(rank, 4096);
    char line[512], permissions[8], path[256];
    bool found = false;
    unsigned long first, last;
    FILE *maps = fopen("/proc/self/maps", "r");
    REQUIRE(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        int fields =
            sscanf(line, "%lx-%lx %7s %*s %*s %*s %255[^\n]", &first, &last, permissions, path);
        if (fields < 4 || permissions[3] != 's')
            continue;
        found |= first <= (uintptr_t)s.base && (uintptr_t)s.base < last;
        REQUIRE(access(path, F_OK) != 0);
    }
    fclose(maps);
    REQUIRE(found);
    segment_destroy(&s);
}

static void test_shared_memory_has_no_name(void **state)
{
    (void)state;
    forks_run(3, 1, nameless_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ranks_share_the_bytes),
        cmocka_unit_test(test_who_holds_it_has_it_mapped),
        cmocka_unit_test(test_who_is_near),
        cmocka_unit_test(test_failures_are_everybodys),
        cmocka_unit_test(test_who_cannot_connect_keeps_nobody_waiting),
        cmocka_unit_test(test_too_many_open_files_are_an_error),
        cmocka_unit_test(test_a_late_rank_finds_the_memory),
        cmocka_unit_test(test_a_wrong_token_is_refused),
        cmocka_unit_test(test_a_rank_waits_less_for_memory_than_the_others_for_it),
        cmocka_unit_test(test_another_user_cannot_get_in_the_way),
        cmocka_unit_test(test_an_ended_process_is_known),
        cmocka_unit_test(test_who_makes_it_may_die),
        cmocka_unit_test(test_one_that_left_is_not_gone),
        cmocka_unit_test(test_shared_memory_has_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
