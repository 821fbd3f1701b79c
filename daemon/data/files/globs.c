#include "daemon/data/files/globs.h"

#include "daemon/data/files/remote.h"
#include "daemon/data/files/source.h"
#include "proto/common/array.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>

/* Digits of a range's ends: so that they fit 64 bits with room to count. */
enum { RANGE_DIGITS = 18 };

static int globs_out_of_memory(struct dl_error *err)
{
    return dl_error_set(err, ENOMEM, "dataset", "out of memory for the list of files");
}

static int globs_too_many(const char *pattern, struct dl_error *err)
{
    return dl_error_set(err, E2BIG, pattern,
                        "the list now has more than %u files, or %u bytes of paths; put "
                        "samples into fewer, larger files, or name a part of them",
                        (unsigned)FILE_LIST_MAX, (unsigned)FILE_LIST_BYTES);
}

/* Takes `path` over, even on failure. `pattern`: what it came from. */
static int globs_append(struct file_list *list, char *path, const char *pattern,
                        struct dl_error *err)
{
    _cleanup_free_ char *own = path;

    if (!own)
        return globs_out_of_memory(err);
    list->bytes += strlen(own);
    if (list->n == FILE_LIST_MAX || list->bytes > FILE_LIST_BYTES)
        return globs_too_many(pattern, err);
    if (!array_reserve(list->paths, list->room, list->n + UINT64_C(1)))
        return globs_out_of_memory(err);
    list->paths[list->n++] = steal_ptr(own);
    return 0;
}

int file_list_add(struct file_list *list, const char *path, struct dl_error *err)
{
    if (!path)
        return dl_error_set(err, EINVAL, "dataset.paths", "one has no path");
    return globs_append(list, strdup(path), path, err);
}

void file_list_deinit(struct file_list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        free(list->paths[i]);
    free(list->paths);
    *list = (struct file_list){0};
}

/* ---- ranges --------------------------------------------------------------------------------- */

struct globs_range {
    const char *begin; /* of "{000..127}" */
    const char *end;   /* behind it */
    uint64_t first;
    uint64_t last;
    int width; /* digits at least */
};

/* Reads digits at `at`; returns how many, or 0 without any, or if they are too many for a
 * number. */
static int globs_take_digits(const char *at, uint64_t *ret)
{
    uint64_t value = 0;
    int n = 0;

    for (; isdigit((unsigned char)at[n]); n++) {
        if (n == RANGE_DIGITS)
            return 0;
        value = 10 * value + (uint64_t)(at[n] - '0');
    }
    *ret = value;
    return n;
}

static bool globs_take_range(const char *at, struct globs_range *ret)
{
    struct globs_range range = {.begin = at};
    int first, last;

    first = globs_take_digits(at + 1, &range.first);
    if (first == 0 || strncmp(at + 1 + first, "..", 2) != 0)
        return false;
    at += 1 + first + 2;
    last = globs_take_digits(at, &range.last);
    if (last == 0 || at[last] != '}')
        return false;
    range.end = at + last + 1;
    /* As in bash: leading zeroes are kept, but not in "{8..10}". */
    if (range.begin[1] == '0' || *at == '0')
        range.width = first > last ? first : last;
    *ret = range;
    return true;
}

/* Braces that hold anything else are part of the name. */
static bool globs_find_range(const char *path, struct globs_range *ret)
{
    for (const char *at = strchr(path, '{'); at; at = strchr(at + 1, '{')) {
        if (globs_take_range(at, ret))
            return true;
    }
    return false;
}

/* Appends what `path` stands for; `pattern` is what the user wrote. */
static int globs_expand_ranges(struct file_list *list, const char *path, const char *pattern,
                               struct dl_error *err)
{
    struct globs_range range;
    int r = 0;

    if (!globs_find_range(path, &range))
        return globs_append(list, strdup(path), pattern, err);
    if (range.first > range.last)
        return dl_error_set(err, EINVAL, pattern,
                            "the range {%llu..%llu} counts down; write {%llu..%llu}",
                            (ull)range.first, (ull)range.last, (ull)range.last, (ull)range.first);
    if (range.last - range.first >= FILE_LIST_MAX - list->n)
        return globs_too_many(pattern, err);
    for (uint64_t i = range.first; i <= range.last && r == 0; i++) {
        _cleanup_free_ char *one = NULL;
        if (asprintf(&one, "%.*s%0*llu%s", (int)(range.begin - path), path, range.width, (ull)i,
                     range.end) < 0) {
            one = NULL;
            return globs_out_of_memory(err);
        }
        r = globs_expand_ranges(list, one, pattern, err);
    }
    return r;
}

/* ---- patterns ------------------------------------------------------------------------------- */

/* The directory that glob() would begin to read in: all before the first special character. */
static char *globs_fixed_directory(const char *pattern)
{
    size_t len = strcspn(pattern, "*?[\\");

    while (len > 1 && pattern[len - 1] != '/')
        len--;
    return strndup(pattern, len);
}

/* glob() passes no context to the functions that it calls. */
static _Thread_local struct {
    char dir[DL_ERROR_PATH_MAX];
    int code;
    const struct data_env *env; /* borrowed, for a call with a reader, or with progress */
    struct dl_error why;        /* of a directory that could not be opened */
    uint64_t looked_at;         /* names, in all directories of a pattern */
} globs_context;

static int globs_note_failure(const char *dir, int code)
{
    if (code == ENOENT)
        return 0;
    snprintf(globs_context.dir, sizeof globs_context.dir, "%s", dir);
    globs_context.code = code;
    return 1;
}

/* ---- glob()'s functions, for a reader, or to report progress ------------------------------- */

static void *globs_open_directory(const char *path)
{
    struct source_dir *dir = malloc(sizeof *dir);
    int r = dir ? source_dir_open(path, globs_context.env, dir, &globs_context.why) : -ENOMEM;

    if (r < 0) {
        free(dir);
        errno = -r;
        return NULL;
    }
    return dir;
}

static struct dirent *globs_read_directory(void *dir)
{
    if (++globs_context.looked_at % DATA_TELL_EVERY == 0)
        data_tell(globs_context.env, "names looked at", globs_context.looked_at, UINT64_MAX);
    return source_dir_read(dir);
}

static void globs_close_directory(void *dir)
{
    source_dir_close(dir);
    free(dir);
}

static int globs_stat_as(const char *path, bool follow, struct stat *ret)
{
    int r = source_stat(path, follow, globs_context.env, ret);

    if (r < 0)
        errno = -r;
    return r < 0 ? -1 : 0;
}

static int globs_stat(const char *path, struct stat *ret)
{
    return globs_stat_as(path, true, ret);
}

static int globs_lstat(const char *path, struct stat *ret)
{
    return globs_stat_as(path, false, ret);
}

static void globs_look_by_ourselves(const struct data_env *env, glob_t *found)
{
    globs_context.env = env;
    globs_context.looked_at = 0;
    globs_context.why = (struct dl_error){0};
    found->gl_opendir = globs_open_directory;
    found->gl_readdir = globs_read_directory;
    found->gl_closedir = globs_close_directory;
    found->gl_stat = globs_stat;
    found->gl_lstat = globs_lstat;
}

static int globs_compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int globs_judge_glob(int r, const char *pattern, struct dl_error *err)
{
    switch (r) {
    case 0:
        return 0;
    case GLOB_NOMATCH:
        return dl_error_set(err, EINVAL, pattern,
                            "matches no file; if it is a file's name, write a backslash before "
                            "each * ? [ in it");
    case GLOB_ABORTED:
        if (remote_is_url(pattern))
            return dl_error_set(err, globs_context.code, pattern, "%s", globs_context.why.message);
        return dl_error_set(err, globs_context.code, pattern, "%s cannot be searched: %s",
                            globs_context.dir, strerror(globs_context.code));
    default:
        return globs_out_of_memory(err);
    }
}

static int globs_expand_glob(struct file_list *list, const char *pattern,
                             const struct data_env *env, struct dl_error *err)
{
    _cleanup_(globfree) glob_t found = {0};
    _cleanup_free_ char *dir = globs_fixed_directory(pattern);
    int r;

    if (!dir)
        return globs_out_of_memory(err);
    /* A ".." behind a special character would lead out of the directory that is looked at here. */
    if (strstr(pattern + strlen(dir), ".."))
        return dl_error_set(err, EINVAL, pattern,
                            "has .. after one of * ? [; name the directory itself");
    r = source_allows(dir, pattern, env, err);
    if (r < 0)
        return r;
    /* Sorted by us: glob() does it by the locale, and the order decides which sample is which. */
    bool ours = env->reader || env->progress || env->seen_as || env->remote;
    if (ours)
        globs_look_by_ourselves(env, &found);
    r = globs_judge_glob(
        glob(pattern, GLOB_NOSORT | (ours ? GLOB_ALTDIRFUNC : 0), globs_note_failure, &found),
        pattern, err);
    if (r < 0)
        return r;
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, globs_compare_paths);
    for (size_t i = 0; i < found.gl_pathc && r == 0; i++)
        r = globs_append(list, strdup(found.gl_pathv[i]), pattern, err);
    return r;
}

/* A web URL has no directories to list, and a ? before its query. */
static bool globs_is_web(const char *path)
{
    return remote_is_url(path) && strncmp(path, "http", 4) == 0;
}

void file_list_expect(const struct file_list *list, const struct data_env *env)
{
    for (uint32_t i = 0; env->remote && i < list->n; i++) {
        if (remote_is_url(list->paths[i]))
            remote_expect_part(env->remote, list->paths[i], 0, REMOTE_BLOCK_BYTES);
    }
}

int file_list_find(const struct spec_dataset *spec, const struct data_env *env,
                   struct file_list *ret, struct dl_error *err)
{
    _cleanup_(file_list_deinit) struct file_list list = {0};
    _cleanup_(file_list_deinit) struct file_list patterns = {0};
    int r = 0;

    for (uint32_t i = 0; i < spec->n_files && r == 0; i++) {
        const char *path = spec->files[i].path;
        if (!path)
            return dl_error_set(err, EINVAL, "dataset.paths", "file %u has no path", i);
        r = globs_expand_ranges(&patterns, path, path, err);
    }
    for (uint32_t i = 0; i < patterns.n && r == 0; i++) {
        char *path = patterns.paths[i];
        if (strpbrk(path, "*?[\\") && !globs_is_web(path))
            r = globs_expand_glob(&list, path, env, err);
        else
            r = globs_append(&list, steal_ptr(patterns.paths[i]), path, err);
    }
    if (r < 0)
        return r;
    if (list.n == 0)
        return dl_error_set(err, EINVAL, "dataset", "has no files; name at least one");
    *ret = list;
    list = (struct file_list){0};
    return 0;
}

int file_list_make(const struct spec_dataset *spec, const struct data_env *env,
                   struct file_list *ret, struct dl_error *err)
{
    int r = file_list_find(spec, env, ret, err);

    if (r == 0)
        file_list_expect(ret, env);
    return r;
}
