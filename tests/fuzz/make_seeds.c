/*
 * The seed inputs of the frame, message, tree, report and state harnesses, and the dictionary of
 * message heads, below the directory given (tests/fuzz).
 *
 *   make_seeds DIRECTORY            exit 0 when they are there, as they should be; else 1, and the
 *                                   names of those that are not on standard error
 *   make_seeds --update DIRECTORY   writes them
 */
#include "proto/codec.h"
#include "proto/dataset_state.h"
#include "proto/frame.h"
#include "proto/segment_layout.h"
#include "proto/state_token.h"
#include "proto/tree.h"
#include <errno.h>
#include <stdio.h>

static const char *root;
static bool updating, failed;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void write_file(const char *path, const struct dl_buffer *content)
{
    FILE *file = fopen(path, "wb");

    if (!file)
        fail(path);
    fwrite(content->data, 1, content->len, file);
    if (fclose(file) != 0)
        fail(path);
}

static void check_file(const char *path, const struct dl_buffer *content)
{
    _cleanup_free_ char *there = malloc(content->len + 1);
    FILE *file = fopen(path, "rb");
    size_t len;

    if (!there)
        fail(path);
    len = file ? fread(there, 1, content->len + 1, file) : SIZE_MAX;
    if (len != content->len || memcmp(there, content->data, len) != 0) {
        fprintf(stderr, "%s is %s; update it with make_seeds --update %s\n", path,
                file ? "another than messages.def makes now" : "missing", root);
        failed = true;
    }
    if (file)
        fclose(file);
}

/* A file below `root`. */
static void put_file(const char *dir, const char *name, const struct dl_buffer *content)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s/%s", root, dir, name);
    (updating ? write_file : check_file)(path, content);
}

/* The same, of two parts. */
static void write_seed(const char *dir, const char *name, const void *head, size_t head_len,
                       const void *body, size_t body_len)
{
    _cleanup_(buffer_deinit) struct dl_buffer content = {0};

    if (buffer_append(&content, head, head_len) < 0 || buffer_append(&content, body, body_len) < 0)
        fail(name);
    put_file(dir, name, &content);
}

/* {"kind": ["range", 10]} */
static const uint8_t any[] = {0x81, 0xA4, 'k', 'i', 'n', 'd', 0x92,
                              0xA5, 'r',  'a', 'n', 'g', 'e', 10};
static const uint8_t zeros[192];

/* The heads of all messages, by their names: an array of so many fields, and the number. */
static struct dl_buffer dictionary;

static void dictionary_add(const char *name, const uint8_t *payload)
{
    enum { ARRAY_16 = 0xDC, UINT_8 = 0xCC }; /* msgpack: the count, or the number, is behind it */
    char line[160];
    size_t array = payload[0] == ARRAY_16 ? 3 : 1;
    size_t head = array + (payload[array] == UINT_8 ? 2 : 1);
    int len = snprintf(line, sizeof line, "# %s\n\"", name);

    for (size_t i = 0; i < head; i++)
        len += snprintf(line + len, sizeof line - (size_t)len, "\\x%02X", payload[i]);
    len += snprintf(line + len, sizeof line - (size_t)len, "\"\n");
    if (buffer_append(&dictionary, line, (size_t)len) < 0)
        fail(name);
}

static void message_seed(const char *name, const struct dl_message *msg)
{
    uint8_t direction = (uint8_t)message_direction(msg->number);
    struct dl_buffer out = {0};

    if (message_encode(msg, &out) < 0)
        fail(name);
    write_seed("corpus/message", name, &direction, 1, out.data + FRAME_HEADER_BYTES,
               out.len - FRAME_HEADER_BYTES);
    dictionary_add(message_name(msg->number), out.data + FRAME_HEADER_BYTES);
    buffer_deinit(&out);
}

/* One of each message. */
static void message_seeds(void)
{
    struct dl_message msg;

#define MESSAGE(NAME, name, number_, direction, fds, meaning) \
    msg = (struct dl_message){.number = DL_MSG_##NAME};
#define U64(name, field, max, meaning)       msg.name.field = (max) < 300 ? (max) : 300;
#define STR(name, field, max, meaning)       msg.name.field = span_str("tr\xC3\xA9s");
#define BIN(name, field, max, unit, meaning) msg.name.field = (struct dl_span){zeros, 3 * (unit)};
#define ANY(name, field, meaning)            msg.name.field = (struct dl_span){any, sizeof any};
#define END(name)                            message_seed(#name, &msg);
#include "proto/messages.def"
    put_file(".", "fuzz_message.dict", &dictionary);
    buffer_deinit(&dictionary);
}

static void frame_seeds(void)
{
    static const uint8_t stream[] = "\1\0\0\0a\5\0\0\0hello\3\0\0\0abc\2\0\0\0";
    static const uint8_t sizes[] = {3, 0, 4, 9};
    uint8_t large[1 + 4 + 1000] = {0, 0xE8, 3};

    write_seed("corpus/frame", "whole", zeros, 1, stream, sizeof stream - 1);
    write_seed("corpus/frame", "pieces", sizes, sizeof sizes, stream, sizeof stream - 1);
    write_seed("corpus/frame", "large", large, sizeof large, stream, 5);
    write_seed("corpus/frame", "zero", zeros, 5, stream, 5);
    write_seed("corpus/frame", "too_long", "\0\1\0\x10\0", 5, stream, 5);
    write_seed("corpus/frame", "longest", "\0\0\0\x10\0", 5, stream, 5);
}

static void tree_seed(const char *name, struct tree *tree)
{
    uint8_t head[4] = {(uint8_t)tree->count, (uint8_t)(tree->count >> 8), 0, 1};
    size_t len = tree_encoded_bytes(tree);
    void *encoded = malloc(len);

    if (!encoded)
        fail(name);
    for (uint32_t i = 0; i < tree->count; i++)
        if (tree->nodes[i].kind == TREE_TENSOR || tree->nodes[i].nbytes > 0)
            tree->nodes[i].offset = 64 * i;
    tree_encode(tree, encoded);
    write_seed("corpus/tree", name, head, sizeof head, encoded, len);
    free(encoded);
    tree_deinit(tree);
}

static void tree_seeds(void)
{
    static const uint64_t shape[] = {4, 2, 1}, empty[] = {0};
    struct tree tree = {0};
    int r = 0;

    r |= tree_add_tensor(&tree, NULL, DL_DTYPE_FLOAT32, 3, shape);
    tree_seed("tensor", &tree);
    r |= tree_add(&tree, TREE_DICT, NULL, 2);
    r |= tree_add_tensor(&tree, "image", DL_DTYPE_UINT8, 2, shape);
    r |= tree_add_tensor(&tree, "label", DL_DTYPE_INT64, 0, NULL);
    tree_seed("dict", &tree);
    r |= tree_add(&tree, TREE_TUPLE, NULL, 3);
    r |= tree_add(&tree, TREE_LIST, NULL, 0);
    r |= tree_add(&tree, TREE_DICT, NULL, 1);
    r |= tree_add(&tree, TREE_LIST, "\xC3\xA9", 1);
    r |= tree_add_tensor(&tree, NULL, DL_DTYPE_BOOL, 1, empty);
    r |= tree_add_tensor(&tree, NULL, DL_DTYPE_COMPLEX128, 1, shape);
    tree_seed("nested", &tree);
    r |= tree_add(&tree, TREE_DICT, NULL, 3);
    r |= tree_add_text(&tree, TREE_STRING, "one", 5);
    r |= tree_add_text(&tree, TREE_BYTES, "many", 3 * 8 + 7);
    r |= tree_add_text(&tree, TREE_STRING, "none", 8);
    if (r == 0) {
        tree.nodes[2].ndim = tree.nodes[3].ndim = 1;
        tree.nodes[2].shape[0] = 2;
    }
    tree_seed("text", &tree);
    r |= tree_add(&tree, TREE_DICT, NULL, 2);
    r |= tree_add(&tree, TREE_OBJECT, "point", 3);
    r |= tree_add_text(&tree, TREE_BYTES, NULL, 20);
    r |= tree_add_tensor(&tree, NULL, DL_DTYPE_FLOAT32, 2, shape);
    r |= tree_add_tensor(&tree, NULL, DL_DTYPE_INT64, 0, NULL);
    r |= tree_add_text(&tree, TREE_STRING, "name", 4);
    tree_seed("object", &tree);
    r |= tree_add(&tree, TREE_LIST, NULL, 2);
    for (int i = 0; i < 2; i++) {
        r |= tree_add(&tree, TREE_OBJECT, NULL, 1);
        r |= tree_add_text(&tree, TREE_BYTES, NULL, 4);
    }
    tree_seed("objects", &tree);
    r |= tree_add(&tree, TREE_OBJECT, NULL, 2); /* none: its first child is no pickle */
    r |= tree_add_tensor(&tree, NULL, DL_DTYPE_INT64, 0, NULL);
    r |= tree_add_text(&tree, TREE_BYTES, NULL, 4);
    tree_seed("object_without_pickle", &tree);
    for (int i = 0; i < 32; i++)
        r |= tree_add(&tree, TREE_LIST, NULL, i < 31);
    tree_seed("deep", &tree);
    if (r < 0)
        fail("tree");
}

static void report_seed(const char *name, uint16_t off, uint16_t len, uint32_t more, uint8_t times,
                        const char *rest)
{
    const uint8_t head[] = {(uint8_t)off,          (uint8_t)(off >> 8),   (uint8_t)len,
                            (uint8_t)(len >> 8),   (uint8_t)more,         (uint8_t)(more >> 8),
                            (uint8_t)(more >> 16), (uint8_t)(more >> 24), (uint8_t)(times - 1)};

    write_seed("corpus/report", name, head, sizeof head, rest, strlen(rest));
}

static void report_seeds(void)
{
    static const char whole[] = "KeyError: 'x'\nKeyError\nCaught KeyError in DataLoader worker "
                                "process 0.\nOriginal Traceback (most recent call last):\n";

    report_seed("whole", SLOT_HEADER_BYTES, 12, sizeof whole - 14, 1, whole);
    report_seed("none", SLOT_HEADER_BYTES, 12, 0, 1, whole);
    report_seed("cut", SLOT_HEADER_BYTES, 12, UINT32_MAX, 1, whole);
    report_seed(
        "long", SLOT_HEADER_BYTES, 12, UINT32_MAX, 0,
        "Error\n\xC3\xA9 at last, "
        "of so many lines that they are too many, and all of them as long as this one is, "
        "which is repeated; what is in the middle of all this will be left out in the end "
        "and only the first line and the last ones are kept of it, so that one sees what\n");
    report_seed("one_line", SLOT_HEADER_BYTES, 1, UINT32_MAX, 0,
                "0123456789abcdef0123456789abcdef"
                "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    report_seed("controls", SLOT_HEADER_BYTES, 0, 60, 1,
                "!a\x1B[2Jb\r\x07\x7F \xC2\x85 \xC2\xA0 \xED\xA0\x80 \xFF\xC3 \xE2\x82\xAC");
    report_seed("outside", UINT16_MAX, 4, 9, 1, whole);
    report_seed("all", SLOT_HEADER_BYTES, UINT16_MAX, 9, 1, whole);
}

/* Without their sums, which the harness makes. */
static void state_seed(const char *name, const struct state_token *token)
{
    enum { SUM_BYTES = 9 };
    uint8_t bytes[STATE_TOKEN_MAX];
    size_t len;

    if (state_token_write(token, bytes, &len) < 0)
        fail(name);
    write_seed("corpus/state_token", name, bytes, len - SUM_BYTES, bytes, 0);
}

static void state_seeds(void)
{
    struct state_token token = {
        .identity = {.parts = {1, 2, 3, 4, UINT64_MAX}, .length = 60000}, .epoch = 3, .world = 4};

    state_seed("start", &token);
    token.steps = 120;
    token.identity.order = STATE_NATIVE;
    token.before = (struct history){2, {{8, 10}, {2, 300}}};
    state_seed("changed", &token);
    token.identity.order = STATE_CLIENT;
    state_seed("client", &token);
    token.identity.order = STATE_SEQUENTIAL;
    token.identity.workers = 2;
    token.identity.length = UINT64_MAX;
    state_seed("iterable", &token);
    for (uint64_t i = token.before.n; i < DL_MAX_HISTORY; i++)
        if (!history_add(&token.before, 1 + i % 2, UINT64_MAX))
            fail("full");
    token.identity.workers = 0;
    state_seed("full", &token);
    token.before.n = 0;
    token.dataset_states = 5;
    state_seed("carried", &token);
}

/* A list without its end, which the harness makes. */
static void dataset_state_seed(void)
{
    struct dataset_state state = {.round = 3, .position = 12, .good = 11, .world = 1};
    uint8_t record[DATASET_STATE_HEAD_BYTES + 4] = {0};
    struct dl_buffer list = {0};

    dataset_state_write_head(&state, record);
    for (uint32_t worker = 0; worker < 3; worker += 2)
        if (dataset_state_list_add(
                &list, worker, (struct dl_span){record, DATASET_STATE_HEAD_BYTES + 2 * worker}) < 0)
            fail("list");
    write_seed("corpus/state_token", "list", list.data, list.len, list.data, 0);
    buffer_deinit(&list);
}

/* A message, and the bytes behind it: of a slot with one index. */
static void link_seed(const char *name, uint8_t how, const struct dl_message *msg,
                      const struct slot_header *slot, size_t slot_bytes)
{
    uint8_t body[SLOT_HEADER_BYTES + 64] = {3};
    struct dl_buffer out = {0};

    memcpy(body, slot, sizeof *slot);
    if (buffer_append(&out, &how, 1) < 0 || message_encode(msg, &out) < 0 ||
        buffer_append(&out, body + (slot_bytes > SLOT_HEADER_BYTES ? 0 : SLOT_HEADER_BYTES),
                      slot_bytes) < 0)
        fail(name);
    put_file("corpus/link", name, &out);
    buffer_deinit(&out);
}

/* As fuzz_link.c reads them: task 7, one page of slot. */
static void link_seeds(void)
{
    enum { NEAR = 1, PROVEN = 8, BY_FIVE = 5 << 4 };
    const struct slot_header slot = {.samples = 1, .indices_off = SLOT_HEADER_BYTES, .used = 232};
    struct dl_message msg = {.number = DL_MSG_H_TASK,
                             .h_task = {.task = 7, .slot_bytes = 4096, .bytes = 200}};

    link_seed("task", PROVEN, &msg, &slot, 200);
    link_seed("task_in_pieces", PROVEN | BY_FIVE, &msg, &slot, 200);
    msg.h_task.bytes = 4097;
    link_seed("task_too_long", PROVEN, &msg, &slot, 200);
    msg = (struct dl_message){.number = DL_MSG_H_DONE,
                              .h_done = {.task = 7,
                                         .used = 232,
                                         .samples = 1,
                                         .header = {(const uint8_t *)&slot, sizeof slot},
                                         .bytes = 40}};
    link_seed("done", NEAR | PROVEN, &msg, &slot, 40);
    link_seed("done_in_pieces", NEAR | PROVEN | BY_FIVE, &msg, &slot, 40);
    msg.h_done.bytes = 4096 - SLOT_HEADER_BYTES + 1;
    msg.h_done.used = 4097;
    link_seed("done_too_long", NEAR | PROVEN, &msg, &slot, 40);
    msg = (struct dl_message){.number = DL_MSG_H_CHALLENGE,
                              .h_challenge = {span_str("0.2.0"), span_str("00ff")}};
    link_seed("challenge", NEAR, &msg, &slot, 0);
}

int main(int argc, char **argv)
{
    updating = argc == 3 && strcmp(argv[1], "--update") == 0;
    if (argc != 2 + updating) {
        fprintf(stderr, "usage: %s [--update] DIRECTORY\n", argv[0]);
        return 2;
    }
    root = argv[1 + updating];
    frame_seeds();
    message_seeds();
    tree_seeds();
    report_seeds();
    state_seeds();
    dataset_state_seed();
    link_seeds();
    return failed ? 1 : 0;
}
