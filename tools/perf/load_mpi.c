/* MPI as a peer is in a file of its own (mpi.c), which is loaded here: the program itself needs no MPI. */
#include "base/status.h"
#include "tools/perf/mpi.h"

#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <unistd.h>

/* From where the program is. */
static void find_path(char *path, size_t bytes)
{
    char program[2048];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    snprintf(path, bytes, "%s/%s", dirname(program), ALNICO_PERF_MPI);
}

/* Of some MPIs the plugins need names of the library to be global. */
const struct perf_mpi *perf_mpi_open(bool multiple)
{
    char path[4096];
    find_path(path, sizeof path);
    void *part = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    const struct perf_mpi *(*open)(bool) = NULL;
    if (part)
        *(void **)&open = dlsym(part, "perf_mpi_open");
    if (open)
        return open(multiple);
    error_set(ALNICO_ERROR_UNSUPPORTED, "MPI cannot be loaded, or this build has none: %s",
              dlerror());
    return NULL;
}
