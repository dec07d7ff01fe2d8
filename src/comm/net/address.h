/* Addresses of TCP, IPv4 and IPv6: parsed, printed, sent to other ranks, and which of this host's own
 * the others can reach. Any thread. */
#ifndef ALNICO_COMM_NET_ADDRESS_H
#define ALNICO_COMM_NET_ADDRESS_H

#include <alnico/alnico.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Plain bytes without padding, to be sent to ranks of a host of the same byte order. */
struct net_address {
    uint8_t bytes[16]; /* in the order of the network; of IPv4 the first four */
    uint32_t scope;    /* of IPv6: the interface's number on this host, of a link-local address */
    uint16_t port;
    uint8_t version; /* 4 or 6; 0: none */
    uint8_t unused;
};

/* "10.0.0.1:4000", "[fe80::1%eth0]:4000" or "node7:4000"; without a port it is `port`. A name is
 * looked up, which may take the resolver's time; of its addresses the first is taken. Errors:
 * ARGUMENT, with the text. */
alnico_status_t net_address_parse(const char *text, uint16_t port, struct net_address *out);

/* Writes the address as text that net_address_parse reads. Returns `out`. */
enum { NET_ADDRESS_TEXT = 80 };
char *net_address_print(const struct net_address *address, char out[NET_ADDRESS_TEXT]);

/* To and from the system's form. An IPv4 address that an IPv6 socket shows is an IPv4 one. */
socklen_t net_address_to_system(const struct net_address *address, struct sockaddr_storage *out);
void net_address_from_system(const struct sockaddr_storage *from, struct net_address *out);

/* This host's address, with port 0, for others to connect to: of the interface of that name, or, with
 * "", the one that packets to `toward` leave from; NULL: packets to anywhere, else the first interface
 * that is up, else the loopback. `interface` may also be an address of the host. Errors: ARGUMENT (no
 * such interface; the detail lists what there is), SYSTEM. */
alnico_status_t net_address_own(const char *interface, const struct net_address *toward,
                                struct net_address *out);

#endif
