/* Who may have the daemon run and read what: each way of asking for each thing. */
#include "daemon/base/rights.h"
#include "tests/lib/harness.h"

#include <errno.h>
#include <stdio.h>

enum { OWN = 1000, OTHER = 1001, ROOT = 0 };

static char *objects[] = {(char *)"site.data:Set", (char *)"site.data:collate"};
static char *plugins[] = {(char *)"/usr/lib/site.so"};
static char *roots[] = {(char *)"/srv"};
static char *dirs[] = {(char *)"/usr/lib"};
static char *interpreters[] = {(char *)"/usr/bin/python3"};

/* What an administrator gives; it lists the directory of plug-ins and an interpreter, too. */
static const struct config listing = {
    .data_roots = {.paths = roots, .n = 1},
    .plugins = {.paths = dirs, .n = 1},
    .python = {.paths = interpreters, .n = 1},
    .site = {.objects = {.paths = objects, .n = 2}, .plugins = {.paths = plugins, .n = 1}}};
static const struct config nothing = {0};

/* ---- what is asked for ---------------------------------------------------------------------- */

static struct spec_file file = {.path = (char *)"/srv/x"};
static struct spec_file listed_plugin = {.path = (char *)"/usr/lib/site.so"};
static struct spec_file below_plugins = {.path = (char *)"/usr/lib/mine.so"};
static struct spec_file other_plugin = {.path = (char *)"/home/me/mine.so"};
static struct spec_file its_interpreter = {.path = (char *)"/usr/bin/python3"};
static struct spec_file interpreter = {.path = (char *)"/home/me/python3"};

static struct spec_dataset dataset(enum dataset_kind kind, struct spec_file *files)
{
    return (struct spec_dataset){.kind = kind, .files = files, .n_files = files != NULL};
}

static struct spec_dataset object(const char *name, struct spec_file *files)
{
    struct spec_dataset made = dataset(DATASET_PYTHON, files);

    made.object = (char *)name;
    return made;
}

enum thing {
    RANGE,
    FILES,
    OBJECT_LISTED,
    OBJECT_OTHER,
    OBJECT_LIKE_LISTED,
    OBJECT_INSIDE,
    INTERPRETER_ITS_OWN,
    INTERPRETER_NAMED,
    PLUGIN_LISTED,
    PLUGIN_BELOW,
    PLUGIN_ELSEWHERE,
    COLLATE_LISTED,
    COLLATE_OTHER,
    COLLATE_PLUGIN_LISTED,
    COLLATE_PLUGIN_OTHER,
    TEMPLATE,
    HOST,
    HOST_AND_FILES,
    THINGS
};

static struct spec_dataset parts[2];

/* In a part of a concat. */
static struct spec_dataset joined(struct spec_dataset first, struct spec_dataset second)
{
    parts[0] = first;
    parts[1] = second;
    return (struct spec_dataset){.kind = DATASET_CONCAT, .datasets = parts, .n_datasets = 2};
}

static struct spec_dataset hosted(void)
{
    return (struct spec_dataset){.kind = DATASET_PYTHON, .host = 7};
}

static struct spec_dataset make_dataset(enum thing thing)
{
    switch (thing) {
    case FILES:
        return dataset(DATASET_NPY, &file);
    case OBJECT_OTHER:
        return object("builtins:eval", NULL);
    case OBJECT_LIKE_LISTED:
        return object("site.data:Set.mro", NULL);
    case OBJECT_INSIDE:
        return joined(dataset(DATASET_NPY, &file), object("os:system", NULL));
    case INTERPRETER_ITS_OWN:
        return object("site.data:Set", &its_interpreter);
    case INTERPRETER_NAMED:
        return object("site.data:Set", &interpreter);
    case PLUGIN_LISTED:
        return dataset(DATASET_PLUGIN, &listed_plugin);
    case PLUGIN_BELOW:
        return dataset(DATASET_PLUGIN, &below_plugins);
    case PLUGIN_ELSEWHERE:
        return dataset(DATASET_PLUGIN, &other_plugin);
    case TEMPLATE:
        return (struct spec_dataset){
            .kind = DATASET_TEXT, .files = &file, .n_files = 1, .chat = CHAT_JINJA2};
    case HOST:
        return hosted();
    case HOST_AND_FILES:
        return joined(dataset(DATASET_NPY, &file), hosted());
    case OBJECT_LISTED:
    case COLLATE_LISTED:
    case COLLATE_OTHER:
        return object("site.data:Set", NULL);
    default:
        return dataset(DATASET_RANGE, NULL);
    }
}

static struct spec_collate make_collate(enum thing thing)
{
    switch (thing) {
    case COLLATE_LISTED:
        return (struct spec_collate){.kind = COLLATE_PYTHON, .object = (char *)"site.data:collate"};
    case COLLATE_OTHER:
        return (struct spec_collate){.kind = COLLATE_PYTHON, .object = (char *)"pickle:loads"};
    case COLLATE_PLUGIN_LISTED:
        return (struct spec_collate){.kind = COLLATE_PLUGIN, .path = (char *)"/usr/lib/site.so"};
    case COLLATE_PLUGIN_OTHER:
        return (struct spec_collate){.kind = COLLATE_PLUGIN, .path = (char *)"/usr/lib/mine.so"};
    default:
        return (struct spec_collate){.kind = COLLATE_DEFAULT};
    }
}

/* ---- who is answered how -------------------------------------------------------------------- */

static const struct {
    enum thing thing;
    bool listing;   /* to other users, by a daemon that is not private, with `site` and roots */
    bool unlisting; /* without */
    const char *place;
} rows[] = {
    {RANGE, true, true, NULL},
    {FILES, true, false, "dataset.kind"},
    {OBJECT_LISTED, true, false, "dataset.object"},
    {OBJECT_OTHER, false, false, "dataset.object"},
    {OBJECT_LIKE_LISTED, false, false, "dataset.object"},
    {OBJECT_INSIDE, false, false, NULL}, /* which of its parts is refused depends */
    {INTERPRETER_ITS_OWN, true, false, "dataset.object"},
    {INTERPRETER_NAMED, false, false, "dataset.interpreter"},
    {PLUGIN_LISTED, true, false, "dataset.path"},
    {PLUGIN_BELOW, false, false, "dataset.path"},
    {PLUGIN_ELSEWHERE, false, false, "dataset.path"},
    {COLLATE_LISTED, true, false, NULL},
    {COLLATE_OTHER, false, false, NULL},
    {COLLATE_PLUGIN_LISTED, true, false, "collate.path"},
    {COLLATE_PLUGIN_OTHER, false, false, "collate.path"},
    {TEMPLATE, false, false, "dataset.chat"},
    {HOST, true, true, NULL},
    {HOST_AND_FILES, true, true, NULL},
};

static void expect(const struct rights_asker *asker, size_t row, bool allowed)
{
    struct dl_spec spec = {.dataset = make_dataset(rows[row].thing),
                           .collate = make_collate(rows[row].thing)};
    struct dl_error err = {0};
    int r = rights_check(asker, &spec, &err);

    if (r != (allowed ? 0 : -EPERM))
        fail_msg("row %zu, uid %u of %u%s: %d, %s: %s", row, (unsigned)asker->uid,
                 (unsigned)asker->own, asker->private ? ", private" : "", r, err.path, err.message);
    if (allowed)
        return;
    assert_true(strstr(err.message, "start a daemon of your own") != NULL);
    if (rows[row].place && !asker->private)
        assert_string_equal(err.path, rows[row].place);
}

TEST(test_other_users)
{
    static const struct {
        uid_t asks, own;
    } others[] = {{OTHER, OWN}, {ROOT, OWN}, {OTHER, ROOT}};

    assert_int_equal(ARRAY_SIZE(rows), THINGS);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        for (size_t k = 0; k < ARRAY_SIZE(others); k++) {
            struct rights_asker asker = {
                .config = &listing, .uid = others[k].asks, .own = others[k].own};
            assert_true(rights_is_other(&asker));
            expect(&asker, i, rows[i].listing);
            asker.config = &nothing;
            expect(&asker, i, rows[i].unlisting);
            asker.private = true;
            expect(&asker, i, false);
            asker.config = &listing;
            expect(&asker, i, false);
        }
    }
}

/* What its interpreters and directories are, other parts see to. */
TEST(test_its_own_user)
{
    static const uid_t own[] = {OWN, ROOT};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        for (size_t k = 0; k < ARRAY_SIZE(own); k++) {
            struct rights_asker asker = {.config = &nothing, .uid = own[k], .own = own[k]};
            assert_false(rights_is_other(&asker));
            expect(&asker, i, true);
            asker.private = true;
            expect(&asker, i, true);
            asker.config = &listing;
            expect(&asker, i, true);
        }
    }
}
