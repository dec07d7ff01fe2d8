/* Which blocks each collective reads and writes, in one table. Pure; any thread. */
#include "comm/call.h"

#include "base/datatype.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

bool side_block(const struct side *side, int b, struct walk *walk)
{
    if (b >= side->blocks)
        return false;
    walk->count = side->counts ? side->counts[b] : side->count;
    walk->at = side->at ? side->at[b] : side->counts ? walk->next : (size_t)b * side->stride;
    walk->next += walk->count;
    return true;
}

size_t side_extent_uneven(const struct side *side)
{
    size_t extent = 0;
    SIDE_EACH(block, side)
    {
        if (block.count > SIZE_MAX - block.at || block.next < block.count)
            return SIZE_MAX;
        size_t end = block.count ? block.at + block.count : 0;
        extent = end > extent ? end : extent;
    }
    return extent;
}

bool side_is_dense(const struct side *side)
{
    size_t end = 0;
    SIDE_EACH(block, side)
    {
        if (block.count && block.at != end)
            return false;
        end += block.count;
    }
    return true;
}

bool call_own_messages_meet(const struct call *call, int rank)
{
    int balance = 0;
    for (int i = 0; i < call->messages_count; i++)
        if (call->messages[i].to == rank || call->messages[i].from == rank)
            balance += call->messages[i].to >= 0 ? 1 : -1;
    return balance == 0;
}

static size_t longest_of(const size_t *counts, int size, size_t longest)
{
    for (int b = 0; counts && b < size; b++)
        longest = counts[b] > longest ? counts[b] : longest;
    return longest;
}

size_t call_longest(const struct call *call, int size)
{
    return longest_of(call->recv_counts, size, longest_of(call->send_counts, size, call->count));
}

size_t call_bytes(const struct call *call, int size)
{
    const size_t *counts = call->send_counts ? call->send_counts : call->recv_counts;
    size_t sum = 0, bytes = datatype_bytes(call->type);
    if (!call_is_even(call))
        return 0;
    if (!counts)
        return call->count * bytes;
    for (int b = 0; b < size; b++)
        sum += counts[b];
    return sum / (size_t)size * bytes;
}

static const size_t *keep_list(size_t **next, const size_t *list, size_t size)
{
    size_t *kept = *next;
    if (!list)
        return NULL;
    memcpy(kept, list, size * sizeof *list);
    *next += size;
    return kept;
}

/* The beginnings of blocks that stand one behind the other. */
static const size_t *keep_places(size_t **next, const size_t *counts, const size_t *at, size_t size)
{
    if (at || !counts)
        return keep_list(next, at, size);
    size_t *places = *next, end = 0;
    for (size_t b = 0; b < size; b++) {
        places[b] = end;
        end += counts[b];
    }
    *next += size;
    return places;
}

void call_keep_lists(struct call *call, size_t *lists, int size)
{
    size_t *next = lists, each = (size_t)size;
    call->send_counts = keep_list(&next, call->send_counts, each);
    call->send_at = keep_places(&next, call->send_counts, call->send_at, each);
    call->recv_counts = keep_list(&next, call->recv_counts, each);
    call->recv_at = keep_places(&next, call->recv_counts, call->recv_at, each);
}

const char *call_describe(const struct call *call, char *text, size_t bytes)
{
    char count[32] = "", op[32] = "", root[32] = "";
    if (!call_is_vector(call))
        snprintf(count, sizeof count, " of %zu elements", call->count);
    if (call_reduces(call))
        snprintf(op, sizeof op, ", %s", op_name(call->op));
    if (call_has_root(call))
        snprintf(root, sizeof root, ", root %d", call->root);
    if (call->collective == ALNICO_BARRIER || call->collective == ALNICO_SENDRECV)
        snprintf(text, bytes, "%s", collectives[call->collective].name);
    else
        snprintf(text, bytes, "%s%s of %s%s%s", collectives[call->collective].name, count,
                 datatype_name(call->type), op, root);
    return text;
}
