/* The walk through the folders. */
#include "daemon/data/files/class_list.h"

#include "daemon/data/files/file_hasher.h"
#include "daemon/data/files/remote.h"
#include "daemon/data/files/source.h"
#include "proto/common/array.h"
#include "proto/common/bisect.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>

/* A folder that was met. */
struct met {
    struct class_index_dir dir; /* its path and place in the list follow at the end */
    char *path;                 /* owned */
    size_t parent;              /* of the walk's; SIZE_MAX: a class, or the root */
    dev_t dev;
    ino_t ino;
};

struct class_list_walk {
    const char *root;
    const struct class_files *wanted;
    const struct data_env *env;
    uint64_t files;  /* so far */
    struct met *met; /* owned; in the order they were met */
    size_t n;
    size_t room;
    struct dl_buffer out; /* owned; the index so far: head and names */
};

/* ---- growing -------------------------------------------------------------------------------- */

static int class_list_no_memory(const char *path, struct dl_error *err)
{
    return dl_error_set(err, ENOMEM, path, "out of memory for the list of its files");
}

/* Names of what a folder holds, while it is read. */
struct names {
    char *text; /* owned */
    size_t used;
    size_t text_room;
    uint32_t *offsets; /* owned; of the names in `text` */
    uint32_t n;
    size_t offsets_room;
};

static int class_list_names_add(struct names *names, const char *name)
{
    size_t len = strlen(name) + 1;

    if (!array_reserve(names->text, names->text_room, names->used + len) ||
        !array_reserve(names->offsets, names->offsets_room, names->n + UINT64_C(1)))
        return -ENOMEM;
    if (names->used + len > UINT32_MAX)
        return -EFBIG;
    memcpy(names->text + names->used, name, len);
    names->offsets[names->n++] = (uint32_t)names->used;
    names->used += len;
    return 0;
}

static void class_list_names_deinit(struct names *names)
{
    free(names->text);
    free(names->offsets);
}

static int class_list_compare_names(const void *a, const void *b, void *text)
{
    return strcmp((const char *)text + *(const uint32_t *)a,
                  (const char *)text + *(const uint32_t *)b);
}

/* Text and all: readdir() gives an order of its own to each folder, even of equal names. -ENOMEM.
 */
static int class_list_names_sort(struct names *names)
{
    char *text = names->n > 0 ? malloc(names->used) : NULL;
    size_t used = 0;

    if (names->n == 0)
        return 0;
    if (!text)
        return -ENOMEM;
    qsort_r(names->offsets, names->n, sizeof *names->offsets, class_list_compare_names,
            names->text);
    for (uint32_t i = 0; i < names->n; i++) {
        const char *name = names->text + names->offsets[i];
        size_t len = strlen(name) + 1;
        memcpy(text + used, name, len);
        names->offsets[i] = (uint32_t)used;
        used += len;
    }
    free(names->text);
    names->text = text;
    names->text_room = used;
    return 0;
}

/* Appends `bytes` bytes, aligned to `align` by zeroes; returns their place. -ENOMEM. */
static int class_list_put(struct dl_buffer *out, const void *data, size_t bytes, size_t align,
                          uint64_t *ret_at)
{
    static const uint8_t gap[8];
    int r = buffer_append(out, gap, align_up(out->len, align) - out->len);

    *ret_at = out->len;
    return r < 0 ? r : buffer_append(out, data, bytes);
}

static int class_list_put_names(struct dl_buffer *out, const struct names *names,
                                struct class_index_dir *dir)
{
    int r = class_list_put(out, names->offsets, names->n * sizeof *names->offsets,
                           sizeof *names->offsets, &dir->name);

    dir->files = names->n;
    dir->name_bytes = names->used;
    return r < 0 ? r : class_list_put(out, names->text, names->used, 1, &dir->names);
}

/* ---- reading one folder --------------------------------------------------------------------- */

static bool class_list_is_wanted(const struct class_files *wanted, const char *name)
{
    size_t len = strlen(name);

    for (const char *const *ending = wanted->endings; *ending; ending++) {
        size_t n = strlen(*ending);
        if (len >= n && strcasecmp(name + len - n, *ending) == 0)
            return true;
    }
    return false;
}

/* Links are followed; a dangling one counts as a file, whose error comes when it is opened. */
static bool class_list_is_dir(const char *folder, const struct dirent *entry,
                              const struct data_env *env)
{
    char path[DL_BOUND_PATH_BYTES];
    struct stat st;

    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    int len = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    return len > 0 && (size_t)len < sizeof path && source_stat(path, true, env, &st) == 0 &&
           S_ISDIR(st.st_mode);
}

/* The names of the folders and of the wanted files in it, each sorted; `files` NULL: only
 * folders. */
static int class_list_read_folder(const struct class_list_walk *walk, const char *path,
                                  struct names *dirs, struct names *files, struct stat *ret_st,
                                  struct dl_error *err)
{
    _cleanup_(source_dir_close) struct source_dir dir;
    struct dirent *entry;
    int r;

    if ((r = source_dir_open(path, walk->env, &dir, err)) < 0)
        return r;
    *ret_st = dir.st;
    while ((entry = source_dir_read(&dir))) {
        const char *name = entry->d_name;
        r = 0;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (class_list_is_dir(path, entry, walk->env))
            r = class_list_names_add(dirs, name);
        else if (files && class_list_is_wanted(walk->wanted, name))
            r = class_list_names_add(files, name);
        if (r == -EFBIG)
            return dl_error_set(err, EFBIG, path,
                                "the names in it have more than 4 GiB; spread them over folders");
        if (r < 0)
            return class_list_no_memory(path, err);
        if (files && files->n > 0 && files->n % DATA_TELL_EVERY == 0)
            data_tell(walk->env, walk->wanted->found, walk->files + files->n, UINT64_MAX);
    }
    if (errno != 0)
        return dl_error_set(err, errno, path, "cannot be listed: %s", strerror(errno));
    r = class_list_names_sort(dirs);
    if (r == 0 && files)
        r = class_list_names_sort(files);
    return r < 0 ? class_list_no_memory(path, err) : 0;
}

/* ---- walking through one class -------------------------------------------------------------- */

static int class_list_add_met(struct class_list_walk *walk, const char *path, uint32_t label,
                              size_t parent)
{
    if (!array_reserve(walk->met, walk->room, walk->n + 1))
        return -ENOMEM;
    struct met *met = &walk->met[walk->n];
    *met = (struct met){.path = strdup(path), .dir = {.label = label}, .parent = parent};
    if (!met->path)
        return -ENOMEM;
    walk->n++;
    return 0;
}

static int class_list_check_loop(const struct class_list_walk *walk, size_t i, const char *path,
                                 struct dl_error *err)
{
    const struct met *met = &walk->met[i];

    for (size_t up = met->parent; up != SIZE_MAX; up = walk->met[up].parent) {
        if (walk->met[up].dev == met->dev && walk->met[up].ino == met->ino)
            return dl_error_set(err, ELOOP, path,
                                "links back to a folder that contains it; remove the link");
    }
    return 0;
}

/* `path` of the folder `i` from the root on becomes one that can be opened. */
static int class_list_full_path(const struct class_list_walk *walk, const char *dir,
                                char ret[static DL_BOUND_PATH_BYTES], struct dl_error *err)
{
    int len = snprintf(ret, DL_BOUND_PATH_BYTES, "%s/%s", walk->root, dir);

    if (len < 0 || len >= DL_BOUND_PATH_BYTES)
        return dl_error_set(err, ENAMETOOLONG, walk->root,
                            "a path below it has more than %d bytes: %.64s...; shorten its "
                            "folders' names",
                            DL_BOUND_PATH_BYTES - 1, dir);
    return 0;
}

static int class_list_read_met(struct class_list_walk *walk, size_t i, struct names *dirs,
                               struct names *files, struct dl_error *err)
{
    char path[DL_BOUND_PATH_BYTES], below[DL_BOUND_PATH_BYTES];
    struct stat st;
    int r;

    if ((r = class_list_full_path(walk, walk->met[i].path, path, err)) < 0 ||
        (r = class_list_read_folder(walk, path, dirs, files, &st, err)) < 0)
        return r;
    walk->met[i].dev = st.st_dev;
    walk->met[i].ino = st.st_ino;
    if ((r = class_list_check_loop(walk, i, path, err)) < 0)
        return r;
    for (uint32_t d = 0; d < dirs->n; d++) {
        int len = snprintf(below, sizeof below, "%s/%s", walk->met[i].path,
                           dirs->text + dirs->offsets[d]);
        if (len < 0 || (size_t)len >= sizeof below)
            return class_list_full_path(walk, below, path, err);
        if (class_list_add_met(walk, below, walk->met[i].dir.label, i) < 0)
            return class_list_no_memory(path, err);
    }
    walk->files += files->n;
    data_tell(walk->env, walk->wanted->found, walk->files, UINT64_MAX);
    if (files->n > 0 && class_list_put_names(&walk->out, files, &walk->met[i].dir) < 0)
        return class_list_no_memory(path, err);
    return 0;
}

static int class_list_compare_paths(const void *a, const void *b)
{
    return strcmp(((const struct met *)a)->path, ((const struct met *)b)->path);
}

/* Everything below one class; *ret_found: whether there is a file. */
static int class_list_walk_class(struct class_list_walk *walk, const char *name, uint32_t label,
                                 bool *ret_found, struct dl_error *err)
{
    size_t first = walk->n;
    bool found = false;

    if (class_list_add_met(walk, name, label, SIZE_MAX) < 0)
        return class_list_no_memory(walk->root, err);
    for (size_t i = first; i < walk->n; i++) {
        struct names dirs = {0}, files = {0};
        int r = class_list_read_met(walk, i, &dirs, &files, err);
        class_list_names_deinit(&dirs);
        class_list_names_deinit(&files);
        if (r < 0)
            return r;
        found = found || walk->met[i].dir.files > 0;
    }
    qsort(walk->met + first, walk->n - first, sizeof *walk->met, class_list_compare_paths);
    *ret_found = found;
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void class_list_walk_deinit(struct class_list_walk *walk)
{
    for (size_t i = 0; i < walk->n; i++)
        free(walk->met[i].path);
    free(walk->met);
    buffer_deinit(&walk->out);
}

/* Names only: opening each file, or even asking for its size, would take minutes. */
static uint64_t class_list_hash(const struct class_list_walk *walk)
{
    struct file_hasher hasher;

    file_hasher_begin(&hasher, NULL);
    for (size_t i = 0; i < walk->n; i++) {
        const struct met *met = &walk->met[i];

        if (met->dir.files == 0)
            continue;
        file_hasher_add(&hasher, met->path, strlen(met->path));
        file_hasher_add_number(&hasher, met->dir.label);
        file_hasher_add(&hasher, walk->out.data + met->dir.names, met->dir.name_bytes - 1);
    }
    return file_hasher_end(&hasher);
}

static int class_list_put_text(struct dl_buffer *out, const char *text, uint64_t *ret_at)
{
    return class_list_put(out, text, strlen(text) + 1, 1, ret_at);
}

/* Puts down folders with files, in order; the others are forgotten. -ENOMEM. */
static int class_list_put_dirs(struct class_list_walk *walk, struct class_index_head *head)
{
    uint64_t at;
    int r = 0;

    for (size_t i = 0; i < walk->n && r == 0; i++) {
        struct met *met = &walk->met[i];
        if (met->dir.files > 0)
            r = class_list_put_text(&walk->out, met->path, &met->dir.path);
    }
    if (r == 0)
        r = class_list_put(&walk->out, NULL, 0, sizeof(uint64_t), &head->dirs);
    for (size_t i = 0; i < walk->n && r == 0; i++) {
        struct class_index_dir *dir = &walk->met[i].dir;
        if (dir->files == 0)
            continue;
        dir->first = head->files;
        head->files += dir->files;
        head->n_dirs++;
        r = class_list_put(&walk->out, dir, sizeof *dir, 1, &at);
    }
    return r;
}

/* The index is what it should be. */
static void class_list_read(struct class_list *list, struct shared_index *index)
{
    const struct class_index_head *head = (const void *)index->data;

    *list = (struct class_list){.index = *index,
                                .dirs = (const void *)(index->data + head->dirs),
                                .root = (const char *)index->data + head->root,
                                .n = head->files,
                                .fingerprint = head->fingerprint,
                                .n_dirs = head->n_dirs,
                                .classes = head->classes};
    *index = (struct shared_index){0};
}

bool class_list_of(struct shared_index *index, struct class_list *ret)
{
    if (!class_index_is_sound(index->data, index->bytes))
        return false;
    class_list_read(ret, index);
    return true;
}

/* Folders of a remote root that are asked for before the first of them is needed. */
enum { CLASS_LIST_AHEAD = 64 };

static void class_list_expect_folder(const struct class_list_walk *walk,
                                     const struct names *classes, uint32_t label)
{
    char path[DL_BOUND_PATH_BYTES];

    if (label < classes->n && walk->env->remote && remote_is_url(walk->root) &&
        class_list_full_path(walk, classes->text + classes->offsets[label], path, NULL) == 0)
        remote_expect_list(walk->env->remote, path);
}

static int class_list_walk_classes(struct class_list_walk *walk, const struct names *classes,
                                   struct dl_error *err)
{
    char empty[256] = "";
    unsigned n_empty = 0;
    size_t len = 0;

    for (uint32_t label = 0; label < CLASS_LIST_AHEAD; label++)
        class_list_expect_folder(walk, classes, label);
    for (uint32_t label = 0; label < classes->n; label++) {
        const char *name = classes->text + classes->offsets[label];
        bool found = false;
        class_list_expect_folder(walk, classes, label + CLASS_LIST_AHEAD);
        int r = class_list_walk_class(walk, name, label, &found, err);
        if (r < 0)
            return r;
        if (found)
            continue;
        if (n_empty++ < 4 && len < sizeof empty)
            len += (size_t)snprintf(empty + len, sizeof empty - len, "%s%s", len ? ", " : "", name);
    }
    if (n_empty == 0)
        return 0;
    return dl_error_set(err, ENOENT, walk->root,
                        "no %s was found for the %s %s%s; %s; remove empty folders",
                        walk->wanted->what, n_empty == 1 ? "class" : "classes", empty,
                        n_empty > 4 ? ", ..." : "", walk->wanted->ends);
}

/* Builds the whole index of the root in walk->out. */
static int class_list_walk(struct class_list_walk *walk, struct dl_error *err)
{
    struct class_index_head head = {0};
    struct names classes = {0};
    struct stat st;
    int r = class_list_read_folder(walk, walk->root, &classes, NULL, &st, err);

    head.classes = classes.n;
    if (r == 0 && classes.n == 0)
        r = dl_error_set(err, ENOENT, walk->root,
                         "has no class folder; put the %ss of each class into a folder named "
                         "for the class",
                         walk->wanted->what);
    if (r == 0 && (buffer_append(&walk->out, &head, sizeof head) < 0 ||
                   class_list_put_text(&walk->out, walk->root, &head.root) < 0))
        r = class_list_no_memory(walk->root, err);
    if (r == 0)
        r = class_list_walk_classes(walk, &classes, err);
    class_list_names_deinit(&classes);
    if (r < 0)
        return r;
    head.fingerprint = class_list_hash(walk);
    if (class_list_put_dirs(walk, &head) < 0)
        return class_list_no_memory(walk->root, err);
    memcpy(walk->out.data, &head, sizeof head);
    return 0;
}

static int class_list_make_at(const char *root, const struct class_files *wanted, const char *place,
                              const struct data_env *env, struct class_list *ret,
                              struct dl_error *err)
{
    struct class_list_walk walk = {.root = root, .wanted = wanted, .env = env};
    struct shared_index index;
    int r = class_list_walk(&walk, err);

    if (r == 0) {
        shared_index_make(place ? env : NULL, place, SHARED_INDEX_CLASS_LIST, 0, &walk.out, &index);
        class_list_read(ret, &index);
    }
    class_list_walk_deinit(&walk);
    return r;
}

int class_list_make(const char *root, const struct class_files *wanted, const struct data_env *env,
                    struct class_list *ret, struct dl_error *err)
{
    return class_list_make_at(root, wanted, NULL, env, ret, err);
}

/* Places of a deeply nested spec are cut, and may be equal: then the root decides. */
static bool class_list_find(const char *root, const char *place, const struct data_env *env,
                            struct class_list *ret)
{
    struct shared_index index;

    if (!shared_index_find(env, place, SHARED_INDEX_CLASS_LIST, &index))
        return false;
    if (!class_list_of(&index, ret)) {
        shared_index_deinit(&index);
        return false;
    }
    if (strcmp(ret->root, root) == 0)
        return true;
    class_list_deinit(ret);
    return false;
}

int class_list_open(const char *root, const struct class_files *wanted, const char *place,
                    const struct data_env *env, struct class_list *ret, struct dl_error *err)
{
    return class_list_find(root, place, env, ret)
               ? 0
               : class_list_make_at(root, wanted, place, env, ret, err);
}

void class_list_deinit(struct class_list *list)
{
    shared_index_deinit(&list->index);
    *list = (struct class_list){0};
}

uint32_t class_list_get(const struct class_list *list, uint64_t i, char *path, size_t room,
                        size_t *ret_len)
{
    assert(i < list->n);
    const uint8_t *data = list->index.data;
    const struct class_index_dir *dir =
        &list->dirs[bisect_firsts(&list->dirs[0].first, sizeof *dir, list->n_dirs, i)];
    const uint32_t *name = (const void *)(data + dir->name);
    *ret_len = (size_t)snprintf(path, room, "%s/%s/%s", list->root, (const char *)data + dir->path,
                                (const char *)data + dir->names + name[i - dir->first]);
    return dir->label;
}

int class_list_path(const struct class_list *list, uint64_t i,
                    char path[static DL_BOUND_PATH_BYTES], int64_t *ret_label, struct dl_error *err)
{
    size_t len;

    *ret_label = class_list_get(list, i, path, DL_BOUND_PATH_BYTES, &len);
    if (len < DL_BOUND_PATH_BYTES)
        return 0;
    return dl_error_set(err, ENAMETOOLONG, path,
                        "is the beginning of a path of %zu bytes; %d can be opened", len,
                        DL_BOUND_PATH_BYTES - 1);
}

void class_list_expect(const struct class_list *list, uint64_t i, const struct data_env *env)
{
    char path[DL_BOUND_PATH_BYTES];
    size_t len;

    if (!env->remote || i >= list->n)
        return;
    (void)class_list_get(list, i, path, sizeof path, &len);
    if (len < sizeof path && remote_is_url(path))
        remote_expect_file(env->remote, path);
}
