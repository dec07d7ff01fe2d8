/* Replaces a file as a whole: a temporary file beside it takes its place when all of it is on the
 * disk. Until then, and if anything fails, what stood there stays as it was. Any thread. */
#ifndef ALNICO_BASE_REPLACE_H
#define ALNICO_BASE_REPLACE_H

#include <alnico/alnico.h>

#include <limits.h>
#include <stdio.h>

/* Kinds of files that may stand at a path: regular ones only, or also a pipe or device, which is
 * written to directly. */
enum replacement_kind { REPLACEMENT_REGULAR, REPLACEMENT_ANY };

struct replacement {
    FILE *file;                               /* to write to */
    char path[PATH_MAX], temporary[PATH_MAX]; /* temporary "": `file` is the target itself */
};

/* Opens a temporary file of a name that is not taken and that nobody can foresee. Symbolic links of
 * the path are followed, also to what is not there yet. A new file is its owner's only (mode 0600
 * less the umask); one that is there already keeps its mode, but for writing by others. Errors:
 * SYSTEM, naming the path and what failed; MEMORY. */
alnico_status_t replacement_begin(const char *path, enum replacement_kind kind,
                                  struct replacement *out);

/* Puts the file in its place and closes it. Whoever wrote to it need not look for errors: any of
 * them is found here. Errors: as above; the temporary file is gone. */
alnico_status_t replacement_finish(struct replacement *replacement);

/* Whether replacement_begin could be called, without a trace. Errors: as above. */
alnico_status_t replacement_try(const char *path, enum replacement_kind kind);

/* Both, for a text and the end of its last line. Errors: as above. */
alnico_status_t replacement_text(const char *path, enum replacement_kind kind, const char *text);

#endif
