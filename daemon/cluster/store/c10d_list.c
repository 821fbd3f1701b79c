/*
 * Keys that are listed. The store lists no keys in all its versions: those that were put are in a
 * directory beside them, a value with each name after a newline, and one at the end.
 */
#include "daemon/cluster/store/c10d_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Where the name begins in a directory; NULL: it is not in it. */
static const uint8_t *c10d_list_find_name(struct dl_span directory, const char *name)
{
    size_t len = strlen(name);
    const uint8_t *at = directory.data, *end = directory.data + directory.len;

    while (directory.len > 0 && (at = memchr(at, '\n', (size_t)(end - at)))) {
        at++;
        if ((size_t)(end - at) > len && memcmp(at, name, len) == 0 && at[len] == '\n')
            return at;
    }
    return NULL;
}

static void c10d_list_on_asked(void *owner, const struct tcpstore_answer *with)
{
    struct c10d_call *call = owner;
    struct dl_span current;

    if (!c10d_take(call, with, &current))
        return;
    bool absent = c10d_is_same(current, c10d_nothing());
    call->c10d->health.answers = true;
    c10d_answer(call, &(struct backend_answer){.token = absent ? 0 : c10d_token_of(current),
                                               .data = absent ? (struct dl_span){0} : current});
}

static void c10d_list_on_put(void *owner, const struct tcpstore_answer *with)
{
    struct c10d_call *call = owner;

    if (with->status < 0)
        c10d_answer_error(call, -with->status, with->error->message);
    else if (call->other[0])
        c10d_read_key(call, call->other, c10d_list_on_asked, call);
    else
        c10d_answer_nothing(call);
}

static void c10d_list_change_directory(struct c10d_call *call, struct dl_span current);

/* What it is now: as it was to be, or as another node has made it in between. Where there was
 * none, and something was expected, that is said again. */
static void c10d_list_on_directory(void *owner, const struct tcpstore_answer *with)
{
    struct c10d_call *call = owner;
    struct dl_span current;

    if (!c10d_take(call, with, &current))
        return;
    if (c10d_is_same(current, c10d_nothing()) ||
        (call->expected.len > 0 && c10d_is_same(current, c10d_span_of(&call->expected))))
        current = (struct dl_span){0};
    c10d_list_change_directory(call, current);
}

/* The name is put into it, or taken out; then the call continues. */
static void c10d_list_change_directory(struct c10d_call *call, struct dl_span current)
{
    const char *name = c10d_name_of(call);
    const uint8_t *at = c10d_list_find_name(current, name);
    size_t before = at ? (size_t)(at - current.data) : current.len, len = strlen(name) + 1;
    const struct dl_span data = c10d_span_of(&call->data);
    _cleanup_(buffer_deinit) struct dl_buffer next = {0};

    if (call->kind == C10D_CALL_PUT && at) {
        c10d_ask_for(call, TCPSTORE_SET, call->key, &data, c10d_list_on_put, call);
        return;
    }
    if (call->kind == C10D_CALL_DROP && !at) {
        c10d_answer_nothing(call);
        return;
    }
    must_append(&next, before > 0 ? current.data : (const uint8_t *)"\n", before > 0 ? before : 1);
    if (at) {
        must_append(&next, at + len, current.len - before - len);
    } else {
        must_append(&next, name, len - 1);
        must_append(&next, "\n", 1);
    }
    c10d_put(&call->expected, current);
    const struct dl_span values[] = {c10d_span_of(&call->expected), c10d_span_of(&next)};
    c10d_ask_for(call, TCPSTORE_COMPARE_SET, call->directory, values, c10d_list_on_directory, call);
}

static void c10d_list_on_dropped(void *owner, const struct tcpstore_answer *with)
{
    struct c10d_call *call = owner;

    if (with->status < 0)
        c10d_answer_error(call, -with->status, with->error->message);
    else
        c10d_read_key(call, call->directory, c10d_list_on_directory, call);
}

static int c10d_list_compare_items(const void *a, const void *b)
{
    const struct backend_item *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* The last answer of a list is there. */
static void c10d_list_answer(struct c10d_call *call)
{
    struct dl_span asked = c10d_span_of(&call->asked);
    _cleanup_free_ struct backend_item *items =
        must_alloc(max_u64(call->n_listed, 1) * sizeof *items);
    struct backend_answer with = {
        .items = items, .data = asked, .token = asked.len > 0 ? c10d_token_of(asked) : 0};

    if (call->error.code) {
        c10d_answer_error(call, call->error.code, call->error.message);
        return;
    }
    for (uint32_t i = 0; i < call->n_listed; i++)
        if (call->listed[i].is_there)
            items[with.n++] =
                (struct backend_item){call->listed[i].name, c10d_span_of(&call->listed[i].data)};
    qsort(items, with.n, sizeof *items, c10d_list_compare_items);
    call->c10d->health.answers = true;
    c10d_answer(call, &with);
}

/* One of the answers: true, with what is there. */
static bool c10d_list_take_one(struct c10d_call *call, const struct tcpstore_answer *with,
                               struct dl_buffer *ret)
{
    struct tcpstore_fields fields = with->fields;

    call->waits--;
    if (with->status < 0) {
        dl_error_set(&call->error, -with->status, "", "%s", with->error->message);
        return false;
    }
    c10d_notice_link(call->c10d);
    struct dl_span current = tcpstore_take_span(&fields);
    if (c10d_is_same(current, c10d_nothing()) || current.len > BACKEND_VALUE_MAX)
        return false;
    c10d_put(ret, current);
    return true;
}

static void c10d_list_on_listed(void *owner, const struct tcpstore_answer *with)
{
    struct listed *listed = owner;
    struct c10d_call *call = listed->call;

    listed->is_there = c10d_list_take_one(call, with, &listed->data);
    if (call->waits == 0)
        c10d_list_answer(call);
}

/* All that are in the directory are asked for, one behind the other. */
static void c10d_list_read_names(struct c10d_call *call, struct dl_span directory)
{
    const uint8_t *at = directory.data, *end = at + directory.len, *next;
    char key[sizeof call->key];

    for (size_t i = 1; i < directory.len; i++)
        call->n_listed += directory.data[i] == '\n';
    call->listed = must_alloc(max_u64(call->n_listed, 1) * sizeof *call->listed);
    for (uint32_t i = 0; i < call->n_listed; i++) {
        next = memchr(at + 1, '\n', (size_t)(end - at - 1));
        call->listed[i] = (struct listed){.call = call};
        call->listed[i].name =
            must_have(span_dup((struct dl_span){at + 1, (size_t)(next - at - 1)}));
        at = next;
    }
    call->waits += call->n_listed;
    for (uint32_t i = 0; i < call->n_listed; i++) {
        (void)snprintf(key, sizeof key, "%s%s", call->key, call->listed[i].name);
        c10d_read_key(call, key, c10d_list_on_listed, &call->listed[i]);
    }
}

static void c10d_list_on_names(void *owner, const struct tcpstore_answer *with)
{
    _cleanup_(buffer_deinit) struct dl_buffer directory = {0};
    struct c10d_call *call = owner;

    if (c10d_list_take_one(call, with, &directory) && directory.len > 1 &&
        directory.data[0] == '\n' && directory.data[directory.len - 1] == '\n')
        c10d_list_read_names(call, c10d_span_of(&directory));
    if (call->waits == 0)
        c10d_list_answer(call);
}

static void c10d_list_on_other(void *owner, const struct tcpstore_answer *with)
{
    struct c10d_call *call = owner;

    (void)c10d_list_take_one(call, with, &call->asked);
    if (call->waits == 0)
        c10d_list_answer(call);
}

void c10d_list_begin(struct c10d_call *call)
{
    if (call->kind == C10D_CALL_PUT) {
        c10d_read_key(call, call->directory, c10d_list_on_directory, call);
    } else if (call->kind == C10D_CALL_DROP) {
        c10d_ask_for(call, TCPSTORE_DELETE, call->key, NULL, c10d_list_on_dropped, call);
    } else {
        call->waits = call->other[0] ? 2 : 1;
        if (call->other[0])
            c10d_read_key(call, call->other, c10d_list_on_other, call);
        c10d_read_key(call, call->directory, c10d_list_on_names, call);
    }
}
