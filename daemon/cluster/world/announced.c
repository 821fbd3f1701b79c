#include "daemon/cluster/world/announced.h"

#include "daemon/base/memory.h"

#include <stdlib.h>
#include <xxhash.h>

static struct announced_helper *announced_find(struct announced *announced, const char *address)
{
    for (uint32_t i = 0; i < announced->n; i++)
        if (strcmp(announced->all[i].address, address) == 0)
            return &announced->all[i];
    return NULL;
}

static struct announced_helper *announced_add(struct announced *announced, const char *address)
{
    size_t bytes = (announced->n + (size_t)1) * sizeof *announced->all;

    announced->all = must_realloc(announced->all, bytes);
    struct announced_helper *helper = &announced->all[announced->n++];
    *helper = (struct announced_helper){.address = must_strdup(address)};
    return helper;
}

static void announced_hear(struct announced *announced, const struct backend_item *item,
                           uint64_t now)
{
    struct announced_helper *helper = announced_find(announced, item->name);
    uint64_t word = XXH3_64bits(item->data.data, item->data.len);
    bool is_new = !helper;

    if (is_new && (announced->n >= ANNOUNCED_MAX || !config_is_place(item->name)))
        return;
    if (is_new)
        helper = announced_add(announced, item->name);
    if (is_new || helper->word != word)
        helper->changed_ns = now;
    helper->word = word;
    helper->listed = true;
}

static int announced_compare(const void *a, const void *b)
{
    const struct announced_helper *x = a, *y = b;

    return strcmp(x->address, y->address);
}

bool announced_look(struct announced *announced, const struct backend_item *items, uint32_t n,
                    uint64_t now, uint64_t silence_ns)
{
    uint32_t kept = 0;
    bool changed = false;

    for (uint32_t i = 0; i < announced->n; i++)
        announced->all[i].listed = false;
    for (uint32_t i = 0; i < n; i++)
        announced_hear(announced, &items[i], now);
    for (uint32_t i = 0; i < announced->n; i++) {
        struct announced_helper helper = announced->all[i];
        bool there = now - helper.changed_ns < silence_ns;

        changed = changed || there != helper.there;
        helper.there = there;
        if (there || helper.listed)
            announced->all[kept++] = helper;
        else
            free(helper.address);
    }
    announced->n = kept;
    if (kept > 0)
        qsort(announced->all, kept, sizeof *announced->all, announced_compare);
    return changed;
}

void announced_there(const struct announced *announced, struct config_dirs *ret)
{
    *ret = (struct config_dirs){0};
    for (uint32_t i = 0; i < announced->n; i++)
        if (announced->all[i].there)
            config_dirs_add(ret, announced->all[i].address);
}

const char *announced_next_gone(const struct announced *announced, uint32_t *at)
{
    while (*at < announced->n) {
        const struct announced_helper *helper = &announced->all[(*at)++];
        if (helper->listed && !helper->there)
            return helper->address;
    }
    return NULL;
}

void announced_deinit(struct announced *announced)
{
    for (uint32_t i = 0; i < announced->n; i++)
        free(announced->all[i].address);
    free(announced->all);
    *announced = (struct announced){0};
}
