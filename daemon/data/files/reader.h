/*
 * Opening files for another user: a path leads only where that user could go, and a file is only
 * opened if that user could read it, whatever this process may do itself.
 *
 * The path is walked from the root directory, name by name: each directory is held by its
 * descriptor while the next name is looked up in it, links are followed by hand, and the opened
 * file itself is checked. If a name is changed meanwhile, it leads to the old file or the new one,
 * each with its own rights, and never to one by the rights of the other.
 *
 * The rights are those of acl(5): the mode, or the access control list if the file has one. Other
 * checks of the kernel (capabilities, security modules, NFSv4 lists) only apply to this process.
 * May block on the disk.
 */
#ifndef DL_DATA_READER_H
#define DL_DATA_READER_H

#include "proto/common/base.h"

#include <limits.h>
#include <sys/stat.h>

struct reader {
    uint32_t uid;
    const uint32_t *groups; /* borrowed; the first one first, in any order then */
    uint32_t n_groups;
};

/* Bits of a mode, and of an entry of a list. */
enum reader_right { READER_READ = 4, READER_SEARCH = 1 };

/*
 * Whether the reader has all of these rights to the file of `st`. `acl`: its
 * system.posix_acl_access; may be NULL. An invalid list gives rights only to the owner. Pure.
 */
bool reader_may(const struct reader *reader, const struct stat *st, const void *acl, size_t bytes,
                unsigned rights);

/* Where a walk has led, or how far. */
struct reader_place {
    char at[PATH_MAX]; /* absolute, without links */
    bool denied;       /* with -EACCES: the reader may not; else this process may not */
};

/*
 * Finds what `path`, which is absolute, leads to: a descriptor that can be examined, and not read.
 * `follow`: if it is a link, what that leads to. -ENOENT, -EACCES, -ENOTDIR, -ELOOP, ...
 */
int _nodiscard_ reader_find(const struct reader *reader, const char *path, bool follow,
                            struct reader_place *place, int *ret_fd);

/* The same with links followed, opened for reading with `flags`, such as O_DIRECTORY. */
int _nodiscard_ reader_open(const struct reader *reader, const char *path, int flags,
                            struct reader_place *place, int *ret_fd);

#endif
