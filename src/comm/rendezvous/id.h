/* The 128 bytes of an alnico_id_t: where the ranks meet, and the key that they prove. Any thread. */
#ifndef ALNICO_COMM_RENDEZVOUS_ID_H
#define ALNICO_COMM_RENDEZVOUS_ID_H

#include "comm/net/handshake.h"

struct place {
    struct net_address address; /* of the root */
    int ports;                  /* it listens at one of so many, from the address's on */
    struct net_key key;
};

void id_write(const struct place *place, alnico_id_t *out);

/* Errors: ARGUMENT: the bytes are none that id_write wrote. */
alnico_status_t id_read(const alnico_id_t *id, struct place *out);

#endif
