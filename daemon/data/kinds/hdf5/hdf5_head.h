/*
 * HDF5 files (the HDF5 File Format Specification, version 3.0, support.hdfgroup.org): the objects
 * that addresses refer to. Superblocks of versions 0 to 3 with addresses of 8 bytes, object headers
 * of versions 1 and 2, groups by symbol tables and by links that lie in their headers. Other
 * features are refused with a message.
 *
 * Every reference is checked to lie in the file, and walks are bounded by its size. Pure.
 */
#ifndef DL_DATA_HDF5_HEAD_H
#define DL_DATA_HDF5_HEAD_H

#include "proto/common/error.h"

#define HDF5_NONE UINT64_MAX /* an undefined address */

/* Of a B-tree of version 1: how deep it may be, and how a node begins. */
enum { HDF5_LEVELS_MAX = 32, HDF5_NODE_BYTES = 24 };

struct hdf5_view {
    const uint8_t *data; /* borrowed; the file */
    uint64_t bytes;
    const char *path;
    uint64_t base; /* bytes of the file before these; MATLAB puts its own header there */
};

/* `n` bytes at `at` of the file; NULL beyond its end. */
static inline const uint8_t *hdf5_bytes(const struct hdf5_view *view, uint64_t at, uint64_t n)
{
    return at <= view->bytes && n <= view->bytes - at ? view->data + at : NULL;
}

/* A number of `n` ≤ 8 bytes, the lowest first. */
static inline uint64_t hdf5_number(const uint8_t *at, unsigned n)
{
    uint64_t number = 0;

    for (unsigned i = 0; i < n; i++)
        number |= (uint64_t)at[i] << 8 * i;
    return number;
}

/* The messages of an object's header that are used. */
enum hdf5_message_type {
    HDF5_DATASPACE = 0x01,
    HDF5_LINK_INFO = 0x02,
    HDF5_DATATYPE = 0x03,
    HDF5_FILL = 0x05,
    HDF5_LINK = 0x06,
    HDF5_EXTERNAL = 0x07,
    HDF5_LAYOUT = 0x08,
    HDF5_FILTERS = 0x0B,
    HDF5_CONTINUATION = 0x10,
    HDF5_SYMBOLS = 0x11,
};
struct hdf5_message {
    enum hdf5_message_type type; /* or another number */
    bool is_shared;              /* its content lies elsewhere */
    const uint8_t *data;         /* borrowed */
    uint64_t bytes;
};

/* For each message of an object; another result than 0 ends the walk and is returned. */
typedef int (*hdf5_message_fn)(void *owner, const struct hdf5_message *message,
                               struct dl_error *err);

/* Where the file begins for HDF5: `view` is of all of it, and then begins there. */
void hdf5_skip_user_block(struct hdf5_view *view);

/* The address of the root group's header. -EINVAL, -ENOTSUP with `err` naming the file. */
int _nodiscard_ hdf5_find_root(const struct hdf5_view *view, uint64_t *ret, struct dl_error *err);

/* The messages of the header at `at`. Errors as above. */
int _nodiscard_ hdf5_walk_messages(const struct hdf5_view *view, uint64_t at, hdf5_message_fn fn,
                                   void *owner, struct dl_error *err);

/* For each object in a group: its name, of `len` bytes, and the address of its header. */
typedef int (*hdf5_link_fn)(void *owner, const char *name, size_t len, uint64_t at,
                            struct dl_error *err);

/* The hard links of the group at `at`, by name if it has symbol tables. hdf5_group.c */
int _nodiscard_ hdf5_walk_links(const struct hdf5_view *view, uint64_t at, hdf5_link_fn fn,
                                void *owner, struct dl_error *err);

/* The object at `name`, such as "a/b", from the root on; -ENOENT if it does not exist. */
int _nodiscard_ hdf5_find(const struct hdf5_view *view, const char *name, uint64_t *ret,
                          struct dl_error *err);

/* "is damaged: ...", -EINVAL. */
int hdf5_refuse(const struct hdf5_view *view, const char *what, struct dl_error *err);

#endif
