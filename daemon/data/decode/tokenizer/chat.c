#include "daemon/data/decode/tokenizer/chat.h"

#include "daemon/data/decode/tokenizer/chat_file.h"
#include "proto/common/array.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

struct chat {
    enum chat_template kind;
    enum chat_end end;
    enum chat_loss loss;
    enum chat_cut cut;
    bool texts;          /* a text is a message */
    struct jinja *jinja; /* owned */
    json_t *variables;   /* owned; those of each conversation */
    char *date;          /* owned; what strftime_now() takes for today; may be NULL */
    char *header;        /* owned; what a generation prompt writes; NULL: nothing */
    size_t tail;         /* blanks behind what ends an assistant's message */
    struct jinja_render render;
    struct jinja_span *losses; /* owned */
    size_t n_losses, losses_room;
};

/* A conversation on its way. */
struct chat_writing {
    json_t *messages; /* owned */
    size_t n_prompt;  /* of them */
    json_t *tools;    /* owned */
    size_t n_turns;
};

/* ---- templates of our own ------------------------------------------------------------------- */

#define CHAT_SAYS(words)                                                               \
    "{% if m.role == 'assistant' %}{% generation %}{{ " words " }}{% endgeneration %}" \
    "{% else %}{{ " words " }}{% endif %}"

static const struct chat_own {
    const char *text;
    const char *needs[3];
} chat_own_templates[] = {
    [CHAT_CHATML] = {"{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}" CHAT_SAYS(
                         "m.content + '<|im_end|>'") "{{ '\\n' }}{% endfor %}"
                                                     "{% if add_generation_prompt %}{{ "
                                                     "'<|im_start|>assistant\\n' }}{% endif %}",
                     {"<|im_start|>", "<|im_end|>"}},
    [CHAT_LLAMA3] = {"{{ '<|begin_of_text|>' }}{% for m in messages %}"
                     "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}" CHAT_SAYS(
                         "(m.content | trim) + '<|eot_id|>'") "{% endfor %}"
                                                              "{% if add_generation_prompt %}"
                                                              "{{ "
                                                              "'<|start_header_id|>assistant<|end_"
                                                              "header_id|>\\n\\n' }}{% endif %}",
                     {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    [CHAT_PLAIN] =
        {"{% for m in messages %}{{ m.role + ': ' }}" CHAT_SAYS(
             "m.content + '\\n'") "{% endfor %}"
                                  "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}",
         {NULL}},
    [CHAT_JINJA] = {NULL, {NULL}},
    [CHAT_JINJA2] = {NULL, {NULL}},
};

const char *chat_needs(enum chat_template chat, size_t i, size_t *ret_n)
{
    const char *const *needs = chat_own_templates[chat].needs;

    if (i >= ARRAY_SIZE(chat_own_templates[chat].needs) || !needs[i])
        return NULL;
    *ret_n = strlen(needs[i]);
    return needs[i];
}

/* ---- messages ------------------------------------------------------------------------------- */

static int chat_refuse(char *why, const char *words, size_t i)
{
    snprintf(why, CHAT_WHY_MAX, words, i);
    return -EINVAL;
}

/* What was thought, under one of the names that it has. */
static json_t *chat_thought(const json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *thought = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(names) && (!thought || json_is_null(thought)); i++)
        thought = json_object_get(message, names[i]);
    return json_is_null(thought) ? NULL : thought;
}

static bool chat_is_normal(const json_t *message)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)message, key, value)
    {
        if (json_is_null(value))
            return false;
    }
    return !chat_thought(message);
}

/* As transformers gives a message to a template: without what is null, and with what was thought
 * under the names that templates know. *ret is owned by the caller. */
static int chat_normalize(const json_t *message, json_t **ret)
{
    json_t *thought = chat_thought(message), *made = json_object(), *value;
    const char *key;
    size_t key_n;
    int r = made ? 0 : -1;

    if (r == 0 && thought)
        r = json_object_set_nocheck(made, "thinking", thought);
    json_object_keylen_foreach((json_t *)(uintptr_t)message, key, key_n, value)
    {
        if (r == 0 && !json_is_null(value))
            r = json_object_setn_nocheck(made, key, key_n, value);
    }
    if (r == 0 && thought)
        r = json_object_set_nocheck(made, "reasoning_content", thought);
    if (r < 0) {
        json_decref(made);
        return -ENOMEM;
    }
    *ret = made;
    return 0;
}

static int chat_add_message(const struct chat *chat, struct chat_writing *w, const json_t *message,
                            size_t i, char *why)
{
    json_t *made;

    if (!json_is_object(message))
        return chat_refuse(why, "message %zu is not an object", i);
    if (!spec_chat_has_file(chat->kind) && (!json_is_string(json_object_get(message, "role")) ||
                                            !json_is_string(json_object_get(message, "content"))))
        return chat_refuse(why, "message %zu has no strings role and content", i);
    if (chat->end != CHAT_END_CONTINUE && chat_is_normal(message))
        return json_array_append(w->messages, (json_t *)(uintptr_t)message) < 0 ? -ENOMEM : 0;
    int r = chat_normalize(message, &made);
    return r < 0 ? r : json_array_append_new(w->messages, made) < 0 ? -ENOMEM : 0;
}

static int chat_add_text(struct chat_writing *w, const char *role, const json_t *text)
{
    json_t *made = json_object();

    if (!made || json_object_set_new_nocheck(made, "role", json_string(role)) < 0 ||
        json_object_set_nocheck(made, "content", (json_t *)(uintptr_t)text) < 0 ||
        json_array_append(w->messages, made) < 0) {
        json_decref(made);
        return -ENOMEM;
    }
    json_decref(made);
    return 0;
}

static int chat_add_messages(const struct chat *chat, struct chat_writing *w, const json_t *list,
                             const char *role, char *why)
{
    int r = 0;

    if (chat->texts && json_is_string(list))
        return chat_add_text(w, role, list);
    if (!json_is_array(list))
        return chat_refuse(why, "it is not a list of messages", 0);
    for (size_t i = 0; r == 0 && i < json_array_size(list); i++)
        r = chat_add_message(chat, w, json_array_get(list, i), i, why);
    return r;
}

static bool chat_has_role(const json_t *messages, size_t i, const char *role)
{
    const char *has = json_string_value(json_object_get(json_array_get(messages, i), "role"));

    return has && strcmp(has, role) == 0;
}

/* The messages before the first turn: what the system says. */
static size_t chat_lead(const json_t *messages)
{
    size_t n = 0;

    while (chat_has_role(messages, n, "system") || chat_has_role(messages, n, "developer"))
        n++;
    return n;
}

/* Takes `drop` turns out. */
static int chat_drop(const struct chat *chat, struct chat_writing *w, size_t drop)
{
    size_t n = json_array_size(w->messages), lead = chat_lead(w->messages), at = lead, turn = 0;
    bool newest = chat->cut == CUT_NEWEST;

    w->n_turns = lead < n;
    for (size_t i = lead + 1; i < n; i++)
        w->n_turns += chat_has_role(w->messages, i, "user");
    if (drop == 0)
        return 0;
    assert(drop < w->n_turns);
    for (size_t kept = newest ? w->n_turns - drop : drop; turn < kept; turn++)
        for (at++; at < n && !chat_has_role(w->messages, at, "user");)
            at++;
    for (size_t i = newest ? at : lead, end = newest ? n : at; i < end; end--) {
        w->n_prompt -= i < w->n_prompt;
        if (json_array_remove(w->messages, i) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* ---- what the loss is of -------------------------------------------------------------------- */

static int chat_add_loss(struct chat *chat, size_t from, size_t to, size_t item)
{
    if (!array_reserve(chat->losses, chat->losses_room, chat->n_losses + 1))
        return -ENOMEM;
    if (from < to)
        chat->losses[chat->n_losses++] = (struct jinja_span){from, to, item};
    return 0;
}

/* Whether a mark may end with this byte: a header, a line, a token as <|user|> or [/INST]. */
static bool chat_ends_mark(char c)
{
    return c == '\n' || c == '>' || c == ']';
}

/* The bytes of a generation prompt that a message begins with, up to where a mark ends. */
static size_t chat_header_of(const struct chat *chat, const uint8_t *text, size_t n)
{
    size_t all = chat->header ? strlen(chat->header) : 0, same = 0;

    while (same < all && same < n && text[same] == (uint8_t)chat->header[same])
        same++;
    while (same < all && same > 0 && !chat_ends_mark(chat->header[same - 1]))
        same--;
    return same;
}

/* The message whose turn of the loop holds a generation block; SIZE_MAX: not known. */
static size_t chat_item_at(const struct chat *chat, const struct jinja_span *block)
{
    const struct jinja_spans *items = &chat->render.items;

    for (size_t i = 0; i < items->n; i++)
        if (items->list[i].from <= block->from && block->to <= items->list[i].to)
            return items->list[i].item;
    return SIZE_MAX;
}

static int chat_find_blocks(struct chat *chat, const struct chat_writing *w, char *why)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < chat->render.generation.n; i++) {
        const struct jinja_span *block = &chat->render.generation.list[i];
        size_t item = chat_item_at(chat, block);
        if (item == SIZE_MAX && w->n_prompt > 0)
            return chat_refuse(why, "the template does not show which text is the prompt's", 0);
        if (item == SIZE_MAX || item >= w->n_prompt)
            r = chat_add_loss(chat, block->from, block->to, item);
    }
    return r;
}

static int chat_find_turns(struct chat *chat, const struct chat_writing *w, char *why)
{
    const uint8_t *text = chat->render.text.data;
    size_t answers = 0;
    int r = 0;

    for (size_t i = 0; r == 0 && i < chat->render.items.n; i++) {
        const struct jinja_span *turn = &chat->render.items.list[i];
        size_t from = turn->from, to = turn->to;
        if (!chat_has_role(w->messages, turn->item, "assistant"))
            continue;
        answers++;
        from += chat_header_of(chat, text + from, to - from);
        for (size_t k = 0; k < chat->tail && to > from && strchr(" \t\n", text[to - 1]); k++)
            to--;
        if (turn->item >= w->n_prompt)
            r = chat_add_loss(chat, from, to, turn->item);
    }
    for (size_t i = 0; answers == 0 && i < json_array_size(w->messages); i++)
        if (chat_has_role(w->messages, i, "assistant"))
            return chat_refuse(why,
                               "the template writes message %zu outside of a loop over the "
                               "messages; add generation blocks to it",
                               i);
    return r;
}

static int chat_find_losses(struct chat *chat, const struct chat_writing *w, size_t n, char *why)
{
    size_t last, kept = 0;
    int r;

    chat->n_losses = 0;
    r = jinja_has_generation(chat->jinja) ? chat_find_blocks(chat, w, why)
                                          : chat_find_turns(chat, w, why);
    if (r < 0 || chat->n_losses == 0)
        return r;
    last = chat->losses[chat->n_losses - 1].item;
    for (size_t i = 0; i < chat->n_losses; i++) {
        struct jinja_span loss = chat->losses[i];
        bool of_last = last == SIZE_MAX ? i + 1 == chat->n_losses : loss.item == last;
        loss.to = min_u64(loss.to, n);
        if (loss.from < loss.to && (chat->loss != LOSS_LAST || of_last))
            chat->losses[kept++] = loss;
    }
    chat->n_losses = kept;
    return 0;
}

/* ---- rendering ------------------------------------------------------------------------------ */

static int chat_render(struct chat *chat, const struct chat_writing *w, bool prompt, char *why)
{
    json_t *variables = json_copy(chat->variables);
    int r = -ENOMEM;

    if (variables && json_object_set_nocheck(variables, "messages", w->messages) == 0 &&
        json_object_set_nocheck(variables, "tools", w->tools ? w->tools : json_null()) == 0 &&
        json_object_set_nocheck(variables, "documents", json_null()) == 0 &&
        json_object_set_nocheck(variables, "add_generation_prompt", json_boolean(prompt)) == 0) {
        chat->render.variables = variables;
        chat->render.watch = w->messages;
        chat->render.date = chat->date;
        r = jinja_render(chat->jinja, &chat->render, why);
    }
    json_decref(variables);
    if (r == -EINVAL && jinja_lacks(why))
        snprintf(why + strlen(why), CHAT_WHY_MAX - strlen(why), "; chat: jinja2 renders it");
    return r == -ELOOP ? chat_refuse(why, "the template takes too long", 0) : r;
}

/* As transformers finds where the last message ends: by a mark that is added to it. */
static const char chat_mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";

/* What has the text, under *ret_key: the message, or of its parts the last one with a text. */
static json_t *chat_last_text(json_t *last, const char **ret_key)
{
    json_t *parts = json_object_get(last, "content"), *part = NULL;

    *ret_key = json_is_array(parts) ? "text" : "content";
    if (!json_is_array(parts))
        return last;
    parts = json_deep_copy(parts); /* the sample's own stay */
    if (json_object_set_new_nocheck(last, "content", parts) < 0)
        return NULL;
    for (size_t i = json_array_size(parts); i > 0 && !part; i--)
        if (json_object_get(json_array_get(parts, i - 1), "text"))
            part = json_array_get(parts, i - 1);
    return part;
}

static int chat_add_mark(struct chat_writing *w, char *why)
{
    size_t n = json_array_size(w->messages);
    const char *key = NULL;
    json_t *last = chat_last_text(json_array_get(w->messages, n - (n > 0)), &key);
    const json_t *content = json_object_get(last, key);
    struct growing_bytes text = {0};

    if (!json_is_string(content))
        return chat_refuse(why, "there is no last message with a text to continue", 0);
    int r = growing_bytes_add(&text, json_string_value(content), json_string_length(content));
    if (r == 0)
        r = growing_bytes_add(&text, chat_mark, strlen(chat_mark));
    if (r == 0 &&
        json_object_set_new_nocheck(last, key, json_stringn_nocheck((char *)text.data, text.n)) < 0)
        r = -ENOMEM;
    free(text.data);
    return r;
}

/* How much of the text is before the mark. */
static int chat_find_mark(const struct chat *chat, size_t *ret, char *why)
{
    const char *text = (const char *)chat->render.text.data;
    size_t n = chat->render.text.n, mark = strlen(chat_mark);

    for (size_t at = n >= mark - 1 ? n - mark + 2 : 0; at > 0; at--) {
        if (memcmp(text + at - 1, chat_mark, mark - 1) != 0)
            continue;
        *ret = at - 1;
        if (at - 1 + mark > n || text[at - 2 + mark] != ' ')
            jinja_strip(&text, ret, false, true);
        return 0;
    }
    return chat_refuse(why, "the template leaves the message out that is to be continued", 0);
}

static int chat_write_all(struct chat *chat, struct chat_writing *w, struct chat_text *ret,
                          char *why)
{
    bool go_on = chat->end == CHAT_END_CONTINUE;
    int r = go_on ? chat_add_mark(w, why) : 0;

    if (r < 0 || (r = chat_render(chat, w, chat->end == CHAT_END_PROMPT, why)) < 0)
        return r;
    ret->n = chat->render.text.n;
    if ((go_on && (r = chat_find_mark(chat, &ret->n, why)) < 0) ||
        (r = chat_find_losses(chat, w, ret->n, why)) < 0)
        return r;
    ret->text = ret->n > 0 ? chat->render.text.data : (const uint8_t *)"";
    ret->losses = chat->losses;
    ret->n_losses = chat->n_losses;
    ret->n_turns = w->n_turns;
    return 0;
}

/* A list, or JSON of one. */
static int chat_add_tools(struct chat_writing *w, const json_t *tools, char *why)
{
    if (json_is_string(tools))
        w->tools = json_loadb(json_string_value(tools), json_string_length(tools),
                              JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    else if (tools)
        w->tools = json_incref((json_t *)(uintptr_t)tools);
    if (!tools || json_is_array(w->tools) || json_is_null(w->tools))
        return 0;
    return chat_refuse(why, "its tools are not a list", 0);
}

int chat_write(struct chat *chat, const struct chat_talk *talk, size_t drop, struct chat_text *ret,
               char *why)
{
    struct chat_writing w = {.messages = json_array()};
    int r = w.messages ? chat_add_tools(&w, talk->tools, why) : -ENOMEM;

    if (r == 0 && talk->prompt) {
        r = chat_add_messages(chat, &w, talk->prompt, "user", why);
        w.n_prompt = json_array_size(w.messages);
    }
    if (r == 0)
        r = chat_add_messages(chat, &w, talk->messages, "assistant", why);
    if (r == 0)
        r = chat_drop(chat, &w, drop);
    if (r == 0)
        r = chat_write_all(chat, &w, ret, why);
    json_decref(w.messages);
    json_decref(w.tools);
    return r;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* A question, and an answer if `answer`, as the template writes them. 0; -EAGAIN: it refuses. */
static int chat_try(struct chat *chat, const char *answer, bool prompt)
{
    char why[CHAT_WHY_MAX];
    struct chat_writing w = {.messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "q")};
    int r = w.messages ? 0 : -ENOMEM;

    if (r == 0 && answer)
        r = json_array_append_new(
                w.messages, json_pack("{s:s,s:s}", "role", "assistant", "content", answer)) < 0
                ? -ENOMEM
                : 0;
    if (r == 0)
        r = chat_render(chat, &w, prompt, why);
    json_decref(w.messages);
    return r == 0 || r == -ENOMEM ? r : -EAGAIN;
}

/* What the template writes for a generation prompt: what it has that the text without one has not,
 * from a mark's end on, since some write an end in its place. */
static int chat_learn_header(struct chat *chat)
{
    _cleanup_free_ char *without = NULL;
    size_t n, same = 0;
    int r = chat_try(chat, NULL, false);

    if (r < 0 || (n = chat->render.text.n) == 0)
        return r;
    if (!(without = strndup((char *)chat->render.text.data, n)))
        return -ENOMEM;
    if ((r = chat_try(chat, NULL, true)) < 0)
        return r;
    const char *with = (const char *)chat->render.text.data;
    while (same < n && same < chat->render.text.n && with[same] == without[same])
        same++;
    while (same < n && same > 0 && !chat_ends_mark(with[same - 1]))
        same--;
    if (chat->render.text.n > same)
        chat->header = strndup(with + same, chat->render.text.n - same);
    return chat->render.text.n > same && !chat->header ? -ENOMEM : 0;
}

/* Blanks behind the mark that ends an answer. */
static int chat_learn_tail(struct chat *chat)
{
    static const char answer[] = "a-n-s-w-e-r";
    const struct jinja_spans *items = &chat->render.items;
    int r = chat_try(chat, answer, false);

    if (r < 0 || items->n == 0)
        return r;
    const char *begin = (const char *)chat->render.text.data + items->list[items->n - 1].from;
    size_t n = items->list[items->n - 1].to - items->list[items->n - 1].from, bare;
    const char *found = memmem(begin, n, answer, strlen(answer));
    for (bare = n; found && bare > 0 && strchr(" \t\n", begin[bare - 1]);)
        bare--;
    if (found && begin + bare > found + strlen(answer)) /* there is a mark */
        chat->tail = n - bare;
    return 0;
}

static int chat_learn(struct chat *chat)
{
    int r = chat_learn_header(chat);

    if (r == 0 || r == -EAGAIN)
        r = chat_learn_tail(chat);
    return r == -EAGAIN ? 0 : r;
}

static int chat_open_own(struct chat *chat, const char *place, struct dl_error *err)
{
    const char *text = chat_own_templates[chat->kind].text;
    char why[JINJA_WHY_MAX];

    chat->variables = json_object();
    if (!chat->variables || jinja_parse(text, strlen(text), &chat->jinja, why) < 0)
        return dl_error_set(err, ENOMEM, place, "out of memory for the chat template");
    return 0;
}

/* chat_args: {strftime_now: YYYY-MM-DD} */
static int chat_take_date(struct chat *chat, const char *place, struct dl_error *err)
{
    const char *date = json_string_value(json_object_get(chat->variables, "strftime_now"));

    if (!date)
        return 0;
    if (!(chat->date = strdup(date)))
        return dl_error_set(err, ENOMEM, place, "out of memory for the chat template");
    return json_object_del(chat->variables, "strftime_now");
}

int chat_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
              struct chat **ret, struct dl_error *err)
{
    struct chat *chat = calloc(1, sizeof *chat);
    int r;

    if (!chat)
        return dl_error_set(err, ENOMEM, place, "out of memory for the chat template");
    chat->kind = spec->chat;
    chat->end = spec->chat_end;
    chat->loss = spec->loss;
    chat->cut = spec->cut;
    chat->texts = spec->prompt != NULL;
    r = spec_chat_has_file(spec->chat)
            ? chat_file_read(spec, place, env, &chat->jinja, &chat->variables, err)
            : chat_open_own(chat, place, err);
    if (r == 0)
        r = chat_take_date(chat, place, err);
    if (r == 0 && !jinja_has_generation(chat->jinja) && chat_learn(chat) < 0)
        r = dl_error_set(err, ENOMEM, place, "out of memory for the chat template");
    if (r < 0)
        chat_free(chat);
    else
        *ret = chat;
    return r;
}

void chat_free(struct chat *chat)
{
    if (!chat)
        return;
    jinja_free(chat->jinja);
    json_decref(chat->variables);
    jinja_render_deinit(&chat->render);
    free(chat->date);
    free(chat->header);
    free(chat->losses);
    free(chat);
}
