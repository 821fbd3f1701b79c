/* The verbs that ask the daemon one thing: its views, and stop, drain, reload. */
#include "client/dlctl/ask.h"
#include "client/dlctl/epochs.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Only the rows of one loader. */
static void keep_loader(struct value *view, const char *name)
{
    uint32_t n = 0;

    for (uint32_t i = 0; view->type == VALUE_ARRAY && i < view->count; i++) {
        struct value *row = &view->items[i];
        const struct value *loader = row->type == VALUE_MAP ? value_get(row, "loader") : NULL;
        if (!loader || loader->type != VALUE_STRING || strcmp(loader->string, name) != 0)
            continue;
        if (n < i)
            value_move(row, &view->items[n]);
        n++;
    }
    while (view->type == VALUE_ARRAY && view->count > n)
        value_deinit(&view->items[--view->count]);
}

/* The user whose loader a row is about; NULL: the view does not say it beside the loader. */
static const struct value *user_of(const struct value *row)
{
    return value_get(row, "loader") ? value_get(row, "uid") : NULL;
}

static void drop(struct value *row, const struct value *of)
{
    uint32_t at = (uint32_t)(of - row->items), left = --row->count - at;

    value_deinit(&row->items[at]);
    memmove(&row->items[at], &row->items[at + 1], left * sizeof *row->items);
    row->items[row->count] = (struct value){0};
}

/* A table need not say whose loaders they are that are all of one user. */
static void drop_only_user(struct value *view)
{
    uint32_t n = view->type == VALUE_ARRAY ? view->count : 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct value *first = user_of(&view->items[0]), *user = user_of(&view->items[i]);

        if (!first || !user || !value_equal(first, user))
            return;
    }
    for (uint32_t i = 0; i < n; i++)
        drop(&view->items[i], user_of(&view->items[i]));
}

static int print_view(const struct options *o, struct value *view)
{
    int r = 0;

    if (o->operand)
        keep_loader(view, o->operand);
    if (o->json)
        return report_json(o, render_json(view));
    drop_only_user(view);
    if (strcmp(o->verb->name, "epochs") == 0)
        r = epochs_table(view);
    if (r == 0)
        r = render_view(stdout, view, o->verb->name);
    return r < 0 ? report_errno(o, r, o->verb->name) : STATUS_DONE;
}

int verb_view(const struct options *o)
{
    _cleanup_(ask_end)
    struct dl_client *client = NULL;
    _cleanup_(value_deinit)
    struct value view = {0};
    int r = ask_connect(o, &client);

    if (r == 0)
        r = ask_view(client, o->verb->name, &view);
    return r < 0 ? report_client(o, client, r) : print_view(o, &view);
}

int verb_control(const struct options *o)
{
    _cleanup_(ask_end)
    struct dl_client *client = NULL;
    int r = ask_connect(o, &client);

    if (r == 0)
        r = dl_client_control(client, o->verb->name);
    if (r < 0)
        return report_client(o, client, r);
    if (o->json)
        return report_json(o, json_pack("{s:s, s:b}", "verb", o->verb->name, "done", 1));
    printf("%s: done\n", o->verb->name);
    return STATUS_DONE;
}
