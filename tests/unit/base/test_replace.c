/* Replaced files: whole or as before whatever fails, nothing left beside them, links and modes. */
#include "base/replace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LONG_BYTES = 1 << 20 };

static char folder[] = "/tmp/alnico-replace-XXXXXX", target[64], other[64];
static bool disk_fails, close_fails;

int __real_fsync(int file);
int __wrap_fsync(int file);

int __wrap_fsync(int file)
{
    errno = EIO;
    return disk_fails ? -1 : __real_fsync(file);
}

int __real_fclose(FILE *file);
int __wrap_fclose(FILE *file);

/* A close that fails: over a network a write may fail as late as that. */
int __wrap_fclose(FILE *file)
{
    const int status = __real_fclose(file);
    errno = EDQUOT;
    return close_fails ? EOF : status;
}

static void file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void require_text(const char *path, const char *text)
{
    char found[64] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    found[fread(found, 1, sizeof found - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(found, text);
}

static void require_success(alnico_status_t status)
{
    if (status != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
}

static void require_error(alnico_status_t status, const char *path, const char *detail)
{
    char text[256];
    assert_int_equal(status, ALNICO_ERROR_SYSTEM);
    snprintf(text, sizeof text, "%s: %s", path, detail);
    if (strncmp(alnico_error_detail(), text, strlen(text)) != 0)
        fail_msg("'%s' does not begin with '%s'", alnico_error_detail(), text);
}

/* Removes all that is in the folder, and says how much it was. */
static int folder_clear(void)
{
    int count = 0;
    char path[320];
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            assert_int_equal(remove(path), 0);
            count++;
        }
    closedir(entries);
    return count;
}

static mode_t mode_of(const char *path)
{
    struct stat about;
    assert_int_equal(lstat(path, &about), 0);
    return about.st_mode & 07777;
}

static void new_files_are_their_owners(void **unused)
{
    (void)unused;
    struct replacement replacement;
    struct stat about;
    const mode_t before = umask(0);
    require_success(replacement_begin(target, REPLACEMENT_REGULAR, &replacement));
    assert_int_equal(access(target, F_OK), -1);
    assert_int_equal(fstat(fileno(replacement.file), &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    fputs("new\n", replacement.file);
    require_success(replacement_finish(&replacement));
    assert_int_equal(mode_of(target), 0600);
    require_text(target, "new\n");
    remove(target);
    umask(0277);
    require_success(replacement_text(target, REPLACEMENT_REGULAR, "new"));
    assert_int_equal(mode_of(target), 0400);
    umask(before);
    assert_int_equal(folder_clear(), 1);
}

static void old_files_keep_their_modes(void **unused)
{
    (void)unused;
    const mode_t rows[][2] = {
        {0600, 0600}, {0644, 0644}, {0660, 0660}, {0666, 0664}, {04755, 0755}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        file_write(target, "old");
        assert_int_equal(chmod(target, rows[i][0]), 0);
        require_success(replacement_text(target, REPLACEMENT_ANY, "new"));
        assert_int_equal(mode_of(target), rows[i][1]);
        require_text(target, "new\n");
    }
    assert_int_equal(folder_clear(), 1);
}

/* A link that somebody laid where a temporary file could be is neither followed nor removed. */
static void links_beside_are_left_alone(void **unused)
{
    (void)unused;
    char number[16], link[96];
    const char *const ends[] = {number, "tmp", "XXXXXX"};
    snprintf(number, sizeof number, "%d", (int)getpid());
    file_write(other, "of somebody");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(link, sizeof link, "%s.%s", target, ends[i]);
        assert_int_equal(symlink(other, link), 0);
    }
    require_success(replacement_try(target, REPLACEMENT_REGULAR));
    require_success(replacement_text(target, REPLACEMENT_REGULAR, "new"));
    require_text(target, "new\n");
    require_text(other, "of somebody");
    assert_int_equal(folder_clear(), 2 + sizeof ends / sizeof *ends);
}

static void links_to_a_file_are_followed(void **unused)
{
    (void)unused;
    char link[64], text[2][8] = {"1", "2"};
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink(other, link), 0);
    assert_int_equal(symlink("target", other), 0);
    for (int i = 0; i < 2; i++) { /* first where there is no file */
        require_success(replacement_text(link, REPLACEMENT_REGULAR, text[i]));
        strcat(text[i], "\n");
        require_text(target, text[i]);
        assert_int_equal(mode_of(link), 0777);
        assert_int_equal(mode_of(other), 0777);
    }
    assert_int_equal(folder_clear(), 3);
    assert_int_equal(symlink(other, link), 0);
    assert_int_equal(symlink("link", other), 0);
    require_error(replacement_try(link, REPLACEMENT_REGULAR), link, "cannot be replaced: Too many");
    assert_int_equal(folder_clear(), 2);
}

/* Writes `bytes` to a file of 1 KB at most. */
static alnico_status_t limited_write(size_t bytes)
{
    struct rlimit before, low;
    struct replacement replacement;
    static const char nothing[LONG_BYTES];
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = (struct rlimit){1024, before.rlim_max};
    require_success(replacement_begin(target, REPLACEMENT_REGULAR, &replacement));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    fwrite(nothing, 1, bytes, replacement.file);
    const alnico_status_t status = replacement_finish(&replacement);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    return status;
}

/* Both what only the last flush writes, and what was written, and failed, before. */
static void a_full_disk_leaves_the_old_file(void **unused)
{
    (void)unused;
    signal(SIGXFSZ, SIG_IGN);
    for (size_t bytes = 2048; bytes <= LONG_BYTES; bytes *= 512) {
        file_write(target, "old");
        require_error(limited_write(bytes), target, "cannot be written: File too large");
        require_text(target, "old");
        assert_int_equal(folder_clear(), 1);
        require_error(limited_write(bytes), target, "cannot be written: File too large");
        assert_int_equal(folder_clear(), 0);
    }
    require_success(limited_write(1024));
    assert_int_equal(folder_clear(), 1);
}

static void what_is_not_flushed_replaces_nothing(void **unused)
{
    (void)unused;
    file_write(target, "old");
    disk_fails = true;
    require_error(replacement_text(target, REPLACEMENT_REGULAR, "new"), target,
                  "cannot be flushed: Input/output error");
    disk_fails = false;
    close_fails = true;
    require_error(replacement_text(target, REPLACEMENT_REGULAR, "new"), target,
                  "cannot be closed: Disk quota exceeded");
    close_fails = false;
    require_text(target, "old");
    assert_int_equal(folder_clear(), 1);
}

/* The target has become a folder, or its folder has gone, since the file was begun. */
static void a_failed_rename_leaves_nothing_beside(void **unused)
{
    (void)unused;
    struct replacement replacement;
    require_success(replacement_begin(target, REPLACEMENT_REGULAR, &replacement));
    assert_int_equal(mkdir(target, 0700), 0);
    require_error(replacement_finish(&replacement), target, "cannot be replaced: Is a directory");
    assert_int_equal(folder_clear(), 1);
}

static void bad_targets_are_refused_at_once(void **unused)
{
    (void)unused;
    char missing[96], longest[PATH_MAX + 64];
    snprintf(missing, sizeof missing, "%s/missing/file", folder);
    memset(longest, 'a', sizeof longest);
    for (size_t i = 0; i < sizeof longest; i += 100)
        longest[i] = '/';
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(mkfifo(other, 0600), 0);
    const struct {
        const char *path;
        enum replacement_kind kind;
        const char *detail;
    } rows[] = {{missing, REPLACEMENT_ANY, "cannot be opened: No such file"},
                {"", REPLACEMENT_ANY, "cannot be opened: No such file"},
                {"/proc/x", REPLACEMENT_ANY, "cannot be opened: No such file"},
                {folder, REPLACEMENT_ANY, "cannot be replaced: it is not a regular file"},
                {other, REPLACEMENT_REGULAR, "cannot be replaced: it is not a regular file"},
                {"/dev/null", REPLACEMENT_REGULAR, "cannot be replaced: it is not a regular"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct replacement replacement;
        require_error(replacement_try(rows[i].path, rows[i].kind), rows[i].path, rows[i].detail);
        require_error(replacement_begin(rows[i].path, rows[i].kind, &replacement), rows[i].path,
                      rows[i].detail);
    }
    assert_int_equal(replacement_try(longest, REPLACEMENT_ANY), ALNICO_ERROR_SYSTEM);
    assert_non_null(strstr(alnico_error_detail(), ": cannot be opened: File name too long"));
    assert_int_equal(folder_clear(), 1);
}

/* A child, which gives up root's rights. */
static void read_only_files_stay(void **unused)
{
    (void)unused;
    int status;
    file_write(target, "old");
    assert_int_equal(chmod(target, 0444), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    const pid_t child = fork();
    if (child == 0) {
        if (getuid() == 0 && setuid(65534) != 0)
            _exit(2);
        require_error(replacement_try(target, REPLACEMENT_ANY), target,
                      "cannot be opened: Permission denied");
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    require_text(target, "old");
    assert_int_equal(folder_clear(), 1);
}

/* Nothing can stand beside these. The try does not open them: a reader would see the end. */
static void pipes_and_devices_are_written_to(void **unused)
{
    (void)unused;
    char text[16] = "";
    assert_int_equal(mkfifo(target, 0600), 0);
    const int end = open(target, O_RDONLY | O_NONBLOCK);
    require_success(replacement_try(target, REPLACEMENT_ANY));
    require_success(replacement_text(target, REPLACEMENT_ANY, "for a pipe"));
    assert_int_equal(read(end, text, sizeof text), 11);
    assert_string_equal(text, "for a pipe\n");
    close(end);
    require_success(replacement_text("/dev/null", REPLACEMENT_ANY, "for nobody"));
    assert_int_equal(mode_of(target), 0600);
    assert_int_equal(folder_clear(), 1);
    if (access("/dev/full", W_OK) == 0)
        require_error(replacement_text("/dev/full", REPLACEMENT_ANY, "too much"), "/dev/full",
                      "cannot be written: No space left on device");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(new_files_are_their_owners),
                                       cmocka_unit_test(old_files_keep_their_modes),
                                       cmocka_unit_test(links_beside_are_left_alone),
                                       cmocka_unit_test(links_to_a_file_are_followed),
                                       cmocka_unit_test(a_full_disk_leaves_the_old_file),
                                       cmocka_unit_test(what_is_not_flushed_replaces_nothing),
                                       cmocka_unit_test(a_failed_rename_leaves_nothing_beside),
                                       cmocka_unit_test(bad_targets_are_refused_at_once),
                                       cmocka_unit_test(read_only_files_stay),
                                       cmocka_unit_test(pipes_and_devices_are_written_to)};
    if (!mkdtemp(folder))
        return 1;
    snprintf(target, sizeof target, "%s/target", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
