/*
 * The members of a tar file in memory, one after another: ustar, pax (path, size), GNU (long names,
 * large numbers), and what was written before them. POSIX.1-2008, pax, "ustar Interchange Format";
 * GNU tar's manual, "Basic Tar Format". Pure.
 */
#ifndef DL_DATA_TAR_READER_H
#define DL_DATA_TAR_READER_H

#include "proto/common/error.h"
#include "proto/limits.h"

enum { TAR_BLOCK = 512 };

#define TAR_END 1 /* not an error: no more members */

struct tar_view {
    const char *path; /* borrowed; of the file, for messages */
    const uint8_t *data;
    uint64_t bytes;
    uint64_t base; /* for messages: where in the file the data begin, if they are a part of it */
};

struct tar_reader {
    struct tar_view view;
    uint64_t offset;                    /* of the next member's first header */
    char name[DL_BOUND_PATH_BYTES + 1]; /* of the member taken last */
};

struct tar_member {
    uint64_t begin;      /* offset of its first header: extended headers are in front of its own */
    const char *name;    /* borrowed from the reader until its next call */
    const uint8_t *data; /* in the view */
    uint64_t size;       /* bytes of data */
    bool regular;        /* a file, no directory, link or device */
    bool odd;            /* tar programs do not all read it alike: see tar_reader.c */
};

/* Starts at the member whose first header is at `offset`, a valid one or 0. */
void tar_reader_init(struct tar_reader *reader, const struct tar_view *view, uint64_t offset);

/*
 * The next member. 0, TAR_END, or -EINVAL with `err` naming file and offset: a damaged header, a
 * file that ends too soon, a sparse member, a name of more than DL_BOUND_PATH_BYTES. The reader is
 * then where it was.
 */
int _nodiscard_ tar_next(struct tar_reader *reader, struct tar_member *ret, struct dl_error *err);

/*
 * How many bytes of a view tar_next() needs for the member that begins at `data`, judging by the
 * first `have`: if more than these, read them and ask again. tar_next() then works without the
 * member's own data.
 */
uint64_t tar_head_bytes(const uint8_t *data, uint64_t have);

#endif
