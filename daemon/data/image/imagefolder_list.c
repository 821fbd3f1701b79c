/* The walk through the folders. */
#include "daemon/data/image/imagefolder_list.h"
#include "daemon/data/source.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>

enum { PATH_ROOM = DL_BOUND_PATH_BYTES };

/* A folder that was met; it becomes an image_dir when there are images in it. */
struct met {
    struct image_dir dir; /* owned */
    size_t parent;        /* of the walk's; SIZE_MAX: a class, or the root */
    dev_t dev;
    ino_t ino;
};

struct walk {
    const char *root;
    const struct data_env *env;
    uint64_t images; /* so far */
    struct met *met; /* owned; in the order they were met */
    size_t n;
    size_t room;
};

/* ---- growing -------------------------------------------------------------------------------- */

static int imagefolder_list_no_memory(const char *path, struct dl_error *err)
{
    return dl_error_set(err, ENOMEM, path, "out of memory for the list of its images");
}

static void imagefolder_list_dir_deinit(struct image_dir *dir)
{
    free(dir->path);
    free(dir->names);
    free(dir->name);
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

static int imagefolder_list_names_add(struct names *names, const char *name)
{
    size_t len = strlen(name) + 1;

    if (names->used + len > names->text_room) {
        size_t room = 2 * names->text_room + len + 256;
        char *text = realloc(names->text, room);
        if (!text)
            return -ENOMEM;
        names->text = text;
        names->text_room = room;
    }
    if (names->n == names->offsets_room) {
        size_t room = 2 * names->offsets_room + 16;
        uint32_t *offsets = reallocarray(names->offsets, room, sizeof *offsets);
        if (!offsets)
            return -ENOMEM;
        names->offsets = offsets;
        names->offsets_room = room;
    }
    if (names->used + len > UINT32_MAX)
        return -EFBIG;
    memcpy(names->text + names->used, name, len);
    names->offsets[names->n++] = (uint32_t)names->used;
    names->used += len;
    return 0;
}

static void imagefolder_list_names_deinit(struct names *names)
{
    free(names->text);
    free(names->offsets);
}

static int imagefolder_list_compare_names(const void *a, const void *b, void *text)
{
    return strcmp((const char *)text + *(const uint32_t *)a,
                  (const char *)text + *(const uint32_t *)b);
}

static void imagefolder_list_names_sort(struct names *names)
{
    if (names->n > 0)
        qsort_r(names->offsets, names->n, sizeof *names->offsets, imagefolder_list_compare_names,
                names->text);
}

/* Gives the names to `dir`, in no more memory than they need. */
static void imagefolder_list_names_hand_over(struct names *names, struct image_dir *dir)
{
    char *text = realloc(names->text, names->used);
    uint32_t *offsets = reallocarray(names->offsets, names->n, sizeof *offsets);

    dir->names = text ? text : names->text;
    dir->name = offsets ? offsets : names->offsets;
    dir->n = names->n;
    *names = (struct names){0};
}

/* ---- reading one folder --------------------------------------------------------------------- */

static bool imagefolder_list_is_image_name(const char *name)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    size_t len = strlen(name);

    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        size_t n = strlen(endings[i]);
        if (len >= n && strcasecmp(name + len - n, endings[i]) == 0)
            return true;
    }
    return false;
}

/* What a link leads to counts; one that leads nowhere is a file, whose error comes in its time. */
static bool imagefolder_list_is_dir(const char *folder, const struct dirent *entry,
                                    const struct data_env *env)
{
    char path[PATH_ROOM];
    struct stat st;

    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    int len = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    return len > 0 && (size_t)len < sizeof path && source_stat(path, true, env, &st) == 0 &&
           S_ISDIR(st.st_mode);
}

static DIR *imagefolder_list_closedirp(DIR **dir)
{
    if (*dir)
        closedir(*dir);
    return NULL;
}

/* Names of the folders and of the images in it, each sorted. */
static int imagefolder_list_read_folder(const char *path, const struct data_env *env,
                                        struct names *dirs, struct names *files,
                                        struct stat *ret_st, struct dl_error *err)
{
    _cleanup_fd_ int fd = -1;
    struct dirent *entry;
    int r;

    if ((r = source_open_directory(path, env, &fd, err)) < 0)
        return r;
    if (fstat(fd, ret_st) < 0)
        return dl_error_set(err, errno, path, "cannot be examined: %s", strerror(errno));
    _cleanup_(imagefolder_list_closedirp)
    DIR *dir = fdopendir(fd);
    if (!dir)
        return imagefolder_list_no_memory(path, err);
    (void)steal_fd(&fd);
    while ((errno = 0, entry = readdir(dir))) {
        const char *name = entry->d_name;
        r = 0;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (imagefolder_list_is_dir(path, entry, env))
            r = imagefolder_list_names_add(dirs, name);
        else if (files && imagefolder_list_is_image_name(name))
            r = imagefolder_list_names_add(files, name);
        if (r == -EFBIG)
            return dl_error_set(err, EFBIG, path,
                                "the names in it have more than 4 GiB; spread them over folders");
        if (r < 0)
            return imagefolder_list_no_memory(path, err);
    }
    if (errno != 0)
        return dl_error_set(err, errno, path, "cannot be listed: %s", strerror(errno));
    imagefolder_list_names_sort(dirs);
    if (files)
        imagefolder_list_names_sort(files);
    return 0;
}

/* ---- walking through one class -------------------------------------------------------------- */

static int imagefolder_list_add_met(struct walk *walk, const char *path, uint32_t label,
                                    size_t parent)
{
    if (walk->n == walk->room) {
        size_t room = 2 * walk->room + 64;
        struct met *met = reallocarray(walk->met, room, sizeof *met);
        if (!met)
            return -ENOMEM;
        walk->met = met;
        walk->room = room;
    }
    struct met *met = &walk->met[walk->n];
    *met = (struct met){.dir = {.path = strdup(path), .label = label}, .parent = parent};
    if (!met->dir.path)
        return -ENOMEM;
    walk->n++;
    return 0;
}

static int imagefolder_list_check_loop(const struct walk *walk, size_t i, const char *path,
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
static int imagefolder_list_full_path(const struct walk *walk, const char *dir,
                                      char ret[static PATH_ROOM], struct dl_error *err)
{
    int len = snprintf(ret, PATH_ROOM, "%s/%s", walk->root, dir);

    if (len < 0 || len >= PATH_ROOM)
        return dl_error_set(err, ENAMETOOLONG, walk->root,
                            "a path below it has more than %d bytes: %.64s...; shorten its "
                            "folders' names",
                            PATH_ROOM - 1, dir);
    return 0;
}

static int imagefolder_list_read_met(struct walk *walk, size_t i, struct names *dirs,
                                     struct names *files, struct dl_error *err)
{
    char path[PATH_ROOM], below[PATH_ROOM];
    struct stat st;
    int r;

    if ((r = imagefolder_list_full_path(walk, walk->met[i].dir.path, path, err)) < 0 ||
        (r = imagefolder_list_read_folder(path, walk->env, dirs, files, &st, err)) < 0)
        return r;
    walk->met[i].dev = st.st_dev;
    walk->met[i].ino = st.st_ino;
    if ((r = imagefolder_list_check_loop(walk, i, path, err)) < 0)
        return r;
    for (uint32_t d = 0; d < dirs->n; d++) {
        int len = snprintf(below, sizeof below, "%s/%s", walk->met[i].dir.path,
                           dirs->text + dirs->offsets[d]);
        if (len < 0 || (size_t)len >= sizeof below)
            return imagefolder_list_full_path(walk, below, path, err);
        if (imagefolder_list_add_met(walk, below, walk->met[i].dir.label, i) < 0)
            return imagefolder_list_no_memory(path, err);
    }
    walk->images += files->n;
    data_tell(walk->env, "images found", walk->images, UINT64_MAX);
    if (files->n > 0)
        imagefolder_list_names_hand_over(files, &walk->met[i].dir);
    return 0;
}

static int imagefolder_list_compare_paths(const void *a, const void *b)
{
    return strcmp(((const struct met *)a)->dir.path, ((const struct met *)b)->dir.path);
}

/* Everything below one class; *ret_found: whether there is an image. */
static int imagefolder_list_walk_class(struct walk *walk, const char *name, uint32_t label,
                                       bool *ret_found, struct dl_error *err)
{
    size_t first = walk->n;
    bool found = false;

    if (imagefolder_list_add_met(walk, name, label, SIZE_MAX) < 0)
        return imagefolder_list_no_memory(walk->root, err);
    for (size_t i = first; i < walk->n; i++) {
        struct names dirs = {0}, files = {0};
        int r = imagefolder_list_read_met(walk, i, &dirs, &files, err);
        imagefolder_list_names_deinit(&dirs);
        imagefolder_list_names_deinit(&files);
        if (r < 0)
            return r;
        found = found || walk->met[i].dir.n > 0;
    }
    qsort(walk->met + first, walk->n - first, sizeof *walk->met, imagefolder_list_compare_paths);
    *ret_found = found;
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void imagefolder_list_walk_deinit(struct walk *walk)
{
    for (size_t i = 0; i < walk->n; i++)
        imagefolder_list_dir_deinit(&walk->met[i].dir);
    free(walk->met);
}

/* Folders with images, in order; the others are forgotten. */
static int imagefolder_list_keep(struct walk *walk, struct image_list *list, struct dl_error *err)
{
    list->root = strdup(walk->root);
    list->dirs = calloc(walk->n + 1, sizeof *list->dirs);
    if (!list->root || !list->dirs)
        return imagefolder_list_no_memory(walk->root, err);
    for (size_t i = 0; i < walk->n; i++) {
        struct image_dir *dir = &walk->met[i].dir;
        if (dir->n == 0)
            continue;
        dir->first = list->n;
        list->n += dir->n;
        list->dirs[list->n_dirs++] = *dir;
        *dir = (struct image_dir){0};
    }
    return 0;
}

static int imagefolder_list_walk_classes(struct walk *walk, const struct names *classes,
                                         struct dl_error *err)
{
    char empty[256] = "";
    unsigned n_empty = 0;
    size_t len = 0;

    for (uint32_t label = 0; label < classes->n; label++) {
        const char *name = classes->text + classes->offsets[label];
        bool found = false;
        int r = imagefolder_list_walk_class(walk, name, label, &found, err);
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
                        "no image was found for the %s %s%s; images end in .jpg, .jpeg or .png; "
                        "remove empty folders",
                        n_empty == 1 ? "class" : "classes", empty, n_empty > 4 ? ", ..." : "");
}

int image_list_make(const char *root, const struct data_env *env, struct image_list *ret,
                    struct dl_error *err)
{
    struct walk walk = {.root = root, .env = env};
    struct image_list list = {0};
    struct names classes = {0};
    struct stat st;
    int r;

    r = imagefolder_list_read_folder(root, env, &classes, NULL, &st, err);
    if (r == 0 && classes.n == 0)
        r = dl_error_set(err, ENOENT, root,
                         "has no class folder; put the images of each class into a folder named "
                         "for the class");
    if (r == 0)
        r = imagefolder_list_walk_classes(&walk, &classes, err);
    if (r == 0)
        r = imagefolder_list_keep(&walk, &list, err);
    list.classes = classes.n;
    imagefolder_list_names_deinit(&classes);
    imagefolder_list_walk_deinit(&walk);
    if (r < 0)
        image_list_deinit(&list);
    else
        *ret = list;
    return r;
}

void image_list_deinit(struct image_list *list)
{
    for (size_t i = 0; i < list->n_dirs; i++)
        imagefolder_list_dir_deinit(&list->dirs[i]);
    free(list->dirs);
    free(list->root);
    *list = (struct image_list){0};
}

uint32_t image_list_get(const struct image_list *list, uint64_t i, char *path, size_t room,
                        size_t *ret_len)
{
    size_t low = 0, high = list->n_dirs;

    assert(i < list->n);
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (list->dirs[middle].first <= i)
            low = middle;
        else
            high = middle;
    }
    const struct image_dir *dir = &list->dirs[low];
    const char *name = dir->names + dir->name[i - dir->first];
    *ret_len = (size_t)snprintf(path, room, "%s/%s/%s", list->root, dir->path, name);
    return dir->label;
}
