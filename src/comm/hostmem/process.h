/* Identity of processes, and whether they have ended. Any thread. */
#ifndef ALNICO_COMM_HOSTMEM_PROCESS_H
#define ALNICO_COMM_HOSTMEM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Plain bytes without padding, to be sent to other ranks of the host. */
struct process_id {
    int64_t pid;
    uint64_t pid_space; /* the namespace in which `pid` counts; 0: unknown */
    uint64_t started;   /* in clock ticks since boot; 0: unknown */
    uint64_t random[2]; /* what the kernel gave the program when it started */
};

/* The calling process. */
void process_identify(struct process_id *out);

bool process_same(const struct process_id *a, const struct process_id *b);

/* Whether the calling process may use `pid` for what it names: both count in one namespace. */
bool process_visible(const struct process_id *process);

/* A descriptor of another process that becomes readable at its end; the caller closes it. Negative
 * if there is none: it ended and was reaped, or the kernel has no such descriptors. */
int process_open(const struct process_id *process);

/* Whether the process has ended, a zombie included. `pidfd` is process_open's result. False if
 * nobody can tell from here. Never blocks. */
bool process_ended(const struct process_id *process, int pidfd);

/* Whether another process has ended, or does so within `ms` milliseconds. One that dies closes its
 * sockets a little before its end can be seen. */
enum { PROCESS_DYING_MS = 200 };
bool process_ends(const struct process_id *process, int ms);

#endif
