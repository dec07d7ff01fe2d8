/* The algorithms that CUDA has, and what each must be able to do. */
#include "base/datatype.h"
#include "comm/backends/backend.h"
#include "tests/gpu/support/site.h"

#include <stdio.h>
#include <string.h>

bool gpu_way_at(int i, struct gpu_way *out)
{
    *out = (struct gpu_way){NULL, NULL};
    if (i > 0)
        out->algorithm =
            backend_algorithm_at(ALNICO_DEVICE_CUDA, ALNICO_ALLREDUCE, i - 1, &out->backend);
    return i == 0 || out->algorithm;
}

struct gpu_way gpu_way_named(const char *name)
{
    struct gpu_way way = {NULL, NULL};
    way.algorithm =
        backend_algorithm_named(ALNICO_DEVICE_CUDA, ALNICO_ALLREDUCE, name, &way.backend);
    if (!way.algorithm)
        fprintf(stderr, "CUDA has no algorithm %s\n", name);
    REQUIRE(way.algorithm != NULL);
    return way;
}

const char *gpu_way_name(const struct gpu_way *way)
{
    return way->algorithm ? way->algorithm->name : "table";
}

bool gpu_way_is(const struct gpu_way *way, const char *backend)
{
    return way->algorithm && strcmp(way->backend->name, backend) == 0;
}

bool gpu_way_captures(const struct gpu_way *way)
{
    return !way->algorithm || !way->backend->ops || way->backend->ops->capturable;
}

bool gpu_force(struct gpu_site *site, const struct gpu_way *way)
{
    const char *name = way->algorithm ? way->algorithm->name : NULL;
    alnico_status_t status = alnico_comm_set_algorithm(site->comm, ALNICO_ALLREDUCE, name);
    bool lacks = way->algorithm &&
                 (!way->backend->ops || alnico_comm_size(site->comm) < way->backend->ranks_least);
    if (strcmp(gpu_way_name(way), "nccl_symmetric") == 0) /* not with every NCCL, GPU and link */
        lacks |= status == ALNICO_ERROR_UNSUPPORTED;
    if (gpu_way_is(way, "aware")) /* with a CUDA-aware MPI only */
        lacks |= status == ALNICO_ERROR_UNSUPPORTED;
    if (lacks)
        REQUIRE_STATUS(status, ALNICO_ERROR_UNSUPPORTED);
    else if (status != ALNICO_SUCCESS)
        fprintf(stderr, "forcing %s:\n", gpu_way_name(way));
    if (!lacks)
        REQUIRE_STATUS(status, ALNICO_SUCCESS);
    return !lacks;
}

/* Up to how many bytes a way of the peer backend must go: as far as somebody would want it. */
static size_t reach(const char *name)
{
    if (strncmp(name, "two_shot_line", 13) == 0)
        return 512 << 10;
    return strncmp(name, "two_shot", 8) == 0 ? SIZE_MAX : 32 << 10;
}

static bool peer_may_refuse(const struct allreduce_case *c, const char *name)
{
    if (strcmp(name, "two_shot_direct") == 0 && !c->registered)
        return true;
    return c->op > ALNICO_AVERAGE || c->count * datatype_bytes(c->type) > reach(name);
}

/* NCCL has neither logical nor bitwise operations, nor our average of integers, nor 8-bit floats everywhere; its symmetric
 * kernels are for sums of some types in memory that it can map. */
bool gpu_may_refuse(const struct allreduce_case *c, const void *argument)
{
    const struct gpu_way *way = argument;
    if (strcmp(gpu_way_name(way), "shared_one_shot") == 0)
        return c->count * datatype_bytes(c->type) > 128 << 10;
    if (gpu_way_is(way, "peer"))
        return peer_may_refuse(c, gpu_way_name(way));
    if (!gpu_way_is(way, "nccl"))
        return false;
    return strcmp(gpu_way_name(way), "nccl") != 0 || c->op > ALNICO_AVERAGE ||
           (c->op == ALNICO_AVERAGE && datatype_is_integer(c->type)) ||
           c->type >= ALNICO_FLOAT8_E4M3 ||
           ((c->op == ALNICO_MINIMUM || c->op == ALNICO_MAXIMUM) && !datatype_is_integer(c->type));
}
