/*
 * The tokenizer huggingface: which files are refused and how, whose files may be read, special
 * tokens and max_length, words of every length, and what a program says that was built without it.
 * Which ids it gives of real files is oracle_tokenizers.py's business.
 */
#include "daemon/data/decode/tokenizer/tokenizer.h"
#include "daemon/data/kinds/kinds.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_alloc.h"

static bool skipped(void)
{
    if (tokenizer_is_built())
        return false;
    print_message("# skipped: built without tokenizers (Debian: libpcre2-dev libutf8proc-dev)\n");
    return true;
}

TEST(test_built_without)
{
    struct hf_tokenizer *tokenizer = NULL;
    struct dl_error err = {0};

    if (tokenizer_is_built()) {
        print_message("# skipped: built with tokenizers\n");
        return;
    }
    assert_int_equal(tokenizer_open("/nonexistent", "dataset", &anywhere, &tokenizer, &err),
                     -ENOTSUP);
    assert_string_equal(err.path, "dataset.tokenizer");
    assert_error_has(&err, "build it with libpcre2-dev and libutf8proc-dev");
}

#define BPE(keys) \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, " keys
#define GOOD       "\"merges\": [\"a b\"]}"
#define WITH(keys) BPE(GOOD) ", " keys "}"
#define CHARSMAP(map) \
    WITH("\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"" map "\"}")
#define UNIGRAM(vocab, unk) \
    "{\"model\": {\"type\": \"Unigram\", \"vocab\": " vocab ", \"unk_id\": " unk "}}"

static const struct {
    const char *json;
    const char *says;
} refusals[] = {
    {"", "is not JSON ("},
    {"{", "is not JSON ("},
    {"[]", "model is not an object; name the tokenizer.json that save_pretrained()"},
    {"{\"model\": {\"type\": \"Bigram\", \"vocab\": []}}",
     "model.type is \"Bigram\", which this version does not support; it has the models BPE, "
     "Unigram"},
    {UNIGRAM("[]", "0"), "model.vocab is not a list of tokens and their scores"},
    {UNIGRAM("{\"a\": 0}", "0"), "model.vocab is not a list of tokens and their scores"},
    {UNIGRAM("[[\"a\", -1], [\"b\"]]", "0"), "model.vocab[1] is not a token and its score"},
    {UNIGRAM("[[\"a\", \"b\"]]", "0"), "model.vocab[0] is not a token and its score"},
    {UNIGRAM("[[1, 1]]", "0"), "model.vocab[0][0] is not a"},
    {UNIGRAM("[[\"a\", -1]]", "null"), "model.unk_id is missing"},
    {UNIGRAM("[[\"a\", -1]]", "1"), "model.unk_id is 1, but model.vocab has 1 tokens"},
    {"{\"model\": {\"type\": \"BPE\"}}", "model.vocab is not an object of tokens and their ids"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}}}",
     "model.vocab.a is not a whole number from 0 to "},
    {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 1}}}", "model.unk_token is missing"},
    {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 1}, \"unk_token\": \"b\"}}",
     "model.unk_token is \"b\", which is not in model.vocab"},
    {BPE("\"merges\": 1}") "}", "model.merges is not a list"},
    {BPE("\"merges\": [\"a\"]}") "}",
     "model.merges[0] is \"a\", not two parts with a blank between"},
    {BPE("\"merges\": [\"a b\", [\"a\"]]}") "}",
     "model.merges[1] is neither \"LEFT RIGHT\" nor [\"LEFT\", \"RIGHT\"]"},
    {BPE("\"merges\": [\"a c\"]}") "}", "model.merges[0] has \"c\", which is not in model.vocab"},
    {BPE("\"merges\": [\"b a\"]}") "}",
     "model.merges[0] makes \"ba\", which is not in model.vocab"},
    {BPE("\"dropout\": 0.5, " GOOD) "}",
     "model.dropout is 0.5, which this version does not support; set it to null: tokens would "},
    {WITH("\"truncation\": 5"), "truncation is not an object"},
    {WITH("\"truncation\": {}"), "truncation.max_length is missing"},
    {WITH("\"truncation\": {\"max_length\": 0}"),
     "truncation.max_length leaves no room for a text beside 0 special tokens"},
    {WITH("\"truncation\": {\"max_length\": 5, \"stride\": 5}"),
     "truncation.stride is not below max_length without special tokens"},
    {WITH("\"truncation\": {\"max_length\": 5, \"direction\": \"Left\"}"),
     "truncation.direction is \"Left\", which this version does not support"},
    {WITH("\"truncation\": {\"max_length\": 5, \"strategy\": \"OnlySecond\"}"),
     "truncation.strategy is \"OnlySecond\", which this version does not support"},
    {WITH("\"padding\": {}"), "padding is {}, which this version does not support; set it to null"},
    {WITH("\"normalizer\": {\"type\": \"Compiled\"}"),
     "normalizer.type is \"Compiled\", which this version does not support; it has Bert"},
    {WITH("\"normalizer\": {\"type\": \"Precompiled\"}"),
     "normalizer.precompiled_charsmap is missing"},
    {CHARSMAP("AA"), "is not a table of SentencePiece's in base64"}, /* not base64, */
    {CHARSMAP("AAA="), "is not a table"},                            /* too short, */
    {CHARSMAP("CAAAAAAAAAA="), "is not a table"},                    /* less than it says, */
    {CHARSMAP("BQAAAAAAAAAAAAAA"), "is not a table"},                /* not of whole units, */
    {CHARSMAP("BAAAAAAAAAD/"), "is not a table"},                    /* without UTF-8 */
    {WITH("\"normalizer\": {\"type\": \"Replace\", \"content\": \"\"}"),
     "normalizer.pattern is neither {\"String\": ...} nor {\"Regex\": ...}"},
    {WITH("\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, "
          "{\"type\": \"UnicodeScripts\"}]}"),
     "pre_tokenizer.pretokenizers[1].type is \"UnicodeScripts\", which this version does not"},
    {WITH("\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": "
          "{\"Regex\": \"(\"}}"),
     "pre_tokenizer.pattern.Regex cannot be used: missing closing parenthesis"},
    {WITH("\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": "
          "{\"Regex\": \"[[a]&&b]\"}}"),
     "cannot be used: brackets in brackets are not supported; write one class"},
    {WITH("\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Cut\", \"pattern\": {}}"),
     "pre_tokenizer.behavior is not one of Isolated, Removed, Contiguous, "},
    {WITH("\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
          "\"ByteLevel\"}, {\"type\": \"Digits\"}]}"),
     "pre_tokenizer.pretokenizers[1] comes after ByteLevel; put it before"},
    {WITH("\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"ab\"}"),
     "pre_tokenizer.replacement is not one character"},
    {WITH("\"added_tokens\": [{\"id\": 9, \"content\": \"<s>\"}]"),
     "added_tokens[0].id is 9, but tokenizers counts it as 3: by model.vocab, or by where that "
     "ends"},
    {WITH("\"added_tokens\": [{\"id\": 3}]"), "added_tokens[0].content is missing"},
    {WITH("\"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"a\"]}"),
     "post_processor.cls is not [TOKEN, ID]"},
    {WITH("\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []}"),
     "post_processor.single has no {\"Sequence\": {\"id\": \"A\"}}"},
    {WITH("\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
          "{\"id\": \"<s>\"}}]}"),
     "post_processor.single[0].SpecialToken.id is \"<s>\", for which post_processor.special_tokens "
     "has no ids"},
};

TEST(test_refusals)
{
    if (skipped())
        return;
    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
        const char *path = harness_text("t.json", refusals[i].json);
        struct hf_tokenizer *tokenizer = NULL;
        struct dl_error err = {0};
        assert_int_equal(tokenizer_open(path, "dataset", &anywhere, &tokenizer, &err), -EINVAL);
        assert_null(tokenizer);
        assert_string_equal(err.path, path);
        assert_error_has(&err, refusals[i].says);
    }
}

#define MARKED                                                                                     \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"abab\": 3}, "    \
    "\"merges\": [\"a b\", \"ab ab\"]}, \"added_tokens\": [{\"id\": 4, \"content\": \"<s>\", "     \
    "\"special\": true}], \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "     \
    "[{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": " \
    "{\"id\": \"<s>\"}}], \"special_tokens\": {\"<s>\": {\"ids\": [4]}}}}"

static struct hf_tokenizer *open_marked(void)
{
    struct hf_tokenizer *tokenizer = NULL;
    struct dl_error err = {0};

    assert_int_equal(
        tokenizer_open(harness_text("m.json", MARKED), "dataset", &anywhere, &tokenizer, &err), 0);
    return tokenizer;
}

static void expect_ids(struct hf_tokenizer *tokenizer, const char *text, bool specials,
                       uint64_t most, const char *want)
{
    const struct tokenizer_text whole = {
        .text = (const uint8_t *)text, .n = strlen(text), .specials = specials, .most = most};
    const uint32_t *ids;
    char got[256] = "";
    size_t n;

    assert_int_equal(tokenizer_encode(tokenizer, &whole, &ids, &n), 0);
    for (size_t i = 0; i < n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%u ", ids[i]);
    assert_string_equal(got, want);
}

TEST(test_specials_and_most)
{
    if (skipped())
        return;
    struct hf_tokenizer *tokenizer = open_marked();
    uint32_t id;

    expect_ids(tokenizer, "", true, 0, "4 4 ");
    expect_ids(tokenizer, "", false, 0, "");
    expect_ids(tokenizer, "abababa", true, 0, "4 3 2 0 4 ");
    expect_ids(tokenizer, "abababa", true, 4, "4 3 2 4 ");
    expect_ids(tokenizer, "abababa", false, 2, "3 2 ");
    expect_ids(tokenizer, "ab<s>ab", true, 4, "4 2 4 4 ");
    expect_ids(tokenizer, "ab<s>ab", true, 2, "4 4 ");
    expect_ids(tokenizer, "a?b", false, 0, "2 "); /* what is unknown is left out */
    assert_int_equal(tokenizer_specials(tokenizer), 2);
    assert_true(tokenizer_find(tokenizer, "<s>", 3, &id) && id == 4);
    assert_true(tokenizer_find(tokenizer, "abab", 4, &id) && id == 3);
    assert_false(tokenizer_find(tokenizer, "ba", 2, &id));
    const struct tokenizer_text bad = {.text = (const uint8_t *)"a\xff", .n = 2};
    const uint32_t *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(tokenizer, &bad, &ids, &n), -EILSEQ);
    tokenizer_free(tokenizer);
}

/* A file of the fuzzer's corpus, whose text is behind its JSON. */
static const char *corpus_file(const char *name)
{
    static uint8_t data[4096];
    char path[512];

    snprintf(path, sizeof path, TOKENIZER_CORPUS "/%s", name);
    FILE *from = fopen(path, "re");
    assert_non_null(from);
    size_t n = fread(data, 1, sizeof data, from);
    fclose(from);
    const uint8_t *end = memchr(data, 0xFF, n);
    assert_non_null(end);
    return harness_file(name, data, (size_t)(end - data));
}

/* Files with a small table of normal forms, and the ids that Hugging Face's library gives. */
TEST(test_unigram)
{
    static const char text[] = "hello \u00c4\u00df \u2126e\u0301 \ufb01\tA\x01x zz";
    static const struct {
        const char *name, *ids;
    } rows[] = {{"unigram", "11 15 2 0 6 1 9 5 1 8 2 0 1 0 "},
                {"unigram_bytes", "11 15 2 18 19 6 1 9 5 1 8 2 17 1 16 16 "}};

    for (size_t i = 0; !skipped() && i < ARRAY_SIZE(rows); i++) {
        struct hf_tokenizer *tokenizer = NULL;
        struct dl_error err = {0};
        assert_int_equal(
            tokenizer_open(corpus_file(rows[i].name), "dataset", &anywhere, &tokenizer, &err), 0);
        expect_ids(tokenizer, text, false, 0, rows[i].ids);
        tokenizer_free(tokenizer);
    }
}

/* Short words are merged in one way, long ones in another: with the same result. */
TEST(test_long_words)
{
    enum { MOST = 400 };
    char text[MOST + 1];

    if (skipped())
        return;
    struct hf_tokenizer *tokenizer = open_marked();
    for (unsigned length = 1; length <= MOST; length++) {
        struct tokenizer_text whole = {.text = (uint8_t *)text, .n = length};
        const uint32_t *ids;
        size_t n;
        for (unsigned i = 0; i < length; i++)
            text[i] = i % 2 ? 'b' : 'a';
        assert_int_equal(tokenizer_encode(tokenizer, &whole, &ids, &n), 0);
        assert_int_equal(n, length / 4 + length % 4 / 2 + length % 2);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(ids[i], i < length / 4 ? 3 : i + 1 == n && length % 2 ? 0 : 2);
    }
    tokenizer_free(tokenizer);
}

/* ---- leaves --------------------------------------------------------------------------------- */

#define LINES "{kind: text, paths: l.txt, format: lines, tokenizer: huggingface, model: m.json"

static const struct {
    const char *lines, *spec, *want;
} leaves[] = {
    {"ababab\n\nb\xff\n", LINES ", max_length: 2}",
     "dataset.max_length: 2 leaves no room for a text beside 2 special tokens; give more, or write "
     "special_tokens: false and leave bos and eos out"},
    {"ababab\n\nb\xff\n", LINES ", max_length: 3}",
     "{tokens:int64(3,)[4 3 4]} {tokens:int64(2,)[4 4]} (EILSEQ l.txt: line 3 is not UTF-8; "
     "convert "
     "the file with iconv, or take its bytes with tokenizer: bytes)"},
    {"abababa\n", LINES ", bos: b, eos: abab}", "{tokens:int64(7,)[1 4 3 2 0 4 3]}"},
    {"abababa\n", LINES ", bos: b, eos: abab, max_length: 5}", "{tokens:int64(5,)[1 4 3 4 3]}"},
    {"abababa\n", LINES ", bos: b, eos: abab, max_length: 5, special_tokens: false}",
     "{tokens:int64(5,)[1 3 2 0 3]}"},
    {"abababa\n", LINES ", bos: b, eos: abab, max_length: 2, special_tokens: false}",
     "dataset.max_length: 2 leaves no room for a text beside 2 special..."},
    {"abababa\n", LINES ", bos: b, eos: c}", "dataset.eos: \"c\" is not a token of ..."},
    {"abababa\n", LINES ", bos: b, eos: 5}", "dataset.eos: 5 is not a token of ..."},
    {"abababa\n", LINES ", bos: b, eos: 0, max_length: 4, special_tokens: false}",
     "{tokens:int64(4,)[1 3 2 0]}"},
    {"\n", LINES ", bos: b, eos: 0, max_length: 4, special_tokens: false}", "{tokens:int64(0,)}"},
    {"a\n", LINES ", mlm_probability: 0.5}",
     "dataset.mlm_probability: ...has none of the tokens [MASK], <mask>..."},
};

TEST(test_leaves)
{
    harness_text("m.json", MARKED);
    for (size_t i = 0; !skipped() && i < ARRAY_SIZE(leaves); i++) {
        harness_text("l.txt", leaves[i].lines);
        expect_dataset(leaves[i].spec, leaves[i].want);
    }
}

#define MASKABLE                                                                                   \
    "{\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"u\", \"vocab\": {\"u\": 0, \"a\": "    \
    "1}}, "                                                                                        \
    "\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, \"added_tokens\": [{\"id\": 2, "          \
    "\"content\": \"[MASK]\", \"special\": true}, {\"id\": 3, \"content\": \"<s>\", \"special\": " \
    "true}]}"

/* Of many tokens about as many are hidden as asked for, of these 8 in 10 by the mask; special ones
 * never are; another epoch hides others, and the same one the same. */
TEST(test_masked)
{
    enum { WORDS = 20000 };
    _cleanup_free_ char *text = malloc(2 * WORDS + 1);
    unsigned hidden = 0, masks = 0, others = 0;
    struct taken t, again, next;

    if (skipped())
        return;
    for (unsigned i = 0; i < WORDS; i++)
        memcpy(text + 2 * i, "a ", 3);
    memcpy(text, "<s>", 3);
    harness_file("w.txt", text, 2 * WORDS);
    harness_text("w.json", MASKABLE);
    struct dataset *ds = open_dataset("{kind: text, paths: w.txt, tokenizer: huggingface, model: "
                                      "w.json, mlm_probability: 0.25, bos: a}",
                                      &anywhere);
    assert_int_equal(take(ds, &(struct sample_key){.seed = 5, .epoch = 1}, 0, &t), 0);
    assert_int_equal(take(ds, &(struct sample_key){.seed = 5, .epoch = 1}, 0, &again), 0);
    assert_int_equal(take(ds, &(struct sample_key){.seed = 5, .epoch = 2}, 0, &next), 0);
    uint64_t n = t.sample.tree.nodes[1].shape[0];
    const int64_t *tokens = t.sample.data[1], *labels = t.sample.data[2];
    const bool *mask = t.sample.data[3];
    assert_int_equal(t.sample.tree.count, 4);
    assert_int_equal(t.sample.tree.nodes[3].dtype, DL_DTYPE_BOOL);
    assert_true(labels[0] == 1 && labels[1] == 3 && n > WORDS - 4);
    assert_true(!mask[0] && !mask[1] && tokens[0] == 1 && tokens[1] == 3);
    for (uint64_t i = 2; i < n; i++) {
        assert_true(labels[i] == 1 && (mask[i] || tokens[i] == 1));
        hidden += mask[i];
        masks += tokens[i] == 2;
        others += tokens[i] == 0 || tokens[i] == 3;
    }
    assert_in_range(hidden, WORDS / 4 - 300, WORDS / 4 + 300);
    /* 0.8, and 0.1 / 4 of the random ones; the other random ones but the word itself. */
    assert_in_range(masks, hidden * 79 / 100, hidden * 86 / 100);
    assert_in_range(others, hidden * 3 / 100, hidden * 7 / 100);
    assert_memory_equal(again.sample.data[1], tokens, n * sizeof *tokens);
    assert_memory_not_equal(next.sample.data[1], tokens, n * sizeof *tokens);
    drop(&t);
    drop(&again);
    drop(&next);
    dataset_close(ds);
}

#define CHAT                                                                                    \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"\\n\": 3, "   \
    "\":\": 4, "                                                                                \
    "\" \": 5, \"s\": 6}, \"merges\": [\"a b\"]}, \"added_tokens\": [{\"id\": 7, \"content\": " \
    "\"<|im_start|>\"}, {\"id\": 8, \"content\": \"<|im_end|>\"}]}"
#define TALK                                                                                      \
    "{\"text\": [{\"role\": \"ab\", \"content\": \"b\"}, {\"role\": \"assistant\", \"content\": " \
    "\"ab\"}]}\n"                                                                                 \
    "{\"text\": \"ab\"}\n{\"text\": [{\"role\": \"a\"}]}\n{\"text\": []}\n"

#define TALKS(keys) "{kind: text, paths: c.jsonl, tokenizer: huggingface, model: c.json, " keys "}"

TEST(test_chat)
{
    static const char *const rows[][2] = {
        {TALKS("format: lines, chat: chatml"),
         "c.jsonl: is read as plain lines, but dataset.chat takes messages..."},
        {TALKS("chat: chatml"),
         "{tokens:int64(16,)[7 2 3 1 8 3 7 0 6 6 6 0 3 2 8 3] loss_mask:bool(16,)[false false "
         "false false false false false false false false false false false true true false]} "
         "(c.jsonl: line 2, field \"text\": it is not a list of messages; each message is "
         "{\"role\": ..., \"content\": ...}) (c.jsonl: line 3, field \"text\": message 0 has no "
         "strings role and content; ...) {tokens:int64(0,) loss_mask:bool(0,)}"},
        {TALKS("chat: plain, max_length: 14"),
         "{tokens:int64(14,)[2 4 5 1 3 0 6 6 6 0 4 5 2 3] loss_mask:bool(14,)[false false false "
         "false false false false false false false false false true true]} ..."},
        {TALKS("chat: llama3"),
         "dataset.chat: ...has no token <|start_header_id|>, which this template..."},
        {TALKS("chat: plain, mlm_probability: 0.5"),
         "dataset.chat: messages and mlm_probability do not go together..."},
    };

    harness_text("c.json", CHAT);
    harness_text("c.jsonl", TALK);
    for (size_t i = 0; !skipped() && i < ARRAY_SIZE(rows); i++)
        expect_dataset(rows[i][0], rows[i][1]);
}

TEST(test_places)
{
    struct data_env env = {.roots = (char *[]){(char *)"/nonexistent"}, .n_roots = 1};
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    if (skipped())
        return;
    harness_text("m.json", MARKED);
    spec = read_dataset(LINES "}");
    assert_int_equal(dataset_open(&spec.dataset, &env, &ds, &err), -EACCES);
    assert_string_equal(err.path, spec.dataset.model);
    assert_error_has(&err, "outside the daemon's data_roots");
}

/* Each allocation of ours fails once; nothing leaks, and every failure is told. Those of the
 * libraries, which are not wrapped, do not fail. */
static void fail_each_allocation(const char *path)
{
    int r = -ENOMEM, k = 0;

    for (; r == -ENOMEM; k++) {
        struct hf_tokenizer *tokenizer = NULL;
        struct dl_error err = {0};
        fail_in = k;
        r = tokenizer_open(path, "dataset", &anywhere, &tokenizer, &err);
        fail_in = -1;
        assert_int_equal(err.code, -r);
        tokenizer_free(tokenizer);
    }
    assert_int_equal(r, 0);
    assert_true(k >= 8);
}

TEST(test_memory)
{
    if (skipped())
        return;
    fail_each_allocation(harness_text("m.json", MARKED));
    fail_each_allocation(corpus_file("unigram"));
}
