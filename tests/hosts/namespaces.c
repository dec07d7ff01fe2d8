/* Network namespaces by name, as ip(8) keeps them in /run/netns. */
#include "tests/hosts/namespaces.h"

#include "tests/support/ranks.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

int namespaces_script(const char *format, ...)
{
    char command[512];
    va_list arguments;
    int length = snprintf(command, sizeof command, "%s ", HOSTS_SCRIPT);
    va_start(arguments, format);
    vsnprintf(command + length, sizeof command - (size_t)length, format, arguments);
    va_end(arguments);
    int status = system(command);
    return status < 0 || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
}

static void enter(const char *name, const char *host)
{
    char path[80];
    snprintf(path, sizeof path, "/run/netns/%s-%s", name, host);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && setns(fd, CLONE_NEWNET) == 0);
    close(fd);
}

void namespaces_enter(const char *name, int host, double timeout)
{
    char number[16], text[64];
    snprintf(number, sizeof number, "%d", host);
    enter(name, number);
    snprintf(text, sizeof text, "%s-%d", name, host);
    REQUIRE(unshare(CLONE_NEWUTS) == 0 && sethostname(text, strlen(text)) == 0);
    snprintf(text, sizeof text, "%g", timeout);
    REQUIRE(setenv("ALNICO_TIMEOUT", text, 1) == 0);
}

/* A socket stays in the namespace in which it was made. */
int namespaces_switch(const char *name)
{
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    enter(name, "switch");
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    REQUIRE(home >= 0 && fd >= 0 && setns(home, CLONE_NEWNET) == 0);
    close(home);
    return fd;
}

bool namespaces_plug(int switch_socket, int host, bool in)
{
    struct ifreq port = {0};
    snprintf(port.ifr_name, sizeof port.ifr_name, "port%d", host);
    REQUIRE(ioctl(switch_socket, SIOCGIFFLAGS, &port) == 0);
    bool was_in = port.ifr_flags & IFF_UP;
    port.ifr_flags = (short)(in ? port.ifr_flags | IFF_UP : port.ifr_flags & ~IFF_UP);
    REQUIRE(ioctl(switch_socket, SIOCSIFFLAGS, &port) == 0);
    return was_in;
}
