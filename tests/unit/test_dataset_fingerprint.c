/* By what data is recognised: a copy anywhere is the same, and what was changed is not. */
#include "daemon/data/kinds/dataset_fingerprint.h"
#include "tests/unit/dataset_text.h"

#include <sys/stat.h>
#include <utime.h>

enum { LARGE = 20000 };

/* The open dataset's, so that those inside it are asked, too. */
static uint64_t fingerprint_of(const char *text)
{
    struct dataset *ds = open_dataset(text, &anywhere);
    uint64_t fingerprint = ds->content;

    dataset_close(ds);
    assert_true(fingerprint != 0);
    return fingerprint;
}

/* Text of LARGE bytes, with `c` at `at`. */
static void write_large(const char *name, size_t at, char c)
{
    char data[LARGE];

    memset(data, 'a', sizeof data);
    for (size_t i = 99; i < sizeof data; i += 100)
        data[i] = '\n';
    data[at] = c;
    harness_file(name, data, sizeof data);
}

TEST(test_copies_are_the_same)
{
    struct utimbuf old = {1, 1};

    write_large("here.txt", 0, 'a');
    write_large("there/copy.txt", 0, 'a');
    assert_int_equal(utime(harness_below("there/copy.txt"), &old), 0);
    assert_int_equal(fingerprint_of("{kind: text, paths: here.txt}"),
                     fingerprint_of("{kind: text, paths: [there/*.txt]}"));
    assert_int_equal(
        fingerprint_of("{kind: records, paths: here.txt, dtype: uint8, shape: [100]}"),
        fingerprint_of("{kind: records, paths: there/copy.txt, dtype: uint8, shape: [100]}"));
}

TEST(test_changes_are_seen)
{
    static const size_t places[] = {0, 4095, LARGE - 4096, LARGE - 1};
    uint64_t whole;

    write_large("f.txt", 0, 'a');
    whole = fingerprint_of("{kind: text, paths: f.txt}");
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        write_large("f.txt", places[i], 'b');
        assert_true(fingerprint_of("{kind: text, paths: f.txt}") != whole);
    }
    write_large("f.txt", 0, 'a');
    assert_int_equal(fingerprint_of("{kind: text, paths: f.txt}"), whole);
    assert_int_equal(truncate(harness_below("f.txt"), LARGE - 100), 0);
    assert_true(fingerprint_of("{kind: text, paths: f.txt}") != whole);
}

TEST(test_several_files)
{
    harness_file("1.txt", "one\n", 4);
    harness_file("2.txt", "two\n", 4);
    uint64_t fingerprint = fingerprint_of("{kind: text, paths: [1.txt, 2.txt]}");
    assert_true(fingerprint_of("{kind: text, paths: [2.txt, 1.txt]}") != fingerprint);
    assert_true(fingerprint_of("{kind: text, paths: [1.txt]}") != fingerprint);
    assert_true(fingerprint_of("{kind: text, paths: [1.txt, 1.txt]}") != fingerprint);
    assert_int_equal(fingerprint_of("{kind: text, paths: ['[12].txt']}"), fingerprint);
}

/* More than are looked at: the first and the last are. */
TEST(test_many_files)
{
    enum { FILES = FINGERPRINT_FILES + 700 };
    static const char spec[] = "{kind: text, paths: many/*.t}";
    char name[32];

    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "many/%05d.t", i);
        harness_file(name, "one\n", 4);
    }
    uint64_t fingerprint = fingerprint_of(spec);
    assert_int_equal(fingerprint_of(spec), fingerprint);
    harness_file("many/00000.t", "two\n", 4);
    assert_true(fingerprint_of(spec) != fingerprint);
    harness_file("many/00000.t", "one\n", 4);
    harness_file(name, "two\n", 4);
    assert_true(fingerprint_of(spec) != fingerprint);
    harness_file(name, "one\n", 4);
    assert_int_equal(fingerprint_of(spec), fingerprint);
    assert_int_equal(unlink(harness_below(name)), 0);
    assert_true(fingerprint_of(spec) != fingerprint);
}

static void make_images(const char *root, const char *class, const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s/%s", root, class, name);
    harness_file(path, "not read", 8);
}

#define IMAGES(root) "{kind: imagefolder, size: 8, paths: " root "}"

TEST(test_images_by_their_names)
{
    make_images("one", "cat", "1.png");
    make_images("one", "dog", "2.png");
    make_images("same", "cat", "1.png");
    make_images("same", "dog", "2.png");
    make_images("other", "cat", "1.png");
    make_images("other", "cow", "2.png");
    uint64_t fingerprint = fingerprint_of(IMAGES("one"));
    assert_int_equal(fingerprint_of(IMAGES("same")), fingerprint);
    assert_true(fingerprint_of(IMAGES("other")) != fingerprint);
    make_images("same", "dog", "3.png");
    assert_true(fingerprint_of(IMAGES("same")) != fingerprint);
}

TEST(test_datasets_of_datasets)
{
    harness_file("a.r", "aaaa", 4);
    harness_file("b.r", "bbbb", 4);
    harness_file("copy.r", "aaaa", 4);
#define R(name)      "{kind: records, dtype: uint8, shape: [], paths: " name "}"
#define CONCAT(a, b) "{kind: concat, datasets: [" R(a) ", " R(b) "]}"
#define SUBSET(name) "{kind: subset, indices: [1], dataset: " R(name) "}"
    uint64_t fingerprint = fingerprint_of(CONCAT("a.r", "b.r"));
    assert_int_equal(fingerprint_of(CONCAT("copy.r", "b.r")), fingerprint);
    assert_true(fingerprint_of(CONCAT("b.r", "a.r")) != fingerprint);
    assert_true(fingerprint_of(CONCAT("a.r", "a.r")) != fingerprint);
    assert_int_equal(fingerprint_of(SUBSET("a.r")), fingerprint_of(SUBSET("copy.r")));
    assert_true(fingerprint_of(SUBSET("a.r")) != fingerprint_of(SUBSET("b.r")));
}
