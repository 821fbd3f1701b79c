/*
 * A file of the cache of lengths, whatever is in it: it is taken only if it is what was stored.
 *
 * Input: how many samples are asked for, a byte; the rest is the file.
 */
#include "tests/fuzz/fuzz.h"

#include "daemon/cache/lengths_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

enum { FINGERPRINT = 0x1234, MANY = 255 };

/* The one file that is there; its path in `ret`. False: there is none. */
static bool find_file(const char *dir, char *ret, size_t room)
{
    DIR *list = opendir(dir);
    const struct dirent *entry;
    bool found = false;

    FUZZ_ASSERT(list);
    while ((entry = readdir(list))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(ret, room, "%s/%s", dir, entry->d_name);
        found = true;
    }
    closedir(list);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const uint32_t lengths[MANY] = {1, 2, 3};
    char dir[] = "/dev/shm/dl-fuzz-XXXXXX", path[512]; /* a disk would be waited for */
    uint32_t got[MANY], again[MANY];

    if (len == 0)
        return 0;
    FUZZ_ASSERT(mkdtemp(dir));
    /* Where such a file lies, and that it is taken while it is sound. */
    FUZZ_ASSERT(lengths_cache_store(dir, FINGERPRINT, data[0], lengths, NULL) == 0);
    FUZZ_ASSERT(lengths_cache_load(dir, FINGERPRINT, data[0], got) == 0);
    FUZZ_ASSERT(memcmp(got, lengths, data[0] * sizeof *got) == 0);
    FUZZ_ASSERT(find_file(dir, path, sizeof path));

    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    FUZZ_ASSERT(fd >= 0 && write(fd, data + 1, len - 1) == (ssize_t)len - 1);
    close(fd);
    if (lengths_cache_load(dir, FINGERPRINT, data[0], got) == 0) {
        /* Sound: stored again it is the same. */
        FUZZ_ASSERT(lengths_cache_store(dir, FINGERPRINT, data[0], got, NULL) == 0);
        FUZZ_ASSERT(lengths_cache_load(dir, FINGERPRINT, data[0], again) == 0);
        FUZZ_ASSERT(memcmp(got, again, data[0] * sizeof *got) == 0);
    }
    (void)unlink(path);
    FUZZ_ASSERT(rmdir(dir) == 0);
    return 0;
}
