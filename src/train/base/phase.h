/* Phases of a training step, in the order in which they end. A step may be without some. */
#ifndef ALNICO_TRAIN_BASE_PHASE_H
#define ALNICO_TRAIN_BASE_PHASE_H

enum phase {
    PHASE_INPUT,
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_COMMUNICATION, /* of gradients, as far as it is exposed */
    PHASE_AVERAGE,       /* a parameter server's arithmetic */
    PHASE_UPDATE,
    PHASE_WEIGHTS, /* exposed communication of weights */
    PHASES
};

#endif
