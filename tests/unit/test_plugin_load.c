/* Which plug-ins are loaded, from where, and what they are opened with. */
#include "daemon/data/plugin/plugin_private.h"
#include "tests/unit/plugins.h"

#include <errno.h>
#include <math.h>

/* ---- tables --------------------------------------------------------------------------------- */

static void expect_refused(const char *table, const char *mode, int code, const char *message)
{
    struct data_env env = plugin_env();
    struct dataset *ds = NULL;
    struct dl_error err = {0};
    int r = try_open(table, mode, &env, &ds, &err);

    if (r != -code)
        fail_msg("%s, %s: %d, %s", table, mode, r, err.message);
    assert_null(ds);
    assert_error(&err, code, bad_plugin(), message);
}

static const struct {
    const char *table;
    const char *message;
} refused_tables[] = {
    {"both", "has both get() and iterate(); a dataset is either map-style or iterable"},
    {"neither", "has neither get() nor iterate(), so it is not a dataset"},
    {"collate", "has neither get() nor iterate(), so it is not a dataset; it collates: name it "
                "in collate.path"},
    {"no open", "its table lacks the function open()"},
    {"no length", "its table lacks the function length()"},
    {"no next", "its table lacks the function next()"},
    {"no iter_close", "its table lacks the function iter_close()"},
    {"no load_state", "its table lacks the function load_state()"},
    {"no save_state", "its table lacks the function save_state()"},
    {"abi 2", "was built for version 2 of the plug-in interface, and this is version 1; build it "
              "with this dloaderd's <dloader-plugin.h>"},
    {"too small", "declares a table of 16 bytes instead of 96 or more; set .size = "
                  "sizeof(struct dl_plugin)"},
    {"too large", "declares a table of 4294967295 bytes instead of 96 or more; set .size = "
                  "sizeof(struct dl_plugin)"},
    {"later, more",
     "has functions of a later dloaderd; install that release, or build the plug-in with this "
     "one's <dloader-plugin.h>"},
    {"null", "dl_plugin_entry() returns (nil) instead of a table"},
};

TEST(test_refused_tables)
{
    for (size_t i = 0; i < ARRAY_SIZE(refused_tables); i++)
        expect_refused(refused_tables[i].table, "", EINVAL, refused_tables[i].message);
}

TEST(test_a_table_at_an_odd_place)
{
    struct data_env env = plugin_env();
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    assert_int_equal(try_open("odd", "", &env, &ds, &err), -EINVAL);
    assert_error_has(&err, "dl_plugin_entry() returns 0x");
}

/* Built with a later header, but nothing that is new in there is used. */
TEST(test_a_later_plugin)
{
    struct data_env env = plugin_env();
    struct dataset *ds = must_open("later, plain", "", &env);

    assert_int_equal(ds->length, 10);
    dataset_close(ds);
}

TEST(test_failing_open)
{
    expect_refused("map", "open fails", EINVAL, "open(): no such column");
    expect_refused("map", "open silent", ENOENT,
                   "open(): it failed with -2 (No such file or directory) without a message");
    expect_refused("map", "open positive", EPROTO,
                   "open(): it returned 3 instead of 0 or a negative errno");
    expect_refused("map", "length fails", EIO, "length(): the index is broken");
    expect_refused("map", "length 1", EPROTO,
                   "length(): it returned 1 instead of 0 or a negative errno");
    expect_refused("map", "length 2^63", EOVERFLOW,
                   "length(): 9223372036854775808 samples; a dataset has fewer than 2^63");
    expect_refused("map", "length unknown", EOVERFLOW,
                   "length(): 18446744073709551615 samples; a dataset has fewer than 2^63");
    expect_refused("iter, length", "length 2^63", EOVERFLOW,
                   "length(): 9223372036854775808 samples; a dataset has fewer than 2^63");
}

TEST(test_no_collate_function)
{
    struct data_env env = plugin_env();
    struct spec_collate spec = {.kind = COLLATE_PLUGIN, .path = (char *)(uintptr_t)bad_plugin()};
    struct plugin_collate *collate = NULL;
    struct dl_error err = {0};

    assert_int_equal(setenv("PLUGIN_TABLE", "iter", 1), 0);
    assert_int_equal(plugin_collate_open(&spec, &env, &collate, &err), -EINVAL);
    assert_error(&err, EINVAL, bad_plugin(), "its table lacks the function collate()");
    assert_null(collate);
    spec.path = NULL;
    assert_int_equal(plugin_collate_open(&spec, &env, &collate, &err), -EINVAL);
    assert_error(&err, EINVAL, "", "is not the absolute path of a plug-in");
}

/* ---- where it lies -------------------------------------------------------------------------- */

static int open_at(const char *path, const struct data_env *env, struct dl_error *err)
{
    struct spec_file file = {.path = (char *)(uintptr_t)path};
    struct spec_dataset spec = {.kind = DATASET_PLUGIN, .files = &file, .n_files = 1};
    struct dataset *ds = NULL;

    assert_int_equal(setenv("PLUGIN_TABLE", "map", 1), 0);
    *err = (struct dl_error){0};
    int r = dataset_open(&spec, env, &ds, err);
    assert_true((r == 0) == (ds != NULL));
    dataset_close(ds);
    return r;
}

static void expect_refused_at(const char *path, const struct data_env *env, int code,
                              const char *part)
{
    struct dl_error err;

    if (open_at(path, env, &err) != -code)
        fail_msg("%s: %d, %s", path, err.code, err.message);
    assert_string_equal(err.path, path);
    assert_error_has(&err, part);
}

static void expect_loaded(const char *path, const struct data_env *env)
{
    struct dl_error err;

    if (open_at(path, env, &err) < 0)
        fail_msg("%s: %s", path, err.message);
}

static void make_dir(const char *path, mode_t mode)
{
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, mode), 0);
}

TEST(test_nowhere)
{
    struct data_env env = {0};

    expect_refused_at(bad_plugin(), &env, EACCES,
                      "this daemon may load no plug-ins; have its directory added to plugins in "
                      "dloaderd.conf");
    expect_refused_at("relative.so", &env, EINVAL, "is not the absolute path of a plug-in");
}

TEST(test_places)
{
    _cleanup_free_ char *none = strdup(harness_below("none"));
    _cleanup_free_ char *allowed = strdup(harness_below("allowed"));
    char *dirs[2] = {none, allowed};
    struct data_env env = {.plugins = dirs, .n_plugins = 2};
    char root[] = "/", *anywhere_dir[1] = {root};
    struct data_env all = {.plugins = anywhere_dir, .n_plugins = 1};

    make_dir(harness_below("allowed"), 0755);
    make_dir(harness_below("allowed too"), 0755);
    copy_plugin(BAD_PLUGIN, "allowed/in.so", 0644);
    copy_plugin(BAD_PLUGIN, "allowed too/out.so", 0644);
    assert_int_equal(symlink("../allowed too/out.so", harness_below("allowed/leads out.so")), 0);
    assert_int_equal(symlink("allowed/in.so", harness_below("leads in.so")), 0);

    expect_loaded(harness_below("allowed/in.so"), &env);
    expect_loaded(harness_below("allowed/../allowed//in.so"), &env);
    expect_loaded(harness_below("leads in.so"), &env);
    expect_loaded(harness_below("allowed too/out.so"), &all);
    expect_refused_at(harness_below("allowed too/out.so"), &env, EACCES,
                      "lies outside the daemon's plugins");
    expect_refused_at(harness_below("allowed/leads out.so"), &env, EACCES,
                      "too/out.so, outside the daemon");
    expect_refused_at(harness_below("allowed/../allowed too/out.so"), &env, EACCES,
                      "too/out.so, outside the daemon");
    expect_refused_at(harness_below("allowed/none.so"), &env, ENOENT,
                      "the plug-in cannot be found: No such file or directory");
    /* Nobody learns what there is elsewhere. */
    expect_refused_at("/no/such.so", &env, EACCES, "lies outside the daemon's plugins");
    expect_refused_at(harness_below("allowed/../no/such.so"), &env, EACCES,
                      "lies outside the daemon's plugins");
}

TEST(test_who_may_write)
{
    static const struct {
        mode_t dir, file;
        const char *message; /* NULL: loaded */
    } cases[] = {
        {0755, 0755, NULL},
        {0700, 0600, NULL},
        {01777, 0644, NULL},
        {0755, 0664,
         "its group or others may write to it (mode 0664), so that anyone's code "
         "could run; chmod go-w it"},
        {0755, 0646, "its group or others may write to it (mode 0646)"},
        {0775, 0644, "(mode 0775), so that anyone's code could run; chmod go-w it"},
        {0757, 0644, "its group or others may write to the directory "},
    };
    struct data_env env = plugin_env();

    make_dir(harness_below("dir"), 0755);
    make_dir(harness_below("dir/inner"), 0755);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct dl_error err;
        const char *path = copy_plugin(BAD_PLUGIN, "dir/inner/p.so", cases[i].file);
        assert_int_equal(chmod(harness_below("dir"), cases[i].dir), 0);
        if (cases[i].message)
            expect_refused_at(path, &env, EPERM, cases[i].message);
        else if (open_at(path, &env, &err) < 0)
            fail_msg("%o %o: %s", cases[i].dir, cases[i].file, err.message);
    }
    /* Above the directory that is allowed, it is its admin's affair. */
    char *dirs[1] = {(char *)(uintptr_t)harness_below("dir/inner")};
    env.plugins = dirs;
    expect_loaded(harness_below("dir/inner/p.so"), &env);
    assert_int_equal(chmod(harness_below("dir/inner"), 0777), 0);
    expect_refused_at(harness_below("dir/inner/p.so"), &env, EPERM, "inner (mode 0777)");
}

TEST(test_whose_it_is)
{
    struct data_env env = plugin_env();
    const char *path = copy_plugin(BAD_PLUGIN, "theirs.so", 0644);

    if (geteuid() != 0)
        return; /* it gives nothing away */
    assert_int_equal(chown(path, 12345, 0), 0);
    expect_refused_at(path, &env, EPERM,
                      "belongs to user 12345; it must belong to root or to user 0, who runs it");
}

TEST(test_what_is_no_plugin)
{
    struct data_env env = plugin_env();
    const char *fifo = harness_below("fifo"), *dir = harness_below("a directory");

    assert_int_equal(mkfifo(fifo, 0600), 0);
    make_dir(dir, 0755);
    expect_refused_at(fifo, &env, EINVAL, "is not a file; name the plug-in's shared library");
    expect_refused_at(dir, &env, EINVAL, "is not a file");
    const char *text = harness_file("text.so", "just text", 9);
    assert_int_equal(chmod(text, 0644), 0);
    expect_refused_at(text, &env, EINVAL, "cannot be loaded as a plug-in: file too short");
    expect_refused_at(copy_plugin(NO_PLUGIN, "none.so", 0644), &env, EINVAL,
                      "undefined symbol: dl_plugin_entry");
}

TEST(test_one_path)
{
    struct data_env env = plugin_env();
    struct spec_file files[2] = {{.path = (char *)(uintptr_t)bad_plugin()}};
    struct spec_dataset spec = {.kind = DATASET_PLUGIN, .files = files, .n_files = 2};
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    assert_int_equal(dataset_open(&spec, &env, &ds, &err), -EINVAL);
    assert_error(&err, EINVAL, "dataset", "a plug-in has one path, not 2");
}

/* ---- its configuration ---------------------------------------------------------------------- */

static void expect_text(struct value *v, const char *want)
{
    _cleanup_free_ char *text = NULL;
    struct dl_error err = {0};

    if (plugin_config_text(v, "dataset.config", &text, &err) < 0)
        fail_msg("%s: %s: %s", want, err.path, err.message);
    assert_string_equal(text, want);
    value_deinit(v);
}

TEST(test_configuration)
{
    struct value v = {0}, *item;

    expect_text(&v, "null");
    v.type = VALUE_BOOL;
    expect_text(&v, "false");
    v = (struct value){.type = VALUE_INT, .integer = INT64_MIN};
    expect_text(&v, "-9223372036854775808");
    v = (struct value){.type = VALUE_UINT, .uinteger = INT64_MAX};
    value_make_uint(&v, INT64_MAX);
    expect_text(&v, "9223372036854775807");
    v = (struct value){.type = VALUE_FLOAT, .number = 0.1};
    expect_text(&v, "0.10000000000000001");
    v = (struct value){.type = VALUE_FLOAT, .number = 3};
    expect_text(&v, "3.0");
    v = (struct value){.type = VALUE_ARRAY};
    expect_text(&v, "[]");
    v = (struct value){.type = VALUE_MAP};
    expect_text(&v, "{}");
    assert_int_equal(value_make_string(&v, "a\"b\\\n\t\x01 gr\xc3\xbcn"), 0);
    expect_text(&v, "\"a\\\"b\\\\\\n\\t\\u0001 gr\xc3\xbcn\"");

    /* Maps keep their order. */
    assert_int_equal(value_set_string(&v, "z", "1"), 0);
    assert_int_equal(value_set_bool(&v, "a", true), 0);
    assert_int_equal(value_set(&v, "list", &item), 0);
    struct value *list = item;
    assert_int_equal(value_push(list, &item), 0);
    assert_int_equal(value_push(list, &item), 0);
    value_make_uint(item, 2);
    expect_text(&v, "{\"z\":\"1\",\"a\":true,\"list\":[null,2]}");
}

static void expect_no_text(struct value *v, const char *path, const char *message)
{
    char *text = NULL;
    struct dl_error err = {0};

    assert_int_equal(plugin_config_text(v, "dataset.config", &text, &err), -EINVAL);
    assert_error(&err, EINVAL, path, message);
    assert_null(text);
    value_deinit(v);
}

TEST(test_what_json_does_not_have)
{
    static const double not_finite[] = {NAN, INFINITY, -INFINITY};
    static const char finite[] = "is not a finite number, as JSON requires; write it in quotes";
    struct value v = {0}, *item;

    for (size_t i = 0; i < ARRAY_SIZE(not_finite); i++) {
        v = (struct value){.type = VALUE_FLOAT, .number = not_finite[i]};
        expect_no_text(&v, "dataset.config", finite);
    }
    assert_int_equal(value_set_int(&v, "a", 1), 0);
    assert_int_equal(value_set(&v, "mean", &item), 0);
    struct value *list = item;
    assert_int_equal(value_push(list, &item), 0);
    assert_int_equal(value_push(list, &item), 0);
    item->type = VALUE_FLOAT;
    item->number = NAN;
    expect_no_text(&v, "dataset.config.mean.1", finite);
    assert_int_equal(value_set_uint(&v, "seed", UINT64_MAX), 0);
    expect_no_text(&v, "dataset.config.seed",
                   "is above 9223372036854775807, the largest number in JSON here; write it in "
                   "quotes");
    assert_int_equal(value_set_string(&v, "text", "\xff"), 0);
    expect_no_text(&v, "dataset.config.text", "is not UTF-8, which text in JSON must be");
    v.type = (enum value_type)99;
    expect_no_text(&v, "dataset.config", "is not a value");
}
