/* Rank 0's tuning file decides for all ranks: others' are not looked at, duplicates and splits
 * choose by their own ranks, a forced name goes before it, and an error in it is every rank's. */
#include "comm/communicator/comm.h"
#include "tests/support/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 1000, BYTES = COUNT * sizeof(float), CHUNK = 1040 };

static char path[] = "/tmp/alnico-tuning-XXXXXX";
static uint64_t seed;

static const char table[] =
    "{\"alnico_tuning\": 1, \"rows\": [\n"
    "{\"collective\": \"allreduce\", \"device\": \"cpu\", \"ranks_up_to\": 2, \"hosts_up_to\": 1,\n"
    " \"bytes_up_to\": 4000, \"backend\": \"host\", \"algorithm\": \"rabenseifner\",\n"
    " \"chunk_bytes\": 2000},\n"
    "{\"collective\": \"allreduce\", \"device\": \"cpu\", \"ranks_up_to\": 5, \"hosts_up_to\": 1,\n"
    " \"bytes_up_to\": 4000, \"backend\": \"host\", \"algorithm\": \"%s\",\n"
    " \"chunk_bytes\": 1040}]}\n";

static int rank_from_launcher(void)
{
    static const char *const names[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"};
    for (int i = 0; i < 3; i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return -1;
}

/* On rank 0 a file of its own; elsewhere a name that leads nowhere. */
static void set_file(int rank, const char *algorithm)
{
    if (rank > 0) {
        setenv("ALNICO_TUNING", "/no/such/file", 1);
        return;
    }
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    FILE *out = fdopen(file, "w");
    REQUIRE(out && fprintf(out, table, algorithm) > 0 && fclose(out) == 0);
    setenv("ALNICO_TUNING", path, 1);
}

/* The sum of random floats, whose bits tell in which order they were added; and the chunks that it
 * took. */
static uint64_t reduce(alnico_comm_t comm, float *recv)
{
    float send[COUNT];
    unsigned state = (unsigned)seed + (unsigned)world_rank();
    for (int i = 0; i < COUNT; i++)
        send[i] = (float)rand_r(&state) / (float)(1 + rand_r(&state) % 1000);
    memset(recv, 0xFF, BYTES);
    uint64_t before = comm->next_chunk;
    REQUIRE_STATUS(alnico_allreduce(send, recv, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(recv[i] >= 0);
    return comm->next_chunk - before;
}

static void require_step(alnico_comm_t comm, size_t bytes, const char *name, size_t chunk_bytes)
{
    const struct tuning_step *step = tuning_choose(&comm->tuning, ALNICO_ALLREDUCE, 0, bytes);
    REQUIRE(strcmp(step->choice.algorithm->name, name) == 0);
    REQUIRE(step->choice.chunk_bytes == chunk_bytes);
}

static void check_table(alnico_comm_t comm)
{
    bool pair = world_size() <= 2;
    require_step(comm, 0, pair ? "rabenseifner" : "ring", pair ? 2000 : CHUNK);
    require_step(comm, 4000, pair ? "rabenseifner" : "ring", pair ? 2000 : CHUNK);
    struct tuning_steps builtin;
    REQUIRE_STATUS(tuning_steps_init(&builtin, NULL, ALNICO_DEVICE_CPU, world_size(), 1),
                   ALNICO_SUCCESS);
    const struct tuning_step *step = tuning_choose(&builtin, ALNICO_ALLREDUCE, 0, 4001);
    require_step(comm, 4001, step->choice.algorithm->name, step->choice.chunk_bytes);
    tuning_steps_finish(&builtin);
}

/* Three ranks and more by ring, whose order of addition is its own. */
static void check_forced(alnico_comm_t comm)
{
    float by_table[COUNT], forced[COUNT], again[COUNT];
    uint64_t chunks = world_size() <= 2 ? 2 : 4;
    REQUIRE(reduce(comm, by_table) == chunks || world_size() == 1);
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, "binomial"), ALNICO_SUCCESS);
    reduce(comm, forced);
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, NULL), ALNICO_SUCCESS);
    reduce(comm, again);
    REQUIRE(memcmp(again, by_table, BYTES) == 0);
    if (world_size() > 2)
        REQUIRE(memcmp(forced, by_table, BYTES) != 0);
}

static void check_parts(alnico_comm_t comm)
{
    alnico_comm_t twin, part;
    float result[COUNT];
    REQUIRE_STATUS(alnico_comm_duplicate(comm, NULL, &twin), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_split(comm, world_rank() < 2, 0, NULL, &part), ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
    check_table(twin);
    reduce(twin, result);
    if (world_rank() < 2) {
        require_step(part, 4000, "rabenseifner", 2000);
        uint64_t chunks = reduce(part, result);
        REQUIRE(chunks == 2 || alnico_comm_size(part) == 1);
    }
    alnico_comm_destroy(twin);
    alnico_comm_destroy(part);
}

/* The environment is read once in a process, so one run shows one file: the first argument is its
 * algorithm. */
int main(int argc, char **argv)
{
    const char *algorithm = argc > 1 ? argv[1] : "ring";
    int rank = rank_from_launcher();
    if (rank < 0)
        return 77;
    set_file(rank, algorithm);
    seed = world_begin(MPI_THREAD_SINGLE);
    alnico_comm_t comm;
    alnico_status_t status = alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &comm);
    if (rank == 0)
        unlink(path);
    if (strcmp(algorithm, "ring") != 0) {
        REQUIRE_STATUS(status, ALNICO_ERROR_ARGUMENT);
        ranks_require_detail("ALNICO_TUNING on rank 0: /tmp/alnico-tuning-");
        ranks_require_detail(", line 6: algorithm is \"bogus\", expected one of");
        REQUIRE(comm == NULL);
        return world_end();
    }
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
    check_table(comm);
    check_forced(comm);
    check_parts(comm);
    return world_end();
}
