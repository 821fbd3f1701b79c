#include "daemon/data/kinds/hdf5/hdf5_foreign.h"

#include "daemon/data/kinds/hdf5/hdf5_library.h"
#include "proto/dtype.h"
#include "proto/tree.h"

#include <errno.h>
#include <stdio.h>

struct hdf5_foreign {
    const struct hdf5_library *library;
    struct hdf5_view view;
    hdf5_id file;
};

/* Of an array. */
struct hdf5_foreign_array {
    const struct hdf5_library *library;
    hdf5_id dataset, space, type; /* type: as read */
    hdf5_id row;                  /* the space of a row in memory */
    uint32_t ndim;                /* of the dataset: its elements may have dimensions, too */
    hdf5_size start[HDF5_DIMS_MAX], count[HDF5_DIMS_MAX];
};

/* ---- the file ------------------------------------------------------------------------------- */

/* libhdf5 would copy the bytes some times: it is given where they are instead. */
static void *hdf5_foreign_take(size_t bytes, int why, void *owner)
{
    const struct hdf5_foreign *file = owner;

    (void)why;
    return bytes == file->view.bytes ? (void *)(uintptr_t)file->view.data : NULL;
}

static void *hdf5_foreign_copy(void *to, const void *from, size_t bytes, int why, void *owner)
{
    (void)bytes, (void)why, (void)owner;
    return to == from ? to : NULL;
}

static void *hdf5_foreign_grow(void *from, size_t bytes, int why, void *owner)
{
    (void)from, (void)bytes, (void)why, (void)owner;
    return NULL;
}

static int hdf5_foreign_give_back(void *from, int why, void *owner)
{
    (void)from, (void)why, (void)owner;
    return 0;
}

static void *hdf5_foreign_copy_owner(void *owner)
{
    return owner;
}

static int hdf5_foreign_free_owner(void *owner)
{
    (void)owner;
    return 0;
}

static int hdf5_foreign_refuse_link(const char *parent, const char *group, const char *file,
                                    const char *object, unsigned *flags, hdf5_id access,
                                    void *owner)
{
    (void)parent, (void)group, (void)file, (void)object, (void)access, (void)owner;
    *flags = HDF5_READ_ONLY;
    return -1;
}

static hdf5_id hdf5_foreign_open_image(struct hdf5_foreign *file)
{
    const struct hdf5_library *l = file->library;
    struct hdf5_image_calls calls = {
        .take = hdf5_foreign_take,
        .copy = hdf5_foreign_copy,
        .grow = hdf5_foreign_grow,
        .give_back = hdf5_foreign_give_back,
        .copy_owner = hdf5_foreign_copy_owner,
        .free_owner = hdf5_foreign_free_owner,
        .owner = file,
    };
    hdf5_id access = l->Pcreate(*l->file_access), opened = -1;
    char name[64];

    /* It takes files of the same name for one. */
    (void)snprintf(name, sizeof name, "image %p", (void *)file);
    if (access >= 0 && l->Pset_fapl_core(access, 1 << 16, 0) >= 0 &&
        l->Pset_file_image_callbacks(access, &calls) >= 0 &&
        l->Pset_file_image(access, (void *)(uintptr_t)file->view.data, file->view.bytes) >= 0)
        opened = l->Fopen(name, HDF5_READ_ONLY, access);
    if (access >= 0)
        (void)l->Pclose(access);
    return opened;
}

int hdf5_foreign_open(const struct hdf5_view *view, struct hdf5_foreign **ret, struct dl_error *err)
{
    const struct hdf5_library *library = hdf5_library_find();

    if (!library)
        return dl_error_set(err, ENOTSUP, view->path, "%s", hdf5_library_missing());
    struct hdf5_foreign *file = calloc(1, sizeof *file);
    if (!file)
        return dl_error_set(err, ENOMEM, view->path, "out of memory");
    (void)library->Eset_auto2(HDF5_DEFAULT, NULL, NULL); /* it prints nothing */
    *file = (struct hdf5_foreign){.library = library, .view = *view};
    file->file = hdf5_foreign_open_image(file);
    if (file->file < 0) {
        free(file);
        return dl_error_set(err, EINVAL, view->path, "cannot be opened by libhdf5; it is damaged");
    }
    *ret = file;
    return 0;
}

struct hdf5_foreign *hdf5_foreign_close(struct hdf5_foreign *file)
{
    if (file)
        (void)file->library->Fclose(file->file);
    free(file);
    return NULL;
}

/* ---- its datasets --------------------------------------------------------------------------- */

/* Where to look no further than the file. */
static hdf5_id hdf5_foreign_access(const struct hdf5_library *l, hdf5_id kind)
{
    hdf5_id access = l->Pcreate(kind);

    if (access >= 0 && l->Pset_elink_cb(access, hdf5_foreign_refuse_link, NULL) < 0) {
        (void)l->Pclose(access);
        return -1;
    }
    return access;
}

static bool hdf5_foreign_is_dataset(const struct hdf5_foreign *file, const char *name,
                                    hdf5_id access)
{
    const struct hdf5_library *l = file->library;
    hdf5_id object = l->Oopen(file->file, name, access);

    if (object < 0)
        return false; /* a link that leads nowhere, or elsewhere */
    bool is = l->Iget_type(object) == HDF5_OBJECT_DATASET;
    (void)l->Oclose(object);
    return is;
}

int hdf5_foreign_walk(const struct hdf5_foreign *file, hdf5_link_fn fn, void *owner,
                      struct dl_error *err)
{
    enum { BY_NAME = 0, UPWARD = 0, ROOM = 1024 };
    const struct hdf5_library *l = file->library;
    hdf5_id access = hdf5_foreign_access(l, *l->link_access);
    struct hdf5_group_info info = {0};
    char name[ROOM]; /* a longer name is refused as one that is too long */
    int r = 0;

    if (access < 0 || l->Gget_info(file->file, &info) < 0)
        r = hdf5_refuse(&file->view, "its root has no list of links", err);
    for (hdf5_size i = 0; r == 0 && i < info.links; i++) {
        ssize_t len =
            l->Lget_name_by_idx(file->file, ".", BY_NAME, UPWARD, i, name, sizeof name, access);
        if (len < 0)
            r = hdf5_refuse(&file->view, "a link has no name", err);
        else if ((size_t)len >= sizeof name || hdf5_foreign_is_dataset(file, name, access))
            r = fn(owner, name, min_u64((uint64_t)len, sizeof name - 1), 0, err);
    }
    if (access >= 0)
        (void)l->Pclose(access);
    return r;
}

/* ---- types ---------------------------------------------------------------------------------- */

static uint32_t hdf5_foreign_integer(const struct hdf5_library *l, hdf5_id type)
{
    static const uint32_t types[2][4] = {
        {DL_DTYPE_UINT8, DL_DTYPE_UINT16, DL_DTYPE_UINT32, DL_DTYPE_UINT64},
        {DL_DTYPE_INT8, DL_DTYPE_INT16, DL_DTYPE_INT32, DL_DTYPE_INT64}};

    for (unsigned i = 0; i < 4; i++) {
        if (l->Tget_size(type) == (size_t)1 << i)
            return types[l->Tget_sign(type) != HDF5_UNSIGNED][i];
    }
    return 0;
}

static uint32_t hdf5_foreign_float(const struct hdf5_library *l, hdf5_id type)
{
    static const struct {
        size_t bytes, exponent, mantissa;
        uint32_t dtype;
    } kinds[] = {
        {2, 5, 10, DL_DTYPE_FLOAT16}, {4, 8, 23, DL_DTYPE_FLOAT32}, {8, 11, 52, DL_DTYPE_FLOAT64}};
    size_t sign, exponent_at, exponent, mantissa_at, mantissa;

    if (l->Tget_fields(type, &sign, &exponent_at, &exponent, &mantissa_at, &mantissa) < 0)
        return 0;
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (l->Tget_size(type) == kinds[i].bytes && exponent == kinds[i].exponent &&
            mantissa == kinds[i].mantissa)
            return kinds[i].dtype;
    }
    return 0;
}

/* As h5py stores bool. */
static bool hdf5_foreign_is_bool(const struct hdf5_library *l, hdf5_id type)
{
    char *first = l->Tget_size(type) == 1 ? l->Tget_member_name(type, 0) : NULL;
    bool is = first && strcmp(first, "FALSE") == 0;

    if (first)
        (void)l->free_memory(first);
    return is;
}

/* The type in memory for numbers stored as `type`, and their dtype; negative if unsupported. */
static hdf5_id hdf5_foreign_number(const struct hdf5_library *l, hdf5_id type, uint32_t *ret)
{
    int kind = l->Tget_class(type);

    if (kind == HDF5_CLASS_ENUM && hdf5_foreign_is_bool(l, type)) {
        *ret = DL_DTYPE_BOOL;
        return l->Tcopy(type);
    }
    hdf5_id number = kind == HDF5_CLASS_ENUM ? l->Tget_super(type) : l->Tcopy(type);
    *ret = 0;
    if (number < 0)
        return -1;
    kind = l->Tget_class(number);
    if (kind == HDF5_CLASS_INTEGER)
        *ret = hdf5_foreign_integer(l, number);
    else if (kind == HDF5_CLASS_FLOAT)
        *ret = hdf5_foreign_float(l, number);
    bool done = *ret && l->Tset_order(number, HDF5_LITTLE_ENDIAN) >= 0;
    if (done && kind == HDF5_CLASS_INTEGER) /* fewer bits than its bytes have */
        done = l->Tset_offset(number, 0) >= 0 &&
               l->Tset_precision(number, 8 * l->Tget_size(number)) >= 0;
    if (done)
        return number;
    (void)l->Tclose(number);
    return -1;
}

static hdf5_id hdf5_foreign_text(const struct hdf5_library *l, hdf5_id type,
                                 struct hdf5_array *array)
{
    hdf5_id text = array->ndim == 1 ? l->Tcopy(type) : -1;
    int is_pointer = text < 0 ? -1 : l->Tis_variable_str(type);

    if (text < 0)
        return -1;
    array->text = is_pointer > 0 ? HDF5_TEXT_POINTER : HDF5_TEXT_IN_ROOM;
    array->row_bytes = is_pointer > 0 ? sizeof(char *) : l->Tget_size(type);
    if (is_pointer == 0 && l->Tset_strpad(text, HDF5_PADDED_BY_NUL) >= 0)
        return text;
    if (is_pointer > 0)
        return text;
    (void)l->Tclose(text);
    return -1;
}

/* The same if an element is an array: its dimensions follow the dataset's. */
static hdf5_id hdf5_foreign_numbers(const struct hdf5_library *l, hdf5_id type,
                                    struct hdf5_array *array)
{
    hdf5_size dims[HDF5_DIMS_MAX];

    if (l->Tget_class(type) == HDF5_CLASS_STRING)
        return hdf5_foreign_text(l, type, array);
    if (l->Tget_class(type) != HDF5_CLASS_ARRAY)
        return hdf5_foreign_number(l, type, &array->dtype);
    int ndim = l->Tget_array_ndims(type);
    if (ndim < 1 || (unsigned)ndim > HDF5_DIMS_MAX - array->ndim)
        return -1;
    hdf5_id stored = l->Tget_super(type);
    hdf5_id number = stored < 0 ? -1 : hdf5_foreign_number(l, stored, &array->dtype), made = -1;
    if (number >= 0 && l->Tget_array_dims2(type, dims) == ndim)
        made = l->Tarray_create2(number, (unsigned)ndim, dims);
    for (int i = 0; made >= 0 && i < ndim; i++)
        array->dims[array->ndim++] = dims[i];
    if (stored >= 0)
        (void)l->Tclose(stored);
    if (number >= 0)
        (void)l->Tclose(number);
    return made;
}

/* Of one part of a compound: libhdf5 leaves the others out. */
static hdf5_id hdf5_foreign_part(const struct hdf5_library *l, hdf5_id type, const char *part,
                                 struct hdf5_array *array)
{
    int i = l->Tget_class(type) == HDF5_CLASS_COMPOUND ? l->Tget_member_index(type, part) : -1;
    hdf5_id stored = i < 0 ? -1 : l->Tget_member_type(type, (unsigned)i);
    hdf5_id numbers = stored < 0 ? -1 : hdf5_foreign_numbers(l, stored, array), made = -1;

    if (numbers >= 0)
        made = l->Tcreate(HDF5_CLASS_COMPOUND, l->Tget_size(numbers));
    if (made >= 0 && l->Tinsert(made, part, 0, numbers) < 0) {
        (void)l->Tclose(made);
        made = -1;
    }
    if (numbers >= 0)
        (void)l->Tclose(numbers);
    if (stored >= 0)
        (void)l->Tclose(stored);
    return made;
}

/* ---- arrays --------------------------------------------------------------------------------- */

static int hdf5_foreign_take_space(struct hdf5_array *array, struct dl_error *err)
{
    struct hdf5_foreign_array *f = array->foreign;
    const struct hdf5_library *l = f->library;
    hdf5_size dims[HDF5_DIMS_MAX];
    int ndim = l->Sget_simple_extent_ndims(f->space);

    if (ndim < 1)
        return hdf5_array_refuse(array, EINVAL, "has no dimensions, and so no rows", err);
    if (ndim > HDF5_DIMS_MAX)
        return hdf5_array_refuse(array, ENOTSUP, "has too many dimensions", err);
    if (l->Sget_simple_extent_dims(f->space, dims, NULL) != ndim)
        return hdf5_array_refuse(array, EINVAL, "is damaged: it has no dimensions", err);
    f->ndim = array->ndim = (uint32_t)ndim;
    for (int i = 0; i < ndim; i++)
        array->dims[i] = f->count[i] = dims[i];
    f->count[0] = 1;
    f->row = l->Screate_simple(ndim, f->count, NULL);
    return f->row >= 0 ? 0 : hdf5_array_refuse(array, ENOMEM, "needs more memory", err);
}

/* part: of a compound; NULL: all of an element. */
static int hdf5_foreign_take_type(struct hdf5_array *array, const char *part, struct dl_error *err)
{
    struct hdf5_foreign_array *f = array->foreign;
    const struct hdf5_library *l = f->library;
    hdf5_id type = l->Dget_type(f->dataset);
    bool is_compound = type >= 0 && !part && l->Tget_class(type) == HDF5_CLASS_COMPOUND;

    f->type = type < 0 ? -1
              : part   ? hdf5_foreign_part(l, type, part, array)
                       : hdf5_foreign_numbers(l, type, array);
    if (type >= 0)
        (void)l->Tclose(type);
    if (f->type >= 0)
        return 0;
    if (is_compound)
        return hdf5_array_refuse(array, ENOTSUP,
                                 "is of compounds; name parts of it with dataset.fields, such as "
                                 "{x: table/x}",
                                 err);
    return hdf5_array_refuse(
        array, ENOTSUP,
        "holds neither numbers nor one text a row; choose others with dataset.fields", err);
}

/* A filter of `how` that this libhdf5 does not have; 0: it has all. It would load a module for one
 * that it does not know, but the file is not to say which: for others of the process it still may.
 */
static int hdf5_foreign_lacks(const struct hdf5_library *l, hdf5_id how)
{
    int n = l->Pget_nfilters(how), lacks = 0;
    unsigned modules = 0;

    if (l->PLget_loading_state(&modules) >= 0)
        (void)l->PLset_loading_state(0);
    for (int i = 0; lacks == 0 && i < n; i++) {
        unsigned flags, config;
        size_t none = 0;
        int id = l->Pget_filter2(how, (unsigned)i, &flags, &none, NULL, 0, NULL, &config);
        if (l->Zfilter_avail(id) <= 0)
            lacks = id;
    }
    (void)l->PLset_loading_state(modules);
    return lacks;
}

/* What it stands on: nothing but the file, and filters that are there. */
static int hdf5_foreign_check_layout(struct hdf5_array *array, struct dl_error *err)
{
    struct hdf5_foreign_array *f = array->foreign;
    const struct hdf5_library *l = f->library;
    hdf5_id how = l->Dget_create_plist(f->dataset);
    bool is_outside =
        how < 0 || l->Pget_layout(how) == HDF5_LAYOUT_VIRTUAL || l->Pget_external_count(how) != 0;
    int lacks = how < 0 ? 0 : hdf5_foreign_lacks(l, how);

    if (how >= 0)
        (void)l->Pclose(how);
    if (is_outside)
        return hdf5_array_refuse(
            array, ENOTSUP, "is virtual, or stored in other files; copy it with h5repack", err);
    if (lacks == 0)
        return 0;
    return dl_error_set(err, ENOTSUP, array->view.path,
                        "its dataset %s is packed by filter %d, which libhdf5 does not have; copy "
                        "it with h5repack -f GZIP=4",
                        array->name, lacks);
}

/* Bytes of one chunk; 0: it is in one piece. */
static uint64_t hdf5_foreign_chunk_bytes(const struct hdf5_library *l, hdf5_id dataset)
{
    hdf5_id how = l->Dget_create_plist(dataset), type = l->Dget_type(dataset);
    hdf5_size dims[HDF5_DIMS_MAX];
    int ndim = how < 0 ? -1 : l->Pget_chunk(how, HDF5_DIMS_MAX, dims);
    uint64_t bytes = type < 0 || ndim < 1 ? 0 : l->Tget_size(type);

    for (int i = 0; i < ndim && i < HDF5_DIMS_MAX; i++)
        bytes *= dims[i]; /* below 4 GiB by the format */
    if (how >= 0)
        (void)l->Pclose(how);
    if (type >= 0)
        (void)l->Tclose(type);
    return bytes;
}

/* Opened twice: the chunk size determines the cache. */
static hdf5_id hdf5_foreign_open_dataset(const struct hdf5_foreign *file, const char *name,
                                         uint64_t cache)
{
    enum { SLOTS_MIN = 521, SLOTS_MAX = 1 << 20, SLOTS_A_CHUNK = 100 };
    const struct hdf5_library *l = file->library;
    hdf5_id access = hdf5_foreign_access(l, *l->dataset_access), opened = -1;
    hdf5_id first = access < 0 ? -1 : l->Dopen2(file->file, name, access);
    uint64_t chunk = first < 0 ? 0 : hdf5_foreign_chunk_bytes(l, first);

    if (chunk > 0) {
        uint64_t bytes = max_u64(cache, chunk);
        uint64_t slots = min_u64(bytes / chunk, SLOTS_MAX / SLOTS_A_CHUNK) * SLOTS_A_CHUNK + 1;
        if (l->Pset_chunk_cache(access, max_u64(slots, SLOTS_MIN), bytes, 0) >= 0) {
            (void)l->Dclose(first);
            first = -1;
            opened = l->Dopen2(file->file, name, access);
        }
    }
    if (access >= 0)
        (void)l->Pclose(access);
    return first >= 0 ? first : opened;
}

/* ret_part: the requested part of a compound; NULL: all of it. */
static hdf5_id hdf5_foreign_find(const struct hdf5_foreign *file, const char *name, uint64_t cache,
                                 const char **ret_part)
{
    const char *slash = strrchr(name, '/');
    hdf5_id found = hdf5_foreign_open_dataset(file, name, cache);

    *ret_part = NULL;
    if (found >= 0 || !slash || slash == name)
        return found;
    _cleanup_free_ char *table = strndup(name, (size_t)(slash - name));
    *ret_part = slash + 1;
    return table ? hdf5_foreign_open_dataset(file, table, cache) : -1;
}

static int hdf5_foreign_measure(struct hdf5_array *array, struct dl_error *err)
{
    uint64_t all;

    if (array->text)
        return 0;
    if (!tensor_bytes(array->dtype, array->ndim - 1, array->dims + 1, &array->row_bytes) ||
        mul_overflows(array->row_bytes, array->dims[0], &all) || all > INT64_MAX)
        return hdf5_array_refuse(array, EINVAL, "has 2^63 bytes or more", err);
    return 0;
}

int hdf5_foreign_open_array(const struct hdf5_foreign *file, const char *name, uint64_t cache,
                            struct hdf5_array *ret, struct dl_error *err)
{
    const struct hdf5_library *l = file->library;
    const char *part;
    int r;

    *ret = (struct hdf5_array){.view = file->view, .name = name, .tree = HDF5_NONE};
    struct hdf5_foreign_array *f = ret->foreign = calloc(1, sizeof *f);
    if (!f)
        return hdf5_array_refuse(ret, ENOMEM, "needs more memory", err);
    *f = (struct hdf5_foreign_array){.library = l, .space = -1, .type = -1, .row = -1};
    f->dataset = hdf5_foreign_find(file, name, cache, &part);
    if (f->dataset < 0)
        return dl_error_set(err, ENOENT, file->view.path, "has no dataset %s that libhdf5 can open",
                            name);
    f->space = l->Dget_space(f->dataset);
    if ((r = hdf5_foreign_check_layout(ret, err)) < 0 ||
        (r = hdf5_foreign_take_space(ret, err)) < 0 ||
        (r = hdf5_foreign_take_type(ret, part, err)) < 0)
        return r;
    return hdf5_foreign_measure(ret, err);
}

int hdf5_foreign_read(const struct hdf5_array *array, uint64_t row, void *out, struct dl_error *err)
{
    struct hdf5_foreign_array *f = array->foreign;
    const struct hdf5_library *l = f->library;

    f->start[0] = row;
    (void)l->Eset_auto2(HDF5_DEFAULT, NULL, NULL); /* of this thread */
    if (l->Sselect_hyperslab(f->space, HDF5_SELECT_SET, f->start, NULL, f->count, NULL) >= 0 &&
        l->Dread(f->dataset, f->type, f->row, f->space, HDF5_DEFAULT, out) >= 0)
        return 0;
    return dl_error_set(err, EINVAL, array->view.path,
                        "its dataset %s has a row %llu that libhdf5 cannot read: it is damaged, or "
                        "packed by a filter that this libhdf5 does not have",
                        array->name, (ull)row);
}

void hdf5_foreign_close_array(struct hdf5_array *array)
{
    struct hdf5_foreign_array *f = array->foreign;
    const struct hdf5_library *l = f->library;

    if (f->row >= 0)
        (void)l->Sclose(f->row);
    if (f->type >= 0)
        (void)l->Tclose(f->type);
    if (f->space >= 0)
        (void)l->Sclose(f->space);
    if (f->dataset >= 0)
        (void)l->Dclose(f->dataset);
    free(f);
    array->foreign = NULL;
}
