/* Without libhdf5: our own reader's files are read, and of others it is said what would read them.
 */
#include "daemon/data/kinds/hdf5/hdf5_library.h"
#include "tests/unit/data_files.h"

#include <errno.h>

static int open_corpus(const char *name, struct spec_field *field, struct dl_error *err)
{
    struct dataset *ds = NULL;
    char path[512];

    snprintf(path, sizeof path, "%s/%s", HDF5_CORPUS, name);
    struct spec_file file = {.path = path};
    struct spec_dataset spec = {.kind = DATASET_HDF5,
                                .files = &file,
                                .n_files = 1,
                                .fields = field,
                                .n_fields = field ? 1 : 0};
    int r = dataset_open(&spec, &anywhere, &ds, err);
    dataset_close(ds);
    return r;
}

TEST(test_what_it_says)
{
    struct spec_field part = {(char *)"x", (char *)"label/part"};
    struct dl_error err = {0};

    assert_null(hdf5_library_find());
    assert_non_null(hdf5_library_missing());
    assert_int_equal(open_corpus("rows", NULL, &err), 0);
    assert_int_equal(open_corpus("user_block", NULL, &err), 0);
    assert_int_equal(open_corpus("dense", NULL, &err), -ENOTSUP);
    assert_error_has(&err, "has a group with its links in a heap");
    assert_error_has(&err, "libhdf5 might read it, but this system has no libhdf5");
    assert_int_equal(open_corpus("dense", NULL, NULL), -ENOTSUP);
    assert_int_equal(open_corpus("rows", &part, &err), -ENOENT);
    assert_error_has(&err, "has no dataset label/part; libhdf5 might read it, but");
}
