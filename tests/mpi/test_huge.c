/* More elements than an int counts: 2^31 + 3 bytes, in place. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

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

int main(void)
{
    const size_t count = ((size_t)1 << 31) + 3;
    world_begin(MPI_THREAD_SINGLE);
    int rank = world_rank(), size = world_size();
    int8_t *values = NULL;
    /* A sanitizer's shadow is several times as large as the memory. */
    int enough = !ranks_sanitized() && memory_available() > 1.5 * size * (double)count;
    MPI_Allreduce(MPI_IN_PLACE, &enough, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (enough)
        values = malloc(count);
    if (!values) {
        MPI_Finalize();
        return 77;
    }
    for (size_t i = 0; i < count; i++)
        values[i] = (int8_t)(i * 7 + (size_t)rank);
    alnico_comm_t comm = world_comm(NULL);
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, values, count, ALNICO_INT8, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += values[i] != (int8_t)(i * 7 * (size_t)size + (size_t)(size * (size - 1) / 2));
    REQUIRE(wrong == 0);
    free(values);
    alnico_comm_destroy(comm);
    return world_end();
}
