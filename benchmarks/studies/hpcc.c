/* See hpcc.h. It reads hpccinf.txt and writes hpccoutf.txt in its folder. */
#include "benchmarks/studies/hpcc.h"

#include <cblas.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOT_HERE = 77, LINE = 512 };

const char *const hpcc_choices[] = {"none", "hpcc", NULL};

void hpcc_require(void)
{
    if (system("command -v hpcc mpirun.openmpi >/dev/null") != 0) {
        fprintf(stderr, "--versus hpcc: needs Debian's hpcc and openmpi-bin\n");
        exit(NOT_HERE);
    }
}

static FILE *file_open(const char *folder, const char *name, const char *mode)
{
    char path[LINE];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, mode);
    if (!file)
        program_fail("%s: cannot be opened", path);
    return file;
}

/* The package's example, with our N, blocks and grid. */
static void input_write(const struct hpcc *hpcc, const char *folder)
{
    FILE *file = file_open(folder, "hpccinf.txt", "w");
    fprintf(file, "\n\n\n8\n1\n%d\n%d\n", hpcc->size, hpcc->count);
    for (int i = 0; i < hpcc->count; i++)
        fprintf(file, "%d ", hpcc->blocks[i]);
    fprintf(file,
            "\n0\n1\n1\n%d\n16.0\n1\n2\n1\n4\n1\n2\n1\n1\n1\n1\n1\n1\n2\n64\n0\n0\n1\n8\n\n0\n1\n0"
            "\n1\n",
            hpcc->ranks);
    fclose(file);
}

/* Linpack's results stand in the order of the blocks; the rest in the summary. */
static void output_read(struct hpcc *hpcc, const char *folder)
{
    FILE *file = file_open(folder, "hpccoutf.txt", "r");
    int runs = 0, passed = 0, success = 0;
    char line[LINE];
    while (fgets(line, sizeof line, file)) {
        double value;
        if (runs < hpcc->count && sscanf(line, "WR%*s %*d %*d %*d %*d %*f %lf", &value) == 1)
            hpcc->gflops[runs++] = value;
        passed += strncmp(line, "||Ax-b||", 8) == 0 && strstr(line, "PASSED");
        sscanf(line, "Success=%d", &success);
        if (sscanf(line, "StarSTREAM_Triad=%lf", &value) == 1)
            hpcc->triad_gbytes = value * hpcc->ranks;
        if (sscanf(line, "StarDGEMM_Gflops=%lf", &value) == 1)
            hpcc->dgemm_gflops = value * hpcc->ranks;
    }
    fclose(file);
    if (runs < hpcc->count || passed < hpcc->count || !success || hpcc->triad_gbytes <= 0 ||
        hpcc->dgemm_gflops <= 0)
        program_fail("hpcc: %d of %d runs of Linpack passed; see %s/hpccoutf.txt", passed,
                     hpcc->count, folder);
}

/* Open MPI would tie ranks to cores, which ours are not. */
static void processes_run(const struct hpcc *hpcc, const char *folder)
{
    char command[4 * LINE];
    Dl_info blas;
    if (!dladdr((void *)(uintptr_t)cblas_dgemm, &blas))
        program_fail("hpcc: the file of OpenBLAS is not known");
    snprintf(command, sizeof command,
             "cd '%s' && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi "
             "--oversubscribe --bind-to none -n %d env LD_PRELOAD='%s' OMP_NUM_THREADS=%d hpcc "
             "</dev/null >said 2>&1",
             folder, hpcc->ranks, blas.dli_fname, hpcc->threads);
    if (system(command) != 0)
        program_fail("hpcc failed; see %s/said", folder);
}

static void folder_remove(const char *folder)
{
    static const char *const names[] = {"hpccinf.txt", "hpccoutf.txt", "said"};
    char path[LINE];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

void hpcc_run(struct hpcc *hpcc)
{
    char folder[] = "/tmp/study-hpcc-XXXXXX";
    if (!mkdtemp(folder))
        program_fail("%s: cannot be made", folder);
    input_write(hpcc, folder);
    processes_run(hpcc, folder);
    output_read(hpcc, folder);
    folder_remove(folder);
}
