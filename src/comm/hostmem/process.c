/* Processes by /proc, pidfd and kill. A process number alone is not enough: it is used again after its
 * process ended, and containers have their own. */
#include "comm/hostmem/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t own_pid_space(void)
{
    struct stat space;
    return stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
}

/* The state letter and the start of a process from /proc/PID/stat. Its name, in brackets, may
 * contain anything, so the fields are counted from the last bracket: state is the 3rd, the start
 * the 22nd. */
static bool read_stat(int64_t pid, char *state, uint64_t *started)
{
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *at = strrchr(text, ')');
    unsigned long long ticks;
    const char *skip = " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                       "%*s %llu";
    if (!at || sscanf(at + 1, skip, state, &ticks) != 2)
        return false;
    *started = ticks;
    return true;
}

void process_identify(struct process_id *out)
{
    char state;
    memset(out, 0, sizeof *out);
    out->pid = getpid();
    out->pid_space = own_pid_space();
    if (!read_stat(out->pid, &state, &out->started))
        out->started = 0;
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random)
        memcpy(out->random, random, sizeof out->random);
}

bool process_same(const struct process_id *a, const struct process_id *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

bool process_visible(const struct process_id *process)
{
    return process->pid_space && process->pid_space == own_pid_space();
}

/* Whether another process has the number now. */
static bool is_replaced(const struct process_id *process)
{
    char state;
    uint64_t started;
    return process->started && read_stat(process->pid, &state, &started) &&
           started != process->started;
}

int process_open(const struct process_id *process)
{
    if (!process_visible(process))
        return -1;
    int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)process->pid, 0);
    if (pidfd < 0 || !is_replaced(process))
        return pidfd;
    close(pidfd);
    return -1;
}

static bool ended_by_number(const struct process_id *process)
{
    char state = 0;
    uint64_t started = 0;
    if (!process_visible(process))
        return false;
    if (kill((pid_t)process->pid, 0) != 0 && errno == ESRCH)
        return true;
    if (!read_stat(process->pid, &state, &started))
        return false;
    return state == 'Z' || state == 'X' || (process->started && started != process->started);
}

static bool ends_within(int pidfd, int ms)
{
    struct pollfd poll_for = {.fd = pidfd, .events = POLLIN};
    return poll(&poll_for, 1, ms) == 1 && poll_for.revents & POLLIN;
}

bool process_ended(const struct process_id *process, int pidfd)
{
    return pidfd < 0 ? ended_by_number(process) : ends_within(pidfd, 0);
}

bool process_ends(const struct process_id *process, int ms)
{
    int pidfd = process_open(process);
    if (pidfd < 0)
        return ended_by_number(process);
    bool ends = ends_within(pidfd, ms);
    close(pidfd);
    return ends;
}
