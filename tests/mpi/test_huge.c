/* More elements than an int counts, in one vector, block or message, and places further apart than 2^33
 * bytes. All of it in bytes, checked one by one. */
#include "tests/support/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_COUNT (((size_t)1 << 31) + 3)
#define FAR ((size_t)5 << 31)

/* Memory that is free, in bytes, as the kernel estimates it. */
static double memory_available(void)
{
    double kilobytes = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lf", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return kilobytes * 1024;
}

/* Of which little is touched, so that it may be far larger than the memory. */
static int8_t *places(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    return memory;
}

enum { BLOCK = 4096 };

/* Bytes BLOCK * number and on of what is multiplied by `factor`, and then something added. */
static void make_block(size_t number, int factor, int added, int8_t *out)
{
    const unsigned slope = 7 * (unsigned)factor;
    const unsigned first = (unsigned)number * 3 * (unsigned)factor + (unsigned)added;
    for (unsigned i = 0; i < BLOCK; i++)
        out[i] = (int8_t)(slope * i + first);
}

static void fill(int8_t *values, size_t count, int rank)
{
    int8_t block[BLOCK];
    for (size_t at = 0; at < count; at += BLOCK) {
        make_block(at / BLOCK, 1, rank, block);
        memcpy(values + at, block, count - at < BLOCK ? count - at : BLOCK);
    }
}

/* Elements `first` and on, as they stand. */
static void expect(const char *what, const int8_t *values, size_t first, size_t count, int factor,
                   int added)
{
    int8_t block[BLOCK];
    for (size_t at = 0; at < first + count; at += BLOCK) {
        const size_t begin = at < first ? first : at;
        const size_t end = first + count - at < BLOCK ? first + count : at + BLOCK;
        make_block(at / BLOCK, factor, added, block);
        if (begin < end && memcmp(values + begin, block + (begin - at), end - begin) != 0) {
            fprintf(stderr, "%s: wrong between bytes %zu and %zu\n", what, begin, end);
            exit(1);
        }
    }
}

static void test_one_vector(int8_t *values, alnico_comm_t comm)
{
    const int size = world_size(), rank = world_rank(), sum = size * (size - 1) / 2;
    fill(values, HUGE_COUNT, rank);
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, values, HUGE_COUNT, ALNICO_INT8, ALNICO_SUM, comm),
        ALNICO_SUCCESS);
    expect("allreduce", values, 0, HUGE_COUNT, size, sum);
    fill(values, HUGE_COUNT, rank);
    REQUIRE_STATUS(alnico_broadcast(values, HUGE_COUNT, ALNICO_INT8, size - 1, comm),
                   ALNICO_SUCCESS);
    expect("broadcast", values, 0, HUGE_COUNT, 1, size - 1);
    fill(values, HUGE_COUNT, rank);
    if (rank == 0)
        REQUIRE_STATUS(alnico_send(values, HUGE_COUNT, ALNICO_INT8, size - 1, comm),
                       ALNICO_SUCCESS);
    if (rank == size - 1)
        REQUIRE_STATUS(alnico_recv(values, HUGE_COUNT, ALNICO_INT8, 0, comm), ALNICO_SUCCESS);
    expect("recv", values, 0, HUGE_COUNT, 1, rank == size - 1 ? 0 : rank);
}

/* Between two ranks: the second has the long block, the first one far behind it. */
static void test_blocks(int8_t *values, int8_t *others, alnico_comm_t comm)
{
    const size_t counts[2] = {5, HUGE_COUNT}, at[2] = {FAR, 17};
    const int rank = world_rank();
    fill(values + at[rank], counts[rank], rank);
    REQUIRE_STATUS(
        alnico_allgatherv(ALNICO_IN_PLACE, counts[rank], values, counts, at, ALNICO_INT8, comm),
        ALNICO_SUCCESS);
    for (int i = 0; i < 2; i++)
        expect("allgatherv", values + at[i], 0, counts[i], 1, i);

    fill(values, HUGE_COUNT + 5, rank);
    REQUIRE_STATUS(
        alnico_reduce_scatterv(ALNICO_IN_PLACE, values, counts, ALNICO_INT8, ALNICO_SUM, comm),
        ALNICO_SUCCESS);
    expect("reduce_scatterv", values, rank ? 5 : 0, counts[rank], 2, 1);

    /* The first rank gives the long block to the second, and gets nothing from it. */
    const size_t given[2] = {rank ? 0 : 3, rank ? 3 : HUGE_COUNT};
    const size_t taken[2] = {rank ? HUGE_COUNT : 3, rank ? 3 : 0};
    fill(values + at[1], given[1], rank);
    fill(values + at[0], given[0], rank);
    REQUIRE_STATUS(alnico_alltoallv(values, given, at, others, taken, at, ALNICO_INT8, comm),
                   ALNICO_SUCCESS);
    for (int i = 0; i < 2; i++)
        expect("alltoallv", others + at[i], 0, taken[i], 1, i);
}

int main(void)
{
    world_begin(MPI_THREAD_SINGLE);
    const int size = world_size();
    /* A sanitizer's shadow is several times as large as the memory. */
    int enough = !ranks_sanitized() && memory_available() > 1.5 * size * (double)HUGE_COUNT;
    MPI_Allreduce(MPI_IN_PLACE, &enough, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!enough) {
        MPI_Finalize();
        return 77;
    }
    const size_t bytes = FAR + HUGE_COUNT + 64;
    alnico_comm_t comm = world_comm(NULL);
    int8_t *values = places(bytes);
    test_one_vector(values, comm);
    munmap(values, bytes);
    if (size == 2) {
        int8_t *others = places(bytes);
        values = places(bytes);
        test_blocks(values, others, comm);
        munmap(values, bytes);
        munmap(others, bytes);
    }
    alnico_comm_destroy(comm);
    return world_end();
}
