/* Settings: rank 0's environment decides for all ranks of a communicator. Read on the caller's thread,
 * when one is made. */
#ifndef ALNICO_COMM_TUNING_SETTINGS_H
#define ALNICO_COMM_TUNING_SETTINGS_H

#include "comm/transports/transport.h"
#include "comm/tuning/tuning.h"

/* Whether messages may be of a GPU's memory: where the transport says that it takes it, or as the user
 * says. */
enum aware { AWARE_AUTO, AWARE_NEVER, AWARE_ALWAYS };

/* Plain bytes, sent to all ranks when a communicator is created. */
struct settings {
    double timeout;     /* ALNICO_TIMEOUT, seconds */
    size_t chunk_bytes; /* ALNICO_CHUNK; 0: by the table */
    bool check;         /* ALNICO_CHECK */
    bool over_mpi;      /* ALNICO_TRANSPORT=mpi */
    bool over_tcp;      /* ALNICO_TRANSPORT=tcp */
    enum aware aware;   /* ALNICO_CUDA_AWARE */
    char algorithm[COLLECTIVES]
                  [ALGORITHM_NAME_BYTES]; /* ALNICO_ALLREDUCE and the others; "": by the table */
    int tuning_rows;                      /* rows of ALNICO_TUNING's file; 0: none */
    alnico_status_t status;               /* how reading went, with a detail */
    char detail[320];
};

/* All but the tuning file. */
void settings_read(struct settings *out);

/* The deadline of this rank's own environment, in seconds, until the ranks know rank 0's settings. */
double settings_own_timeout(void);

/* Of this rank's own environment: which interface TCP takes, and how many connections. */
struct tcp_options settings_tcp(void);

/* Reads ALNICO_TUNING's file, if it names one, and counts its rows in `s`. An error becomes the
 * settings', unless they have one. */
void settings_read_tuning(struct settings *s, struct tuning *out);

#endif
