/* Scenes of a test that each have a process of their own, since ranks die in them; several play at
 * once. From one thread. */
#ifndef ALNICO_TESTS_SUPPORT_STAGE_H
#define ALNICO_TESTS_SUPPORT_STAGE_H

#include <stddef.h>

enum { STAGE_SLOTS = 4 };

/* What plays, from a copy of the scene; a scene that fails ends its process with another status than 0.
 * No other that plays meanwhile has the slot. */
struct stage_act {
    void (*play)(void *scene, int slot);
    int at_once; /* at most STAGE_SLOTS */
};

/* Starts a scene when one of the slots is free. */
void stage_play(const struct stage_act *act, const void *scene, size_t bytes);

/* Waits for all scenes: how many have failed since the last call. */
int stage_end(void);

#endif
