#include "daemon/data/kinds.h"

#include "daemon/data/audio/audio_file.h"
#include "daemon/data/hdf5/hdf5_library.h"
#include "daemon/data/image/image_codec.h"
#include "daemon/data/parquet/codec.h"
#include "daemon/data/text/sentencepiece.h"
#include "daemon/data/tokenizer/tokenizer.h"
#include "daemon/data/unpack.h"

#include <stdio.h>
#include <string.h>

static const struct kind_entry kinds_entries[] = {
    {DATASET_RANGE, "either", "nothing: sample i is the number i"},
    {DATASET_IDX, "map", "files of MNIST, plain or with gzip"},
    {DATASET_NPY, "map", "NumPy's .npy"},
    {DATASET_RECORDS, "map", "raw rows of one type and shape"},
    {DATASET_TOKENS, "map", "a flat file of token ids, in windows"},
    {DATASET_CONCAT, "map", "datasets, one after another"},
    {DATASET_MIX, "either", "datasets mixed by weights, each in its own order"},
    {DATASET_SUBSET, "map", "some samples of a dataset"},
    {DATASET_SPLIT, "map", "a part of a dataset"},
    {DATASET_CHAIN, "iterable", "iterable datasets, one after another"},
    {DATASET_TEXT, "map", "lines, or fields of JSON lines"},
    {DATASET_IMAGEFOLDER, "map", "a directory of JPEG, PNG, WebP and TIFF for each class"},
    {DATASET_TAR, "either", "WebDataset's tar shards, by index or as a stream"},
    {DATASET_MEGATRON, "map", "Megatron-LM's .bin and .idx"},
    {DATASET_MDS, "map", "MosaicML streaming's MDS shards, plain or with gzip or zstd"},
    {DATASET_LITDATA, "map", "litData's chunks, plain or with zstd"},
    {DATASET_TFRECORD, "map", "TFRecord files, as Examples or bytes"},
    {DATASET_PARQUET, "map", "Parquet files, and directories of them"},
    {DATASET_ARROW, "map", "Arrow IPC files and streams, and Hugging Face's datasets on disk"},
    {DATASET_CSV, "map", "comma- or tab-separated values, by columns of numbers or text"},
    {DATASET_LMDB, "map", "the keys and values of LMDB, without its lock file"},
    {DATASET_AUDIOFOLDER, "map", "a directory of WAV, FLAC, Ogg and MP3 for each class"},
    {DATASET_HDF5, "map", "datasets of numbers and text of an HDF5 file"},
    {DATASET_PLUGIN, "either", "samples from its shared library"},
    {DATASET_PYTHON, "either", "samples from its Python code"},
};

static bool kinds_have_zstd(void)
{
    return compression_is_built_in(COMPRESSION_ZSTD);
}

static bool kinds_have_brotli(void)
{
    return parquet_codec_is_built_in(PARQUET_BROTLI);
}

const struct kind_entry *data_kinds(size_t *ret_count)
{
    *ret_count = ARRAY_SIZE(kinds_entries);
    return kinds_entries;
}

/* ---- what is missing ------------------------------------------------------------------------ */

#define KIND(name) (1U << DATASET_##name)
#define TOKENIZED                                                                        \
    (KIND(TEXT) | KIND(TAR) | KIND(MDS) | KIND(TFRECORD) | KIND(PARQUET) | KIND(ARROW) | \
     KIND(CSV) | KIND(LMDB) | KIND(LITDATA))
#define PICTURED                                                                                \
    (KIND(IMAGEFOLDER) | KIND(TAR) | KIND(MDS) | KIND(TFRECORD) | KIND(PARQUET) | KIND(ARROW) | \
     KIND(LMDB))

/* What may be missing, of which kinds, in words. */
static const struct {
    uint32_t kinds;
    bool (*is_there)(void);
    const char *lacks;
} kinds_parts[] = {
    {KIND(TEXT), spm_is_built,
     "without the tokenizer sentencepiece, as this build has no libsentencepiece"},
    {TOKENIZED, tokenizer_is_built,
     "without tokenizer.json, as this build has no libpcre2-8 and libutf8proc"},
    {KIND(TAR) | KIND(MDS) | KIND(ARROW) | KIND(PARQUET) | KIND(LITDATA), kinds_have_zstd,
     "not by zstd, as this build has no libzstd"},
    {PICTURED, image_webp_is_built, "without WebP, as this build has no libwebp"},
    {KIND(PARQUET), kinds_have_brotli, "not by brotli, as this build has no libbrotlidec"},
};

static void kinds_say(struct kind_lacks *lacks, const char *before, const char *what)
{
    size_t at = strlen(lacks->text);

    (void)snprintf(lacks->text + at, sizeof lacks->text - at, "%s%s%s", at > 0 ? "; " : "", before,
                   what);
}

bool data_kind_lacks(enum dataset_kind kind, struct kind_lacks *ret)
{
    const uint32_t sounds = KIND(TAR) | KIND(ARROW) | KIND(PARQUET), bit = 1U << kind;
    const bool has_sounds = bit & (sounds | KIND(AUDIOFOLDER));
    const char *no_sound = has_sounds ? audio_file_missing() : NULL;
    const char *no_mp3 = has_sounds && !no_sound ? audio_file_missing_mp3() : NULL;
    const char *no_tiff = bit & PICTURED ? image_tiff_missing() : NULL;
    const char *no_hdf5 = kind == DATASET_HDF5 ? hdf5_library_missing() : NULL;

    ret->text[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(kinds_parts); i++) {
        if (bit & kinds_parts[i].kinds && !kinds_parts[i].is_there())
            kinds_say(ret, "", kinds_parts[i].lacks);
    }
    if (no_tiff)
        kinds_say(ret, "without TIFF, as ", no_tiff);
    if (no_hdf5)
        kinds_say(ret, "but what dloaderd reads itself, as ", no_hdf5);
    if (no_sound)
        kinds_say(ret, bit & sounds ? "without sound, as " : "", no_sound);
    if (no_mp3)
        kinds_say(ret, "without MP3, as ", no_mp3);
    return ret->text[0] != '\0';
}
