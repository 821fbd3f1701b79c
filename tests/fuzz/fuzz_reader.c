/*
 * Access control lists, which a file's owner writes. Whatever they are: no right comes from a list
 * that is none, who may do two things may do each, and the owner's rights are the mode's.
 *
 * Input: owner, group and rights of the file, of a few values each; then the list.
 */
#include "tests/fuzz/fuzz.h"

#include "daemon/data/files/reader.h"

enum { HEAD = 4, ENTRY = 8, VERSION = 4 };

static bool may(const struct reader *reader, const struct stat *st, const uint8_t *acl, size_t len,
                unsigned rights)
{
    return reader_may(reader, st, acl, len, rights);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const uint32_t groups[] = {2, 3};
    const struct reader reader = {.uid = 1, .groups = groups, .n_groups = 2};

    if (len < HEAD)
        return 0;
    struct stat st = {.st_uid = data[0] & 3,
                      .st_gid = data[1] & 3,
                      .st_mode = (mode_t)((data[2] << 8 | data[3]) & 0777)};
    const uint8_t *acl = data + HEAD;
    size_t bytes = len - HEAD;
    bool read = may(&reader, &st, acl, bytes, READER_READ);
    bool search = may(&reader, &st, acl, bytes, READER_SEARCH);
    bool both = may(&reader, &st, acl, bytes, READER_READ | READER_SEARCH);

    FUZZ_ASSERT(!both || (read && search));
    if (st.st_uid == reader.uid) {
        FUZZ_ASSERT(read == ((st.st_mode & S_IRUSR) != 0));
        FUZZ_ASSERT(search == ((st.st_mode & S_IXUSR) != 0));
        FUZZ_ASSERT(both == (read && search));
    } else if (bytes <= VERSION || (bytes - VERSION) % ENTRY != 0) {
        FUZZ_ASSERT(!read && !search);
    }
    FUZZ_ASSERT(may(&reader, &st, acl, bytes, 0) || st.st_uid != reader.uid);
    return 0;
}
