/* What each kind of dataset is read from. */
#include "daemon/data/kinds/kinds.h"
#include "tests/unit/dataset_text.h"

#include <errno.h>
#include <sys/stat.h>

static int list_of(const char *text, struct file_list *ret, struct dl_error *err)
{
    _cleanup_(spec_deinit) struct dl_spec spec = read_dataset(text);

    return spec_files_list(&spec.dataset, &anywhere, ret, err);
}

/* Their names below the test's folder, joined by spaces. */
static void join(const struct file_list *list, char *ret, size_t size)
{
    size_t at = 0, skip = strlen(harness_tmpdir()) + 1;

    ret[0] = '\0';
    for (uint32_t i = 0; i < list->n && at < size; i++)
        at += (size_t)snprintf(ret + at, size - at, "%s%s", i ? " " : "", list->paths[i] + skip);
}

TEST(test_each_kind)
{
    static const struct {
        const char *dataset;
        const char *files; /* NULL: nobody knows */
    } cases[] = {
        {"{kind: range, length: 3}", ""},
        {"{kind: idx, paths: {image: i.gz, label: l.gz}}", "i.gz l.gz"},
        {"{kind: npy, paths: one.npy}", "one.npy"},
        {"{kind: records, paths: \"r[1].bin\", dtype: uint8, shape: [1]}", "r[1].bin"},
        {"{kind: tokens, paths: t.bin, dtype: uint16, sequence_length: 4}", "t.bin"},
        {"{kind: text, paths: [b.txt, \"a*.txt\", \"n{1..2}\"]}", "b.txt a1.txt a2.txt n1 n2"},
        {"{kind: text, paths: x, tokenizer: huggingface, model: t.json, chat: jinja, "
         "chat_template: none/t.jinja}",
         "x t.json none/t.jinja"},
        {"{kind: text, paths: x, tokenizer: huggingface, model: t.json, chat: jinja, "
         "chat_template: t.jinja}",
         "x t.json t.jinja tokenizer_config.json"},
        {"{kind: tar, paths: \"s-{08..10}.tar\"}", "s-08.tar s-09.tar s-10.tar"},
        {"{kind: tar, paths: \"s-{08..09}.tar\", index: auto}", "s-08.tar s-09.tar"},
        {"{kind: tar, paths: \"s-{08..09}.tar\", index: w.json}", "s-08.tar s-09.tar w.json"},
        {"{kind: tar, paths: s.tar, index: d}", "s.tar d/s.idx"},
        {"{kind: megatron, paths: m}", "m.idx m.bin"},
        {"{kind: megatron, paths: m.bin}", "m.idx m.bin"},
        {"{kind: tfrecord, paths: [b, \"a*.txt\"]}", "b a1.txt a2.txt"},
        {"{kind: lmdb, paths: m.mdb}", "m.mdb"},
        {"{kind: hdf5, paths: m.h5}", "m.h5"},
        {"{kind: csv, paths: [b, \"a*.txt\"]}", "b a1.txt a2.txt"},
        {"{kind: arrow, paths: [b, \"a*.txt\"]}", "b a1.txt a2.txt"},
        {"{kind: imagefolder, paths: .}", ""},
        {"{kind: audiofolder, paths: .}", ""},
        {"{kind: plugin, path: p.so}", NULL},
        {"{kind: python, object: \"m:C\"}", NULL},
        /* Of those inside nothing: a caller that wants them goes through them. */
        {"{kind: subset, indices: [0], dataset: {kind: npy, paths: one.npy}}", ""},
        {"{kind: split, parts: [0.5, 0.5], part: 0, seed: 1, dataset: {kind: npy, paths: one.npy}}",
         ""},
        {"{kind: concat, datasets: [{kind: npy, paths: one.npy}]}", ""},
        {"{kind: chain, datasets: [{kind: tar, paths: s.tar}]}", ""},
    };

    harness_file("a2.txt", "x", 1);
    harness_file("a1.txt", "x", 1);
    harness_file("tokenizer_config.json", "{}", 2);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(file_list_deinit) struct file_list list = {0};
        struct dl_error err = {0};
        char names[1024];
        int r = list_of(cases[i].dataset, &list, &err);

        if (!cases[i].files) {
            assert_int_equal(r, -ENOTSUP);
            continue;
        }
        if (r < 0)
            fail_msg("%s: %s: %s", cases[i].dataset, err.path, err.message);
        join(&list, names, sizeof names);
        assert_string_equal(names, cases[i].files);
    }
}

/* The model is one of them, whether or not a tokenizer for it is built in. */
TEST(test_a_model)
{
    char path[] = "/x/a.txt", model[] = "/x/spm.model";
    struct spec_file file = {.path = path};
    struct spec_dataset spec = {.kind = DATASET_TEXT, .files = &file, .n_files = 1, .model = model};
    _cleanup_(file_list_deinit) struct file_list list = {0};
    struct dl_error err = {0};

    assert_int_equal(spec_files_list(&spec, &anywhere, &list, &err), 0);
    assert_int_equal(list.n, 2);
    assert_string_equal(list.paths[1], model);
}

TEST(test_refused)
{
    struct file_list list = {0};
    struct dl_error err = {0};

    assert_int_equal(list_of("{kind: text, paths: \"none*.txt\"}", &list, &err), -EINVAL);
    assert_non_null(strstr(err.message, "matches no file"));
    assert_int_equal(list.n, 0);
}
