#include "daemon/data/kinds/hdf5/hdf5_library.h"

#include "proto/common/base.h"
#include "proto/common/library.h"

#ifndef HDF5_FILES /* Debian's name, by its version; others' */
#define HDF5_FILES                                                                        \
    "libhdf5_serial.so.310", "libhdf5_serial.so.103", "libhdf5.so.320", "libhdf5.so.310", \
        "libhdf5.so.200", "libhdf5.so.103"
#endif

/* Set once; the same whichever thread does it. */
static struct hdf5_library hdf5_library;

static bool hdf5_library_set_up(const struct hdf5_library *library)
{
    uint64_t is_threadsafe = 0; /* it writes one byte, or four */

    return library->open() >= 0 && library->is_library_threadsafe(&is_threadsafe) >= 0 &&
           is_threadsafe != 0;
}

const struct hdf5_library *hdf5_library_find(void)
{
    static const char *const files[] = {HDF5_FILES, NULL};
    static const struct library_function functions[] = {
#define X(result, name, arguments) {"H5" #name, &hdf5_library.name},
        HDF5_FUNCTIONS(X)
#undef X
            {"H5P_CLS_FILE_ACCESS_ID_g", &hdf5_library.file_access},
        {"H5P_CLS_DATASET_ACCESS_ID_g", &hdf5_library.dataset_access},
        {"H5P_CLS_LINK_ACCESS_ID_g", &hdf5_library.link_access},
    };

    if (!hdf5_library.is_there)
        hdf5_library.is_there = library_find(files, functions, ARRAY_SIZE(functions)) &&
                                hdf5_library_set_up(&hdf5_library);
    return hdf5_library.is_there ? &hdf5_library : NULL;
}

const char *hdf5_library_missing(void)
{
    if (hdf5_library_find())
        return NULL;
    return "this system has no libhdf5 for several threads; install it (libhdf5-103-1 of Debian "
           "12, "
           "libhdf5-310 of Debian 13)";
}
