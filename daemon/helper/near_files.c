#include "daemon/helper/near_files.h"

#include "daemon/data/files/source.h"
#include "proto/common/fd_io.h"
#include "proto/remote_wire.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* ---- which ---------------------------------------------------------------------------------- */

/* It begins as the name does, up to a pattern's first folder with a wildcard, or is that folder.
 * `beside`: what is in the folder of the name counts, too. */
static bool near_files_begins(const char *name, bool beside, const char *path)
{
    size_t n = name ? strcspn(name, "*?[{\\") : 0;
    bool cut = beside || (n > 0 && name[n] != '\0');

    while (cut && n > 0 && name[n - 1] != '/')
        n--;
    return n > 1 && (strncmp(path, name, n) == 0 || (name[n - 1] == '/' && strlen(path) == n - 1 &&
                                                     memcmp(path, name, n - 1) == 0));
}

bool near_files_named(const struct spec_dataset *dataset, const char *path)
{
    const char *const others[] = {dataset->model, dataset->chat_template, dataset->pictures_root,
                                  dataset->index_path};
    const bool beside = dataset->listed; /* it names others, from there on */
    size_t len = strlen(path);

    if (path[0] != '/' || strstr(path, "/../") || (len >= 3 && strcmp(path + len - 3, "/..") == 0))
        return false;
    for (uint32_t i = 0; i < dataset->n_files; i++) {
        if (near_files_begins(dataset->files[i].path, beside, path))
            return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        if (near_files_begins(others[i], false, path))
            return true;
    }
    for (uint32_t i = 0; i < dataset->n_datasets; i++) {
        if (near_files_named(&dataset->datasets[i], path))
            return true;
    }
    return false;
}

/* ---- answers -------------------------------------------------------------------------------- */

static int near_files_describe(const struct stat *st, struct dl_msg_h_part *ret)
{
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode))
        return -EINVAL;
    *ret = (struct dl_msg_h_part){.sort = S_ISDIR(st->st_mode) ? REMOTE_DIRECTORY : REMOTE_OBJECT,
                                  .size = (uint64_t)st->st_size,
                                  .modified =
                                      st->st_mtim.tv_sec < 0 ? 0 : (uint64_t)st->st_mtim.tv_sec};
    return 0;
}

static int near_files_stat(const struct near_files *files, const char *path,
                           struct dl_msg_h_part *ret)
{
    struct stat st;
    int r = source_stat(path, true, &files->places.env, &st);

    return r < 0 ? r : near_files_describe(&st, ret);
}

/* An entry of struct remote_name. What is gone by now, or is no file, is left out. */
static int near_files_add_name(const struct near_files *files, const char *folder, const char *name,
                               struct dl_buffer *ret)
{
    const uint8_t zeroes[8] = {0};
    struct dl_msg_h_part what;
    char path[PATH_MAX];
    size_t len = strlen(name);

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path ||
        near_files_stat(files, path, &what) < 0)
        return 0;
    const struct remote_name head = {
        .bytes = what.size, .sort = (uint32_t)what.sort, .name_bytes = (uint32_t)len};
    int r = buffer_append(ret, &head, sizeof head);
    if (r == 0)
        r = buffer_append(ret, name, len + 1);
    if (r == 0)
        r = buffer_append(ret, zeroes, align_up(ret->len, 8) - ret->len);
    return r == 0 && ret->len > NEAR_FILES_MOST ? -E2BIG : r;
}

static int near_files_list(const struct near_files *files, const char *path, struct dl_buffer *ret)
{
    struct source_dir dir;
    struct dirent *entry;
    struct dl_error err = {0};
    int r = source_dir_open(path, &files->places.env, &dir, &err);

    while (r == 0 && (entry = source_dir_read(&dir)))
        r = near_files_add_name(files, path, entry->d_name, ret);
    source_dir_close(&dir);
    return r;
}

static void near_files_close(struct near_files *files)
{
    if (files->path)
        close_fdp(&files->fd);
    free(files->path);
    files->path = NULL;
}

/* Most questions are of the file of the one before. */
static int near_files_turn_to(struct near_files *files, const char *path)
{
    uint64_t bytes;
    struct dl_error err = {0};

    if (files->path && strcmp(files->path, path) == 0)
        return 0;
    near_files_close(files);
    int r = source_open_file(path, &files->places.env, &files->fd, &bytes, &err);
    if (r == 0 && !(files->path = strdup(path))) {
        close_fdp(&files->fd);
        r = -ENOMEM;
    }
    return r;
}

/* And what the file is: one that is read whole takes one question, if it is small. */
static int near_files_bytes(struct near_files *files, const struct dl_msg_h_read *msg,
                            const char *path, struct dl_msg_h_part *ret,
                            struct dl_buffer *ret_bytes)
{
    struct stat st;
    int r = near_files_turn_to(files, path);

    if (r == 0)
        r = fstat(files->fd, &st) < 0 ? -errno : near_files_describe(&st, ret);
    if (r < 0)
        return r;
    uint64_t bytes = min_u64(msg->bytes, ret->size - min_u64(msg->first, ret->size));
    r = buffer_reserve(ret_bytes, bytes);
    if (r < 0)
        return r;
    int64_t got = fd_pread_all(files->fd, ret_bytes->data, bytes, msg->first);
    ret_bytes->len = got < 0 ? 0 : (size_t)got;
    return got < 0 ? (int)got : 0;
}

int near_files_read(struct near_files *files, const struct dl_msg_h_read *msg,
                    struct dl_msg_h_part *ret, struct dl_buffer *ret_bytes)
{
    _cleanup_free_ char *path = span_dup(msg->path);
    int r;

    *ret = (struct dl_msg_h_part){0};
    if (!path)
        return -ENOMEM;
    if (!files->on || msg->bytes > NEAR_FILES_MOST)
        return -EBADMSG;
    if (!near_files_named(&files->spec.dataset, path)) {
        fprintf(stderr, "a helper reads %s, which the spec does not name\n", path);
        return -EACCES; /* the helper is of no use, and no sample is bad */
    }
    if (msg->what == NEAR_FILES_STAT)
        r = near_files_stat(files, path, ret);
    else if (msg->what == NEAR_FILES_LIST)
        r = near_files_list(files, path, ret_bytes);
    else
        r = near_files_bytes(files, msg, path, ret, ret_bytes);
    if (r < 0) {
        *ret = (struct dl_msg_h_part){.code = (uint64_t)-r};
        ret_bytes->len = 0;
    }
    ret->bytes = ret_bytes->len;
    return 0;
}

int near_files_open(struct near_files *files, const struct dl_msg_w_open *msg, struct dl_error *err)
{
    int r = packed_spec_read(msg->spec, &files->spec, err);

    if (r == 0)
        r = packed_env_read(&files->places, msg->roots, msg->seen_as, err);
    files->on = r == 0;
    return r;
}

void near_files_deinit(struct near_files *files)
{
    near_files_close(files);
    spec_deinit(&files->spec);
    packed_env_deinit(&files->places);
}
