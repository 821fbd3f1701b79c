/* The view `slowest`: samples that took longest to make. */
#include "daemon/serve/views_private.h"

#include "daemon/serve/registry.h"

/* Why a sample's name is missing. */
static const char *views_slowest_why(const struct loader *l)
{
    switch (loader_spec(l)->dataset.kind) {
    case DATASET_PYTHON:
        return "the Python dataset has neither sample_name(index) nor samples[index] with a path";
    case DATASET_PLUGIN:
        return "a plug-in gives no names";
    case DATASET_RANGE:
        return "it is a number, not part of a file";
    default:
        return "its dataset gives no names";
    }
}

static int views_slowest_add(const struct loader *l, const struct slow_row *slow,
                             struct value *rows)
{
    struct row row = row_push(rows);

    row_string(&row, "loader", views_name(l));
    row_uint(&row, "uid", loader_uid(l));
    row_uint(&row, "sample", slow->what.index);
    row_uint(&row, "together", max_u64(slow->what.together, 1));
    row_string(&row, "name", *slow->what.name ? slow->what.name : NULL);
    row_string(&row, "why_not", *slow->what.name ? NULL : views_slowest_why(l));
    row_seconds(&row, "took_s", slow->what.ns);
    row_string(&row, "helper", *slow->helper ? slow->helper : NULL);
    row_uint(&row, "epoch", slow->what.epoch);
    row_uint(&row, "seen", slow->seen);
    return row.r;
}

int view_slowest(const struct daemon *d, struct value *ret)
{
    int r = 0;

    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct slow_list *list = loader_slowest(registered_loader(e));

        for (uint32_t i = 0; i < list->n && r == 0; i++)
            r = views_slowest_add(registered_loader(e), &list->rows[i], ret);
    }
    return r;
}
