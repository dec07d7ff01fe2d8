/* Tuning files: what is good is read and survives being written; every kind of damage is refused
 * with its line and key, and never crashes. */
#include "comm/tuning/tuning.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static unsigned random_state;
static bool reads_are_short;
static const char *room_end; /* where the first of a file's reads may end, and all that follow */

ssize_t __real_read(int file, void *out, size_t bytes);
ssize_t __wrap_read(int file, void *out, size_t bytes);

ssize_t __wrap_read(int file, void *out, size_t bytes)
{
    const char *end = (const char *)out + bytes;
    if (!reads_are_short)
        return __real_read(file, out, bytes);
    room_end = room_end ? room_end : end;
    assert_true(end <= room_end);
    return __real_read(file, out, (bytes + 1) / 2);
}

/* The lines of a good file; damage replaces one of them, or adds to it. */
static const char *const good[] = {
    /* 1 */ "{\n",
    /* 2 */ "\"alnico_tuning\": 1,\n",
    /* 3 */ "\"machines\": [{\"host\": \"a: \\\" {\", \"cores\": [2, 3]}],\n",
    /* 4 */ "\"rows\": [\n",
    /* 5 */ "{\"collective\": \"allreduce\", \"device\": \"cpu\",\n",
    /* 6 */ " \"ranks_up_to\": 2, \"hosts_up_to\": 1,\n",
    /* 7 */ " \"bytes_up_to\": 8192,\n",
    /* 8 */ " \"backend\": \"host\", \"algorithm\": \"ring\",\n",
    /* 9 */ " \"chunk_bytes\": 4096},\n",
    /* 10 */
    "{\"collective\": \"allreduce\", \"device\": \"cpu\", \"ranks_up_to\": 2, \"hosts_up_to\":1,\n",
    /* 11 */ " \"bytes_up_to\": null, \"backend\": \"host\", \"algorithm\": \"binomial\",\n",
    /* 12 */ " \"chunk_bytes\": 65536}\n",
    /* 13 */ "]}\n"};

enum { LINES = sizeof good / sizeof *good };

/* The good text with line `line` replaced; nothing with line 0. */
static void write_text(char *text, size_t bytes, int line, const char *other)
{
    *text = '\0';
    for (int i = 1; i <= LINES; i++)
        strncat(text, i == line ? other : good[i - 1], bytes - strlen(text) - 1);
}

static void require_empty(const struct tuning *tuning)
{
    assert_null(tuning->rows);
    assert_null(tuning->machines);
    assert_int_equal(tuning->count, 0);
}

static void test_a_good_file(void **state)
{
    (void)state;
    char text[2048];
    struct tuning t;
    write_text(text, sizeof text, 0, NULL);
    assert_int_equal(tuning_file_parse("good", text, strlen(text), &t), ALNICO_SUCCESS);
    assert_int_equal(t.count, 2);
    assert_int_equal(t.rows[0].collective, ALNICO_ALLREDUCE);
    assert_int_equal(t.rows[0].device, ALNICO_DEVICE_CPU);
    assert_int_equal(t.rows[0].ranks, 2);
    assert_int_equal(t.rows[0].hosts, 1);
    assert_int_equal(t.rows[0].bytes, 8192);
    assert_string_equal(t.rows[0].backend, "host");
    assert_string_equal(t.rows[0].algorithm, "ring");
    assert_int_equal(t.rows[0].chunk_bytes, 4096);
    assert_true(t.rows[1].bytes == SIZE_MAX);
    assert_string_equal(t.rows[1].algorithm, "binomial");
    assert_string_equal(t.machines, "[{\"host\":\"a: \\\" {\",\"cores\":[2,3]}]");
    tuning_finish(&t);
    require_empty(&t);
}

struct damage {
    int line; /* replaced */
    const char *with;
    int found_on; /* the line that the message names */
    const char *detail;
};

static const struct damage damages[] = {
    /* not JSON */
    {2, "\"alnico_tuning\": 1\n", 3, "not JSON at \"machines\""},
    {2, "'alnico_tuning': 1,\n", 2, "not JSON at alnico"},
    {9, " \"chunk_bytes\": 4096},,\n", 9, "not JSON"},
    {9, " \"chunk_bytes\": 0x1000},\n", 9, "not JSON"},
    {9, " \"chunk_bytes\": 4096 // bytes\n},\n", 9, "not JSON at // bytes"},
    {13, "]\n", 14, "not JSON, it ends too early"},
    {13, "]} more\n", 13, "not JSON at more"},
    {13, "]}\n\n{}\n", 15, "not JSON at {}"},
    {7, " \"bytes_up_to\": NaN,\n", 7, "not JSON at NaN"},
    /* the file's own keys */
    {1, "[{\n", 14, "not JSON, it ends too early"},
    {2, "", 1, "alnico_tuning is missing"},
    {2, "\"alnico_tuning\": 2,\n", 2, "alnico_tuning is 2, expected a whole number from 1 to 1"},
    {2, "\"alnico_tuning\": \"1\",\n", 2, "alnico_tuning is \"1\", expected"},
    {2, "\"alnico_tuning\": 1, \"alnico_tuning\": 1,\n", 2, "alnico_tuning is there twice"},
    {2, "\"alnico_tuning\": 1,\n\"row\": [],\n", 3, "unknown key 'row'"},
    {3, "\"machines\": {},\n", 3, "machines is not an array of objects"},
    {3, "\"machines\": [\n1],\n", 3, "machines is not an array of objects"},
    {3, "\"machines\": null,\n", 3, "machines is not an array of objects"},
    {4, "\"rows\": [7,\n", 4, "the value is 7, expected an object, a row"},
    {4, "\"rows\": [null,\n", 4, "the value is null, expected an object"},
    {4, "\"rows\": [[],\n", 4, "the value is [], expected an object"},
    {4, "\"rows\": [], \"more\": [\n", 4, "unknown key 'more'"},
    {4, "\"rows\": [],\n\"machines\": [\n", 5, "machines is there twice"},
    /* names */
    {5, "{\"collective\": \"broadcasts\", \"device\": \"cpu\",\n", 5,
     "collective is \"broadcasts\", expected one of allreduce reduce"},
    {5, "{\"collective\": 0, \"device\": \"cpu\",\n", 5, "collective is 0, expected one of"},
    {5, "{\"collective\": \"allreduce\",\n\"device\":\n\"tpu\",\n", 7,
     "device is \"tpu\", expected one of cpu cuda"},
    {5, "{\"collective\": \"allreduce\", \"device\": null,\n", 5, "device is null, expected"},
    {8, " \"backend\": \"guest\", \"algorithm\": \"ring\",\n", 8,
     "backend is \"guest\", expected one of host"},
    {8, " \"backend\": [], \"algorithm\": \"ring\",\n", 8, "backend is [], expected one of"},
    {8, " \"backend\": \"host\",\n\"algorithm\": \"rings\",\n", 9,
     "algorithm is \"rings\", expected one of recursive_doubling rabenseifner ring"},
    {8, " \"backend\": \"host\", \"algorithm\": \"\",\n", 8, "algorithm is \"\", expected"},
    {8, " \"backend\": \"host\", \"algorithm\": true,\n", 8, "algorithm is true, expected"},
    /* keys of a row */
    {7, "", 5, "bytes_up_to is missing"},
    {5, "{\"device\": \"cpu\",\n", 5, "collective is missing"},
    {8, "\"backend\": \"host\",\n", 5, "algorithm is missing"},
    {7, " \"bytes_up_to\": 8192, \"bytes\": 1,\n", 7, "unknown key 'bytes'"},
    {7, " \"bytes_up_to\": 8192,\n\"BACKEND\": 1,\n", 8, "unknown key 'BACKEND'"},
    {7, " \"bytes_up_to\": 8192,\n\"\": 1,\n", 8, "unknown key ''"},
    {7, " \"bytes_up_to\": 8192,\n \"hosts_up_to\": 1,\n", 8, "hosts_up_to is there twice"},
    /* numbers */
    {6, " \"ranks_up_to\": 0, \"hosts_up_to\": 1,\n", 6,
     "ranks_up_to is 0, expected a whole number from 1 to 2147483647, or null for any"},
    {6, " \"ranks_up_to\": 2147483648, \"hosts_up_to\": 1,\n", 6, "ranks_up_to is 2147483648"},
    {6, " \"ranks_up_to\": 2, \"hosts_up_to\": -1,\n", 6, "hosts_up_to is -1, expected"},
    {6, " \"ranks_up_to\": true, \"hosts_up_to\": 1,\n", 6, "ranks_up_to is true, expected"},
    {6, " \"ranks_up_to\": \"2\", \"hosts_up_to\": 1,\n", 6, "ranks_up_to is \"2\", expected"},
    {6, " \"ranks_up_to\": {\"a\": 1}, \"hosts_up_to\": 1,\n", 6, "ranks_up_to is {\"a\":1}, exp"},
    {7, " \"bytes_up_to\": 0,\n", 7, "bytes_up_to is 0, expected a whole number from 1"},
    {7, " \"bytes_up_to\": -8192,\n", 7, "bytes_up_to is -8192, expected"},
    {7, " \"bytes_up_to\": 8192.5,\n", 7, "bytes_up_to is 8192.5, expected a whole number"},
    {7, " \"bytes_up_to\": 1e300,\n", 7, "bytes_up_to is 1e+300, expected"},
    {7, " \"bytes_up_to\": 1e999,\n", 7, "bytes_up_to is null, expected a whole number"},
    {7, " \"bytes_up_to\": 18446744073709551616,\n", 7, "bytes_up_to is 1.8446744073709552e+19"},
    {9, " \"chunk_bytes\": 1023},\n", 9,
     "chunk_bytes is 1023, expected a whole number from 1024 to 2147483647"},
    {9, " \"chunk_bytes\": null},\n", 9, "chunk_bytes is null, expected"},
    {9, " \"chunk_bytes\": 2147483648},\n", 9, "chunk_bytes is 2147483648, expected"},
    {9, " \"chunk_bytes\": 4096, \"blocks\": 1025},\n", 9,
     "blocks is 1025, expected a whole number from 0 to 1024"},
    {9, " \"chunk_bytes\": 4096,\n\"blocks\": null},\n", 10, "blocks is null, expected"},
    {9, " \"chunk_bytes\": 4096, \"registered\": 1},\n", 9,
     "registered is 1, expected true or false"},
    {9, " \"chunk_bytes\": 4096,\n\"captured\": \"true\"},\n", 10, "captured is \"true\", exp"},
    {8, " \"backend\": \"nccl\", \"algorithm\": \"nccl\",\n", 8,
     "backend is \"nccl\", expected one of host peer"},
    /* rows that no call chooses */
    {11, " \"bytes_up_to\": 8192, \"backend\": \"host\", \"algorithm\": \"binomial\",\n", 10,
     "rows has a duplicate: the row of line 5 has the same bounds"},
    {11, " \"bytes_up_to\": 8191, \"backend\": \"host\", \"algorithm\": \"binomial\",\n", 10,
     "rows has one that is never chosen: the row of line 5 comes first"},
};

static void test_every_kind_of_damage(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const struct damage *d = &damages[i];
        char text[2048], place[32];
        struct tuning t;
        memset(&t, 0xA5, sizeof t);
        write_text(text, sizeof text, d->line, d->with);
        snprintf(place, sizeof place, "table, line %d: ", d->found_on);
        alnico_status_t status = tuning_file_parse("table", text, strlen(text), &t);
        const char *detail = alnico_error_detail();
        if (status != ALNICO_ERROR_ARGUMENT || strstr(detail, place) != detail ||
            !strstr(detail, d->detail))
            fail_msg("line %d as %s: status %d, '%s'\nexpected '%s ... %s'", d->line, d->with,
                     (int)status, detail, place, d->detail);
        require_empty(&t);
    }
}

static void require_refused(const char *text, size_t length, const char *detail)
{
    struct tuning t;
    assert_int_equal(tuning_file_parse("table", text, length, &t), ALNICO_ERROR_ARGUMENT);
    if (!strstr(alnico_error_detail(), detail))
        fail_msg("'%s', expected '%s'", alnico_error_detail(), detail);
    require_empty(&t);
}

static void test_other_texts(void **state)
{
    (void)state;
    static const char zero[] = "{\n\n\0}";
    require_refused("", 0, "line 1: the file is empty");
    require_refused(" \n\n", 3, "not JSON, it ends too early");
    require_refused("[]", 2, "the value is [], expected an object");
    require_refused("7", 1, "the value is 7, expected an object");
    require_refused("{}", 2, "line 1: alnico_tuning is missing");
    require_refused(zero, sizeof zero - 1, "line 3: not text, it has a zero byte");
    require_refused("\x7f"
                    "ELF",
                    4, "line 1: not JSON");
    require_refused("{\"alnico_tuning\": 1}", 20, "rows is missing");
    require_refused("{\"alnico_tuning\": 1, \"rows\": []}", 32,
                    "rows has 0 rows, expected 1 to 4096");
    require_refused("{\"alnico_tuning\": 1, \"rows\": 5}", 31, "rows is not an array");
}

static void test_too_many_rows(void **state)
{
    (void)state;
    struct tuning t = {.count = TUNING_ROWS_MOST + 1}, again;
    t.rows = calloc((size_t)t.count, sizeof *t.rows);
    assert_non_null(t.rows);
    for (int i = 0; i < t.count; i++)
        t.rows[i] = (struct tuning_row){.ranks = i + 1,
                                        .hosts = 1,
                                        .bytes = 8,
                                        .backend = "host",
                                        .algorithm = "ring",
                                        .chunk_bytes = 1024};
    char path[] = "/tmp/alnico-tuning-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(tuning_file_write(path, &t), ALNICO_SUCCESS);
    assert_int_equal(tuning_file_read(path, &again), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "rows has 4097 rows"));
    unlink(path);
    tuning_finish(&t);
}

/* Any prefix, any byte changed: an error or a table, but no crash (this is run under
 * sanitizers). */
static void test_random_damage(void **state)
{
    (void)state;
    char text[2048], damaged[2048];
    struct tuning t;
    write_text(text, sizeof text, 0, NULL);
    size_t length = strlen(text);
    for (size_t i = 0; i < length - 2; i++) {
        memcpy(damaged, text, i);
        damaged[i] = '\0';
        assert_int_equal(tuning_file_parse("prefix", damaged, i, &t), ALNICO_ERROR_ARGUMENT);
        require_empty(&t);
    }
    for (int i = 0; i < 5000; i++) {
        memcpy(damaged, text, length + 1);
        for (int k = 0; k < 1 + i % 3; k++)
            damaged[(size_t)rand_r(&random_state) % length] = (char)rand_r(&random_state);
        if (tuning_file_parse("changed", damaged, length, &t) == ALNICO_SUCCESS)
            tuning_finish(&t);
        else
            assert_non_null(strstr(alnico_error_detail(), "changed, line "));
    }
}

/* ---- Files ---- */

static void require_unreadable(const char *path, const char *detail)
{
    struct tuning t;
    assert_int_equal(tuning_file_read(path, &t), ALNICO_ERROR_ARGUMENT);
    if (!strstr(alnico_error_detail(), detail) || !strstr(alnico_error_detail(), path))
        fail_msg("'%s', expected '%s: %s'", alnico_error_detail(), path, detail);
    require_empty(&t);
}

static void test_what_is_no_file(void **state)
{
    (void)state;
    char folder[] = "/tmp/alnico-tuning-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    require_unreadable(folder, "is a directory, expected a file");
    require_unreadable("/dev/null", "is not a regular file");
    require_unreadable(path, "No such file or directory");
    assert_int_equal(mkfifo(path, 0600), 0);
    require_unreadable(path, "is not a regular file"); /* and nobody waits for a writer */
    unlink(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    require_unreadable(path, "line 1: the file is empty");
    assert_int_equal(truncate(path, 100 << 20), 0);
    require_unreadable(path, "has 104857600 bytes, expected at most");
    if (geteuid() != 0) {
        assert_int_equal(chmod(path, 0), 0);
        require_unreadable(path, "Permission denied");
    }
    unlink(path);
    rmdir(folder);
}

static struct tuning random_table(void)
{
    static const char *const algorithms[] = {"ring", "binomial", "rabenseifner"};
    struct tuning t = {.count = 0, .machines = strdup("[{\"host\":\"x\\ny\"}]")};
    t.rows = calloc(64, sizeof *t.rows);
    for (int i = 0; i < 64; i++) {
        struct tuning_row *row = &t.rows[t.count];
        *row = (struct tuning_row){.device = rand_r(&random_state) % 2,
                                   .ranks = 1 + rand_r(&random_state) % 1000,
                                   .hosts = 1 + rand_r(&random_state) % 1000,
                                   .bytes = (size_t)1 << rand_r(&random_state) % 53,
                                   .backend = "host",
                                   .chunk_bytes = 1024 + (size_t)rand_r(&random_state) % 99999};
        strcpy(row->algorithm, algorithms[rand_r(&random_state) % 3]);
        if (i % 9 == 8)
            row->ranks = INT_MAX;
        if (i % 11 == 10)
            row->hosts = INT_MAX;
        if (i % 7 == 6)
            row->bytes = SIZE_MAX;
        if (i % 5 == 4)
            row->modes = (unsigned)rand_r(&random_state) % MODES;
        if (i % 3 == 2)
            row->blocks = rand_r(&random_state) % (TUNING_BLOCKS_MOST + 1);
        t.count += tuning_shadow(t.rows, t.count) < 0;
    }
    return t;
}

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    char path[] = "/tmp/alnico-tuning-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    for (int round = 0; round < 10; round++) {
        struct tuning t = random_table(), again;
        assert_int_equal(tuning_file_write(path, &t), ALNICO_SUCCESS);
        reads_are_short = round % 2;
        room_end = NULL;
        alnico_status_t status = tuning_file_read(path, &again);
        reads_are_short = false;
        if (status != ALNICO_SUCCESS)
            fail_msg("%s", alnico_error_detail());
        assert_int_equal(again.count, t.count);
        assert_memory_equal(again.rows, t.rows, (size_t)t.count * sizeof *t.rows);
        assert_string_equal(again.machines, t.machines);
        tuning_finish(&t);
        tuning_finish(&again);
    }
    unlink(path);
}

static void test_writing_fails(void **state)
{
    (void)state;
    struct tuning t = random_table();
    assert_int_equal(tuning_file_write("/no/such/folder/table", &t), ALNICO_ERROR_SYSTEM);
    assert_non_null(
        strstr(alnico_error_detail(), "/no/such/folder/table: cannot be opened: No such"));
    char folder[] = "/tmp/alnico-tuning-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(tuning_file_write(folder, &t), ALNICO_ERROR_SYSTEM);
    assert_non_null(strstr(alnico_error_detail(), "it is not a regular file"));
    assert_int_equal(rmdir(folder), 0);
    tuning_finish(&t);
}

/* The old table is still there, and nothing beside it, as its folder can be removed. */
static void test_a_full_disk_leaves_the_old_table(void **state)
{
    (void)state;
    struct tuning old = random_table(), t = random_table(), again;
    struct rlimit before, low;
    char folder[] = "/tmp/alnico-tuning-XXXXXX", path[64];
    signal(SIGXFSZ, SIG_IGN);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/table", folder);
    assert_int_equal(tuning_file_write(path, &old), ALNICO_SUCCESS);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (rlim_t bytes = 0; bytes < 500; bytes += 100) {
        low = (struct rlimit){bytes, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        assert_int_equal(tuning_file_write(path, &t), ALNICO_ERROR_SYSTEM);
        assert_non_null(strstr(alnico_error_detail(), "cannot be written: File too large"));
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    }
    assert_int_equal(tuning_file_read(path, &again), ALNICO_SUCCESS);
    assert_int_equal(again.count, old.count);
    assert_memory_equal(again.rows, old.rows, (size_t)old.count * sizeof *old.rows);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    tuning_finish(&old);
    tuning_finish(&t);
    tuning_finish(&again);
}

int main(void)
{
    random_state = (unsigned)time(NULL);
    print_message("seed %u\n", random_state);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_file),
        cmocka_unit_test(test_every_kind_of_damage),
        cmocka_unit_test(test_other_texts),
        cmocka_unit_test(test_too_many_rows),
        cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_what_is_no_file),
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_writing_fails),
        cmocka_unit_test(test_a_full_disk_leaves_the_old_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
