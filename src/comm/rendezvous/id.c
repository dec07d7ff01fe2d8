/* An id: a text that names it, the address, the key, and a hash that shows whether it came whole. */
#include "comm/rendezvous/id.h"

#include "base/status.h"

#include <string.h>

static const char name[16] = "alnico id 1";

enum {
    ADDRESS = sizeof name,
    KEY = ADDRESS + sizeof(struct net_address),
    HASH = KEY + sizeof(struct net_key)
};

_Static_assert(HASH + SIPHASH_BYTES <= sizeof(alnico_id_t), "an id holds what it has to");

static void hash(const alnico_id_t *id, uint8_t out[SIPHASH_BYTES])
{
    siphash((const uint8_t *)name, id->bytes, HASH, out);
}

void id_write(const struct place *place, alnico_id_t *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, name, sizeof name);
    memcpy(out->bytes + ADDRESS, &place->address, sizeof place->address);
    memcpy(out->bytes + KEY, &place->key, sizeof place->key);
    hash(out, (uint8_t *)out->bytes + HASH);
}

alnico_status_t id_read(const alnico_id_t *id, struct place *out)
{
    uint8_t right[SIPHASH_BYTES];
    hash(id, right);
    if (memcmp(id->bytes, name, sizeof name) != 0 ||
        memcmp(id->bytes + HASH, right, sizeof right) != 0)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "the id's 128 bytes are not those that alnico_id_create made");
    out->ports = 1;
    memcpy(&out->address, id->bytes + ADDRESS, sizeof out->address);
    memcpy(&out->key, id->bytes + KEY, sizeof out->key);
    return ALNICO_SUCCESS;
}
