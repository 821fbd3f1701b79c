/* The table of kinds.def as data. Pure. */
#ifndef DL_KINDS_H
#define DL_KINDS_H

#include "proto/spec.h"

enum files_sort {
    FILES_NONE,   /* it computes, or is made of the datasets inside it */
    FILES_NAMED,  /* spec->files as they are called, opened with the dataset */
    FILES_LISTED, /* paths and patterns of globs.h, and the model if any; likewise */
    FILES_SHARDS, /* the same, but opened again in each epoch, and maybe replaced by then */
    FILES_KNOWN,  /* likewise, under names that follow from those */
    FILES_FOLDER, /* a folder that is listed, with links that may lead anywhere */
    FILES_PLUGIN, /* a library, which reads what it likes */
    FILES_CODE,   /* Python, likewise */
};

enum kind_part {
    PART_TOKENS = 1 << 0, /* of tokenizer.json */
    PART_SENTENCEPIECE = 1 << 1,
    PART_PICTURES = 1 << 2,
    PART_SOUNDS = 1 << 3,
    PART_SOUND_ALONE = 1 << 4, /* without sound there is nothing left of it */
    PART_ZSTD = 1 << 5,
    PART_BROTLI = 1 << 6,
    PART_HDF5 = 1 << 7,
};

struct kind_entry {
    enum dataset_kind kind;
    const char *name;
    const char *style; /* "map", "iterable", or "either" */
    enum files_sort files;
    unsigned parts;    /* PART_… */
    const char *reads; /* for people */
};

/* All kinds, in the order of the enum, which begins with 1. */
const struct kind_entry *kind_entries(size_t *ret_count);

/* NULL for an unknown kind. */
const struct kind_entry *kind_entry(enum dataset_kind kind);

static inline enum files_sort files_sort_of(enum dataset_kind kind)
{
    const struct kind_entry *entry = kind_entry(kind);

    return entry ? entry->files : FILES_NONE;
}

#endif
