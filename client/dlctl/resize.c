/* `dlctl resize`: another number of workers of a running loader; `dlctl why`: the reason for its
 * number, or that it waits.
 */
#include "client/dlctl/ask.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/text.h"
#include "proto/common/figures.h"
#include "proto/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void resize_print_text(const struct value *view)
{
    const struct value *name = value_get(view, "loader"), *automatic = value_get(view, "automatic");
    unsigned long long before = (ull)value_count(value_get(view, "before"));
    unsigned long long now = (ull)value_count(value_get(view, "workers"));

    printf("%s: %llu worker%s, ", name && name->type == VALUE_STRING ? name->string : "", now,
           now == 1 ? "" : "s");
    if (automatic && automatic->boolean)
        printf("and from now on as many as the daemon finds useful\n");
    else
        printf("before %llu\n", before);
}

static int resize_read_workers(const char *text, uint32_t *ret, struct dl_error *err)
{
    char *end = NULL;
    unsigned long n = text && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;

    if (!text || (strcmp(text, "auto") != 0 && (n < 1 || n > DL_MAX_WORKERS || *end)))
        return dl_error_set(err, EINVAL, "--workers", "%s: write a number from 1 to %llu, or auto",
                            text ? text : "it is missing", (ull)DL_MAX_WORKERS);
    *ret = (uint32_t)n;
    return 0;
}

int verb_resize(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    struct dl_error err = {0};
    const void *data = NULL;
    uint32_t workers = 0;
    size_t len = 0;

    if (resize_read_workers(o->workers, &workers, &err) < 0) {
        report_error(o, &err);
        return STATUS_USAGE;
    }
    int r = ask_connect(o, &client);
    if (r == 0)
        r = dl_client_resize(client, o->operand, workers, &data, &len);
    return ask_show(o, client, r, (struct dl_span){data, len}, resize_print_text);
}

/* ---- why ------------------------------------------------------------------------------------- */

static void resize_print_words(const char *what, const struct value *row, const char *key)
{
    const struct value *words = value_get(row, key);

    if (words && words->type == VALUE_STRING) {
        printf("%-8s ", what);
        text_wrap(stdout, words->string, 9, 9, TEXT_WIDTH);
    }
}

/* It is not open yet, as there is no room for it. False: nobody waits for one of that name. */
static bool resize_show_waiting(const struct options *o, struct dl_client *client)
{
    _cleanup_(value_deinit) struct value view = {0};
    bool any = false;

    if (o->json || ask_view(client, "sessions", &view) < 0)
        return false;
    for (uint32_t i = 0; i < view.count; i++) {
        const struct value *row = &view.items[i], *name = value_get(row, "opens");
        char since[UNITS_MAX];

        if (!name || name->type != VALUE_STRING || strcmp(name->string, o->operand) != 0)
            continue;
        format_seconds(value_real(value_get(row, "waits_s")), since, sizeof since);
        printf("opening  waits for room, for %s so far\n", since);
        resize_print_words("why", row, "waits_why");
        any = true;
    }
    return any;
}

static int resize_show_why(const struct options *o, struct dl_client *client, struct value *view)
{
    const struct value *uid;

    ask_keep_loader(view, "name", o->operand, NULL);
    if (o->json)
        return report_json(o, render_json(view));
    if (view->count == 0 && resize_show_waiting(o, client))
        return STATUS_DONE;
    if (view->count == 0)
        return report_error(
            o, &(struct dl_error){.code = ENOENT, .message = "no such loader; see dlctl loaders"});
    for (uint32_t i = 0; i < view->count; i++) {
        const struct value *row = &view->items[i];

        if (view->count > 1 && (uid = value_get(row, "uid")))
            printf("uid      %llu\n", (ull)value_count(uid));
        resize_print_words("speed", row, "verdict");
        resize_print_words("workers", row, "sized");
    }
    return STATUS_DONE;
}

int verb_why(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    _cleanup_(value_deinit) struct value view = {0};
    int r = ask_connect(o, &client);

    if (r == 0)
        r = ask_view(client, "loaders", &view);
    return r < 0 ? report_client(o, client, r) : resize_show_why(o, client, &view);
}
