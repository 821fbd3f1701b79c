/*
 * The tokenizer sentencepiece: which files are models, where they may lie, and what a program says
 * that was built without it. Which ids it gives is real_pieces.py's business.
 */
#include "daemon/data/decode/tokenizer/text_model.h"
#include "daemon/data/kinds/kinds.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_alloc.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

static struct spec_file file;

static struct spec_dataset text_by(const char *model)
{
    return (struct spec_dataset){.kind = DATASET_TEXT,
                                 .files = &file,
                                 .n_files = 1,
                                 .format = TEXT_AUTO,
                                 .tokenizer = TOKENIZER_SENTENCEPIECE,
                                 .model = (char *)model};
}

static void expect_refusal(const char *model, const struct data_env *env, int code,
                           const char *says)
{
    struct spec_dataset spec = text_by(model);
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    assert_int_equal(dataset_open(&spec, env, &ds, &err), -code);
    assert_null(ds);
    assert_error_has(&err, says);
    assert_string_equal(err.path, model);
    assert_int_equal(err.code, code);
}

static bool skipped(void)
{
    if (spm_is_built())
        return false;
    print_message("# skipped: built without SentencePiece (Debian: libsentencepiece-dev)\n");
    return true;
}

TEST(test_built_without)
{
    struct spec_dataset spec = text_by("/nonexistent/a.model");
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    if (spm_is_built()) {
        print_message("# skipped: built with SentencePiece\n");
        return;
    }
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -ENOTSUP);
    assert_null(ds);
    assert_error(
        &err, ENOTSUP, "dataset.tokenizer",
        "this dloaderd, such as the wheel's, was built without SentencePiece: use Debian's "
        "package, build it with libsentencepiece-dev and a C++ compiler, or write tokenizer: "
        "bytes");
}

#define NO_MODEL                                                                                  \
    "is not a SentencePiece model, or a damaged one; name the .model file that spm_train wrote, " \
    "or fetch it again"

TEST(test_no_models)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } rows[] = {
        {"", 0,
         "has 0 bytes and is not a SentencePiece model; name the .model file that "
         "spm_train "},
        {"a", 1, NO_MODEL},
        {"some words of a text\n", 21, NO_MODEL},
        {"\x0A\xFF\xFF\xFF\xFF\x07", 6, NO_MODEL}, /* a piece that ends behind the end */
        {"\x0A\x03\x0A\x01", 4, NO_MODEL},
        {"\x0A\x03\x0A\x01x", 5,
         "is not a SentencePiece model, or a damaged one ("},              /* one piece */
        {"\x18\x01", 2, "is not a SentencePiece model, or a damaged one"}, /* an unknown field */
    };

    if (skipped())
        return;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        expect_refusal(harness_file("no.model", rows[i].bytes, rows[i].n), &anywhere, EINVAL,
                       rows[i].says);
}

TEST(test_places)
{
    char inside[4200], outside[4200], link[4300], huge[4200];
    struct data_env env = {.roots = (char *[]){inside}, .n_roots = 1};

    if (skipped())
        return;
    snprintf(inside, sizeof inside, "%s/inside", harness_tmpdir());
    snprintf(link, sizeof link, "%s/a.model", inside);
    snprintf(huge, sizeof huge, "%s/huge.model", harness_tmpdir());
    snprintf(outside, sizeof outside, "%s", harness_file("out.model", "x", 1));
    assert_int_equal(mkdir(inside, 0700), 0);
    assert_int_equal(symlink(outside, link), 0);
    expect_refusal(outside, &env, EACCES, "lies outside the daemon's data_roots");
    expect_refusal(link, &env, EACCES, "outside the daemon's data_roots");
    expect_refusal("/nonexistent/a.model", &env, EACCES, "lies outside the daemon's data_roots");
    expect_refusal("/nonexistent/a.model", &anywhere, ENOENT, "no such file");
    expect_refusal(inside, &anywhere, EISDIR, "is a directory");
    expect_refusal("/dev/null", &anywhere, EINVAL, "is not a regular file");
    assert_int_equal(symlink(outside, huge), 0);
    assert_int_equal(truncate(huge, (off_t)1 << 40), 0);
    expect_refusal(huge, &anywhere, EINVAL,
                   "has 1099511627776 bytes and is not a SentencePiece model");
}

/* The model is asked for before the text is read: an error in it comes at once. */
TEST(test_model_before_text)
{
    const char *model = harness_file("m.model", "x", 1);

    if (skipped())
        return;
    file.path = (char *)"/nonexistent/text";
    expect_refusal(model, &anywhere, EINVAL, NO_MODEL);
    file.path = (char *)harness_file("t.txt", "a\n", 2);
}

/* Each allocation of ours fails once; nothing leaks, and every failure is told. */
TEST(test_memory)
{
    struct spec_dataset spec = text_by(harness_file("m.model", "x", 1));
    int r = -ENOMEM, k = 0;

    if (skipped())
        return;
    for (; r != -EINVAL; k++) {
        struct dataset *ds = NULL;
        struct dl_error err = {0};
        fail_in = k;
        r = dataset_open(&spec, &anywhere, &ds, &err);
        fail_in = -1;
        assert_true(r == -ENOMEM || r == -EINVAL);
        assert_int_equal(err.code, -r);
        assert_null(ds);
    }
    assert_true(k >= 3);
}

static int group_begin(void **state)
{
    file.path = (char *)harness_file("t.txt", "a\n", 2);
    return 0;
}

TEST_GROUP(group_begin, NULL)
