/* A switch with delay, where the kernel has no netem: gives every host of tests/hosts/hosts a TUN interface
 * eth0 and hands each IPv4 packet to the host of its address, a fixed time after it came. One thread.
 *
 * Usage: hosts_delay_switch NAME COUNT MICROSECONDS
 * Prints a line when the interfaces are there, without addresses. Runs until it is killed. Needs root. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>

enum {
    HOSTS_MOST = 64,
    PACKET_MOST = 9000,
    READS = 64,              /* packets of one host in a row */
    QUEUE_BYTES = 256 << 20, /* more is dropped */
    ADDRESS_END = 19         /* the last byte of an IPv4 packet's destination */
};

struct packet {
    struct packet *next;
    int64_t due_ns;
    int to;
    size_t bytes;
    char data[];
};

struct delay_switch {
    struct pollfd hosts[HOSTS_MOST];
    int count;
    int64_t delay_ns;
    struct packet *first, **end;
    size_t queued; /* bytes */
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1000000000 * (int64_t)t.tv_sec + t.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "hosts_delay_switch: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

static void enter(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
        fail(path);
    close(fd);
}

static int open_interface(const char *name, int host)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s-%d", name, host);
    enter(path);
    strcpy(request.ifr_name, "eth0");
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0)
        fail("/dev/net/tun");
    return fd;
}

/* Queues a packet, or drops it: not for a host here, or too much waits. */
static void queue(struct delay_switch *s, const unsigned char *data, size_t bytes)
{
    int to = bytes > ADDRESS_END && data[0] >> 4 == 4 ? data[ADDRESS_END] - 1 : -1;
    if (to < 0 || to >= s->count || s->queued + bytes > QUEUE_BYTES)
        return;
    struct packet *packet = malloc(sizeof *packet + bytes);
    if (!packet)
        return;
    *packet = (struct packet){.due_ns = now_ns() + s->delay_ns, .to = to, .bytes = bytes};
    memcpy(packet->data, data, bytes);
    *s->end = packet;
    s->end = &packet->next;
    s->queued += bytes;
}

static void read_host(struct delay_switch *s, int fd)
{
    unsigned char data[PACKET_MOST];
    for (int i = 0; i < READS; i++) {
        ssize_t n = read(fd, data, sizeof data);
        if (n <= 0)
            return;
        queue(s, data, (size_t)n);
    }
}

/* Hands over what is due; an interface that is down takes nothing. */
static void deliver(struct delay_switch *s)
{
    int64_t now = now_ns();
    while (s->first && s->first->due_ns <= now) {
        struct packet *packet = s->first;
        ssize_t n = write(s->hosts[packet->to].fd, packet->data, packet->bytes);
        (void)n;
        s->queued -= packet->bytes;
        s->first = packet->next;
        if (!s->first)
            s->end = &s->first;
        free(packet);
    }
}

static void run(struct delay_switch *s)
{
    for (;;) {
        int64_t left = s->first ? s->first->due_ns - now_ns() : 1000000000;
        struct timespec wait = {left > 0 ? left / 1000000000 : 0, left > 0 ? left % 1000000000 : 0};
        if (ppoll(s->hosts, (nfds_t)s->count, &wait, NULL) < 0 && errno != EINTR)
            fail("ppoll");
        for (int i = 0; i < s->count; i++)
            if (s->hosts[i].revents & POLLIN)
                read_host(s, s->hosts[i].fd);
        deliver(s);
    }
}

int main(int argc, char **argv)
{
    struct delay_switch s = {.count = argc == 4 ? atoi(argv[2]) : 0};
    s.delay_ns = argc == 4 ? 1000 * (int64_t)atoi(argv[3]) : -1;
    s.end = &s.first;
    if (s.count < 1 || s.count > HOSTS_MOST || s.delay_ns < 0) {
        fprintf(stderr, "usage: hosts_delay_switch NAME COUNT MICROSECONDS\n");
        return 2;
    }
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < s.count; i++)
        s.hosts[i] = (struct pollfd){.fd = open_interface(argv[1], i), .events = POLLIN};
    if (home < 0 || setns(home, CLONE_NEWNET) != 0)
        fail("/proc/self/ns/net");
    printf("ready\n");
    fflush(stdout);
    run(&s);
}
