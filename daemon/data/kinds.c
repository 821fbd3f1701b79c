#include "daemon/data/kinds.h"

#include "daemon/data/audio/audio_file.h"
#include "daemon/data/parquet/codec.h"
#include "daemon/data/text/sentencepiece.h"
#include "daemon/data/unpack.h"

static const struct kind_entry entries[] = {
    {DATASET_RANGE, "either", "nothing: sample i is the number i"},
    {DATASET_IDX, "map", "files of MNIST, plain or by gzip"},
    {DATASET_NPY, "map", "NumPy's .npy"},
    {DATASET_RECORDS, "map", "raw rows of one type and shape"},
    {DATASET_TOKENS, "map", "a flat file of token ids, in windows"},
    {DATASET_CONCAT, "map", "datasets, one after another"},
    {DATASET_MIX, "either", "datasets by weights, each in an order of its own"},
    {DATASET_SUBSET, "map", "some samples of a dataset"},
    {DATASET_SPLIT, "map", "a part of a dataset"},
    {DATASET_CHAIN, "iterable", "iterable datasets, one after another"},
    {DATASET_TEXT, "map", "lines, or a field of JSON lines"},
    {DATASET_IMAGEFOLDER, "map", "a directory of JPEG and PNG for each class"},
    {DATASET_TAR, "either", "WebDataset's tar shards, by index or as a stream"},
    {DATASET_MEGATRON, "map", "Megatron-LM's .bin and .idx"},
    {DATASET_MDS, "map", "MosaicML streaming's MDS shards, plain or by gzip or zstd"},
    {DATASET_TFRECORD, "map", "TFRecord files, as Examples or bytes"},
    {DATASET_PARQUET, "map", "Parquet files, and directories of them"},
    {DATASET_ARROW, "map", "Arrow IPC files and streams, and Hugging Face's datasets on disk"},
    {DATASET_CSV, "map", "comma- or tab-separated values, by columns of numbers or text"},
    {DATASET_LMDB, "map", "the keys and values of LMDB, without its lock file"},
    {DATASET_AUDIOFOLDER, "map", "a directory of WAV, FLAC and Ogg for each class"},
    {DATASET_HDF5, "map", "datasets of numbers of an HDF5 file, plain or by gzip"},
    {DATASET_PLUGIN, "either", "what its shared library reads"},
    {DATASET_PYTHON, "either", "what its Python code reads"},
};

const struct kind_entry *data_kinds(size_t *ret_count)
{
    *ret_count = ARRAY_SIZE(entries);
    return entries;
}

static const char *kinds_parquet_lacks(void)
{
    bool zstd = parquet_codec_is_built_in(PARQUET_ZSTD);

    if (parquet_codec_is_built_in(PARQUET_BROTLI))
        return zstd ? NULL : "not by zstd, as this build has no libzstd";
    return zstd ? "not by brotli, as this build has no libbrotlidec"
                : "not by zstd and brotli, as this build has neither libzstd nor libbrotlidec";
}

const char *data_kind_lacks(enum dataset_kind kind)
{
    if (kind == DATASET_AUDIOFOLDER)
        return audio_file_missing();
    if (kind == DATASET_TEXT && !spm_is_built())
        return "without the tokenizer sentencepiece, as this build has no libsentencepiece";
    if ((kind == DATASET_TAR || kind == DATASET_MDS || kind == DATASET_ARROW) &&
        !compression_is_built_in(COMPRESSION_ZSTD))
        return "not by zstd, as this build has no libzstd";
    if (kind == DATASET_PARQUET)
        return kinds_parquet_lacks();
    return NULL;
}
