/* The algorithms of the composed backend, which are names only, and its slots. */
#ifndef ALNICO_COMM_BACKENDS_COMPOSED_COMPOSED_H
#define ALNICO_COMM_BACKENDS_COMPOSED_COMPOSED_H

#include "comm/backends/backend.h"

extern const struct algorithm composed_allreduce, composed_messages;
extern const struct backend_ops composed_ops;

#endif
