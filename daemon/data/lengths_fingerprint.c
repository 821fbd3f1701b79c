/* By what the lengths of a dataset are recognised: its description, and a look at its files. */
#include "daemon/data/globs.h"
#include "daemon/data/image/imagefolder_list.h"
#include "daemon/data/lengths.h"
#include "daemon/data/source.h"

#include <errno.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { EDGE_BYTES = 4096 };

/* The hash on its way. `r`: the first failure, which sticks. */
struct print {
    XXH3_state_t *hash; /* owned */
    const struct data_env *env;
    int r;
};

/* With its size, so that two texts are not taken for two others with the same letters. */
static void add(struct print *print, const void *data, uint64_t bytes)
{
    if (print->r < 0)
        return;
    if (XXH3_64bits_update(print->hash, &bytes, sizeof bytes) != XXH_OK ||
        (bytes > 0 && XXH3_64bits_update(print->hash, data, bytes) != XXH_OK))
        print->r = -EIO;
}

static void add_number(struct print *print, uint64_t number)
{
    add(print, &number, sizeof number);
}

/* ---- one file ------------------------------------------------------------------------------- */

static void add_edge(struct print *print, int fd, uint64_t begin, uint64_t bytes)
{
    uint8_t edge[EDGE_BYTES];
    uint64_t done = 0;

    while (done < bytes && print->r == 0) {
        ssize_t got = pread(fd, edge + done, bytes - done, (off_t)(begin + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) /* it became shorter: whatever is hashed now is of no use */
            print->r = got < 0 ? -errno : -EIO;
        else
            done += (uint64_t)got;
    }
    add(print, edge, done);
}

/*
 * The contents' time can be set back by who changes them, as rsync and tar do; the inode's cannot.
 */
static void add_file(struct print *print, const char *path)
{
    _cleanup_fd_ int fd = -1;
    struct stat st = {0};
    uint64_t bytes = 0;

    if (print->r < 0)
        return;
    print->r = source_open_file(path, print->env, &fd, &bytes, NULL);
    if (print->r == 0 && fstat(fd, &st) < 0)
        print->r = -errno;
    if (print->r < 0)
        return;
    bytes = (uint64_t)st.st_size;
    add(print, path, strlen(path));
    add_number(print, bytes);
    add_number(print, (uint64_t)st.st_mtim.tv_sec);
    add_number(print, (uint64_t)st.st_mtim.tv_nsec);
    add_number(print, (uint64_t)st.st_ctim.tv_sec);
    add_number(print, (uint64_t)st.st_ctim.tv_nsec);
    uint64_t edge = min_u64(bytes, EDGE_BYTES);
    add_edge(print, fd, 0, edge);
    add_edge(print, fd, bytes - edge, edge);
}

/* ---- all files ------------------------------------------------------------------------------ */

/* Those that the spec names as they are. */
static void add_named_files(struct print *print, const struct spec_dataset *spec)
{
    for (uint32_t i = 0; i < spec->n_files; i++)
        add_file(print, spec->files[i].path);
}

static void add_listed_files(struct print *print, const struct spec_dataset *spec)
{
    _cleanup_(file_list_deinit)
    struct file_list list = {0};

    print->r = file_list_make(spec, print->env, &list, NULL);
    for (uint32_t i = 0; i < list.n && print->r == 0; i++)
        add_file(print, list.paths[i]);
}

static void add_images(struct print *print, const struct spec_dataset *spec)
{
    struct image_list list = {0};
    char path[DL_BOUND_PATH_BYTES];

    print->r = image_list_make(spec->files[0].path, print->env, &list, NULL);
    for (uint64_t i = 0; i < list.n && print->r == 0; i++) {
        size_t len = 0;
        (void)image_list_get(&list, i, path, sizeof path, &len);
        if (len >= sizeof path)
            print->r = -ENAMETOOLONG;
        add_file(print, path);
    }
    image_list_deinit(&list);
}

/* What a dataset is read from. Of code nothing is known: it may read what it likes. */
static void add_files(struct print *print, const struct spec_dataset *spec)
{
    switch (spec->kind) {
    case DATASET_IDX:
    case DATASET_NPY:
    case DATASET_RECORDS:
    case DATASET_TOKENS:
        add_named_files(print, spec);
        break;
    case DATASET_TEXT:
    case DATASET_TAR:
        add_listed_files(print, spec);
        if (spec->model)
            add_file(print, spec->model);
        break;
    case DATASET_IMAGEFOLDER:
        add_images(print, spec);
        break;
    case DATASET_PLUGIN:
    case DATASET_PYTHON:
        print->r = -ENOTSUP;
        break;
    case DATASET_RANGE:
    case DATASET_CONCAT:
    case DATASET_SUBSET:
    case DATASET_SPLIT:
    case DATASET_CHAIN:
        break;
    }
    for (uint32_t i = 0; i < spec->n_datasets && print->r == 0; i++)
        add_files(print, &spec->datasets[i]);
}

static void add_description(struct print *print, const struct spec_dataset *spec, const char *leaf)
{
    _cleanup_(value_deinit)
    struct value value = {0};
    _cleanup_(buffer_deinit)
    struct dl_buffer packed = {0};

    print->r = spec_dataset_to_value(spec, &value);
    if (print->r == 0)
        print->r = value_pack(&value, &packed);
    add(print, packed.data, packed.len);
    add_number(print, leaf != NULL);
    add(print, leaf, leaf ? strlen(leaf) : 0);
}

uint64_t lengths_fingerprint(const struct spec_dataset *spec, const char *leaf,
                             const struct data_env *env)
{
    struct print print = {.hash = XXH3_createState(), .env = env};
    uint64_t hash = 0;

    if (!print.hash || XXH3_64bits_reset(print.hash) != XXH_OK)
        print.r = -ENOMEM;
    if (print.r == 0)
        add_description(&print, spec, leaf);
    if (print.r == 0)
        add_files(&print, spec);
    if (print.r == 0)
        hash = max_u64(XXH3_64bits_digest(print.hash), 1); /* 0 says that there is none */
    XXH3_freeState(print.hash);
    return hash;
}
