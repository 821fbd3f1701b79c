/* Errors and results on the two standard streams: see report.h. */
#include "client/dlctl/report.h"

#include "client/dlclient.h"
#include "client/dlctl/render.h"
#include "proto/common/library.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static void report_print_json_line(FILE *file, json_t *json)
{
    json_dumpf(json, file, JSON_COMPACT | JSON_REAL_PRECISION(15));
    fputc('\n', file);
}

/* The lines of a report, which begin after the one for programs; no control characters. */
static void report_print_detail(const char *detail)
{
    const char *text = strchr(detail, '\n');

    if (!text)
        return;
    for (text++; *text; text++) {
        bool c1 = (uint8_t)text[0] == 0xC2 && (uint8_t)text[1] >= 0x80 && (uint8_t)text[1] < 0xA0;
        bool c0 = ((uint8_t)*text < 0x20 && *text != '\n' && *text != '\t') || *text == 0x7F;

        fputc(c0 || c1 ? '?' : *text, stderr);
        text += c1;
    }
    if (text[-1] != '\n')
        fputc('\n', stderr);
}

static json_t *report_error_json(const struct dl_error *err, const char *detail)
{
    const char *name = library_errno_name(err->code);
    json_t *json =
        json_pack("{s:s, s:o, s:o}", "code", name ? name : "UNKNOWN", "path",
                  render_json_text(err->path), "message", render_json_text(err->message));

    if (json && *detail && json_object_set_new(json, "detail", render_json_text(detail)) < 0) {
        json_decref(json);
        return NULL;
    }
    return json ? json_pack("{s:o}", "error", json) : NULL;
}

/* `detail`: the whole report, or "". */
static int report_whole(const struct options *o, const struct dl_error *err, const char *detail)
{
    json_t *json = o->json ? report_error_json(err, detail) : NULL;

    if (json) {
        report_print_json_line(stderr, json);
        json_decref(json);
        return STATUS_FAILED;
    }
    fprintf(stderr, "dlctl: %s%s%s\n", err->path, *err->path ? ": " : "", err->message);
    report_print_detail(detail);
    return STATUS_FAILED;
}

int report_error(const struct options *o, const struct dl_error *err)
{
    return report_whole(o, err, "");
}

int report_errno(const struct options *o, int code, const char *path)
{
    struct dl_error err = {0};

    dl_error_set(&err, -code, path, "%s", strerror(-code));
    return report_error(o, &err);
}

int report_client(const struct options *o, const struct dl_client *client, int code)
{
    const char *text = client ? dl_client_error(client) : "";
    const char *path = client ? dl_client_error_path(client) : "";
    size_t len = strlen(path);
    struct dl_error err = {0};

    /* The library's text begins with the path; here they stand apart. */
    if (len && strncmp(text, path, len) == 0 && strncmp(text + len, ": ", 2) == 0)
        text += len + 2;
    dl_error_set(&err, -code, path, "%s",
                 *text              ? text
                 : code == -EBADMSG ? "the daemon's answer is malformed"
                                    : strerror(-code));
    return report_whole(o, &err, client ? dl_client_error_detail(client) : "");
}

void report_warning(const struct options *o, const char *message)
{
    json_t *json =
        o->json ? json_pack("{s:{s:o}}", "warning", "message", render_json_text(message)) : NULL;

    if (json)
        report_print_json_line(stderr, json);
    else
        fprintf(stderr, "dlctl: warning: %s\n", message);
    json_decref(json);
}

int report_json(const struct options *o, json_t *json)
{
    if (!json)
        return report_errno(o, -ENOMEM, "");
    report_print_json_line(stdout, json);
    json_decref(json);
    return STATUS_DONE;
}

int report_flush_file(FILE *file)
{
    bool lost = ferror(file);

    errno = 0;
    /* Why a write failed stdio has not kept: one more fails for the same reason. */
    if ((lost && fputc('\n', file) == EOF) || fflush(file) == EOF)
        return errno ? -errno : -EIO;
    return lost ? -EIO : 0;
}

int report_flush(const struct options *o, int status)
{
    int r = report_flush_file(stdout);

    return status == STATUS_DONE && r < 0 ? report_errno(o, r, "standard output") : status;
}

void report_seed(const struct options *o, uint64_t seed)
{
    if (o->json)
        fprintf(stderr, "{\"note\":{\"seed\":%" PRIu64 "}}\n", seed);
    else
        fprintf(stderr, "dlctl: seed: drawn: %" PRIu64 "; put it into the spec to repeat this\n",
                seed);
}
