/* Values as JSON, by table; and back, as a reader of YAML takes them, of which JSON is a part. */
#include "tests/lib/harness.h"

#include "proto/shared/value_json.h"
#include "proto/yaml.h"

#include <math.h>

static void expect_json(const struct value *v, const char *want)
{
    struct dl_buffer out = {0};

    assert_int_equal(value_json_write(v, &out), 0);
    assert_int_equal(buffer_append(&out, "", 1), 0);
    assert_string_equal((const char *)out.data, want);
    buffer_deinit(&out);
}

TEST(test_by_table)
{
    static const struct {
        const char *yaml, *json;
    } rows[] = {
        {"null", "null"},
        {"true", "true"},
        {"false", "false"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"9223372036854775807", "9223372036854775807"},
        {"18446744073709551615", "\"18446744073709551615\""},
        {"0.1", "0.1"},
        {"-1.5e+300", "-1.5e+300"},
        {"''", "\"\""},
        {"[]", "[]"},
        {"{}", "{}"},
        {"[1, [], {a: b}]", "[1,[],{\"a\":\"b\"}]"},
        {"{a: 1, 'b\"': [null, false]}", "{\"a\":1,\"b\\\"\":[null,false]}"},
        {"\"a\\\"b\\\\c\\nd\\te\\x01\\x7f\"", "\"a\\\"b\\\\c\\nd\\u0009e\\u0001\\u007f\""},
        {"\"\\u00e9 \\U0001F600 </script>\"", "\"\xc3\xa9 \xf0\x9f\x98\x80 </script>\""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct value v = {0}, again = {0};
        struct dl_error err = {0};

        assert_int_equal(yaml_parse(rows[i].yaml, strlen(rows[i].yaml), "", &v, &err), 0);
        expect_json(&v, rows[i].json);
        assert_int_equal(yaml_parse(rows[i].json, strlen(rows[i].json), "", &again, &err), 0);
        assert_true(v.type == VALUE_UINT || value_equal(&v, &again));
        value_deinit(&v);
        value_deinit(&again);
    }
}

/* What no parser makes. */
TEST(test_what_has_no_json)
{
    char bad[] = "a\xff\xc3\xa9";
    const struct value text = {.type = VALUE_STRING, .string = bad};

    expect_json(&(struct value){.type = VALUE_FLOAT, .number = NAN}, "null");
    expect_json(&(struct value){.type = VALUE_FLOAT, .number = -INFINITY}, "null");
    expect_json(&(struct value){.type = VALUE_UINT, .uinteger = 7}, "7");
    expect_json(&text, "\"a???\"");
}
