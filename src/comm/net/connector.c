/* A connection to another rank, tried until its deadline. */
#include "comm/net/connector.h"

#include "base/status.h"
#include "device/backoff.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

enum { FIRST_PAUSE_MS = 1, LONGEST_PAUSE_MS = 100 };

void net_connector_begin(struct net_connector *c, const struct net_address *to,
                         const struct net_key *key, const struct net_identity *mine, bool patient,
                         int64_t end_ns)
{
    *c = (struct net_connector){
        .to = *to, .key = *key, .mine = *mine, .patient = patient, .fd = -1, .end_ns = end_ns};
}

void net_connector_close(struct net_connector *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->connected = false;
}

static alnico_status_t advance(struct net_connector *c)
{
    if (c->fd < 0)
        TRY(net_connect(&c->to, &c->fd));
    if (!c->connected) {
        TRY(net_connected(c->fd, &c->to));
        TRY(net_handshake_begin(&c->handshake, c->fd, true, &c->key, &c->mine, &c->to));
        c->connected = true;
    }
    return net_handshake_step(&c->handshake, NULL, NULL);
}

/* The error with the address, which it may begin with already. */
static alnico_status_t name(const struct net_connector *c, alnico_status_t status)
{
    char text[NET_ADDRESS_TEXT], why[256];
    snprintf(why, sizeof why, "%s", alnico_error_detail());
    return error_set(status, c->connected ? "%s: %s" : "%.0s%s", net_address_print(&c->to, text),
                     why);
}

/* Whoever listens there, if anybody, may not have been the right one yet. */
static alnico_status_t retry(struct net_connector *c, alnico_status_t status)
{
    int shift = c->tries < 7 ? c->tries : 7, pause = FIRST_PAUSE_MS << shift;
    name(c, status);
    net_connector_close(c);
    if (status != ALNICO_ERROR_SYSTEM || !c->patient)
        return status;
    if (backoff_now_ns() >= c->end_ns)
        return ALNICO_ERROR_TIMEOUT;
    c->tries++;
    pause = pause < LONGEST_PAUSE_MS ? pause : LONGEST_PAUSE_MS;
    c->again_ns = backoff_now_ns() + 1000000LL * pause;
    return ALNICO_PENDING;
}

alnico_status_t net_connector_step(struct net_connector *c, int *fd)
{
    char text[NET_ADDRESS_TEXT];
    if (c->fd < 0 && backoff_now_ns() < c->again_ns)
        return ALNICO_PENDING;
    alnico_status_t status = advance(c);
    if (status == ALNICO_SUCCESS) {
        *fd = c->fd;
        c->fd = -1;
    } else if (status != ALNICO_PENDING) {
        status = retry(c, status);
    } else if (backoff_now_ns() >= c->end_ns) {
        net_connector_close(c);
        return error_set(ALNICO_ERROR_TIMEOUT, "%s did not answer in time",
                         net_address_print(&c->to, text));
    }
    return status;
}

int net_connector_poll(const struct net_connector *c, struct pollfd *out)
{
    *out = (struct pollfd){.fd = c->fd,
                           .events = c->connected ? net_handshake_events(&c->handshake) : POLLOUT};
    return net_milliseconds(c->fd < 0 && c->again_ns < c->end_ns ? c->again_ns : c->end_ns, 1000);
}

alnico_status_t net_connector_run(struct net_connector *c, int *fd)
{
    alnico_status_t status;
    while ((status = net_connector_step(c, fd)) == ALNICO_PENDING) {
        struct pollfd ready;
        int ms = net_connector_poll(c, &ready);
        poll(&ready, 1, ms);
    }
    return status;
}
