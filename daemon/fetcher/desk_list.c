/* What is in a directory: the pages of its list, one after another, and the names on them. */
#include "daemon/fetcher/desk_private.h"

#include "daemon/base/memory.h"
#include "daemon/remote/listing.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include "proto/common/fd_io.h"

enum { LIST_BYTES_MAX = 1 << 30 }; /* of a directory's names */

struct desk_walk {
    struct asker *asker;
    struct remote_place place; /* owned */
    struct remote_page page;   /* .next: owned */
    struct transfer *transfer;
    struct dl_buffer names; /* of struct remote_name */
    bool once;
};

static void desk_walk_free(struct desk_walk *walk)
{
    remote_place_deinit(&walk->place);
    free((char *)walk->page.next);
    buffer_deinit(&walk->names);
    free(walk);
}

void desk_walk_cancel(struct asker *asker)
{
    if (!asker->walk)
        return;
    transfer_cancel(asker->walk->transfer);
    desk_walk_free(steal_ptr(asker->walk));
}

static void desk_walk_refuse(struct desk_walk *walk, int code, const struct dl_error *err)
{
    struct asker *asker = walk->asker;

    asker->walk = NULL;
    asker_refuse(asker, code, err);
    desk_walk_free(walk);
}

static int desk_walk_copy(const struct desk_walk *walk, int *ret)
{
    _cleanup_fd_ int fd = memfd_create("dloader-names", MFD_CLOEXEC);

    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, walk->names.data, walk->names.len);
    if (r == 0)
        *ret = steal_fd(&fd);
    return r;
}

static void desk_walk_end(struct desk_walk *walk)
{
    struct remote_answer answer = {.sort = REMOTE_DIRECTORY, .bytes = walk->names.len};
    _cleanup_fd_ int fd = -1;
    struct dl_error err = {0};
    int r = 0;

    if (walk->names.len == 0)
        r = dl_error_set(&err, ENOENT, walk->place.url,
                         "there is nothing of that name, or below it");
    else if (!walk->once)
        r = desk_walk_copy(walk, &fd);
    if (r < 0) {
        desk_walk_refuse(walk, r, &err);
        return;
    }
    struct asker *asker = walk->asker;
    asker->walk = NULL;
    asker_answer(asker, &answer, fd);
    desk_walk_free(walk);
}

/* -ENAMETOOLONG: no directory can have it. What is no name of a directory's entry is left out. */
static int desk_walk_add(struct desk_walk *walk, const struct remote_entry *entry,
                         struct dl_error *err)
{
    static const uint8_t gap[8];
    struct remote_name name = {.bytes = entry->size,
                               .sort = entry->is_directory ? REMOTE_DIRECTORY : REMOTE_OBJECT,
                               .name_bytes = (uint32_t)strlen(entry->name)};
    size_t bytes = sizeof name + name.name_bytes + 1;

    if (name.name_bytes == 0 || strchr(entry->name, '/'))
        return 0;
    if (name.name_bytes > NAME_MAX)
        return dl_error_set(err, ENAMETOOLONG, walk->place.url,
                            "has a name of %u bytes in it, where %d are possible: %.64s...",
                            name.name_bytes, NAME_MAX, entry->name);
    if (walk->names.len + bytes > LIST_BYTES_MAX)
        return dl_error_set(err, EFBIG, walk->place.url,
                            "its names have more than %d bytes; name what is in it by a pattern",
                            LIST_BYTES_MAX);
    must_append(&walk->names, &name, sizeof name);
    must_append(&walk->names, entry->name, name.name_bytes + 1);
    must_append(&walk->names, gap, align_up(bytes, 8) - bytes);
    return 0;
}

static void desk_walk_begin_page(struct desk_walk *walk);

static void desk_walk_on_page(void *owner, const struct transfer_result *result)
{
    struct desk_walk *walk = owner;
    struct remote_listing listing = {0};
    struct dl_error err = {0};
    int r = result->code;

    walk->transfer = NULL;
    if (r < 0)
        err = *result->err;
    else
        r = remote_listing_read(&walk->place, result->body, result->headers, &listing, &err);
    if (r == 0 && listing.next && walk->page.next && strcmp(listing.next, walk->page.next) == 0)
        r = dl_error_set(&err, EBADMSG, walk->place.url,
                         "a page of its list goes on where it began: the server at %s would never "
                         "come to an end",
                         walk->place.origin);
    for (uint32_t i = 0; r == 0 && i < listing.n; i++)
        r = desk_walk_add(walk, &listing.entries[i], &err);
    free((char *)walk->page.next);
    walk->page.next = steal_ptr(listing.next);
    remote_listing_deinit(&listing);
    if (r < 0)
        desk_walk_refuse(walk, r, &err);
    else if (walk->page.next && !(walk->once && walk->names.len > 0))
        desk_walk_begin_page(walk);
    else
        desk_walk_end(walk);
}

static void desk_walk_begin_page(struct desk_walk *walk)
{
    walk->transfer = transfers_begin(walk->asker->desk->transfers,
                                     &(struct transfer_order){.place = &walk->place,
                                                              .page = &walk->page,
                                                              .urgent = true,
                                                              .done = desk_walk_on_page,
                                                              .owner = walk});
}

void desk_list(struct asker *asker, const char *url, bool once)
{
    char with_slash[REMOTE_ASKED_MAX + 1];
    struct desk_walk *walk = must_alloc(sizeof *walk);
    struct dl_error err = {0};

    assert(!asker->walk);
    walk->asker = asker;
    walk->once = once;
    if (once)
        walk->page.most = 2; /* it may be the directory's own name alone */
    snprintf(with_slash, sizeof with_slash, "%s/", url);
    asker->walk = walk;
    int r = transfers_check(asker->desk->transfers, &err);
    if (r == 0)
        r = remote_place_parse(with_slash, transfers_settings(asker->desk->transfers), &walk->place,
                               &err);
    if (r < 0)
        desk_walk_refuse(walk, r, &err);
    else
        desk_walk_begin_page(walk);
}
