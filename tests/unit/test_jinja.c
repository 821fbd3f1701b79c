/*
 * Templates by table: what they render, and what is refused. tests/python/test_chat_templates.py
 * holds them beside jinja2.
 */
#include "daemon/data/decode/jinja/jinja.h"
#include "tests/lib/harness.h"

#include <errno.h>

static const char variables[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \" hi \"}, {\"role\": \"assistant\", "
    "\"content\": \"yo\"}], \"n\": 3, \"x\": 2.5, \"t\": true, \"z\": null, \"s\": \"a,b,c\", "
    "\"u\": \"\\u00e4\\u65e5b\", \"d\": {\"b\": 1, \"A\": [1, \"it's\"]}, \"l\": [3, 1, 2], "
    "\"add_generation_prompt\": false}";

static const struct {
    const char *template;
    const char *text;
} renders[] = {
    {"", ""},
    {"a\n", "a"},
    {"a\r\nb\rc\n\n", "a\nb\nc\n"},
    /* blanks around tags: trim_blocks, lstrip_blocks, signs */
    {"  {% if t %}\n  x\n  {% endif %}\ny", "  x\ny"},
    {"a {%- if t -%} b {%- endif %} c", "ab c"},
    {"a  {%+ if t %}b{% endif +%}\nc", "a  b\nc"},
    {"x {# of course #}\ny{#- #} z", "x y z"},
    {"  {{ n }}\n  {{- n -}}  \n z", "  33z"},
    {"{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}", "}}1"},
    /* values */
    {"{{ t }} {{ z }} {{ no }}{{ n }} {{ x }} {{ 10 / 4 }} {{ 7 // 2 }} {{ -7 % 3 }}",
     "True None 3 2.5 2.5 3 2"},
    {"{{ 0.1 + 0.2 }} {{ 100000.0 * 100000000000.0 }} {{ 10000000.0 * 10000000000.0 }}",
     "0.30000000000000004 1e+16 1e+17"},
    {"{{ d }} {{ l + [none, true] }}", "{'b': 1, 'A': [1, \"it's\"]} [3, 1, 2, None, True]"},
    {"{{ 'a' 'b' \"c\\n\\x41\\u00e9\\'\\q\" }}", "abc\nA\xC3\xA9'\\q"},
    {"{{ 1 + 2 * 3 - 4 }}{{ 'a' ~ 1 ~ none }}{{ 'ab' * 2 }}{{ -n + 1 }}", "3a1Noneabab-2"},
    {"{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'b' > 'a' }}{{ 1 == 1.0 }}{{ true == 1 }}",
     "TrueFalseTrueTrueTrue"},
    {"{{ 'a' in s }}{{ 9 not in l }}{{ 'b' in d }}{{ not t or z }}{{ z or 'x' }}",
     "TrueTrueTrueNonex"},
    {"{{ 'x' if no }}{{ 'x' if no else 'y' if z else 'w' }}", "w"},
    {"{{ ['\xC2\xA0\xE2\x80\x83\xC3\xA4\\n\\x01', '\\'\\\\'] }}",
     "['\\xa0\\u2003\xC3\xA4\\n\\x01', \"'\\\\\"]"},
    /* items, slices */
    {"{{ u[0] }}{{ u[-1] }}{{ u[1:] }}{{ u[:2] }}{{ u[9:] }}", "\xC3\xA4"
                                                               "b\xE6\x97\xA5"
                                                               "b\xC3\xA4\xE6\x97\xA5"},
    {"{{ l[::-1] }}{{ l[1:] }}{{ l[-2:] }}{{ l[:-9] }}{{ l[9] }}{{ l[::2] }}",
     "[2, 1, 3][1, 2][1, 2][][3, 2]"},
    {"{{ d.b }}{{ d['A'][1] }}{{ d.no is defined }}{{ d.get('no', 7) }}{{ d.get('no') }}",
     "1it'sFalse7None"},
    /* filters, tests, methods */
    {"{{ ' a ' | trim }}|{{ 'AbC' | lower | upper }}|{{ l | length }}|{{ u | length }}",
     "a|ABC|3|3"},
    {"{{ d | tojson }} {{ d | tojson(indent=2) }} {{ l | tojson(separators=(',', ':')) }}",
     "{\"b\": 1, \"A\": [1, \"it's\"]} {\n  \"b\": 1,\n  \"A\": [\n    1,\n    \"it's\"\n  ]\n} "
     "[3,1,2]"},
    {"{{ {} | tojson(indent=4) }}{{ '<\\n\\x01\\x7f/\"' | tojson }}", "{}\"<\\n\\u0001\x7F/\\\"\""},
    {"{{ no | default('x') }}{{ '' | default('y', true) }}{{ z | default('y') }}", "xyNone"},
    {"{{ messages | map(attribute='role') | join(', ') }}", "user, assistant"},
    {"{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
     "{{ (messages | rejectattr('role', 'equalto', 'user') | first).content }}",
     "1yo"},
    {"{{ l | select('odd') | list }}{{ l | reject('equalto', 3) | first }}{{ (d | dictsort)[0][0] "
     "}}",
     "[3, 1]1A"},
    /* A generator is true, has no elements of its own, and is walked once. */
    {"{{ 1 if l | select('string') else 2 }}{{ 1 if l | select('string') | list else 2 }}"
     "{{ l | map('string') is sequence }}{{ (l | reverse)[0] is defined }}{{ l | reverse | list }}"
     "{% set g = l | select('odd') %}{% for x in g %}{{ x }}{% endfor %}",
     "12FalseFalse[2, 1, 3]31"},
    {"{% set x = s | safe %}{{ x }}{{ x ~ '<' }}{{ x is string }}{{ none | safe is string }}",
     "a,b,ca,b,c<TrueTrue"},
    {"{{ s.split(',') }}{{ s.split(',', 1)[1] }}{{ ' a  b '.split() }}{{ s.rsplit(',', 1)[0] }}",
     "['a', 'b', 'c']b,c['a', 'b']a,b"},
    {"{{ s.startswith('a') }}{{ s.endswith(('x', 'c')) }}{{ s.replace(',', '') }}{{ s.find('b') }}",
     "TrueTrueabc2"},
    {"{{ '\xC2\xA0 a\xE3\x80\x80'.strip() }}{{ 'xxaxx'.strip('x') }}{{ 'xax'.lstrip('x') }}",
     "aaax"},
    {"{{ 4 is even }}{{ 4 is divisibleby 2 }}{{ z is none }}{{ t is boolean }}{{ t is number }}"
     "{{ d is mapping }}{{ s is iterable }}{{ no is undefined }}{{ n is not string }}",
     "TrueTrueTrueTrueTrueTrueTrueTrueTrue"},
    /* loops, scopes */
    {"{% for m in messages %}{{ loop.index }}{{ m.role }}{% if not loop.last %},{% endif %}"
     "{% endfor %}",
     "1user,2assistant"},
    {"{% for k, v in d.items() if k != 'b' %}{{ k }}{{ loop.length }}{% else %}e{% endfor %}",
     "A1"},
    {"{% for i in [] %}a{% else %}{{ 'none' }}{% endfor %}", "none"},
    {"{% for i in l %}a{% break %}{% else %}{{ 'left' }}{% endfor %}", "aleft"},
    {"{% for i in l %}a{% if loop.first %}{% continue %}{% endif %}{% else %}b{% endfor %}", "aaa"},
    {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i > 3 %}{% break %}{% endif %}"
     "{{ i }}{% endfor %}",
     "023"},
    {"{% set v = 1 %}{% for i in l %}{% set v = i %}{{ v }}{% endfor %}{{ v }}", "3121"},
    {"{% set ns = namespace(v=1) %}{% for i in l %}{% set ns.v = ns.v + i %}{% endfor %}{{ ns.v }}",
     "7"},
    {"{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem }}{% endfor %}",
     "False1True2True"},
    {"{% set a, b = 1, 'x' %}{{ b }}{{ a }}{% set c %}<{{ a }}>{% endset %}{{ c | length }}",
     "x13"},
    {"{% macro f(a, b='-') %}{{ b }}{{ a }}{{ n }}{% endmacro %}{{ f(1) }}{{ f(b=2, a='x') }}",
     "-132x3"},
    {"{% macro f(i) %}{% if i > 0 %}{{ i }}{{ f(i - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
     "321"},
    {"{% for i in 'ab' %}{% for j in l %}{{ loop.depth }}{% endfor %}{% endfor %}", "222222"},
    {"{{ strftime_now('%d %b %Y') if strftime_now is defined }}", "29 Nov 2026"},
};

static const struct {
    const char *template;
    const char *says; /* -EINVAL, when it is parsed or rendered; NULL: another error */
} refusals[] = {
    {"{{ l | map('string') }}", "the text of what a filter gives"},
    {"{{ (l | map('string')) + l }}", "+ of what a filter gives"},
    {"{{ l | select | length }}", "length of what a filter gives"},
    {"{{ l | select | last }}", "last of what a filter gives"},
    {"{{ l | select | tojson }}", "tojson of what a filter gives"},
    {"{{ (l | select)[1:] }}", "a slice of what a filter gives"},
    {"{{ 1 in l | select }}", "in of what a filter gives"},
    {"{% set g = l | select %}{{ g | list }}{{ g | list }}", "gone once it has been walked"},
    {"{{ (s | safe) + '<' }}", "a text of the filter safe"},
    {"{{ (s | safe).strip() }}", "a text of the filter safe"},
    {"{{ l in d }}", "no key of a dict"},
    {"{% if t %}", "line 1: a block has no {% elif %}"},
    {"\n{{ 1", "line 2: a tag has no end"},
    {"{{ 'a }}", "line 1: a string has no end"},
    {"{# a", "line 1: a comment has no end"},
    {"{{ 1 + }}", "line 1: an expression is missing before \""},
    {"{{ a ** 2 }}", "** is not supported"},
    {"{% include 'x' %}", "line 1: the tag include is not supported"},
    {"{{ n | urlize }}", "line 1: the filter urlize is not supported"},
    {"{{ n is callable }}", "line 1: the test callable is not supported"},
    {"{{ s.format(1) }}", "line 1: the method format() is not supported"},
    {"{% break %}", "line 1: break or continue outside of a loop"},
    {"{{ '\\N{DASH}' }}", "an escape in a string is not supported"},
    {"{{ no.x }}", "line 1 of the template: x of what is not defined"},
    {"{{ 'a' + 1 }}", "an operator does not go with what stands beside it"},
    {"{{ 1 < 'a' }}", "< of what has no order"},
    {"{{ 1 in 2 }}", "in: neither a list"},
    {"{{ cycler(1) }}", "the function cycler() is not supported"},
    {"{{ raise_exception('not \"so\"') }}", "not \"so\""},
    {"{% for i in 5 %}{% endfor %}", "a loop over what has no items"},
    {"{{ 1 // 0 }}", "a division by 0"},
    {"{{ 9223372036854775807 + 1 }}", "a number is too large"},
    {"{{ '\xC3\xA4' | upper }}", "upper of what is not ASCII"},
    {"{{ d.items }}", ".items is a method of a dict"},
    {"{{ ['\xF0\x90\x80\x80'] }}", "with the character U+10000 is not supported"},
    {"{{ strftime_now('%s') }}", "strftime_now() with such a format"},
    {"{% set ns = namespace() %}{{ ns }}", "ns is supported with an attribute alone"},
    {"{% set ns.x = 1 %}", "ns is not a namespace"},
    {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "a macro calls itself without end"},
    {"{% for i in range(100000000) %}{% endfor %}", NULL},
    {"{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(99) %}{% set ns.a = ns.a + ns.a %}"
     "{% endfor %}",
     NULL},
};

/* Parses and renders; the text is NUL-terminated. */
static int render(const char *template, struct jinja_render *ret, char *why)
{
    struct jinja *jinja = NULL;
    int r = jinja_parse(template, strlen(template), &jinja, why);

    if (r < 0)
        return r;
    json_t *given = json_loads(variables, 0, NULL);
    *ret = (struct jinja_render){
        .variables = given, .watch = json_object_get(given, "messages"), .date = "2026-11-29"};
    r = jinja_render(jinja, ret, why);
    if (r == 0)
        r = growing_bytes_add(&ret->text, "", 1);
    json_decref(given);
    jinja_free(jinja);
    return r;
}

TEST(test_renders)
{
    for (size_t i = 0; i < ARRAY_SIZE(renders); i++) {
        struct jinja_render made = {0};
        char why[JINJA_WHY_MAX] = "";
        int r = render(renders[i].template, &made, why);
        if (r < 0 || strcmp((char *)made.text.data, renders[i].text) != 0)
            fail_msg("%s: %d %s: %s", renders[i].template, r, why,
                     r < 0 ? "" : (char *)made.text.data);
        jinja_render_deinit(&made);
    }
}

TEST(test_refusals)
{
    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
        struct jinja_render made = {0};
        char why[JINJA_WHY_MAX] = "";
        int r = render(refusals[i].template, &made, why);
        if (refusals[i].says ? r != -EINVAL || !strstr(why, refusals[i].says)
                             : r != -E2BIG && r != -ELOOP)
            fail_msg("%s: %d %s", refusals[i].template, r, why);
        jinja_render_deinit(&made);
    }
}

/* Where generation blocks are, and which message a turn of a loop wrote. */
TEST(test_spans)
{
    static const char template[] =
        "<{% for m in messages[::-1] %}{{ m.role }}:{% generation %}{{ m.content }}"
        "{% endgeneration %};{% endfor %}{% set c %}{% for m in messages %}x{% endfor %}{% endset "
        "%}";
    struct jinja_render made = {0};
    char why[JINJA_WHY_MAX] = "";

    assert_int_equal(render(template, &made, why), 0);
    assert_string_equal((char *)made.text.data, "<assistant:yo;user: hi ;");
    assert_int_equal(made.generation.n, 2);
    assert_int_equal(made.generation.list[0].from, 11);
    assert_int_equal(made.generation.list[0].to, 13);
    assert_int_equal(made.generation.list[1].to, 23);
    assert_int_equal(made.items.n, 2); /* not those of the block that set keeps */
    assert_int_equal(made.items.list[0].item, 1);
    assert_int_equal(made.items.list[0].from, 1);
    assert_int_equal(made.items.list[0].to, 14);
    assert_int_equal(made.items.list[1].item, 0);
    jinja_render_deinit(&made);
}

/* Deep and long templates are refused, or rendered, but end no process. */
TEST(test_depth)
{
    static const char *const parts[] = {"(", "[", "not ", "-", "{% if t %}", "a.b", "1+", "''~"};
    char why[JINJA_WHY_MAX] = "";

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        struct growing_bytes text = {0};
        struct jinja_render made = {0};
        bool tag = parts[i][0] == '{';
        assert_int_equal(growing_bytes_add(&text, tag ? "" : "{{ ", tag ? 0 : 3), 0);
        for (unsigned k = 0; k < 20000; k++)
            assert_int_equal(growing_bytes_add(&text, parts[i], strlen(parts[i])), 0);
        assert_int_equal(growing_bytes_add(&text, "1 }}", 5), 0);
        assert_int_equal(render((char *)text.data, &made, why), -EINVAL);
        jinja_render_deinit(&made);
        free(text.data);
    }
}
