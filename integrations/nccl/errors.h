/*
 * Errors in NCCL's way: a result, and a text for ncclGetLastError. The text is the calling thread's; of an
 * error of a communicator it also stays with that, since programs ask from another thread. With NCCL_DEBUG
 * set it goes to stderr, too. Any thread.
 */
#ifndef ALNICO_INTEGRATIONS_NCCL_ERRORS_H
#define ALNICO_INTEGRATIONS_NCCL_ERRORS_H

#include <alnico/alnico.h>

#include <nccl.h>

enum { DETAIL_BYTES = 512 };

/* The entry point that this thread is in, with which its details begin. */
void entry_begin(const char *name);
const char *entry_name(void);

/* Returns `result`, for which the text is the detail. */
ncclResult_t fail(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The thread's latest detail. */
const char *fail_detail(void);

/* The thread's detail becomes what another thread failed with. */
void fail_repeat(const char *detail);

/* NCCL's code for what Alnico, or CUDA, returned. */
ncclResult_t result_of(alnico_status_t status);
ncclResult_t result_of_cuda(cudaError_t error);

#endif
