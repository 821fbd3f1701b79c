/* The members of tar files: names, sizes and types in every dialect, and damage of every kind. */
#include "daemon/data/files/reader.h"
#include "tests/unit/data_files.h"
#include "tests/unit/make_tar.h"

#include <errno.h>

static struct tar_reader reader_of(const struct tar_file *tar)
{
    struct tar_view view = {.path = "shard", .data = tar->data, .bytes = tar->len};
    struct tar_reader reader;

    tar_reader_init(&reader, &view, 0);
    return reader;
}

/* All members, as "name:size:begin" between spaces; those that are no files have a '-'. */
static void list(const struct tar_file *tar, char *out, size_t room)
{
    struct tar_reader reader = reader_of(tar);
    struct tar_member m;
    struct dl_error err = {0};
    int r;

    out[0] = '\0';
    while ((r = tar_next(&reader, &m, &err)) == 0) {
        size_t len = strlen(out);
        assert_ptr_equal(m.data + align_up(m.size, TAR_BLOCK), tar->data + reader.offset);
        snprintf(out + len, room - len, "%s%s%s:%llu:%llu", len ? " " : "", m.regular ? "" : "-",
                 m.name, (unsigned long long)m.size, (unsigned long long)m.begin);
    }
    if (r < 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_int_equal(tar_next(&reader, &m, &err), TAR_END);
}

static void expect(const struct tar_file *tar, const char *want)
{
    char got[20000];

    list(tar, got, sizeof got);
    assert_string_equal(got, want);
}

TEST(test_ends)
{
    struct tar_file tar = tar_new();

    tar_text(&tar, "a", "hello");
    expect(&tar, "a:5:0"); /* no end at all */
    tar_end(&tar);
    tar.len -= TAR_BLOCK;
    expect(&tar, "a:5:0"); /* one block of zeroes */
    tar.len -= 500;
    expect(&tar, "a:5:0"); /* a part of one */
    tar.len += 500;
    tar_text(&tar, "b", "behind the end");
    expect(&tar, "a:5:0");

    tar.len = 0;
    tar_end(&tar);
    expect(&tar, ""); /* an archive of nothing */
    tar_free(&tar);
}

TEST(test_types)
{
    static const struct {
        char type;
        bool data; /* follow the header */
        const char *want;
    } rows[] = {
        {'0', true, "a:3:0"},   {'\0', true, "a:3:0"},  {'7', true, "a:3:0"},
        {'1', false, "-a:0:0"}, {'2', false, "-a:0:0"}, {'3', false, "-a:0:0"},
        {'4', false, "-a:0:0"}, {'5', false, "-a:0:0"}, {'6', false, "-a:0:0"},
        {'V', true, "-a:3:0"},  {'D', true, "-a:3:0"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct tar_file tar = tar_new();
        char want[64];
        /* Hard links tell the size of what they lead to. */
        tar_header(&tar, "ustar", "a", rows[i].type, 3);
        if (rows[i].data)
            tar_data(&tar, "abc", 3);
        snprintf(want, sizeof want, "%s b:1:%zu", rows[i].want, tar.len);
        tar_text(&tar, "b", "x");
        tar_end(&tar);
        expect(&tar, want);
        tar_free(&tar);
    }

    /* The oldest directories. */
    struct tar_file tar = tar_new();
    tar_header(&tar, "", "dir/", '\0', 0);
    tar_header(&tar, "", "dir/a", '\0', 0);
    expect(&tar, "-dir/:0:0 dir/a:0:512");
    tar_free(&tar);
}

TEST(test_names)
{
    char name[5000], want[6000], prefix[160];
    struct tar_file tar = tar_new();

    /* 100 bytes fill their field without a NUL; a prefix of 155 its own. */
    memset(name, 'n', 100);
    name[100] = '\0';
    memset(prefix, 'p', 155);
    prefix[155] = '\0';
    uint8_t *header = tar_header(&tar, "ustar", name, '0', 0);
    memcpy(header + 345, prefix, 155);
    tar_sum(header);
    snprintf(want, sizeof want, "%s/%s:0:0", prefix, name);
    expect(&tar, want);

    /* GNU has other things there. */
    memcpy(header + 257, "ustar  ", 8);
    tar_sum(header);
    snprintf(want, sizeof want, "%s:0:0", name);
    expect(&tar, want);

    /* A GNU long name, for one member only; the link's is not it. */
    tar.len = 0;
    memset(name, 'L', 300);
    name[300] = '\0';
    tar_member(&tar, "././@LongLink", 'K', "a link", 7);
    tar_member(&tar, "././@LongLink", 'L', name, 301);
    tar_text(&tar, "short", "x");
    tar_text(&tar, "b", "y");
    snprintf(want, sizeof want, "%s:1:0 b:1:3072", name);
    expect(&tar, want);

    /* pax; it goes before GNU's. A global header is passed over. */
    tar.len = 0;
    tar_member(&tar, "g", 'g', "13 path=zzz\n", 12);
    tar_pax(&tar, "path", "caf\xC3\xA9/long");
    tar_member(&tar, "././@LongLink", 'L', "other", 6);
    tar_text(&tar, "short", "x");
    tar_text(&tar, "b", "y");
    expect(&tar, "caf\xC3\xA9/long:1:0 b:1:4096");

    /* As long as may be, and longer. */
    memset(name, 'x', sizeof name);
    name[DL_BOUND_PATH_BYTES] = '\0';
    tar.len = 0;
    tar_pax(&tar, "path", name);
    tar_text(&tar, "short", "");
    snprintf(want, sizeof want, "%s:0:0", name);
    expect(&tar, want);
    name[DL_BOUND_PATH_BYTES] = 'x';
    name[DL_BOUND_PATH_BYTES + 1] = '\0';
    tar.len = 0;
    tar_pax(&tar, "path", name);
    tar_text(&tar, "short", "");
    struct tar_reader reader = reader_of(&tar);
    struct tar_member m;
    struct dl_error err = {0};
    assert_int_equal(tar_next(&reader, &m, &err), -EINVAL);
    assert_error_has(&err, "has a name of 4097 bytes; at most 4096 can be read");
    tar_free(&tar);
}

TEST(test_sizes)
{
    static const struct {
        const char field[13];
        const char *want; /* NULL: no number */
    } rows[] = {
        {"00000000003\0", "a:3:0"},
        {"         3 \0", "a:3:0"},
        {"3\0\0\0\0\0\0\0\0\0\0\0", "a:3:0"},
        {"000000000003", "a:3:0"},
        {"\x80\0\0\0\0\0\0\0\0\0\0\3", "a:3:0"},
        {"0000000000x\0", NULL},
        {"-0000000003\0", NULL},
        {"00000000008\0", NULL},
        {"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", NULL},
        {"\x80\0\0\0\0\x80\0\0\0\0\0\0", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct tar_file tar = tar_new();
        struct tar_member m;
        struct dl_error err = {0};

        uint8_t *header = tar_header(&tar, "ustar", "a", '0', 3);
        memcpy(header + 124, rows[i].field, 12);
        tar_sum(header);
        tar_data(&tar, "abc", 3);
        if (rows[i].want) {
            expect(&tar, rows[i].want);
        } else {
            struct tar_reader reader = reader_of(&tar);
            assert_int_equal(tar_next(&reader, &m, &err), -EINVAL);
            assert_int_equal(reader.offset, 0);
            assert_error_has(&err, i == 9 ? "it is truncated" : "has a size that is not a number");
        }
        tar_free(&tar);
    }

    /* pax has sizes of more digits, and goes before the header's. */
    struct tar_file tar = tar_new();
    tar_pax(&tar, "size", "3");
    tar_header(&tar, "ustar", "a", '0', 0);
    tar_data(&tar, "abc", 3);
    tar_text(&tar, "b", "");
    expect(&tar, "a:3:0 b:0:2048");
    tar_free(&tar);
}

TEST(test_old_checksum)
{
    struct tar_file tar = tar_new();
    int sum = 0;

    uint8_t *header = tar_header(&tar, "", "caf\xC3\xA9", '\0', 0);
    memset(header + 148, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += (int8_t)header[i];
    snprintf((char *)header + 148, 8, "%06o", (unsigned)sum);
    expect(&tar, "caf\xC3\xA9:0:0");
    tar_free(&tar);
}

static void expect_refusal(const struct tar_file *tar, const char *says)
{
    struct tar_reader reader = reader_of(tar);
    struct tar_member m;
    struct dl_error err = {0};
    uint64_t offset;
    int r;

    do {
        offset = reader.offset;
        r = tar_next(&reader, &m, &err);
    } while (r == 0);
    assert_int_equal(r, -EINVAL);
    assert_string_equal(err.path, "shard");
    assert_error_has(&err, says);
    assert_int_equal(reader.offset, offset);
    /* And again the same. */
    assert_int_equal(tar_next(&reader, &m, &err), -EINVAL);
}

TEST(test_refusals)
{
    static const struct {
        const char *records;
        const char *says;
    } pax[] = {
        {"12 path=abc\n", "its header at byte 0 has pax records that cannot be read"},
        {"11 path=abc\n", "pax records"},
        {"99 path=abc\n", "pax records"},
        {"0 path=abc\n", "pax records"},
        {"99999999999999999999 path=abc\n", "pax records"},
        {" path=abc\n", "pax records"},
        {"12path=abc\n", "pax records"},
        {"8 path\n", "pax records"},
        {"10 size=-\n", "pax records"},
        {"29 size=9999999999999999999\n", "pax records"},
        {"27 size=999999999999999999\n", "it is truncated"},
        {"22 GNU.sparse.major=1\n", "its member a at byte 1024 is sparse; write the shard without"},
        {"9 path=\n", NULL},
    };
    struct tar_file tar = tar_new();

    expect_refusal(&tar, "is empty; a tar file needs a header");
    for (size_t i = 0; i < ARRAY_SIZE(pax); i++) {
        size_t len = strlen(pax[i].records);
        tar.len = 0;
        tar_member(&tar, "x", 'x', pax[i].records, len);
        tar_text(&tar, "a", "x");
        if (i == 0) /* good: only cut off by one */
            tar.data[TAR_BLOCK + 1] = '3';
        if (pax[i].says)
            expect_refusal(&tar, pax[i].says);
    }

    tar.len = 0;
    tar_text(&tar, "a", "hello");
    tar.data[tar.len] = 'x';
    tar.len += 100;
    expect_refusal(&tar, "its header at byte 1024 is cut off by the end of the file; the shard is "
                         "damaged there, or is not a tar file");
    tar.len = TAR_BLOCK + 4;
    expect_refusal(&tar, "its member at byte 0 has 5 bytes, but the file ends after 4 of them; it "
                         "is truncated");
    tar.len = TAR_BLOCK + 5;
    expect_refusal(&tar,
                   "its member at byte 0 should be filled up to a block of 512 bytes, but the "
                   "file ends at byte 517; it is truncated");
    tar.len = (size_t)2 * TAR_BLOCK;
    tar.data[1] = 'b';
    expect_refusal(&tar, "its header at byte 0 has a wrong checksum; the shard is damaged there, "
                         "or is not a tar file");

    tar.len = 0;
    tar_pax(&tar, "path", "abc");
    tar_end(&tar);
    expect_refusal(&tar, "its header at byte 1024 is missing after an extended one");
    tar.len = 0;
    tar_member(&tar, "s", 'S', "x", 1);
    expect_refusal(&tar, "its member s at byte 0 is sparse");
    tar.len = 0;
    tar_pax(&tar, "path", "abc");
    tar.data[TAR_BLOCK + 8] = '\0'; /* pat h=abc: a NUL in the value */
    tar.data[TAR_BLOCK + 9] = '\0';
    tar_text(&tar, "a", "x");
    expect_refusal(&tar, "follows a name with a NUL in it");
    tar_free(&tar);
}

/* Cut off anywhere: an error, but right behind a member, and never one byte behind it. */
TEST(test_cuts)
{
    struct tar_file tar = tar_new();
    char name[300];

    memset(name, 'y', sizeof name);
    name[299] = '\0';
    tar_text(&tar, "a.txt", "hello");
    size_t behind_a = tar.len;
    tar_pax(&tar, "path", "p.txt");
    tar_text(&tar, "b", "x");
    size_t behind_b = tar.len;
    tar_member(&tar, "l", 'L', name, 300);
    tar_text(&tar, "c", "y");
    for (size_t len = 0; len <= tar.len; len++) {
        _cleanup_free_ uint8_t *exact = malloc(len + 1);
        struct tar_file cut = {.data = exact, .len = len};
        struct tar_member m;
        int r;

        memcpy(exact, tar.data, len);
        exact = realloc(exact, len ? len : 1);
        cut.data = exact;
        struct tar_reader reader = reader_of(&cut);
        while ((r = tar_next(&reader, &m, NULL)) == 0)
            assert_true(m.data + m.size <= cut.data + len);
        bool is_whole = len == behind_a || len == behind_b || len == tar.len;
        assert_int_equal(r, is_whole ? TAR_END : -EINVAL);
    }
    tar_free(&tar);
}

/* As who reads by pieces has it: the member at `at` from its headers alone, in memory of just their
 * size. As tar_next(). */
static int next_by_its_head(const struct tar_file *tar, uint64_t *at, struct tar_member *ret,
                            char *ret_name, struct dl_error *err)
{
    uint64_t left = tar->len - *at, have = min_u64(TAR_BLOCK, left), want;

    for (;;) {
        _cleanup_free_ uint8_t *head = malloc(max_u64(have, 1));
        assert_non_null(head);
        memcpy(head, tar->data + *at, have);
        want = min_u64(tar_head_bytes(head, have), left);
        if (want <= have) {
            struct tar_view view = {.path = "shard", .data = head, .bytes = left, .base = *at};
            struct tar_reader reader;
            tar_reader_init(&reader, &view, 0);
            int r = tar_next(&reader, ret, err);
            if (r == 0) {
                assert_in_range(ret->data - head, 0, have);
                ret->data = tar->data + *at + (ret->data - head);
                snprintf(ret_name, DL_BOUND_PATH_BYTES + 1, "%s", ret->name);
                *at += reader.offset;
            }
            return r;
        }
        have = want;
    }
}

/* The same members, and the same error at the same byte of the file. */
TEST(test_heads)
{
    static char name[DL_BOUND_PATH_BYTES + 1], link[3000];
    struct tar_file whole = tar_new();

    memset(link, 'z', sizeof link - 1);
    tar_text(&whole, "a.txt", "hello");
    tar_pax(&whole, "path", "p.txt");
    tar_text(&whole, "b", "x");
    tar_member(&whole, "l", 'L', link, sizeof link);
    tar_text(&whole, "c", "y");
    tar_member(&whole, "d", '5', "", 0);
    for (size_t len = 0; len <= whole.len; len += len % 512 < 20 ? 1 : 61) {
        struct tar_file tar = {.data = whole.data, .len = len};
        struct tar_reader reader = reader_of(&tar);
        struct tar_member one, other;
        struct dl_error a = {0}, b = {0};
        uint64_t at = 0;
        int r;

        do {
            r = tar_next(&reader, &one, &a);
            assert_int_equal(next_by_its_head(&tar, &at, &other, name, &b), r);
            if (r != 0)
                break;
            assert_string_equal(one.name, name);
            assert_ptr_equal(one.data, other.data);
            assert_int_equal(one.size, other.size);
            assert_int_equal(one.odd, other.odd);
            assert_int_equal(reader.offset, at);
        } while (true);
        assert_string_equal(a.message, b.message);
    }
    tar_free(&whole);
}

/* What is asked for is no more than a header says, and no size makes it wrap around. */
TEST(test_head_sizes)
{
    static const struct {
        const char *size; /* with its first bit set it is binary */
        char type;
        uint64_t want;
    } rows[] = {
        {"00000000000", '0', 512},
        {"00000001000", '0', 512},
        {"00000000000", 'x', 1024},
        {"00000000001", 'x', 1536},
        {"00000001001", 'L', 2048},
        {"77777777777", 'g', (8ULL << 30) + 1024},
        {"nonsense\0\0\0\0", 'x', 512},
        {"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 'x', 512},
        {"\x80\0\0\0\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 'K', 512},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tar_file tar = tar_new();
        uint8_t *header = tar_header(&tar, "ustar", "name", rows[i].type, 0);
        memcpy(header + 124, rows[i].size, 12);
        assert_int_equal(tar_head_bytes(tar.data, TAR_BLOCK), rows[i].want);
        assert_int_equal(tar_head_bytes(tar.data, TAR_BLOCK - 1), TAR_BLOCK);
        assert_int_equal(tar_head_bytes(tar.data, 0), TAR_BLOCK);
        tar_free(&tar);
    }
}

/* A header of which one field is changed, and whether programs differ over it. */
TEST(test_odd)
{
    static const struct {
        unsigned at;
        const char *field;
        unsigned len;
        bool odd;
    } rows[] = {
        {0, "", 0, false},
        {100, "\xC1", 1, true}, /* its mode is a binary number of another kind */
        {108, "  17 \0", 6, false},
        {108, "1 7", 3, true},
        {116, "\x80\0\0\0\0\0\1\2", 8, false},
        {136, "12345678901x", 12, true},
        {329, "\xFF", 1, true},
        {345, "folder", 6, false},
        {257, "ustar  ", 7, false}, /* GNU's */
        {156, "5", 1, false},
        {156, "1", 1, false},
        {156, "7", 1, true},
        {156, "\0", 1, false},
        {156, "D", 1, true},
        {0, "file/\0", 6, true},
        {0, "\0", 1, true},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tar_file tar = tar_new();
        struct tar_member m;
        uint8_t *header = tar_header(&tar, "ustar", "name", '0', 0);
        memcpy(header + rows[i].at, rows[i].field, rows[i].len);
        tar_sum(header);
        struct tar_reader reader = reader_of(&tar);
        assert_int_equal(tar_next(&reader, &m, NULL), 0);
        if (m.odd != rows[i].odd)
            fail_msg("row %zu", i);
        tar_free(&tar);
    }
}

/* Extended headers: of one that names the member programs agree. */
TEST(test_odd_headers)
{
    static const char *const rows[] = {"x", "L", "g", "X", "K", "xL", "xx", "gx"};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tar_file tar = tar_new();
        struct tar_member m;
        char record[64];
        for (const char *type = rows[i]; *type; type++) {
            size_t len = pax_record(record, sizeof record, "path", "there.txt");
            tar_member(&tar, "h", *type, *type == 'L' || *type == 'K' ? "there.txt" : record,
                       *type == 'L' || *type == 'K' ? 10 : len);
        }
        tar_text(&tar, "a.txt", "hello");
        struct tar_reader reader = reader_of(&tar);
        assert_int_equal(tar_next(&reader, &m, NULL), 0);
        if (m.odd != (i > 1))
            fail_msg("headers %s", rows[i]);
        tar_free(&tar);
    }
}
