/* What is in a directory: the pages of its list, one after another, and the names on them. Lists of
 * several directories come at once, where an asker says before that it will ask for them. */
#include "daemon/fetcher/desk_private.h"

#include "daemon/base/memory.h"
#include "daemon/remote/listing.h"
#include "proto/common/sealed.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>

#include <utlist.h>

enum {
    LIST_BYTES_MAX = 1 << 30, /* of a directory's names; */
    LISTED_MOST = 4096,       /* lists that an asker will ask for, */
    LISTED_BYTES = 64 << 20,  /* and their names */
};

struct desk_walk {
    struct asker *asker;
    struct desk_walk *prev, *next; /* asker->listed, until it asks */
    char *url;                     /* owned */
    bool is_asked, has_ended;
    int code; /* then: 0, or negative with `err` */
    struct dl_error err;
    struct remote_place place; /* owned */
    struct remote_page page;   /* .next: owned */
    struct transfer *transfer;
    struct dl_buffer names; /* of struct remote_name */
    bool once;
};

static void desk_walk_free(struct desk_walk *walk)
{
    remote_place_deinit(&walk->place);
    free(walk->url);
    free((char *)walk->page.next);
    buffer_deinit(&walk->names);
    free(walk);
}

/* Out of those that its asker has not asked for. */
static void desk_walk_unlist(struct desk_walk *walk)
{
    DL_DELETE(walk->asker->listed, walk);
    walk->asker->n_listed--;
    if (walk->has_ended)
        walk->asker->listed_bytes -= walk->names.len;
}

void desk_walk_cancel(struct asker *asker)
{
    struct desk_walk *walk;

    while ((walk = asker->listed)) {
        desk_walk_unlist(walk);
        transfer_cancel(walk->transfer);
        desk_walk_free(walk);
    }
    if (!asker->walk)
        return;
    transfer_cancel(asker->walk->transfer);
    desk_walk_free(steal_ptr(asker->walk));
}

/* It has ended, and its asker waits for it. */
static void desk_walk_tell(struct desk_walk *walk)
{
    struct remote_answer answer = {.sort = REMOTE_DIRECTORY, .bytes = walk->names.len};
    struct asker *asker = walk->asker;
    _cleanup_fd_ int fd = -1;
    int r = walk->code;

    if (r == 0 && walk->names.len == 0)
        r = dl_error_set(&walk->err, ENOENT, walk->place.url,
                         "there is nothing of that name, or below it");
    else if (r == 0 && !walk->once &&
             (fd = sealed_new("dloader-names", walk->names.data, walk->names.len)) < 0)
        r = fd;
    asker->walk = NULL;
    if (r < 0)
        asker_refuse(asker, r, &walk->err);
    else
        asker_answer(asker, &answer, fd);
    desk_walk_free(walk);
}

/* One that nobody waits for yet stays, as far as there is room. */
static void desk_walk_end(struct desk_walk *walk, int code)
{
    struct asker *asker = walk->asker;

    walk->has_ended = true;
    walk->code = code;
    if (walk->is_asked) {
        desk_walk_tell(walk);
        return;
    }
    asker->listed_bytes += walk->names.len;
    if (asker->listed_bytes > LISTED_BYTES) {
        desk_walk_unlist(walk);
        desk_walk_free(walk);
    }
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
    struct dl_error *err = &walk->err;
    int r = result->code;

    walk->transfer = NULL;
    if (r < 0)
        *err = *result->err;
    else
        r = remote_listing_read(&walk->place, result->body, result->headers, &listing, err);
    if (r == 0 && listing.next && walk->page.next && strcmp(listing.next, walk->page.next) == 0)
        r = dl_error_set(err, EBADMSG, walk->place.url,
                         "a page of its list goes on where it began: the server at %s would never "
                         "come to an end",
                         walk->place.origin);
    for (uint32_t i = 0; r == 0 && i < listing.n; i++)
        r = desk_walk_add(walk, &listing.entries[i], err);
    free((char *)walk->page.next);
    walk->page.next = steal_ptr(listing.next);
    remote_listing_deinit(&listing);
    if (r == 0 && walk->page.next && !(walk->once && walk->names.len > 0))
        desk_walk_begin_page(walk);
    else
        desk_walk_end(walk, r);
}

static void desk_walk_begin_page(struct desk_walk *walk)
{
    walk->transfer = transfers_begin(walk->asker->desk->transfers,
                                     &(struct transfer_order){.place = &walk->place,
                                                              .page = &walk->page,
                                                              .urgent = walk->is_asked,
                                                              .done = desk_walk_on_page,
                                                              .owner = walk});
}

static struct desk_walk *desk_walk_new(struct asker *asker, const char *url)
{
    struct desk_walk *walk = must_alloc(sizeof *walk);

    walk->asker = asker;
    walk->url = must_strdup(url);
    return walk;
}

static void desk_walk_begin(struct desk_walk *walk)
{
    struct transfers *transfers = walk->asker->desk->transfers;
    char with_slash[REMOTE_ASKED_MAX + 1];

    snprintf(with_slash, sizeof with_slash, "%s/", walk->url);
    int r = transfers_check(transfers, &walk->err);
    if (r == 0)
        r = remote_place_parse(with_slash, transfers_settings(transfers), &walk->place, &walk->err);
    if (r < 0)
        desk_walk_end(walk, r);
    else
        desk_walk_begin_page(walk);
}

/* It was expected. */
static void desk_walk_take(struct desk_walk *walk)
{
    desk_walk_unlist(walk);
    walk->is_asked = true;
    walk->asker->walk = walk;
    if (walk->has_ended)
        desk_walk_tell(walk);
    else
        transfer_hurry(walk->transfer);
}

void desk_list(struct asker *asker, const char *url, bool once)
{
    struct desk_walk *walk = NULL;

    assert(!asker->walk);
    if (!once)
        DL_FOREACH (asker->listed, walk)
            if (strcmp(walk->url, url) == 0)
                break;
    if (walk) {
        desk_walk_take(walk);
        return;
    }
    walk = asker->walk = desk_walk_new(asker, url);
    walk->is_asked = true;
    walk->once = once;
    if (once)
        walk->page.most = 2; /* it may be the directory's own name alone */
    desk_walk_begin(walk);
}

void desk_list_expect(struct asker *asker, const char *url)
{
    struct desk_walk *walk;

    if (asker->n_listed == LISTED_MOST)
        return;
    DL_FOREACH (asker->listed, walk)
        if (strcmp(walk->url, url) == 0)
            return;
    walk = desk_walk_new(asker, url);
    DL_APPEND(asker->listed, walk);
    asker->n_listed++;
    desk_walk_begin(walk);
}
