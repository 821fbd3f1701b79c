#include "daemon/data/kinds.h"

#include "daemon/data/text/sentencepiece.h"
#include "daemon/data/unpack.h"

#define WITHOUT_ZSTD "not by zstd, as this build has no libzstd"

static const struct kind_entry entries[] = {
    {DATASET_RANGE, "either", "nothing: sample i is the number i", NULL},
    {DATASET_IDX, "map", "files of MNIST, plain or by gzip", NULL},
    {DATASET_NPY, "map", "NumPy's .npy", NULL},
    {DATASET_RECORDS, "map", "raw rows of one type and shape", NULL},
    {DATASET_TOKENS, "map", "a flat file of token ids, in windows", NULL},
    {DATASET_CONCAT, "map", "datasets, one after another", NULL},
    {DATASET_SUBSET, "map", "some samples of a dataset", NULL},
    {DATASET_SPLIT, "map", "a part of a dataset", NULL},
    {DATASET_CHAIN, "iterable", "iterable datasets, one after another", NULL},
    {DATASET_TEXT, "map", "lines, or a field of JSON lines",
     "without the tokenizer sentencepiece, "
     "as this build has no libsentencepiece"},
    {DATASET_IMAGEFOLDER, "map", "a directory of JPEG and PNG for each class", NULL},
    {DATASET_TAR, "either", "WebDataset's tar shards, by index or as a stream", WITHOUT_ZSTD},
    {DATASET_MEGATRON, "map", "Megatron-LM's .bin and .idx", NULL},
    {DATASET_MDS, "map", "MosaicML streaming's MDS shards, plain or by gzip or zstd", WITHOUT_ZSTD},
    {DATASET_TFRECORD, "map", "TFRecord files, as Examples or bytes", NULL},
    {DATASET_PLUGIN, "either", "what its shared library reads", NULL},
    {DATASET_PYTHON, "either", "what its Python code reads", NULL},
};

enum { N = ARRAY_SIZE(entries) };

const struct kind_entry *data_kinds(size_t *ret_count)
{
    static struct kind_entry here[N];

    for (size_t i = 0; i < N; i++) {
        here[i] = entries[i];
        if ((entries[i].kind == DATASET_TEXT && spm_is_built()) ||
            (entries[i].without && strcmp(entries[i].without, WITHOUT_ZSTD) == 0 &&
             compression_is_built_in(COMPRESSION_ZSTD)))
            here[i].without = NULL;
    }
    *ret_count = N;
    return here;
}
