/* Addresses of TCP by the resolver, the routes and the list of interfaces. */
#include "comm/net/address.h"

#include "base/number.h"
#include "base/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

socklen_t net_address_to_system(const struct net_address *a, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (a->version == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)out;
        in->sin_family = AF_INET;
        in->sin_port = htons(a->port);
        memcpy(&in->sin_addr, a->bytes, sizeof in->sin_addr);
        return sizeof *in;
    }
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)out;
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(a->port);
    in->sin6_scope_id = a->scope;
    memcpy(&in->sin6_addr, a->bytes, sizeof in->sin6_addr);
    return sizeof *in;
}

void net_address_from_system(const struct sockaddr_storage *from, struct net_address *out)
{
    memset(out, 0, sizeof *out);
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;
        out->version = 4;
        out->port = ntohs(in->sin_port);
        memcpy(out->bytes, &in->sin_addr, sizeof in->sin_addr);
    } else if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)from;
        const bool mapped = IN6_IS_ADDR_V4MAPPED(&in->sin6_addr);
        out->version = mapped ? 4 : 6;
        out->port = ntohs(in->sin6_port);
        out->scope = mapped ? 0 : in->sin6_scope_id;
        memcpy(out->bytes, in->sin6_addr.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
    }
}

char *net_address_print(const struct net_address *a, char out[NET_ADDRESS_TEXT])
{
    char host[INET6_ADDRSTRLEN] = "?", scope[IF_NAMESIZE + 1] = "";
    inet_ntop(a->version == 4 ? AF_INET : AF_INET6, a->bytes, host, sizeof host);
    if (a->version == 6 && a->scope && if_indextoname(a->scope, scope + 1))
        scope[0] = '%';
    snprintf(out, NET_ADDRESS_TEXT, a->version == 6 ? "[%s%s]:%u" : "%s%s:%u", host, scope,
             a->port);
    return out;
}

/* Cuts "HOST:PORT", "[HOST]:PORT" or "HOST" in two; `port` is "" without one. */
static bool cut(const char *text, char *host, size_t bytes, const char **port)
{
    const char *end = *text == '[' ? strchr(text, ']') : strrchr(text, ':');
    const bool bracketed = *text == '[';
    if (bracketed && !end)
        return false;
    if (!bracketed && (!end || strchr(text, ':') != end)) /* none, or IPv6 without brackets */
        end = text + strlen(text);
    const char *first = text + bracketed, *rest = end + bracketed;
    if (end <= first || (size_t)(end - first) >= bytes || (*rest && *rest != ':'))
        return false;
    memcpy(host, first, (size_t)(end - first));
    host[end - first] = '\0';
    *port = *rest ? rest + 1 : "";
    return true;
}

alnico_status_t net_address_parse(const char *text, uint16_t port, struct net_address *out)
{
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char host[256];
    const char *digits;
    uint64_t number = port;
    if (!cut(text, host, sizeof host, &digits))
        return error_set(ALNICO_ERROR_ARGUMENT, "'%s' is no HOST:PORT or [IPV6]:PORT", text);
    if (*digits && !number_whole(digits, 1, UINT16_MAX, &number))
        return error_set(ALNICO_ERROR_ARGUMENT, "'%s': the port is not 1 to 65535", text);
    int error = getaddrinfo(host, NULL, &wanted, &found);
    if (error)
        return error_set(ALNICO_ERROR_ARGUMENT, "'%s': %s", text,
                         error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    struct sockaddr_storage address = {0};
    memcpy(&address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    net_address_from_system(&address, out);
    out->port = (uint16_t)number;
    return ALNICO_SUCCESS;
}

/* The address that packets to `toward` leave from; none is sent. */
static bool find_route(const struct net_address *toward, struct net_address *out)
{
    struct sockaddr_storage address;
    struct net_address to = *toward;
    to.port = 9;
    socklen_t bytes = net_address_to_system(&to, &address);
    int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && connect(fd, (struct sockaddr *)&address, bytes) == 0;
    bytes = sizeof address;
    found = found && getsockname(fd, (struct sockaddr *)&address, &bytes) == 0;
    if (fd >= 0)
        close(fd);
    if (found)
        net_address_from_system(&address, out);
    out->port = 0;
    return found;
}

static bool is_link_local(const struct net_address *a)
{
    return a->version == 6 && a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80;
}

static bool same_host(const struct net_address *a, const struct net_address *b)
{
    return a->version == b->version && memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* How well an address of an interface suits; 0: not at all. The version of `toward` counts most. */
static int rate(const struct ifaddrs *i, const char *interface, const struct net_address *asked,
                const struct net_address *toward, struct net_address *address)
{
    address->version = 0;
    if (i->ifa_addr && (i->ifa_flags & IFF_UP)) {
        struct sockaddr_storage system = {0};
        size_t bytes = i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                         : sizeof(struct sockaddr_in6);
        if (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6)
            memcpy(&system, i->ifa_addr, bytes);
        net_address_from_system(&system, address);
    }
    if (!address->version ||
        (*interface ? strcmp(i->ifa_name, interface) != 0 && !same_host(address, asked)
                    : (i->ifa_flags & IFF_LOOPBACK) || is_link_local(address)))
        return 0;
    return 1 + 4 * (toward && toward->version == address->version) + 2 * !is_link_local(address) +
           (address->version == 4);
}

static bool find_interface(const char *interface, const struct net_address *toward,
                           struct net_address *out, char *names, size_t bytes)
{
    struct ifaddrs *all = NULL;
    struct net_address address, asked = {0};
    int best = 0;
    asked.version = inet_pton(AF_INET, interface, asked.bytes) == 1    ? 4
                    : inet_pton(AF_INET6, interface, asked.bytes) == 1 ? 6
                                                                       : 0;
    *names = '\0';
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        int rated = rate(i, interface, &asked, toward, &address);
        if (rated > best)
            *out = address;
        best = rated > best ? rated : best;
        size_t used = strlen(names);
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_PACKET)
            snprintf(names + used, bytes - used, "%s%s", used ? ", " : "", i->ifa_name);
    }
    freeifaddrs(all);
    return best > 0;
}

/* Addresses reserved for documentation (RFC 5737, RFC 3849): they route as anything far away. */
static const struct net_address anywhere[] = {
    {.version = 4, .bytes = {192, 0, 2, 1}},
    {.version = 6, .bytes = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}},
};

alnico_status_t net_address_own(const char *interface, const struct net_address *toward,
                                struct net_address *out)
{
    char names[256];
    if (!*interface && toward && find_route(toward, out))
        return ALNICO_SUCCESS;
    for (int i = 0; !*interface && !toward && i < 2; i++)
        if (find_route(&anywhere[i], out))
            return ALNICO_SUCCESS;
    bool found = find_interface(interface, toward, out, names, sizeof names);
    if (!found && *interface)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "no interface or address '%s' that is up; there are %s", interface, names);
    if (!found)
        *out = (struct net_address){.version = 4, .bytes = {127, 0, 0, 1}};
    return ALNICO_SUCCESS;
}
