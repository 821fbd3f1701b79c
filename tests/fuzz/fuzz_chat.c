/*
 * Conversations as JSON, of any bytes; the first byte chooses the template. They are refused with a
 * word, or become text in which all that was said stands in its order; a loss is of what the
 * assistant says alone. Without some turns it is a text, too.
 */
#include "daemon/data/decode/tokenizer/chat.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { LARGEST = 1 << 14 };

static bool says(const json_t *message, const char *key)
{
    return json_is_string(json_object_get(message, key));
}

/* What the role and the content are is found in the text, one behind the other. */
static void check(const json_t *messages, const struct chat_text *said, enum chat_template chat)
{
    const uint8_t *at = said->text, *end = said->text + said->n;
    size_t losses = 0, before = 0;

    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        const json_t *content = json_object_get(message, "content");
        FUZZ_ASSERT(says(message, "role") && says(message, "content"));
        losses += strcmp(role, "assistant") == 0;
        at = memmem(at, (size_t)(end - at), role, strlen(role));
        FUZZ_ASSERT(at);
        at += strlen(role);
        if (chat == CHAT_LLAMA3) /* without the blanks around it */
            continue;
        size_t n = json_string_length(content);
        at = memmem(at, (size_t)(end - at), json_string_value(content), n);
        FUZZ_ASSERT(at);
        at += n;
    }
    FUZZ_ASSERT(losses == said->n_losses);
    for (size_t i = 0; i < said->n_losses; i++) {
        FUZZ_ASSERT(said->losses[i].from >= before && said->losses[i].to > said->losses[i].from);
        before = said->losses[i].to;
    }
    FUZZ_ASSERT(before <= said->n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum chat_template templates[] = {CHAT_CHATML, CHAT_LLAMA3, CHAT_PLAIN};
    struct chat_text said = {0};
    struct chat *chat = NULL;
    struct dl_error err = {0};
    char why[CHAT_WHY_MAX] = "";
    json_error_t error;

    if (size < 1 || size > LARGEST)
        return 0;
    const struct spec_dataset spec = {.chat = templates[data[0] % ARRAY_SIZE(templates)],
                                      .cut = data[0] & 64 ? CUT_NEWEST : CUT_OLDEST,
                                      .chat_end =
                                          data[0] & 128 ? CHAT_END_CONTINUE : CHAT_END_TURN};
    json_t *messages = json_loadb((const char *)data + 1, size - 1, JSON_DECODE_ANY, &error);
    if (!messages)
        return 0;
    FUZZ_ASSERT(chat_open(&spec, "dataset", NULL, &chat, &err) == 0);
    const struct chat_talk talk = {.messages = messages};
    int r = chat_write(chat, &talk, 0, &said, why);
    FUZZ_ASSERT(r == 0 || (r == -EINVAL && why[0]));
    if (r == 0 && spec.chat_end == CHAT_END_TURN)
        check(messages, &said, spec.chat);
    for (size_t drop = 1; r == 0 && drop < said.n_turns && drop < 4; drop++) {
        size_t n = said.n;
        r = chat_write(chat, &talk, drop, &said, why);
        FUZZ_ASSERT(r == 0 ? said.n <= n : r == -EINVAL);
    }
    chat_free(chat);
    json_decref(messages);
    return 0;
}
