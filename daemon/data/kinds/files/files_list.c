#include "daemon/data/kinds/files/files_list.h"

#include "daemon/data/files/file_hasher.h"
#include "daemon/data/files/remote.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/kinds.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

/* ---- text files of paths -------------------------------------------------------------------- */

/* A line of the text file at `from`. */
static int files_list_add_line(struct file_list *list, const char *from, const uint8_t *line,
                               size_t len, struct dl_error *err)
{
    const char *slash = strrchr(from, '/');
    _cleanup_free_ char *name = span_dup((struct dl_span){line, len});
    _cleanup_free_ char *path = NULL;
    int dir = slash ? (int)(slash - from) + 1 : 0;

    if (!name)
        return dl_error_set(err, ENOMEM, from, "out of memory for its paths");
    if (strlen(name) != len || len > DL_MAX_PATH_BYTES)
        return dl_error_set(err, EINVAL, from,
                            "its path %u has a NUL, or more than %llu bytes; it is to have a path "
                            "in each line",
                            list->n + 1, (ull)DL_MAX_PATH_BYTES);
    if (name[0] == '/' || remote_is_url(name))
        dir = 0;
    if (asprintf(&path, "%.*s%s", dir, from, name) < 0) {
        path = NULL;
        return dl_error_set(err, ENOMEM, from, "out of memory for its paths");
    }
    return file_list_add(list, path, err);
}

/* Lines end in \n or \r\n; empty ones are passed over. */
static int files_list_add_lines(struct file_list *list, const char *path,
                                const struct data_env *env, struct dl_error *err)
{
    _cleanup_(source_close) struct source source = {0};
    int r = source_open(path, env, &source, err);

    for (uint64_t at = 0; r == 0 && at < source.bytes;) {
        const uint8_t *line = source.data + at;
        const uint8_t *end = memchr(line, '\n', source.bytes - at);
        size_t len = end ? (size_t)(end - line) : source.bytes - at;
        at += len + 1;
        if (len > 0 && line[len - 1] == '\r')
            len--;
        if (len > 0)
            r = files_list_add_line(list, path, line, len, err);
    }
    return r;
}

/* ---- directories ---------------------------------------------------------------------------- */

/* The pattern for all files of a directory. NULL: out of memory. */
static char *files_list_pattern_in(const char *dir)
{
    static const char all[] = "/*";
    size_t len = strlen(dir);
    char *pattern = malloc(2 * len + sizeof all), *to = pattern;

    for (size_t i = 0; pattern && i < len; i++) {
        if (strchr("*?[\\", dir[i]))
            *to++ = '\\';
        *to++ = dir[i];
    }
    if (pattern)
        memcpy(to, all, sizeof all);
    return pattern;
}

/* A URL that is one names no directory, which nobody need ask for then. */
static bool files_list_is_pattern(const char *path)
{
    return remote_is_url(path) && strpbrk(path, "*[{");
}

static int files_list_add_path(struct file_list *list, const struct spec_file *file,
                               const struct data_env *env, struct dl_error *err)
{
    _cleanup_(file_list_deinit) struct file_list found = {0};
    _cleanup_free_ char *pattern = NULL;
    struct spec_file one = *file;
    const struct spec_dataset spec = {.files = &one, .n_files = 1};
    struct stat st;

    if (!files_list_is_pattern(file->path) && source_stat(file->path, true, env, &st) == 0 &&
        S_ISDIR(st.st_mode)) {
        one.path = pattern = files_list_pattern_in(file->path);
        if (!pattern)
            return dl_error_set(err, ENOMEM, file->path, "out of memory for its files");
    }
    int r = file_list_find(&spec, env, &found, err);
    for (uint32_t i = 0; r == 0 && i < found.n; i++)
        r = file_list_add(list, found.paths[i], err);
    return r;
}

/* Whether a URL is a file or a directory, a request for the file says, and brings it: unless there
 * are so many that it would not stay until it is read. */
enum { FILES_WHOLE = 256, FILES_WHOLE_BYTES = 4 << 20 };

static void files_list_expect(const struct spec_dataset *spec, const struct data_env *env)
{
    uint64_t bytes = spec->n_files <= FILES_WHOLE ? FILES_WHOLE_BYTES : REMOTE_BLOCK_BYTES;

    for (uint32_t i = 0; env->remote && !spec->listed && i < spec->n_files; i++) {
        const char *path = spec->files[i].path;
        if (remote_is_url(path) && !files_list_is_pattern(path))
            remote_expect_part(env->remote, path, 0, bytes);
    }
}

int files_list_files(const struct spec_dataset *spec, const struct data_env *env,
                     struct file_list *ret, struct dl_error *err)
{
    int r = 0;

    files_list_expect(spec, env);
    for (uint32_t i = 0; r == 0 && i < spec->n_files; i++)
        r = spec->listed ? files_list_add_lines(ret, spec->files[i].path, env, err)
                         : files_list_add_path(ret, &spec->files[i], env, err);
    if (r == 0 && ret->n == 0)
        return dl_error_set(err, EINVAL, spec->files[0].path, "names no file; name at least one");
    return r;
}

/* ---- as bytes ------------------------------------------------------------------------------- */

static uint64_t files_list_text_at(uint64_t files)
{
    return sizeof(struct files_list_head) + (files + 1) * sizeof(uint32_t);
}

bool files_list_is_sound(const uint8_t *data, uint64_t bytes)
{
    struct files_list_head head;

    if (bytes < sizeof head)
        return false;
    memcpy(&head, data, sizeof head);
    if (head.files == 0 || head.files > FILE_LIST_MAX || bytes < files_list_text_at(head.files))
        return false;
    const uint32_t *begins = (const void *)(data + sizeof head);
    const uint8_t *text = data + files_list_text_at(head.files);
    uint64_t room = bytes - files_list_text_at(head.files);
    for (uint64_t i = 0; i < head.files; i++) {
        if (begins[i] >= begins[i + 1] || begins[i + 1] > room || text[begins[i + 1] - 1] != 0)
            return false;
    }
    return begins[0] == 0 && begins[head.files] == room && head.fingerprint != 0;
}

static void files_list_take(struct shared_index *index, struct files_list *ret)
{
    const struct files_list_head *head = (const void *)index->data;

    *ret = (struct files_list){
        .index = *index,
        .begins = (const void *)(head + 1),
        .text = (const char *)index->data + files_list_text_at(head->files),
        .n = head->files,
        .fingerprint = head->fingerprint,
    };
    *index = (struct shared_index){0};
}

static bool files_list_find(const char *place, const struct data_env *env, struct files_list *ret)
{
    struct shared_index index;

    if (!shared_index_find(env, place, SHARED_INDEX_FILES, &index))
        return false;
    bool sound = files_list_is_sound(index.data, index.bytes);
    if (sound)
        files_list_take(&index, ret);
    shared_index_deinit(&index);
    return sound;
}

static uint64_t files_list_hash(const struct file_list *files, const struct data_env *env)
{
    struct file_hasher hasher;

    file_hasher_begin(&hasher, env);
    for (uint32_t i = 0; i < files->n; i++)
        file_hasher_add(&hasher, files->paths[i], strlen(files->paths[i]));
    return file_hasher_end(&hasher);
}

static int files_list_pack(const struct file_list *files, const struct data_env *env,
                           struct dl_buffer *ret)
{
    struct files_list_head head = {.files = files->n, .fingerprint = files_list_hash(files, env)};
    uint32_t begin = 0;
    int r = head.fingerprint ? buffer_append(ret, &head, sizeof head) : -ENOMEM;

    if (r == 0)
        r = buffer_append(ret, &begin, sizeof begin);
    for (uint32_t i = 0; r == 0 && i < files->n; i++) {
        begin += (uint32_t)strlen(files->paths[i]) + 1;
        r = buffer_append(ret, &begin, sizeof begin);
    }
    for (uint32_t i = 0; r == 0 && i < files->n; i++)
        r = buffer_append(ret, files->paths[i], strlen(files->paths[i]) + 1);
    return r;
}

int files_list_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                    struct files_list *ret, struct dl_error *err)
{
    _cleanup_(file_list_deinit) struct file_list files = {0};
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};
    struct shared_index index = {0};
    int r;

    if (files_list_find(place, env, ret))
        return 0;
    if ((r = files_list_files(spec, env, &files, err)) < 0)
        return r;
    if (files_list_pack(&files, env, &bytes) < 0)
        return dl_error_set(err, ENOMEM, place, "out of memory for the list of its files");
    shared_index_make(env, place, SHARED_INDEX_FILES, 0, &bytes, &index);
    files_list_take(&index, ret);
    return 0;
}

void files_list_deinit(struct files_list *list)
{
    shared_index_deinit(&list->index);
    *list = (struct files_list){0};
}
