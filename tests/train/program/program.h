/* Runs of alnico-train as a whole, for the tests of the program. */
#ifndef ALNICO_TESTS_TRAIN_PROGRAM_H
#define ALNICO_TESTS_TRAIN_PROGRAM_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <sys/types.h>

/* From the test's arguments: the program, mpiexec, and its option for the number of ranks. */
extern const char *program, *mpiexec, *option;

/* What the last run printed; where a run's report may go. */
extern char output[1 << 16], json_path[64];

/* false: the arguments are not those. */
bool program_arguments(int argc, char **argv);

/* Runs the program on `ranks` ranks (0: without mpiexec) and returns its exit status. */
int run(int ranks, const char *arguments);

/* Fails the test unless the run ends with the status and prints the text. */
void expect(int ranks, const char *arguments, int status, const char *text);

/* Begins a run that goes on beside the test; waits for its end, and fails the test with what it
 * printed unless it ends with the exit status, or by a signal: -1. */
pid_t program_begin(int ranks, const char *arguments);
void program_end(pid_t process, int status);

/* The report at json_path, which the caller deletes; its parts, without which the test fails. */
cJSON *report_read(void);
double number(const cJSON *object, const char *name);
const cJSON *object(const cJSON *report, const char *name);

#endif
