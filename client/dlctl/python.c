/*
 * `dlctl peek` and `dlctl replay`: one batch of a loader, which the Python package decodes, shows
 * and writes (dloaderd/_one_batch.py). Here stands what is known before: the daemon, the options,
 * and whether a spec without a seed can be replayed. Then this process becomes that Python.
 */
#include "client/dlclient.h"
#include "client/dlctl/ask.h"
#include "client/dlctl/offline/offline.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/spec.h"
#include "proto/spec.h"

#include <errno.h>
#include <inttypes.h>

/*
 * argv: the folder where the package was installed, or "", and the options as JSON. The current
 * folder is taken off the path first: whatever lies there is no module of ours.
 */
static const char PYTHON_MAIN[] =
    "import sys\n"
    "sys.path = [path for path in sys.path + sys.argv[1:2] if path]\n"
    "import json\n"
    "options = json.loads(sys.argv[2])\n"
    "try:\n"
    "    from dloaderd._one_batch import main\n"
    "except (ImportError, SyntaxError) as error:\n"
    "    text = (f\"dlctl {options['verb']} needs the Python package dloaderd, 3.11 or later and "
    "\"\n"
    "            f\"NumPy, which {sys.executable} does not have: {error}; install python3-dloaderd "
    "\"\n"
    "            \"(Debian), or name another Python in $DLOADER_PYTHON\")\n"
    "    if options['json']:\n"
    "        sys.exit(json.dumps({'error': {'code': 'ENOPKG', 'path': sys.executable,\n"
    "                                       'message': text}}))\n"
    "    sys.exit('dlctl: ' + text)\n"
    "sys.exit(main(options))\n";

static json_t *python_text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

/* A spec that is longer is not handed over: an argument has 128 KiB at most. */
enum { PYTHON_SPEC_MAX = 65536 };

/* What the loader of that name was opened with: a text; null: nobody wants it, or it is not to be
 * had, and what is shown will do without. */
static json_t *python_spec_of(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    _cleanup_(value_deinit) struct value view = {0};
    bool wanted = o->text || o->png || o->html;

    if (!wanted || operand_is_file(o->operand) || ask_connect(o, &client) < 0 ||
        ask_view(client, "specs", &view) < 0)
        return json_null();
    const struct value *row = spec_find_row(&view, "loader", o->operand);
    const struct value *spec = row ? value_get(row, "spec") : NULL;
    bool fits = spec && spec->type == VALUE_STRING && strlen(spec->string) <= PYTHON_SPEC_MAX;
    return fits ? json_string(spec->string) : json_null();
}

/* As `main` of dloaderd/_one_batch.py reads them. NULL: out of memory, or no UTF-8 in them. */
static char *python_options(const struct options *o, bool seeded)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:o, s:b, s:b, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "verb",
        o->verb->name, "operand", o->operand, "spec", python_spec_of(o), "file",
        operand_is_file(o->operand), "seeded", seeded, "socket", python_text_or_null(o->socket),
        "json", o->json, "epoch", render_json_u64(o->epoch), "step", render_json_u64(o->step),
        "rank", render_json_u64(o->rank), "world", render_json_u64(o->world), "indices",
        python_text_or_null(o->indices), "values", render_json_u64(o->values), "output",
        python_text_or_null(o->output), "state", python_text_or_null(o->state), "seed",
        o->has_seed ? render_json_u64(o->seed) : json_null());
    json_t *look = json_pack("{s:o, s:o, s:b, s:o, s:o}", "png", python_text_or_null(o->png),
                             "html", python_text_or_null(o->html), "text", o->text, "sample",
                             o->has_sample ? render_json_u64(o->sample) : json_null(), "draws",
                             render_json_u64(o->draws));
    bool whole = json && look && json_object_update(json, look) == 0;
    char *text = whole ? json_dumps(json, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

    json_decref(look);
    json_decref(json);
    return text;
}

/* `seeded`: the spec says its seed. Returns only on failure. */
static int python_become(const struct options *o, bool seeded)
{
    const char *chosen = getenv("DLOADER_PYTHON");
    const char *python = chosen && *chosen ? chosen : DLOADER_PYTHON;
    _cleanup_free_ char *options = python_options(o, seeded);
    const char *argv[] = {python, "-c", PYTHON_MAIN, DLOADER_PYTHON_PACKAGES, options, NULL};
    struct dl_error err = {0};

    if (!options)
        dl_error_set(&err, EINVAL, o->operand, "a path that is not UTF-8: use another name");
    else if (execvp(python, (char *const *)(uintptr_t)argv) < 0)
        dl_error_set(&err, errno, python,
                     "cannot be started: %s; dlctl %s needs Python with the package dloaderd: "
                     "install python3-dloaderd (Debian), or name another Python in $DLOADER_PYTHON",
                     strerror(errno), o->verb->name);
    return report_error(o, &err);
}

int verb_peek(const struct options *o)
{
    return python_become(o, true);
}

/* ---- the seed of what is to be made once more ----------------------------------------------- */

/* Whether this user has a loader of that name open: 1, 0, or a negative errno, reported. */
static int python_is_open(const struct options *o, const char *name)
{
    struct dl_client *client = NULL;
    struct dl_loader *loader = NULL;
    int r = dl_client_connect(&client, o->socket, "dlctl replay " DLOADER_VERSION);
    bool connected = r == 0;

    if (connected)
        r = open_name(client, name, &loader);
    bool is_open = r == 0;
    if (connected && r == -ENOENT)
        r = 0;
    if (r < 0)
        (void)report_client(o, client, r);
    dl_client_close(client);
    return r < 0 ? r : is_open;
}

/*
 * A spec that says no seed gets a new one drawn when its loader is opened. So it has to be given,
 * or the loader has to be open: this is found out before opening it, since a loader with a new seed
 * would stay for a while under that name. 0, with whether the spec says one; or an exit status.
 */
static int python_check_seed(const struct options *o, bool *ret_seeded)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    struct dl_error err = {0};
    bool drawn;

    if (offline_spec(o, &spec, &drawn, &err) < 0)
        return report_error(o, &err);
    *ret_seeded = !drawn;
    if (!drawn && o->has_seed && o->seed != spec.seed) {
        dl_error_set(&err, EINVAL, "--seed", "%" PRIu64 ", while %s says %" PRIu64, o->seed,
                     o->operand, spec.seed);
        return report_error(o, &err);
    }
    if (!drawn || o->has_seed || o->state)
        return 0;
    int r = spec.name ? python_is_open(o, spec.name) : 0;
    if (r != 0)
        return r < 0 ? STATUS_FAILED : 0;
    dl_error_set(&err, EINVAL, "seed",
                 "%s has none, and its loader is not open: a new random seed would give other "
                 "batches; give the original one: --seed N (dlctl run, loaders and state show "
                 "it)",
                 o->operand);
    return report_error(o, &err);
}

int verb_replay(const struct options *o)
{
    bool seeded = true;
    int status = 0;

    if (operand_is_file(o->operand)) {
        status = python_check_seed(o, &seeded);
    } else if (o->has_seed) {
        struct dl_error err = {0};

        dl_error_set(&err, EINVAL, "--seed",
                     "%" PRIu64
                     " given with the name of an open loader, which has its own seed; leave it out",
                     o->seed);
        status = report_error(o, &err);
    }
    return status ? status : python_become(o, seeded);
}
