/* Documents of tokens, written, and read by the kind megatron's own reader of the index. */
#include "client/dlctl/run/token_files.h"
#include "daemon/data/kinds/megatron/megatron_index.h"
#include "proto/common/base.h"
#include "proto/common/fd_io.h"
#include "tests/lib/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DOCUMENTS = 300, TOKENS_MOST = 200000 };

struct file {
    uint8_t *data; /* owned */
    uint64_t len;
};

static const char *path_of(const char *name, const char *ending)
{
    static char paths[4][PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % 4];

    snprintf(path, PATH_MAX, "%s/%s%s", harness_tmpdir(), name, ending);
    return path;
}

static bool is_there(const char *name, const char *ending)
{
    return access(path_of(name, ending), F_OK) == 0;
}

static struct file read_file(const char *path)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    struct file file = {.data = malloc((size_t)st.st_size + 1), .len = (uint64_t)st.st_size};
    assert_non_null(file.data);
    assert_int_equal(fd_read_all(fd, file.data, file.len), file.len);
    return file;
}

static int64_t token_at(const struct file *bin, uint32_t width, uint64_t n)
{
    uint16_t narrow;
    int32_t wide;

    if (width == sizeof narrow) {
        memcpy(&narrow, bin->data + n * width, width);
        return narrow;
    }
    memcpy(&wide, bin->data + n * width, width);
    return wide;
}

/* Documents of the lengths of `row`, of tokens from 0 on, but for a great one. */
static const struct row {
    const char *name;
    size_t documents;
    size_t most;    /* tokens of a document: drawn, or, with one document, just so many */
    uint64_t great; /* this token, counted from the first document on; UINT64_MAX: none */
    int64_t great_token;
    uint32_t width;
} rows[] = {
    {"none", 0, 0, UINT64_MAX, 0, 2},
    {"empty", 5, 0, UINT64_MAX, 0, 2},
    {"small", DOCUMENTS, 40, UINT64_MAX, 0, 2},
    {"greatest narrow one", DOCUMENTS, 40, 70, UINT16_MAX, 2},
    {"at once", DOCUMENTS, 40, 0, UINT16_MAX + 1, 4},
    {"later", DOCUMENTS, 40, 3000, 100000, 4},
    {"greatest", DOCUMENTS, 40, 3000, INT32_MAX, 4},
    {"behind many", 1, TOKENS_MOST, TOKENS_MOST - 1, 70000, 4},
    {"behind many of others", DOCUMENTS, 600, 60001, 70000, 4},
};

static int64_t row_token(const struct row *row, uint64_t n)
{
    return n == row->great ? row->great_token : (int64_t)(n * 7 % UINT16_MAX);
}

static size_t row_length(const struct row *row, size_t document)
{
    return row->documents == 1 ? row->most : row->most ? (document * 7919 + 13) % row->most : 0;
}

static void check_content(const struct row *row)
{
    struct file bin = read_file(path_of(row->name, ".bin")),
                idx = read_file(path_of(row->name, ".idx"));
    struct megatron_index index;
    struct dl_error err = {0};
    uint64_t first = 0;

    assert_int_equal(megatron_index_parse(idx.data, idx.len, "idx", bin.len, &index, &err), 0);
    assert_int_equal(index.token_bytes, row->width);
    assert_int_equal(index.documents, row->documents);
    for (size_t d = 0; d < row->documents; d++) {
        uint64_t offset, tokens;

        assert_int_equal(megatron_index_find(&index, d, bin.len, "idx", &offset, &tokens, &err), 0);
        assert_int_equal(tokens, row_length(row, d));
        assert_int_equal(offset, first * row->width);
        for (uint64_t i = 0; i < tokens; i++)
            assert_int_equal(token_at(&bin, row->width, first + i), row_token(row, first + i));
        first += tokens;
    }
    assert_int_equal(bin.len, first * row->width);
    free(bin.data);
    free(idx.data);
}

static void write_row(const struct row *row)
{
    static int64_t tokens[TOKENS_MOST];
    struct token_files *files;
    struct dl_error err = {0};
    uint64_t all = 0;

    assert_int_equal(token_files_new(path_of(row->name, ""), &files, &err), 0);
    for (size_t d = 0; d < row->documents; d++) {
        size_t n = row_length(row, d);

        for (size_t i = 0; i < n; i++)
            tokens[i] = row_token(row, all + i);
        assert_int_equal(token_files_add(files, tokens, n, &err), 0);
        all += n;
    }
    assert_int_equal(token_files_width(files), row->width);
    assert_false(is_there(row->name, ".bin"));
    assert_false(is_there(row->name, ".idx"));
    assert_int_equal(token_files_finish(files, &err), 0);
    token_files_free(files);
    assert_false(is_there(row->name, ".bin.part"));
    assert_false(is_there(row->name, ".idx.part"));
}

TEST(test_table)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        write_row(&rows[i]);
        check_content(&rows[i]);
    }
}

/* What is not a token is refused, and what was there stays. */
TEST(test_refused)
{
    static const int64_t bad[] = {-1, INT64_C(1) + INT32_MAX, INT64_MIN, INT64_MAX};
    static const struct row kept = {"kept", DOCUMENTS, 40, UINT64_MAX, 0, 2}, *row = &kept;

    write_row(row);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        const int64_t tokens[] = {1, bad[i]};
        struct token_files *files;
        struct dl_error err = {0};

        assert_int_equal(token_files_new(path_of(row->name, ""), &files, &err), 0);
        assert_int_equal(token_files_add(files, tokens, 1, &err), 0);
        assert_int_equal(token_files_add(files, tokens, 2, &err), -ERANGE);
        assert_non_null(strstr(err.message, "token 1 of document 1 is "));
        token_files_free(files);
        assert_false(is_there(row->name, ".bin.part"));
        assert_false(is_there(row->name, ".idx.part"));
        check_content(row);
    }
}

TEST(test_no_place)
{
    static char longest[2 * PATH_MAX];
    struct token_files *files;
    struct dl_error err = {0};

    assert_int_equal(token_files_new(path_of("missing/tokens", ""), &files, &err), -ENOENT);
    assert_string_equal(err.path, path_of("missing/tokens", ".bin.part"));
    memset(longest, 'x', sizeof longest - 1);
    assert_int_equal(token_files_new(longest, &files, &err), -ENAMETOOLONG);
    if (access("/dev/full", W_OK) < 0)
        return;
    /* A disk that is full, by a draft that is a link to one. */
    assert_int_equal(symlink("/dev/full", path_of("full", ".idx.part")), 0);
    assert_int_equal(token_files_new(path_of("full", ""), &files, &err), 0);
    assert_int_equal(token_files_finish(files, &err), -ENOSPC);
    assert_string_equal(err.path, path_of("full", ".idx.part"));
    token_files_free(files);
    assert_false(is_there("full", ".bin"));
}
