/* What dlctl kinds says is missing, on systems that have some of the libraries: which ones is said
 * by stand-ins for those who look for them. */
#include "daemon/data/kinds/kind_lacks.h"

#include "daemon/data/decode/audio/audio_file.h"
#include "daemon/data/decode/image/image_codec.h"
#include "daemon/data/decode/tokenizer/sentencepiece.h"
#include "daemon/data/decode/tokenizer/tokenizer.h"
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/hdf5/hdf5_library.h"
#include "daemon/data/kinds/parquet/codec.h"
#include "tests/lib/harness.h"

static struct {
    bool zstd, brotli, sentencepiece, tokenizer, sndfile, mp3, webp, tiff, hdf5;
} have;

const char *audio_file_missing(void)
{
    return have.sndfile ? NULL : "this system has no libsndfile.so.1";
}

const char *audio_file_missing_mp3(void)
{
    return have.mp3 ? NULL : "this system's libsndfile decodes no MP3";
}

bool parquet_codec_is_built_in(uint32_t codec)
{
    return codec == PARQUET_BROTLI ? have.brotli : codec != PARQUET_ZSTD || have.zstd;
}

const char *image_tiff_missing(void)
{
    return have.tiff ? NULL : "this system has no libtiff.so.6";
}

const char *hdf5_library_missing(void)
{
    return have.hdf5 ? NULL : "this system has no libhdf5";
}

bool image_webp_is_built(void)
{
    return have.webp;
}

bool spm_is_built(void)
{
    return have.sentencepiece;
}

bool tokenizer_is_built(void)
{
    return have.tokenizer;
}

bool compression_is_built_in(enum compression compression)
{
    return compression != COMPRESSION_ZSTD || have.zstd;
}

#define ZSTD   "not by zstd, as this build has no libzstd"
#define BROTLI "not by brotli, as this build has no libbrotlidec"
#define SOUND  "this system has no libsndfile.so.1"
#define MP3    "without MP3, as this system's libsndfile decodes no MP3"

TEST(test_some_are_missing)
{
    static const struct {
        enum dataset_kind kind;
        bool zstd, brotli, sndfile;
        const char *says;
    } rows[] = {
        {DATASET_PARQUET, true, true, true, ""},
        {DATASET_PARQUET, false, true, true, ZSTD},
        {DATASET_PARQUET, true, false, true, BROTLI},
        {DATASET_PARQUET, false, false, true, ZSTD "; " BROTLI},
        {DATASET_PARQUET, true, true, false, "without sound, as " SOUND},
        {DATASET_PARQUET, false, false, false, ZSTD "; " BROTLI "; without sound, as " SOUND},
        {DATASET_ARROW, false, false, false, ZSTD "; without sound, as " SOUND},
        {DATASET_TAR, true, true, false, "without sound, as " SOUND},
        {DATASET_TAR, false, true, true, ZSTD},
        {DATASET_MDS, false, false, false, ZSTD},
        {DATASET_AUDIOFOLDER, false, false, false, SOUND},
        {DATASET_AUDIOFOLDER, false, false, true, ""},
        {DATASET_TEXT, true, true, true,
         "without the tokenizer sentencepiece, as this build has no libsentencepiece"},
        {DATASET_NPY, false, false, false, ""},
        {DATASET_HDF5, false, false, false, ""},
    };

    have.tokenizer = have.webp = have.tiff = have.hdf5 = have.mp3 = true;
    have.sentencepiece = false;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct kind_lacks lacks;
        have.zstd = rows[i].zstd;
        have.brotli = rows[i].brotli;
        have.sndfile = rows[i].sndfile;
        bool some = data_kind_lacks(rows[i].kind, &lacks);
        if (some != (rows[i].says[0] != '\0') || strcmp(lacks.text, rows[i].says) != 0)
            fail_msg("row %zu: %s", i, lacks.text);
    }
    have.tokenizer = have.webp = have.tiff = have.hdf5 = have.mp3 = false;
    struct kind_lacks lacks;
    have.zstd = have.brotli = have.sndfile = true;
    assert_true(data_kind_lacks(DATASET_AUDIOFOLDER, &lacks));
    assert_string_equal(lacks.text, MP3);
    assert_true(data_kind_lacks(DATASET_TAR, &lacks));
    assert_non_null(strstr(lacks.text, MP3));
    assert_true(data_kind_lacks(DATASET_IMAGEFOLDER, &lacks));
    assert_string_equal(lacks.text, "without WebP, as this build has no libwebp; without TIFF, as "
                                    "this system has no libtiff.so.6");
    assert_true(data_kind_lacks(DATASET_HDF5, &lacks));
    assert_string_equal(lacks.text,
                        "but what dloaderd reads itself, as this system has no libhdf5");
    assert_false(data_kind_lacks(DATASET_NPY, &lacks));
    assert_true(data_kind_lacks(DATASET_CSV, &lacks));
    assert_non_null(strstr(lacks.text, "without tokenizer.json"));
}

/* All of it fits into the text, whatever is missing. */
TEST(test_nothing_is_cut)
{
    size_t n, longest = 0;
    const struct kind_entry *entries = kind_entries(&n);

    memset(&have, 0, sizeof have);
    for (size_t i = 0; i < n; i++) {
        struct kind_lacks lacks;
        (void)data_kind_lacks(entries[i].kind, &lacks);
        longest = max_u64(longest, strlen(lacks.text));
    }
    /* The words of audio_file.c are 60 more. */
    assert_in_range(longest, 100, sizeof((struct kind_lacks *)NULL)->text - 100);
}
