/*
 * Ranks that end while the others wait for them on GPUs, with the deadline of ten minutes: each gets a
 * status that names the rank within a second, shrinks the communicator, and adds up numbers on what
 * comes of that, eager and between GPUs in a CUDA graph. Ranks are processes: each on a GPU of its
 * own where there are two or more, and three on the first GPU, as if on hosts of their own, whose
 * messages go through the hosts.
 *
 *     gpu_cuda_shrink [ROUNDS [SEED]]      on 1, 2 and 4 GPUs; starts the processes itself
 */
#include "tests/gpu/support/site.h"
#include "tests/support/forks.h"
#include "tests/support/reference.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/wait.h>

enum { COUNT_MOST = 200000, CALLS = 1000, ONE_GPU_RANKS = 3 };

static const double at_once = 1; /* seconds */

enum end { KILLED, EXITS, ABORTS, ENDS };
static const char *const end_names[ENDS] = {"is killed", "exits", "aborts"};

struct scene {
    enum end end;
    int victim;
    bool one_gpu; /* all ranks are on the first one */
    const char *way;
    uint64_t random;
};

struct seat {
    const struct scene *scene;
    int rank; /* at the beginning */
    cudaStream_t stream;
    float *memory, *host; /* COUNT_MOST each, on the GPU and pinned */
    alnico_comm_t comm;
};

static alnico_status_t sum(const struct seat *s, size_t count)
{
    return alnico_allreduce(ALNICO_IN_PLACE, s->memory, count, ALNICO_FLOAT32, ALNICO_SUM, s->comm);
}

/* A way that needs more ranks than there are is left to the table. */
static void use_way(const struct seat *s)
{
    if (s->scene->way && alnico_comm_size(s->comm) > 1)
        REQUIRE_STATUS(alnico_comm_set_algorithm(s->comm, ALNICO_ALLREDUCE, s->scene->way),
                       ALNICO_SUCCESS);
}

static void put(const struct seat *s, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        s->host[i] = value;
    CUDA(cudaMemcpyAsync(s->memory, s->host, count * sizeof *s->host, cudaMemcpyHostToDevice,
                         s->stream));
}

static void require_values(const struct seat *s, size_t count, float value)
{
    CUDA(cudaMemcpyAsync(s->host, s->memory, count * sizeof *s->host, cudaMemcpyDeviceToHost,
                         s->stream));
    CUDA(cudaStreamSynchronize(s->stream));
    REQUIRE_STATUS(alnico_comm_status(s->comm), ALNICO_SUCCESS);
    for (size_t i = 0; i < count; i++)
        REQUIRE(s->host[i] == value);
}

/* ---- After the shrink ---- */

static float total_of(const struct scene *s, int size)
{
    float total = 0;
    for (int i = 0; i < size; i++)
        total += s->end == ABORTS || i != s->victim ? (float)(1 << i) : 0;
    return total;
}

static void require_eager(const struct seat *s, float total)
{
    for (int i = 0; i < CALLS; i++) {
        size_t count =
            1 + reference_random(s->scene->random, 5, (uint64_t)i) % (i % 50 ? 3000 : COUNT_MOST);
        put(s, count, (float)((1 << s->rank) * (i % 7 + 1)));
        REQUIRE_STATUS(sum(s, count), ALNICO_SUCCESS);
        require_values(s, count, total * (float)(i % 7 + 1));
    }
}

static void require_graph(const struct seat *s, float total)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CUDA(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal));
    REQUIRE_STATUS(sum(s, 5000), ALNICO_SUCCESS);
    CUDA(cudaStreamEndCapture(s->stream, &graph));
    CUDA(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    for (int i = 1; i <= 20; i++) {
        put(s, 5000, (float)((1 << s->rank) * i));
        CUDA(cudaGraphLaunch(executable, s->stream));
        require_values(s, 5000, total * (float)i);
    }
    CUDA(cudaGraphExecDestroy(executable));
    CUDA(cudaGraphDestroy(graph));
}

/* ---- A scene ---- */

/* Before the library reads its environment. */
static void take_place(const struct scene *s, int rank)
{
    char host[16];
    snprintf(host, sizeof host, "host-%d", rank);
    if (s->one_gpu)
        setenv("ALNICO_HOST", host, 1);
    setenv("ALNICO_INTERFACE", "127.0.0.1", 1);
    CUDA(cudaSetDevice(s->one_gpu ? 0 : rank));
}

static void seat_open(struct seat *s, struct rank *rank)
{
    *s = (struct seat){.scene = rank->argument, .rank = rank->rank};
    take_place(s->scene, rank->rank);
    CUDA(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&s->memory, COUNT_MOST * sizeof(float)));
    CUDA(cudaMallocHost((void **)&s->host, COUNT_MOST * sizeof(float)));
    REQUIRE_STATUS(alnico_comm_create(&rank->bootstrap, ALNICO_DEVICE_CUDA, s->stream, &s->comm),
                   ALNICO_SUCCESS);
    use_way(s);
    put(s, 1000, 1);
    REQUIRE_STATUS(sum(s, 1000), ALNICO_SUCCESS);
    require_values(s, 1000, (float)rank->size);
}

static void seat_close(struct seat *s)
{
    alnico_comm_destroy(s->comm);
    CUDA(cudaFreeHost(s->host));
    CUDA(cudaFree(s->memory));
    CUDA(cudaStreamDestroy(s->stream));
}

static void end_as(const struct seat *s)
{
    if (s->scene->end == KILLED)
        raise(SIGKILL);
    if (s->scene->end == EXITS)
        _exit(9);
    REQUIRE_STATUS(alnico_comm_abort(s->comm), ALNICO_SUCCESS);
}

/* The stream comes to rest by itself, as where nobody calls the library. */
static void require_verdict(const struct seat *s, double start)
{
    char culprit[16];
    CUDA(cudaStreamSynchronize(s->stream));
    alnico_status_t status = alnico_synchronize(s->comm);
    double waited = ranks_seconds() - start;
    printf("rank %d: status %d after %.2f s: %s\n", s->rank, (int)status, waited,
           alnico_error_detail());
    REQUIRE(status == (s->scene->end == ABORTS ? ALNICO_ERROR_ABORTED : ALNICO_ERROR_TIMEOUT));
    snprintf(culprit, sizeof culprit, "rank %d", s->scene->victim);
    ranks_require_detail(culprit);
    REQUIRE(waited < at_once);
}

static void shrink(struct seat *s, int size)
{
    alnico_comm_t shrunk;
    double start = ranks_seconds();
    REQUIRE_STATUS(alnico_comm_shrink(s->comm, s->stream, &shrunk), ALNICO_SUCCESS);
    double shrank = ranks_seconds();
    alnico_comm_destroy(s->comm);
    double destroyed = ranks_seconds();
    if (s->rank == (s->scene->victim ? 0 : 1))
        printf("shrunk in %.2f s, the old one destroyed in %.2f s\n", shrank - start,
               destroyed - shrank);
    REQUIRE(destroyed - shrank < 2 * at_once);
    s->comm = shrunk;
    REQUIRE(alnico_comm_size(shrunk) == (s->scene->end == ABORTS ? size : size - 1));
    use_way(s);
}

static void scene_body(struct rank *rank)
{
    struct seat s;
    seat_open(&s, rank);
    bool is_victim = rank->rank == s.scene->victim;
    float total = total_of(s.scene, rank->size);
    if (!is_victim)
        for (int i = 0; i < 3; i++)
            REQUIRE_STATUS(sum(&s, i % 2 ? 1000 : COUNT_MOST), ALNICO_SUCCESS);
    forks_barrier(rank);
    usleep(100000);
    double start = ranks_seconds();
    if (is_victim)
        end_as(&s);
    else
        require_verdict(&s, start);
    shrink(&s, rank->size);
    require_eager(&s, total);
    if (!s.scene->one_gpu) /* messages through the host are in no graph */
        require_graph(&s, total);
    seat_close(&s);
}

static void play(struct scene scene, int size)
{
    double start = ranks_seconds();
    uint64_t victim = scene.end == ABORTS ? 0 : UINT64_C(1) << scene.victim;
    forks_run_victims(180, size, victim, scene.end == KILLED ? SIGKILL : 0, scene_body, &scene);
    printf("%d ranks on %s, %s: rank %d %s: ok %.2f s\n", size,
           scene.one_gpu ? "one GPU" : "GPUs of their own", scene.way ? scene.way : "table",
           scene.victim, end_names[scene.end], ranks_seconds() - start);
}

/* This process must not use CUDA, or those that it starts could not. */
static int count_elsewhere(void)
{
    int status;
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0)
        _exit(gpu_count());
    REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void play_all(bool one_gpu, int size, const char *const *ways, uint64_t seed)
{
    for (int i = 0; i == 0 || ways[i]; i++)
        for (int end = 0; end < ENDS; end++) {
            uint64_t random = reference_random(seed, (uint64_t)i, (uint64_t)end);
            play((struct scene){.end = (enum end)end,
                                .victim = (int)(random / 16 % (uint64_t)size),
                                .one_gpu = one_gpu,
                                .way = ways[i],
                                .random = random},
                 size);
        }
}

int main(int argc, char **argv)
{
    static const char *const peers[] = {NULL, "two_shot_staged", "shared_two_shot", "ring", NULL},
                             *const through_hosts[] = {"rabenseifner", NULL};
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    unsetenv("ALNICO_TIMEOUT");
    setenv("ALNICO_LOG", "error", 1); /* it warns of ranks that give up */
    gpu_world_prepare();
    int gpus = count_elsewhere();
    if (gpus < 1) {
        printf("skipped: there is no GPU\n");
        return GPU_SKIPPED;
    }
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < rounds; round++, seed++) {
        play_all(true, ONE_GPU_RANKS, through_hosts, seed);
        for (int size = 2; size <= gpus && size <= GPU_RANKS; size += 2)
            play_all(false, size, peers, seed);
    }
    return 0;
}
