/* PMIx, the launcher's side of Open MPI and of Slurm, by libpmix.so.2 at run time. What rank 0 puts, all
 * can get after a fence. The process stays a client until it exits: an MPI that is initialised later
 * is one, too, and could not become it again. The types are those of the PMIx standard, version 2 on. */
#include "comm/rendezvous/launch.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/rendezvous/root.h"
#include "device/backoff.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PMIX_GLOBAL = 3, PMIX_STRING = 3, PMIX_UINT32 = 14, PMIX_OPERATION_SUCCEEDED = -157 };
#define PMIX_ANY_RANK ((uint32_t)-2)

struct pmix_proc {
    char nspace[256];
    uint32_t rank;
};

struct pmix_value {
    uint16_t type;
    union {
        char *string;
        uint32_t u32;
        char room[120]; /* no less than any kind of value takes */
    } data;
};

/* Loaded once, with the process's name; init is NULL if there is no library or no server. */
static struct {
    int (*init)(struct pmix_proc *, void *, size_t);
    int (*finalize)(void *, size_t);
    int (*put)(uint8_t, const char *, struct pmix_value *);
    int (*commit)(void);
    int (*fence)(const struct pmix_proc *, size_t, void *, size_t, void (*done)(int, void *),
                 void *);
    int (*get)(const struct pmix_proc *, const char *, void *, size_t, struct pmix_value **);
    struct pmix_proc me;
    int size;
    bool ready;
    pid_t owner;
} pmix;

static void leave(void)
{
    if (getpid() == pmix.owner)
        pmix.finalize(NULL, 0);
}

static bool load(void)
{
    static const char *const names[] = {"PMIx_Init",   "PMIx_Finalize", "PMIx_Put",
                                        "PMIx_Commit", "PMIx_Fence_nb", "PMIx_Get"};
    void *symbols[6], *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    bool whole = library != NULL;
    for (int i = 0; whole && i < 6; i++)
        whole = (symbols[i] = dlsym(library, names[i])) != NULL;
    if (!whole) {
        log_write(LOG_DEBUG, "PMIx: %s", dlerror());
        return false;
    }
    memcpy(&pmix.init, &symbols[0], sizeof symbols[0]);
    memcpy(&pmix.finalize, &symbols[1], sizeof symbols[1]);
    memcpy(&pmix.put, &symbols[2], sizeof symbols[2]);
    memcpy(&pmix.commit, &symbols[3], sizeof symbols[3]);
    memcpy(&pmix.fence, &symbols[4], sizeof symbols[4]);
    memcpy(&pmix.get, &symbols[5], sizeof symbols[5]);
    return true;
}

static void begin(void)
{
    struct pmix_value *size = NULL;
    if (!load() || pmix.init(&pmix.me, NULL, 0) != 0)
        return;
    struct pmix_proc job = pmix.me;
    job.rank = PMIX_ANY_RANK;
    if (pmix.get(&job, "pmix.job.size", NULL, 0, &size) == 0 && size->type == PMIX_UINT32)
        pmix.size = (int)size->data.u32;
    pmix.ready = pmix.size > 0 && pmix.me.rank < (uint32_t)pmix.size;
    pmix.owner = getpid();
    atexit(leave);
}

static alnico_status_t find(struct launch *out, bool *found)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *found = false;
    if (!getenv("PMIX_NAMESPACE") || !getenv("PMIX_RANK"))
        return ALNICO_SUCCESS;
    pthread_once(&once, begin);
    *found = pmix.ready;
    out->rank = (int)pmix.me.rank;
    out->size = pmix.size;
    return ALNICO_SUCCESS;
}

/* Of a fence that may end after its wait. */
struct fence {
    atomic_int status, users;
};

enum { UNDER_WAY = 1 };

static void release(struct fence *f)
{
    if (atomic_fetch_sub(&f->users, 1) == 1)
        free(f);
}

static void fence_done(int status, void *context)
{
    struct fence *f = context;
    atomic_store(&f->status, status);
    release(f);
}

static enum wait look_for_end(void *context)
{
    struct fence *f = context;
    return atomic_load(&f->status) == UNDER_WAY ? WAIT_IDLE : WAIT_DONE;
}

static alnico_status_t meet_all(int64_t end_ns)
{
    struct fence *f = malloc(sizeof *f);
    if (!f)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for a fence");
    atomic_init(&f->status, UNDER_WAY);
    atomic_init(&f->users, 2);
    int status = pmix.fence(NULL, 0, NULL, 0, fence_done, f);
    if (status != 0)
        fence_done(status == PMIX_OPERATION_SUCCEEDED ? 0 : status, f);
    bool came = wait_until(look_for_end, f, end_ns, true);
    status = atomic_load(&f->status);
    release(f);
    if (!came)
        return error_set(ALNICO_ERROR_TIMEOUT,
                         "PMIx: not every rank came to the launcher's fence in time");
    return status == 0 ? ALNICO_SUCCESS
                       : error_set(ALNICO_ERROR_SYSTEM, "PMIx_Fence_nb returned %d", status);
}

static alnico_status_t publish(const char *key, char *text)
{
    struct pmix_value value = {.type = PMIX_STRING};
    value.data.string = text;
    int status = pmix.put(PMIX_GLOBAL, key, &value);
    if (status == 0)
        status = pmix.commit();
    return status == 0
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_SYSTEM, "PMIx_Put or PMIx_Commit returned %d", status);
}

static alnico_status_t broadcast(const struct launch *l, const char *key, char *text, size_t bytes,
                                 int64_t end_ns)
{
    struct pmix_proc first = pmix.me;
    struct pmix_value *value = NULL;
    first.rank = 0;
    if (l->rank == 0)
        TRY(publish(key, text));
    TRY(meet_all(end_ns));
    int status = pmix.get(&first, key, NULL, 0, &value);
    if (status != 0 || value->type != PMIX_STRING)
        return error_set(ALNICO_ERROR_SYSTEM, "PMIx_Get of rank 0's %s returned %d", key, status);
    snprintf(text, bytes, "%s", value->data.string);
    free(value->data.string);
    free(value);
    return ALNICO_SUCCESS;
}

const struct launcher launcher_pmix = {"PMIx", find, broadcast};
