/* The launchers in the order in which they are looked for: the user's own variables, torchrun (which
 * may itself run under another), PMIx, PMI, Slurm, Open MPI without PMIx. */
#include "comm/rendezvous/launch.h"

#include "base/log.h"
#include "base/number.h"
#include "base/status.h"
#include "comm/rendezvous/root.h"
#include "device/backoff.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    PORTS = 8,          /* that are tried, where none is agreed on */
    FIRST_PORT = 20000, /* below those that systems give away */
    PORT_RANGE = 10000,
    SECRET_BYTES = 4096 /* of a file, at most */
};

alnico_status_t launch_number(const char *name, uint64_t least, uint64_t most, int *out)
{
    const char *text = getenv(name);
    uint64_t value;
    if (!text)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s is not set", name);
    if (!number_whole(text, least, most, &value))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s is '%s', expected a number from %llu to %llu",
                         name, text, (unsigned long long)least, (unsigned long long)most);
    *out = (int)value;
    return ALNICO_SUCCESS;
}

static alnico_status_t read_place(const char *rank, const char *size, struct launch *out)
{
    TRY(launch_number(size, 1, RENDEZVOUS_RANKS, &out->size));
    return launch_number(rank, 0, (uint64_t)out->size - 1, &out->rank);
}

/* Ports that all ranks find by the job's name, where nobody says one. */
static void choose_ports(struct launch *out)
{
    struct net_key hash;
    net_key_from_text(out->job, strlen(out->job), &hash);
    out->address.port = (uint16_t)(FIRST_PORT + (hash.bytes[0] + 256 * hash.bytes[1]) % PORT_RANGE);
    out->ports = PORTS;
}

/* ---- ALNICO_RANK, ALNICO_SIZE and ALNICO_ADDRESS ---- */

static alnico_status_t find_own(struct launch *out, bool *found)
{
    *found = variable_is_set(VARIABLE_RANK) || variable_is_set(VARIABLE_SIZE);
    if (!*found)
        return ALNICO_SUCCESS;
    TRY(read_place("ALNICO_RANK", "ALNICO_SIZE", out));
    if (out->size == 1)
        return ALNICO_SUCCESS;
    if (!variable_is_set(VARIABLE_ADDRESS))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "ALNICO_ADDRESS is not set; expected HOST:PORT, where rank 0 listens");
    const char *text = variable_text(VARIABLE_ADDRESS);
    alnico_status_t status = net_address_parse(text, 0, &out->address);
    if (status == ALNICO_SUCCESS && out->address.port == 0)
        status = error_set(ALNICO_ERROR_ARGUMENT, "'%s' has no port", text);
    if (status != ALNICO_SUCCESS)
        return error_set(status, "ALNICO_ADDRESS: %s", alnico_error_detail());
    out->ports = 1;
    return ALNICO_SUCCESS;
}

/* ---- torchrun ---- */

/* The agent has a store of its own at MASTER_PORT. Rank 0 listens behind that, at a port that is
 * free. */
static alnico_status_t find_torchrun(struct launch *out, bool *found)
{
    const char *host = getenv("MASTER_ADDR"), *job = getenv("TORCHELASTIC_RUN_ID"),
               *start = getenv("TORCHELASTIC_RESTART_COUNT");
    int port;
    *found = host && getenv("MASTER_PORT") && getenv("RANK") && getenv("WORLD_SIZE");
    if (!*found)
        return ALNICO_SUCCESS;
    TRY(read_place("RANK", "WORLD_SIZE", out));
    TRY(launch_number("MASTER_PORT", 1, UINT16_MAX, &port));
    snprintf(out->job, sizeof out->job, "%s:%d %.100s %.20s", host, port, job ? job : "",
             start ? start : "");
    alnico_status_t status = net_address_parse(host, 0, &out->address);
    if (status != ALNICO_SUCCESS)
        return error_set(status, "MASTER_ADDR: %s", alnico_error_detail());
    out->address.port = (uint16_t)(port + PORTS < UINT16_MAX ? port + 1 : port - PORTS);
    out->ports = PORTS;
    return ALNICO_SUCCESS;
}

/* ---- Slurm ---- */

/* The first name of a list such as "n[03-05,9]-ib,m1". */
static void first_host(const char *list, char *out, size_t bytes)
{
    const char *open = strpbrk(list, "[,"), *close = open ? strchr(open, ']') : NULL;
    int prefix = open ? (int)(open - list) : (int)strlen(list);
    if (!open || *open == ',' || !close)
        snprintf(out, bytes, "%.*s", prefix, list);
    else
        snprintf(out, bytes, "%.*s%.*s%.*s", prefix, list, (int)strcspn(open + 1, "-,]"), open + 1,
                 (int)strcspn(close + 1, ","), close + 1);
}

/* Of a step, that is under srun: a batch script has a rank too. Its first task is on its first host. */
static alnico_status_t find_slurm(struct launch *out, bool *found)
{
    const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID"),
               *hosts = getenv("SLURM_STEP_NODELIST");
    char host[128];
    *found = job && step && hosts && getenv("SLURM_PROCID") && getenv("SLURM_STEP_NUM_TASKS");
    if (!*found)
        return ALNICO_SUCCESS;
    TRY(read_place("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", out));
    snprintf(out->job, sizeof out->job, "%.90s.%.90s", job, step);
    if (out->size == 1)
        return ALNICO_SUCCESS;
    first_host(hosts, host, sizeof host);
    alnico_status_t status = net_address_parse(host, 0, &out->address);
    if (status != ALNICO_SUCCESS)
        return error_set(status, "SLURM_STEP_NODELIST: %s", alnico_error_detail());
    choose_ports(out);
    return ALNICO_SUCCESS;
}

/* ---- Open MPI without PMIx ---- */

static alnico_status_t find_openmpi(struct launch *out, bool *found)
{
    const char *job = getenv("PMIX_NAMESPACE"), *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"),
               *size = getenv("OMPI_COMM_WORLD_SIZE");
    *found = size && getenv("OMPI_COMM_WORLD_RANK");
    if (!*found)
        return ALNICO_SUCCESS;
    TRY(read_place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", out));
    if (!local || strcmp(local, size) != 0)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "Open MPI started ranks on several hosts, and libpmix.so.2, by which they "
                         "meet, cannot be loaded; ALNICO_RANK, ALNICO_SIZE and ALNICO_ADDRESS do "
                         "without");
    snprintf(out->job, sizeof out->job, "%.150s", job ? job : "");
    out->address = (struct net_address){.version = 4, .bytes = {127, 0, 0, 1}};
    choose_ports(out);
    return ALNICO_SUCCESS;
}

/* ---- Whichever it was ---- */

static const struct launcher own = {"ALNICO_RANK", find_own, NULL},
                             torchrun = {"torchrun", find_torchrun, NULL},
                             slurm = {"Slurm", find_slurm, NULL},
                             openmpi = {"Open MPI", find_openmpi, NULL};

static const struct launcher *const launchers[] = {&own,          &torchrun, &launcher_pmix,
                                                   &launcher_pmi, &slurm,    &openmpi};

alnico_status_t launch_find(struct launch *out)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        bool found;
        *out = (struct launch){.by = launchers[i]};
        alnico_status_t status = launchers[i]->find(out, &found);
        if (status != ALNICO_SUCCESS)
            return error_set(status, "%s: %s", launchers[i]->name, alnico_error_detail());
        if (found)
            return ALNICO_SUCCESS;
    }
    *out = (struct launch){.size = 1};
    return ALNICO_SUCCESS;
}

/* ALNICO_SECRET, or what its file holds, without the end of its last line. */
static alnico_status_t read_secret(char out[SECRET_BYTES], size_t *bytes)
{
    const char *path = variable_text(VARIABLE_SECRET_FILE), *text = variable_text(VARIABLE_SECRET);
    struct stat info;
    *bytes = (size_t)snprintf(out, SECRET_BYTES, "%s", text);
    if (*bytes >= SECRET_BYTES)
        return error_set(ALNICO_ERROR_ARGUMENT, "ALNICO_SECRET has %zu bytes, at most %d", *bytes,
                         SECRET_BYTES - 1);
    if (!*path || *text)
        return ALNICO_SUCCESS;
    FILE *file = fopen(path, "rbe");
    if (!file)
        return error_set(ALNICO_ERROR_ARGUMENT, "ALNICO_SECRET_FILE %s: %s", path, strerror(errno));
    if (fstat(fileno(file), &info) == 0 && (info.st_mode & (S_IRGRP | S_IROTH)))
        log_write(LOG_WARNING, "ALNICO_SECRET_FILE %s can be read by others", path);
    *bytes = fread(out, 1, SECRET_BYTES, file);
    fclose(file);
    while (*bytes && (out[*bytes - 1] == '\n' || out[*bytes - 1] == '\r'))
        --*bytes;
    if (*bytes > 0 && *bytes < SECRET_BYTES)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "ALNICO_SECRET_FILE %s holds %s, expected 1 to %d bytes", path,
                     *bytes ? "more" : "nothing", SECRET_BYTES - 1);
}

/* The key of a job that meets at an address: its secret, and what it is called. */
static alnico_status_t make_key(const struct launch *l, struct net_key *out)
{
    char text[SECRET_BYTES + sizeof l->job + 64];
    size_t bytes;
    TRY(read_secret(text, &bytes));
    if (bytes == 0 && l->rank == 0)
        log_write(LOG_INFO, "without ALNICO_SECRET whoever reaches rank 0's port can join the job");
    bytes += (size_t)snprintf(text + bytes, sizeof text - bytes, "\n%s\n%s", l->by->name, l->job);
    net_key_from_text(text, bytes, out);
    explicit_bzero(text, sizeof text);
    return ALNICO_SUCCESS;
}

static alnico_status_t meet_at_address(const struct launch *l, double timeout, struct place *out)
{
    *out = (struct place){.address = l->address, .ports = l->ports};
    TRY(make_key(l, &out->key));
    struct place here = *out;
    return l->rank == 0 ? root_start(&here, timeout) : ALNICO_SUCCESS;
}

static void write_hex(const alnico_id_t *id, char *out)
{
    for (size_t i = 0; i < sizeof id->bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", (unsigned char)id->bytes[i]);
}

static alnico_status_t read_hex(const struct launch *l, const char *text, alnico_id_t *out)
{
    unsigned byte;
    for (size_t i = 0; i < sizeof out->bytes; i++) {
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return error_set(ALNICO_ERROR_SYSTEM, "%s: rank 0 has no id for the others",
                             l->by->name);
        out->bytes[i] = (char)byte;
    }
    return ALNICO_SUCCESS;
}

static atomic_int
    meetings; /* of this process through its launcher, which keeps what it passed on */

static alnico_status_t meet_by_launcher(const struct launch *l, double timeout, struct place *out)
{
    char text[2 * sizeof(alnico_id_t) + 1] = "", key[32];
    alnico_id_t id;
    snprintf(key, sizeof key, "alnico-id-%d", atomic_fetch_add(&meetings, 1));
    alnico_status_t mine = l->rank == 0 ? alnico_id_create(&id) : ALNICO_SUCCESS;
    char detail[256];
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    if (mine != ALNICO_SUCCESS)
        snprintf(text, sizeof text, "none"); /* the others wait */
    else if (l->rank == 0)
        write_hex(&id, text);
    alnico_status_t status = l->by->broadcast(l, key, text, sizeof text, deadline_ns(timeout));
    if (mine != ALNICO_SUCCESS)
        return error_set(mine, "%s", detail);
    TRY(status);
    TRY(read_hex(l, text, &id));
    return id_read(&id, out);
}

alnico_status_t launch_meet(const struct launch *l, double timeout, struct place *out)
{
    return l->by->broadcast ? meet_by_launcher(l, timeout, out) : meet_at_address(l, timeout, out);
}
