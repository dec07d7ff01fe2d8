/*
 * Our entry points: ours_X stands behind ncclX. Errors are NCCL's own, with a detail. The communicator that
 * one is called on is held for it by the table of all (ours.c).
 */
#ifndef ALNICO_INTEGRATIONS_NCCL_OURS_H
#define ALNICO_INTEGRATIONS_NCCL_OURS_H

#include "integrations/nccl/entries.h"

#define DECLARE(name, parameters, arguments) ncclResult_t ours_##name parameters;
ENTRIES(DECLARE)
#undef DECLARE

#endif
