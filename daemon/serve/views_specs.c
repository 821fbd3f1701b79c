/* The view `specs`: what loaders were opened with, for users who may see it. */
#include "daemon/serve/views_private.h"

#include "daemon/serve/registry.h"
#include "proto/limits.h"
#include "proto/shared/value_json.h"

#include <errno.h>

/* Paths and arguments are private to the user; root and the daemon's own user can read them
 * anyway. */
static bool views_specs_may_see(const struct loader *l, uid_t uid)
{
    return uid == loader_uid(l) || uid == 0 || uid == geteuid();
}

/* The canonical form as JSON, with the seed in use, even if it was drawn. */
static int views_specs_write(const struct dl_spec *spec, struct dl_buffer *ret)
{
    _cleanup_(value_deinit) struct value v = {0};
    int r = spec_to_value(spec, &v);

    if (r == 0)
        r = value_set_uint(&v, "seed", spec->seed);
    if (r == 0)
        r = value_json_write(&v, ret);
    return r < 0 ? r : buffer_append(ret, "", 1);
}

static int views_specs_add(const struct loader *l, uid_t uid, struct value *rows)
{
    struct row row = row_push(rows);
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};
    const char *why = views_specs_may_see(l, uid) ? NULL : "another user's";

    row_string(&row, "loader", views_name(l));
    row_uint(&row, "uid", loader_uid(l));
    if (!why && views_specs_write(loader_spec(l), &text) < 0)
        return -ENOMEM;
    if (text.len > DL_MAX_SPEC_TEXT)
        why = "too long";
    row_string(&row, "spec", why ? NULL : (const char *)text.data);
    row_string(&row, "why_not", why);
    return row.r;
}

int view_specs(const struct daemon *d, uid_t uid, struct value *ret)
{
    int r = 0;

    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e && r == 0; e = registered_next(e))
        r = views_specs_add(registered_loader(e), uid, ret);
    return r;
}
