/* Listing class folders. See class_folders.h. */
#include "train/input/sources/class_folders.h"

#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const char *name_of(const struct names *names, size_t i)
{
    return names->text + names->at[i];
}

static void names_free(struct names *names)
{
    free(names->text);
    free(names->at);
    *names = (struct names){0};
}

/* Room for one more: memory doubles whenever a size is a power of two. */
static bool room_make(void **memory, size_t used, size_t more, size_t element)
{
    size_t room = 64;
    while (room < used)
        room *= 2;
    if (*memory && used + more <= room)
        return true;
    while (room < used + more)
        room *= 2;
    void *grown = realloc(*memory, room * element);
    *memory = grown ? grown : *memory;
    return grown;
}

static alnico_status_t names_add(struct names *names, const char *name)
{
    const size_t bytes = strlen(name) + 1;
    void *text = names->text, *at = names->at;
    const bool enough = room_make(&text, names->length, bytes, 1);
    names->text = text;
    if (!enough || !room_make(&at, names->count, 1, sizeof *names->at))
        return error_set(ALNICO_ERROR_MEMORY, "no memory for %zu names of files", names->count);
    names->at = at;
    names->at[names->count++] = names->length;
    memcpy(names->text + names->length, name, bytes);
    names->length += bytes;
    return ALNICO_SUCCESS;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int is_image(const struct dirent *entry)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(entry->d_name, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (strcasecmp(dot, endings[i]) == 0)
            return is_visible(entry);
    return 0;
}

static alnico_status_t path_join(const char *folder, const char *name, char *out)
{
    const int length = snprintf(out, CLASS_FOLDERS_PATH, "%s/%s", folder, name);
    if (length >= 0 && length < CLASS_FOLDERS_PATH)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "%.100s...: a path longer than %d bytes", folder,
                     CLASS_FOLDERS_PATH - 1);
}

/* Appends the entries of a folder that `takes` says, or of them only the folders. */
static alnico_status_t names_list(const char *folder, int (*takes)(const struct dirent *),
                                  bool folders, struct names *out)
{
    struct dirent **entries;
    alnico_status_t status = ALNICO_SUCCESS;
    const int count = scandir(folder, &entries, takes, by_name);
    if (count < 0)
        return error_set(errno == ENOENT || errno == ENOTDIR ? ALNICO_ERROR_ARGUMENT
                                                             : ALNICO_ERROR_SYSTEM,
                         "%s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        char path[CLASS_FOLDERS_PATH];
        struct stat about;
        if (status == ALNICO_SUCCESS)
            status = path_join(folder, entries[i]->d_name, path);
        if (status == ALNICO_SUCCESS &&
            (!folders || (stat(path, &about) == 0 && S_ISDIR(about.st_mode))))
            status = names_add(out, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static alnico_status_t list_class(struct class_folders *out, size_t class)
{
    char path[CLASS_FOLDERS_PATH];
    TRY(path_join(out->path, name_of(&out->classes, class), path));
    out->first[class] = out->files.count;
    out->labels[class] = (int32_t) class;
    TRY(names_list(path, is_image, false, &out->files));
    if (out->files.count > out->first[class])
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "%s: no image in it, expected .jpg, .jpeg or .png",
                     path);
}

static alnico_status_t list_all(struct class_folders *out)
{
    TRY(names_list(out->path, is_visible, true, &out->classes));
    if (!out->classes.count)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: no class folder in it", out->path);
    out->first = calloc(out->classes.count + 1, sizeof *out->first);
    out->labels = calloc(out->classes.count, sizeof *out->labels);
    if (!out->first || !out->labels)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for %zu classes", out->classes.count);
    for (size_t class = 0; class < out->classes.count; class ++)
        TRY(list_class(out, class));
    out->first[out->classes.count] = out->files.count;
    return ALNICO_SUCCESS;
}

alnico_status_t class_folders_list(const char *path, struct class_folders *out)
{
    *out = (struct class_folders){.path = ""};
    const int length = snprintf(out->path, sizeof out->path, "%s", path);
    if (length < 0 || (size_t)length >= sizeof out->path)
        return error_set(ALNICO_ERROR_ARGUMENT, "%.100s...: a path longer than %zu bytes", path,
                         sizeof out->path - 1);
    const alnico_status_t status = list_all(out);
    if (status != ALNICO_SUCCESS)
        class_folders_free(out);
    return status;
}

void class_folders_free(struct class_folders *folders)
{
    names_free(&folders->classes);
    names_free(&folders->files);
    free(folders->first);
    free(folders->labels);
    *folders = (struct class_folders){.path = ""};
}

/* The class of that name; their number: none. */
static size_t class_find(const struct class_folders *folders, const char *name)
{
    size_t class = 0;
    while (class < folders->classes.count && strcmp(name_of(&folders->classes, class), name) != 0)
        class ++;
    return class;
}

alnico_status_t class_folders_label(struct class_folders *folders,
                                    const struct class_folders *reference)
{
    for (size_t i = 0; i < folders->classes.count; i++) {
        const char *name = name_of(&folders->classes, i);
        const size_t class = class_find(reference, name);
        if (class == reference->classes.count)
            return error_set(ALNICO_ERROR_ARGUMENT, "%s/%s: there is no such class in %s",
                             folders->path, name, reference->path);
        folders->labels[i] = (int32_t) class;
    }
    return ALNICO_SUCCESS;
}

int32_t class_folders_file(const struct class_folders *folders, size_t index,
                           char path[CLASS_FOLDERS_PATH])
{
    size_t low = 0, high = folders->classes.count;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (folders->first[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    char class[CLASS_FOLDERS_PATH]; /* both fitted when they were listed */
    (void)path_join(folders->path, name_of(&folders->classes, low), class);
    (void)path_join(class, name_of(&folders->files, index), path);
    return folders->labels[low];
}
