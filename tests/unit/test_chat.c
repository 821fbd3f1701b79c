/*
 * Conversations as text: what a loss is of, with generation blocks and without them; prompts, turns
 * that go, ends; templates in files, with the tokens beside them. Which text a template gives is
 * test_jinja.c's business.
 */
#include "daemon/data/decode/tokenizer/chat.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_alloc.h"

#include <errno.h>

#define TALK                                                                                   \
    "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"q1\"}, " \
    "{\"role\": \"assistant\", \"content\": \"a1\"}, {\"role\": \"user\", \"content\": "       \
    "\"q2\"}, {\"role\": \"assistant\", \"content\": \"a2\"}]"

/* One of each kind: with blocks; with an end mark, blanks behind it and a prompt; without any mark;
 * whose prompt has more than its turns have; which ends the text where it has no prompt. */
#define BLOCKS                                                                          \
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}"               \
    "{% generation %}{{ m.content }}</>{% endgeneration %}{% else %}{{ m.content }}</>" \
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
#define MARKED                                                           \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{{ '\\n' }}" \
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
#define BARE "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ '\\n' }}{% endfor %}"
#define THINKS                                                         \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}" \
    "{% if add_generation_prompt %}<assistant><think>{% endif %}"
#define ENDS                                                                           \
    "{% for m in messages %}<{{ m.role }}>\n{{ m.content }}</>{{ '\\n' }}{% endfor %}" \
    "{% if add_generation_prompt %}{{ '<assistant>\\n' }}{% else %}<end>{% endif %}"

struct asked {
    const char *template;
    const char *text; /* what a loss is of stands between [ and ] */
    const char *prompt;
    enum chat_end end;
    enum chat_loss loss;
    enum chat_cut cut;
    size_t drop;
};

static const struct asked cases[] = {
    {BLOCKS, "<system>s</><user>q1</><assistant>[a1</>]<user>q2</><assistant>[a2</>]", NULL, 0, 0,
     0, 0},
    {MARKED, "<system>s</>\n<user>q1</>\n<assistant>[a1</>]\n<user>q2</>\n<assistant>[a2</>]\n",
     NULL, 0, 0, 0, 0},
    {BARE, "system: s\nuser: q1\n[assistant: a1\n]user: q2\n[assistant: a2\n]", NULL, 0, 0, 0, 0},
    {THINKS, "<system>s<user>q1<assistant>[a1]<user>q2<assistant>[a2]", NULL, 0, 0, 0, 0},
    {BLOCKS, "<system>s</><user>q1</><assistant>a1</><user>q2</><assistant>[a2</>]", NULL, 0,
     LOSS_LAST, 0, 0},
    {MARKED, "<system>s</>\n<user>q1</>\n<assistant>a1</>\n<user>q2</>\n<assistant>[a2</>]\n", NULL,
     0, LOSS_LAST, 0, 0},
    {BLOCKS, "<system>s</><user>q2</><assistant>[a2</>]", NULL, 0, 0, CUT_OLDEST, 1},
    {BLOCKS, "<system>s</><user>q1</><assistant>[a1</>]", NULL, 0, 0, CUT_NEWEST, 1},
    {BLOCKS, "<system>s</><user>q1</><assistant>[a1</>]<user>q2</><assistant>[a2</>]<assistant>",
     NULL, CHAT_END_PROMPT, 0, 0, 0},
    {BLOCKS, "<system>s</><user>q1</><assistant>[a1</>]<user>q2</><assistant>[a2]", NULL,
     CHAT_END_CONTINUE, 0, 0, 0},
    {BLOCKS,
     "<user>p</><assistant>x</><system>s</><user>q1</><assistant>[a1</>]<user>q2</>"
     "<assistant>[a2</>]",
     "[{\"role\": \"user\", \"content\": \"p\"}, {\"role\": \"assistant\", \"content\": \"x\"}]", 0,
     0, 0, 0},
    {MARKED,
     "<user>p\xC3\xA4</>\n<system>s</>\n<user>q1</>\n<assistant>[a1</>]\n<user>q2</>\n"
     "<assistant>[a2</>]\n",
     "\"p\xC3\xA4\"", 0, 0, 0, 0},
    {ENDS,
     "<system>\ns</>\n<user>\nq1</>\n<assistant>\n[a1</>]\n<user>\nq2</>\n<assistant>\n"
     "[a2</>]\n<end>",
     NULL, 0, 0, 0, 0},
    {"{{ messages[1:3] | map(attribute='content') | join('-') }}", "", NULL, 0, 0, 0, 0},
};

static struct spec_dataset spec_of(const char *template, const struct asked *a)
{
    return (struct spec_dataset){
        .chat = CHAT_JINJA,
        .chat_template = (char *)harness_text("t.jinja", template),
        .prompt = a->prompt ? (char *)"prompt" : NULL,
        .chat_end = a->end,
        .loss = a->loss,
        .cut = a->cut,
    };
}

/* The text with its losses between brackets. */
static void mark(const struct chat_text *made, char *ret)
{
    size_t at = 0;

    for (size_t i = 0; i <= made->n; i++) {
        for (size_t k = 0; k < made->n_losses; k++)
            if (made->losses[k].to == i)
                ret[at++] = ']';
        for (size_t k = 0; k < made->n_losses; k++)
            if (made->losses[k].from == i)
                ret[at++] = '[';
        if (i < made->n)
            ret[at++] = (char)made->text[i];
    }
    ret[at] = '\0';
}

static int write_one(const struct asked *a, char *ret, char *why)
{
    const struct spec_dataset spec = spec_of(a->template, a);
    struct chat_text made = {0};
    struct chat *chat = NULL;
    struct dl_error err = {0};
    json_t *messages = json_loads(TALK, 0, NULL);
    json_t *prompt = a->prompt ? json_loads(a->prompt, JSON_DECODE_ANY, NULL) : NULL;
    const struct chat_talk talk = {.messages = messages, .prompt = prompt};
    int r = chat_open(&spec, "dataset", &anywhere, &chat, &err);

    if (r == 0) {
        r = chat_write(chat, &talk, a->drop, &made, why);
        if (r == 0)
            mark(&made, ret);
    }
    chat_free(chat);
    json_decref(messages);
    json_decref(prompt);
    return r;
}

TEST(test_losses)
{
    char text[512], why[CHAT_WHY_MAX] = "";

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int r = write_one(&cases[i], text, why);
        if (cases[i].text[0] == '\0') {
            assert_int_equal(r, -EINVAL);
            assert_non_null(strstr(why, "the template writes message 2 outside of a loop over the "
                                        "messages; add generation blocks to it"));
        } else if (r < 0 || strcmp(text, cases[i].text) != 0) {
            fail_msg("%zu: %d %s\n%s\n%s", i, r, why, r < 0 ? "" : text, cases[i].text);
        }
    }
}

/* Each allocation of ours fails once; nothing leaks. */
TEST(test_memory)
{
    char text[512], why[CHAT_WHY_MAX] = "";
    int r = -ENOMEM, n = 0, left = 0;

    for (; r == -ENOMEM && n < 1000; n++) {
        fail_in = n;
        r = write_one(&cases[10], text, why);
        left = fail_in;
        fail_in = -1;
    }
    assert_int_equal(r, 0);
    assert_true(left >= 0); /* none failed without a word */
    assert_string_equal(text, cases[10].text);
    assert_in_range(n, 20, 1000);
}

static const struct {
    const char *name;
    const char *file;
    const char *says; /* of chat_open(); NULL: it is opened */
} files[] = {
    {"tokenizer_config.json",
     "{\"chat_template\": \"{{ bos_token }}{{ eos_token }}\", \"bos_token\": {\"content\": "
     "\"<b>\"}, "
     "\"eos_token\": \"<e>\", \"add_bos_token\": true}",
     NULL},
    {"tokenizer_config.json",
     "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"}, {\"name\": \"default\", "
     "\"template\": \"{{ bos_token }}<e>\"}], \"bos_token\": \"<b>\"}",
     NULL},
    {"chat_template.jinja", "{{ bos_token }}<e>", NULL}, /* the tokens are those of the last */
    {"chat_template.json", "{\"chat_template\": \"{{ bos_token }}<e>\"}", NULL},
    {"tokenizer_config.json", "{\"bos_token\": \"<b>\"}",
     "has no chat_template; name the file that has it, such as a chat_template.jinja beside it"},
    {"chat_template.jinja", "{{ x | urlize }}",
     "is not a chat template that C renders: line 1: the filter urlize is not supported; a daemon "
     "of your own, with workers.count 1 or more, renders it by jinja2 in Python"},
    {"chat_template.jinja", "{{ (messages[0].content ~ '\xC3\x84').lower() }}",
     "is not a chat template that C renders: line 1 of the template: lower of what is not ASCII"},
    {"chat_template.jinja", "\xFF", "is not a chat template that C renders: is not UTF-8"},
    {"tokenizer_config.json", "{", "is not JSON ("},
};

TEST(test_files)
{
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        const char *path = harness_text(files[i].name, files[i].file);
        const struct spec_dataset spec = {.chat = CHAT_JINJA, .chat_template = (char *)path};
        char why[CHAT_WHY_MAX] = "", text[64] = "";
        struct chat_text made = {0};
        struct chat *chat = NULL;
        struct dl_error err = {0};
        json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "x");
        const struct chat_talk talk = {.messages = messages};
        int r = chat_open(&spec, "dataset", &anywhere, &chat, &err);
        if (files[i].says) {
            assert_int_equal(r, strstr(files[i].says, "C renders") ? -ENOSYS : -EINVAL);
            assert_error_has(&err, files[i].says);
        } else {
            assert_int_equal(r, 0);
            assert_int_equal(chat_write(chat, &talk, 0, &made, why), 0);
            mark(&made, text);
            assert_string_equal(text, "<b><e>");
        }
        chat_free(chat);
        json_decref(messages);
    }
}
