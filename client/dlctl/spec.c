/* The verb that prints what a loader was opened with; and what `report` has of that: see spec.h. */
#include "client/dlctl/spec.h"

#include "client/dlctl/ask.h"
#include "client/dlctl/options.h"
#include "client/dlctl/report.h"
#include "proto/common/fd_io.h"
#include "proto/limits.h"
#include "proto/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

int spec_read_file(const char *path, struct value *ret, struct dl_error *err)
{
    _cleanup_free_ char *text = malloc(DL_MAX_SPEC_TEXT + 1);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (fd < 0)
        return dl_error_set(err, errno, path, "%s", strerror(errno));
    if (!text)
        return dl_error_set(err, ENOMEM, path, "%s", strerror(ENOMEM));
    int64_t len = fd_read_all(fd, text, DL_MAX_SPEC_TEXT + 1);
    if (len < 0)
        return dl_error_set(err, (int)-len, path, "%s", strerror((int)-len));
    if ((uint64_t)len > DL_MAX_SPEC_TEXT)
        return dl_error_set(err, EFBIG, path, "a loader spec has at most %" PRIu64 " bytes",
                            DL_MAX_SPEC_TEXT);
    return yaml_parse(text, (size_t)len, path, ret, err);
}

static const char *spec_row_text(const struct value *row, const char *key)
{
    const struct value *v = value_get(row, key);

    return v && v->type == VALUE_STRING ? v->string : "";
}

const struct value *spec_find_row(const struct value *view, const char *key, const char *name)
{
    const struct value *found = NULL;

    for (uint32_t i = 0; view->type == VALUE_ARRAY && i < view->count; i++) {
        const struct value *row = &view->items[i];

        if (strcmp(spec_row_text(row, key), name) != 0)
            continue;
        if (value_count(value_get(row, "uid")) == geteuid())
            return row;
        found = found ? found : row;
    }
    return found;
}

int spec_read_row(const struct value *row, json_t **ret)
{
    const char *text = spec_row_text(row, "spec"), *why = spec_row_text(row, "why_not");
    json_error_t error;

    if (*why)
        return strcmp(why, "too long") == 0 ? -EFBIG : -EACCES;
    *ret = json_loads(text, 0, &error);
    if (*ret)
        return 0;
    return json_error_code(&error) == json_error_out_of_memory ? -ENOMEM : -EBADMSG;
}

static int spec_say_why_not(const struct options *o, int r)
{
    struct dl_error err = {0};

    dl_error_set(&err, -r, o->operand, "%s",
                 r == -EACCES   ? "the loader is another user's: only they, root and the daemon's "
                                  "own user see its spec"
                 : r == -EFBIG  ? "its spec is too long to be shown"
                 : r == -ENOENT ? "no loader of that name is open; see dlctl loaders"
                 : r == -ENOMEM ? "out of memory"
                                : "the daemon's answer is malformed");
    return report_error(o, &err);
}

int verb_spec(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    _cleanup_(value_deinit) struct value view = {0};
    json_t *spec = NULL;
    int r = ask_connect(o, &client);

    if (r == 0)
        r = ask_view(client, "specs", &view);
    if (r < 0)
        return report_client(o, client, r);
    const struct value *row = spec_find_row(&view, "loader", o->operand);
    r = row ? spec_read_row(row, &spec) : -ENOENT;
    if (r < 0)
        return spec_say_why_not(o, r);
    if (o->json)
        return report_json(o, spec);
    /* To a terminal goes no character that it might take for an order. */
    json_dumpf(spec, stdout, JSON_INDENT(2) | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0));
    fputc('\n', stdout);
    json_decref(spec);
    return STATUS_DONE;
}
