/* What peek knows of a batch: a pickle's class by its opcodes, elements, and how all is told. */
#include "client/dlctl/batch/contents.h"
#include "client/dlctl/batch/pickle.h"
#include "tests/lib/harness.h"

#include <math.h>
#include <stdio.h>

/* ---- pickles -------------------------------------------------------------------------------- */

#define PICKLE(text) (text), sizeof(text) - 1

static const struct pickle_case {
    const char *data;
    size_t len;
    const char *want; /* "": not to be known */
} CASES[] = {
    /* What pickle.dumps(object, 5) of CPython 3.11 writes; but for one of them without FRAME. */
    // clang-format off
    {PICKLE("\200\005\214\010geometry\224\214\005Point\224\223\224K\001]\224K\002a\206\224\201\224."), "geometry.Point"}, /* instance */
    {PICKLE("\200\005\225\037\000\000\000\000\000\000\000\214\010__main__\224\214\001S\224\223\224)\201\224}\224\214\001a\224K\001sb."), "__main__.S"}, /* state */
    {PICKLE("\200\005\214\010__main__\224\214\001N\224\223\224)\201\224K\001a."), "__main__.N"}, /* sub list */
    {PICKLE("\200\005\214\013collections\224\214\007Counter\224\223\224}\224(\214\001a\224K\001\214\001b\224K\001u\205\224R\224."), "collections.Counter"}, /* counter */
    {PICKLE("\200\005\214\010builtins\224\214\007getattr\224\223\224\214\005paint\224\214\006Colour\224\223\224\214\003RED\224\206\224R\224."), ""}, /* enum */
    {PICKLE("\200\005\214\010datetime\224\214\004date\224\223\224C\004\007\344\001\002\224\205\224R\224."), "datetime.date"}, /* date */
    {PICKLE("\200\005\217\224(K\001\220."), "set"}, /* set */
    {PICKLE("\200\005(K\001\221\224."), "frozenset"}, /* frozenset */
    {PICKLE("\200\005\214\010geometry\224\214\005Point\224\223\224K\001K\002\206\224\201\224K\003\206\224."), "tuple"}, /* tuple */
    {PICKLE("\200\005(K\001K\002K\003K\004t\224."), "tuple"}, /* tuple4 */
    {PICKLE("\200\005)."), "tuple"}, /* empty tuple */
    {PICKLE("\200\005}\224K\001\214\010geometry\224\214\005Point\224\223\224K\001K\002\206\224\201\224s."), "dict"}, /* dict */
    {PICKLE("\200\005]\224(\214\010geometry\224\214\005Point\224\223\224K\001K\002\206\224\201\224h\005e."), "list"}, /* list */
    {PICKLE("\200\005N."), "NoneType"}, /* none */
    {PICKLE("\200\005\210."), "bool"}, /* true */
    {PICKLE("\200\005K\001."), "int"}, /* int */
    {PICKLE("\200\005\212\015\000\000\000\000\000\000\000\000\000\000\000\000\020."), "int"}, /* bigint */
    {PICKLE("\200\005G\077\370\000\000\000\000\000\000."), "float"}, /* float */
    {PICKLE("\200\005\214\001x\224."), "str"}, /* str */
    {PICKLE("\200\005C\001x\224."), "bytes"}, /* bytes */
    {PICKLE("\200\005\226\001\000\000\000\000\000\000\000x\224."), "bytearray"}, /* bytearray */
    {PICKLE("\200\005\214\010builtins\224\214\007complex\224\223\224G\000\000\000\000\000\000\000\000G\077\360\000\000\000\000\000\000\206\224R\224."), "complex"}, /* complex */
    {PICKLE("\200\005\214\001n\224K\000\206\224Q."), "numpy.ndarray"}, /* numpy */
    {PICKLE("\200\005\214\001t\224K\001\206\224Q."), "torch.Tensor"}, /* torch */
    {PICKLE("\200\005\214\010builtins\224\214\005range\224\223\224K\000K\003K\001\207\224R\224."), "range"}, /* range */
    {PICKLE("\200\005\214\013collections\224\214\005deque\224\223\224)R\224K\001a."), "collections.deque"}, /* deque */
    {PICKLE("\200\005\214\010geometry\224\214\005Point\224\223\224."), ""}, /* class */
    {PICKLE("\200\005\214\010builtins\224\214\007getattr\224\223\224\214\010__main__\224\214\001S\224\223\224)\201\224}\224\214\001a\224K\001sb\214\001m\224\206\224R\224."), ""}, /* method */
    {PICKLE("\200\005\214\010geometry\224\214\005Point\224\223\224h\002K\001K\002\206\224\201\224h\004\206\224\201\224."), "geometry.Point"}, /* shared */
    // clang-format on
    /* Older words for the same: two lines, and a dict of all above the mark. */
    {PICKLE("\200\002cgeometry\nPoint\nK\001\205\201."), "geometry.Point"},
    {PICKLE("(d."), "dict"},
    {PICKLE("(l."), "list"},
    {PICKLE("K\001(K\002K\0031."), "int"},
    {PICKLE("K\001N0."), "int"},
    /* Names that are none, or not fit to be seen. */
    {PICKLE("\214\001a\214\000\223)\201."), ""},
    {PICKLE("\214\001a\214\003\033[m\223)\201."), ""},
    {PICKLE("\214\001a\214\002b\n\223)\201."), ""},
    {PICKLE("\214\001a\214\003b\000c\223)\201."), ""},
    {PICKLE("\214\003a\000c\214\001b\223)\201."), ""},
    {PICKLE("\214\001a\214\002\302\205\223)\201."), ""},
    {PICKLE("\214\001a\214\001\377\223)\201."), ""},
    {PICKLE("\214\001a\214\002\303\244\223)\201."), "a.\303\244"},
    {PICKLE("\214\001aK\001\223)\201."), ""},
    {PICKLE("K\001)\201."), ""},
    {PICKLE("\214\001x\205Q."), ""},
    {PICKLE("\214\002tt\205Q."), ""},
    {PICKLE("\214\001tQ."), ""},
    /* Nothing, or nothing on the stack. */
    {PICKLE(""), ""},
    {PICKLE("."), ""},
    {PICKLE("(."), ""},
    {PICKLE("K\001"), ""},
    {PICKLE("0."), ""},
    {PICKLE("1."), ""},
    {PICKLE("t."), ""},
    {PICKLE("K\001t."), ""},
    {PICKLE("R."), ""},
    {PICKLE("N(R."), ""},
    {PICKLE("(N\205\206."), ""},
    {PICKLE("\224."), ""},
    {PICKLE("(\224."), ""},
    {PICKLE("h\000."), ""},
    {PICKLE("N\224h\001."), ""},
    {PICKLE("N\224j\377\377\377\377."), ""},
    {PICKLE("a."), ""},
    {PICKLE("Na."), ""},
    {PICKLE("(Na."), ""},
    {PICKLE("e."), ""},
    {PICKLE("(e."), ""},
    /* Arguments that lead out of it. */
    {PICKLE("\225\000\000."), ""},
    {PICKLE("K"), ""},
    {PICKLE("\214\377abc."), ""},
    {PICKLE("X\377\377\377\377a."), ""},
    {PICKLE("\215\377\377\377\377\377\377\377\377a."), ""},
    {PICKLE("\213\377\377\377\177a."), ""},
    {PICKLE("ca\nb"), ""},
    {PICKLE("ca"), ""},
    /* No opcodes, or of those protocols that have their arguments in decimal. */
    {PICKLE("\377."), ""},
    {PICKLE("I1\n."), ""},
    {PICKLE("N\000."), ""},
};

/* A copy without room behind it, where a sanitizer sees the first byte too many. */
static bool class_of(const char *data, size_t len, char ret[PICKLE_CLASS])
{
    char *copy = malloc(len ? len : 1);
    bool known;

    assert_non_null(copy);
    memcpy(copy, data, len);
    known = pickle_class(copy, len, ret);
    free(copy);
    return known;
}

static void test_pickle_class(void **state)
{
    char got[PICKLE_CLASS];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
        bool known = class_of(CASES[i].data, CASES[i].len, got);

        if (strcmp(got, CASES[i].want) != 0)
            fail_msg("case %zu: '%s', wanted '%s'", i, got, CASES[i].want);
        assert_int_equal(known, *CASES[i].want != '\0');
    }
}

static void test_pickle_cut_off(void **state)
{
    char got[PICKLE_CLASS];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(CASES); i++)
        for (size_t len = 0; len < CASES[i].len; len++)
            if (class_of(CASES[i].data, len, got))
                assert_true(len > 0 && CASES[i].data[len - 1] == '.'); /* STOP stood there, too */
}

/* `n` times one opcode, then `tail`. */
static bool class_of_many(uint8_t opcode, size_t n, const char *tail, char ret[PICKLE_CLASS])
{
    size_t len = n + strlen(tail);
    char *data = malloc(len);
    bool known;

    assert_non_null(data);
    memset(data, opcode, n);
    memcpy(data + n, tail, len - n);
    known = pickle_class(data, len, ret);
    free(data);
    return known;
}

static void test_pickle_is_bounded(void **state)
{
    char got[PICKLE_CLASS];

    (void)state;
    assert_true(class_of_many('N', PICKLE_DEPTH, ".", got)); /* as deep as it goes */
    assert_false(class_of_many('N', PICKLE_DEPTH + 1, ".", got));
    assert_false(class_of_many('(', 10 * PICKLE_DEPTH, ".", got));
    /* A memo can be longer: what is far back in it is unknown, and no harm. */
    assert_false(class_of_many(0x94, 3 * PICKLE_DEPTH, ".", got));
}

static void test_pickle_memo(void **state)
{
    enum { N = PICKLE_DEPTH + 10 };
    char *data = malloc(N + 8), got[PICKLE_CLASS];

    (void)state;
    assert_non_null(data);
    data[0] = 'N';
    memset(data + 1, 0x94, N);
    memcpy(data + 1 + N, "j\377\377\000\000.", 6); /* the last that is kept */
    assert_true(pickle_class(data, N + 7, got));
    assert_string_equal(got, "NoneType");
    memcpy(data + 1 + N, "j\000\000\001\000.", 6); /* the first that is not */
    assert_false(pickle_class(data, N + 7, got));
    memcpy(data + 1 + N, "j\012\000\001\0000.", 7); /* none */
    assert_false(pickle_class(data, N + 8, got));
    free(data);
}

static void test_pickle_long_names(void **state)
{
    char data[2 * PICKLE_CLASS], got[PICKLE_CLASS];

    (void)state;
    for (size_t len = PICKLE_CLASS - 4; len < PICKLE_CLASS; len++) {
        size_t at = 0;

        memcpy(data, "\214\001m\214", 4);
        at = 4;
        data[at++] = (char)len;
        memset(data + at, 'x', len);
        at += len;
        memcpy(data + at, "\223)\201.", 4);
        assert_int_equal(class_of(data, at + 4, got), len + 3 <= PICKLE_CLASS);
        assert_int_equal(strlen(got), len + 3 <= PICKLE_CLASS ? len + 2 : 0);
    }
}

/* ---- elements ------------------------------------------------------------------------------- */

static void assert_element(uint32_t dtype, const void *data, const char *text, const char *json)
{
    struct element e;
    char got[ELEMENT_TEXT], moved[33];
    json_t *value;
    char *dumped;

    memcpy(moved + 1, data, 32); /* unaligned */
    assert_true(element_read(dtype, moved + 1, 1, &e));
    element_text(&e, got);
    assert_string_equal(got, text);
    value = element_json(&e);
    dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    assert_string_equal(dumped, json);
    free(dumped);
    json_decref(value);
}

#define ELEMENT(dtype, type, value, text, json)     \
    do {                                            \
        union {                                     \
            type list[32 / sizeof(type)];           \
            char bytes[32];                         \
        } u = {.list = {0, value}};                 \
        assert_element(dtype, u.bytes, text, json); \
    } while (0)

static void test_elements(void **state)
{
    struct element e;

    (void)state;
    ELEMENT(DL_DTYPE_BOOL, uint8_t, 2, "true", "true");
    ELEMENT(DL_DTYPE_BOOL, uint8_t, 0, "false", "false");
    ELEMENT(DL_DTYPE_UINT8, uint8_t, 255, "255", "255");
    ELEMENT(DL_DTYPE_INT8, int8_t, -128, "-128", "-128");
    ELEMENT(DL_DTYPE_UINT16, uint16_t, 65535, "65535", "65535");
    ELEMENT(DL_DTYPE_INT16, int16_t, -2, "-2", "-2");
    ELEMENT(DL_DTYPE_UINT32, uint32_t, UINT32_MAX, "4294967295", "4294967295");
    ELEMENT(DL_DTYPE_INT32, int32_t, INT32_MIN, "-2147483648", "-2147483648");
    ELEMENT(DL_DTYPE_UINT64, uint64_t, UINT64_MAX, "18446744073709551615",
            "\"18446744073709551615\"");
    ELEMENT(DL_DTYPE_INT64, int64_t, -1, "-1", "-1");
    ELEMENT(DL_DTYPE_FLOAT16, uint16_t, 0x3e00, "1.5", "1.5");
    ELEMENT(DL_DTYPE_BFLOAT16, uint16_t, 0xbfc0, "-1.5", "-1.5");
    ELEMENT(DL_DTYPE_FLOAT32, float, 0.25F, "0.25", "0.25");
    ELEMENT(DL_DTYPE_FLOAT64, double, -1e300, "-1e+300", "-1e300");
    ELEMENT(DL_DTYPE_FLOAT64, double, INFINITY, "inf", "null");
    ELEMENT(DL_DTYPE_FLOAT64, double, NAN, "nan", "null");
    assert_element(DL_DTYPE_COMPLEX64, (const float[8]){0, 0, 1.5F, -2}, "1.5-2j", "[1.5,-2.0]");
    assert_element(DL_DTYPE_COMPLEX128, (const double[4]){0, 0, 1, 2}, "1+2j", "[1.0,2.0]");
    assert_false(element_read(0, "", 0, &e));
    assert_false(element_read(99, "", 0, &e));
}

/* ---- telling -------------------------------------------------------------------------------- */

static struct content *add(struct contents *c, const char *path, enum dl_node_kind kind,
                           uint32_t ndim, uint64_t first, uint64_t second, uint64_t nbytes)
{
    struct content *node = contents_add(c, path, kind);

    assert_non_null(node);
    node->ndim = ndim;
    node->shape[0] = first;
    node->shape[1] = second;
    node->nbytes = nbytes;
    return node;
}

static void put_texts(struct content *node, const char *const *texts, size_t n)
{
    node->texts = calloc(n, sizeof *node->texts);
    assert_non_null(node->texts);
    for (; node->n_values < n; node->n_values++) {
        struct text_start *start = &node->texts[node->n_values];

        start->nbytes = strlen(texts[node->n_values]);
        start->kept = (uint32_t)min_u64(start->nbytes, CONTENTS_TEXT);
        memcpy(start->bytes, texts[node->n_values], start->kept);
    }
}

static void fill(struct contents *c, const char *const *strings, size_t n_strings)
{
    static const uint64_t indices[] = {17, 3, UINT64_MAX};
    struct content *node;

    *c = (struct contents){.seed = 7,
                           .epoch = 2,
                           .step = 5,
                           .rank = 1,
                           .world = 4,
                           .samples = 3,
                           .nbytes = 2048,
                           .name = strdup("digits")};
    c->indices = malloc(sizeof indices);
    assert_true(c->name && c->indices);
    memcpy(c->indices, indices, sizeof indices);
    node = add(c, "x", DL_NODE_TENSOR, 2, 3, 2, 6);
    node->dtype = DL_UINT8;
    node->has_stats = true;
    node->stats = (struct stats){0, 9, 4.5};
    node->elements = calloc(2, sizeof *node->elements);
    assert_non_null(node->elements);
    for (; node->n_values < 2; node->n_values++)
        element_read(DL_UINT8, "\011\004", node->n_values, &node->elements[node->n_values]);
    put_texts(add(c, "s", DL_NODE_STRING, 1, 3, 0, 40), strings, n_strings);
    put_texts(add(c, "raw", DL_NODE_BYTES, 0, 0, 0, 20),
              (const char *const[]){"\377\001abcdefghijklmnopqr"}, 1);
    add(c, "none", DL_NODE_DICT, 0, 0, 0, 0);
    node = add(c, "meta", DL_NODE_OBJECT, 0, 0, 0, 312);
    node->tensors = 1;
    strcpy(node->type, "geometry.Point");
    node = add(c, "meta.1", DL_NODE_TENSOR, 0, 0, 0, 8);
    node->dtype = DL_COMPLEX64;
    add(c, "what\033", DL_NODE_OBJECT, 0, 0, 0, 1);
}

static void test_text(void **state)
{
    const char *strings[] = {"a\033[1m", "b"};
    struct contents c;
    char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);

    (void)state;
    assert_non_null(file);
    fill(&c, strings, ARRAY_SIZE(strings));
    c.fed = true;
    contents_print(file, &c, 2);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(
        text, "loader    digits, seed 7\n"
              "batch     epoch 2, step 5, rank 1 of 4: 3 samples, 2.0 KiB\n"
              "order     is the client's; dlctl chose these samples itself\n"
              "indices   17 3 ...\n"
              "tree      x        uint8      [3, 2]  6 B  min 0  max 9  mean 4.5\n"
              "          9 4 ...\n"
              "          s        string     [3]  40 B\n"
              "          \"a\\x1b[1m\", \"b\", ...\n"
              "          raw      bytes      []  20 B\n"
              "          20 bytes ff 01 61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e ...\n"
              "          none     dict       empty\n"
              "          meta     object: pickled, 312 bytes, of geometry.Point, with 1 tensor\n"
              "          meta.1   complex64  []  8 B\n"
              "          what?    object: pickled, 1 bytes\n");
    free(text);
    contents_deinit(&c);
}

static void test_json(void **state)
{
    /* One that is no UTF-8, and one that is cut off inside its last character. */
    char cut[CONTENTS_TEXT + 8];
    const char *strings[] = {"a\377\"", cut};
    struct contents c;
    json_t *json, *tree, *values;
    char *text;

    (void)state;
    memset(cut, 'y', sizeof cut - 1);
    cut[sizeof cut - 1] = '\0';
    memcpy(cut + CONTENTS_TEXT - 2, "\342\202\254", 3);
    fill(&c, strings, ARRAY_SIZE(strings));
    json = contents_json(&c);
    assert_non_null(json);
    tree = json_object_get(json, "tree");
    values = json_object_get(json_array_get(tree, 1), "values");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(values, 1), "bytes")),
                     CONTENTS_TEXT + 7);
    assert_int_equal(json_string_length(json_object_get(json_array_get(values, 1), "text")),
                     CONTENTS_TEXT - 2);
    json_array_remove(values, 1);
    text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(15));
    assert_string_equal(
        text, "{\"name\":\"digits\",\"seed\":7,\"epoch\":2,\"step\":5,\"rank\":1,\"world\":4,"
              "\"fed\":false,\"indices\":[17,3,\"18446744073709551615\"],\"bytes\":2048,\"tree\":["
              "{\"path\":\"x\",\"kind\":\"tensor\",\"shape\":[3,2],\"bytes\":6,\"values\":[9,4],"
              "\"dtype\":\"uint8\",\"min\":0.0,\"max\":9.0,\"mean\":4.5},"
              "{\"path\":\"s\",\"kind\":\"string\",\"shape\":[3],\"bytes\":40,\"values\":["
              "{\"bytes\":3,\"text\":\"a?\\\"\"}]},"
              "{\"path\":\"raw\",\"kind\":\"bytes\",\"shape\":[],\"bytes\":20,\"values\":["
              "{\"bytes\":20,\"hex\":\"ff016162636465666768696a6b6c6d6e6f707172\"}]},"
              "{\"path\":\"none\",\"kind\":\"dict\"},"
              "{\"path\":\"meta\",\"kind\":\"object\",\"bytes\":312,\"tensors\":1,"
              "\"class\":\"geometry.Point\"},"
              "{\"path\":\"meta.1\",\"kind\":\"tensor\",\"shape\":[],\"bytes\":8,\"values\":[],"
              "\"dtype\":\"complex64\",\"min\":null,\"max\":null,\"mean\":null},"
              "{\"path\":\"what\\u001B\",\"kind\":\"object\",\"bytes\":1,\"tensors\":0,"
              "\"class\":null}]}");
    free(text);
    json_decref(json);
    contents_deinit(&c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_pickle_class),
    cmocka_unit_test(test_pickle_cut_off),
    cmocka_unit_test(test_pickle_is_bounded),
    cmocka_unit_test(test_pickle_memo),
    cmocka_unit_test(test_pickle_long_names),
    cmocka_unit_test(test_elements),
    cmocka_unit_test(test_text),
    cmocka_unit_test(test_json),
};

TEST_MAIN(tests)
