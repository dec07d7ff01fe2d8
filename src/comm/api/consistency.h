/* Checks of ALNICO_CHECK, before a collective begins: all ranks compare what they call. On the
 * caller's thread. */
#ifndef ALNICO_COMM_API_CONSISTENCY_H
#define ALNICO_COMM_API_CONSISTENCY_H

#include "comm/call.h"

/* The blocks that this rank is to write do not overlap. */
alnico_status_t call_check_blocks(alnico_comm_t comm, const struct call *call, const char *who);

/* Whether the counts of a vector form that all ranks call fit each other (collective). */
alnico_status_t call_compare_counts(alnico_comm_t comm, const struct call *call, const char *who);

/* Compares a call, and `mine`, how its arguments were found, with those of all ranks (collective; it
 * waits for them). `mine` if that is an error, and `call` may then be NULL; the first error of
 * another rank, with its reason; MISMATCH, with what differs. */
alnico_status_t call_compare(alnico_comm_t comm, const struct call *call, bool nonblocking,
                             alnico_status_t mine, const char *who);

#endif
