#include "daemon/serve/core/slow_list.h"

#include <stdio.h>

/* Replicas of an iterable dataset each have a sample of the number: these have names. */
static bool slow_list_is(const struct slow_sample *a, const struct slow_sample *b)
{
    return a->index == b->index && strncmp(a->name, b->name, SLOW_NAME) == 0;
}

static uint32_t slow_list_find(const struct slow_list *list, const struct slow_sample *what)
{
    uint32_t i = 0;

    while (i < list->n && !slow_list_is(&list->rows[i].what, what))
        i++;
    return i;
}

void slow_list_add(struct slow_list *list, const struct slow_sample *what, const char *helper)
{
    uint32_t at = slow_list_find(list, what);
    struct slow_row row = {.what = *what};

    (void)snprintf(row.helper, sizeof row.helper, "%s", helper ? helper : "");
    if (at < list->n) {
        row.seen = list->rows[at].seen;
        if (list->rows[at].what.ns > what->ns)
            row = list->rows[at];
    } else if (list->n < SLOW_LISTED) {
        list->n++;
    } else if (list->rows[--at].what.ns >= what->ns) {
        return;
    }
    row.seen++;
    for (; at > 0 && list->rows[at - 1].what.ns < row.what.ns; at--)
        list->rows[at] = list->rows[at - 1];
    list->rows[at] = row;
}
