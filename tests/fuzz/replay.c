/*
 * Runs a harness over each file of the directories given, whole and cut off after each byte, or
 * after each eighth where the tests are to be quick. With $DLOADER_TEST_TURN, 0 to 3, it is cut off
 * after each fourth, and the other turns have the others. A directory without a file is an error: a
 * corpus that is not found would prove nothing.
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>

enum { LARGEST = 1 << 22, CUTS = 4096 };

static void closep(FILE **file)
{
    if (*file)
        fclose(*file);
}

static void closedirp(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

/* In a block of exactly its size, so that ASan sees one byte too far. */
static int run_exact(const uint8_t *data, size_t len)
{
    _cleanup_free_ uint8_t *copy = malloc(len ? len : 1);

    if (!copy)
        return -ENOMEM;
    memcpy(copy, data, len);
    LLVMFuzzerTestOneInput(copy, len);
    return 0;
}

struct cuts {
    size_t first;
    size_t step;
};

static struct cuts cuts_of_run(void)
{
    const char *turn = getenv("DLOADER_TEST_TURN");

    if (getenv("DLOADER_TEST_QUICK"))
        return (struct cuts){0, 8};
    if (turn && *turn)
        return (struct cuts){strtoul(turn, NULL, 10) % 4, 4};
    return (struct cuts){0, 1};
}

static int replay_file(const char *dir, const char *name)
{
    _cleanup_free_ uint8_t *data = malloc(LARGEST);
    _cleanup_free_ char *path = NULL;
    _cleanup_(closep) FILE *file = NULL;
    const struct cuts cuts = cuts_of_run();
    size_t len;
    int r;

    if (!data || asprintf(&path, "%s/%s", dir, name) < 0)
        return -ENOMEM;
    file = fopen(path, "rb");
    if (!file)
        return -errno;
    len = fread(data, 1, LARGEST, file);
    if (ferror(file))
        return -EIO;
    r = run_exact(data, len);
    for (size_t cut = cuts.first; r == 0 && cut < min_u64(len, CUTS); cut += cuts.step)
        r = run_exact(data, cut);
    return r;
}

/* Returns the number of files, or a negative errno. */
static int replay_dir(const char *path)
{
    _cleanup_(closedirp) DIR *dir = opendir(path);
    struct dirent *entry;
    int n = 0, r;

    if (!dir)
        return -errno;
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        r = replay_file(path, entry->d_name);
        if (r < 0)
            return r;
        n++;
    }
    return n > 0 ? n : -ENOENT;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s DIRECTORY...\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        int n = replay_dir(argv[i]);
        if (n < 0) {
            fprintf(stderr, "%s: %s\n", argv[i], strerror(-n));
            return 1;
        }
        printf("%s: %d inputs\n", argv[i], n);
    }
    return 0;
}
