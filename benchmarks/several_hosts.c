/* Operations between hosts that are network namespaces of this machine (tests/hosts/hosts makes them):
 * forks all ranks, which meet by an id, and times algorithms in turns.
 *
 * Usage: several_hosts NAME HOSTS RANKS_PER_HOST OPERATION REPETITIONS FIRST LAST FACTOR ALGORITHM...
 * FIRST and LAST are bytes of the vector, or of all blocks together. An algorithm may be "table", the
 * tuning table's choice. Prints medians of microseconds. Needs root. */
#include <alnico/alnico.h>

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ALGORITHMS_MOST = 16, REPETITIONS_MOST = 100, ARGUMENTS = 9 };

struct bench;

/* An operation on `count` elements in all. */
struct operation {
    const char *name;
    alnico_collective_t collective;
    alnico_status_t (*call)(const struct bench *b, size_t count, alnico_comm_t comm);
};

struct bench {
    const struct operation *operation;
    int hosts, per_host, repetitions, algorithms, rank;
    size_t first, last, factor;
    char **names;
    alnico_comm_t comm[ALGORITHMS_MOST];
    float *send, *recv;
};

static alnico_status_t allreduce(const struct bench *b, size_t count, alnico_comm_t comm)
{
    return alnico_allreduce(b->send, b->recv, count, ALNICO_FLOAT32, ALNICO_SUM, comm);
}

static alnico_status_t reduce(const struct bench *b, size_t count, alnico_comm_t comm)
{
    return alnico_reduce(b->send, b->recv, count, ALNICO_FLOAT32, ALNICO_SUM, 0, comm);
}

static alnico_status_t broadcast(const struct bench *b, size_t count, alnico_comm_t comm)
{
    return alnico_broadcast(b->recv, count, ALNICO_FLOAT32, 0, comm);
}

static alnico_status_t allgather(const struct bench *b, size_t count, alnico_comm_t comm)
{
    size_t each = count / (size_t)(b->hosts * b->per_host);
    return alnico_allgather(b->send, b->recv, each, ALNICO_FLOAT32, comm);
}

static alnico_status_t reduce_scatter(const struct bench *b, size_t count, alnico_comm_t comm)
{
    size_t each = count / (size_t)(b->hosts * b->per_host);
    return alnico_reduce_scatter(b->send, b->recv, each, ALNICO_FLOAT32, ALNICO_SUM, comm);
}

static alnico_status_t barrier(const struct bench *b, size_t count, alnico_comm_t comm)
{
    (void)b;
    (void)count;
    return alnico_barrier(comm);
}

static const struct operation operations[] = {
    {"allreduce", ALNICO_ALLREDUCE, allreduce},
    {"reduce", ALNICO_REDUCE, reduce},
    {"broadcast", ALNICO_BROADCAST, broadcast},
    {"allgather", ALNICO_ALLGATHER, allgather},
    {"reduce_scatter", ALNICO_REDUCE_SCATTER, reduce_scatter},
    {"barrier", ALNICO_BARRIER, barrier},
};

static const struct operation *find_operation(const char *name)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    return NULL;
}

/* Shared memory of the ranks before there is a communicator. */
struct shared {
    alnico_id_t id;
    volatile int ready;
};

static void check(alnico_status_t status, const struct bench *b)
{
    if (status == ALNICO_SUCCESS)
        return;
    fprintf(stderr, "rank %d: %s\n", b->rank, alnico_error_detail());
    exit(EXIT_FAILURE);
}

static void enter_host(const char *name, const struct bench *b)
{
    char path[256];
    snprintf(path, sizeof path, "/var/run/netns/%s-%d", name, b->rank / b->per_host);
    int file = open(path, O_RDONLY);
    if (file < 0 || setns(file, CLONE_NEWNET) != 0) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    close(file);
}

/* A communicator for each algorithm. */
static void meet(struct bench *b, struct shared *shared)
{
    if (b->rank == 0) {
        check(alnico_id_create(&shared->id), b);
        __sync_synchronize();
        shared->ready = 1;
    }
    while (!shared->ready)
        usleep(1000);
    check(alnico_comm_create_id(&shared->id, b->rank, b->hosts * b->per_host, ALNICO_DEVICE_CPU,
                                NULL, &b->comm[0]),
          b);
    for (int a = 1; a < b->algorithms; a++)
        check(alnico_comm_duplicate(b->comm[0], NULL, &b->comm[a]), b);
    for (int a = 0; a < b->algorithms; a++)
        if (strcmp(b->names[a], "table") != 0)
            check(alnico_comm_set_algorithm(b->comm[a], b->operation->collective, b->names[a]), b);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static double time_block(const struct bench *b, alnico_comm_t comm, size_t bytes)
{
    int calls = bytes <= 4 << 10 ? 20 : bytes <= 256 << 10 ? 5 : 1;
    check(alnico_barrier(comm), b);
    double start = now_us();
    for (int i = 0; i < calls; i++)
        check(b->operation->call(b, bytes / sizeof(float), comm), b);
    return (now_us() - start) / calls;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run_size(const struct bench *b, size_t bytes)
{
    static double times[ALGORITHMS_MOST][REPETITIONS_MOST];
    for (int a = 0; a < b->algorithms; a++) /* unmeasured */
        time_block(b, b->comm[a], bytes);
    for (int r = 0; r < b->repetitions; r++)
        for (int a = 0; a < b->algorithms; a++)
            times[a][r] = time_block(b, b->comm[a], bytes);
    if (b->rank)
        return;
    printf("%10zu", bytes);
    for (int a = 0; a < b->algorithms; a++) {
        qsort(times[a], (size_t)b->repetitions, sizeof(double), by_value);
        printf(" %*.1f", (int)strlen(b->names[a]), times[a][b->repetitions / 2]);
    }
    printf("\n");
    fflush(stdout);
}

static void run(struct bench *b)
{
    b->send = calloc(b->last, 1);
    b->recv = calloc(b->last, 1);
    if (!b->send || !b->recv)
        exit(EXIT_FAILURE);
    if (b->rank == 0)
        printf("%10s", "bytes");
    for (int a = 0; a < b->algorithms && b->rank == 0; a++)
        printf(" %s%s", b->names[a], a == b->algorithms - 1 ? "\n" : "");
    for (size_t bytes = b->first; bytes <= b->last; bytes *= b->factor)
        run_size(b, bytes);
    for (int a = 0; a < b->algorithms; a++)
        alnico_comm_destroy(b->comm[a]);
    free(b->send);
    free(b->recv);
}

static int wait_for_all(void)
{
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc < ARGUMENTS + 1 || argc > ARGUMENTS + ALGORITHMS_MOST) {
        fprintf(stderr, "usage: several_hosts NAME HOSTS RANKS_PER_HOST OPERATION REPETITIONS "
                        "FIRST LAST FACTOR ALGORITHM...\n");
        return 2;
    }
    struct bench b = {.operation = find_operation(argv[4]),
                      .hosts = atoi(argv[2]),
                      .per_host = atoi(argv[3]),
                      .repetitions = atoi(argv[5]),
                      .first = strtoull(argv[6], NULL, 10),
                      .last = strtoull(argv[7], NULL, 10),
                      .factor = strtoull(argv[8], NULL, 10),
                      .algorithms = argc - ARGUMENTS,
                      .names = argv + ARGUMENTS};
    if (!b.operation || b.hosts < 1 || b.per_host < 1 || b.repetitions < 1 ||
        b.repetitions > REPETITIONS_MOST || b.first < sizeof(float) || b.factor < 2)
        return 2;
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return EXIT_FAILURE;
    for (b.rank = 0; b.rank < b.hosts * b.per_host; b.rank++)
        if (fork() == 0) {
            enter_host(argv[1], &b);
            meet(&b, shared);
            run(&b);
            return EXIT_SUCCESS;
        }
    return wait_for_all();
}
