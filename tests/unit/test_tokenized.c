/*
 * Fields that become tokens, of kinds whose samples have text: where the leaves stand, messages in
 * lists and in JSON, streams, what is hidden, and what is refused. Which ids a tokenizer gives is
 * test_tokenizer.c's and oracle_tokenizers.py's business.
 */
#include "daemon/data/collate/collate_batch.h"
#include "daemon/data/collate/lengths.h"
#include "daemon/data/decode/tokenizer/tokenizer.h"
#include "tests/unit/dataset_text.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/make_tar.h"
#include "tests/unit/taken.h"

#include <errno.h>

/* "a b", "ab ab"; <s> is 4, [MASK] 5. */
#define VOCAB                                                                          \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, "      \
    "\"abab\": 3}, \"merges\": [\"a b\", \"ab ab\"]}, \"added_tokens\": [{\"id\": 4, " \
    "\"content\": \"<s>\", \"special\": true}, {\"id\": 5, \"content\": \"[MASK]\", "  \
    "\"special\": true}]}"

static const struct sample_key key = {.seed = 7};

static uint32_t node_at(const struct sample *sample, const char *path)
{
    uint32_t i = 0;

    if (!collate_find(&sample->tree, 0, path, &i))
        fail_msg("there is no %s", path);
    return i;
}

/* A leaf of numbers, as "1 2 3 ". */
static void expect_numbers(const struct sample *sample, const char *path, const char *want)
{
    uint32_t i = node_at(sample, path);
    const struct tree_node *node = &sample->tree.nodes[i];
    char got[256] = "";
    size_t len = 0;

    assert_int_equal(node->kind, TREE_TENSOR);
    assert_int_equal(node->ndim, 1);
    for (uint64_t k = 0; k < node->shape[0]; k++) {
        long long n = node->dtype == DL_DTYPE_BOOL ? ((const uint8_t *)sample->data[i])[k]
                                                   : ((const int64_t *)sample->data[i])[k];
        len += (size_t)snprintf(got + len, sizeof got - len, "%lld ", n);
    }
    assert_string_equal(got, want);
}

static struct dataset *open_as(const char *format, const char *file)
{
    _cleanup_free_ char *text = NULL;

    assert_true(asprintf(&text, format, file) > 0);
    return open_dataset(text, &anywhere);
}

static const char *write_text(const char *name, const char *text)
{
    return harness_file(name, text, strlen(text));
}

/* As one in a format of two paths. */
static const char *with_model(const char *format, const char *file)
{
    static char text[1024];
    const char *model = write_text("vocab.json", VOCAB);

    snprintf(text, sizeof text, format, file, model);
    return text;
}

/* ---- where the leaves stand ----------------------------------------------------------------- */

/* At the field's place, between what the reader has besides. */
TEST(test_fields)
{
    const char *rows = write_text("rows.csv", "n,text,last\n1,AB,x\n2,\"\",y\n3,ABCDE,z\n");
    struct dataset *ds =
        open_as("{kind: csv, paths: '%s', tokenizer: bytes, bos: 1, eos: 2, max_length: 5}", rows);
    uint32_t lengths[3];
    uint64_t bad;
    struct taken t;

    assert_int_equal(ds->length, 3);
    assert_int_equal(take(ds, &key, 0, &t), 0);
    expect_numbers(&t.sample, "tokens", "1 65 66 2 ");
    assert_int_equal(node_at(&t.sample, "n"), 1);
    assert_int_equal(node_at(&t.sample, "tokens"), 2);
    assert_int_equal(t.sample.tree.nodes[node_at(&t.sample, "last")].kind, TREE_STRING);
    assert_int_equal(t.sample.tree.count, 4);
    drop(&t);
    assert_int_equal(take(ds, &key, 1, &t), 0);
    expect_numbers(&t.sample, "tokens", "");
    drop(&t);
    assert_int_equal(take(ds, &key, 2, &t), 0);
    expect_numbers(&t.sample, "tokens", "1 65 66 67 2 ");
    drop(&t);
    assert_int_equal(dataset_lengths(ds, "tokens", 0, 3, lengths, &bad, &t.err), 0);
    assert_true(lengths[0] == 4 && lengths[1] == 0 && lengths[2] == 5);
    assert_int_equal(take(ds, &key, 3, &t), -ERANGE);
    drop(&t);
    dataset_close(ds);
}

/* Two samples: a text, and JSON with a text and messages. */
static const char *shard_of_texts(const char *name)
{
    struct tar_file tar = tar_new();

    tar_text(&tar, "a.txt", "ab");
    tar_text(&tar, "a.json",
             "{\"id\": 1, \"text\": \"abab\", \"messages\": [{\"role\": \"a\", \"content\": "
             "\"b\"}, {\"role\": \"assistant\", \"content\": \"ab\", \"more\": 3}]}");
    tar_text(&tar, "b.txt", "ba");
    tar_text(&tar, "b.json", "{\"id\": 2, \"text\": \"b\", \"messages\": []}");
    tar_end(&tar);
    const char *path = harness_file(name, tar.data, tar.len);
    tar_free(&tar);
    return path;
}

TEST(test_inside)
{
    const char *shard = shard_of_texts("inside.tar");
    struct dataset *ds =
        open_as("{kind: tar, paths: '%s', index: auto, tokenizer: bytes, field: json.text}", shard);
    struct taken t;

    assert_int_equal(take(ds, &key, 1, &t), 0);
    expect_numbers(&t.sample, "json.tokens", "98 ");
    assert_int_equal(t.sample.tree.nodes[node_at(&t.sample, "json.id")].dtype, DL_DTYPE_INT64);
    assert_int_equal(t.sample.tree.nodes[node_at(&t.sample, "json.messages")].children, 0);
    (void)node_at(&t.sample, "txt");
    drop(&t);
    dataset_close(ds);
}

/* Two texts of a sample, as of a translation, in every kind alike: each with marks and a greatest
 * length of its own, the second under its own name. */
TEST(test_two_texts)
{
    const char *csv = write_text("pairs.csv", "target,n,text\nABCDE,1,ab\n,2,c\n");
    const char *lines =
        write_text("pairs.jsonl", "{\"text\": \"ab\", \"n\": 1, \"target\": \"ABCDE\"}\n"
                                  "{\"target\": \"\", \"text\": \"c\", \"n\": 2}\n");
    const struct {
        const char *spec, *file;
    } rows[] = {
        {"{kind: csv, paths: '%s', tokenizer: bytes, second: target, eos: 2, max_length: 4}", csv},
        {"{kind: csv, paths: '%s', fields: [n, target, text], tokenizer: bytes, second: target, "
         "eos: 2, max_length: 4}",
         csv},
        {"{kind: text, paths: '%s', fields: [text, n, target], tokenizer: bytes, second: target, "
         "eos: 2, max_length: 4}",
         lines},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dataset *ds = open_as(rows[i].spec, rows[i].file);
        uint32_t lengths[2];
        uint64_t bad;
        struct taken t;

        assert_int_equal(ds->length, 2);
        assert_int_equal(take(ds, &key, 0, &t), 0);
        expect_numbers(&t.sample, "tokens", "97 98 2 ");
        expect_numbers(&t.sample, "target", "65 66 67 2 ");
        assert_int_equal(t.sample.tree.nodes[node_at(&t.sample, "n")].dtype, DL_DTYPE_INT64);
        assert_int_equal(t.sample.tree.count, 4);
        drop(&t);
        assert_int_equal(take(ds, &key, 1, &t), 0);
        expect_numbers(&t.sample, "tokens", "99 2 ");
        expect_numbers(&t.sample, "target", "");
        drop(&t);
        assert_int_equal(dataset_lengths(ds, "target", 0, 2, lengths, &bad, &t.err), 0);
        assert_true(lengths[0] == 4 && lengths[1] == 0);
        dataset_close(ds);
    }
}

/* ---- a tokenizer.json ----------------------------------------------------------------------- */

static bool no_tokenizers(void)
{
    if (!tokenizer_is_built())
        print_message("# skipped: built without tokenizers\n");
    return !tokenizer_is_built();
}

/* The same conversation, in a list and as JSON in a cell. */
TEST(test_chats)
{
    const char *shard = shard_of_texts("chats.tar");
    struct taken t;

    if (no_tokenizers())
        return;
    struct dataset *ds = open_dataset(
        with_model("{kind: tar, paths: '%s', index: auto, tokenizer: huggingface, model: '%s', "
                   "field: json.messages, chat: plain, bos: <s>}",
                   shard),
        &anywhere);
    assert_int_equal(take(ds, &key, 0, &t), 0);
    /* "a: b\nassistant: ab\n", of which this vocabulary has a, b and ab. */
    expect_numbers(&t.sample, "json.tokens", "4 2 0 0 2 ");
    expect_numbers(&t.sample, "json.loss_mask", "0 0 0 0 1 ");
    drop(&t);
    assert_int_equal(take(ds, &key, 1, &t), 0);
    expect_numbers(&t.sample, "json.tokens", "4 ");
    drop(&t);
    dataset_close(ds);
    const char *rows =
        write_text("chats.csv", "said\n\"[{\"\"role\"\": \"\"assistant\"\", \"\"content\"\": "
                                "\"\"ab\"\"}]\"\nab\n\"[{\"\"role\"\": \"\"a\"\"}]\"\n");
    ds = open_dataset(with_model("{kind: csv, paths: '%s', tokenizer: huggingface, model: '%s', "
                                 "field: said, chat: plain}",
                                 rows),
                      &anywhere);
    assert_int_equal(take(ds, &key, 0, &t), 0);
    expect_numbers(&t.sample, "tokens", "0 0 2 ");
    expect_numbers(&t.sample, "loss_mask", "0 0 1 ");
    drop(&t);
    assert_int_equal(take(ds, &key, 1, &t), -EINVAL);
    assert_error_has(&t.err, "sample 1: its field said is not a conversation: it is not a list of "
                             "messages; each message is {\"role\": ");
    drop(&t);
    assert_int_equal(take(ds, &key, 2, &t), -EINVAL);
    assert_error_has(&t.err, "is not a conversation: message 0 has no strings role and content");
    drop(&t);
    dataset_close(ds);
}

/* ---- streams -------------------------------------------------------------------------------- */

static struct dataset_iter *iterate(struct dataset *ds, uint64_t seed)
{
    const struct replica_params params = {
        .seed = seed, .workers = 1, .world = 1, .key = {.epoch = 3}};
    struct dataset_iter *it = NULL;
    struct dl_error err = {0};

    assert_int_equal(ds->ops->iterate(ds, &params, &it, &err), 0);
    return it;
}

/* Which of a sample's tokens are hidden, as bits. */
static uint64_t next_hidden(struct dataset_iter *it)
{
    struct taken t = {.sample.arena = &t.arena};
    uint64_t hidden = 0;

    assert_int_equal(it->ops->next(it, &t.sample, &t.err), 0);
    uint32_t mask = node_at(&t.sample, "loss_mask"), labels = node_at(&t.sample, "labels");
    assert_int_equal(t.sample.tree.nodes[mask].shape[0], 40);
    for (int k = 0; k < 40; k++) {
        hidden |= (uint64_t)((const uint8_t *)t.sample.data[mask])[k] << k;
        assert_int_equal(((const int64_t *)t.sample.data[labels])[k], 0);
    }
    drop(&t);
    return hidden;
}

/* What is hidden of a stream's sample is the same where others were passed over. */
TEST(test_stream)
{
    struct tar_file tar = tar_new();
    char text[41] = "", name[16];

    if (no_tokenizers())
        return;
    memset(text, 'a', 40);
    for (int k = 0; k < 3; k++) {
        snprintf(name, sizeof name, "%d.txt", k);
        tar_text(&tar, name, text);
    }
    tar_end(&tar);
    const char *path = harness_file("stream.tar", tar.data, tar.len);
    tar_free(&tar);
    struct dataset *ds = open_dataset(
        with_model("{kind: tar, paths: '%s', tokenizer: huggingface, model: '%s', field: txt, "
                   "mlm_probability: 0.4}",
                   path),
        &anywhere);
    assert_true(dataset_is_iterable(ds) && ds->can_skip);
    struct dataset_iter *it = iterate(ds, 5), *other = iterate(ds, 5), *seed = iterate(ds, 6);
    uint64_t hidden[3], passed = 0;
    for (int k = 0; k < 3; k++)
        hidden[k] = next_hidden(it);
    assert_true(hidden[0] != hidden[1] && hidden[1] != hidden[2] && hidden[0] != 0);
    assert_int_equal(other->ops->skip(other, 2, &passed), 0);
    assert_int_equal(passed, 2);
    assert_true(next_hidden(other) == hidden[2]);
    assert_int_equal(other->ops->skip(other, 2, NULL), DATASET_END);
    assert_true(next_hidden(seed) != hidden[0]);
    it->ops->close(it);
    other->ops->close(other);
    seed->ops->close(seed);
    dataset_close(ds);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void expect_sample_refused(const char *format, const char *file, const char *words)
{
    struct dataset *ds = open_as(format, file);
    struct taken t;

    assert_int_equal(take(ds, &key, 0, &t), -EINVAL);
    assert_error(&t.err, EINVAL, file, words);
    drop(&t);
    dataset_close(ds);
}

TEST(test_samples_refused)
{
    const char *rows = write_text("bad.csv", "n,text\n1,y\n");
    const char *twice = write_text("twice.csv", "tokens,text\nx,y\n");
    const char *shard = shard_of_texts("bad.tar");

    expect_sample_refused("{kind: csv, paths: '%s', tokenizer: bytes, field: word}", rows,
                          "sample 0: its field word is missing; set dataset.field");
    expect_sample_refused("{kind: csv, paths: '%s', tokenizer: bytes, field: n}", rows,
                          "sample 0: its field n is int64 [], not text; set dataset.field");
    expect_sample_refused("{kind: csv, paths: '%s', tokenizer: bytes}", twice,
                          "sample 0: its field text becomes tokens, but there is such a field "
                          "beside it; choose or rename fields with dataset.fields");
    expect_sample_refused("{kind: csv, paths: '%s', fields: [n], tokenizer: bytes, field: n}", rows,
                          "sample 0: its field n is int64 [], not text; set dataset.field");
    expect_sample_refused("{kind: tar, paths: '%s', index: auto, tokenizer: bytes, field: json}",
                          shard,
                          "sample 0: its field json is a dict, not text; set "
                          "dataset.field");
    expect_sample_refused("{kind: tar, paths: '%s', index: auto, tokenizer: bytes, field: "
                          "json.messages.0}",
                          shard,
                          "sample 0: its field json.messages.0 is one of a list; name one "
                          "of a dict");
}

static void expect_refused(const char *text, int code, const char *path, const char *words)
{
    struct dl_spec spec = read_dataset(text);
    struct dl_error err = {0};
    struct dataset *ds = NULL;

    assert_int_equal(dataset_open(&spec.dataset, &anywhere, &ds, &err), -code);
    assert_null(ds);
    assert_string_equal(err.path, path);
    assert_error_has(&err, words);
    spec_deinit(&spec);
}

TEST(test_refused)
{
    char text[2048];
    const char *rows = write_text("names.csv", "n,text\n1,\xff\n");

    snprintf(text, sizeof text,
             "{kind: csv, paths: '%s', fields: [n], tokenizer: bytes, field: text}", rows);
    expect_refused(text, EINVAL, "dataset.field", "text is not one of dataset.fields; add it");
    snprintf(text, sizeof text,
             "{kind: csv, paths: '%s', fields: [n, text], tokenizer: bytes, second: more}", rows);
    expect_refused(text, EINVAL, "dataset.second", "more is not one of dataset.fields; add it");
    const char *lines = write_text("names.jsonl", "{\"text\": \"a\", \"more\": \"b\"}\n");
    snprintf(text, sizeof text, "{kind: text, paths: '%s', tokenizer: bytes, second: more}", lines);
    expect_refused(text, EINVAL, "dataset.second", "more is not one of dataset.fields; add it");
    if (tokenizer_is_built()) {
        snprintf(
            text, sizeof text, "%s",
            with_model("{kind: csv, paths: '%s', tokenizer: huggingface, model: '%s', field: n, "
                       "second: text, mlm_probability: 0.5}",
                       rows));
        expect_refused(text, EINVAL, "dataset.second", "does not work with mlm_probability");
    }
    snprintf(text, sizeof text,
             "{kind: csv, paths: '%s', tokenizer: huggingface, model: /nonexistent/m}", rows);
    if (tokenizer_is_built())
        expect_refused(text, ENOENT, "/nonexistent/m", "");
    else
        expect_refused(text, ENOTSUP, "dataset.tokenizer", "was built without");
}

/* ---- memory --------------------------------------------------------------------------------- */

TEST(test_memory)
{
    const char *shard = shard_of_texts("memory.tar");
    const char *specs[] = {
        "{kind: tar, paths: '%s', index: auto, tokenizer: bytes, field: json.text, bos: 1}",
        "{kind: tar, paths: '%s', tokenizer: bytes, field: txt}",
    };
    char text[512];

    for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
        snprintf(text, sizeof text, specs[i], shard);
        struct dl_spec spec = read_dataset(text);
        expect_memory_failures(&spec.dataset, 8);
        spec_deinit(&spec);
    }
    if (no_tokenizers())
        return;
    struct dl_spec spec = read_dataset(
        with_model("{kind: tar, paths: '%s', index: auto, tokenizer: huggingface, model: '%s', "
                   "field: json.messages, chat: plain}",
                   shard));
    expect_memory_failures(&spec.dataset, 20);
    spec_deinit(&spec);
}
