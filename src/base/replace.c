/* See replace.h. */
#include "base/replace.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bits of an old file's mode that the new one has, too. */
enum { MODE_KEPT = 0775 };

static alnico_status_t failed(const char *path, const char *what)
{
    return error_set(ALNICO_ERROR_SYSTEM, "%.160s: %s: %s", path, what, strerror(errno));
}

static alnico_status_t length_check(int length, const char *path)
{
    errno = ENAMETOOLONG;
    return length >= 0 && length < PATH_MAX ? ALNICO_SUCCESS : failed(path, "cannot be opened");
}

/* Follows symbolic links, also to what is not there yet. */
static alnico_status_t links_follow(const char *path, char *out)
{
    enum { LINKS_MOST = 40 }; /* as the kernel */
    char link[PATH_MAX], folder[PATH_MAX];
    TRY(length_check(snprintf(out, PATH_MAX, "%s", path), path));
    for (int i = 0; i < LINKS_MOST; i++) {
        const ssize_t length = readlink(out, link, sizeof link - 1);
        if (length < 0)
            return ALNICO_SUCCESS;
        link[length] = '\0';
        memcpy(folder, out, sizeof folder);
        TRY(length_check(*link == '/' ? snprintf(out, PATH_MAX, "%s", link)
                                      : snprintf(out, PATH_MAX, "%s/%s", dirname(folder), link),
                         path));
    }
    errno = ELOOP;
    return failed(path, "cannot be replaced");
}

/* Whether the path may be written to, and what stands there: mode 0 if nothing does. */
static alnico_status_t target_look(const char *path, enum replacement_kind kind, mode_t *mode)
{
    struct stat about = {.st_mode = 0};
    errno = ENOENT;
    if (!*path || (stat(path, &about) == 0 && access(path, W_OK) != 0))
        return failed(path, "cannot be opened");
    *mode = about.st_mode;
    if (!*mode || S_ISREG(*mode) || (kind == REPLACEMENT_ANY && !S_ISDIR(*mode)))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_SYSTEM, "%.160s: cannot be replaced: it is not a regular file",
                     path);
}

static alnico_status_t temporary_open(const char *path, mode_t mode, struct replacement *out)
{
    TRY(links_follow(path, out->path));
    TRY(length_check(snprintf(out->temporary, PATH_MAX, "%s.XXXXXX", out->path), path));
    const int file = mkostemp(out->temporary, O_CLOEXEC);
    if (file < 0)
        return failed(path, "cannot be opened");
    if (mode)
        fchmod(file, mode & MODE_KEPT); /* not every file system has modes */
    if ((out->file = fdopen(file, "w")))
        return ALNICO_SUCCESS;
    unlink(out->temporary);
    close(file);
    return error_set(ALNICO_ERROR_MEMORY, "%.160s: no memory to open it", path);
}

alnico_status_t replacement_begin(const char *path, enum replacement_kind kind,
                                  struct replacement *out)
{
    mode_t mode;
    TRY(target_look(path, kind, &mode));
    if (!mode || S_ISREG(mode))
        return temporary_open(path, mode, out);
    *out->temporary = '\0';
    TRY(length_check(snprintf(out->path, PATH_MAX, "%s", path), path));
    out->file = fopen(path, "we");
    return out->file ? ALNICO_SUCCESS : failed(path, "cannot be opened");
}

static alnico_status_t file_close(const struct replacement *r)
{
    alnico_status_t status = ALNICO_SUCCESS;
    if (fflush(r->file) != 0 || ferror(r->file))
        status = failed(r->path, "cannot be written");
    else if (*r->temporary && fsync(fileno(r->file)) != 0)
        status = failed(r->path, "cannot be flushed");
    if (fclose(r->file) != 0 && status == ALNICO_SUCCESS)
        status = failed(r->path, "cannot be closed");
    return status;
}

/* Makes a rename durable. */
static bool folder_flush(const char *path)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    const int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return false;
    const bool flushed = fsync(folder) == 0 || errno == EINVAL;
    close(folder);
    return flushed;
}

static alnico_status_t file_move(const struct replacement *r)
{
    if (rename(r->temporary, r->path) != 0)
        return failed(r->path, "cannot be replaced");
    return folder_flush(r->path) ? ALNICO_SUCCESS : failed(r->path, "its folder cannot be flushed");
}

alnico_status_t replacement_finish(struct replacement *replacement)
{
    alnico_status_t status = file_close(replacement);
    if (!*replacement->temporary)
        return status;
    if (status == ALNICO_SUCCESS)
        status = file_move(replacement);
    if (status != ALNICO_SUCCESS)
        unlink(replacement->temporary);
    return status;
}

alnico_status_t replacement_try(const char *path, enum replacement_kind kind)
{
    struct replacement replacement;
    mode_t mode;
    TRY(target_look(path, kind, &mode));
    if (mode && !S_ISREG(mode))
        return ALNICO_SUCCESS;
    TRY(temporary_open(path, mode, &replacement));
    fclose(replacement.file);
    unlink(replacement.temporary);
    return ALNICO_SUCCESS;
}

alnico_status_t replacement_text(const char *path, enum replacement_kind kind, const char *text)
{
    struct replacement replacement;
    TRY(replacement_begin(path, kind, &replacement));
    fprintf(replacement.file, "%s\n", text);
    return replacement_finish(&replacement);
}
