/* Ranks as threads of one process, without MPI: the bootstrap callback is an allgather through
 * shared memory between two barriers. */
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */
#include <alnico/alnico.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, MESSAGE_BYTES = 1 << 16 };

struct meeting {
    pthread_barrier_t barrier;
    char board[RANKS][MESSAGE_BYTES];
};

struct participant {
    struct meeting *meeting;
    int rank;
    float result;
    pthread_t thread;
};

static int allgather(void *context, const void *mine, void *all, size_t bytes)
{
    struct participant *self = context;
    struct meeting *meeting = self->meeting;
    if (bytes > MESSAGE_BYTES)
        return 1;
    memcpy(meeting->board[self->rank], mine, bytes);
    pthread_barrier_wait(&meeting->barrier);
    for (size_t rank = 0; rank < RANKS; rank++)
        memcpy((char *)all + rank * bytes, meeting->board[rank], bytes);
    pthread_barrier_wait(&meeting->barrier);
    return 0;
}

static void check(alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", alnico_status_string(status), alnico_error_detail());
    exit(EXIT_FAILURE);
}

static void *participate(void *argument)
{
    struct participant *self = argument;
    alnico_bootstrap_t bootstrap = {self->rank, RANKS, allgather, self};
    alnico_comm_t comm;
    check(alnico_comm_create(&bootstrap, ALNICO_DEVICE_CPU, NULL, &comm));
    float mine = (float)(self->rank + 1);
    check(alnico_allreduce(&mine, &self->result, 1, ALNICO_FLOAT32, ALNICO_SUM, comm));
    alnico_comm_destroy(comm);
    return NULL;
}

int main(void)
{
    static struct meeting meeting;
    struct participant participants[RANKS];
    pthread_barrier_init(&meeting.barrier, NULL, RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        participants[rank] = (struct participant){.meeting = &meeting, .rank = rank};
        if (pthread_create(&participants[rank].thread, NULL, participate, &participants[rank]))
            return EXIT_FAILURE;
    }
    bool right = true;
    for (int rank = 0; rank < RANKS; rank++) {
        pthread_join(participants[rank].thread, NULL);
        printf("rank %d: %g\n", rank, participants[rank].result);
        right &= participants[rank].result == RANKS * (RANKS + 1) / 2;
    }
    pthread_barrier_destroy(&meeting.barrier);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
