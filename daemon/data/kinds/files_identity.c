#include "daemon/data/kinds/files_identity.h"

#include "daemon/data/base/place.h"
#include "daemon/data/decode/audio/audio_files.h"
#include "daemon/data/decode/image/image_files.h"
#include "daemon/data/files/class_list.h"
#include "daemon/data/files/file_hasher.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/files/files_list.h"
#include "daemon/data/kinds/kinds.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

enum {
    NS_PER_MS = 1000 * 1000,
    /* File systems count times in ticks, of 10 ms at most. */
    SETTLED_MS = 20,
};

struct identity {
    struct file_hasher hasher;
    int64_t newest_ns; /* when the last of the files was changed */
    bool every_file;   /* of a folder, too: something is known of each */
};

static int64_t files_identity_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 * NS_PER_MS + now.tv_nsec;
}

/* A file that cannot be examined counts as changed. */
static void files_identity_add_refusal(struct identity *id, int r)
{
    file_hasher_add_number(&id->hasher, (uint64_t)-r);
}

static void files_identity_add_file(struct identity *id, const char *path)
{
    struct pictures_key key;
    struct stat st;
    int r = source_stat(path, true, id->hasher.env, &st);

    file_hasher_add(&id->hasher, path, strlen(path));
    if (r < 0) {
        files_identity_add_refusal(id, r);
        return;
    }
    pictures_key_of(&st, &key);
    file_hasher_add(&id->hasher, &key, sizeof key);
    id->newest_ns = key.changed_ns > id->newest_ns ? key.changed_ns : id->newest_ns;
}

/* Only the names of its files count: each is opened anew whenever it is read. A folder listed here
 * is not listed again when the dataset opens. */
static void files_identity_add_classes(struct identity *id, const char *root, const char *place,
                                       const struct class_files *wanted)
{
    struct class_list list = {0};
    char path[DL_BOUND_PATH_BYTES];
    size_t len;
    struct stat st;
    int r = source_stat(root, true, id->hasher.env, &st);

    if (r == 0)
        r = class_list_open(root, wanted, place, id->hasher.env, &list, NULL);
    if (r < 0) {
        files_identity_add_refusal(id, r);
        return;
    }
    file_hasher_add_number(&id->hasher, (uint64_t)st.st_dev);
    file_hasher_add_number(&id->hasher, (uint64_t)st.st_ino);
    file_hasher_add_number(&id->hasher, class_list_fingerprint(&list));
    for (uint64_t i = 0; id->every_file && i < list.n; i++) {
        (void)class_list_get(&list, i, path, sizeof path, &len);
        files_identity_add_file(id, path);
    }
    class_list_deinit(&list);
}

/* Likewise of a file for each sample. */
static void files_identity_add_files(struct identity *id, const struct spec_dataset *spec,
                                     const char *place)
{
    struct files_list list = {0};
    int r = files_list_open(spec, place, id->hasher.env, &list, NULL);

    if (r < 0) {
        files_identity_add_refusal(id, r);
        return;
    }
    file_hasher_add_number(&id->hasher, list.fingerprint);
    for (uint64_t i = 0; id->every_file && i < list.n; i++)
        files_identity_add_file(id, files_list_path(&list, i));
    files_list_deinit(&list);
}

static void files_identity_add_listed(struct identity *id, const struct spec_dataset *spec)
{
    _cleanup_(file_list_deinit) struct file_list list = {0};
    int r = spec_files_list(spec, id->hasher.env, &list, NULL);

    if (r < 0)
        files_identity_add_refusal(id, r);
    for (uint32_t i = 0; i < list.n; i++)
        files_identity_add_file(id, list.paths[i]);
}

/* What says which files there are, and how many samples are in each. */
static void files_identity_add_index(struct identity *id, const char *root)
{
    char path[DL_BOUND_PATH_BYTES];
    int len = snprintf(path, sizeof path, "%s/index.json", root);

    if (len > 0 && (size_t)len < sizeof path)
        files_identity_add_file(id, path);
}

static void files_identity_add_dataset(struct identity *id, const struct spec_dataset *spec,
                                       const char *place)
{
    bool single = spec->kind == DATASET_SUBSET || spec->kind == DATASET_SPLIT;
    char below[DL_ERROR_PATH_MAX];
    enum files_sort sort = files_sort_of(spec->kind);

    file_hasher_add_number(&id->hasher, spec->kind);
    if (spec->kind == DATASET_IMAGEFOLDER)
        files_identity_add_classes(id, spec->files[0].path, place, &image_files);
    else if (spec->kind == DATASET_AUDIOFOLDER)
        files_identity_add_classes(id, spec->files[0].path, place, &audio_files);
    else if (spec->kind == DATASET_FILES)
        files_identity_add_files(id, spec, place);
    else if (sort == FILES_PLUGIN)
        files_identity_add_file(id, spec->files[0].path);
    else if (sort != FILES_NONE && sort != FILES_CODE)
        files_identity_add_listed(id, spec);
    if (spec->kind == DATASET_MDS || spec->kind == DATASET_LITDATA)
        files_identity_add_index(id, spec->files[0].path);
    for (uint32_t i = 0; i < spec->n_datasets; i++) {
        if (single)
            place_key(below, place, "dataset");
        else
            place_item(below, place, "datasets", i);
        files_identity_add_dataset(id, &spec->datasets[i], below);
    }
}

static uint64_t files_identity_once(const struct dl_spec *spec, const struct data_env *env,
                                    int64_t *ret_newest)
{
    struct identity id = {.every_file = spec->batch.tokens > 0};

    file_hasher_begin(&id.hasher, env);
    files_identity_add_dataset(&id, &spec->dataset, "dataset");
    if (spec->collate.path)
        files_identity_add_file(&id, spec->collate.path);
    *ret_newest = id.newest_ns;
    return file_hasher_end(&id.hasher);
}

uint64_t files_identity(const struct dl_spec *spec, const struct data_env *env)
{
    int64_t newest;
    uint64_t identity = files_identity_once(spec, env, &newest);
    int64_t age_ms = (files_identity_now() - newest) / NS_PER_MS;

    if (age_ms < 0 || age_ms >= SETTLED_MS)
        return identity;
    (void)poll(NULL, 0, (int)(SETTLED_MS - age_ms));
    return files_identity_once(spec, env, &newest);
}
