/* Parts of a rendezvous: in each of its allgathers every rank says whether its part still works, and
 * takes its own part's blocks. */
#include "comm/rendezvous/parts.h"

#include "base/status.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct block {
    uint64_t working;
    char data[PART_BYTES];
};

_Static_assert(sizeof(struct block) <= RENDEZVOUS_BYTES, "a block fits");

static alnico_status_t gather(void *context, const void *mine, void *all, size_t bytes)
{
    struct rendezvous_part *part = context;
    struct block block = {.working = 1};
    const struct block *blocks = (const struct block *)(const void *)part->blocks;
    assert(bytes <= PART_BYTES);
    memcpy(block.data, mine, bytes);
    TRY(rendezvous_gather(part->whole, &block, part->blocks, sizeof block));
    for (int i = 0; all && i < part->base.size; i++)
        memcpy((char *)all + (size_t)i * bytes, blocks[part->members[i]].data, bytes);
    return ALNICO_SUCCESS;
}

static alnico_status_t agree_on_memory(struct rendezvous *whole, alnico_status_t status)
{
    struct step_result *results = calloc((size_t)whole->size, sizeof *results);
    status = agree_on_status(whole, results, NULL, status);
    free(results);
    return status;
}

alnico_status_t rendezvous_part_begin(struct rendezvous_part *part, struct rendezvous *whole,
                                      const int *members, int count, int place)
{
    *part = (struct rendezvous_part){.base = *whole, .whole = whole, .members = members};
    part->blocks = malloc((size_t)whole->size * sizeof(struct block));
    part->called = calloc((size_t)count, sizeof *part->called);
    part->base.allgather = gather;
    part->base.context = part;
    part->base.look = NULL;
    part->base.fail = NULL;
    part->base.rank = place;
    part->base.size = count;
    part->base.called = part->called;
    for (int i = 0; part->called && i < count; i++)
        part->called[i] = rendezvous_name(whole, members[i]);
    alnico_status_t status = part->blocks && part->called
                                 ? ALNICO_SUCCESS
                                 : error_set(ALNICO_ERROR_MEMORY, "no memory for %d ranks", count);
    status = agree_on_memory(whole, status);
    if (status != ALNICO_SUCCESS) {
        free(part->blocks);
        free(part->called);
    }
    return status;
}

static bool is_any_working(const struct rendezvous_part *part)
{
    const struct block *blocks = (const struct block *)(const void *)part->blocks;
    for (int i = 0; i < part->whole->size; i++)
        if (blocks[i].working)
            return true;
    return false;
}

alnico_status_t rendezvous_part_end(struct rendezvous_part *part)
{
    const struct block done = {.working = 0};
    alnico_status_t status;
    do
        status = rendezvous_gather(part->whole, &done, part->blocks, sizeof done);
    while (status == ALNICO_SUCCESS && is_any_working(part));
    free(part->blocks);
    free(part->called);
    return status;
}
