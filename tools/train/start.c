/* A trial parse before the ranks meet, and the agreement of the ranks on it. Main thread. */
#include "tools/train/options.h"

#include "tools/common/program.h"
#include "tools/common/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HELPED, PARSED, REFUSED = EXIT_USAGE }; /* what a trial exits with */

/* In a child, since argp exits. */
static void child_parse(int argc, char **argv, const int *ends)
{
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    train_options_parse(argc, argv);
    _exit(PARSED);
}

static void child_read(pid_t child, int end, struct train_trial *out)
{
    int status = 0;
    FILE *in = fdopen(end, "r");
    if (in) {
        out->text[fread(out->text, 1, sizeof out->text - 1, in)] = '\0';
        fclose(in);
    }
    if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status))
        out->status = WEXITSTATUS(status);
}

void train_trial_run(int argc, char **argv, struct train_trial *out)
{
    int ends[2];
    out->status = PARSED;
    out->text[0] = '\0';
    if (!program_launched() || pipe(ends) != 0) {
        train_options_parse(argc, argv);
        return;
    }
    const pid_t child = fork();
    if (child == 0)
        child_parse(argc, argv, ends);
    close(ends[1]);
    child_read(child, ends[0], out);
}

/* Ends all ranks after one has printed. */
_Noreturn static void ranks_end(int status)
{
    fflush(NULL);
    program_barrier();
    program_ranks_close();
    exit(status);
}

void train_trial_end(const struct train_trial *trial)
{
    const int rank = program_rank(), size = program_size();
    int bounds[2] = {trial->status, -trial->status};
    program_least(bounds, 2);
    const int least = bounds[0], most = -bounds[1], worst = most > PARSED ? most : least;
    int first = trial->status == worst ? rank : size;
    if (worst == PARSED)
        return;
    program_least(&first, 1);
    if (rank == first && worst == HELPED && most == PARSED)
        fprintf(stderr, "%s: --help or --usage on rank %d, but not on all ranks\n",
                program_invocation_short_name, rank);
    else if (rank == first)
        fputs(trial->text, worst == HELPED ? stdout : stderr);
    ranks_end(least == most ? worst : REFUSED);
}

void train_modes_agree(const struct train_options *options)
{
    const char *option = train_options_differ(options);
    if (!option)
        return;
    if (program_rank() == 0)
        fprintf(stderr, "%s: the ranks disagree on: --%s\n", program_invocation_short_name, option);
    ranks_end(EXIT_FAILURE);
}
