/* One status for all ranks of a step. */
#include "comm/agree.h"

#include "base/status.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

alnico_status_t rendezvous_gather(struct rendezvous *r, const void *mine, void *all, size_t bytes)
{
    assert(bytes <= RENDEZVOUS_BYTES);
    alnico_status_t status = r->allgather(r->context, mine, all, bytes);
    r->failed = status != ALNICO_SUCCESS;
    return status;
}

alnico_status_t rendezvous_look(struct rendezvous *r)
{
    alnico_status_t status = r->look && !r->failed ? r->look(r->context) : ALNICO_SUCCESS;
    r->failed |= status != ALNICO_SUCCESS;
    return status;
}

alnico_status_t rendezvous_fail(struct rendezvous *r, alnico_status_t status)
{
    char detail[256];
    if (!r->fail || r->failed)
        return status;
    agree_detail(r->who, rendezvous_name(r, r->rank), detail, sizeof detail);
    error_set(status, "%s", detail);
    r->failed = true;
    return r->fail(r->context, status);
}

void agree_detail(const char *who, int name, char *out, size_t bytes)
{
    const char *text = error_text(who);
    if (strncmp(text, "rank ", 5) == 0)
        snprintf(out, bytes, "%s", text);
    else
        snprintf(out, bytes, "rank %d: %s", name, text);
}

static alnico_status_t first_error(const struct rendezvous *r, const struct step_result *all)
{
    for (int i = 0; i < r->size; i++)
        if (all[i].status != ALNICO_SUCCESS)
            return error_set((alnico_status_t)all[i].status, "%.*s", (int)sizeof all[i].detail - 1,
                             all[i].detail);
    return ALNICO_SUCCESS;
}

alnico_status_t agree_on_status(struct rendezvous *r, struct step_result *all, void *address,
                                alnico_status_t status)
{
    if (status == ALNICO_SUCCESS && !all)
        status = error_set(ALNICO_ERROR_MEMORY, "no memory for %d ranks", r->size);
    struct step_result mine = {.address = address, .status = status};
    if (status != ALNICO_SUCCESS)
        agree_detail(r->who, rendezvous_name(r, r->rank), mine.detail, sizeof mine.detail);
    TRY(rendezvous_gather(r, &mine, all, sizeof mine));
    return all ? first_error(r, all) : error_set(status, "%s", mine.detail);
}
