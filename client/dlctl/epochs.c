/* The table of epochs: see epochs.h. */
#include "client/dlctl/epochs.h"

#include "client/dlctl/form.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* All that is null without batches of tokens. */
static const char *const KEYS[] = {"tokens",  "padded",   "padding",      "overlong", "leftover",
                                   "carried", "repeated", "tokens_per_s", "buckets"};

/* All that is null where no rank waits for another. */
static const char *const WAITS[] = {"waits_for", "waits_why"};

/* Empty where an epoch has had no other number of ranks. */
static const char BEFORE[] = "before";

enum { BEFORE_TEXT_MAX = 4096 };

static bool is_of_tokens(const char *key)
{
    for (size_t i = 0; i < ARRAY_SIZE(KEYS); i++)
        if (strcmp(key, KEYS[i]) == 0)
            return true;
    return false;
}

static bool is_of_waiting(const char *key)
{
    return strcmp(key, WAITS[0]) == 0 || strcmp(key, WAITS[1]) == 0;
}

static bool get_count(const struct value *row, const char *key, uint64_t *ret)
{
    const struct value *v = value_get(row, key);

    if (!v || (v->type != VALUE_UINT && (v->type != VALUE_INT || v->integer < 0)))
        return false;
    *ret = v->type == VALUE_UINT ? v->uinteger : (uint64_t)v->integer;
    return true;
}

static bool any_has(const struct value *view, const char *key)
{
    uint64_t n;

    for (uint32_t i = 0; i < view->count; i++)
        if (get_count(&view->items[i], key, &n))
            return true;
    return false;
}

static bool has_before(const struct value *row)
{
    const struct value *v = value_get(row, BEFORE);

    return v && v->type == VALUE_ARRAY && v->count > 0;
}

/* "3 steps of 2 ranks, 4 steps of 3 ranks"; what is no such list is left as it is. */
static void add_before(const struct form *form, const struct value *row)
{
    char text[BEFORE_TEXT_MAX] = "";
    size_t at = 0;
    const struct value *v = value_get(row, BEFORE);

    for (uint32_t i = 0; has_before(row) && i < v->count && at < sizeof text; i++) {
        const struct value *of = &v->items[i];
        uint64_t world, steps;

        if (of->type != VALUE_MAP || !get_count(of, "world", &world) ||
            !get_count(of, "steps", &steps))
            continue;
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "%s%" PRIu64 " steps of %" PRIu64 " ranks", at ? ", " : "", steps,
                               world);
    }
    form_text(form, BEFORE, text[0] ? text : "-");
}

/* Behind all other columns: tokens, how many a second, padding, leftover. */
static void add_columns(const struct form *form, const struct value *row)
{
    const struct value *rate = value_get(row, "tokens_per_s");
    uint64_t tokens, padded, leftover;

    if (!get_count(row, "tokens", &tokens) || !get_count(row, "padded", &padded))
        return;
    form_u64(form, "tokens", tokens);
    if (rate && rate->type == VALUE_FLOAT)
        form_real(form, "tokens_per_s", rate->number);
    form_padding(form, tokens, padded);
    if (get_count(row, "leftover", &leftover))
        form_u64(form, "leftover", leftover);
}

/* A row of the table, in place of the view's. */
static int change_row(struct value *row, bool tokens, bool waits, bool before)
{
    _cleanup_(value_deinit)
    struct value table = {.type = VALUE_MAP};
    int error = 0;
    const struct form form = {.map = &table, .error = &error};

    for (uint32_t i = 0; i < row->count && error == 0; i++) {
        struct value *from = &row->items[i], *to;

        if (is_of_tokens(from->key) || (!waits && is_of_waiting(from->key)))
            continue;
        if (strcmp(from->key, BEFORE) == 0) {
            if (before)
                add_before(&form, row);
            continue;
        }
        to = form_null(&form, from->key);
        if (to)
            form_note(&form, value_copy(from, to));
    }
    if (tokens)
        add_columns(&form, row);
    if (error == 0)
        value_move(&table, row);
    return error;
}

int epochs_table(struct value *view)
{
    bool tokens, waits, before = false;
    int r = 0;

    if (view->type != VALUE_ARRAY)
        return 0;
    tokens = any_has(view, "tokens");
    waits = any_has(view, WAITS[0]);
    for (uint32_t i = 0; i < view->count; i++)
        before = before || (view->items[i].type == VALUE_MAP && has_before(&view->items[i]));
    for (uint32_t i = 0; i < view->count && r == 0; i++)
        if (view->items[i].type == VALUE_MAP)
            r = change_row(&view->items[i], tokens, waits, before);
    return r;
}
