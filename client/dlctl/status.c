/* The verb status: of the daemon, or of all that there are to be asked. */
#include "client/dlctl/ask.h"
#include "client/dlctl/find.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/shape.h"
#include "client/dlctl/text.h"

#include <errno.h>
#include <inttypes.h>

enum { STATUS_INDENT = 2 };

/* What one daemon answers; `why` is filled where it does not. */
struct answer {
    struct value view;
    char why[DL_ERROR_MESSAGE_MAX];
};

static void status_ask(const struct found *one, struct answer *ret)
{
    struct options at = {.socket = one->socket};
    _cleanup_(ask_end) struct dl_client *client = NULL;
    int r = ask_connect(&at, &client);

    if (r == 0)
        r = ask_view(client, "status", &ret->view);
    if (r < 0)
        snprintf(ret->why, sizeof ret->why, "%s",
                 client && *dl_client_error(client) ? dl_client_error(client) : strerror(-r));
}

static uint64_t status_count(const struct answer *answer, const char *key)
{
    return value_count(value_get(&answer->view, key));
}

static int status_print_verdicts(const struct options *o, struct answer *answer)
{
    const struct value *verdicts;
    struct table_style style;
    int r = shape_view("status", &answer->view, &style);

    style.width = o->wide ? 0 : text_screen_width();
    verdicts = value_get(&answer->view, "verdicts");
    return r == 0 && verdicts && table_fits(verdicts)
               ? table_print(stdout, verdicts, &style, STATUS_INDENT)
               : r;
}

/* "train.py, pid 19193: up 6.5 s, 2 loaders, 3 workers, 5.7 MiB" and its loaders. */
static int status_print_one(const struct options *o, const struct found *one, struct answer *answer)
{
    char up[UNITS_MAX], memory[UNITS_MAX];
    uint64_t pid = one->pid ? one->pid : status_count(answer, "pid");

    text_put(stdout, one->private ? *one->program ? one->program : one->socket : "service");
    if (pid)
        printf(", pid %" PRIu64, pid);
    if (*answer->why) {
        printf(": %s\n", answer->why);
        return 0;
    }
    format_seconds(value_real(value_get(&answer->view, "uptime_s")), up, sizeof up);
    format_bytes((double)status_count(answer, "memory_bytes"), memory, sizeof memory);
    printf(": up %s, loaders %" PRIu64 ", workers %" PRIu64 ", %s\n", up,
           status_count(answer, "loaders"), status_count(answer, "workers"), memory);
    return status_print_verdicts(o, answer);
}

/* The daemon's own answer, and whose it is. */
static json_t *status_json_one(const struct found *one, const struct answer *answer)
{
    json_t *json = *answer->why ? json_pack("{s:o}", "failure", render_json_text(answer->why))
                                : render_json(&answer->view);
    json_t *program = one->private ? render_json_text(one->program) : json_null();

    if (!json || json_object_set_new(json, "program", program) < 0 ||
        json_object_set_new(json, "program_pid",
                            one->pid ? render_json_u64(one->pid) : json_null()) < 0 ||
        json_object_set_new(json, "socket", render_json_text(one->socket)) < 0) {
        json_decref(json);
        return NULL;
    }
    return json;
}

static int status_show_all(const struct options *o, const struct found_all *found)
{
    json_t *all = json_array();
    int r = 0;

    for (size_t i = 0; i < found->n && r == 0; i++) {
        struct answer answer = {0};

        status_ask(&found->all[i], &answer);
        if (o->json)
            r = json_array_append_new(all, status_json_one(&found->all[i], &answer)) < 0 ? -ENOMEM
                                                                                         : 0;
        else
            r = status_print_one(o, &found->all[i], &answer);
        value_deinit(&answer.view);
    }
    if (r == 0 && o->json)
        return report_json(o, all);
    json_decref(all);
    if (r < 0)
        return report_errno(o, r, o->verb->name);
    printf("\nOne of them: --socket with its pid, or with the name of its script.\n");
    return STATUS_DONE;
}

int verb_status(const struct options *o)
{
    _cleanup_(found_deinit) struct found_all found = {0};

    if (!find_is_open(o))
        return verb_view(o);
    if (find_daemons(&found) < 0)
        return report_errno(o, -ENOMEM, o->verb->name);
    return found.n < 2 ? verb_view(o) : status_show_all(o, &found);
}
