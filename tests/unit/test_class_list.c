/* What workers share of a folder's list: one lists, the others map it; and what is no list. */
#include "daemon/data/decode/image/image_files.h"
#include "daemon/data/files/class_list.h"
#include "proto/common/sealed.h"
#include "tests/lib/harness.h"
#include "tests/unit/fail_alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* ---- memory that runs out ------------------------------------------------------------------- */

/* ---- a worker and another one --------------------------------------------------------------- */

static const char *const files[] = {"a/1.png", "a/2.png", "a/sub/0.jpg", "b/x.png", "b/y.png"};
static const uint32_t labels[] = {0, 0, 0, 1, 1};

static void make_folder(const char *root)
{
    static const char *const dirs[] = {"", "/a", "/a/sub", "/b"};
    char name[512];

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        snprintf(name, sizeof name, "%s%s", root, dirs[i]);
        assert_int_equal(mkdir(harness_below(name), 0755), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        snprintf(name, sizeof name, "%s/%s", root, files[i]);
        (void)harness_file(name, "", 0);
    }
}

/* What a daemon keeps. */
struct kept {
    int fd; /* owned; -1: nothing was offered */
    char place[64];
    uint32_t form;
    int answer;
};

static int keep(void *owner, const char *place, uint32_t form, uint64_t key, int fd)
{
    struct kept *kept = owner;

    assert_int_equal(key, 0); /* it is not kept on disk */
    assert_int_equal(kept->fd, -1);
    if (kept->answer < 0)
        return kept->answer;
    kept->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    kept->form = form;
    snprintf(kept->place, sizeof kept->place, "%s", place);
    return 0;
}

/* A worker that was given `fd`, if it is one, for that place and form; what it offers is kept. */
static int open_list(const char *root, const char *place, int fd, const struct kept *given,
                     struct kept *ret_kept, struct class_list *ret)
{
    struct shared_indexes indexes = {.offer = keep, .owner = ret_kept};
    const struct data_env env = {.indexes = &indexes};
    int r = 0;

    if (fd >= 0)
        r = shared_indexes_add(&indexes, span_str(given->place), given->form,
                               fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (r == 0)
        r = class_list_open(root, &image_files, place, &env, ret, NULL);
    shared_indexes_deinit(&indexes);
    return r;
}

static void check_list(const struct class_list *list, const char *root)
{
    char path[512];
    size_t len;

    assert_int_equal(list->n, ARRAY_SIZE(files));
    assert_int_equal(list->classes, 2);
    assert_true(class_list_fingerprint(list) != 0);
    for (uint64_t i = 0; i < list->n; i++) {
        assert_int_equal(class_list_get(list, i, path, sizeof path, &len), labels[i]);
        assert_memory_equal(path, root, strlen(root));
        assert_string_equal(path + strlen(root) + 1, files[i]);
        assert_int_equal(len, strlen(path));
    }
}

static struct kept first_of(const char *root)
{
    struct kept kept = {.fd = -1};
    struct class_list list = {0};

    assert_int_equal(open_list(root, "dataset", -1, NULL, &kept, &list), 0);
    check_list(&list, root);
    assert_true(kept.fd >= 0 && list.index.mapped);
    assert_string_equal(kept.place, "dataset");
    assert_int_equal(kept.form, SHARED_INDEX_CLASS_LIST);
    class_list_deinit(&list);
    return kept;
}

/* The folder is gone: it is not looked at. */
TEST(test_listed_once)
{
    struct class_list list = {0};
    char root[512];

    make_folder("once");
    snprintf(root, sizeof root, "%s", harness_below("once"));
    struct kept kept = first_of(root), again = {.fd = -1};
    assert_int_equal(rename(root, harness_below("elsewhere")), 0);
    assert_int_equal(open_list(root, "dataset", kept.fd, &kept, &again, &list), 0);
    check_list(&list, root);
    assert_true(list.index.mapped && again.fd < 0);
    class_list_deinit(&list);

    /* Another dataset, another root at a place that reads the same, another layout: it is listed.
     */
    assert_int_equal(open_list(root, "dataset.x", kept.fd, &kept, &again, &list), -ENOENT);
    assert_int_equal(open_list(harness_below("nowhere"), "dataset", kept.fd, &kept, &again, &list),
                     -ENOENT);
    struct kept other = kept;
    other.form = 77;
    assert_int_equal(open_list(root, "dataset", kept.fd, &other, &again, &list), -ENOENT);
    close_fdp(&kept.fd);
}

/* By itself, where nobody takes it. */
TEST(test_nobody_to_share_with)
{
    const struct data_env alone = {0};
    struct kept kept = {.fd = -1, .answer = -EPIPE};
    struct class_list list = {0};
    char root[512];

    make_folder("alone");
    snprintf(root, sizeof root, "%s", harness_below("alone"));
    assert_int_equal(open_list(root, "dataset", -1, NULL, &kept, &list), 0);
    check_list(&list, root);
    assert_false(list.index.mapped);
    class_list_deinit(&list);
    assert_int_equal(class_list_open(root, &image_files, "dataset", &alone, &list, NULL), 0);
    check_list(&list, root);
    class_list_deinit(&list);
}

/* ---- what is no list ------------------------------------------------------------------------ */

static void read_all(const struct class_list *list)
{
    char path[512];
    size_t len;

    for (uint64_t i = 0; i < list->n; i++)
        assert_true(class_list_get(list, i, path, sizeof path, &len) < list->classes);
}

/* In memory of exactly its size: a byte too far is seen by the sanitizer. */
static bool is_list(const uint8_t *data, uint64_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    struct shared_index index = {.data = copy, .bytes = bytes};
    struct class_list list = {0};

    assert_non_null(copy);
    memcpy(copy, data, bytes);
    if (!class_list_of(&index, &list)) {
        shared_index_deinit(&index);
        return false;
    }
    read_all(&list);
    class_list_deinit(&list);
    return true;
}

static uint8_t *bytes_of(const struct kept *kept, uint64_t *ret)
{
    assert_int_equal(sealed_size(kept->fd, ret), 0);
    uint8_t *data = malloc(*ret);
    assert_non_null(data);
    assert_int_equal(pread(kept->fd, data, *ret, 0), *ret);
    return data;
}

TEST(test_any_bytes)
{
    static const uint8_t values[] = {0, 1, 0x7F, 0x80, 0xFF};
    unsigned refused = 0;
    uint64_t bytes;

    make_folder("bytes");
    struct kept kept = first_of(harness_below("bytes"));
    _cleanup_free_ uint8_t *data = bytes_of(&kept, &bytes);
    assert_true(is_list(data, bytes));
    for (uint64_t cut = 0; cut < bytes; cut++)
        assert_false(is_list(data, cut));
    for (uint64_t i = 0; i < bytes; i++) {
        uint8_t was = data[i];
        for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
            data[i] = values[v];
            refused += !is_list(data, bytes);
        }
        data[i] = was;
    }
    assert_true(refused > 500);
    close_fdp(&kept.fd);
}

/* It is listed anew. */
TEST(test_bad_ones_are_not_used)
{
    struct kept again;
    struct class_list list = {0};
    char root[512];
    uint64_t bytes;

    make_folder("bad");
    snprintf(root, sizeof root, "%s", harness_below("bad"));
    struct kept kept = first_of(root);
    _cleanup_free_ uint8_t *data = bytes_of(&kept, &bytes);
    const int fds[] = {sealed_new("short", data, bytes - 1), open(root, O_RDONLY | O_CLOEXEC),
                       memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    assert_int_equal(write(fds[2], data, bytes), bytes);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        again = (struct kept){.fd = -1};
        assert_true(fds[i] >= 0);
        assert_int_equal(open_list(root, "dataset", fds[i], &kept, &again, &list), 0);
        check_list(&list, root);
        assert_true(again.fd >= 0);
        class_list_deinit(&list);
        close_fdp(&again.fd);
        close(fds[i]);
    }
    close_fdp(&kept.fd);
}

TEST(test_out_of_memory)
{
    int listed = 0, failed = 0;
    struct class_list list = {0};
    char root[512];

    make_folder("memory");
    snprintf(root, sizeof root, "%s", harness_below("memory"));
    struct kept kept = first_of(root);
    for (int with = 0; with < 2; with++) {
        for (long n = 0;; n++) {
            struct kept again = {.fd = -1};
            fail_in = n;
            int r = open_list(root, "dataset", with ? kept.fd : -1, &kept, &again, &list);
            bool done = fail_in >= 0;
            fail_in = -1;
            assert_true(r == 0 || r == -ENOMEM);
            if (r == 0) {
                check_list(&list, root);
                class_list_deinit(&list);
            }
            close_fdp(&again.fd);
            listed += r == 0;
            failed += r < 0;
            if (done)
                break;
        }
    }
    assert_true(listed >= 2 && failed > 20);
    close_fdp(&kept.fd);
}
