/* Failures, the launcher, the machine and JSON files, for all programs. Main thread only. */
#ifndef ALNICO_TOOLS_COMMON_PROGRAM_H
#define ALNICO_TOOLS_COMMON_PROGRAM_H

#include <alnico/alnico.h>
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

enum { EXIT_USAGE = 2 };

/* Begins every program: failing writes are errors, not signals, and a program that cannot write all
 * of its standard output says so at its end and exits with 1. */
void program_start(void);

/* Prints "PROGRAM: text" to stderr and ends this rank with exit status 1: launchers end the others. */
_Noreturn void program_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What program_fail calls at its end, with the exit status. */
void program_on_failure(void (*function)(int status));

/* For a command line that all ranks know to be wrong, after program_ranks_open: rank 0 prints "PROGRAM:
 * text", and every rank ends with EXIT_USAGE. */
_Noreturn void program_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Collective, where ranks may find different things wrong: NULL is nothing. Rank 0 prints "PROGRAM: text"
 * of the first rank that found something, and every rank ends with exit status 1. */
void program_fail_together(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Fails with the status and the library's detail unless `status` is ALNICO_SUCCESS; `what` is the
 * call. */
void program_check(alnico_status_t status, const char *what);

/* Whether a launcher started this process, by its environment, and the rank that it gave; 0 without.
 * Before program_ranks_open, too. */
bool program_launched(void);
int program_launch_rank(void);

/* Silences stdout and stderr, so that one rank only prints a usage error or help; the returned
 * token undoes it. A rank below 1 is not silenced. */
struct program_streams {
    int out, err;
};
struct program_streams program_silence(int rank);
void program_restore(struct program_streams streams);

/* {"host", "cpu", "cores", ...}: the machine that this rank runs on. The caller deletes it. */
cJSON *program_machine(void);

const char *program_cpu_name(void);
double seconds_now(void);                     /* on a steady clock */
int program_threads(void);                    /* that this process has now */
const char *program_date(void);               /* now, as 2026-01-31T12:00:00Z */
char *program_command(int argc, char **argv); /* as one text, which the caller frees */

/* Adds values to an object and returns it: "KEY %CONVERSION" for each, with spaces between them.
 * %s: a text; %d, %zu and %g: a number, int, size_t or double; %hhd: true or false. */
cJSON *json_add(cJSON *object, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An empty object at the end of an array. */
cJSON *json_row(cJSON *array);

/* --json: looks before the work begins whether the file can be written, and at the end writes the
 * object into it and deletes it; both fail the program if they cannot. What is there stays until
 * then; a pipe or device is written to directly. No path: nothing is written. */
void program_json_try(const char *path);
void program_json_write(const char *path, cJSON *object);

#endif
