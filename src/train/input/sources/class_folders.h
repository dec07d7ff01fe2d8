/* A folder of class folders of image files, listed: sorted by the bytes of names, so that every rank
 * numbers classes and images alike. Opened by the source folder; then any thread. */
#ifndef ALNICO_TRAIN_INPUT_SOURCES_CLASS_FOLDERS_H
#define ALNICO_TRAIN_INPUT_SOURCES_CLASS_FOLDERS_H

#include <alnico/alnico.h>

#include <stdint.h>

enum { CLASS_FOLDERS_PATH = 1024 };

/* Names one behind the other. */
struct names {
    char *text;
    size_t *at; /* in text */
    size_t length, count;
};

struct class_folders {
    char path[CLASS_FOLDERS_PATH];
    struct names classes, files;
    size_t *first;   /* file of each class, and behind them their number */
    int32_t *labels; /* of each class */
};

/* Lists files whose names end in .jpg, .jpeg or .png, in either case; hidden folders are left out.
 * Errors: ARGUMENT, for a folder that is not there, has no class folders, or one without images;
 * SYSTEM; MEMORY. On an error *out is empty. */
alnico_status_t class_folders_list(const char *path, struct class_folders *out);
void class_folders_free(struct class_folders *folders);

/* Gives the classes the labels of those of the same name in `reference`. ARGUMENT, naming one that is
 * not there. */
alnico_status_t class_folders_label(struct class_folders *folders,
                                    const struct class_folders *reference);

/* Writes the path of a file, and returns its label. */
int32_t class_folders_file(const struct class_folders *folders, size_t index,
                           char path[CLASS_FOLDERS_PATH]);

#endif
