/*
 * Conversations as JSON, of any bytes; the first byte chooses the template. They are refused with a
 * word, or become parts of text, none of them empty, in which all that was said stands in its
 * order; a loss is of what the assistant says alone, and a part that is refused is the last.
 */
#include "daemon/data/decode/tokenizer/chat.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { LARGEST = 1 << 14, TEXT = 4 * LARGEST };

struct said {
    char text[TEXT];
    size_t n;
    uint32_t parts, losses;
    uint32_t refuse; /* the part of this number, from 1; 0: none */
    bool over;
};

static int hear(void *owner, const void *text, size_t n, bool loss)
{
    struct said *said = owner;

    FUZZ_ASSERT(n > 0 && !said->over);
    if (n > TEXT - said->n)
        return -E2BIG;
    memcpy(said->text + said->n, text, n);
    said->n += n;
    said->losses += loss;
    said->over = ++said->parts == said->refuse;
    return said->over ? -ECANCELED : 0;
}

static bool says(const json_t *message, const char *key)
{
    return json_is_string(json_object_get(message, key));
}

/* What the role and the content are is found in the text, one behind the other. */
static void check(const json_t *messages, const struct said *said, enum chat_template chat)
{
    const char *at = said->text, *end = said->text + said->n;
    uint32_t losses = 0;

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
    FUZZ_ASSERT(losses == said->losses);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum chat_template templates[] = {CHAT_CHATML, CHAT_LLAMA3, CHAT_PLAIN};
    static struct said said, again;
    char why[CHAT_WHY_MAX] = "";
    json_error_t error;

    if (size < 1 || size > LARGEST)
        return 0;
    enum chat_template chat = templates[data[0] % ARRAY_SIZE(templates)];
    json_t *messages = json_loadb((const char *)data + 1, size - 1, JSON_DECODE_ANY, &error);
    if (!messages)
        return 0;
    said = (struct said){.refuse = 0};
    int r = chat_write(chat, messages, hear, &said, why);
    FUZZ_ASSERT(r == 0 || r == -E2BIG || (r == -EINVAL && why[0]));
    if (r == 0)
        check(messages, &said, chat);
    again = (struct said){.refuse = said.parts};
    FUZZ_ASSERT(said.parts == 0 || chat_write(chat, messages, hear, &again, why) != 0);
    json_decref(messages);
    return 0;
}
