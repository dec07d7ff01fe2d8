/* Phases of a training step. A step may be without some, and have others several times. */
#ifndef ALNICO_TRAIN_BASE_PHASE_H
#define ALNICO_TRAIN_BASE_PHASE_H

enum phase {
    PHASE_IO,   /* the stream waits for a batch of the loader's */
    PHASE_COPY, /* of the batch to the device */
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_HALO,          /* of boxes and sums of a split network, as far as it is exposed */
    PHASE_COMMUNICATION, /* of gradients, as far as it is exposed */
    PHASE_AVERAGE,       /* a parameter server's arithmetic */
    PHASE_UPDATE,
    PHASE_WEIGHTS, /* exposed communication of weights */
    PHASES
};

#endif
