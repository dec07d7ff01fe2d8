/* PMI-1, the launcher's side of MPICH's Hydra: lines of text over the socket PMI_FD. What
 * rank 0 puts, all can get after a barrier. The session is finalised when the process exits: an MPI that
 * is initialised later goes on with it, and Hydra kills the job if a process ends without. */
#include "comm/rendezvous/launch.h"

#include "base/status.h"
#include "comm/net/socket.h"
#include "comm/rendezvous/root.h"
#include "device/backoff.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE = 1024, FINALIZE_S = 5 };

struct session {
    int fd;
    int64_t end_ns;
    char line[LINE]; /* the last answer */
};

/* A launcher that sets PMI_JOBID speaks PMI-2: Slurm's ends the job at a line of PMI-1. */
static alnico_status_t find(struct launch *out, bool *found)
{
    *found = getenv("PMI_FD") && getenv("PMI_RANK") && getenv("PMI_SIZE") && !getenv("PMI_JOBID");
    if (!*found)
        return ALNICO_SUCCESS;
    TRY(launch_number("PMI_SIZE", 1, RENDEZVOUS_RANKS, &out->size));
    return launch_number("PMI_RANK", 0, (uint64_t)out->size - 1, &out->rank);
}

static alnico_status_t receive_line(struct session *s)
{
    for (size_t i = 0; i < sizeof s->line; i++) {
        TRY(net_receive(s->fd, &s->line[i], 1, s->end_ns));
        if (s->line[i] == '\n') {
            s->line[i] = '\0';
            return ALNICO_SUCCESS;
        }
    }
    return error_set(ALNICO_ERROR_SYSTEM, "a line is longer than %d bytes", LINE);
}

/* Asks, and expects an answer that begins so, and no "rc" but 0. */
static alnico_status_t ask(struct session *s, const char *question, const char *expected)
{
    alnico_status_t status = net_send(s->fd, question, strlen(question), s->end_ns);
    if (status == ALNICO_SUCCESS)
        status = receive_line(s);
    const char *rc = status == ALNICO_SUCCESS ? strstr(s->line, " rc=") : NULL;
    if (status == ALNICO_SUCCESS &&
        (strncmp(s->line, expected, strlen(expected)) != 0 || (rc && atoi(rc + 4) != 0)))
        status = error_set(ALNICO_ERROR_SYSTEM, "'%s', expected %s", s->line, expected);
    if (status == ALNICO_SUCCESS)
        return status;
    return error_set(status, "PMI: the launcher's answer to %.*s: %s",
                     (int)strcspn(question, " \n"), question, alnico_error_detail());
}

/* The value behind KEY= in the answer, up to a space. */
static alnico_status_t take_value(const struct session *s, const char *key, char *out, size_t bytes)
{
    const char *at = strstr(s->line, key);
    size_t length = at ? strcspn(at + strlen(key), " ") : 0;
    if (!at || length >= bytes)
        return error_set(ALNICO_ERROR_SYSTEM,
                         "PMI: the launcher's answer has no %s of at most %zu "
                         "bytes",
                         key, bytes - 1);
    snprintf(out, bytes, "%.*s", (int)length, at + strlen(key));
    return ALNICO_SUCCESS;
}

static alnico_status_t barrier(struct session *s)
{
    alnico_status_t status = ask(s, "cmd=barrier_in\n", "cmd=barrier_out");
    if (status != ALNICO_ERROR_TIMEOUT)
        return status;
    return error_set(status, "PMI: not every rank came to the launcher's barrier in time");
}

/* The session that ends with the process: which one has it, and its socket, whose number is another
 * one's once an MPI has finalised it. */
static struct {
    pthread_mutex_t lock;
    pid_t owner;
    int fd;
    struct stat socket;
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void finalize(void)
{
    struct session s = {.fd = last.fd, .end_ns = deadline_ns(FINALIZE_S)};
    struct stat now;
    if (getpid() == last.owner && fstat(last.fd, &now) == 0 && now.st_dev == last.socket.st_dev &&
        now.st_ino == last.socket.st_ino)
        ask(&s, "cmd=finalize\n", "cmd=finalize_ack");
}

static alnico_status_t open_session(struct session *s)
{
    TRY(launch_number("PMI_FD", 0, 1 << 20, &s->fd));
    TRY(ask(s, "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init"));
    pthread_mutex_lock(&last.lock);
    if (last.owner != getpid() && fstat(s->fd, &last.socket) == 0) {
        last.owner = getpid();
        last.fd = s->fd;
        atexit(finalize);
    }
    pthread_mutex_unlock(&last.lock);
    return ALNICO_SUCCESS;
}

static alnico_status_t broadcast(const struct launch *l, const char *key, char *text, size_t bytes,
                                 int64_t end_ns)
{
    char kvs[257], question[LINE];
    struct session s = {.end_ns = end_ns};
    TRY(open_session(&s));
    TRY(ask(&s, "cmd=get_my_kvsname\n", "cmd=my_kvsname"));
    TRY(take_value(&s, "kvsname=", kvs, sizeof kvs));
    snprintf(question, sizeof question, "cmd=put kvsname=%s key=%s value=%s\n", kvs, key, text);
    if (l->rank == 0)
        TRY(ask(&s, question, "cmd=put_result"));
    TRY(barrier(&s));
    snprintf(question, sizeof question, "cmd=get kvsname=%s key=%s\n", kvs, key);
    TRY(ask(&s, question, "cmd=get_result"));
    return take_value(&s, "value=", text, bytes);
}

const struct launcher launcher_pmi = {"PMI", find, broadcast};
