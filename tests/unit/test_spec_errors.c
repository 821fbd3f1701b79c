/* The loader spec: in which words everything that is wrong with one is refused. */
#include "proto/spec_table.h"
#include "tests/unit/spec_text.h"

#include <errno.h>
#include <stdio.h>

#define KINDS                                                                                      \
    "range, idx, npy, records, tokens, concat, subset, split, chain, text, imagefolder, tar, "     \
    "plugin, python, megatron, mds, tfrecord, parquet, arrow, mix, csv, lmdb, audiofolder, hdf5, " \
    "litdata, files"

#define NO_URL                                                                                   \
    " is not read from there: s3://, gs://, hf://, https:// and http:// are; mount it and give " \
    "its path, or read it with a plug-in or a Python dataset"

#define NO_LABEL \
    " is not a label: 1 to 96 bytes on one line, without blanks at its ends or two together"

#define NO_SHARE \
    " is neither a number of samples, such as 100, nor a share of them, such as 1% or 0.01"

TEST(test_shape_of_spec)
{
    static const char takes[] =
        "a loader spec takes name, label, dataset, sampler, batch, collate, shard, "
        "share, seed, workers, memory";
    char unknown[256], near_miss[256], pin[256];
    snprintf(unknown, sizeof unknown, "unknown key; %s", takes);
    snprintf(near_miss, sizeof near_miss, "unknown key; did you mean dataset? %s", takes);
    snprintf(pin, sizeof pin, "unknown key; did you mean memory.pin? %s", takes);
    const struct refusal cases[] = {
        {"null", "", "a loader spec is a mapping, not null"},
        {"[1]", "", "a loader spec is a mapping, not a list"},
        {"fashion", "", "a loader spec is a mapping, not \"fashion\""},
        {"{}", "dataset", "missing; for example dataset: {kind: range, length: 100}"},
        {"dataset: null", "dataset", "null is not a mapping"},
        {"dataset: range", "dataset", "\"range\" is not a mapping"},
        {"dataset: {}", "dataset.kind", "missing; give one of " KINDS},
        {"colour: red", "colour", unknown},
        {"datset: {}", "datset", near_miss},
        {"'': 1", "", unknown},
        {"batch_size: 3", "batch_size", "unknown key; write batch: {size: n}"},
        {"{name: a, label: b}", "label",
         "\"b\" is given together with name; leave out one of them"},
        {"label: 5", "label", "5 is not a string; put it in quotes"},
        {"label: ''", "label", "\"\"" NO_LABEL},
        {"label: 'a  b'", "label", "\"a  b\"" NO_LABEL},
        {"label: ' a'", "label", "\" a\"" NO_LABEL},
        {"label: 'a '", "label", "\"a \"" NO_LABEL},
        {"label: \"a\\tb\"", "label", "\"a?b\"" NO_LABEL},
        {"label: \"a\\u009bb\"", "label", "\"a??b\"" NO_LABEL},
        {"shuffle: true", "shuffle", "unknown key; write sampler: {kind: random}"},
        {"num_workers: 0", "num_workers", "unknown key; write workers: {count: n}"},
        {"pin_memory: true", "pin_memory", "unknown key; write memory: {pin: true}"},
        {"{dataset: {kind: range, length: 1}, memory: {pin_memory: true}}", "memory.pin_memory",
         "unknown key; write memory: {pin: true}"},
        {"{dataset: {kind: range, length: 1}, workers: {num_workers: 2}}", "workers.num_workers",
         "unknown key; write workers: {count: n}"},
        {"{dataset: {kind: range, length: 1}, workers: {pin: true}}", "workers.pin",
         "unknown key; did you mean memory.pin? workers takes count, prefetch, timeout, retries, "
         "on_error, max_bad, in_order, bypass, helpers"},
        {"{dataset: {kind: range, length: 1}, memory: {size: 3}}", "memory.size",
         "unknown key; did you mean dataset.size or batch.size or share.size? memory takes limit, "
         "pin, writable"},
        {"{dataset: {kind: range, length: 1}, memory: {seed: 3}}", "memory.seed",
         "unknown key; did you mean dataset.seed or seed? memory takes limit, pin, writable"},
        {"{dataset: {kind: range, length: 1}, batch: {memory: {pin: true}}}", "batch.memory",
         "unknown key; did you mean memory? batch takes tokens, size, drop_last, strategy, "
         "balance, cost, accumulate, interval, "
         "max_length, overlong, overlap, leftover, lengths, documents, window, length_of"},
        {"pin: true", "pin", pin},
    };
    EXPECT_REFUSALS("", cases);
}

static const struct refusal dataset_refusals[] = {
    {"{kind: 5}", "dataset.kind", "5 is not one of " KINDS},
    {"{kind: recods, x: 1}", "dataset.kind",
     "\"recods\" is not one of " KINDS "; did you "
     "mean records?"},
    {"{kind: python}", "dataset.object",
     "missing; a dataset of kind python needs it, such as mypackage.data:Dataset"},
    {"{kind: python, object: 'a:b', host: 1}", "dataset.object",
     "is given together with host; leave out one of them"},
    {"{kind: python, object: 'a:b', length: 1}", "dataset.length",
     "not a key of a dataset of kind python; it takes kind, paths, cache, object, host, args, "
     "interpreter"},
    {"{kind: python, object: data}", "dataset.object",
     "\"data\" is not module:name, such as mypackage.data:Dataset"},
    {"{kind: python, object: 'a:b:c'}", "dataset.object",
     "\"a:b:c\" is not module:name, such as mypackage.data:Dataset"},
    {"{kind: python, object: 'a: b'}", "dataset.object",
     "\"a: b\" is not module:name, such as mypackage.data:Dataset"},
    {"{kind: python, host: 0}", "dataset.host", "0 is not a positive integer"},
    {"{kind: python, host: 1, interpreter: /usr/bin/python3}", "dataset.interpreter",
     "is given together with host, which already runs; leave out one of them"},
    {"{kind: python, host: 1, interpreter: 5}", "dataset.interpreter",
     "5 is not the path of a file; put it in quotes"},
    {"{kind: imagefolder, paths: /a, grey: true, transforms: [ToTensor]}", "dataset.transforms",
     "is given together with grey; write Grayscale among the transforms"},
    {"{kind: files, paths: /a, decode: false, grey: true}", "dataset.grey",
     "true has no effect with decode: false, which leaves images as they are stored; leave out one "
     "of them"},
    {"{kind: imagefolder, paths: /a, transforms: ToTensor}", "dataset.transforms",
     "is not a list of transforms, such as [{kind: Resize, size: 256}, ToTensor]"},
    {"{kind: imagefolder, paths: /a, views: {transforms: [ToTensor]}}", "dataset.views",
     "is not a list of views, such as [{transforms: [ToTensor], count: 2}]"},
    {"{kind: imagefolder, paths: /a, views: [{transforms: [ToTensor]}], transforms: [ToTensor]}",
     "dataset.views",
     "is given together with transforms; a view has all of its transforms in its own list: leave "
     "out one "
     "of "
     "them"},
    {"{kind: imagefolder, paths: /a, flip: 0.5, views: [{transforms: [ToTensor]}]}",
     "dataset.views",
     "is given together with transform, size or flip; write those as transforms, too: "
     "{kind: RandomResizedCrop, size: 224}, RandomHorizontalFlip"},
    {"{kind: imagefolder, paths: /a, size: 3, transforms: [ToTensor]}", "dataset.transforms",
     "is given together with transform, size or flip; write those as transforms, too: "
     "{kind: RandomResizedCrop, size: 224}, RandomHorizontalFlip"},
    {"{kimd: range, length: 1}", "dataset.kimd",
     "unknown key; did you mean kind? which keys a dataset takes depends on its kind"},
    {"{length: 1}", "dataset.kind", "missing; give one of " KINDS},
    {"{kind: range}", "dataset.length", "missing; a dataset of kind range needs it"},
    {"{kind: range, length: -1}", "dataset.length", "-1 is not a non-negative integer"},
    {"{kind: range, length: 1.0}", "dataset.length", "1.0 is not a non-negative integer"},
    {"{kind: range, length: 9223372036854775808}", "dataset.length",
     "9223372036854775808 is above the maximum of 9223372036854775807"},
    {"{kind: range, length: 1, paths: x}", "dataset.paths",
     "not a key of a dataset of kind range; it takes kind, length, iterable, divide"},
    {"{kind: range, length: 1, lenght: 2}", "dataset.lenght",
     "unknown key; did you mean length? dataset takes kind, length, iterable, divide"},
    {"{kind: idx}", "dataset.paths", "missing; a dataset of kind idx needs it"},
    {"{kind: idx, paths: {}}", "dataset.paths",
     "a mapping is neither a mapping of fields to files nor one path: it is empty"},
    {"{kind: idx, paths: true}", "dataset.paths",
     "true is neither a mapping of fields to files nor one path; put it in quotes"},
    {"{kind: tar, paths: a, index: ''}", "dataset.index", "\"\" is not off, auto or a path"},
    {"{kind: tar, paths: a, index: 3}", "dataset.index",
     "3 is not off, auto or a path; put it in quotes"},
    {"{kind: tar, paths: a, index: auto, shuffle: 3}", "dataset.shuffle",
     "3 only applies to a stream; with an index, sampler and shard say who gets which sample: "
     "leave out one of them"},
    {"{kind: tar, paths: a, index: auto, divide: true}", "dataset.divide",
     "true only applies to a stream; with an index, sampler and shard say who gets which sample: "
     "leave out one of them"},
    {"{kind: text, paths: a, format: lines, fields: [text]}", "dataset.fields",
     "a list has no effect with format: lines; write format: json, or leave fields out"},
    {"{kind: tar, paths: a, fields: []}", "dataset.fields",
     "a list is not a list of fields, such as [jpg, cls], nor a mapping of names to them, such as "
     "{image: jpg}"},
    {"{kind: tar, paths: a, fields: [left.jpg]}", "dataset.fields.0",
     "left.jpg cannot be the name of a sample's field, which has no dots; give it another, such "
     "as {image: left.jpg}"},
    {"{kind: csv, paths: a, fields: [a.b, a.b]}", "dataset.fields.1", "a.b is given twice"},
    {"{kind: tar, paths: a, fields: [cls, cls]}", "dataset.fields.1", "cls is given twice"},
    {"{kind: tar, paths: a, fields: {image: 3}}", "dataset.fields.image",
     "3 is not a field of a record: 1 to 128 bytes without control characters; put it in quotes"},
    {"{kind: megatron, paths: a, sequence_length: 8}", "dataset.sequence_length",
     "8 only applies to view: samples; write that, or leave sequence_length out"},
    {"{kind: megatron, paths: a, view: samples}", "dataset.sequence_length",
     "missing; a dataset of kind megatron needs it"},
    {"{kind: tfrecord, paths: a, decode: false, images: [x]}", "dataset.images",
     "a list has no effect with decode: false, which leaves records as they are; leave out one of "
     "them"},
    {"{kind: tar, paths: a, decode: false, audio: [wav]}", "dataset.audio",
     "has no effect with decode: false, which leaves records as they are; leave out one of them"},
    {"{kind: tar, paths: a, raw: uint}", "dataset.raw",
     "\"uint\" is not one of uint8, int8, uint16, int16, uint32, int32, uint64, int64, float16, "
     "bfloat16, float32, float64, complex64, complex128; did you mean uint8?"},
    {"{kind: idx, paths: a, raw: uint8}", "dataset.raw",
     "not a key of a dataset of kind idx; it takes kind, paths"},
    {"{kind: tar, paths: a, audio: wav}", "dataset.audio",
     "\"wav\" is not a list of features, such as [flac]"},
    {"{kind: arrow, paths: a, frames: 9}", "dataset.frames",
     "9 only applies to sounds; write audio: [source, ...] to say which fields are, or leave this "
     "out"},
    {"{kind: audiofolder, paths: a, dtype: float64}", "dataset.dtype",
     "\"float64\" is not one of int16, float32; did you mean float32?"},
    {"{kind: audiofolder, paths: a, sample_rate: 999}", "dataset.sample_rate",
     "999 is not a rate from 1000 to 768000 frames a second; null keeps that of each sound"},
    {"{kind: hdf5, paths: a, cache: 0}", "dataset.cache",
     "0 is not a size in bytes, such as 4096, 256MiB or 1GiB"},
    {"{kind: audiofolder, paths: a, crop: start}", "dataset.crop",
     "\"start\" has no effect without frames, the length to crop to; write that, or leave crop "
     "out"},
    {"{kind: parquet, paths: a, nulls: none}", "dataset.nulls",
     "\"none\" is neither refuse nor a number, such as 0 or .nan"},
    {"{kind: csv, paths: a, separator: ';'}", "dataset.separator",
     "\";\" is not one of auto, comma, semicolon, tab, pipe"},
    {"{kind: parquet, paths: a, shared: 1KiB}", "dataset.shared",
     "1024 is not a size for decoded row groups: write 1MiB to 4TiB, or 0 to keep none"},
    {"{kind: imagefolder, paths: a, cache: 1GiB}", "dataset.cache",
     "keeps pictures that are decoded at full scale, for a list of transforms; transform decodes "
     "only what it needs: write transforms, or leave cache out"},
    {"{kind: imagefolder, paths: a, transforms: [ToTensor], cache: 1023KiB}", "dataset.cache",
     "1047552 is not a size for decoded pictures: write 1MiB to 4TiB, or 0 to keep none"},
    {"{kind: python, host: 1, paths: a, cache: 5TiB}", "dataset.cache",
     "5497558138880 is not a size for decoded pictures: write 1MiB to 4TiB, or 0 to keep none"},
    {"{kind: python, host: 1, cache: 1GiB}", "dataset.cache",
     "is given without paths, the directory whose pictures are kept"},
    {"{kind: python, host: 1, paths: a}", "dataset.paths",
     "is given without cache, the memory for its pictures"},
    {"{kind: python, object: 'a:b', paths: a, cache: 1GiB}", "dataset.paths",
     "is for a client's own host, whose pictures cache keeps; leave out both"},
    {"{kind: python, object: 'a:b', paths: 's3://a/b'}", "dataset.paths",
     "is a URL: it is for a client's own host, whose workers read such files, and is given without "
     "cache"},
    {"{kind: python, host: 1, paths: 's3://a/b', cache: 1GiB}", "dataset.paths",
     "is a URL: it is for a client's own host, whose workers read such files, and is given without "
     "cache"},
    {"{kind: tfrecord, paths: a, images: []}", "dataset.images",
     "the list is empty; give features, such as [image/encoded]"},
    {"{kind: arrow, paths: a, nulls: none}", "dataset.nulls",
     "\"none\" is neither refuse nor a number, such as 0 or .nan"},
    {"{kind: arrow, paths: a, nulls: null}", "dataset.nulls",
     "null is neither refuse nor a number, such as 0 or .nan"},
    {"{kind: arrow}", "dataset.paths", "missing; a dataset of kind arrow needs it"},
    {"{kind: tar, paths: 'ftp://host/train-{000..146}.tar'}", "dataset.paths",
     "\"ftp://host/train-{000..146}.tar\"" NO_URL},
    {"{kind: tar, paths: [a.tar, 'abfs://bucket/b.tar']}", "dataset.paths.1",
     "\"abfs://bucket/b.tar\"" NO_URL},
    {"{kind: imagefolder, paths: S3://b}", "dataset.paths", "\"S3://b\"" NO_URL},
    {"{kind: npy, paths: {x: file:///tmp/x.npy}}", "dataset.paths.x",
     "\"file:///tmp/x.npy\"" NO_URL},
    {"{kind: text, paths: gcs://bucket/a.txt, tokenizer: bytes}", "dataset.paths",
     "\"gcs://bucket/a.txt\"" NO_URL},
    {"{kind: npy, paths: ''}", "dataset.paths", "\"\" is not the path of a file"},
    {"{kind: npy, paths: {x: 5}}", "dataset.paths.x",
     "5 is not the path of a file; put it in quotes"},
    {"{kind: npy, paths: {x: [a]}}", "dataset.paths.x", "a list is not the path of a file"},
    {"{kind: npy, paths: {a: b, x: ''}}", "dataset.paths.x", "\"\" is not the path of a file"},
    {"{kind: npy, paths: {a.b: x}}", "dataset.paths",
     "\"a.b\" is not a field's name: 1 to 128 bytes without dots and control characters"},
    {"{kind: npy, paths: {'': x}}", "dataset.paths",
     "\"\" is not a field's name: 1 to 128 bytes without dots and control characters"},
    {"{kind: npy, paths: {\"a\\nb\": x}}", "dataset.paths",
     "\"a?b\" is not a field's name: 1 to 128 bytes without dots and control characters"},
    {"{kind: npy, paths: {\"a\\u0085b\": x}}", "dataset.paths",
     "\"a\?\?b\" is not a field's name: 1 to 128 bytes without dots and control characters"},
    {"{kind: records}", "dataset.paths", "missing; a dataset of kind records needs it"},
    {"{kind: records, paths: x}", "dataset.dtype", "missing; a dataset of kind records needs it"},
    {"{kind: records, paths: x, dtype: int8}", "dataset.shape",
     "missing; a dataset of kind records needs it"},
    {"{kind: records, paths: null}", "dataset.paths",
     "null is not the path of a file; put it in quotes"},
    {"{kind: records, paths: {a: b}}", "dataset.paths", "a mapping is not the path of a file"},
    {"{kind: records, paths: x, dtype: flaot32}", "dataset.dtype",
     "\"flaot32\" is not one of bool, uint8, int8, uint16, int16, uint32, int32, uint64, "
     "int64, "
     "float16, bfloat16, float32, float64, complex64, complex128; did you mean float32?"},
    {"{kind: records, paths: x, dtype: 8}", "dataset.dtype",
     "8 is not one of bool, uint8, int8, uint16, int16, uint32, int32, uint64, int64, "
     "float16, bfloat16, float32, float64, complex64, complex128"},
    {"{kind: records, paths: x, dtype: int8, shape: 3}", "dataset.shape",
     "3 is not a list of positive integers, such as [28, 28]"},
    {"{kind: records, paths: x, dtype: int8, shape: [3, 0]}", "dataset.shape.1",
     "0 is not a positive integer"},
    {"{kind: records, paths: x, dtype: int8, shape: [a]}", "dataset.shape.0",
     "\"a\" is not a positive integer"},
    {"{kind: records, paths: x, dtype: int8, shape: [18446744073709551615]}", "dataset.shape.0",
     "18446744073709551615 is not a positive integer"},
    {"{kind: records, paths: x, dtype: int8, shape: [1, 1, 1, 1, 1, 1, 1, 1]}", "dataset.shape",
     "8 dimensions are above the maximum of 7 (a batch has one more)"},
    {"{kind: records, paths: x, dtype: int16, shape: [2147483648, 2147483648]}", "dataset.shape",
     "a sample of this shape and dtype would have 2^63 bytes or more"},
    {"{kind: records, paths: x, dtype: int8, shape: [1], offset: -1}", "dataset.offset",
     "-1 is not a non-negative integer"},
};

TEST(test_dataset_refusals)
{
    EXPECT_REFUSALS("dataset: ", dataset_refusals);
}

#define IN_SUBSET(dataset) "{kind: subset, indices: [0], dataset: " dataset "}"
#define SPLIT(keys)        "{kind: split, dataset: {kind: range, length: 9}, seed: 1, " keys "}"

static const struct refusal nested_refusals[] = {
    /* What stands in another dataset is told with its place. */
    {"{kind: concat, datasets: [{kind: range, length: 1}, {kind: npy, paths: {a: 5}}]}",
     "dataset.datasets.1.paths.a", "5 is not the path of a file; put it in quotes"},
    {"{kind: concat, datasets: [{kind: npy}]}", "dataset.datasets.0.paths",
     "missing; a dataset of kind npy needs it"},
    {"{kind: concat, datasets: [{kind: npy, paths: {a.b: x}}]}", "dataset.datasets.0.paths",
     "\"a.b\" is not a field's name: 1 to 128 bytes without dots and control characters"},
    {"{kind: concat, datasets: [{kind: records, paths: x, dtype: int8, shape: [1, 0]}]}",
     "dataset.datasets.0.shape.1", "0 is not a positive integer"},
    {"{kind: concat, datasets: [{kind: range, length: 1, paths: x}]}", "dataset.datasets.0.paths",
     "not a key of a dataset of kind range; it takes kind, length, iterable, divide"},
    {"{kind: concat, datasets: [5]}", "dataset.datasets.0", "5 is not a mapping"},
    {IN_SUBSET("{kind: concat, datasets: [{kind: range, length: -1}]}"),
     "dataset.dataset.datasets.0.length", "-1 is not a non-negative integer"},
    {IN_SUBSET(IN_SUBSET(IN_SUBSET("{kind: xyz}"))), "dataset.dataset.dataset.dataset.kind",
     "\"xyz\" is not one of " KINDS},
    {IN_SUBSET("{kind: range, lenght: 5}"), "dataset.dataset.lenght",
     "unknown key; did you mean length? dataset takes kind, length, iterable, divide"},
    {IN_SUBSET("x.npy"), "dataset.dataset", "\"x.npy\" is not a mapping"},
    {IN_SUBSET("{}"), "dataset.dataset.kind", "missing; give one of " KINDS},

    {"{kind: concat}", "dataset.datasets", "missing; a dataset of kind concat needs it"},
    {"{kind: concat, datasets: []}", "dataset.datasets",
     "the list is empty; give datasets, such as [{kind: npy, paths: a.npy}, ...]"},
    {"{kind: concat, datasets: {kind: range, length: 1}}", "dataset.datasets",
     "a mapping is not a list of datasets, such as [{kind: npy, paths: a.npy}, ...]"},

    {"{kind: subset, indices: [0]}", "dataset.dataset",
     "missing; a dataset of kind subset needs it"},
    {"{kind: subset, dataset: {kind: range, length: 1}}", "dataset.indices",
     "missing; a dataset of kind subset needs it"},
    {"{kind: subset, dataset: {kind: range, length: 1}, indices: 5}", "dataset.indices",
     "5 is not a list of indices, such as [0, 1, 2]"},
    {"{kind: subset, dataset: {kind: range, length: 1}, indices: [0, -1]}", "dataset.indices.1",
     "-1 is not a non-negative integer below 2^63"},
    {"{kind: subset, dataset: {kind: range, length: 1}, indices: [1.5]}", "dataset.indices.0",
     "1.5 is not a non-negative integer below 2^63"},

    {SPLIT("part: 0"), "dataset.parts", "missing; a dataset of kind split needs it"},
    {SPLIT("parts: [9]"), "dataset.part", "missing; a dataset of kind split needs it"},
    {SPLIT("parts: [], part: 0"), "dataset.parts",
     "the list is empty; give parts, such as [800, 200] or [0.8, 0.2]"},
    {SPLIT("parts: 0.5, part: 0"), "dataset.parts",
     "0.5 is not a list of parts, such as [800, 200] or [0.8, 0.2]"},
    {SPLIT("parts: [4, 5], part: 2"), "dataset.part",
     "2 is not one of the 2 parts, which count from 0"},
    {SPLIT("parts: [4, 5], part: -1"), "dataset.part", "-1 is not a non-negative integer"},
    {SPLIT("parts: [4, -5], part: 0"), "dataset.parts.1",
     "-5 is not a non-negative integer below 2^63"},
    {SPLIT("parts: [4, x], part: 0"), "dataset.parts.1",
     "\"x\" is not a non-negative integer below 2^63"},
    {SPLIT("parts: [0.5, 0.6], part: 0"), "dataset.parts",
     "these fractions add up to 1.1 instead of 1"},
    {SPLIT("parts: [0.5, 0.4], part: 0"), "dataset.parts",
     "these fractions add up to 0.9 instead of 1"},
    {SPLIT("parts: [0.5, 2], part: 0"), "dataset.parts.1", "2 is not a fraction from 0 to 1"},
    {SPLIT("parts: [1.5, -0.5], part: 0"), "dataset.parts.0", "1.5 is not a fraction from 0 to 1"},
    {SPLIT("parts: [.nan, 0.5], part: 0"), "dataset.parts.0", "nan is not a fraction from 0 to 1"},
    {SPLIT("parts: [0.5, x], part: 0"), "dataset.parts.1", "\"x\" is not a fraction from 0 to 1"},
    {"{kind: split, dataset: {kind: range, length: 9}, parts: [9], part: 0}", "dataset.seed",
     "missing; a dataset of kind split needs it"},
    {"{kind: split, dataset: {kind: range, length: 9}, parts: [9], part: 0, seed: null}",
     "dataset.seed", "null is not an integer from -9223372036854775808 to 18446744073709551615"},

    {"{kind: tokens, paths: x}", "dataset.sequence_length",
     "missing; a dataset of kind tokens needs it"},
    {"{kind: tokens, sequence_length: 5}", "dataset.paths",
     "missing; a dataset of kind tokens needs it"},
    {"{kind: tokens, paths: x, sequence_length: 0}", "dataset.sequence_length",
     "0 is not a positive integer"},
    {"{kind: tokens, paths: x, sequence_length: 68719476737}", "dataset.sequence_length",
     "68719476737 is above the maximum of 68719476736"},
    {"{kind: tokens, paths: x, sequence_length: 5, stride: 0}", "dataset.stride",
     "0 is not a positive integer"},
    {"{kind: tokens, paths: x, sequence_length: 5, dtype: float32}", "dataset.dtype",
     "\"float32\" is not one of uint16, uint32, int32, int64"},
    {"{kind: tokens, paths: x, sequence_length: 5, dtype: int16}", "dataset.dtype",
     "\"int16\" is not one of uint16, uint32, int32, int64; did you mean uint16?"},
    {"{kind: tokens, paths: x, sequence_length: 5, widen: int32}", "dataset.widen",
     "\"int32\" is not one of int64, none; did you mean int64?"},
};

TEST(test_nested_refusals)
{
    EXPECT_REFUSALS("dataset: ", nested_refusals);
}

/* Lists that are too long, each by one; and what grows too long by being made canonical. */
static void expect_too_much(struct value *dataset, const char *path, const char *message)
{
    _cleanup_(value_deinit) struct value v = {0};
    struct value *child;
    struct dl_spec spec = {.workers = 77};
    struct dl_error err = {0};

    assert_int_equal(value_set(&v, "dataset", &child), 0);
    value_move(dataset, child);
    assert_int_equal(spec_from_value(&v, "/base", &spec, &err), -EINVAL);
    if (strcmp(err.path, path) != 0 || strcmp(err.message, message) != 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_int_equal(spec.workers, 77);
}

static struct value yaml(const char *text)
{
    struct value v = {0};
    assert_int_equal(yaml_parse(text, strlen(text), "t", &v, NULL), 0);
    return v;
}

TEST(test_too_much)
{
    struct value list = yaml("{kind: concat, datasets: []}");
    struct value indices = yaml("{kind: subset, dataset: {kind: range, length: 1}, indices: []}");
    struct value deep = yaml("{kind: range, length: 1}");
    struct value paths = yaml("{kind: concat, datasets: []}");
    _cleanup_free_ char *path = calloc(1, 4000);
    struct value *item;

    for (int i = 0; i < 1025; i++) {
        assert_int_equal(value_push(&list.items[1], &item), 0);
        *item = yaml("{kind: range, length: 1}");
    }
    expect_too_much(&list, "dataset.datasets", "1025 entries are above the maximum of 1024");

    for (int i = 0; i < 65536; i++) {
        assert_int_equal(value_push(&indices.items[2], &item), 0);
        value_make_uint(item, 0);
    }
    expect_too_much(&indices, "dataset",
                    "with its defaults, the spec is above the maximum of 65536 values in 16 "
                    "levels; list fewer indices or datasets");

    for (int i = 0; i < 18; i++) {
        struct value around = yaml("{kind: subset, indices: [0]}");
        assert_int_equal(value_set(&around, "dataset", &item), 0);
        value_move(&deep, item);
        deep = around;
    }
    expect_too_much(&deep,
                    "dataset.dataset.dataset.dataset.dataset.dataset.dataset.dataset.dataset."
                    "dataset.dataset.dataset.dataset.dataset.dataset.dataset.dataset.dataset",
                    "more than 16 nested datasets");

    memset(path, 'p', 3999);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(value_push(&paths.items[1], &item), 0);
        *item = yaml("{kind: npy}");
        assert_int_equal(value_set_string(item, "paths", path), 0);
    }
    expect_too_much(&paths, "dataset",
                    "with its defaults and whole paths, the spec has 805026 bytes, above the "
                    "maximum of 786432; list fewer indices or files");
}

static const struct refusal key_refusals[] = {
    {"name: 5", "name", "5 is not a string; put it in quotes"},
    {"name: null", "name", "null is not a string; put it in quotes"},
    {"name: [a]", "name", "a list is not a string"},
    {"name: ''", "name", "\"\" is not a name: 1 to 128 letters, digits and . _ - /"},
    {"name: a b", "name", "\"a b\" is not a name: 1 to 128 letters, digits and . _ - /"},
    {"name: \xC3\xA9", "name", "\"\xC3\xA9\" is not a name: 1 to 128 letters, digits and . _ - /"},
    {"collate: {mixup: 0.2}", "collate.classes",
     "null is not a number of classes, which mixup and cutmix need to make shares of each "
     "label; write it, such as 1000"},
    {"collate: {classes: 10}", "collate.classes",
     "10 only applies to mixup and cutmix; write one of them, or leave classes out"},
    {"collate: {cutmix: 1, classes: 10}\nbatch: {size: null}", "batch.size",
     "null makes no batch whose samples could be mixed; write a number of samples, or leave mixup "
     "and cutmix out"},
    {"collate: {mixup: -1, classes: 2}", "collate.mixup", "-1 is not a number from 0 to 1000"},
    {"sampler: 5", "sampler", "5 is not a mapping"},
    {"sampler: {kind: radnom}", "sampler.kind",
     "\"radnom\" is not one of sequential, random, subset_random, weighted, indices, client; did "
     "you "
     "mean random?"},
    {"sampler: {kind: true}", "sampler.kind",
     "true is not one of sequential, random, subset_random, weighted, indices, client"},
    {"sampler: {kind: client, indices: [0]}", "sampler.indices",
     "not a key of a sampler of kind client; it takes kind"},
    {"sampler: {kind: random, replacement: 1}", "sampler.replacement", "1 is not true or false"},
    {"sampler: {kind: random, num_samples: 0}", "sampler.num_samples",
     "0 is not a positive integer; null takes as many as there are"},
    {"sampler: {kind: random, num_samples: -5}", "sampler.num_samples",
     "-5 is not a positive integer"},
    {"sampler: {kind: random, num_samples: true}", "sampler.num_samples",
     "true is not a positive integer"},
    {"sampler: {kind: random, num_samples: 9223372036854775808}", "sampler.num_samples",
     "9223372036854775808 is above the maximum of 9223372036854775807"},
    {"sampler: {kind: random, indices: [0]}", "sampler.indices",
     "not a key of a sampler of kind random; it takes kind, replacement, num_samples, order, "
     "block, window"},
    {"sampler: {kind: random, order: native, block: 0}", "sampler.block",
     "0 is not a positive integer; null shuffles the epoch as a whole"},
    {"sampler: {kind: random, order: native, window: 3}", "sampler.window",
     "3 only applies to blocks of samples; write block: n, or leave window out"},
    {"sampler: {kind: random, block: 8}", "sampler.block",
     "8 needs an order that can start at any position; write order: native"},
    {"sampler: {kind: random, order: native, num_samples: 9, block: 8}", "sampler.block",
     "8 takes each sample of an epoch once; leave replacement and num_samples out"},
    {"sampler: {kind: sequential, num_samples: 3}", "sampler.num_samples",
     "not a key of a sampler of kind sequential; it takes kind"},
    {"sampler: {kind: indices, order: torch}", "sampler.order",
     "not a key of a sampler of kind indices; it takes kind, indices"},
    {"sampler: {kind: indices}", "sampler.indices", "missing; a sampler of kind indices needs it"},
    {"sampler: {kind: subset_random}", "sampler.indices",
     "missing; a sampler of kind subset_random needs it"},
    {"sampler: {kind: weighted, num_samples: 1}", "sampler.order",
     "\"torch\" has no unique order for num_samples: 1 of a weighted sampler: builds of PyTorch "
     "with and without MKL differ; write order: native"},
    {"sampler: {kind: weighted, replacement: false}", "sampler.order",
     "\"torch\" has no unique order for weights without replacement: builds of PyTorch with and "
     "without MKL differ; write order: native"},
    {"sampler: {kind: weighted, num_samples: 2, replacement: false, order: native}",
     "sampler.num_samples",
     "2 samples cannot be drawn without replacement from a dataset of 1; lower it, or write "
     "replacement: true"},
    {"sampler: {kind: indices, indices: 5}", "sampler.indices",
     "5 is not a list of non-negative integers, such as [4, 0, 7]"},
    {"sampler: {kind: indices, indices: [0, -1]}", "sampler.indices.1",
     "-1 is not a non-negative integer below 2^63"},
    {"sampler: {kind: indices, indices: [0, 0, 1.0]}", "sampler.indices.2",
     "1.0 is not a non-negative integer below 2^63"},
    {"sampler: {kind: indices, indices: [9223372036854775808]}", "sampler.indices.0",
     "9223372036854775808 is not a non-negative integer below 2^63"},
    {"sampler: {kind: subset_random, indices: [0, 1]}", "sampler.indices.1",
     "1 is past the end of a dataset of 1 samples, whose indices start from 0"},
    {"sampler: {kind: weighted, weights: []}", "sampler.weights",
     "the list is empty; give one number for each sample, such as [0.5, 2, 0]"},
    {"sampler: {kind: weighted, weights: {a: 1}}", "sampler.weights",
     "a mapping is not a list of one number for each sample, such as [0.5, 2, 0]"},
    {"sampler: {kind: weighted, weights: [1, -0.5]}", "sampler.weights.1",
     "-0.5 is not a finite, non-negative number"},
    {"sampler: {kind: weighted, weights: [.nan]}", "sampler.weights.0",
     "nan is not a finite, non-negative number"},
    {"sampler: {kind: weighted, weights: [1, .inf]}", "sampler.weights.1",
     "inf is not a finite, non-negative number"},
    {"sampler: {kind: weighted, weights: [[1]]}", "sampler.weights.0",
     "a list is not a finite, non-negative number"},
    {"sampler: {kind: weighted, weights: [0, 0.0]}", "sampler.weights",
     "all weights are 0; at least one must be positive"},
    {"sampler: {kind: weighted, weights: [1.0e+308, 1.0e+308]}", "sampler.weights",
     "their sum exceeds the largest float64; scale them down"},
    {"sampler: {kind: weighted, weights: [1, 2]}", "sampler.weights",
     "2 weights do not fit a dataset of 1 samples; give one for each"},
    {"sampler: {kind: weighted, weights: [1], replacement: false, num_samples: 2}",
     "sampler.num_samples",
     "2 samples cannot be drawn without replacement from 1 weights; lower it, or write "
     "replacement: true"},
    {"sampler: {kind: weighted, weights: [1], replacement: false}", "sampler.order",
     "\"torch\" has no unique order for weights without replacement: builds of PyTorch with and "
     "without MKL differ; write order: native"},
    {"sampler: {kind: weighted, weights: [1, 1], num_samples: 1}", "sampler.order",
     "\"torch\" has no unique order for num_samples: 1 of a weighted sampler: builds of PyTorch "
     "with and without MKL differ; write order: native"},
    {"sampler: {kind: random, order: numpy}", "sampler.order",
     "\"numpy\" is not one of torch, native"},
    {"sampler: {order: torch}", "sampler.order",
     "not a key of a sampler of kind sequential; it takes kind"},
    {"batch: {size: -3}", "batch.size", "-3 is not a positive integer"},
    {"batch: {size: 0}", "batch.size", "0 is not a positive integer; null turns batching off"},
    {"batch: {size: abc}", "batch.size", "\"abc\" is not a positive integer"},
    {"batch: {size: '5'}", "batch.size", "\"5\" is not a positive integer"},
    {"batch: {size: 2.5}", "batch.size", "2.5 is not a positive integer"},
    {"batch: {size: true}", "batch.size", "true is not a positive integer"},
    {"batch: {size: [1]}", "batch.size", "a list is not a positive integer"},
    {"batch: {size: {}}", "batch.size", "a mapping is not a positive integer"},
    {"batch: {size: 1048577}", "batch.size", "1048577 is above the maximum of 1048576"},
    {"batch: {size: 18446744073709551615}", "batch.size",
     "18446744073709551615 is above the maximum of 1048576"},
    {"batch: {sise: 1}", "batch.sise",
     "unknown key; did you mean size? batch takes tokens, size, drop_last, strategy, balance, "
     "cost, accumulate, interval, max_length, overlong, overlap, leftover, lengths, documents, "
     "window, "
     "length_of"},
    {"batch: {drop_last: 1}", "batch.drop_last", "1 is not true or false"},
    {"batch: {drop_last: yes}", "batch.drop_last", "\"yes\" is not true or false"},
    {"batch: {size: null, drop_last: true}", "batch.drop_last",
     "true is mutually exclusive with batch.size: null, which turns batching off; leave out one "
     "of them"},
    {"collate: {kind: defualt}", "collate.kind",
     "\"defualt\" is not one of default, pad, none, plugin, python, pack; did you mean default?"},
    {"collate: {value: 0}", "collate.value",
     "not a key of collate of kind default; it takes kind, mixup, cutmix, classes"},
    {"shard: {mode: dispatched}", "shard.mode",
     "\"dispatched\" is not one of strided, batch, split, dispatch; did you mean dispatch?"},
    {"shard: {mode: dispatch}\nsampler: {kind: client}", "shard.mode",
     "\"dispatch\" has no effect, since a client that is the sampler gives each rank's samples; "
     "leave mode out"},
    {"shard: {mode: dispatch}\nbatch: {size: null}", "batch.size",
     "null makes no batches, which shard.mode dispatch needs; write size: 1, or another mode"},
    {"shard: {mode: dispatch}\ncollate: {kind: none}", "collate.kind",
     "\"none\" makes no rows, which shard.mode dispatch needs; write default or pad, or another "
     "mode"},
    {"shard: {mode: dispatch}\nworkers: {in_order: false}", "workers.in_order",
     "false does not work with shard.mode dispatch, where all ranks get the same batches; leave "
     "in_order out, or write another mode"},
    {"shard: {mode: dispatch}\nbatch: {tokens: 64}\ncollate: {kind: pad}", "shard.mode",
     "\"dispatch\" has no effect, since batch.tokens already plans each step for all ranks; "
     "leave mode out"},
    {"shard: {mode: batch}\nsampler: {kind: client}", "shard.mode",
     "\"batch\" has no effect, since a client that is the sampler gives each rank's samples; "
     "leave mode out"},
    {"shard: {even: null}", "shard.even", "null is not true or false"},
    {"seed: x", "seed",
     "\"x\" is not an integer from -9223372036854775808 to 18446744073709551615"},
    {"seed: null", "seed",
     "null is not an integer from -9223372036854775808 to 18446744073709551615; "
     "leave seed out to have one drawn"},
    {"seed: 1.0", "seed",
     "1.0 is not an integer from -9223372036854775808 to 18446744073709551615"},
    {"seeds: 1", "seeds",
     "unknown key; did you mean seed? a loader spec takes name, label, dataset, sampler, batch, "
     "collate, shard, share, seed, workers, memory"},
    {"workers: {count: -1}", "workers.count",
     "-1 is not a non-negative integer; 0 loads in the client's own process, without workers"},
    {"workers: {count: null}", "workers.count", "null is not a non-negative integer"},
    {"workers: {count: 0, prefetch: 2}", "workers.prefetch",
     "2 could only be given with worker processes, which load ahead; write workers.count 1 or "
     "more, or leave prefetch out"},
    {"workers: {count: 0, timeout: 0}", "workers.timeout",
     "0 could only be given with worker processes, which can be stopped; write workers.count 1 "
     "or more, or leave timeout out"},
    {"workers: {count: 257}", "workers.count", "257 is above the maximum of 256"},
    {"workers: {prefetch: 0}", "workers.prefetch",
     "0 is not a positive integer; 1 loads one batch ahead for each worker"},
    {"workers: {prefetch: 1025}", "workers.prefetch", "1025 is above the maximum of 1024"},
    {"workers: {retries: -1}", "workers.retries", "-1 is not a non-negative integer"},
    {"workers: {retries: 101}", "workers.retries", "101 is above the maximum of 100"},
    {"workers: {on_error: retry}", "workers.on_error",
     "\"retry\" is not supported by this version; it has raise, skip, substitute"},
    {"workers: {on_error: rise}", "workers.on_error",
     "\"rise\" is not one of raise, skip, substitute; did you mean raise?"},
    {"workers: {max_bad: 5}", "workers.max_bad",
     "5 has no effect with on_error: raise, where the first one is an error; write on_error: "
     "skip or substitute, or leave max_bad out"},
    {"workers: {on_error: skip, max_bad: 0}", "workers.max_bad", "0" NO_SHARE},
    {"workers: {on_error: skip, max_bad: -1}", "workers.max_bad", "-1" NO_SHARE},
    {"workers: {on_error: skip, max_bad: 1.0}", "workers.max_bad", "1.0" NO_SHARE},
    {"workers: {on_error: skip, max_bad: 0.0}", "workers.max_bad", "0.0" NO_SHARE},
    {"workers: {on_error: skip, max_bad: .nan}", "workers.max_bad", "nan" NO_SHARE},
    {"workers: {on_error: skip, max_bad: null}", "workers.max_bad", "null" NO_SHARE},
    {"workers: {on_error: skip, max_bad: 100%}", "workers.max_bad", "\"100%\"" NO_SHARE},
    {"workers: {on_error: skip, max_bad: '%'}", "workers.max_bad", "\"%\"" NO_SHARE},
    {"workers: {on_error: skip, max_bad: 1 %}", "workers.max_bad", "\"1 %\"" NO_SHARE},
    {"workers: {on_error: skip, max_bad: 65537}", "workers.max_bad",
     "65537 is above the maximum of 65536"},
    {"batch: {tokens: 8}\ncollate: {kind: pad}\nworkers: {on_error: substitute}",
     "workers.on_error",
     "\"substitute\" does not work with batch.tokens, whose batches are planned from the "
     "lengths of all samples; exclude bad samples with dataset: {kind: subset}, and leave "
     "on_error out"},
    {"batch: {size: null}\nworkers: {on_error: skip}", "workers.on_error",
     "\"skip\" leaves no sample in a step with batch.size: null; write substitute, or leave "
     "on_error out"},
    {"shard: {mode: dispatch}\nworkers: {on_error: skip}", "workers.on_error",
     "\"skip\" makes batches of different sizes, which shard.mode dispatch cannot divide; write "
     "substitute, or leave on_error out"},
    {"workers: {in_order: 1}", "workers.in_order", "1 is not true or false"},
    {"workers: {init: x}", "workers.init",
     "not supported by this version; workers takes count, prefetch, timeout, retries, "
     "on_error, max_bad, in_order, bypass, helpers"},
    {"workers: {timeout: 5 parsecs}", "workers.timeout",
     "\"5 parsecs\" is not a duration, such as 30s, 500ms or 2min; 0 is none"},
    {"workers: {timeout: -1}", "workers.timeout",
     "-1 is not a non-negative duration, such as 30s, 500ms or 2min; 0 is none"},
    {"workers: {timeout: -0.5}", "workers.timeout",
     "-0.5 is not a non-negative duration, such as 30s, 500ms or 2min; 0 is none"},
    {"workers: {timeout: .nan}", "workers.timeout",
     "nan is not a duration, such as 30s, 500ms or 2min; 0 is none"},
    {"workers: {timeout: .inf}", "workers.timeout",
     "inf is not a duration, such as 30s, 500ms or 2min; 0 is none"},
    {"workers: {timeout: null}", "workers.timeout",
     "null is not a duration, such as 30s, 500ms or 2min; 0 is none"},
    {"workers: {timeout: 9223372037}", "workers.timeout",
     "9223372037 is above the maximum of 9223372036854775807 nanoseconds"},
    {"workers: {timeout: 18446744073709551615}", "workers.timeout",
     "18446744073709551615 is above the maximum of 9223372036854775807 nanoseconds"},
    {"workers: {timeout: 1e10}", "workers.timeout",
     "1e+10 is above the maximum of 9223372036854775807 nanoseconds"},
    {"workers: {timeout: 9999999h}", "workers.timeout",
     "\"9999999h\" is above the maximum of 9223372036854775807 nanoseconds"},
    {"memory: {limit: 0}", "memory.limit",
     "0 is not a size in bytes, such as 4096, 256MiB or 1GiB"},
    {"memory: {limit: 256M}", "memory.limit",
     "\"256M\" is not a size in bytes, such as 4096, 256MiB or 1GiB"},
    {"memory: {limit: -1}", "memory.limit",
     "-1 is not a non-negative size in bytes, such as 4096, 256MiB or 1GiB"},
    {"memory: {limit: 1.5}", "memory.limit",
     "1.5 is not a size in bytes, such as 4096, 256MiB or 1GiB"},
    {"memory: {limit: 9999999999TiB}", "memory.limit",
     "\"9999999999TiB\" is above the maximum of 9223372036854775807 bytes"},
    {"memory: {limit: 9223372036854775808}", "memory.limit",
     "9223372036854775808 is above the maximum of 9223372036854775807 bytes"},
    {"memory: {pin: 0}", "memory.pin", "0 is not true or false"},
    {"memory: {writable: 'true'}", "memory.writable", "\"true\" is not true or false"},
    {"memory: {limits: 1}", "memory.limits",
     "unknown key; did you mean limit? memory takes limit, pin, writable"},
};

TEST(test_key_refusals)
{
    EXPECT_REFUSALS("dataset: {kind: range, length: 1}\n", key_refusals);
}

/* A good dataset that has the key; where the key is no dataset's, any. */
static const char *dataset_with(const struct spec_key *key)
{
    static const struct {
        enum dataset_kind kind;
        const char *text;
    } datasets[] = {
        {DATASET_RECORDS, "{kind: records, paths: x, dtype: int8, shape: [1]}"},
        {DATASET_IDX, "{kind: idx, paths: x}"},
        {DATASET_TOKENS, "{kind: tokens, paths: x, sequence_length: 5}"},
        {DATASET_CONCAT, "{kind: concat, datasets: [{kind: range, length: 1}]}"},
        {DATASET_SUBSET, "{kind: subset, dataset: {kind: range, length: 1}, indices: [0]}"},
        {DATASET_SPLIT, "{kind: split, dataset: {kind: range, length: 1}, parts: [1], part: 0, "
                        "seed: 1}"},
        {DATASET_TAR, "{kind: tar, paths: x}"},
        {DATASET_MEGATRON, "{kind: megatron, paths: x}"},
        {DATASET_MDS, "{kind: mds, paths: x}"},
        {DATASET_TFRECORD, "{kind: tfrecord, paths: x}"},
        {DATASET_PARQUET, "{kind: parquet, paths: x}"},
        {DATASET_ARROW, "{kind: arrow, paths: x}"},
        {DATASET_CSV, "{kind: csv, paths: x}"},
        {DATASET_LMDB, "{kind: lmdb, paths: x}"},
        {DATASET_IMAGEFOLDER, "{kind: imagefolder, paths: x}"},
        {DATASET_HDF5, "{kind: hdf5, paths: x}"},
        {DATASET_LITDATA, "{kind: litdata, paths: x}"},
        {DATASET_AUDIOFOLDER, "{kind: audiofolder, paths: x, frames: 9}"},
        {DATASET_FILES, "{kind: files, paths: x}"},
        {DATASET_TEXT, "{kind: text, paths: x, tokenizer: bytes}"},
        {DATASET_PLUGIN, "{kind: plugin, path: x}"},
        {DATASET_PYTHON, "{kind: python, object: 'a:b'}"},
    };
    if (strcmp(key->key, "host") == 0) /* which stands in place of another key */
        return "{kind: python}";
    if (strcmp(key->key, "model") == 0) /* which no other tokenizer has */
        return "{kind: text, paths: x, tokenizer: sentencepiece}";
    if (strcmp(key->key, "special_tokens") == 0 || strcmp(key->key, "mlm_probability") == 0 ||
        strcmp(key->key, "chat") == 0)
        return "{kind: text, paths: x, tokenizer: huggingface, model: y}";
    bool own = strcmp(key->section, "dataset") == 0;
    if (own && strstr("chat_template tools prompt chat_end loss cut", key->key))
        return "{kind: text, paths: x, tokenizer: huggingface, model: y, chat: jinja, "
               "chat_template: z}";
    for (size_t i = 0; i < ARRAY_SIZE(datasets) && own; i++)
        if (key->kinds & 1U << datasets[i].kind)
            return datasets[i].text;
    return "{kind: range, length: 1}";
}

/* Whatever stands under any key, the answer is an error that names the key, or a spec. */
TEST(test_every_key_every_type)
{
    static const char *const written[] = {"null", "true",  "-1",      "18446744073709551615",
                                          "1.5",  "zz zz", "[1, []]", "{a: [b]}"};
    size_t n;
    const struct spec_key *keys = spec_keys(&n);

    for (size_t i = 0; i < n; i++) {
        char path[SPEC_PATH_MAX], text[512];
        unsigned refused = 0;
        spec_key_path(&keys[i], path);
        const char *dataset = dataset_with(&keys[i]);
        if (keys[i].type == KEY_VALUE)
            continue; /* anything */
        const char *kind = strcmp(keys[i].section, "sampler") != 0 ? NULL
                           : keys[i].kinds & 1U << SAMPLER_RANDOM  ? "random"
                           : keys[i].kinds & 1U << SAMPLER_INDICES ? "indices"
                           : keys[i].kinds                         ? "weighted"
                                                                   : NULL;
        if (strcmp(keys[i].section, "collate") == 0 && keys[i].kinds)
            kind = strcmp(keys[i].key, "length") == 0     ? "pack"
                   : keys[i].kinds & 1U << COLLATE_PAD    ? "pad"
                   : keys[i].kinds & 1U << COLLATE_PLUGIN ? "plugin"
                                                          : "python";
        for (size_t j = 0; j < ARRAY_SIZE(written); j++) {
            _cleanup_(value_deinit) struct value v = {0};
            _cleanup_(value_deinit) struct value wrong = {0};
            _cleanup_(spec_deinit) struct dl_spec spec = {0};
            struct dl_error err = {0};
            struct value *section = &v, *child;

            snprintf(text, sizeof text, "dataset: %s\n%s", dataset,
                     of_tokens(&keys[i]) ? "collate: {kind: pad}" : "");
            assert_int_equal(yaml_parse(text, strlen(text), "t", &v, &err), 0);
            assert_int_equal(yaml_parse(written[j], strlen(written[j]), "t", &wrong, &err), 0);
            if (strcmp(keys[i].section, "dataset") == 0)
                section = &v.items[0];
            else if (keys[i].section[0])
                assert_int_equal(value_set(&v, keys[i].section, &section), 0);
            if (kind)
                assert_int_equal(value_set_string(section, "kind", kind), 0);
            if (of_tokens(&keys[i])) {
                assert_int_equal(value_set_uint(section, "tokens", 4096), 0);
                assert_int_equal(value_set_string(section, "strategy", "bucket"), 0);
            }
            assert_int_equal(value_set(section, keys[i].key, &child), 0);
            value_move(&wrong, child);

            int r = spec_from_value(&v, "/base", &spec, &err);
            refused += r < 0;
            if (r != 0 && (r != -EINVAL || strncmp(err.path, path, strlen(path)) != 0))
                fail_msg("%s: %s: %d, %s: %s", path, written[j], r, err.path, err.message);
        }
        assert_in_range(refused, 3, ARRAY_SIZE(written));
    }
}
