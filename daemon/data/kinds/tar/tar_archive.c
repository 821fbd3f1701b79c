#include "daemon/data/kinds/tar/tar_archive.h"

#include <errno.h>

static int tar_archive_open_source(const char *path, const struct data_env *env, struct source *ret,
                                   struct stat *ret_st, enum compression *ret_by,
                                   struct dl_error *err)
{
    int r = source_open_known(path, env, ret, ret_st, err);

    if (r < 0)
        return r;
    *ret_by = compression_of(ret->data, ret->bytes);
    if (compression_is_built_in(*ret_by))
        return 0;
    source_close(ret);
    return dl_error_set(err, EINVAL, path,
                        "is compressed by %s; unpack it, so that its members can be read in place",
                        compression_name(*ret_by));
}

int tar_archive_check(const char *path, const struct data_env *env, enum compression *ret_by,
                      struct dl_error *err)
{
    struct source source = {0};
    struct stat st;
    int r = tar_archive_open_source(path, env, &source, &st, ret_by, err);

    source_close(&source);
    return r;
}

int tar_archive_open(const char *path, const struct data_env *env, struct tar_archive *ret,
                     struct dl_error *err)
{
    struct tar_archive archive = {0};
    enum compression by;
    int r = tar_archive_open_source(path, env, &archive.source, &archive.st, &by, err);

    if (r < 0)
        return r;
    archive.view =
        (struct tar_view){.path = path, .data = archive.source.data, .bytes = archive.source.bytes};
    if (by != COMPRESSION_NONE) {
        r = unpack(by, archive.source.data, archive.source.bytes, TAR_UNPACKED_MAX, path,
                   &archive.unpacked, &archive.view.bytes, err);
        source_close(&archive.source);
        archive.view.data = archive.unpacked;
    }
    if (r == 0)
        *ret = archive;
    return r;
}

void tar_archive_close(struct tar_archive *archive)
{
    source_close(&archive->source);
    free(archive->unpacked);
    *archive = (struct tar_archive){0};
}
