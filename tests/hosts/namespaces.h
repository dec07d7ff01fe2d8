/* Hosts that tests/hosts/hosts makes, and ranks on them. */
#ifndef ALNICO_TESTS_HOSTS_NAMESPACES_H
#define ALNICO_TESTS_HOSTS_NAMESPACES_H

#include <stdbool.h>

enum { NAMESPACES_SKIPPED = 77 }; /* the script's exit status where there can be none */

/* What the script is told; its exit status. */
int namespaces_script(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Moves this process to a host; its communicators have that deadline. */
void namespaces_enter(const char *name, int host, double timeout);

/* A socket by which namespaces_plug works at once, from whichever host. */
int namespaces_switch(const char *name);

/* Pulls a host's cable out, or plugs it in, which takes the kernel up to a second. Whether it was in. */
bool namespaces_plug(int switch_socket, int host, bool in);

#endif
