/* Folders of images: their order, their samples, their faults. */
#include "daemon/data/decode/image/image_files.h"
#include "daemon/data/kinds/combine/combine.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/image_files.h"

#include <errno.h>
#include <sys/stat.h>

/* ---- making folders ------------------------------------------------------------------------- */

static void make_dir(const char *name)
{
    assert_int_equal(mkdir(harness_below(name), 0755), 0);
}

static void make_link(const char *to, const char *name)
{
    assert_int_equal(symlink(to, harness_below(name)), 0);
}

/* A JPEG or PNG whose size tells which it is: height n, width n + 1. */
static void make_image(const char *name, uint32_t n)
{
    uint8_t *data;
    size_t len = strlen(name);
    struct jpeg_options opt = {.height = n, .width = n + 1, .components = 3, .h_samp = 2};
    size_t bytes = strcmp(name + len - 3, "png") == 0 ? make_png(n, n + 1, false, &data)
                                                      : make_jpeg(&opt, &data);

    (void)harness_file(name, data, bytes);
    free(data);
}

static struct spec_file root_file;

static struct spec_dataset folder_spec(const char *root, enum image_transform transform)
{
    root_file = (struct spec_file){.path = (char *)root};
    struct spec_dataset spec = {
        .kind = DATASET_IMAGEFOLDER,
        .files = &root_file,
        .n_files = 1,
        .image = {.transform = transform,
                  .layout = LAYOUT_HWC,
                  .scale = {0.08, 1},
                  .aspect = {0.75, 1.3333333333333333}},
    };
    if (transform != TRANSFORM_NONE)
        spec.image.height = spec.image.width = 24;
    return spec;
}

static struct dataset *opened(const struct spec_dataset *spec, const struct data_env *env)
{
    struct dl_error err = {0};
    struct dataset *ds = NULL;

    if (dataset_open(spec, env, &ds, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    return ds;
}

static int not_opened(const struct spec_dataset *spec, const struct data_env *env,
                      struct dl_error *err)
{
    struct dataset *ds = (void *)&root_file;
    int r;

    *err = (struct dl_error){0};
    r = dataset_open(spec, env, &ds, err);
    assert_true(r < 0);
    assert_int_equal(r, -err->code);
    assert_ptr_equal(ds, &root_file);
    return -r;
}

/* ---- order ---------------------------------------------------------------------------------- */

/* As sorted(os.walk()) has it: folders by their whole path, "sub-1" before "sub/deep". */
TEST(test_order)
{
    static const struct {
        const char *path;
        uint32_t label;
    } want[] = {
        {"B/0.jpg", 0},      {"a/10.jpg", 1},       {"a/2.JPEG", 1},         {"a/9.png", 1},
        {"a/sub/.h.PNG", 1}, {"a/sub-1/q.png", 1},  {"a/sub/deep/1.jpg", 1}, {"a-x/z.Jpg", 2},
        {"linked/q.png", 3}, {"\xc3\xa4/1.jpg", 4},
    };
    static const char *const dirs[] = {"o",         "o/B",       "o/a",
                                       "o/a/sub",   "o/a/sub-1", "o/a/sub/deep",
                                       "o/a/empty", "o/a-x",     "o/\xc3\xa4"};
    struct class_list list = {0};
    char path[4400];
    size_t len;

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        make_dir(dirs[i]);
    make_link("a/sub-1", "o/linked");
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        snprintf(path, sizeof path, "o/%s", want[i].path);
        if (want[i].label != 3)
            (void)harness_file(path, "", 0);
    }
    (void)harness_file("o/at-the-root.jpg", "", 0);
    (void)harness_file("o/a/notes.txt", "", 0);
    (void)harness_file("o/a/jpg", "", 0);
    (void)harness_file("o/a/x.jpg.bak", "", 0);

    assert_int_equal(class_list_make(harness_below("o"), &image_files, &anywhere, &list, NULL), 0);
    assert_int_equal(list.n, ARRAY_SIZE(want));
    assert_int_equal(list.classes, 5);
    for (uint64_t i = 0; i < list.n; i++) {
        uint32_t label = class_list_get(&list, i, path, sizeof path, &len);
        assert_string_equal(path + strlen(harness_below("o")) + 1, want[i].path);
        assert_int_equal(label, want[i].label);
        assert_int_equal(len, strlen(path));
    }
    class_list_deinit(&list);
}

static uint64_t fingerprint_of(const char *name)
{
    struct class_list list = {0};

    assert_int_equal(class_list_make(harness_below(name), &image_files, &anywhere, &list, NULL), 0);
    uint64_t fingerprint = class_list_fingerprint(&list);
    class_list_deinit(&list);
    return fingerprint;
}

/* Whatever order the file system lists them in: each name counts, and nothing else. */
TEST(test_fingerprint)
{
    enum { FILES = 40 };
    uint64_t last = 0;
    char name[64];

    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "f/a/%d.png", i);
        (void)harness_file(name, "", 0);
        snprintf(name, sizeof name, "g/a/%d.png", FILES - 1 - i);
        (void)harness_file(name, "", 0);
        uint64_t now = fingerprint_of("f");
        assert_true(now != 0 && now != last);
        last = now;
    }
    assert_int_equal(fingerprint_of("g"), last);
}

#define FOLDER(name) "{kind: imagefolder, paths: " name ", transform: resize, size: 24}"

TEST(test_broken_links_count)
{
    make_dir("broken");
    make_dir("broken/a");
    make_link("nowhere", "broken/a/1.jpg");
    expect_dataset(FOLDER("broken"), "fixed (ENOENT broken/a/1.jpg: ...)");
}

/* ---- samples -------------------------------------------------------------------------------- */

static int make_pictures(void **state)
{
    make_image("p/cat/1.jpg", 30);
    make_image("p/cat/2.png", 40);
    make_image("p/dog/1.jpg", 50);
    make_image("p/dog/2.jpg", 60);
    return 0;
}

/* The second is a PNG, and has the colours that were painted. */
TEST(test_as_they_are)
{
    expect_dataset("{kind: imagefolder, paths: p}",
                   "{image:uint8(30, 31, 3)[...] label:0} {image:uint8(40, 41, 3)[25 50 76 32 57 "
                   "83 31 56 82 79 64 88 78 63 87 86 111 97 ...] label:0} {image:uint8(50, 51, "
                   "3)[...] label:1} {image:uint8(60, 61, 3)[...] label:1}");
    expect_dataset(
        "{kind: imagefolder, paths: p, layout: chw}",
        "{image:uint8(3, 30, 31)[...] label:0} {image:uint8(3, 40, 41)[25 32 31 79 78 86 ...] "
        "label:0} {image:uint8(3, 50, 51)[...] label:1} {image:uint8(3, 60, 61)[...] label:1}");
}

enum { SIDE = 24, BYTES = SIDE * SIDE * 3 };

TEST(test_read_rows)
{
    struct spec_dataset spec = folder_spec(harness_below("p"), TRANSFORM_RANDOM_CROP);
    struct sample_key key = {.seed = 7, .epoch = 3}, other = {.seed = 7, .epoch = 4};
    struct sample_key shifted = {.seed = 7, .epoch = 3, .base = 1000};
    static uint8_t a[4 * BYTES], b[4 * BYTES];
    int64_t label_a[4], label_b[4];
    size_t bad = 99;
    struct dl_error err = {0};

    spec.image.flip = 0.5;
    struct dataset *ds = opened(&spec, &anywhere);
    assert_true(dataset_is_fixed(ds));
    assert_int_equal(ds->n_leaves, 2);
    assert_int_equal(ds->schema.count, 3);
    assert_int_equal(ds->schema.nodes[1].nbytes, BYTES);
    assert_int_equal(ds->schema.nodes[2].nbytes, 8);

    void *to_a[] = {a, label_a}, *to_b[] = {b, label_b};
    assert_int_equal(dataset_read_rows(ds, &key, (uint64_t[]){0, 1, 2, 3}, 4, to_a, &bad, &err), 0);
    assert_memory_equal(label_a, ((int64_t[]){0, 0, 1, 1}), sizeof label_a);

    /* Of the sample, the seed and the epoch: not of who comes before it, or with it. */
    assert_int_equal(dataset_read_rows(ds, &key, (uint64_t[]){3, 1, 2, 0}, 4, to_b, &bad, &err), 0);
    assert_memory_equal(label_b, ((int64_t[]){1, 0, 1, 0}), sizeof label_b);
    assert_memory_equal(a, b + 3 * BYTES, BYTES);
    assert_memory_equal(a + BYTES, b + BYTES, BYTES);
    assert_memory_equal(a + 3 * BYTES, b, BYTES);
    assert_int_equal(dataset_read_rows(ds, &other, (uint64_t[]){0}, 1, to_b, &bad, &err), 0);
    assert_memory_not_equal(a, b, BYTES);
    assert_int_equal(dataset_read_rows(ds, &shifted, (uint64_t[]){0}, 1, to_b, &bad, &err), 0);
    assert_memory_not_equal(a, b, BYTES);

    assert_int_equal(dataset_read_rows(ds, &key, (uint64_t[]){0, 4}, 2, to_b, &bad, &err), -ERANGE);
    assert_int_equal(bad, 1);
    dataset_close(ds);
}

/* ---- views --------------------------------------------------------------------------------------
 */

/* With a value of `views`, or of `transforms`; to be given to close_views(). */
static struct spec_dataset views_spec(const char *views, const char *transforms)
{
    struct spec_dataset spec = folder_spec(harness_below("p"), TRANSFORM_NONE);

    if (views)
        assert_int_equal(yaml_parse(views, strlen(views), "test", &spec.views, NULL), 0);
    if (transforms)
        assert_int_equal(yaml_parse(transforms, strlen(transforms), "test", &spec.transforms, NULL),
                         0);
    return spec;
}

static void close_views(struct spec_dataset *spec, struct dataset *ds)
{
    value_deinit(&spec->views);
    value_deinit(&spec->transforms);
    dataset_close(ds);
}

enum { CUT = 8 * 8 * 3, THUMB = 5 * 4 * 3 * 4 };
#define CROP      "[{kind: RandomCrop, size: 8}]"
#define THUMBNAIL "[{kind: Resize, size: [5, 4]}, ToTensor]"
#define VIEWS     "[{transforms: " CROP ", count: 2}, {transforms: " THUMBNAIL "}]"

/* Rows 0 to 3, of the one leaf that a list of transforms gives. */
static void read_alone(const char *transforms, uint8_t *ret)
{
    struct spec_dataset spec = views_spec(NULL, transforms);
    struct dataset *ds = opened(&spec, &anywhere);
    int64_t labels[4];
    size_t bad;

    assert_int_equal(dataset_read_rows(ds, &(struct sample_key){.seed = 3},
                                       (uint64_t[]){0, 1, 2, 3}, 4, (void *[]){ret, labels}, &bad,
                                       NULL),
                     0);
    close_views(&spec, ds);
}

/* The first is what it is alone, the second another crop, and what draws nothing is as ever. */
TEST(test_views)
{
    static uint8_t first[4 * CUT], second[4 * CUT], thumbs[4 * THUMB], alone[4 * CUT],
        thumbs_alone[4 * THUMB];
    struct spec_dataset spec = views_spec(VIEWS, NULL);
    struct dataset *ds = opened(&spec, &anywhere);
    struct sample_key key = {.seed = 3};
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    int64_t labels[4];
    size_t bad;

    assert_true(dataset_is_fixed(ds));
    assert_int_equal(ds->n_leaves, 4);
    assert_int_equal(ds->schema.nodes[1].kind, TREE_LIST);
    assert_int_equal(ds->schema.nodes[4].dtype, DL_DTYPE_FLOAT32);
    assert_int_equal(dataset_read_rows(ds, &key, (uint64_t[]){0, 1, 2, 3}, 4,
                                       (void *[]){first, second, thumbs, labels}, &bad, NULL),
                     0);
    assert_memory_equal(labels, ((int64_t[]){0, 0, 1, 1}), sizeof labels);
    read_alone(CROP, alone);
    read_alone(THUMBNAIL, thumbs_alone);
    assert_memory_equal(first, alone, sizeof alone);
    assert_memory_not_equal(second, alone, sizeof alone);
    assert_memory_equal(thumbs, thumbs_alone, sizeof thumbs);
    assert_int_equal(dataset_get(ds, &key, 2, &sample, NULL), 0);
    assert_memory_equal(sample.data[3], second + 2 * CUT, CUT);
    sample_deinit(&sample);
    arena_deinit(&arena);
    close_views(&spec, ds);
}

/* One without a size: each sample by itself, and a view of a picture alone is a list, too. */
TEST(test_views_that_vary)
{
    static const char views[] = "[{transforms: [{kind: Pad, padding: 1}]}]";
    struct spec_dataset spec = views_spec(views, NULL);
    struct dataset *ds = opened(&spec, &anywhere);
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};

    assert_false(dataset_is_fixed(ds));
    assert_int_equal(dataset_get(ds, &(struct sample_key){0}, 0, &sample, NULL), 0);
    assert_int_equal(sample.tree.nodes[1].kind, TREE_LIST);
    assert_int_equal(sample.tree.nodes[2].shape[1], sample.tree.nodes[2].shape[0] + 1);
    sample_deinit(&sample);
    arena_deinit(&arena);
    close_views(&spec, ds);
}

TEST(test_views_refused)
{
    static const struct {
        const char *views;
        const char *path;
        const char *message;
    } refused[] = {
        {"[]", "dataset.views", "is not a list of 1 to 64 views"},
        {"[ToTensor]", "dataset.views.0", "is not a view, such as {transforms: [ToTensor]}"},
        {"[{count: 2}]", "dataset.views.0.transforms", "missing"},
        {"[{transforms: [], name: x}]", "dataset.views.0.name", "it has transforms and count"},
        {"[{transforms: [], count: 0}]", "dataset.views.0.count", "0 is not a number of views"},
        {"[{transforms: [], count: 33}]", "dataset.views.0.count", "from 1 to 32"},
        {"[{transforms: [ToTensor]}, {transforms: [ToTenso]}]", "dataset.views.1.transforms.0",
         "did you mean ToTensor?"},
        {"[{transforms: [], count: 32}, {transforms: [], count: 32}, {transforms: []}]",
         "dataset.views.2.transforms", "makes more than 64 views"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        struct spec_dataset spec = views_spec(refused[i].views, NULL);
        struct dl_error err;
        assert_int_equal(not_opened(&spec, &anywhere, &err), EINVAL);
        assert_string_equal(err.path, refused[i].path);
        if (!strstr(err.message, refused[i].message))
            fail_msg("%s: %s", refused[i].views, err.message);
        close_views(&spec, NULL);
    }
}

/* ---- faults --------------------------------------------------------------------------------- */

TEST(test_folders_that_are_none)
{
    static const char *const classes[] = {"flat/a", "flat/b", "flat/c",
                                          "flat/d", "flat/e", "flat/f"};

    expect_dataset("{kind: imagefolder, paths: nothing-there}", "ENOENT nothing-there: ...");
    harness_text("plain-file", "x");
    expect_dataset("{kind: imagefolder, paths: plain-file}", "ENOTDIR plain-file: ...");
    harness_text("flat/1.jpg", "");
    expect_dataset("{kind: imagefolder, paths: flat}",
                   "ENOENT flat: has no class folder; put the images of each class into a folder "
                   "named for the class");
    for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
        make_dir(classes[i]);
    harness_text("flat/a/1.gif", "");
    harness_text("flat/b/1.jpg", "");
    expect_dataset("{kind: imagefolder, paths: flat}",
                   "ENOENT flat: no image was found for the classes a, c, d, e, ...; images end in "
                   ".jpg, .jpeg, .png, .webp, .tif or .tiff; remove empty folders");
    for (size_t i = 2; i < ARRAY_SIZE(classes); i++)
        assert_int_equal(rmdir(harness_below(classes[i])), 0);
    expect_dataset("{kind: imagefolder, paths: flat}",
                   "ENOENT flat: no image was found for the class a; images end...");
}

TEST(test_a_link_that_leads_back)
{
    harness_text("loop/a/1.jpg", "");
    make_dir("loop/a/b");
    make_link("..", "loop/a/b/up");
    expect_dataset("{kind: imagefolder, paths: loop}",
                   "ELOOP loop/a/b/up: links back to a folder that contains it; remove the link");
}

/* Each file that cannot be read is named, and the others can be. */
TEST(test_bad_files)
{
    struct jpeg_options opt = {.height = 50, .width = 60, .components = 3};
    uint8_t *data;

    harness_text("bad/c/1.jpg", "");
    harness_text("bad/c/2.jpg", "<html></html>");
    size_t bytes = make_jpeg(&opt, &data);
    harness_file("bad/c/3.jpg", data, bytes * 2 / 3);
    free(data);
    bytes = make_png(20, 20, false, &data);
    harness_file("bad/c/4.png", data, bytes / 2);
    free(data);
    assert_int_equal(mkfifo(harness_below("bad/c/5.jpg"), 0600), 0);
    make_image("bad/c/6.jpg", 33);
    expect_dataset(FOLDER("bad"),
                   "fixed (bad/c/1.jpg: has 0 bytes, and is not an image...) (bad/c/2.jpg: is not "
                   "an image of a known format: it begins with the bytes 3c 68 74 6d...) "
                   "(bad/c/3.jpg: the image file is truncated...) (bad/c/4.png: the image file is "
                   "truncated...) (bad/c/5.jpg: is not a regular file...) "
                   "{image:uint8(24, 24, 3)[...] label:0}");
}

TEST(test_roots)
{
    char roots_text[2][4400];
    char *roots[] = {roots_text[0], roots_text[1]};
    struct data_env env = {.roots = roots, .n_roots = 1};
    struct spec_dataset spec = folder_spec(harness_below("p"), TRANSFORM_RESIZE);
    static uint8_t out[BYTES];
    int64_t label;
    struct dl_error err;
    size_t bad;

    /* The root of the data may be the folder itself. */
    snprintf(roots[0], sizeof roots_text[0], "%s", harness_below("p"));
    struct dataset *ds = opened(&spec, &env);
    assert_int_equal(dataset_read_rows(ds, &(struct sample_key){0}, (uint64_t[]){0}, 1,
                                       (void *[]){out, &label}, &bad, &err),
                     0);
    dataset_close(ds);

    spec = folder_spec(harness_tmpdir(), TRANSFORM_RESIZE);
    assert_int_equal(not_opened(&spec, &env, &err), EACCES);

    /* Links out of it: a folder, then a file. */
    make_image("q/c/1.jpg", 20);
    make_link(harness_below("p/cat"), "q/out");
    snprintf(roots[0], sizeof roots_text[0], "%s", harness_below("q"));
    spec = folder_spec(harness_below("q"), TRANSFORM_RESIZE);
    assert_int_equal(not_opened(&spec, &env, &err), EACCES);
    assert_string_equal(err.path, harness_below("q/out"));
    assert_int_equal(unlink(harness_below("q/out")), 0);
    make_link(harness_below("p/cat/1.jpg"), "q/c/2.jpg");
    ds = opened(&spec, &env);
    assert_int_equal(dataset_read_rows(ds, &(struct sample_key){0}, (uint64_t[]){0, 1}, 2,
                                       (void *[]){out, &label}, &bad, &err),
                     -EACCES);
    assert_int_equal(bad, 1);
    assert_string_equal(err.path, harness_below("q/c/2.jpg"));
    dataset_close(ds);
}

TEST(test_specs)
{
    struct spec_dataset spec = folder_spec(harness_below("p"), TRANSFORM_RESIZE);
    struct dl_error err;

    spec.image.width = 0;
    assert_int_equal(not_opened(&spec, &anywhere, &err), EINVAL);
    assert_string_equal(err.path, "dataset.size");
    spec = folder_spec(harness_below("p"), TRANSFORM_RESIZE);
    spec.n_files = 0;
    assert_int_equal(not_opened(&spec, &anywhere, &err), EINVAL);
}

/* Whatever is refused memory: an error, nothing left behind, and then all goes on. */
TEST(test_out_of_memory)
{
    static const enum image_transform transforms[] = {TRANSFORM_NONE, TRANSFORM_RANDOM_CROP};
    const struct spec_dataset specs[] = {folder_spec(harness_below("p"), transforms[0]),
                                         folder_spec(harness_below("p"), transforms[1]),
                                         views_spec(VIEWS, NULL)};
    struct sample_key key = {0};

    for (size_t t = 0; t < ARRAY_SIZE(specs); t++) {
        struct spec_dataset spec = specs[t];
        unsigned failed = 0;
        for (long n = 0, done = 0; !done; n++) {
            struct arena arena = {0};
            struct sample sample = {.arena = &arena};
            struct dl_error err = {0};
            struct dataset *ds = NULL;
            fail_in = n;
            int r = dataset_open(&spec, &anywhere, &ds, &err);
            for (uint64_t i = 0; i < 4 && r == 0; i++) {
                sample_clear(&sample);
                r = dataset_get(ds, &key, i, &sample, &err);
            }
            done = fail_in >= 0;
            fail_in = -1;
            assert_true(r == 0 || (r == -ENOMEM && err.message[0]));
            failed += r < 0;
            sample_clear(&sample);
            for (uint64_t i = 0; i < 4 && ds; i++) {
                sample_clear(&sample);
                assert_int_equal(dataset_get(ds, &key, i, &sample, &err), 0);
            }
            sample_deinit(&sample);
            arena_deinit(&arena);
            dataset_close(ds);
        }
        assert_true(failed > 15);
        close_views(&spec, NULL);
    }
}

static void note_told(void *owner, const char *what, uint64_t done, uint64_t all)
{
    uint64_t *told = owner;

    assert_string_equal(what, "images found");
    assert_true(done >= told[0] && all == UINT64_MAX);
    told[0] = done;
    told[1]++;
}

/* Also in the middle of one large folder. */
TEST(test_progress)
{
    uint64_t told[2] = {0};
    const struct data_progress progress = {.tell = note_told, .owner = told};
    const struct data_env watched = {.progress = &progress};
    struct class_list list;
    char dir[2][512];

    snprintf(dir[0], sizeof dir[0], "%s/many", harness_tmpdir());
    snprintf(dir[1], sizeof dir[1], "%s/many/class", harness_tmpdir());
    assert_true(mkdir(dir[0], 0700) == 0 && mkdir(dir[1], 0700) == 0);
    for (unsigned i = 0; i < 2 * DATA_TELL_EVERY + 10; i++) {
        char name[64];
        snprintf(name, sizeof name, "many/class/%u.png", i);
        harness_file(name, "", 0);
    }
    assert_int_equal(class_list_make(dir[0], &image_files, &watched, &list, NULL), 0);
    assert_int_equal(list.n, 2 * DATA_TELL_EVERY + 10);
    assert_int_equal(told[0], list.n);
    assert_int_equal(told[1], 3);
    class_list_deinit(&list);
}

TEST_GROUP(make_pictures, NULL)
