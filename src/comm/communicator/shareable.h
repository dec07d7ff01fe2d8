/* Memory of this process that ranks may share without a collective call: of alnico_memory_allocate, and what
 * alnico_comm_register_local has registered. Each has a number that no other of this host's process ever
 * has, so that memory at an address that was used before is another one. Any thread. */
#ifndef ALNICO_COMM_COMMUNICATOR_SHAREABLE_H
#define ALNICO_COMM_COMMUNICATOR_SHAREABLE_H

#include <alnico/alnico.h>

#include <stdbool.h>
#include <stdint.h>

struct shareable {
    struct shareable *next;
    alnico_comm_t comm; /* for which it is; NULL: for all of its device */
    alnico_device_t device;
    char *base;
    size_t bytes;
    uint64_t number; /* from 1 */
};

/* Whoever keeps something about such memory. `gone` is called when it is removed, with a lock that
 * every call here takes. */
struct shareable_keeper {
    struct shareable_keeper *next;
    void (*gone)(struct shareable_keeper *keeper, uint64_t number);
};

/* Adds it; the number is set here. Errors: MEMORY. */
alnico_status_t shareable_add(const struct shareable *memory, struct shareable **out);

/* The newest one of the communicator that holds all of the bytes, as it is now; false: none. */
bool shareable_find(const struct alnico_comm *comm, const void *memory, size_t bytes,
                    struct shareable *out);

/* Any such memory in this process? Cheap enough for every call. */
bool shareable_some(void);

/* Removes one of the communicator (false: it has none such), all of its, and that of
 * alnico_memory_allocate at an address. */
bool shareable_remove(const struct alnico_comm *comm, const struct shareable *memory);
void shareable_remove_all(const struct alnico_comm *comm);
void shareable_remove_at(alnico_device_t device, const void *base);

void shareable_keep(struct shareable_keeper *keeper);
void shareable_keep_no_more(struct shareable_keeper *keeper);

/* Holds the lock: what a keeper reads in `gone` changes in between only. */
void shareable_lock(void);
void shareable_unlock(void);

#endif
