/* Folders of JPEG files that look as photographs do, for what measures reading them: written to a
 * folder of their own in the layout of the source folder. A failure ends the program. Main thread. */
#ifndef ALNICO_BENCHMARKS_JPEG_FILES_H
#define ALNICO_BENCHMARKS_JPEG_FILES_H

#include <stddef.h>

enum { JPEG_FILES_CLASSES = 10, JPEG_FILES_ROOT = 512, JPEG_FILES_PATH = JPEG_FILES_ROOT + 64 };

struct jpeg_files {
    char root[JPEG_FILES_ROOT]; /* is made */
    size_t count, height, width;
};

/* The n-th file: root/train/classC/N.jpg. */
void jpeg_files_path(const struct jpeg_files *files, size_t n, char out[JPEG_FILES_PATH]);

/* Writes all of them, by some threads. */
void jpeg_files_make(const struct jpeg_files *files, int threads);

/* Writes a file's pages, or those of all, to the disk and gives them back. */
void file_cool(const char *path);
void jpeg_files_cool(const struct jpeg_files *files);

/* Ends the program with what errno says of the path. */
void fail_errno(const char *path);

/* Makes a folder in `parent` with a name of its own, and removes one with all that is in it. */
void folder_make(const char *parent, char out[JPEG_FILES_ROOT]);
void folder_remove(const char *path);

#endif
