#include "proto/shared/weight_files.h"

#include "proto/common/fd_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

void weight_files_dir(char ret[PATH_MAX])
{
    const char *named = getenv("DLOADER_WEIGHTS"), *base = getenv("XDG_STATE_HOME");
    const char *below = "/dloader/weights";

    if (named && *named) {
        if (snprintf(ret, PATH_MAX, "%s", named) >= PATH_MAX)
            ret[0] = '\0';
        return;
    }
    if (!base || base[0] != '/') {
        base = getenv("HOME");
        below = "/.local/state/dloader/weights";
    }
    if (!base || base[0] != '/' || snprintf(ret, PATH_MAX, "%s%s", base, below) >= PATH_MAX)
        ret[0] = '\0';
}

static int weight_files_name(const char *dir, uint64_t sum, const char *end, char ret[PATH_MAX],
                             struct dl_error *err)
{
    if (!*dir)
        return dl_error_set(err, ENOENT, "DLOADER_WEIGHTS",
                            "neither it nor HOME names a directory where weights of samples are "
                            "kept");
    if (snprintf(ret, PATH_MAX, "%s/%016" PRIx64 ".f64%s", dir, sum, end) >= PATH_MAX)
        return dl_error_set(err, ENAMETOOLONG, dir, "%s", strerror(ENAMETOOLONG));
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* All directories of a path that are not there. */
static int weight_files_make_dir(const char *dir)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s", dir);
    for (char *at = path + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return -errno;
        *at = '/';
    }
    return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

int weight_files_store(const char *dir, const double *weights, uint64_t n, struct dl_error *err)
{
    uint64_t sum = weight_table_sum(weights, n);
    char path[PATH_MAX], draft[PATH_MAX];
    int r = weight_files_name(dir, sum, "", path, err);

    if (r == 0)
        r = weight_files_name(dir, sum, ".XXXXXX", draft, err);
    if (r < 0)
        return r;
    r = weight_files_make_dir(dir);
    if (r < 0)
        return dl_error_set(err, -r, dir,
                            "cannot be made, to keep weights in: %s; see "
                            "DLOADER_WEIGHTS",
                            strerror(-r));
    _cleanup_fd_ int fd = mkostemp(draft, O_CLOEXEC);
    if (fd < 0)
        return dl_error_set(err, errno, dir,
                            "weights cannot be kept there: %s; see "
                            "DLOADER_WEIGHTS",
                            strerror(errno));
    r = fd_write_all(fd, weights, n * sizeof *weights);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r == 0 && rename(draft, path) < 0)
        r = -errno;
    if (r < 0) {
        (void)unlink(draft);
        return dl_error_set(err, -r, path, "cannot be written: %s", strerror(-r));
    }
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int weight_files_take(int fd, const char *path, uint64_t sum, uint64_t n,
                             struct weight_table **ret, struct dl_error *err)
{
    _cleanup_(weight_table_unrefp) struct weight_table *table = NULL;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return dl_error_set(err, errno, path, "%s", strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != n * sizeof(double))
        return dl_error_set(err, EINVAL, path, "is not a file of %" PRIu64 " weights", n);
    double *weights = malloc(max_u64(n, 1) * sizeof *weights);
    if (!weights)
        return dl_error_set(err, ENOMEM, path, "no memory for %" PRIu64 " weights", n);
    int64_t got = fd_pread_all(fd, weights, n * sizeof *weights, 0);
    if (got != st.st_size) {
        int code = got < 0 ? (int)-got : EINVAL;
        free(weights);
        return dl_error_set(err, code, path, "%s", strerror(code));
    }
    if (weight_table_of(weights, n, &table) < 0)
        return dl_error_set(err, ENOMEM, path, "%s", strerror(ENOMEM));
    if (table->sum != sum)
        return dl_error_set(err, EINVAL, path,
                            "is damaged: its content has the sum %016" PRIx64
                            "; copy it again from where the weights were given",
                            table->sum);
    int r = weight_table_check(table->weights, n, err);
    *ret = r == 0 ? steal_ptr(table) : NULL;
    return r;
}

int weight_files_load(const char *dir, uint64_t sum, uint64_t n, struct weight_table **ret,
                      struct dl_error *err)
{
    char path[PATH_MAX];
    int r = weight_files_name(dir, sum, "", path, err);

    if (r < 0)
        return r;
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return dl_error_set(err, errno, path,
                            "the state needs these weights of samples: %s; copy them there from "
                            "where they were given, or name their directory by DLOADER_WEIGHTS",
                            strerror(errno));
    return weight_files_take(fd, path, sum, n, ret, err);
}

int weight_files_fill(const char *dir, struct mix_changes *changes, uint64_t epoch,
                      struct dl_error *err)
{
    int r = 0;

    if (!changes || !changes->of_samples)
        return 0;
    uint32_t first, end = mix_changes_of_epoch(changes, epoch, &first);
    for (uint32_t i = first; r == 0 && i < end; i++)
        if (!changes->items[i].table)
            r = weight_files_load(dir, changes->items[i].sum, changes->n, &changes->items[i].table,
                                  err);
    return r;
}
