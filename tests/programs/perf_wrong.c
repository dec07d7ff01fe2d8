/* alnico-perf with a library that spoils a long result on one rank, the root's where it alone has
 * one: a bit of the last but one element, or with PERF_WRONG=behind the first byte behind the
 * result, which is a whole buffer's where a rank has no result. Linked with its objects, and
 * --wrap=perf_call_ours. */
#include "base/datatype.h"
#include "tools/perf/operations.h"

#include <stdlib.h>

enum { LONG = 600 }; /* elements, which 2 KB of int32 do not have and 8 KB do */

perf_call __real_perf_call_ours, __wrap_perf_call_ours;

alnico_status_t __wrap_perf_call_ours(const struct perf_job *job, alnico_request_t *request)
{
    alnico_status_t status = __real_perf_call_ours(job, request);
    size_t element = datatype_bytes(job->type), count = job_result_count(job);
    unsigned char *bytes = job->recv;
    if (getenv("PERF_WRONG")) {
        if (job->rank == job->ranks - 1)
            bytes[count * element] ^= 1;
    } else if (count >= LONG &&
               (job->rank == job->ranks - 1 || collectives[job->operation->collective].rooted)) {
        bytes[(count - 2) * element] ^= 1;
    }
    return status;
}
