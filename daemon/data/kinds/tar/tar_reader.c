#include "daemon/data/kinds/tar/tar_reader.h"

#include <ctype.h>
#include <errno.h>

/* A header block as it stands in the file. Texts end at a NUL or at the end of their field. */
struct tar_header {
    char name[100];
    char mode[8];
    char uid[8];
    char gid[8];
    char size[12];
    char mtime[12];
    char checksum[8];
    char type;
    char link[100];
    char magic[8];
    char owner[32];
    char group[32];
    char device[16];
    char prefix[155];
    char rest[12];
};
_Static_assert(sizeof(struct tar_header) == TAR_BLOCK, "one block");

/* What extended headers say of the member behind them. */
struct tar_extension {
    const char *pax_path; /* in the view; not NUL-terminated; may be NULL */
    const char *gnu_path;
    uint64_t pax_len;
    uint64_t gnu_len;
    uint64_t size;
    bool has_size;
    bool any;
    bool sparse;
    bool odd;
};

/* In the file, for messages. */
static unsigned long long tar_reader_place(const struct tar_reader *reader, uint64_t at)
{
    uint64_t place = reader->view.base + at;

    return place;
}

static int tar_reader_damaged(const struct tar_reader *reader, uint64_t at, const char *what,
                              struct dl_error *err)
{
    return dl_error_set(err, EINVAL, reader->view.path,
                        "its header at byte %llu %s; the shard is damaged there, or is not a tar "
                        "file",
                        tar_reader_place(reader, at), what);
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Octal digits between spaces; or, with the first bit set, a big-endian number of all the rest. */
static bool tar_reader_read_number(const char *field, size_t len, uint64_t *ret)
{
    const uint8_t *at = (const uint8_t *)field, *end = at + len;
    uint64_t value = 0;

    if (*at & 0x80) {
        value = *at++ & 0x7F;
        for (; at < end; at++) {
            if (value >> 55)
                return false;
            value = value << 8 | *at;
        }
        *ret = value;
        return true;
    }
    while (at < end && *at == ' ')
        at++;
    for (; at < end && *at >= '0' && *at <= '7'; at++)
        value = value << 3 | (uint64_t)(*at - '0'); /* 12 digits at most */
    if (at < end && *at != ' ' && *at != '\0')
        return false;
    *ret = value;
    return true;
}

/* The sum of a block's bytes, in four lanes of 16 bits: each is of 128 bytes, 32640 at most. */
static uint32_t tar_reader_sum_block(const uint8_t *block)
{
    const uint64_t lanes = 0x00FF00FF00FF00FF;
    uint64_t sum = 0, word;

    for (unsigned i = 0; i < TAR_BLOCK; i += sizeof word) {
        memcpy(&word, block + i, sizeof word);
        sum += (word & lanes) + (word >> 8 & lanes);
    }
    return (uint32_t)((sum & 0xFFFF) + (sum >> 16 & 0xFFFF) + (sum >> 32 & 0xFFFF) + (sum >> 48));
}

/*
 * The sum of the header's bytes, its own field counted as spaces. Some old programs added signed
 * ones: 256 less for each byte above 127.
 */
static bool tar_reader_checksum_fits(const struct tar_header *header)
{
    const uint8_t *block = (const uint8_t *)header;
    const uint8_t *own = (const uint8_t *)header->checksum;
    uint32_t sum = tar_reader_sum_block(block), high = 0;
    uint64_t want;

    if (!tar_reader_read_number(header->checksum, sizeof header->checksum, &want))
        return false;
    for (unsigned i = 0; i < sizeof header->checksum; i++)
        sum += ' ' - (uint32_t)own[i];
    if (want == sum)
        return true;
    for (unsigned i = 0; i < TAR_BLOCK; i++)
        high += block[i] >> 7;
    for (unsigned i = 0; i < sizeof header->checksum; i++)
        high -= own[i] >> 7;
    return (int64_t)want == (int64_t)sum - 256 * (int64_t)high;
}

static bool tar_reader_is_zero(const uint8_t *data, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (data[i])
            return false;
    }
    return true;
}

/* ---- extended headers ----------------------------------------------------------------------- */

static void tar_reader_take_record(struct tar_extension *ext, const char *key, uint64_t key_len,
                                   const char *value, uint64_t len, bool *ret_good)
{
    static const char sparse[] = "GNU.sparse.";

    if (key_len == 4 && memcmp(key, "path", 4) == 0) {
        ext->pax_path = value;
        ext->pax_len = len;
    } else if (key_len == 4 && memcmp(key, "size", 4) == 0) {
        uint64_t size = 0;
        for (uint64_t i = 0; i < len; i++) {
            if (!isdigit((unsigned char)value[i]) || size > INT64_MAX / 16)
                *ret_good = false;
            else
                size = 10 * size + (uint64_t)(value[i] - '0');
        }
        ext->size = size;
        ext->has_size = len > 0;
    } else if (key_len >= sizeof sparse - 1 && memcmp(key, sparse, sizeof sparse - 1) == 0) {
        ext->sparse = true;
    }
}

/* Records "LEN KEY=VALUE\n", LEN being that of the whole record. */
static bool tar_reader_take_pax(struct tar_extension *ext, const char *at, uint64_t left)
{
    bool good = true;

    /* Padding with NULs is seen. */
    while (left > 0 && *at != '\0' && good) {
        uint64_t len = 0, head = 0;
        while (head < left && head < 10 && isdigit((unsigned char)at[head]))
            len = 10 * len + (uint64_t)(at[head++] - '0');
        if (head == left || at[head] != ' ' || len > left || len < head + 3 || at[len - 1] != '\n')
            return false;
        const char *key = at + head + 1, *end = at + len - 1;
        const char *equals = memchr(key, '=', (size_t)(end - key));
        if (!equals)
            return false;
        tar_reader_take_record(ext, key, (uint64_t)(equals - key), equals + 1,
                               (uint64_t)(end - equals - 1), &good);
        at += len;
        left -= len;
    }
    return good;
}

static int tar_reader_take_extension(const struct tar_reader *reader, uint64_t at, uint64_t size,
                                     struct tar_extension *ext, struct dl_error *err)
{
    const struct tar_header *header = (const void *)(reader->view.data + at);
    const char *data = (const char *)header + TAR_BLOCK;

    ext->odd |= ext->any || (header->type != 'x' && header->type != 'L');
    ext->any = true;
    switch (header->type) {
    case 'L':
        ext->gnu_path = data;
        ext->gnu_len = strnlen(data, size);
        return 0;
    case 'x':
    case 'X': /* Solaris' */
        if (!tar_reader_take_pax(ext, data, size))
            return tar_reader_damaged(reader, at, "has pax records that cannot be read", err);
        return 0;
    default: /* K, a long link; g, for all that follow: their content is not used */
        return 0;
    }
}

/* ---- members -------------------------------------------------------------------------------- */

static int tar_reader_set_name(struct tar_reader *reader, const char *a, uint64_t a_len,
                               const char *b, uint64_t b_len, uint64_t at, struct dl_error *err)
{
    uint64_t slash = a_len > 0 && b_len > 0, len = a_len + slash + b_len;

    if (len > DL_BOUND_PATH_BYTES)
        return dl_error_set(err, EINVAL, reader->view.path,
                            "its member at byte %llu has a name of %llu bytes; at most %d can be "
                            "read",
                            tar_reader_place(reader, at), (ull)len, DL_BOUND_PATH_BYTES);
    if (memchr(a, '\0', a_len))
        return tar_reader_damaged(reader, at, "follows a name with a NUL in it", err);
    memcpy(reader->name, a, a_len);
    if (slash)
        reader->name[a_len] = '/';
    memcpy(reader->name + a_len + slash, b, b_len);
    reader->name[len] = '\0';
    return 0;
}

static int tar_reader_take_name(struct tar_reader *reader, uint64_t at,
                                const struct tar_extension *ext, struct dl_error *err)
{
    const struct tar_header *header = (const void *)(reader->view.data + at);
    uint64_t prefix_len = 0;

    if (ext->pax_path)
        return tar_reader_set_name(reader, ext->pax_path, ext->pax_len, "", 0, at, err);
    if (ext->gnu_path)
        return tar_reader_set_name(reader, ext->gnu_path, ext->gnu_len, "", 0, at, err);
    /* GNU's own magic, "ustar  ", has other things there. */
    if (memcmp(header->magic, "ustar", 6) == 0)
        prefix_len = strnlen(header->prefix, sizeof header->prefix);
    return tar_reader_set_name(reader, header->prefix, prefix_len, header->name,
                               strnlen(header->name, sizeof header->name), at, err);
}

/* Whether data follow the header; a link's size, for example, is that of its target. */
static bool tar_reader_has_data(char type)
{
    return type < '1' || type > '6';
}

static bool tar_reader_is_regular(const struct tar_header *header, const char *name)
{
    size_t len = strlen(name);

    if (header->type == '0' || header->type == '7')
        return true;
    /* The oldest tar marks directories by a slash at the end of their name. */
    return header->type == '\0' && (len == 0 || name[len - 1] != '/');
}

/* A header is at `at`: 0 and its size of data, TAR_END, or an error. */
static int tar_reader_take_header(const struct tar_reader *reader, uint64_t at, uint64_t *ret_size,
                                  struct dl_error *err)
{
    const struct tar_view *view = &reader->view;
    const struct tar_header *header = (const void *)(view->data + at);
    uint64_t left = view->bytes - at;

    if (view->bytes == 0 && view->base == 0)
        return dl_error_set(err, EINVAL, view->path, "is empty; a tar file needs a header");
    if (tar_reader_is_zero(view->data + at, min_u64(left, TAR_BLOCK)))
        return TAR_END;
    if (left < TAR_BLOCK)
        return tar_reader_damaged(reader, at, "is cut off by the end of the file", err);
    if (!tar_reader_checksum_fits(header))
        return tar_reader_damaged(reader, at, "has a wrong checksum", err);
    if (!tar_reader_read_number(header->size, sizeof header->size, ret_size))
        return tar_reader_damaged(reader, at, "has a size that is not a number", err);
    return 0;
}

/* A last block that is not filled up is damage, as to Python's tarfile: members may be missing
 * behind it. */
static int tar_reader_check_data(const struct tar_reader *reader, uint64_t at, uint64_t size,
                                 struct dl_error *err)
{
    uint64_t left = reader->view.bytes - at - TAR_BLOCK;

    if (size <= left && align_up(size, TAR_BLOCK) <= left)
        return 0;
    if (size <= left)
        return dl_error_set(err, EINVAL, reader->view.path,
                            "its member at byte %llu should be filled up to a block of %d bytes, "
                            "but the file ends at byte %llu; it is truncated",
                            tar_reader_place(reader, at), TAR_BLOCK,
                            tar_reader_place(reader, reader->view.bytes));
    return dl_error_set(err, EINVAL, reader->view.path,
                        "its member at byte %llu has %llu bytes, but the file ends after %llu of "
                        "them; it is truncated",
                        tar_reader_place(reader, at), (ull)size, (ull)left);
}

/* Whether it is anything but octal digits with spaces around, or a large one with 0x80 before. */
static bool tar_reader_is_odd_number(const char *field, size_t len)
{
    const char *at = field, *end = field + strnlen(field, len);
    uint64_t value;

    if (*field & 0x80)
        return (uint8_t)*field != 0x80 || !tar_reader_read_number(field, len, &value);
    while (at < end && *at == ' ')
        at++;
    while (at < end && *at >= '0' && *at <= '7')
        at++;
    while (at < end && *at == ' ')
        at++;
    return at < end;
}

/*
 * Whether programs disagree about the member: some accept a prefix whatever the magic, some heed
 * global headers, or a second extended one, or check all fields, even unused ones; and rare types
 * are treated differently.
 */
static bool tar_reader_is_odd(const struct tar_header *header, const struct tar_extension *ext,
                              const char *name)
{
    const struct {
        const char *at;
        size_t len;
    } numbers[] = {{header->mode, sizeof header->mode},
                   {header->uid, sizeof header->uid},
                   {header->gid, sizeof header->gid},
                   {header->size, sizeof header->size},
                   {header->mtime, sizeof header->mtime},
                   {header->checksum, sizeof header->checksum},
                   {header->device, sizeof header->device / 2},
                   {header->device + sizeof header->device / 2, sizeof header->device / 2}};
    size_t len = strlen(name);

    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (tar_reader_is_odd_number(numbers[i].at, numbers[i].len))
            return true;
    }
    if (header->prefix[0] && memcmp(header->magic, "ustar", 6) != 0)
        return true;
    if (header->type != '\0' && !strchr("0125", header->type))
        return true;
    return ext->odd || len == 0 || (header->type != '5' && name[len - 1] == '/');
}

static uint64_t tar_reader_behind(uint64_t at, uint64_t size)
{
    return at + TAR_BLOCK + align_up(size, TAR_BLOCK);
}

/* The extended headers from *at on, if any, and the member's own header. */
static int tar_reader_take_headers(const struct tar_reader *reader, uint64_t *at,
                                   uint64_t *ret_size, struct tar_extension *ext,
                                   struct dl_error *err)
{
    int r;

    for (;;) {
        r = tar_reader_take_header(reader, *at, ret_size, err);
        if (r == TAR_END && ext->any)
            return tar_reader_damaged(reader, *at, "is missing after an extended one", err);
        if (r != 0)
            return r;
        char type = ((const struct tar_header *)(const void *)(reader->view.data + *at))->type;
        if (type == '\0' || !strchr("LKxXg", type))
            return 0;
        if ((r = tar_reader_check_data(reader, *at, *ret_size, err)) < 0 ||
            (r = tar_reader_take_extension(reader, *at, *ret_size, ext, err)) < 0)
            return r;
        *at = tar_reader_behind(*at, *ret_size);
    }
}

void tar_reader_init(struct tar_reader *reader, const struct tar_view *view, uint64_t offset)
{
    /* Not the name: it is large, and readers are made for each sample. */
    reader->view = *view;
    reader->offset = offset;
    reader->name[0] = '\0';
}

int tar_next(struct tar_reader *reader, struct tar_member *ret, struct dl_error *err)
{
    struct tar_extension ext = {0};
    uint64_t at = reader->offset, size = 0;
    int r;

    r = tar_reader_take_headers(reader, &at, &size, &ext, err);
    if (r != 0)
        return r;
    const struct tar_header *header = (const void *)(reader->view.data + at);
    if ((r = tar_reader_take_name(reader, at, &ext, err)) < 0)
        return r;
    if (ext.sparse || header->type == 'S')
        return dl_error_set(err, EINVAL, reader->view.path,
                            "its member %s at byte %llu is sparse; write the shard without "
                            "tar's --sparse",
                            reader->name, tar_reader_place(reader, at));
    if (ext.has_size)
        size = ext.size;
    if (!tar_reader_has_data(header->type))
        size = 0;
    if ((r = tar_reader_check_data(reader, at, size, err)) < 0)
        return r;
    *ret = (struct tar_member){.begin = reader->offset,
                               .name = reader->name,
                               .data = reader->view.data + at + TAR_BLOCK,
                               .size = size,
                               .regular = tar_reader_is_regular(header, reader->name),
                               .odd = tar_reader_is_odd(header, &ext, reader->name)};
    reader->offset = tar_reader_behind(at, size);
    return 0;
}

uint64_t tar_head_bytes(const uint8_t *data, uint64_t have)
{
    uint64_t at = 0, size;

    while (have >= TAR_BLOCK && at <= have - TAR_BLOCK) {
        const struct tar_header *header = (const void *)(data + at);
        if (header->type == '\0' || !strchr("LKxXg", header->type) ||
            !tar_reader_read_number(header->size, sizeof header->size, &size) ||
            size > UINT64_MAX / 2 - at - 2 * TAR_BLOCK)
            break;
        at = align_up(at + TAR_BLOCK + size, TAR_BLOCK);
    }
    return at + TAR_BLOCK;
}
