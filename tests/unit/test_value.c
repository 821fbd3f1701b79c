/* Value trees: builders, equality, msgpack there and back, and everything that unpacking refuses.
 */
#include "proto/value.h"
#include "tests/lib/harness.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

static void check(int r)
{
    assert_int_equal(r, 0);
}

TEST(test_builders)
{
    _cleanup_(value_deinit) struct value map = {0};
    struct value *child, *item;

    check(value_set_int(&map, "int", -5));
    check(value_set_uint(&map, "small", INT64_MAX));
    check(value_set_uint(&map, "large", UINT64_MAX));
    check(value_set_bool(&map, "bool", true));
    check(value_set_float(&map, "float", 0.5));
    check(value_set_string(&map, "string", "text"));
    check(value_set(&map, "null", &child));
    check(value_set(&map, "list", &child));
    for (int i = 0; i < 9; i++) {
        check(value_push(child, &item));
        item->type = VALUE_INT;
        item->integer = i;
    }
    assert_int_equal(map.type, VALUE_MAP);
    assert_int_equal(map.count, 8);
    assert_int_equal(value_get(&map, "int")->integer, -5);
    assert_int_equal(value_get(&map, "small")->type, VALUE_INT);
    assert_int_equal(value_get(&map, "large")->type, VALUE_UINT);
    assert_true(value_get(&map, "large")->uinteger == UINT64_MAX);
    assert_true(value_get(&map, "bool")->boolean);
    assert_true(value_get(&map, "float")->number == 0.5);
    assert_string_equal(value_get(&map, "string")->string, "text");
    assert_int_equal(value_get(&map, "null")->type, VALUE_NULL);
    assert_int_equal(value_get(&map, "list")->count, 9);
    assert_int_equal(value_get(&map, "list")->items[8].integer, 8);
    assert_null(value_get(&map, "absent"));
    assert_null(value_get(value_get(&map, "list"), "int"));
    assert_null(value_get(value_get(&map, "string"), "int"));

    /* A key set again keeps its place and loses what it held. */
    check(value_set_string(&map, "list", "replaced"));
    assert_int_equal(map.count, 8);
    assert_string_equal(map.items[7].string, "replaced");
    assert_int_equal(map.items[7].count, 0);
    assert_string_equal(map.items[7].key, "list");
    check(value_make_string(&map.items[7], "again"));
    assert_string_equal(map.items[7].key, "list");
}

TEST(test_move_and_copy)
{
    _cleanup_(value_deinit) struct value from = {0};
    _cleanup_(value_deinit) struct value to = {0};
    _cleanup_(value_deinit) struct value copy = {0};
    struct value *child, *item;

    check(value_set(&from, "a", &child));
    check(value_push(child, &item));
    check(value_make_string(item, "x"));
    check(value_set_float(&from, "b", 1.5));
    check(value_copy(&from, &copy));
    assert_true(value_equal(&from, &copy));
    check(value_set_float(&copy, "b", 2.5));
    assert_false(value_equal(&from, &copy));

    /* The place in a map keeps its key, whatever comes into it. */
    check(value_set(&to, "here", &child));
    check(value_copy(&from, child));
    assert_true(value_equal(value_get(&to, "here"), &from));
    value_move(&from, &to.items[0]);
    assert_int_equal(from.type, VALUE_NULL);
    assert_null(from.items);
    assert_string_equal(to.items[0].key, "here");
    assert_int_equal(to.items[0].count, 2);
}

static struct value number(enum value_type type, int64_t i)
{
    return (struct value){.type = type,
                          .integer = type == VALUE_INT ? i : 0,
                          .uinteger = type == VALUE_UINT ? (uint64_t)i : 0,
                          .boolean = type == VALUE_BOOL && i,
                          .number = type == VALUE_FLOAT ? (double)i : 0};
}

TEST(test_equality)
{
    const struct value all[] = {
        number(VALUE_NULL, 0),
        number(VALUE_BOOL, 0),
        number(VALUE_BOOL, 1),
        number(VALUE_INT, 0),
        number(VALUE_INT, 1),
        number(VALUE_UINT, -1),
        number(VALUE_UINT, -2),
        number(VALUE_FLOAT, 0),
        number(VALUE_FLOAT, 1),
        {.type = VALUE_ARRAY},
        {.type = VALUE_MAP},
        {.type = VALUE_STRING, .string = (char[]){""}},
        {.type = VALUE_STRING, .string = (char[]){"a"}},
        {.type = VALUE_FLOAT, .number = NAN},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        for (size_t j = 0; j < ARRAY_SIZE(all); j++)
            assert_int_equal(value_equal(&all[i], &all[j]), i == j);

    _cleanup_(value_deinit) struct value a = {0};
    _cleanup_(value_deinit) struct value b = {0};
    check(value_set_int(&a, "x", 1));
    check(value_set_int(&a, "y", 2));
    check(value_set_int(&b, "y", 2));
    assert_false(value_equal(&a, &b));
    check(value_set_int(&b, "x", 1));
    assert_true(value_equal(&a, &b));
    check(value_set_int(&b, "x", 3));
    assert_false(value_equal(&a, &b));
    check(value_set_int(&a, "z", 3));
    check(value_set_int(&b, "w", 3));
    assert_false(value_equal(&a, &b));
}

TEST(test_type_names)
{
    static const char *const names[] = {
        [VALUE_NULL] = "null",       [VALUE_BOOL] = "a boolean", [VALUE_INT] = "an integer",
        [VALUE_UINT] = "an integer", [VALUE_FLOAT] = "a float",  [VALUE_STRING] = "a string",
        [VALUE_ARRAY] = "a list",    [VALUE_MAP] = "a mapping",
    };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_string_equal(value_type_name(&(struct value){.type = (enum value_type)i}), names[i]);
}

TEST(test_duplicate)
{
    _cleanup_(value_deinit) struct value map = {.type = VALUE_MAP};
    const struct value *twice = &map;
    struct value *child;

    check(value_duplicate(&map, &twice));
    assert_null(twice);
    for (int i = 0; i < 1000; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i * 7 % 1000);
        check(value_append(&map, key, strlen(key), &child));
    }
    check(value_duplicate(&map, &twice));
    assert_null(twice);
    check(value_append(&map, "k5xx", 2, &child)); /* k5, the first again */
    check(value_append(&map, "k3", 2, &child));
    check(value_append(&map, "k5", 2, &child));
    check(value_duplicate(&map, &twice));
    assert_ptr_equal(twice, &map.items[1000]);
}

/* ---- msgpack ---- */

static void round_trip(const struct value *v)
{
    _cleanup_(buffer_deinit) struct dl_buffer buf = {0};
    _cleanup_(buffer_deinit) struct dl_buffer again = {0};
    _cleanup_(value_deinit) struct value back = {0};
    struct dl_error err = {0};

    check(value_pack(v, &buf));
    check(value_scan(buf.data, buf.len, NULL));
    check(value_unpack(buf.data, buf.len, &back, &err));
    assert_true(value_equal(v, &back));
    check(value_pack(&back, &again));
    assert_int_equal(buf.len, again.len);
    assert_memory_equal(buf.data, again.data, buf.len);
}

TEST(test_round_trip_numbers)
{
    for (int bit = 0; bit < 64; bit++)
        for (int d = -1; d <= 1; d++) {
            _cleanup_(value_deinit) struct value map = {0};
            uint64_t n = (UINT64_C(1) << bit) + (uint64_t)d;
            check(value_set_uint(&map, "u", n));
            check(value_set_int(&map, "i", (int64_t)n));
            check(value_set_int(&map, "n", (int64_t)(0 - n)));
            check(value_set_float(&map, "f", (double)n / 3));
            round_trip(&map);
        }
    static const double doubles[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 5e-324, 1.7e308, 0.1};
    for (size_t i = 0; i < ARRAY_SIZE(doubles); i++)
        round_trip(&(struct value){.type = VALUE_FLOAT, .number = doubles[i]});
}

/* A small generator of its own, so that a failure comes back at each run. */
static uint32_t next_random(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static void fill_randomly(struct value *v, uint32_t *seed, uint32_t depth)
{
    static const char *const texts[] = {
        "",
        "a",
        "batch.size",
        "\xC3\xA9t\xC3\xA9",
        "\xF0\x9F\x98\x80",
        "a text that is longer than the thirty-one bytes of a fixstr"};
    uint32_t kind = next_random(seed) % (depth < 6 ? 8 : 6);
    uint32_t n = next_random(seed) % 20;
    struct value *child;
    char key[16];

    v->type = (enum value_type)kind;
    v->boolean = kind == VALUE_BOOL && n % 2;
    v->integer = kind == VALUE_INT ? (int64_t)((uint64_t)next_random(seed) << n * 2) : 0;
    v->uinteger = kind == VALUE_UINT ? UINT64_MAX - next_random(seed) : 0;
    v->number = kind == VALUE_FLOAT ? next_random(seed) / 7.0 : 0;
    if (kind == VALUE_STRING)
        check(value_make_string(v, texts[n % ARRAY_SIZE(texts)]));
    for (uint32_t i = 0; i < n && (kind == VALUE_ARRAY || kind == VALUE_MAP); i++) {
        snprintf(key, sizeof key, "%u", i);
        check(kind == VALUE_MAP ? value_set(v, key, &child) : value_push(v, &child));
        fill_randomly(child, seed, depth + 1);
    }
}

TEST(test_round_trip_random)
{
    uint32_t seed = 2463534242;

    for (int i = 0; i < 300; i++) {
        _cleanup_(value_deinit) struct value v = {0};
        _cleanup_(value_deinit) struct value copy = {0};
        fill_randomly(&v, &seed, 0);
        round_trip(&v);
        check(value_copy(&v, &copy));
        assert_true(value_equal(&v, &copy));
    }
}

/* A tree of `depth` nested lists, the innermost empty. */
static void nest(struct value *v, uint32_t depth)
{
    v->type = VALUE_ARRAY;
    for (uint32_t i = 1; i < depth; i++) {
        check(value_push(v, &v));
        v->type = VALUE_ARRAY;
    }
}

TEST(test_pack_limits)
{
    _cleanup_(buffer_deinit) struct dl_buffer buf = {0};
    _cleanup_(value_deinit) struct value deep = {0};
    _cleanup_(value_deinit) struct value deeper = {0};
    _cleanup_(value_deinit) struct value wide = {0};
    struct value *child;

    nest(&deep, (uint32_t)DL_MAX_VALUE_DEPTH);
    round_trip(&deep);
    check(value_pack(&deep, &buf));
    size_t before = buf.len;
    nest(&deeper, (uint32_t)DL_MAX_VALUE_DEPTH + 1);
    assert_int_equal(value_pack(&deeper, &buf), -EMSGSIZE);
    assert_int_equal(buf.len, before);

    for (uint64_t i = 1; i < DL_MAX_VALUE_NODES; i++)
        check(value_push(&wide, &child));
    round_trip(&wide);
    check(value_push(&wide, &child));
    assert_int_equal(value_pack(&wide, &buf), -EMSGSIZE);
    assert_int_equal(buf.len, before);
}

struct bytes_case {
    const char *name;
    const char *data;
    size_t len;
    int result;
    const char *message;
};
#define BYTES(s) s, sizeof(s) - 1

static const struct bytes_case refused[] = {
    {"nothing", BYTES(""), -EBADMSG, "the bytes are not exactly one msgpack value"},
    {"two values", BYTES("\x01\x02"), -EBADMSG, "the bytes are not exactly one msgpack value"},
    {"cut off", BYTES("\x92\x01"), -EBADMSG, "the bytes are not exactly one msgpack value"},
    {"unused byte", BYTES("\xC1"), -EBADMSG, "the bytes are not exactly one msgpack value"},
    {"bin", BYTES("\xC4\x01x"), -EBADMSG, "a value holds bytes (msgpack bin); write text"},
    {"fixext", BYTES("\xD4\x01x"), -EBADMSG, "a value holds a msgpack extension type"},
    {"ext in a list", BYTES("\x91\xC7\x01\x05x"), -EBADMSG,
     "a value holds a msgpack extension type"},
    {"timestamp", BYTES("\xD6\xFF\x00\x00\x00\x00"), -EBADMSG,
     "a value holds a msgpack extension type"},
    {"integer key", BYTES("\x81\x01\x02"), -EBADMSG, "a map has a key that is not a string"},
    {"null key", BYTES("\x81\xC0\x02"), -EBADMSG, "a map has a key that is not a string"},
    {"map as key", BYTES("\x81\x80\x02"), -EBADMSG, "a map has a key that is not a string"},
    {"bin key", BYTES("\x81\xC4\x01x\x02"), -EBADMSG, "a map has a key that is not a string"},
    {"key twice", BYTES("\x82\xA1x\x01\xA1x\x02"), -EBADMSG, "a map has the key \"x\" twice"},
    {"key twice, below", BYTES("\x91\x82\xA0\x01\xA0\x02"), -EBADMSG,
     "a map has the key \"\" twice"},
    {"NUL in a string", BYTES("\xA3x\0y"), -EBADMSG, "a string is not UTF-8 text without NUL"},
    {"NUL in a key", BYTES("\x81\xA3x\0y\x01"), -EBADMSG, "a key is not UTF-8 text without NUL"},
    {"not UTF-8", BYTES("\xA2\xFFx"), -EBADMSG, "a string is not UTF-8 text without NUL"},
    {"surrogate", BYTES("\xA3\xED\xA0\x80"), -EBADMSG, "a string is not UTF-8 text without NUL"},
    {"overlong", BYTES("\xA2\xC0\x80"), -EBADMSG, "a string is not UTF-8 text without NUL"},
    {"deep", BYTES("\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x01"),
     -EMSGSIZE, "a value has more than 65536 elements or 16 levels of nesting"},
    {"an array that claims 4 billion", BYTES("\xDD\xFF\x00\x00\x00"), -EMSGSIZE,
     "a value has more than 65536 elements or 16 levels of nesting"},
    {"a map that claims 268 million", BYTES("\xDF\x0F\xFF\xFF\xFF"), -EMSGSIZE,
     "a value has more than 65536 elements or 16 levels of nesting"},
    {"a string that claims 4 GB", BYTES("\xDB\xFF\xFF\xFF\xFFx"), -EBADMSG,
     "the bytes are not exactly one msgpack value"},
};

TEST(test_refused)
{
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        const struct bytes_case *c = &refused[i];
        struct value v = {.type = VALUE_BOOL, .line = 77};
        struct dl_error err = {0};
        /* On the heap, so that a read past the end is seen. */
        _cleanup_free_ uint8_t *data = malloc(c->len ? c->len : 1);
        assert_non_null(data);
        memcpy(data, c->data, c->len);

        int r = value_unpack(data, c->len, &v, &err);
        if (r != c->result || strcmp(err.message, c->message) != 0)
            fail_msg("%s: %d, \"%s\"", c->name, r, err.message);
        assert_int_equal(err.code, -r);
        assert_true(v.type == VALUE_BOOL && v.line == 77);
        assert_int_equal(value_unpack(data, c->len, &v, NULL), c->result);
    }
}

/* Forms that msgpack has several of: all are read, the shortest is written. */
TEST(test_forms)
{
    static const struct {
        const char *data;
        size_t len;
        const char *canonical;
        size_t canonical_len;
    } forms[] = {
        {BYTES("\xCF\0\0\0\0\0\0\0\x01"), BYTES("\x01")},
        {BYTES("\xD3\0\0\0\0\0\0\0\x01"), BYTES("\x01")},
        {BYTES("\xD3\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"), BYTES("\xFF")},
        {BYTES("\xDB\0\0\0\x01x"), BYTES("\xA1x")},
        {BYTES("\xDD\0\0\0\0"), BYTES("\x90")},
        {BYTES("\xDF\0\0\0\0"), BYTES("\x80")},
        {BYTES("\xCA\x3F\x80\0\0"), BYTES("\xCB\x3F\xF0\0\0\0\0\0\0")},
    };
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        _cleanup_(value_deinit) struct value v = {0};
        _cleanup_(buffer_deinit) struct dl_buffer buf = {0};
        check(value_unpack((const uint8_t *)forms[i].data, forms[i].len, &v, NULL));
        check(value_pack(&v, &buf));
        assert_int_equal(buf.len, forms[i].canonical_len);
        assert_memory_equal(buf.data, forms[i].canonical, buf.len);
    }
}

TEST(test_truncated_everywhere)
{
    _cleanup_(value_deinit) struct value v = {0};
    _cleanup_(buffer_deinit) struct dl_buffer buf = {0};
    uint32_t seed = 7;

    v.type = VALUE_MAP;
    for (int i = 0; i < 12; i++) {
        struct value *child;
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        check(value_set(&v, key, &child));
        fill_randomly(child, &seed, 4);
    }
    check(value_pack(&v, &buf));
    for (size_t len = 0; len < buf.len; len++) {
        _cleanup_free_ uint8_t *cut = malloc(len ? len : 1);
        struct value back = {0};
        assert_non_null(cut);
        memcpy(cut, buf.data, len);
        assert_int_equal(value_unpack(cut, len, &back, NULL), -EBADMSG);
        assert_null(back.items);
    }
}

/* 32,767 keys in one map must not cost 32,767² comparisons. */
TEST(test_many_keys)
{
    _cleanup_(value_deinit) struct value v = {.type = VALUE_MAP};
    struct value *child;

    for (int i = 0; i < 32767; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        check(value_append(&v, key, strlen(key), &child));
    }
    round_trip(&v);
}
