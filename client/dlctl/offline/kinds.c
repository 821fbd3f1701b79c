/* dlctl kinds: which kinds of dataset this installation reads, and what of them it cannot. */
#include "client/dlctl/form.h"
#include "client/dlctl/offline/offline.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/table.h"
#include "client/dlctl/text.h"
#include "daemon/data/kinds/kind_lacks.h"

#include <errno.h>

static int kinds_fill(struct value *map)
{
    int error = 0;
    struct form form = {.map = map, .error = &error};
    size_t n;
    const struct kind_entry *entries = kind_entries(&n);
    struct value *rows = form_array(&form, "kinds");

    for (size_t i = 0; i < n; i++) {
        struct form row = form_row(&form, rows);
        struct kind_lacks lacks;
        form_text(&row, "kind", entries[i].name);
        form_text(&row, "style", entries[i].style);
        form_text(&row, "reads", entries[i].reads);
        if (data_kind_lacks(entries[i].kind, &lacks))
            form_text(&row, "without", lacks.text);
        else
            (void)form_null(&row, "without");
    }
    return error;
}

int verb_kinds(const struct options *o)
{
    _cleanup_(value_deinit) struct value map = {.type = VALUE_MAP};
    struct table_style style = {
        .keys = "kind style reads without", .below = "without", .width = TEXT_WIDTH};
    int r = kinds_fill(&map);

    if (r < 0)
        return report_errno(o, r, "");
    if (o->json)
        return report_json(o, render_json(&map));
    r = table_print(stdout, value_get(&map, "kinds"), &style, 0);
    return r < 0 ? report_errno(o, r, "") : report_flush(o, STATUS_DONE);
}
