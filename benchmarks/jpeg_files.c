/* See jpeg_files.h. */
#include "benchmarks/jpeg_files.h"

#include "tools/common/program.h"
#include "train/base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

void fail_errno(const char *path)
{
    program_fail("%s: %s", path, strerror(errno));
}

void jpeg_files_path(const struct jpeg_files *files, size_t n, char out[JPEG_FILES_PATH])
{
    snprintf(out, JPEG_FILES_PATH, "%s/train/class%zu/%07zu.jpg", files->root,
             n % JPEG_FILES_CLASSES, n);
}

static void folders_make(const struct jpeg_files *files)
{
    char path[JPEG_FILES_PATH];
    snprintf(path, sizeof path, "%s/train", files->root);
    if (mkdir(files->root, 0700) != 0 || mkdir(path, 0700) != 0)
        fail_errno(path);
    for (int class = 0; class < JPEG_FILES_CLASSES; class ++) {
        snprintf(path, sizeof path, "%s/train/class%d", files->root, class);
        if (mkdir(path, 0700) != 0)
            fail_errno(path);
    }
}

/* Waves in each colour and noise: about two bits a pixel at quality 85, as photographs. */
static void pixels_make(const struct jpeg_files *files, size_t n, uint8_t *out)
{
    uint64_t state = random_stream(7, n);
    const double down = 0.02 + 0.2 * random_unit(&state), right = 0.02 + 0.2 * random_unit(&state);
    for (size_t y = 0; y < files->height; y++)
        for (size_t x = 0; x < files->width; x++) {
            const double wave = sin(down * (double)y) * cos(right * (double)x);
            const uint64_t noise = random_next(&state);
            for (int c = 0; c < 3; c++)
                *out++ = (uint8_t)(110 + 70 * wave + 10 * c + (double)(noise >> 8 * c & 31));
        }
}

static void jpeg_write(const struct jpeg_files *files, size_t n, const uint8_t *pixels)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    char path[JPEG_FILES_PATH];
    jpeg_files_path(files, n, path);
    FILE *file = fopen(path, "wb");
    if (!file)
        fail_errno(path);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_height = (JDIMENSION)files->height;
    jpeg.image_width = (JDIMENSION)files->width;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 85, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW row = (JSAMPROW)(pixels + jpeg.next_scanline * files->width * 3);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    if (fclose(file) != 0)
        fail_errno(path);
}

void jpeg_files_make(const struct jpeg_files *files, int threads)
{
    folders_make(files);
#pragma omp parallel num_threads(threads)
    {
        uint8_t *pixels = malloc(files->height * files->width * 3);
        if (!pixels)
            program_fail("no memory for an image");
#pragma omp for schedule(dynamic)
        for (size_t n = 0; n < files->count; n++) {
            pixels_make(files, n, pixels);
            jpeg_write(files, n, pixels);
        }
        free(pixels);
    }
}

static int entry_remove(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about;
    (void)kind;
    (void)where;
    return remove(path);
}

/* Writes a file's pages to the disk and gives them back. */
void file_cool(const char *path)
{
    const int file = open(path, O_RDONLY);
    if (file < 0 || fdatasync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0)
        fail_errno(path);
    close(file);
}

void jpeg_files_cool(const struct jpeg_files *files)
{
    for (size_t n = 0; n < files->count; n++) {
        char path[JPEG_FILES_PATH];
        jpeg_files_path(files, n, path);
        file_cool(path);
    }
}

void folder_make(const char *parent, char out[JPEG_FILES_ROOT])
{
    const int length = snprintf(out, JPEG_FILES_ROOT, "%s/alnico-input-XXXXXX", parent);
    if (length >= JPEG_FILES_ROOT - 16)
        program_fail("%s: expected a shorter name", parent);
    if (!mkdtemp(out))
        fail_errno(out);
}

void folder_remove(const char *path)
{
    if (nftw(path, entry_remove, 16, FTW_DEPTH | FTW_PHYS) != 0)
        fail_errno(path);
}
