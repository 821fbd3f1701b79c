/* A spec without a seed, and the seed that it had: see again.h. */
#include "client/dlctl/batch/again.h"

#include "client/dlctl/ask.h"
#include "client/dlctl/open.h"
#include "proto/limits.h"
#include "proto/spec.h"
#include "proto/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

enum { SEED_ROOM = 48 }; /* bytes of the line that says it */

struct text_file {
    const char *path; /* borrowed */
    char *text;       /* owned, with a NUL at its end */
    size_t len;
    char *dir; /* owned; NULL: the current directory */
};

static void text_file_deinit(struct text_file *file)
{
    free(file->text);
    free(file->dir);
}

static int read_text(struct text_file *file, struct dl_error *err)
{
    _cleanup_fd_ int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t n = 1;

    if (fd < 0)
        return dl_error_set(err, errno, file->path, "%s", strerror(errno));
    while (n != 0 && file->len <= DL_MAX_SPEC_TEXT) {
        n = read(fd, file->text + file->len, DL_MAX_SPEC_TEXT + 1 - file->len);
        if (n < 0 && errno != EINTR)
            return dl_error_set(err, errno, file->path, "%s", strerror(errno));
        file->len += n > 0 ? (size_t)n : 0;
    }
    if (file->len > DL_MAX_SPEC_TEXT || strlen(file->text) != file->len)
        return dl_error_set(err, EINVAL, file->path,
                            "is no loader spec: that is text of at most %" PRIu64 " bytes",
                            DL_MAX_SPEC_TEXT);
    return 0;
}

static int text_file_read(struct text_file *file, struct dl_error *err)
{
    const char *slash = strrchr(file->path, '/');

    file->text = calloc(DL_MAX_SPEC_TEXT + 2, 1);
    if (slash)
        file->dir = strndup(file->path, max_u64((size_t)(slash - file->path), 1));
    if (!file->text || (slash && !file->dir))
        return dl_error_set(err, ENOMEM, file->path, "%s", strerror(ENOMEM));
    return read_text(file, err);
}

/* Whether it says a seed: 1 and *ret, 0, or a negative errno. */
static int find_seed(const char *path, const char *text, size_t len, uint64_t *ret,
                     struct dl_error *err)
{
    _cleanup_(value_deinit)
    struct value spec = {0};
    const struct value *seed;
    int r = yaml_parse(text, len, path, &spec, err);

    if (r < 0)
        return r;
    seed = spec.type == VALUE_MAP ? value_get(&spec, "seed") : NULL;
    if (!seed || seed->type == VALUE_NULL)
        return 0;
    *ret = seed->type == VALUE_UINT ? seed->uinteger : (uint64_t)seed->integer;
    return 1;
}

/*
 * The text with a seed: in a line at its end, or first in its braces. Which one it takes is seen by
 * reading it again. The text is the caller's to free.
 */
static int add_seed(const char *path, const char *text, size_t len, uint64_t seed, char **ret,
                    struct dl_error *err)
{
    const char *brace = memchr(text, '{', len);
    struct dl_error ignored;

    for (int in_braces = 0; in_braces < (brace ? 2 : 1); in_braces++) {
        size_t before = in_braces ? (size_t)(brace - text) + 1 : len;
        _cleanup_free_ char *more = malloc(len + SEED_ROOM);
        uint64_t found = ~seed;

        if (!more)
            return dl_error_set(err, ENOMEM, path, "%s", strerror(ENOMEM));
        (void)snprintf(more, len + SEED_ROOM, "%.*s%s\"seed\": %" PRIu64 "%s%.*s", (int)before,
                       text, in_braces ? "" : "\n", seed, in_braces ? ", " : "\n",
                       (int)(len - before), text + before);
        if (find_seed(path, more, strlen(more), &found, &ignored) == 1 && found == seed) {
            *ret = steal_ptr(more);
            return 0;
        }
    }
    return dl_error_set(err, EINVAL, path, "cannot be given a seed; write it there: seed: %" PRIu64,
                        seed);
}

/* The loader's name, given or made; to be freed. */
static int find_name(const struct text_file *file, char **ret, struct dl_error *err)
{
    _cleanup_(value_deinit)
    struct value value = {0};
    _cleanup_(spec_deinit)
    struct dl_spec spec = {0};
    char base[PATH_MAX];
    int r;

    if (!realpath(file->dir ? file->dir : ".", base))
        return dl_error_set(err, errno, file->path, "its directory: %s", strerror(errno));
    r = yaml_parse(file->text, file->len, file->path, &value, err);
    if (r == 0)
        r = spec_from_value(&value, base, &spec, err);
    if (r == 0)
        *ret = steal_ptr(spec.name);
    return r;
}

/* The one of that name and seed has: somebody has read from it. */
static int has_delivered(struct dl_client *client, const char *name, uint64_t seed, bool *ret)
{
    _cleanup_(value_deinit)
    struct value view = {0};
    int r = ask_view(client, "loaders", &view);

    for (uint32_t i = 0; r == 0 && view.type == VALUE_ARRAY && i < view.count; i++) {
        const struct value *row = &view.items[i], *own = value_get(row, "name");

        if (own && own->type == VALUE_STRING && strcmp(own->string, name) == 0 &&
            value_count(value_get(row, "seed")) == seed)
            *ret = *ret || value_count(value_get(row, "batches")) > 0;
    }
    return r;
}

/* The daemon has it from before: this user's, where others have one of that name, too. */
static int is_known(struct dl_client *client, const char *name, bool *ret)
{
    struct dl_loader *loader = NULL;
    int r = open_name(client, name, &loader);

    *ret = false;
    if (r == 0)
        r = has_delivered(client, name, dl_loader_seed(loader), ret);
    dl_loader_close(loader);
    return r == -ENOENT ? 0 : r;
}

/* Before it is opened: a loader with a new seed would stay for a while, under that name. */
static int check_delivered(struct dl_client *client, const struct text_file *file,
                           struct dl_error *err)
{
    _cleanup_free_ char *name = NULL;
    bool delivered = false;
    int r = find_name(file, &name, err);

    if (r == 0 && name)
        r = is_known(client, name, &delivered);
    if (r < 0 || delivered)
        return r;
    return dl_error_set(err, EINVAL, "seed",
                        "%s has none, and no loader of it that is open has delivered anything: its "
                        "batches would be of a seed drawn now; give the one that they had: --seed "
                        "N (dlctl run and dlctl loaders tell it, and dlctl state)",
                        file->path);
}

/* A loader that has drawn its seed is shared with whoever gives one. */
static int check_seed(const struct dl_loader *loader, uint64_t seed, struct dl_error *err)
{
    if (dl_loader_seed(loader) == seed)
        return 0;
    return dl_error_set(err, EEXIST, "seed",
                        "the loader %s is open with another one that it has drawn, %" PRIu64
                        ", and not with %" PRIu64 "; try again when it is closed",
                        dl_loader_name(loader), dl_loader_seed(loader), seed);
}

static int open_file(struct dl_client *client, const struct text_file *file, const uint64_t *seed,
                     struct dl_loader **ret, struct dl_error *err)
{
    _cleanup_free_ char *seeded = NULL;
    const char *text = file->text;
    uint64_t own = 0;
    int r = find_seed(file->path, file->text, file->len, &own, err);

    if (r == 1 && seed && own != *seed)
        return dl_error_set(err, EINVAL, "--seed", "%" PRIu64 ", while %s says %" PRIu64, *seed,
                            file->path, own);
    if (r == 0 && !seed) {
        r = check_delivered(client, file, err);
        return r < 0 ? r : dl_loader_open(client, text, file->len, file->dir, ret);
    }
    if (r == 0) {
        own = *seed;
        r = add_seed(file->path, file->text, file->len, own, &seeded, err);
        text = seeded;
    }
    if (r >= 0 && text)
        r = dl_loader_open(client, text, strlen(text), file->dir, ret);
    return r < 0 ? r : check_seed(*ret, own, err);
}

int open_again(struct dl_client *client, const char *operand, const uint64_t *seed,
               struct dl_loader **ret, struct dl_error *err)
{
    _cleanup_(text_file_deinit)
    struct text_file file = {.path = operand};
    int r;

    *err = (struct dl_error){0};
    if (!operand_is_file(operand))
        return seed ? dl_error_set(err, EINVAL, "--seed",
                                   "%" PRIu64 " beside the name of a loader that is open, and has "
                                   "its seed; leave it out",
                                   *seed)
                    : open_name(client, operand, ret);
    r = text_file_read(&file, err);
    return r < 0 ? r : open_file(client, &file, seed, ret, err);
}
