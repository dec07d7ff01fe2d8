/* What alnico-train leaves while it runs, and how it ends early: the log's rows, whole even if it
 * is killed, and SIGTERM. Arguments: as program.h has them. */
#include "tests/train/program/program.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROWS_MOST = 4096, PHASES = 9, STEPS = 26, LONG = 3000 };

/* A row's columns; NAN: empty, or not there. */
struct row {
    double step, epoch, seconds, loss, accuracy, rate, speed, phases[PHASES], test_loss, test_right;
};

enum { COLUMNS = sizeof(struct row) / sizeof(double) };

static const char *const names[COLUMNS] = {"step",
                                           "epoch",
                                           "seconds",
                                           "loss",
                                           "accuracy",
                                           "learning_rate",
                                           "images_per_second",
                                           "io",
                                           "h2d",
                                           "forward",
                                           "backward",
                                           "halo",
                                           "exposed_communication",
                                           "average",
                                           "update",
                                           "weights",
                                           "test_loss",
                                           "test_accuracy"};

static struct row rows[ROWS_MOST], others[ROWS_MOST];
static char csv_path[80], jsonl_path[80], saved_path[80];

static const char *const common = "--model cnn --data synthetic:8x8x1";

static void csv_line(char *line, double *values)
{
    char *rest = line, *field;
    for (int i = 0; i < COLUMNS; i++) {
        assert_non_null(field = strsep(&rest, ","));
        values[i] = *field ? strtod(field, &field) : NAN;
        assert_true(*field == '\0');
    }
    assert_null(rest);
}

static void json_line(const char *line, double *values)
{
    cJSON *row = cJSON_Parse(line);
    assert_non_null(row);
    for (int i = 0; i < COLUMNS; i++)
        values[i] = cJSON_HasObjectItem(row, names[i]) ? number(row, names[i]) : NAN;
    cJSON_Delete(row);
}

static void header_check(char *line)
{
    char *rest = line;
    for (int i = 0; i < COLUMNS; i++)
        assert_string_equal(strsep(&rest, ","), names[i]);
    assert_null(rest);
}

/* How many rows the log has, each line of which must be whole. */
static int log_read(const char *path, struct row *out)
{
    char line[1024];
    const bool csv = strstr(path, ".csv") != NULL;
    int count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int i = 0; fgets(line, sizeof line, file); i++) {
        const size_t length = strlen(line);
        if (line[length - 1] != '\n')
            fail_msg("a line without an end: '%s'", line);
        line[length - 1] = '\0';
        assert_true(count < ROWS_MOST);
        if (!csv)
            json_line(line, (double *)&out[count++]);
        else if (i)
            csv_line(line, (double *)&out[count++]);
        else
            header_check(line);
    }
    fclose(file);
    return count;
}

static void train(int ranks, const char *arguments, const char *text)
{
    char all[2048];
    snprintf(all, sizeof all, "%s %s", common, arguments);
    expect(ranks, all, 0, text);
}

/* The sums over the rows are what the report has. */
static void sums_check(const struct row *table, int count)
{
    cJSON *report = report_read();
    const cJSON *seconds = object(report, "seconds");
    double phases[PHASES] = {0}, last = 0, loss = 0;
    int tests = 0, steps = 0;
    for (int i = 0; i < count; i++) {
        if (!isnan(table[i].test_loss)) {
            tests++;
            assert_true(isnan(table[i].loss) && isnan(table[i].speed) && isnan(table[i].phases[0]));
            continue;
        }
        const double took = table[i].seconds - last, done = table[i].step - steps;
        assert_true(fabs(table[i].speed * took / (16 * done) - 1) < 1e-5);
        loss += table[i].loss * done;
        for (int p = 0; p < PHASES; p++)
            phases[p] += table[i].phases[p];
        last = table[i].seconds;
        steps = (int)table[i].step;
    }
    for (int p = 0; p < PHASES; p++)
        assert_true(fabs(phases[p] - number(seconds, names[7 + p])) < 1e-6);
    assert_true(fabs(last - number(seconds, "total")) < 1e-6);
    assert_true(fabs(loss / STEPS - number(object(report, "train"), "loss")) < 1e-6);
    assert_int_equal(steps, STEPS);
    assert_int_equal(tests, 3);
    assert_true(fabs(table[count - 1].test_loss - number(object(report, "test"), "loss")) < 1e-6);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(report, "history")), 3);
    cJSON_Delete(report);
}

/* Inline: a row for each step, in CSV. On a stream: for every ten and the rest, in JSON lines. And
 * for each test. An old file makes room. */
static void a_log_has_every_step(void **unused)
{
    (void)unused;
    char arguments[400];
    const char *format = "--steps 26 --batch 16 --test-images 64 --validate-every 10 "
                         "--warmup 0.5 --deterministic --json %s --log %s %s";
    snprintf(arguments, sizeof arguments, format, json_path, csv_path, "");
    for (int i = 0; i < 2; i++)
        train(0, arguments, "images/s");
    assert_int_equal(log_read(csv_path, rows), STEPS + 3);
    sums_check(rows, STEPS + 3);
    snprintf(arguments, sizeof arguments, format, json_path, jsonl_path, "--stream");
    train(0, arguments, "images/s");
    assert_int_equal(log_read(jsonl_path, others), 6);
    sums_check(others, 6);
    for (int i = 0; i < 6; i++) {
        const int step = i < 4 ? 10 * (1 + i / 2) : STEPS;
        assert_true(others[i].step == step);
        const struct row *same = &rows[step - 1 + (step > 10) + (step > 20) + i % 2];
        assert_true(others[i].rate == same->rate && same->step == step);
        assert_true(isnan(others[i].test_loss) == !(i % 2));
        assert_true(isnan(same->test_loss) || same->test_loss == others[i].test_loss);
    }
}

/* Waits until the log has `least` rows, and returns how many. */
static int log_wait(const char *path, int least)
{
    enum { NAP_US = 5000, NAPS = 12000 };
    for (int i = 0; i < NAPS; i++) {
        char text[1 << 16];
        FILE *file = fopen(path, "r");
        int lines = 0;
        for (size_t got; file && (got = fread(text, 1, sizeof text, file)) > 0;)
            for (size_t c = 0; c < got; c++)
                lines += text[c] == '\n';
        if (file)
            fclose(file);
        if (lines > least)
            return lines - 1;
        usleep(NAP_US);
    }
    fail_msg("%s does not grow to %d rows", path, least);
    return 0;
}

static void a_killed_run_leaves_whole_rows(void **unused)
{
    (void)unused;
    char arguments[400];
    snprintf(arguments, sizeof arguments, "%s --batch 4 --steps %d --test-images 0 --log %s",
             common, ROWS_MOST - 1, csv_path);
    remove(csv_path);
    for (int i = 0; i < 5; i++) {
        const pid_t process = program_begin(0, arguments);
        const int before = log_wait(csv_path, 50 + 7 * i);
        assert_int_equal(kill(process, SIGKILL), 0);
        program_end(process, -1);
        const int count = log_read(csv_path, rows);
        assert_true(count >= before && count < ROWS_MOST - 1);
        for (int r = 0; r < count; r++)
            assert_true(rows[r].step == r + 1);
        remove(csv_path);
    }
}

/* The parameters' hash and the last test's loss of the last run, which had a report. */
static void result_read(char *hash, size_t bytes, double *loss)
{
    cJSON *report = report_read();
    snprintf(hash, bytes, "%s",
             cJSON_GetObjectItemCaseSensitive(report, "parameter_hash")->valuestring);
    *loss = number(object(report, "test"), "loss");
    cJSON_Delete(report);
}

/* Whether a process's first thread does. */
static bool takes_sigterm(pid_t process)
{
    char path[64], line[256];
    unsigned long long blocked = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)process, (int)process);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, "SigBlk: %llx", &blocked);
    fclose(file);
    return !(blocked >> (SIGTERM - 1) & 1);
}

/* The launcher is told, or a rank alone. What it saved goes on to what a run without the signal
 * ends with, and so does its log. */
static void sigterm_ends_with_a_checkpoint(void **unused)
{
    (void)unused;
    char arguments[400], more[512], hash[2][20];
    double loss[2];
    snprintf(arguments, sizeof arguments,
             "%s --batch 4 --steps %d --test-images 64 --validate-every 700 --deterministic "
             "--log %s --json %s --save %s",
             common, LONG, csv_path, json_path, saved_path);
    for (int ranks = 0; ranks <= 2; ranks += 2) {
        expect(ranks, arguments, 0, "images/s");
        assert_null(strstr(output, "stopped after"));
        result_read(hash[0], sizeof hash[0], &loss[0]);
        remove(csv_path);
        const pid_t process = program_begin(ranks, arguments);
        log_wait(csv_path, 100);
        assert_true(ranks || !takes_sigterm(process)); /* it is in oneDNN */
        assert_int_equal(kill(process, SIGTERM), 0);
        program_end(process, 0);
        cJSON *report = report_read();
        const int stopped = (int)number(report, "steps");
        assert_true(stopped >= 100 && stopped < LONG);
        assert_true(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(report, "stopped")));
        cJSON_Delete(report);
        snprintf(more, sizeof more, "%s --load %s", arguments, saved_path);
        expect(ranks, more, 0, "images/s");
        result_read(hash[1], sizeof hash[1], &loss[1]);
        assert_string_equal(hash[1], hash[0]);
        assert_true(fabs(loss[1] / loss[0] - 1) < 1e-9);
        int step = 0, tests = 0;
        const int count = log_read(csv_path, rows);
        for (int r = 0; r < count; r++) {
            step += isnan(rows[r].test_loss);
            tests += !isnan(rows[r].test_loss);
            assert_true(rows[r].step == step);
        }
        assert_int_equal(step, LONG);
        assert_int_equal(tests, LONG / 700 + 1);
    }
}

/* A full disk is an error, after the training's results. */
static void a_log_that_cannot_be_written_fails_at_the_end(void **unused)
{
    (void)unused;
    char arguments[512], link[96];
    if (access("/dev/full", W_OK) != 0)
        skip();
    snprintf(link, sizeof link, "%s.csv", csv_path);
    assert_int_equal(symlink("/dev/full", link), 0);
    snprintf(arguments, sizeof arguments, "%s --steps 30 --test-images 0 --log %s --json %s",
             common, link, json_path);
    expect(2, arguments, 1, ".csv: cannot be written: No space left on device");
    assert_non_null(strstr(output, "equal on all ranks"));
    cJSON *report = report_read();
    assert_true(number(report, "steps") == 30);
    cJSON_Delete(report);
    remove(link);
}

/* The file can grow by so many bytes until it is as large as files may be. */
static void a_log_that_becomes_too_large_keeps_its_rows(void **unused)
{
    (void)unused;
    enum { ROOM = 2000, LIMIT = 1 << 30, BLOCK = 512 };
    char command[1024];
    snprintf(command, sizeof command, "--steps 1 --save %s", saved_path);
    train(0, command, "images/s");
    remove(jsonl_path);
    assert_int_equal(close(open(jsonl_path, O_WRONLY | O_CREAT, 0666)), 0);
    assert_int_equal(truncate(jsonl_path, LIMIT - ROOM), 0);
    snprintf(command, sizeof command,
             "ulimit -f %d && exec %s %s --steps 30 --test-images 0 --load %s --log %s 2>&1",
             LIMIT / BLOCK, program, common, saved_path, jsonl_path);
    FILE *pipe = popen(command, "r");
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    assert_int_equal(pclose(pipe), 1 << 8);
    assert_non_null(strstr(output, "jsonl: cannot be written: File too large"));
    assert_non_null(strstr(output, "parameters, 30 steps"));
    snprintf(command, sizeof command, "tail -c +%d %s >%s", LIMIT - ROOM + 1, jsonl_path, csv_path);
    assert_int_equal(system(command), 0);
    remove(jsonl_path);
    assert_int_equal(rename(csv_path, jsonl_path), 0);
    const int count = log_read(jsonl_path, rows);
    assert_true(count > 1 && count < 28 && rows[0].step == 2 && rows[count - 1].step == count + 1);
}

static void what_makes_no_sense_is_refused(void **unused)
{
    (void)unused;
    const char *const refused[][2] = {
        {"--log run.txt", "--log run.txt: expected a name that ends in .csv or .jsonl"},
        {"--log csv", "--log csv: expected a name"},
        {"--log a.jsonl.gz", "--log a.jsonl.gz: expected a name"},
        {"--log=", "--log : expected a name"},
        {"--log a.csv --memory", "--log: neither --describe, --memory nor --profile trains"},
        {"--log a.csv --describe", "--log: neither --describe, --memory nor --profile trains"},
        {"--log a.csv --profile", "--log: neither --describe, --memory nor --profile trains"},
        {"--validate-every 0", "--validate-every 0"},
        {"--validate-every 3 --test-images 0", "--validate-every: with --test-images 0 there is"},
    };
    char arguments[256];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect(i % 3 ? 0 : 2, refused[i][0], 2, refused[i][1]);
    snprintf(arguments, sizeof arguments, "%s --steps 1 --log /nonexistent/a.csv", common);
    expect(2, arguments, 1, "--log /nonexistent/a.csv: cannot be opened: No such file");
    snprintf(arguments, sizeof arguments, "%s --validate-every 3 : %s 1 %s %s", common, option,
             program, common);
    assert_int_not_equal(run(1, arguments), 0);
    assert_non_null(strstr(output, "disagree on: steps between tests"));
}

/* Where each pixel has a label, images are counted all the same; losses are means over pixels. */
static void images_of_pixels_are_counted(void **unused)
{
    (void)unused;
    char arguments[300];
    snprintf(arguments, sizeof arguments,
             "--model mesh:8 --batch 2 --steps 2 --test-images 3 --json %s --log %s", json_path,
             csv_path);
    expect(2, arguments, 0, "% of 4 images\n");
    assert_non_null(strstr(output, "equal on all ranks"));
    assert_int_equal(log_read(csv_path, rows), 3);
    assert_true(fabs(rows[0].speed * rows[0].seconds / 4 - 1) < 1e-5);
    assert_true(rows[0].loss > 0.1 && rows[0].loss < 10);
    assert_true(rows[0].accuracy > 0 && rows[0].accuracy < 1);
    cJSON *report = report_read();
    assert_true(number(object(report, "train"), "images") == 8);
    assert_true(number(object(report, "test"), "images") == 4);
    assert_true(number(object(report, "test"), "accuracy") <= 1);
    cJSON_Delete(report);
}

int main(int argc, char **argv)
{
    if (!program_arguments(argc, argv))
        return 2;
    snprintf(csv_path, sizeof csv_path, "%s.csv", json_path);
    snprintf(jsonl_path, sizeof jsonl_path, "%s.jsonl", json_path);
    snprintf(saved_path, sizeof saved_path, "%s.checkpoint", json_path);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_has_every_step),
        cmocka_unit_test(images_of_pixels_are_counted),
        cmocka_unit_test(a_killed_run_leaves_whole_rows),
        cmocka_unit_test(sigterm_ends_with_a_checkpoint),
        cmocka_unit_test(a_log_that_cannot_be_written_fails_at_the_end),
        cmocka_unit_test(a_log_that_becomes_too_large_keeps_its_rows),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(json_path);
    remove(csv_path);
    remove(jsonl_path);
    remove(saved_path);
    return failed;
}
