#include "daemon/data/kinds/parquet/files.h"
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/files/remote.h"
#include "daemon/data/files/source.h"
#include "proto/common/array.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <strings.h>

enum { FILES_DEPTH_MAX = 32 };

/* A walk through one path of the spec. */
struct files_walk {
    const struct data_env *env;
    struct parquet_files *files;
    uint32_t from;
    struct dl_error *err;
};

void parquet_files_deinit(struct parquet_files *files)
{
    file_list_deinit(&files->list);
    free(files->from);
    *files = (struct parquet_files){0};
}

static int files_no_memory(const char *path, struct dl_error *err)
{
    return dl_error_set(err, ENOMEM, path, "out of memory for the list of its files");
}

static int files_add(struct files_walk *w, const char *path)
{
    struct parquet_files *files = w->files;
    uint32_t n = files->list.n;

    if (!array_reserve(files->from, files->from_room, n + UINT64_C(1)))
        return files_no_memory(path, w->err);
    files->from[n] = (uint32_t)min_u64(w->from, strlen(path));
    return file_list_add(&files->list, path, w->err);
}

/* ---- directories ---------------------------------------------------------------------------- */

static bool files_is_name(const char *name)
{
    static const char *const endings[] = {".parquet", ".parq", ".pq"};
    size_t len = strlen(name);

    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        size_t n = strlen(endings[i]);
        if (len > n && strcasecmp(name + len - n, endings[i]) == 0)
            return true;
    }
    return false;
}

/* The names in it that may count; those that are known to be directories end in a slash. */
static int files_names_of(const char *path, const struct data_env *env, struct file_list *ret,
                          struct dl_error *err)
{
    struct dirent *entry;
    struct source_dir dir;
    int r = source_dir_open(path, env, &dir, err);

    if (r < 0)
        return r;
    while (r == 0 && (entry = source_dir_read(&dir))) {
        char name[sizeof entry->d_name + 1];
        if (entry->d_name[0] == '.' || entry->d_name[0] == '_')
            continue;
        snprintf(name, sizeof name, "%s%s", entry->d_name, entry->d_type == DT_DIR ? "/" : "");
        r = file_list_add(ret, name, err);
    }
    if (r == 0 && errno != 0)
        r = dl_error_set(err, errno, path, "cannot be listed: %s", strerror(errno));
    source_dir_close(&dir);
    return r;
}

/* Without the slash. */
static int files_compare(const void *a, const void *b)
{
    const char *one = *(char *const *)a, *other = *(char *const *)b;
    size_t n = strcspn(one, "/"), n_other = strcspn(other, "/");
    int r = memcmp(one, other, min_u64(n, n_other));

    return r != 0 ? r : (n > n_other) - (n < n_other);
}

static int files_walk_directory(struct files_walk *w, const char *path, unsigned depth);

static int files_walk_name(struct files_walk *w, const char *folder, const char *name,
                           unsigned depth)
{
    char path[DL_BOUND_PATH_BYTES];
    struct stat st;
    size_t n = strcspn(name, "/");
    bool is_directory = name[n] == '/';
    int len = snprintf(path, sizeof path, "%s/%.*s", folder, (int)n, name);

    if (len < 0 || (size_t)len >= sizeof path)
        return dl_error_set(w->err, ENAMETOOLONG, folder, "has names that are too long for a path");
    if (files_is_name(path))
        return files_add(w, path);
    if (is_directory)
        return files_walk_directory(w, path, depth + 1);
    /* A dangling link without one of our suffixes is ignored. */
    if (source_stat(path, true, w->env, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    return files_walk_directory(w, path, depth + 1);
}

/* Those of a URL are listed at once. */
static void files_expect_directory(const struct files_walk *w, const char *folder, const char *name)
{
    char path[DL_BOUND_PATH_BYTES];
    size_t n = strcspn(name, "/");
    int len = snprintf(path, sizeof path, "%s/%.*s", folder, (int)n, name);

    if (name[n] == '/' && !files_is_name(path) && w->env->remote && remote_is_url(folder) &&
        (size_t)len < sizeof path)
        remote_expect_list(w->env->remote, path);
}

static int files_walk_directory(struct files_walk *w, const char *path, unsigned depth)
{
    _cleanup_(file_list_deinit) struct file_list names = {0};

    if (depth > FILES_DEPTH_MAX)
        return dl_error_set(w->err, ELOOP, path, "has directories nested without end");
    int r = files_names_of(path, w->env, &names, w->err);
    if (r == 0 && names.n > 0)
        qsort(names.paths, names.n, sizeof *names.paths, files_compare);
    for (uint32_t i = 0; r == 0 && i < names.n; i++)
        files_expect_directory(w, path, names.paths[i]);
    for (uint32_t i = 0; r == 0 && i < names.n; i++)
        r = files_walk_name(w, path, names.paths[i], depth);
    return r;
}

/* ---- paths of the spec ---------------------------------------------------------------------- */

static int files_add_found(struct files_walk *w, const char *path)
{
    uint32_t before = w->files->list.n;
    struct stat st;

    if (source_stat(path, true, w->env, &st) < 0 || !S_ISDIR(st.st_mode))
        return files_add(w, path); /* errors are reported when it is opened */
    w->from = (uint32_t)min_u64(w->from, strlen(path));
    int r = files_walk_directory(w, path, 0);
    if (r == 0 && w->files->list.n == before)
        r = dl_error_set(w->err, EINVAL, path,
                         "has no file below it whose name ends in .parquet, .parq or .pq");
    return r;
}

/* From where on partitions may stand: behind a path without a pattern, or at the pattern's
 * directory. */
static uint32_t files_fixed_part(const char *path)
{
    size_t len = strcspn(path, "*?[{\\");

    while (path[len] && len > 0 && path[len - 1] != '/')
        len--;
    return (uint32_t)len;
}

static int files_add_path(const struct spec_file *file, const struct data_env *env,
                          struct parquet_files *files, struct dl_error *err)
{
    _cleanup_(file_list_deinit) struct file_list found = {0};
    struct spec_file copy = *file;
    const struct spec_dataset one = {.files = &copy, .n_files = 1};
    struct files_walk w = {.env = env, .files = files, .err = err};
    int r = file_list_make(&one, env, &found, err);

    for (uint32_t i = 0; r == 0 && i < found.n; i++) {
        w.from = files_fixed_part(file->path);
        r = files_add_found(&w, found.paths[i]);
    }
    return r;
}

/* Their footers, before the files are opened one by one. */
enum { FILES_FOOTER_BYTES = 64 * 1024 };

static void files_expect_footers(const struct file_list *list, const struct data_env *env)
{
    for (uint32_t i = 0; env->remote && i < list->n; i++) {
        if (remote_is_url(list->paths[i]))
            remote_expect_part(env->remote, list->paths[i], REMOTE_FROM_END, FILES_FOOTER_BYTES);
    }
}

int parquet_files_make(const struct spec_dataset *spec, const struct data_env *env,
                       struct parquet_files *ret, struct dl_error *err)
{
    struct parquet_files files = {0};
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < spec->n_files; i++)
        r = files_add_path(&spec->files[i], env, &files, err);
    if (r < 0) {
        parquet_files_deinit(&files);
        return r;
    }
    files_expect_footers(&files.list, env);
    *ret = files;
    return 0;
}

int parquet_list_files(const struct spec_dataset *spec, const struct data_env *env,
                       struct file_list *ret, struct dl_error *err)
{
    struct parquet_files files = {0};
    int r = parquet_files_make(spec, env, &files, err);

    for (uint32_t i = 0; r == 0 && i < files.list.n; i++)
        r = file_list_add(ret, files.list.paths[i], err);
    parquet_files_deinit(&files);
    return r;
}

/* ---- partitions ----------------------------------------------------------------------------- */

static int files_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool files_decode(const char *from, size_t len, char ret[static DL_BOUND_NAME_BYTES + 1])
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        int high = i + 2 < len ? files_hex(from[i + 1]) : -1;
        int low = high >= 0 ? files_hex(from[i + 2]) : -1;
        if (n == DL_BOUND_NAME_BYTES)
            return false;
        if (from[i] == '%' && low >= 0 && (high | low) != 0) {
            ret[n++] = (char)(high << 4 | low);
            i += 2;
        } else {
            ret[n++] = from[i];
        }
    }
    ret[n] = '\0';
    return true;
}

bool parquet_partition_next(const char **at, struct parquet_partition *ret)
{
    const char *end;

    for (; (end = strchr(*at, '/')); *at = end + 1) {
        const char *equals = memchr(*at, '=', (size_t)(end - *at));
        if (!equals || equals == *at || !files_decode(*at, (size_t)(equals - *at), ret->name) ||
            !files_decode(equals + 1, (size_t)(end - equals - 1), ret->value))
            continue;
        if (strcmp(ret->value, "__HIVE_DEFAULT_PARTITION__") == 0)
            *ret->value = '\0';
        *at = end + 1;
        return true;
    }
    return false;
}
