/*
 * The machine as hwloc sees it, and the choice of a processing unit for a rank's engine thread.
 * Communicators read it when they are created; the engine binds its own thread. Any thread.
 */
#include "device/topology.h"

#include "base/log.h"
#include "base/status.h"

#include <errno.h>
#include <hwloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool set_has(const struct core_set *set, int unit)
{
    return set->bits[unit / 64] >> (unit % 64) & 1;
}

static void set_add(struct core_set *set, int unit)
{
    set->bits[unit / 64] |= UINT64_C(1) << (unit % 64);
}

static struct core_set set_from_hwloc(hwloc_const_bitmap_t bitmap)
{
    struct core_set set = {{0}};
    for (int unit = hwloc_bitmap_first(bitmap); unit >= 0 && unit < CORE_SET_UNITS;
         unit = hwloc_bitmap_next(bitmap, unit))
        set_add(&set, unit);
    return set;
}

static void read_host_name(char *name, size_t bytes)
{
    if (gethostname(name, bytes) != 0)
        snprintf(name, bytes, "unknown");
    name[bytes - 1] = '\0';
}

/* FNV-1a, from an earlier hash on. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t kernel_id(void)
{
    char text[256] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    bool found = file && fgets(text, sizeof text, file);
    if (file)
        fclose(file);
    if (!found)
        read_host_name(text, sizeof text);
    return hash_text(UINT64_C(0xcbf29ce484222325), text);
}

uint64_t topology_host_id(void)
{
    struct stat network;
    bool known = stat("/proc/self/ns/net", &network) == 0;
    char text[32];
    snprintf(text, sizeof text, "%llu", known ? (unsigned long long)network.st_ino : 0);
    return hash_text(hash_text(kernel_id(), text), variable_text(VARIABLE_HOST));
}

static size_t cache_bytes(hwloc_topology_t machine, hwloc_obj_type_t type)
{
    hwloc_obj_t cache = hwloc_get_obj_by_type(machine, type, 0);
    return cache ? (size_t)cache->attr->cache.size : 0;
}

static int count(hwloc_topology_t machine, hwloc_obj_type_t type)
{
    int objects = hwloc_get_nbobjs_by_type(machine, type);
    return objects > 0 ? objects : 0;
}

static unsigned node_of(hwloc_topology_t machine, unsigned unit)
{
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_NUMANODE, node)))
        if (hwloc_bitmap_isset(node->cpuset, unit))
            return node->logical_index;
    return 0;
}

static void place_units(hwloc_topology_t machine, struct topology *out)
{
    hwloc_obj_t unit = NULL;
    while ((unit = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_PU, unit))) {
        hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(machine, HWLOC_OBJ_CORE, unit);
        if (unit->os_index >= CORE_SET_UNITS)
            continue;
        out->places[unit->os_index].core =
            (uint16_t)hwloc_bitmap_first(core ? core->cpuset : unit->cpuset);
        out->places[unit->os_index].node = (uint16_t)node_of(machine, unit->os_index);
    }
}

/* All threads of the process; or only the caller where they come and go too fast for hwloc. */
static alnico_status_t read_process(hwloc_topology_t machine, struct topology *out)
{
    alnico_status_t status = ALNICO_SUCCESS;
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    if (!bound)
        return error_set(ALNICO_ERROR_SYSTEM, "topology: no memory for a set of units");
    if (hwloc_get_cpubind(machine, bound, HWLOC_CPUBIND_PROCESS) == 0 ||
        hwloc_get_cpubind(machine, bound, HWLOC_CPUBIND_THREAD) == 0)
        out->process = set_from_hwloc(bound);
    else
        status = error_set(ALNICO_ERROR_SYSTEM,
                           "topology: hwloc cannot read what this process is bound to: %s",
                           strerror(errno));
    hwloc_bitmap_free(bound);
    return status;
}

static alnico_status_t read_machine(hwloc_topology_t machine, struct topology *out)
{
    if (hwloc_topology_load(machine) != 0)
        return error_set(ALNICO_ERROR_SYSTEM, "topology: hwloc cannot read the machine: %s",
                         strerror(errno));
    out->units = count(machine, HWLOC_OBJ_PU);
    out->cores = count(machine, HWLOC_OBJ_CORE);
    if (out->cores == 0)
        out->cores = out->units;
    out->numa_nodes = count(machine, HWLOC_OBJ_NUMANODE);
    if (out->numa_nodes == 0)
        out->numa_nodes = 1;
    out->l1 = cache_bytes(machine, HWLOC_OBJ_L1CACHE);
    out->l2 = cache_bytes(machine, HWLOC_OBJ_L2CACHE);
    out->l3 = cache_bytes(machine, HWLOC_OBJ_L3CACHE);
    out->usable = set_from_hwloc(hwloc_topology_get_allowed_cpuset(machine));
    place_units(machine, out);
    return read_process(machine, out);
}

alnico_status_t topology_read(struct topology *out)
{
    hwloc_topology_t machine;
    memset(out, 0, sizeof *out);
    read_host_name(out->host, sizeof out->host);
    out->host_id = topology_host_id();
    out->kernel_id = kernel_id();
    if (hwloc_topology_init(&machine) != 0)
        return error_set(ALNICO_ERROR_SYSTEM, "topology: hwloc does not start: %s",
                         strerror(errno));
    alnico_status_t status = read_machine(machine, out);
    hwloc_topology_destroy(machine);
    return status;
}

bool topology_shares(const struct topology *topology, const struct core_set *process)
{
    for (int i = 0; i < CORE_SET_WORDS; i++)
        if (topology->usable.bits[i] & process->bits[i])
            return true;
    return false;
}

/* Taken units, and cores by their first unit. */
struct occupancy {
    const struct topology *topology;
    struct core_set units, cores;
};

static bool core_free(const struct occupancy *occupancy, int unit)
{
    return !set_has(&occupancy->cores, occupancy->topology->places[unit].core);
}

static void occupy(struct occupancy *occupancy, int unit)
{
    set_add(&occupancy->units, unit);
    set_add(&occupancy->cores, occupancy->topology->places[unit].core);
}

static void occupy_set(struct occupancy *occupancy, const struct core_set *set)
{
    for (int unit = 0; unit < CORE_SET_UNITS; unit++)
        if (set_has(set, unit) && set_has(&occupancy->topology->usable, unit))
            occupy(occupancy, unit);
}

static bool is_bound(const struct topology *topology, const struct core_set *process)
{
    return memcmp(process, &topology->usable, sizeof *process) != 0;
}

/* The NUMA node of a bound rank's first unit. */
static int home_node(const struct topology *topology, const struct core_set *process)
{
    for (int unit = 0; unit < CORE_SET_UNITS; unit++)
        if (set_has(process, unit) && set_has(&topology->usable, unit))
            return topology->places[unit].node;
    return -1;
}

/* Virtual machines may show the two threads of a core as two cores, and then as neighbours. */
static bool neighbour_free(const struct occupancy *occupancy, int unit)
{
    const struct topology *topology = occupancy->topology;
    return topology->units == topology->cores && core_free(occupancy, unit ^ 1);
}

static int place_engine(struct occupancy *occupancy, int node)
{
    int best = -1, best_score = -1;
    for (int unit = 0; unit < CORE_SET_UNITS; unit++) {
        bool home = occupancy->topology->places[unit].node == node;
        int score = 4 * core_free(occupancy, unit) + 2 * home + neighbour_free(occupancy, unit);
        if (!set_has(&occupancy->topology->usable, unit) || set_has(&occupancy->units, unit) ||
            score < best_score)
            continue;
        best = unit;
        best_score = score;
    }
    if (best >= 0)
        occupy(occupancy, best);
    return best;
}

int topology_engine_core(const struct topology *topology, const struct core_set *process, int rank,
                         int ranks)
{
    struct occupancy occupancy = {.topology = topology};
    int unit = -1;
    if (!is_bound(topology, &process[rank]))
        return unit;
    for (int i = 0; i < ranks; i++)
        if (is_bound(topology, &process[i]))
            occupy_set(&occupancy, &process[i]);
    for (int i = 0; i <= rank; i++)
        if (is_bound(topology, &process[i]))
            unit = place_engine(&occupancy, home_node(topology, &process[i]));
    return unit;
}

alnico_status_t topology_bind_thread(int unit)
{
    cpu_set_t set;
    if (unit < 0 || unit >= CPU_SETSIZE)
        return error_set(ALNICO_ERROR_SYSTEM, "topology: unit %d is not between 0 and %d", unit,
                         CPU_SETSIZE - 1);
    CPU_ZERO(&set);
    CPU_SET(unit, &set);
    int error = pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    if (error)
        return error_set(ALNICO_ERROR_SYSTEM, "topology: cannot bind to unit %d: %s", unit,
                         strerror(error));
    return ALNICO_SUCCESS;
}
