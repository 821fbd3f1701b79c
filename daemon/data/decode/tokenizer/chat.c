#include "daemon/data/decode/tokenizer/chat.h"

#include "daemon/data/decode/tokenizer/growing.h"

#include <stdio.h>

struct chat_form {
    const char *begin; /* of the conversation */
    const char *before_role;
    const char *behind_role;
    const char *end; /* of a message; the loss is of it, too */
    const char *behind_end;
    bool trim; /* blanks around the content */
    const char *needs[3];
};

static const struct chat_form *chat_form_of(enum chat_template chat)
{
    static const struct chat_form forms[] = {
        [CHAT_CHATML] =
            {"", "<|im_start|>", "\n", "<|im_end|>", "\n", false, {"<|im_start|>", "<|im_end|>"}},
        [CHAT_LLAMA3] = {"<|begin_of_text|>",
                         "<|start_header_id|>",
                         "<|end_header_id|>\n\n",
                         "<|eot_id|>",
                         "",
                         true,
                         {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
        [CHAT_PLAIN] = {"", "", ": ", "\n", "", false, {NULL}},
    };

    return &forms[chat];
}

const char *chat_needs(enum chat_template chat, size_t i, size_t *ret_n)
{
    const struct chat_form *form = chat_form_of(chat);

    if (i >= ARRAY_SIZE(form->needs) || !form->needs[i])
        return NULL;
    *ret_n = strlen(form->needs[i]);
    return form->needs[i];
}

/* Jinja's trim: the blanks of ASCII are what conversations have. */
static void chat_trim(const char **text, size_t *n)
{
    while (*n > 0 && strchr(" \t\n\r\v\f", **text) && **text) {
        (*text)++;
        (*n)--;
    }
    while (*n > 0 && strchr(" \t\n\r\v\f", (*text)[*n - 1]) && (*text)[*n - 1])
        (*n)--;
}

static int chat_add(struct growing_bytes *to, const char *text)
{
    return growing_bytes_add(to, text, strlen(text));
}

struct chat_writing {
    const struct chat_form *form;
    struct growing_bytes text; /* owned; of one part */
    int (*part)(void *owner, const void *text, size_t n, bool loss);
    void *owner;
};

static int chat_hand_on(struct chat_writing *w, bool loss)
{
    int r = w->text.n > 0 ? w->part(w->owner, w->text.data, w->text.n, loss) : 0;

    w->text.n = 0;
    return r;
}

static int chat_write_message(struct chat_writing *w, const json_t *role, const json_t *content)
{
    const struct chat_form *form = w->form;
    const char *text = json_string_value(content);
    size_t n = json_string_length(content);
    bool loss = strcmp(json_string_value(role), "assistant") == 0;
    int r;

    if (form->trim)
        chat_trim(&text, &n);
    if ((r = chat_add(&w->text, form->before_role)) < 0 ||
        (r = growing_bytes_add(&w->text, json_string_value(role), json_string_length(role))) < 0 ||
        (r = chat_add(&w->text, form->behind_role)) < 0 || (r = chat_hand_on(w, false)) < 0 ||
        (r = growing_bytes_add(&w->text, text, n)) < 0 || (r = chat_add(&w->text, form->end)) < 0 ||
        (r = chat_hand_on(w, loss)) < 0)
        return r;
    return chat_add(&w->text, form->behind_end);
}

int chat_write(enum chat_template chat, const json_t *messages,
               int (*part)(void *owner, const void *text, size_t n, bool loss), void *owner,
               char *why)
{
    struct chat_writing w = {.form = chat_form_of(chat), .part = part, .owner = owner};
    int r = chat_add(&w.text, w.form->begin);

    if (!json_is_array(messages)) {
        snprintf(why, CHAT_WHY_MAX, "it is not a list of messages");
        r = -EINVAL;
    }
    for (size_t i = 0; r == 0 && i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const json_t *role = json_object_get(message, "role");
        const json_t *content = json_object_get(message, "content");
        if (json_is_string(role) && json_is_string(content)) {
            r = chat_write_message(&w, role, content);
        } else {
            snprintf(why, CHAT_WHY_MAX, "message %zu has no strings role and content", i);
            r = -EINVAL;
        }
    }
    if (r == 0)
        r = chat_hand_on(&w, false);
    free(w.text.data);
    return r;
}
