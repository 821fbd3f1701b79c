#include "proto/slot_bad.h"

#include <errno.h>
#include <stdio.h>

uint32_t bad_list_listed(const struct bad_list *list)
{
    return (uint32_t)min_u64(list->n, SLOT_BAD_MAX);
}

uint32_t bad_list_left(const struct bad_list *list, uint32_t planned, uint32_t tail)
{
    uint64_t gone = list->n - bad_list_listed(list);

    for (uint32_t i = 0; i < bad_list_listed(list); i++)
        gone += list->items[i].position >= planned - tail;
    return tail - (uint32_t)min_u64(gone, tail);
}

int bad_list_add(struct bad_list *list, uint64_t index, uint64_t position,
                 const struct dl_error *err)
{
    if (!list->items && !(list->items = calloc(SLOT_BAD_MAX, sizeof *list->items)))
        return -ENOMEM;
    if (list->n < SLOT_BAD_MAX) {
        struct slot_bad *bad = &list->items[list->n];
        char text[sizeof err->path + sizeof err->message + 2];
        int len = snprintf(text, sizeof text, "%s%s%s", err->path, err->path[0] ? ": " : "",
                           err->message);
        *bad = (struct slot_bad){
            .index = index, .code = (uint32_t)err->code, .position = (uint32_t)position};
        memcpy(bad->text, text, min_u64((uint64_t)len, SLOT_BAD_TEXT - 1));
    }
    list->n++;
    return 0;
}

void bad_list_clear(struct bad_list *list)
{
    list->n = 0;
}

void bad_list_deinit(struct bad_list *list)
{
    free(list->items);
    *list = (struct bad_list){0};
}

void bad_list_words(const struct bad_list *list, char *text, size_t len)
{
    enum { NAMED = 4 };
    size_t at = 0;

    *text = '\0';
    for (uint32_t i = 0; i < bad_list_listed(list) && i < NAMED && at < len; i++)
        at += (size_t)snprintf(text + at, len - at, "%ssample %lld: %.*s", i ? "; " : "",
                               (long long)list->items[i].index, (int)(len / NAMED / 2),
                               list->items[i].text);
    if (list->n > NAMED && at < len)
        snprintf(text + at, len - at, "; %u in all", list->n);
}

bool slot_put_bad(void *slot, uint64_t slot_bytes, const struct bad_list *list, uint64_t *used)
{
    struct slot_header *header = slot;
    uint64_t off = align_up(*used, 64), bytes = bad_list_listed(list) * sizeof *list->items;

    if (list->n == 0)
        return true;
    uint64_t end = *used;
    *used = off + bytes;
    if (*used > slot_bytes)
        return false;
    memset((char *)slot + end, 0, off - end);
    memcpy((char *)slot + off, list->items, bytes);
    header->bad_off = off;
    header->bad_count = list->n;
    header->used = *used;
    return true;
}

/* Makes the text valid for any message. */
static void slot_bad_clean(struct slot_bad *bad)
{
    struct dl_error err;

    dl_error_set(&err, EIO, "", "%.*s", SLOT_BAD_TEXT - 1, bad->text);
    memset(bad->text, 0, sizeof bad->text);
    memcpy(bad->text, err.message, strlen(err.message));
}

int slot_read_bad(const void *slot, uint64_t slot_bytes, struct bad_list *ret)
{
    const volatile struct slot_header *header = slot;
    uint64_t off = header->bad_off;
    struct bad_list list = {.n = header->bad_count};
    uint64_t bytes = bad_list_listed(&list) * sizeof *list.items;

    bad_list_clear(ret);
    if (list.n == 0)
        return off == 0 ? 0 : -EINVAL;
    if (off < SLOT_HEADER_BYTES || off % 64 != 0 || off > slot_bytes || bytes > slot_bytes - off)
        return -EINVAL;
    if (!ret->items && !(ret->items = calloc(SLOT_BAD_MAX, sizeof *ret->items)))
        return -ENOMEM;
    memcpy(ret->items, (const char *)slot + off, bytes);
    ret->n = list.n;
    for (uint32_t i = 0; i < bad_list_listed(ret); i++) {
        if (ret->items[i].code == 0 || ret->items[i].code > 4095)
            return -EINVAL;
        slot_bad_clean(&ret->items[i]);
    }
    return 0;
}
