/*
 * Builds Arrow IPC messages, the simplest that are right: each field of a FlatBuffers table has 8
 * bytes, and what a table points to stands behind it.
 */
#ifndef DL_TEST_ARROW_BUILD_H
#define DL_TEST_ARROW_BUILD_H

#include "tests/lib/harness.h"

enum { BUILD_ROOM = 1 << 16, BUILD_FIELDS = 8 };

struct build {
    uint8_t data[BUILD_ROOM];
    uint32_t len;
};

static inline void build_align(struct build *b, uint32_t to)
{
    while (b->len % to)
        b->data[b->len++] = 0;
}

static inline uint32_t build_put(struct build *b, const void *data, size_t len)
{
    uint32_t at = b->len;

    assert_true(b->len + len <= BUILD_ROOM);
    if (len > 0)
        memcpy(b->data + at, data, len);
    b->len += (uint32_t)len;
    return at;
}

/* A table whose BUILD_FIELDS fields are all absent. */
static inline uint32_t build_table(struct build *b)
{
    uint16_t vtable[2 + BUILD_FIELDS] = {sizeof vtable, 8 + 8 * BUILD_FIELDS};
    uint8_t fields[8 + 8 * BUILD_FIELDS] = {0};

    build_align(b, 8);
    uint32_t at = build_put(b, vtable, sizeof vtable);
    build_align(b, 8);
    int32_t back = (int32_t)(b->len - at);
    memcpy(fields, &back, sizeof back);
    return build_put(b, fields, sizeof fields);
}

static inline void build_has(struct build *b, uint32_t table, unsigned id)
{
    int32_t back;
    uint16_t offset = (uint16_t)(8 + 8 * id);

    memcpy(&back, b->data + table, sizeof back);
    memcpy(b->data + table - back + 4 + 2 * id, &offset, sizeof offset);
}

static inline void build_int(struct build *b, uint32_t table, unsigned id, int64_t n)
{
    build_has(b, table, id);
    memcpy(b->data + table + 8 + 8 * id, &n, sizeof n);
}

/* The field points to `to`, behind the table. */
static inline void build_ref(struct build *b, uint32_t table, unsigned id, uint32_t to)
{
    uint32_t at = table + 8 + 8 * id, offset = to - at;

    build_has(b, table, id);
    memcpy(b->data + at, &offset, sizeof offset);
}

static inline uint32_t build_vector(struct build *b, uint32_t n, const void *items, size_t size)
{
    build_align(b, 8);
    build_put(b, &(uint32_t){0}, 4); /* so that items are aligned */
    uint32_t at = build_put(b, &n, 4);
    if (items)
        build_put(b, items, n * size);
    else
        for (size_t i = 0; i < n * size; i++)
            build_put(b, "", 1);
    return at;
}

static inline void build_text(struct build *b, uint32_t table, unsigned id, const char *text)
{
    uint32_t at = build_vector(b, (uint32_t)strlen(text), text, 1);

    build_put(b, "", 1);
    build_ref(b, table, id, at);
}

/* Item i of a vector of tables. */
static inline void build_item(struct build *b, uint32_t vector, uint32_t i, uint32_t to)
{
    uint32_t at = vector + 4 + 4 * i, offset = to - at;

    memcpy(b->data + at, &offset, sizeof offset);
}

/* ---- Arrow -------------------------------------------------------------------------------- */

/* By their numbers in Schema.fbs; `a` and `b` are the first two fields of the type's table. */
struct build_type {
    const char *name;
    int type, a, b;
    int children;   /* the following ones */
    int dictionary; /* its id plus 1; 0: none */
};

static inline uint32_t build_field(struct build *b, const struct build_type **types)
{
    const struct build_type *type = (*types)++;
    uint32_t field = build_table(b), table, children;

    build_text(b, field, 0, type->name);
    build_int(b, field, 1, 1);
    build_int(b, field, 2, type->type);
    table = build_table(b);
    build_ref(b, field, 3, table);
    if (type->a)
        build_int(b, table, 0, type->a);
    if (type->b)
        build_int(b, table, 1, type->b);
    if (type->dictionary) {
        uint32_t dictionary = build_table(b);
        build_int(b, dictionary, 0, type->dictionary - 1);
        build_ref(b, field, 4, dictionary);
    }
    children = build_vector(b, (uint32_t)type->children, NULL, 4);
    build_ref(b, field, 5, children);
    for (int i = 0; i < type->children; i++)
        build_item(b, children, (uint32_t)i, build_field(b, types));
    return field;
}

/* Field `id` of a table becomes a vector of one KeyValue. */
static inline void build_pair(struct build *b, uint32_t table, unsigned id, const char *key,
                              const char *value)
{
    uint32_t pairs = build_vector(b, 1, NULL, 4), pair = build_table(b);

    build_ref(b, table, id, pairs);
    build_item(b, pairs, 0, pair);
    build_text(b, pair, 0, key);
    build_text(b, pair, 1, value);
}

/* `columns` of them, with their children in preorder. `features`: of Hugging Face; NULL: none. */
static inline uint32_t build_schema(struct build *b, const struct build_type *types, int columns,
                                    const char *features)
{
    uint32_t schema = build_table(b);
    uint32_t fields = build_vector(b, (uint32_t)columns, NULL, 4);

    build_ref(b, schema, 1, fields);
    for (int i = 0; i < columns; i++)
        build_item(b, fields, (uint32_t)i, build_field(b, &types));
    if (features)
        build_pair(b, schema, 2, "huggingface", features);
    return schema;
}

/* A batch in the making: what its nodes and buffers are. */
struct build_batch {
    int64_t nodes[64];
    uint32_t n_nodes;
    int64_t buffers[128];
    uint32_t n_buffers;
    int64_t variadic[4]; /* of views: how many buffers each column has besides */
    uint32_t n_variadic;
    struct build body;
};

static inline void build_node(struct build_batch *batch, int64_t length, int64_t nulls)
{
    batch->nodes[2 * batch->n_nodes] = length;
    batch->nodes[2 * batch->n_nodes++ + 1] = nulls;
}

static inline void build_buffer(struct build_batch *batch, const void *data, size_t len)
{
    build_align(&batch->body, 8);
    batch->buffers[2 * batch->n_buffers] = build_put(&batch->body, data, len);
    batch->buffers[2 * batch->n_buffers++ + 1] = (int64_t)len;
    build_align(&batch->body, 8);
}

/* A column without nulls that has no buffer of its own, */
static inline void build_bare(struct build_batch *batch, int64_t length)
{
    build_node(batch, length, 0);
    build_buffer(batch, NULL, 0);
}

/* and one that has. */
static inline void build_column(struct build_batch *batch, int64_t length, const void *data,
                                size_t len)
{
    build_bare(batch, length);
    build_buffer(batch, data, len);
}

static inline uint32_t build_records(struct build *b, const struct build_batch *batch, int64_t rows)
{
    uint32_t records = build_table(b);

    build_int(b, records, 0, rows);
    build_ref(b, records, 1, build_vector(b, batch->n_nodes, batch->nodes, 16));
    build_ref(b, records, 2, build_vector(b, batch->n_buffers, batch->buffers, 16));
    if (batch->n_variadic > 0)
        build_ref(b, records, 4, build_vector(b, batch->n_variadic, batch->variadic, 8));
    return records;
}

/* A message's metadata begin: its root, to be ended by build_message(). Types: 1 schema, 2
 * dictionary, 3 records. */
static inline uint32_t build_root(struct build *b, int type, int64_t body)
{
    uint32_t root;

    *b = (struct build){.len = 4};
    root = build_table(b);
    memcpy(b->data, &root, sizeof root);
    build_int(b, root, 0, 4);
    build_int(b, root, 1, type);
    build_int(b, root, 3, body);
    return root;
}

/* Appends the message to what a file or stream has. Returns where it begins. */
static inline uint32_t build_message(struct build *to, struct build *metadata,
                                     const struct build *body)
{
    uint32_t at;

    build_align(metadata, 8);
    at = build_put(to, &(uint32_t){UINT32_MAX}, 4);
    build_put(to, &metadata->len, 4);
    build_put(to, metadata->data, metadata->len);
    if (body)
        build_put(to, body->data, body->len);
    return at;
}

static inline void build_add_schema(struct build *to, const struct build_type *types, int columns,
                                    const char *features)
{
    static struct build b;
    uint32_t root = build_root(&b, 1, 0);

    build_ref(&b, root, 2, build_schema(&b, types, columns, features));
    build_message(to, &b, NULL);
}

static inline uint32_t build_add_batch(struct build *to, const struct build_batch *batch,
                                       int64_t rows)
{
    static struct build b;
    uint32_t root = build_root(&b, 3, batch->body.len);

    build_ref(&b, root, 2, build_records(&b, batch, rows));
    return build_message(to, &b, &batch->body);
}

static inline uint32_t build_add_dictionary(struct build *to, const struct build_batch *batch,
                                            int64_t rows, int64_t id, bool delta)
{
    static struct build b;
    uint32_t root = build_root(&b, 2, batch->body.len), dictionary = build_table(&b);

    build_ref(&b, root, 2, dictionary);
    build_int(&b, dictionary, 0, id);
    build_ref(&b, dictionary, 1, build_records(&b, batch, rows));
    if (delta)
        build_int(&b, dictionary, 2, 1);
    return build_message(to, &b, &batch->body);
}

/* Of a file, which began with the mark, padded to 8: where its one batch is. */
static inline void build_add_footer(struct build *to, const struct build_type *types, int columns,
                                    const uint32_t *batches, uint32_t n)
{
    static struct build b;
    int64_t blocks[3 * 8] = {0};

    for (uint32_t i = 0; i < n; i++)
        blocks[3 * i] = batches[i];
    b = (struct build){.len = 4};
    uint32_t root = build_table(&b);
    memcpy(b.data, &root, sizeof root);
    build_ref(&b, root, 1, build_schema(&b, types, columns, NULL));
    build_ref(&b, root, 3, build_vector(&b, n, blocks, 24));
    build_align(&b, 8);
    build_put(to, b.data, b.len);
    build_put(to, &b.len, 4);
    build_put(to, "ARROW1", 6);
}

#endif
