/*
 * libhdf5, loaded at run time, for the first file that our own reader refuses. Its functions are
 * declared here after its manual, since headers exist only for the installed version; only those
 * unchanged since version 1.10 are used.
 *
 * Use it only if is_there. It must be a thread-safe build, since Python modules may use the same
 * library in a client's process.
 */
#ifndef DL_DATA_HDF5_LIBRARY_H
#define DL_DATA_HDF5_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef int64_t hdf5_id; /* negative: the call failed */
typedef unsigned long long hdf5_size;

enum { HDF5_DEFAULT = 0, HDF5_READ_ONLY = 0, HDF5_LITTLE_ENDIAN = 0, HDF5_SELECT_SET = 0 };
enum hdf5_class {
    HDF5_CLASS_INTEGER = 0,
    HDF5_CLASS_FLOAT = 1,
    HDF5_CLASS_STRING = 3,
    HDF5_CLASS_COMPOUND = 6,
    HDF5_CLASS_ENUM = 8,
    HDF5_CLASS_ARRAY = 10,
};
enum {
    HDF5_OBJECT_DATASET = 5,
    HDF5_LAYOUT_VIRTUAL = 3,
    HDF5_UNSIGNED = 0,
    HDF5_PADDED_BY_NUL = 1
};

/* Where the bytes of a file in memory come from and go to. */
struct hdf5_image_calls {
    void *(*take)(size_t bytes, int why, void *owner);
    void *(*copy)(void *to, const void *from, size_t bytes, int why, void *owner);
    void *(*grow)(void *from, size_t bytes, int why, void *owner);
    int (*give_back)(void *from, int why, void *owner);
    void *(*copy_owner)(void *owner);
    int (*free_owner)(void *owner);
    void *owner;
};

/* Of a group; more of it is never read, but written. */
struct hdf5_group_info {
    int storage;
    hdf5_size links;
    int64_t rest[6];
};

/* A link to another file: a negative result refuses it. */
typedef int (*hdf5_outside_fn)(const char *parent, const char *group, const char *file,
                               const char *object, unsigned *flags, hdf5_id access, void *owner);

#define HDF5_FUNCTIONS(X)                                                                        \
    X(int, open, (void))                                                                         \
    X(int, is_library_threadsafe, (void *ret))                                                   \
    X(int, free_memory, (void *memory))                                                          \
    X(int, Dclose, (hdf5_id id))                                                                 \
    X(hdf5_id, Dget_create_plist, (hdf5_id id))                                                  \
    X(hdf5_id, Dget_space, (hdf5_id id))                                                         \
    X(hdf5_id, Dget_type, (hdf5_id id))                                                          \
    X(hdf5_id, Dopen2, (hdf5_id file, const char *name, hdf5_id access))                         \
    X(int, Dread, (hdf5_id id, hdf5_id type, hdf5_id to, hdf5_id from, hdf5_id how, void *out))  \
    X(int, Eset_auto2, (hdf5_id stack, void *function, void *owner))                             \
    X(int, Fclose, (hdf5_id id))                                                                 \
    X(hdf5_id, Fopen, (const char *name, unsigned flags, hdf5_id access))                        \
    X(int, Gget_info, (hdf5_id id, struct hdf5_group_info * ret))                                \
    X(int, Iget_type, (hdf5_id id))                                                              \
    X(ssize_t, Lget_name_by_idx,                                                                 \
      (hdf5_id id, const char *group, int by, int order, hdf5_size i, char *ret, size_t room,    \
       hdf5_id access))                                                                          \
    X(int, Oclose, (hdf5_id id))                                                                 \
    X(hdf5_id, Oopen, (hdf5_id id, const char *name, hdf5_id access))                            \
    X(int, PLget_loading_state, (unsigned *ret))                                                 \
    X(int, PLset_loading_state, (unsigned plugins))                                              \
    X(int, Pclose, (hdf5_id id))                                                                 \
    X(hdf5_id, Pcreate, (hdf5_id kind))                                                          \
    X(int, Pget_chunk, (hdf5_id id, int room, hdf5_size *ret))                                   \
    X(int, Pget_external_count, (hdf5_id id))                                                    \
    X(int, Pget_filter2,                                                                         \
      (hdf5_id id, unsigned i, unsigned *flags, size_t *n, unsigned *values, size_t room,        \
       char *name, unsigned *config))                                                            \
    X(int, Pget_layout, (hdf5_id id))                                                            \
    X(int, Pget_nfilters, (hdf5_id id))                                                          \
    X(int, Pset_chunk_cache, (hdf5_id id, size_t slots, size_t bytes, double least_used))        \
    X(int, Pset_elink_cb, (hdf5_id id, hdf5_outside_fn function, void *owner))                   \
    X(int, Pset_fapl_core, (hdf5_id id, size_t increment, int writes_back))                      \
    X(int, Pset_file_image, (hdf5_id id, void *data, size_t bytes))                              \
    X(int, Pset_file_image_callbacks, (hdf5_id id, struct hdf5_image_calls * calls))             \
    X(int, Sclose, (hdf5_id id))                                                                 \
    X(hdf5_id, Screate_simple, (int ndim, const hdf5_size *dims, const hdf5_size *most))         \
    X(int, Sget_simple_extent_dims, (hdf5_id id, hdf5_size * ret, hdf5_size * most))             \
    X(int, Sget_simple_extent_ndims, (hdf5_id id))                                               \
    X(int, Sselect_hyperslab,                                                                    \
      (hdf5_id id, int how, const hdf5_size *start, const hdf5_size *stride,                     \
       const hdf5_size *count, const hdf5_size *block))                                          \
    X(hdf5_id, Tarray_create2, (hdf5_id base, unsigned ndim, const hdf5_size *dims))             \
    X(int, Tclose, (hdf5_id id))                                                                 \
    X(hdf5_id, Tcopy, (hdf5_id id))                                                              \
    X(hdf5_id, Tcreate, (int kind, size_t bytes))                                                \
    X(int, Tget_array_dims2, (hdf5_id id, hdf5_size * ret))                                      \
    X(int, Tget_array_ndims, (hdf5_id id))                                                       \
    X(int, Tget_class, (hdf5_id id))                                                             \
    X(int, Tget_fields,                                                                          \
      (hdf5_id id, size_t * sign, size_t * exponent_at, size_t * exponent, size_t * mantissa_at, \
       size_t * mantissa))                                                                       \
    X(int, Tget_member_index, (hdf5_id id, const char *name))                                    \
    X(char *, Tget_member_name, (hdf5_id id, unsigned i))                                        \
    X(hdf5_id, Tget_member_type, (hdf5_id id, unsigned i))                                       \
    X(int, Tget_sign, (hdf5_id id))                                                              \
    X(size_t, Tget_size, (hdf5_id id))                                                           \
    X(hdf5_id, Tget_super, (hdf5_id id))                                                         \
    X(int, Tinsert, (hdf5_id id, const char *name, size_t at, hdf5_id type))                     \
    X(int, Tis_variable_str, (hdf5_id id))                                                       \
    X(int, Tset_offset, (hdf5_id id, size_t bits))                                               \
    X(int, Tset_order, (hdf5_id id, int order))                                                  \
    X(int, Tset_precision, (hdf5_id id, size_t bits))                                            \
    X(int, Tset_strpad, (hdf5_id id, int padding))                                               \
    X(int, Zfilter_avail, (int filter))

struct hdf5_library {
    bool is_there;
#define X(result, name, arguments) result(*name) arguments;
    HDF5_FUNCTIONS(X)
#undef X
    const hdf5_id *file_access, *dataset_access, *link_access; /* kinds of property lists */
};

/* NULL if no usable one is installed; hdf5_library_missing() explains it. */
const struct hdf5_library *hdf5_library_find(void);
const char *hdf5_library_missing(void);

#endif
