#include "daemon/data/kinds/arrays/npz.h"
#include "daemon/data/files/unpack.h"
#include "proto/common/load.h"

#include <errno.h>

enum {
    END_BYTES = 22, /* of the end record, without its comment */
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_MOST = UINT16_MAX,
    FLAG_ENCRYPTED = 1,
    FLAG_UTF8 = 1 << 11,
    METHOD_STORED = 0,
    METHOD_DEFLATED = 8,
};

static bool npz_has(const struct npz *npz, uint64_t at, uint64_t bytes)
{
    return at <= npz->bytes && bytes <= npz->bytes - at;
}

static bool npz_is(const struct npz *npz, uint64_t at, const char magic[static 4])
{
    return npz_has(npz, at, 4) && memcmp(npz->data + at, magic, 4) == 0;
}

static int npz_damaged(const char *what, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "", "is a damaged zip archive: %s; write it again", what);
}

/* The record at the end, behind which there is a comment as long as it says. */
static bool npz_find_end(const struct npz *npz, uint64_t *ret)
{
    uint64_t least =
        npz->bytes > END_BYTES + COMMENT_MOST ? npz->bytes - END_BYTES - COMMENT_MOST : 0;

    for (uint64_t at = npz->bytes < END_BYTES ? 0 : npz->bytes - END_BYTES + 1; at-- > least;) {
        if (npz_is(npz, at, "PK\5\6") && npz_has(npz, at, END_BYTES) &&
            at + END_BYTES + load_le16(npz->data + at + 20) == npz->bytes) {
            *ret = at;
            return true;
        }
    }
    return false;
}

int npz_begin(struct npz *npz, const uint8_t *data, uint64_t bytes, struct dl_error *err)
{
    uint64_t end;

    *npz = (struct npz){.data = data, .bytes = bytes};
    if (!npz_find_end(npz, &end))
        return dl_error_set(
            err, EINVAL, "",
            "is not a zip archive, as .npz says, or is truncated; write it with numpy.savez");
    const uint8_t *record = data + end;
    uint32_t entries = load_le16(record + 10), offset = load_le32(record + 16);
    if (load_le16(record + 4) != 0 || load_le16(record + 8) != entries)
        return dl_error_set(err, ENOTSUP, "",
                            "is only a part of a zip archive; write it as one file");
    if (entries == UINT16_MAX || offset == UINT32_MAX)
        return dl_error_set(err, ENOTSUP, "",
                            "is a zip archive of more than 65,534 members or 4 GiB; divide it");
    if (offset > end || load_le32(record + 12) > end - offset)
        return npz_damaged("its directory lies outside the file", err);
    npz->at = offset;
    npz->end = offset + load_le32(record + 12);
    npz->left = entries;
    return 0;
}

/* ---- entries -------------------------------------------------------------------------------- */

static int npz_check_entry(const uint8_t *entry, struct dl_error *err)
{
    uint32_t method = load_le16(entry + 10);

    if (load_le16(entry + 8) & FLAG_ENCRYPTED)
        return dl_error_set(err, ENOTSUP, "", "has an encrypted member; write it without");
    if (method != METHOD_STORED && method != METHOD_DEFLATED)
        return dl_error_set(err, ENOTSUP, "",
                            "has a member packed by method %u of zip; stored and deflated ones "
                            "can be read, as numpy.savez and savez_compressed write them",
                            method);
    if (load_le32(entry + 20) == UINT32_MAX || load_le32(entry + 24) == UINT32_MAX ||
        load_le32(entry + 42) == UINT32_MAX)
        return dl_error_set(err, ENOTSUP, "", "has a member of 4 GiB or more; divide it");
    return 0;
}

/* Where its bytes begin: behind a local header, whose name and extra part may differ. */
static int npz_find_data(const struct npz *npz, uint64_t local, struct npz_member *member,
                         struct dl_error *err)
{
    if (!npz_is(npz, local, "PK\3\4") || !npz_has(npz, local, LOCAL_BYTES))
        return npz_damaged("a member is not where its directory says", err);
    const uint8_t *header = npz->data + local;
    uint64_t at = local + LOCAL_BYTES + load_le16(header + 26) + load_le16(header + 28);
    if (!npz_has(npz, at, member->packed_bytes))
        return npz_damaged("a member extends beyond the file", err);
    member->packed = npz->data + at;
    return 0;
}

static int npz_check_sizes(const struct npz_member *member, struct dl_error *err)
{
    if (member->deflated ? member->bytes / DEFLATE_MOST > member->packed_bytes
                         : member->bytes != member->packed_bytes)
        return npz_damaged("a member's size is not what its directory says", err);
    return 0;
}

static bool npz_is_ascii(const uint8_t *at, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        if (at[i] == 0 || at[i] > 0x7f)
            return false;
    }
    return true;
}

static int npz_take_name(const uint8_t *entry, struct npz_member *member, struct dl_error *err)
{
    static const char suffix[] = ".npy";
    uint32_t len = load_le16(entry + 28), cut = sizeof suffix - 1;
    const uint8_t *name = entry + ENTRY_BYTES;

    if (!(load_le16(entry + 8) & FLAG_UTF8) && !npz_is_ascii(name, len))
        return dl_error_set(err, ENOTSUP, "",
                            "has a member whose name is not marked as UTF-8; write it with "
                            "numpy.savez");
    if (len >= cut && memcmp(name + len - cut, suffix, cut) == 0)
        len -= cut;
    member->name = (const char *)name;
    member->name_len = len;
    return 0;
}

int npz_next(struct npz *npz, struct npz_member *ret, struct dl_error *err)
{
    int r;

    if (npz->left == 0)
        return NPZ_END;
    if (npz->end - npz->at < ENTRY_BYTES || !npz_is(npz, npz->at, "PK\1\2"))
        return npz_damaged("its directory ends too soon", err);
    const uint8_t *entry = npz->data + npz->at;
    uint64_t bytes = ENTRY_BYTES + (uint64_t)load_le16(entry + 28) + load_le16(entry + 30) +
                     load_le16(entry + 32);
    if (bytes > npz->end - npz->at)
        return npz_damaged("its directory ends too soon", err);
    struct npz_member member = {.packed_bytes = load_le32(entry + 20),
                                .bytes = load_le32(entry + 24),
                                .crc = load_le32(entry + 16),
                                .deflated = load_le16(entry + 10) == METHOD_DEFLATED};
    if ((r = npz_check_entry(entry, err)) < 0 || (r = npz_take_name(entry, &member, err)) < 0 ||
        (r = npz_find_data(npz, load_le32(entry + 42), &member, err)) < 0 ||
        (r = npz_check_sizes(&member, err)) < 0)
        return r;
    npz->at += bytes;
    npz->left--;
    *ret = member;
    return 0;
}

/* ---- contents ------------------------------------------------------------------------------- */

static int npz_check_crc(const struct npz_member *member, const uint8_t *data, struct dl_error *err)
{
    if (crc32_of(data, member->bytes) != member->crc)
        return npz_damaged("a member's CRC is wrong", err);
    return 0;
}

int npz_check(const struct npz_member *member, struct dl_error *err)
{
    return npz_check_crc(member, member->packed, err);
}

int npz_unpack(const struct npz_member *member, uint8_t *ret, struct dl_error *err)
{
    uint64_t bytes = 0;
    int r = unpack_deflate(DEFLATE_RAW, member->packed, member->packed_bytes, ret, member->bytes,
                           &bytes);

    if (r == -ENOMEM)
        return dl_error_set(err, ENOMEM, "", "ran out of memory to unpack a member");
    return r == 0 && bytes == member->bytes ? npz_check_crc(member, ret, err)
                                            : npz_damaged("a member cannot be unpacked", err);
}
