/* A collective as the public call described it. */
#ifndef ALNICO_SRC_CALL_H
#define ALNICO_SRC_CALL_H

#include <alnico/alnico.h>

/* Checked: the arguments are valid, and send == recv where it is in place. */
struct call {
    alnico_collective_t collective;
    const void *send;
    void *recv;
    size_t count;
    alnico_datatype_t type;
    alnico_op_t op;
};

#endif
