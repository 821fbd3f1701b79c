/*
 * Keys of datasets that had other names before 0.2: the rows FORMER of spec_dataset.def.
 *
 * A spec has only the new names, but fingerprints, also those in saved states, are made with the
 * old ones. So are specs between daemon and workers: spec_from_former() goes with
 * DL_WORKER_VERSION 1.
 */
#include "proto/spec_table.h"

#include <errno.h>

static const char *spec_former_of_map(const struct value *map, const char *key)
{
    const struct value *kind = value_get(map, "kind");

    if (!kind || kind->type != VALUE_STRING)
        return NULL;
    int number = spec_choice_number(spec_key_find("dataset", "kind"), kind->string);
    return number > 0 ? spec_former_name((uint32_t)number, key) : NULL;
}

static int spec_former_rename(struct value *map, const char *from, const char *to)
{
    if (!from || !to || value_get(map, to))
        return 0;
    for (uint32_t i = 0; i < map->count; i++) {
        struct value *item = &map->items[i];
        if (strcmp(item->key, from) != 0)
            continue;
        char *name = strdup(to);
        if (!name)
            return -ENOMEM;
        free(item->key);
        item->key = name;
    }
    return 0;
}

/* Of a dataset and those below it, or of a spec's dataset. */
static int spec_former_rename_all(struct value *v, bool back)
{
    const char *former;
    int r = 0;

    if (v->type == VALUE_MAP && (former = spec_former_of_map(v, "paths")))
        r = back ? spec_former_rename(v, "paths", former) : spec_former_rename(v, former, "paths");
    for (uint32_t i = 0; r == 0 && i < v->count; i++) {
        struct value *item = &v->items[i];
        if (!item->key || strcmp(item->key, "dataset") == 0 || strcmp(item->key, "datasets") == 0)
            r = spec_former_rename_all(item, back);
    }
    return r;
}

int spec_to_former(struct value *v)
{
    return spec_former_rename_all(v, true);
}

int spec_from_former(struct value *v)
{
    return spec_former_rename_all(v, false);
}
