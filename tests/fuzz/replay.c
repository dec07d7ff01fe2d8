/* Runs a fuzz target without libFuzzer: over every file of the folders that are named, and over its
 * prefixes. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16, PREFIXES = 200 };

/* In memory of exactly that size, so that reading past it is seen. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    if (size)
        memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void replay_file(const char *path)
{
    static uint8_t data[MOST];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    printf("%s, %zu bytes\n", path, size);
    fflush(stdout);
    for (size_t prefix = 0; prefix < size; prefix += 1 + size / PREFIXES)
        run(data, prefix);
    run(data, size);
}

static int replay_folder(const char *folder)
{
    int files = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;) {
        char path[1024];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        replay_file(path);
        files++;
    }
    if (entries)
        closedir(entries);
    return files;
}

int main(int argc, char **argv)
{
    int files = 0;
    for (int i = 1; i < argc; i++)
        files += replay_folder(argv[i]);
    if (files == 0) {
        fprintf(stderr, "replay: no inputs\n");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
