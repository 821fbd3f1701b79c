/* Folders of sounds: their samples, their lengths, their faults. */
#include "daemon/data/collate/lengths.h"
#include "tests/lib/lengths.h"
#include "tests/unit/audio_files.h"
#include "tests/unit/fail_open.h"

BEFORE_TESTS
{
    if (!can_decode())
        exit(77);
}

static struct spec_file root;

/* Two classes, of one and two sounds, 8000 frames a second, of 20, 30 and 40 frames. */
static void make_folder(void)
{
    static const char *const names[] = {"sounds/a/1.wav", "sounds/b/1.WAV", "sounds/b/2.wav"};
    static struct bytes file;
    int16_t ramp[40];

    for (int i = 0; i < 40; i++)
        ramp[i] = (int16_t)(100 * i);
    for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
        struct wav wav = {PCM, 1, 8000, 16, ramp, 40 + 20 * i};
        make_wav(&file, &wav);
        harness_file(names[i], file.data, file.n);
    }
    static char path[512];
    snprintf(path, sizeof path, "%s", harness_below("sounds"));
    root.path = path;
}

static struct dataset *open_folder(uint64_t frames, struct dl_error *err)
{
    struct spec_dataset spec =
        spec_of(DL_DTYPE_FLOAT32, AUDIO_MONO, 16000, frames, frames ? AUDIO_CROP_RANDOM : 0);
    struct dataset *ds = NULL;

    make_folder();
    spec.files = &root;
    spec.n_files = 1;
    (void)!dataset_open(&spec, &anywhere, &ds, err);
    return ds;
}

TEST(test_folder)
{
    struct dl_error err = {0};
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    uint32_t lengths[3];
    uint64_t bad;
    char name[512];

    struct dataset *ds = open_folder(0, &err);
    assert_non_null(ds);
    assert_int_equal(ds->length, 3);
    for (uint64_t i = 0; i < 3; i++) {
        sample_clear(&sample);
        assert_int_equal(dataset_get(ds, &key, i, &sample, &err), 0);
        assert_int_equal(sample.tree.count, 4);
        assert_int_equal(sample.tree.nodes[1].ndim, 1);
        assert_int_equal(sample.tree.nodes[1].shape[0], 40 + 20 * i);
        assert_int_equal(*(const int64_t *)sample.data[2], 16000);
        assert_int_equal(*(const int64_t *)sample.data[3], i > 0);
    }
    assert_int_equal(LENGTHS(dataset_known_lengths, ds, "audio", 0, 3, lengths, &bad, &err), 0);
    assert_memory_equal(lengths, ((uint32_t[]){40, 60, 80}), sizeof lengths);
    assert_int_equal(LENGTHS(dataset_lengths, ds, NULL, 1, 2, lengths, &bad, &err), 0);
    assert_memory_equal(lengths, ((uint32_t[]){60, 80}), 8);
    assert_true(dataset_name(ds, 1, name, sizeof name) > 0);
    assert_string_equal(name + strlen(name) - 8, "/b/1.WAV");
    assert_int_equal(dataset_get(ds, &key, 3, &sample, &err), -ERANGE);
    dataset_close(ds);
    sample_deinit(&sample);
    arena_deinit(&arena);
}

TEST(test_rows)
{
    float all[3][50], one[50];
    int64_t rates[3], labels[3];
    struct dl_error err = {0};
    size_t bad = 9;

    struct dataset *ds = open_folder(50, &err);
    assert_non_null(ds);
    assert_true(dataset_is_fixed(ds));
    assert_int_equal(ds->schema.nodes[1].nbytes, sizeof one);
    void *dst[] = {all, rates, labels}, *dst_one[] = {one, rates, labels};
    uint64_t indices[] = {0, 1, 2}, last = 2, none = 3;
    assert_int_equal(dataset_read_rows(ds, &key, indices, 3, dst, &bad, &err), 0);
    assert_memory_equal(labels, ((int64_t[]){0, 1, 1}), sizeof labels);
    assert_memory_equal(rates, ((int64_t[]){16000, 16000, 16000}), sizeof rates);
    for (int i = 40; i < 50; i++)
        assert_true(all[0][i] == 0);
    /* Of the sample, the seed and the epoch: not of who comes before it. */
    assert_int_equal(dataset_read_rows(ds, &key, &last, 1, dst_one, &bad, &err), 0);
    assert_memory_equal(one, all[2], sizeof one);
    assert_int_equal(dataset_read_rows(ds, &key, &none, 1, dst_one, &bad, &err), -ERANGE);
    assert_int_equal(bad, 0);
    /* One that is cut while it is in use. */
    char path[600];
    snprintf(path, sizeof path, "%s/b/1.WAV", root.path);
    assert_int_equal(truncate(path, 50), 0);
    assert_int_equal(dataset_read_rows(ds, &key, indices, 3, dst, &bad, &err), -EINVAL);
    assert_int_equal(bad, 1);
    assert_string_equal(err.path, path);
    assert_error_has(&err, "should have 60 bytes of sound, but there are 6");
    dataset_close(ds);
}

TEST(test_folders_that_are_none)
{
    static struct spec_file file;
    struct spec_dataset spec = spec_of(DL_DTYPE_FLOAT32, AUDIO_MONO, 0, 0, 0);
    struct dataset *ds = NULL;
    struct dl_error err = {0};
    char path[600];

    harness_text("quiet/a/1.aac", "x");
    snprintf(path, sizeof path, "%s", harness_below("quiet"));
    file.path = path;
    spec.files = &file;
    spec.n_files = 1;
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -ENOENT);
    assert_error(&err, ENOENT, path,
                 "no sound was found for the class a; sounds end in .wav, .flac, .ogg, .oga, .opus "
                 "or .mp3; remove empty folders");
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    struct spec_dataset spec = spec_of(DL_DTYPE_FLOAT32, AUDIO_MONO, 16000, 0, 0);
    int all, refused;

    make_folder();
    spec.files = &root;
    spec.n_files = 1;
    all = fail_open_each(&spec, &refused);
    /* Names that cannot get smaller stay as large as they are. */
    assert_in_range(refused, 7, all);
}
