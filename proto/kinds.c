#include "proto/kinds.h"

static const struct kind_entry kinds_entries[] = {
#define DATASET(NAME, name, style, files, list, parts, reads) \
    {DATASET_##NAME, #name, style, FILES_##files, parts, reads},
#include "proto/kinds.def"
};

const struct kind_entry *kind_entries(size_t *ret_count)
{
    *ret_count = ARRAY_SIZE(kinds_entries);
    return kinds_entries;
}

const struct kind_entry *kind_entry(enum dataset_kind kind)
{
    return kind >= 1 && kind <= ARRAY_SIZE(kinds_entries) ? &kinds_entries[kind - 1] : NULL;
}
