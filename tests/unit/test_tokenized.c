/*
 * Fields that become tokens, of kinds whose samples have text: where the leaves stand, messages in
 * lists and in JSON, streams, what is hidden, and what is refused. Which ids a tokenizer gives is
 * test_tokenizer.c's and oracle_tokenizers.py's business.
 */
#include "daemon/data/collate/collate_batch.h"
#include "daemon/data/collate/lengths.h"
#include "daemon/data/decode/tokenizer/tokenizer.h"
#include "tests/lib/lengths.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/make_tar.h"

#include <errno.h>

/* "a b", "ab ab"; <s> is 4, [MASK] 5. */
#define VOCAB                                                                          \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, "      \
    "\"abab\": 3}, \"merges\": [\"a b\", \"ab ab\"]}, \"added_tokens\": [{\"id\": 4, " \
    "\"content\": \"<s>\", \"special\": true}, {\"id\": 5, \"content\": \"[MASK]\", "  \
    "\"special\": true}]}"

/* ---- where the leaves stand ----------------------------------------------------------------- */

/* At the field's place, between what the reader has besides. */
TEST(test_fields)
{
    uint32_t lengths[3];
    uint64_t bad;

    harness_text("rows.csv", "n,text,last\n1,AB,x\n2,\"\",y\n3,ABCDE,z\n");
    expect_dataset("{kind: csv, paths: rows.csv, tokenizer: bytes, bos: 1, eos: 2, max_length: 5}",
                   "{n:1 tokens:int64(4,)[1 65 66 2] last:\"x\"} "
                   "{n:2 tokens:int64(0,) last:\"y\"} "
                   "{n:3 tokens:int64(5,)[1 65 66 67 2] last:\"z\"}");
    struct dataset *ds = open_dataset(
        "{kind: csv, paths: rows.csv, tokenizer: bytes, bos: 1, eos: 2, max_length: 5}", &anywhere);
    assert_int_equal(LENGTHS(dataset_lengths, ds, "tokens", 0, 3, lengths, &bad, NULL), 0);
    assert_true(lengths[0] == 4 && lengths[1] == 0 && lengths[2] == 5);
    dataset_close(ds);
}

/* Two samples: a text, and JSON with a text and messages. */
static void write_texts(const char *name)
{
    struct tar_file tar = tar_new();

    tar_text(&tar, "a.txt", "ab");
    tar_text(&tar, "a.json",
             "{\"id\": 1, \"text\": \"abab\", \"messages\": [{\"role\": \"a\", \"content\": "
             "\"b\"}, {\"role\": \"assistant\", \"content\": \"ab\", \"more\": 3}]}");
    tar_text(&tar, "b.txt", "ba");
    tar_text(&tar, "b.json", "{\"id\": 2, \"text\": \"b\", \"messages\": []}");
    tar_end(&tar);
    harness_file(name, tar.data, tar.len);
    tar_free(&tar);
}

TEST(test_inside)
{
    write_texts("inside.tar");
    expect_dataset(
        "{kind: tar, paths: inside.tar, index: auto, tokenizer: bytes, field: json.text}",
        "{__key__:\"a\" txt:\"ab\" json:{id:1 tokens:int64(4,)[97 98 97 98] messages:..."
        "{__key__:\"b\" txt:\"ba\" json:{id:2 tokens:int64(1,)[98] messages:[]}}");
}

/* Two texts of a sample, as of a translation, in every kind alike: each with marks and a greatest
 * length of its own, the second under its own name. */
TEST(test_two_texts)
{
    static const char *const rows[][2] = {
        {"{kind: csv, paths: pairs.csv, tokenizer: bytes, second: target, eos: 2, max_length: 4}",
         "{target:int64(4,)[65 66 67 2] n:1 tokens:int64(3,)[97 98 2]} "
         "{target:int64(0,) n:2 tokens:int64(2,)[99 2]}"},
        {"{kind: csv, paths: pairs.csv, fields: [n, target, text], tokenizer: bytes, second: "
         "target, eos: 2, max_length: 4}",
         "{n:1 target:int64(4,)[65 66 67 2] tokens:int64(3,)[97 98 2]} "
         "{n:2 target:int64(0,) tokens:int64(2,)[99 2]}"},
        {"{kind: text, paths: pairs.jsonl, fields: [text, n, target], tokenizer: bytes, second: "
         "target, eos: 2, max_length: 4}",
         "{n:1 target:int64(4,)[65 66 67 2] tokens:int64(3,)[97 98 2]} "
         "{n:2 target:int64(0,) tokens:int64(2,)[99 2]}"},
    };

    harness_text("pairs.csv", "target,n,text\nABCDE,1,ab\n,2,c\n");
    harness_text("pairs.jsonl", "{\"text\": \"ab\", \"n\": 1, \"target\": \"ABCDE\"}\n"
                                "{\"target\": \"\", \"text\": \"c\", \"n\": 2}\n");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint32_t lengths[2];
        uint64_t bad;
        expect_dataset(rows[i][0], rows[i][1]);
        struct dataset *ds = open_dataset(rows[i][0], &anywhere);
        assert_int_equal(LENGTHS(dataset_lengths, ds, "target", 0, 2, lengths, &bad, NULL), 0);
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
    if (no_tokenizers())
        return;
    harness_text("vocab.json", VOCAB);
    write_texts("chats.tar");
    /* "a: b\nassistant: ab\n", of which this vocabulary has a, b and ab. */
    expect_dataset("{kind: tar, paths: chats.tar, index: auto, tokenizer: huggingface, model: "
                   "vocab.json, field: json.messages, chat: plain, bos: <s>}",
                   "...tokens:int64(5,)[4 2 0 0 2]...loss_mask:bool(5,)[false false false false "
                   "true]...tokens:int64(1,)[4]...");
    harness_text("chats.csv", "said\n\"[{\"\"role\"\": \"\"assistant\"\", \"\"content\"\": "
                              "\"\"ab\"\"}]\"\nab\n\"[{\"\"role\"\": \"\"a\"\"}]\"\n");
    expect_dataset(
        "{kind: csv, paths: chats.csv, tokenizer: huggingface, model: vocab.json, field: said, "
        "chat: plain}",
        "{...tokens:int64(3,)[0 0 2]...loss_mask:bool(3,)[false false true]...} "
        "(chats.csv: sample 1: its field said is not a conversation: it is not a list of "
        "messages; each message is {\"role\": ...) (...is not a conversation: message 0 has no "
        "strings role and content...)");
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
    uint32_t mask = 0, labels = 0;
    uint64_t hidden = 0;

    assert_int_equal(it->ops->next(it, &t.sample, &t.err), 0);
    assert_true(collate_find(&t.sample.tree, 0, "loss_mask", &mask));
    assert_true(collate_find(&t.sample.tree, 0, "labels", &labels));
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
    harness_file("stream.tar", tar.data, tar.len);
    tar_free(&tar);
    harness_text("vocab.json", VOCAB);
    struct dataset *ds =
        open_dataset("{kind: tar, paths: stream.tar, tokenizer: huggingface, model: vocab.json, "
                     "field: txt, mlm_probability: 0.4}",
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

static const char *const refused[][2] = {
    {"{kind: csv, paths: bad.csv, tokenizer: bytes, field: word}",
     "(bad.csv: sample 0: its field word is missing; set dataset.field)"},
    {"{kind: csv, paths: bad.csv, tokenizer: bytes, field: n}",
     "(bad.csv: sample 0: its field n is int64 [], not text; set dataset.field)"},
    {"{kind: csv, paths: twice.csv, tokenizer: bytes}",
     "(twice.csv: sample 0: its field text becomes tokens, but there is such a field beside it; "
     "choose or rename fields with dataset.fields)"},
    {"{kind: csv, paths: bad.csv, fields: [n], tokenizer: bytes, field: n}",
     "(bad.csv: sample 0: its field n is int64 [], not text; set dataset.field)"},
    {"{kind: tar, paths: bad.tar, index: auto, tokenizer: bytes, field: json}",
     "(bad.tar: sample 0: its field json is a dict, not text; set dataset.field) ..."},
    {"{kind: tar, paths: bad.tar, index: auto, tokenizer: bytes, field: json.messages.0}",
     "(bad.tar: sample 0: its field json.messages.0 is one of a list; name one of a dict) ..."},
    {"{kind: csv, paths: bad.csv, fields: [n], tokenizer: bytes, field: text}",
     "dataset.field: text is not one of dataset.fields; add it..."},
    {"{kind: csv, paths: bad.csv, fields: [n, text], tokenizer: bytes, second: more}",
     "dataset.second: more is not one of dataset.fields; add it..."},
    {"{kind: text, paths: names.jsonl, tokenizer: bytes, second: more}",
     "dataset.second: more is not one of dataset.fields; add it..."},
};

TEST(test_refused)
{
    static const char model[] =
        "{kind: csv, paths: bad.csv, tokenizer: huggingface, model: /nonexistent/m}";

    harness_text("bad.csv", "n,text\n1,y\n");
    harness_text("twice.csv", "tokens,text\nx,y\n");
    harness_text("names.jsonl", "{\"text\": \"a\", \"more\": \"b\"}\n");
    write_texts("bad.tar");
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        expect_dataset(refused[i][0], refused[i][1]);
    harness_text("vocab.json", VOCAB);
    if (tokenizer_is_built())
        expect_dataset("{kind: csv, paths: bad.csv, tokenizer: huggingface, model: vocab.json, "
                       "field: n, second: text, mlm_probability: 0.5}",
                       "dataset.second: ...does not work with mlm_probability...");
    expect_dataset(model, tokenizer_is_built()
                              ? "ENOENT /nonexistent/m: ..."
                              : "ENOTSUP dataset.tokenizer: ...was built without...");
}

/* ---- memory --------------------------------------------------------------------------------- */

TEST(test_memory)
{
    write_texts("memory.tar");
    expect_failures_of("{kind: tar, paths: memory.tar, index: auto, tokenizer: bytes, field: "
                       "json.text, bos: 1}",
                       8);
    expect_failures_of("{kind: tar, paths: memory.tar, tokenizer: bytes, field: txt}", 8);
    if (no_tokenizers())
        return;
    harness_text("vocab.json", VOCAB);
    expect_failures_of("{kind: tar, paths: memory.tar, index: auto, tokenizer: huggingface, model: "
                       "vocab.json, field: json.messages, chat: plain}",
                       20);
}
