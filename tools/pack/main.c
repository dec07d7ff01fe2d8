/* alnico-pack: makes a packed file, which alnico-train reads in long runs, from any source of
 * images. Arguments and printing; the work is in src/train/input. */
#include "tools/common/options.h"
#include "tools/common/program.h"
#include "train/input/packed_file.h"

#include <stdlib.h>
#include <unistd.h>

static void read_argument(struct argp_state *state, char *text, void *out)
{
    struct pack_options *options = out;
    char forms[512];
    source_forms(forms, sizeof forms);
    if (options->path)
        argp_error(state, "unexpected argument '%s'", text);
    if (options->source)
        options->path = text;
    else if (source_find(text))
        options->source = text;
    else
        argp_error(state, "SOURCE %s: expected %s", text, forms);
}

static void finish(struct argp_state *state, void *out)
{
    struct pack_options *options = out;
    if (!options->path)
        argp_error(state, "expected SOURCE and FILE");
    if (options->classes && source_find(options->source)->own_classes)
        argp_error(state, "--classes: %s has its own", options->source);
    if (!options->threads)
        options->threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static struct pack_options read_options(int argc, char **argv)
{
    static const struct option_row table[] = {
        {"classes", 0, "N", "of the labels, as for alnico-train", OPTION_NUMBER,
         OPTION_FIELD(struct pack_options, classes), .least = 1, .most = 65536},
        {"seed", 0, "N", "of images that are made up", OPTION_NUMBER, .initial = "1",
         OPTION_FIELD(struct pack_options, seed), .most = UINT64_MAX},
        {"threads", 't', "N", "that read images (the cores)", OPTION_NUMBER,
         OPTION_FIELD(struct pack_options, threads), .least = 1, .most = 1024},
        {"train-only", 0, NULL, "leave out the test part", OPTION_FLAG,
         OPTION_FIELD(struct pack_options, train_only)},
        {0}};
    static const struct option_table program = {
        .options = table,
        .arguments = "SOURCE FILE",
        .about = "Makes FILE from the images of SOURCE, for --data packed:FILE of alnico-train: "
                 "records of one length, each with a checksum, that are mapped into memory. SOURCE "
                 "is what alnico-train takes for --data."
                 "\vExamples:\n"
                 "  alnico-pack folder:/data/imagenet@256+37 imagenet.packed\n"
                 "  alnico-train --data packed:imagenet.packed@224 --model resnet50\n",
        .argument = read_argument,
        .finish = finish};
    struct pack_options options = {.source = NULL};
    options_read(&program, argc, argv, &options);
    return options;
}

/* On a terminal, one line that is written again. */
static void print_progress(void *unused, size_t done, size_t of)
{
    (void)unused;
    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r%zu of %zu images", done, of);
    if (done == of)
        fputc('\n', stderr);
}

int main(int argc, char **argv)
{
    program_start();
    struct pack_options options = read_options(argc, argv);
    options.progress = print_progress;
    program_check(pack(&options), "packing");
    return EXIT_SUCCESS;
}
