/*
 * The keys of text, images, archives, plug-ins and collate: what is read, its canonical form, and
 * in which words it is refused.
 */
#include "tests/lib/row.h"
#include "tests/unit/spec_text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

static const struct form dataset_forms[] = {
    {"{kind: range, length: 9, iterable: false}", "{kind: range, length: 9}"},
    {"{kind: range, length: 9, iterable: true}",
     "{kind: range, length: 9, iterable: true, divide: true}"},
    {"{kind: range, length: 9, divide: false, iterable: true}",
     "{kind: range, length: 9, iterable: true, divide: false}"},
    {"{kind: chain, datasets: [{kind: range, length: 1, iterable: true}, {kind: plugin,"
     " path: p.so}, {kind: chain, datasets: [{kind: range, length: 2, iterable: true}]}]}",
     "{kind: chain, datasets: [{kind: range, length: 1, iterable: true, divide: true},"
     " {kind: plugin, path: /base/p.so, config: null}, {kind: chain, datasets:"
     " [{kind: range, length: 2, iterable: true, divide: true}]}]}"},
    {"{kind: concat, datasets: [{kind: plugin, path: p.so}, {kind: text, paths: x}]}",
     "{kind: concat, datasets: [{kind: plugin, path: /base/p.so, config: null}, {kind: text,"
     " paths: [/base/x], format: auto, tokenizer: none, field: text}]}"},
    {"{kind: text, paths: ['../b*.txt', /a/./x, a]}",
     "{kind: text, paths: ['/b*.txt', /a/x, /base/a], format: auto, tokenizer: none,"
     " field: text}"},
    {"{kind: text, paths: x, format: lines, tokenizer: bytes}",
     "{kind: text, paths: [/base/x], format: lines, tokenizer: bytes, max_length: null}"},
    {"{kind: text, paths: x, model: ../m/./a.model, tokenizer: sentencepiece}",
     "{kind: text, paths: [/base/x], format: auto, tokenizer: sentencepiece, field: text,"
     " model: /m/a.model, max_length: null}"},
    {"{kind: text, paths: [x, y], format: lines, tokenizer: sentencepiece, max_length: 9,"
     " model: /m}",
     "{kind: text, paths: [/base/x, /base/y], format: lines, tokenizer: sentencepiece,"
     " model: /m, max_length: 9}"},
    {"{kind: text, paths: x, tokenizer: huggingface, model: t.json}",
     "{kind: text, paths: [/base/x], format: auto, tokenizer: huggingface, field: text,"
     " model: /base/t.json, special_tokens: true, mlm_probability: 0.0, chat: none,"
     " max_length: null}"},
    {"{kind: text, paths: x, tokenizer: huggingface, model: t.json, special_tokens: false,"
     " bos: <s>, eos: </s>, mlm_probability: 0.5, chat: llama3}",
     "{kind: text, paths: [/base/x], format: auto, tokenizer: huggingface, field: text,"
     " model: /base/t.json, special_tokens: false, bos: <s>, eos: </s>, mlm_probability: 0.5,"
     " chat: llama3, max_length: null}"},
    {"{kind: text, paths: x, format: json, tokenizer: bytes, field: caf\xC3\xA9,"
     " max_length: 512}",
     "{kind: text, paths: [/base/x], format: json, tokenizer: bytes, field: caf\xC3\xA9,"
     " max_length: 512}"},
    {"{kind: imagefolder, paths: train}",
     "{kind: imagefolder, paths: /base/train, transform: none, flip: 0.0, layout: hwc}"},
    {"{kind: imagefolder, paths: train, size: 224}",
     "{kind: imagefolder, paths: /base/train, size: [224, 224], transform: resize, flip: 0.0,"
     " layout: hwc}"},
    {"{kind: imagefolder, paths: t, size: [1, 65535], transform: center_crop, layout: chw,"
     " flip: 1}",
     "{kind: imagefolder, paths: /base/t, size: [1, 65535], transform: center_crop,"
     " resize: null, flip: 1.0, layout: chw}"},
    {"{kind: imagefolder, paths: t, size: 9, transform: center_crop, resize: 10, flip: -0.0}",
     "{kind: imagefolder, paths: /base/t, size: [9, 9], transform: center_crop, resize: 10,"
     " flip: 0.0, layout: hwc}"},
    {"{kind: imagefolder, paths: t, size: 9, transform: random_crop}",
     "{kind: imagefolder, paths: /base/t, size: [9, 9], transform: random_crop, flip: 0.0,"
     " scale: [0.08, 1.0], aspect: [0.75, 1.3333333333333333], layout: hwc}"},
    {"{kind: imagefolder, paths: t, size: 9, transform: random_crop, scale: [1, 1], aspect:"
     " [0.5, 3], flip: 0.5}",
     "{kind: imagefolder, paths: /base/t, size: [9, 9], transform: random_crop, flip: 0.5,"
     " scale: [1.0, 1.0], aspect: [0.5, 3.0], layout: hwc}"},
    {"{kind: tar, paths: 'train-{000..127}.tar'}",
     "{kind: tar, divide: true, paths: ['/base/train-{000..127}.tar'], tokenizer: none, "
     "shuffle: 0,"
     " decode: true, transform: none, flip: 0.0, layout: hwc}"},
    {"{kind: tar, paths: [b.tar, a.tar, b.tar], divide: false, shuffle: 1048576, size: 7}",
     "{kind: tar, divide: false, paths: [/base/b.tar, /base/a.tar, /base/b.tar],"
     " tokenizer: none, shuffle: 1048576, decode: true, size: [7, 7], transform: resize, flip: "
     "0.0,"
     " layout: hwc}"},
    {"{kind: tar, paths: a.tar, decode: false}",
     "{kind: tar, divide: true, paths: [/base/a.tar], tokenizer: none, shuffle: 0, decode: "
     "false}"},
    {"{kind: plugin, path: lib/../my.so}", "{kind: plugin, path: /base/my.so, config: null}"},
    {"{kind: plugin, path: my.so, config: {b: [1, {z: ~, y: .inf}], a: {}, '': 'x'}}",
     "{kind: plugin, path: /base/my.so, config: {'': x, a: {}, b: [1, {y: .inf, z: null}]}}"},
    {"{kind: plugin, path: my.so, config: 18446744073709551615}",
     "{kind: plugin, path: /base/my.so, config: 18446744073709551615}"},
    {"{kind: python, object: 'my.data:Set'}", "{kind: python, object: 'my.data:Set', args: null}"},
    {"{interpreter: py, args: {b: 1, a: [x]}, object: 'a:b.c', kind: python}",
     "{kind: python, object: 'a:b.c', args: {a: [x], b: 1}, interpreter: /base/py}"},
    {"{kind: python, host: 18446744073709551615}",
     "{kind: python, host: 18446744073709551615, args: null}"},
    {"{kind: subset, indices: [0], dataset: {kind: python, object: 'a:b'}}",
     "{kind: subset, dataset: {kind: python, object: 'a:b', args: null}, indices: [0]}"},
};

static const struct form chat_forms[] = {
    {"{kind: text, paths: x, tokenizer: huggingface, model: t.json,"
     " chat: jinja, loss: last, chat_template: chat_template.jinja,"
     " chat_args: {enable_thinking: false}, tools: t, prompt: p, chat_end: prompt,"
     " cut: oldest, second: rejected}",
     "{kind: text, paths: [/base/x], format: auto, tokenizer: huggingface, field: text,"
     " model: /base/t.json, special_tokens: true, mlm_probability: 0.0, chat: jinja,"
     " chat_template: /base/chat_template.jinja, chat_args: {enable_thinking: false},"
     " tools: t, prompt: p, chat_end: prompt, loss: last, cut: oldest, second: rejected,"
     " max_length: null}"},
};

static const struct form record_forms[] = {
    ROW("{kind: tar, paths: a.tar, index: 'off'}",
        "{kind: tar, divide: true, paths: [/base/a.tar], tokenizer: none, shuffle: 0, decode: "
        "true, transform: none, flip: 0.0, layout: hwc}"),
    ROW("{kind: tar, paths: a.tar, index: auto, decode: false}",
        "{kind: tar, index: auto, paths: [/base/a.tar], tokenizer: none, decode: false}"),
    ROW("{kind: tar, paths: a.tar, index: auto, decode: false, fields: {b: left.jpg, a: cls}}",
        "{kind: tar, index: auto, paths: [/base/a.tar], tokenizer: none, decode: false, fields: "
        "{a: cls, b: left.jpg}}"),
    ROW("{kind: tar, paths: a.tar, index: i/n.json, decode: false, fields: [cls, jpg]}",
        "{kind: tar, index: /base/i/n.json, paths: [/base/a.tar], tokenizer: none, decode: false, "
        "fields: {cls: cls, jpg: jpg}}"),
    ROW("{kind: tar, paths: a.tar, index: auto, decode: false, raw: uint8}",
        "{kind: tar, index: auto, paths: [/base/a.tar], tokenizer: none, decode: false, raw: "
        "uint8}"),
    ROW("{kind: files, paths: [a, 'b*.npz'], fields: [x]}",
        "{kind: files, paths: [/base/a, '/base/b*.npz'], listed: false, decode: true, fields: {x: "
        "x}, transform: none, flip: 0.0, layout: hwc}"),
    ROW("{kind: files, paths: a.txt, listed: true, size: 7, grey: true}",
        "{kind: files, paths: [/base/a.txt], listed: true, decode: true, size: [7, 7], transform: "
        "resize, flip: 0.0, layout: hwc, grey: true}"),
    ROW("{kind: files, paths: a, decode: false, raw: float32}",
        "{kind: files, paths: [/base/a], listed: false, decode: false, raw: float32}"),
    ROW("{kind: megatron, paths: m}",
        "{kind: megatron, paths: /base/m, view: documents, widen: int64}"),
    ROW("{kind: megatron, paths: m.bin, view: samples, sequence_length: 8, widen: none}",
        "{kind: megatron, paths: /base/m.bin, view: samples, sequence_length: 8, widen: none}"),
    ROW("{kind: mds, paths: m, size: 7}",
        "{kind: mds, paths: /base/m, tokenizer: none, decode: true, size: [7, 7], transform: "
        "resize, flip: 0.0, layout: hwc}"),
    ROW("{kind: mds, paths: m, decode: false, fields: [x]}",
        "{kind: mds, paths: /base/m, tokenizer: none, decode: false, fields: {x: x}}"),
    ROW("{kind: litdata, paths: l, decode: false}",
        "{kind: litdata, paths: /base/l, tokenizer: none, decode: false, nulls: refuse, cache: "
        "1073741824}"),
    ROW("{kind: litdata, paths: l, decode: false, sequence_length: 8, cache: 1MiB, nulls: 3}",
        "{kind: litdata, paths: /base/l, sequence_length: 8, tokenizer: none, decode: false, "
        "nulls: 3, cache: 1048576}"),
    ROW("{kind: tfrecord, paths: ['*.tfrecord'], images: [image/encoded], fields: [label]}",
        "{kind: tfrecord, paths: ['/base/*.tfrecord'], tokenizer: none, decode: true, fields: "
        "{label: label}, images: [image/encoded], transform: none, flip: 0.0, layout: hwc}"),
    ROW("{kind: audiofolder, paths: s}", "{kind: audiofolder, paths: /base/s, dtype: float32, "
                                         "channels: mono, sample_rate: null, frames: null}"),
    ROW("{kind: audiofolder, paths: s, dtype: int16, channels: keep, sample_rate: 16000, frames: "
        "48000, crop: start}",
        "{kind: audiofolder, paths: /base/s, dtype: int16, channels: keep, sample_rate: 16000, "
        "frames: 48000, crop: start}"),
    ROW("{kind: tar, paths: a.tar, index: auto, audio: [flac, wav], sample_rate: 16000}",
        "{kind: tar, index: auto, paths: [/base/a.tar], audio: [flac, wav], dtype: float32, "
        "channels: mono, sample_rate: 16000, frames: null, tokenizer: none, decode: true, "
        "transform: none, flip: 0.0, layout: hwc}"),
    ROW("{kind: tfrecord, paths: a, decode: false}",
        "{kind: tfrecord, paths: [/base/a], tokenizer: none, decode: false}"),
    ROW("{kind: tar, paths: a, decode: false, tokenizer: huggingface, model: t, field: json.text}",
        "{kind: tar, divide: true, paths: [/base/a], tokenizer: huggingface, field: json.text, "
        "model: /base/t, special_tokens: true, mlm_probability: 0.0, chat: none, max_length: null, "
        "shuffle: 0, decode: false}"),
};

static const struct form column_forms[] = {
    ROW("{kind: parquet, paths: d, audio: [x], frames: 9, dtype: int16}",
        "{kind: parquet, paths: [/base/d], audio: [x], dtype: int16, channels: mono, sample_rate: "
        "null, frames: 9, crop: random, tokenizer: none, decode: true, nulls: refuse, filter: "
        "null, cache: 1073741824, shared: 0, transform: none, flip: 0.0, layout: hwc}"),
    ROW("{kind: hdf5, paths: f.h5}", "{kind: hdf5, paths: /base/f.h5, cache: 1073741824}"),
    ROW("{kind: hdf5, paths: f.h5, fields: {x: train/images}, cache: 1KiB}",
        "{kind: hdf5, paths: /base/f.h5, fields: {x: train/images}, cache: 1024}"),
    ROW("{kind: lmdb, paths: d}", "{kind: lmdb, paths: /base/d, tokenizer: none, decode: true, "
                                  "prefix: null, transform: none, flip: 0.0, layout: hwc}"),
    ROW("{kind: lmdb, paths: d, decode: false, fields: [value], prefix: 'image-'}",
        "{kind: lmdb, paths: /base/d, tokenizer: none, decode: false, fields: {value: value}, "
        "prefix: image-}"),
    ROW("{kind: csv, paths: [a.csv]}", "{kind: csv, paths: [/base/a.csv], tokenizer: none, nulls: "
                                       "refuse, separator: auto, header: true, types: null}"),
    ROW("{kind: csv, paths: a, fields: {x: '1'}, nulls: 0, separator: tab, header: false, types: "
        "{b: int8, a: string}}",
        "{kind: csv, paths: [/base/a], tokenizer: none, fields: {x: '1'}, nulls: 0, separator: "
        "tab, header: false, types: {a: string, b: int8}}"),
    ROW("{kind: csv, paths: a, fields: [b.c]}",
        "{kind: csv, paths: [/base/a], tokenizer: none, fields: {b.c: b.c}, nulls: refuse, "
        "separator: auto, header: true, types: null}"),
    ROW("{kind: arrow, paths: a, decode: false, types: {b: int64, a: float64}, fields: [b.c]}",
        "{kind: arrow, paths: [/base/a], tokenizer: none, decode: false, fields: {b.c: b.c}, "
        "nulls: refuse, types: {a: float64, b: int64}, cache: 1073741824}"),
    ROW("{kind: parquet, paths: [d, 'e/*.parquet']}",
        "{kind: parquet, paths: [/base/d, '/base/e/*.parquet'], tokenizer: none, decode: true, "
        "nulls: refuse, filter: null, cache: 1073741824, shared: 0, transform: none, flip: 0.0, "
        "layout: hwc}"),
    ROW("{kind: parquet, paths: d, fields: [x], nulls: -1, filter: {y: 1, x: {min: 2}}, cache: "
        "1MiB, decode: false}",
        "{kind: parquet, paths: [/base/d], tokenizer: none, decode: false, fields: {x: x}, nulls: "
        "-1, filter: {x: {min: 2}, y: 1}, cache: 1048576, shared: 0}"),
    ROW("{kind: arrow, paths: a, decode: false}",
        "{kind: arrow, paths: [/base/a], tokenizer: none, decode: false, nulls: refuse, cache: "
        "1073741824}"),
    ROW("{kind: arrow, paths: [a, 'b*'], decode: false, nulls: -1, fields: [x]}",
        "{kind: arrow, paths: [/base/a, '/base/b*'], tokenizer: none, decode: false, fields: {x: "
        "x}, nulls: -1, cache: 1073741824}"),
    ROW("{kind: arrow, paths: a, decode: false, tokenizer: bytes, bos: 1}",
        "{kind: arrow, paths: [/base/a], tokenizer: bytes, field: text, bos: 1, max_length: null, "
        "decode: false, nulls: refuse, cache: 1073741824}"),
    ROW("{kind: csv, paths: a, tokenizer: sentencepiece, model: m, max_length: 3}",
        "{kind: csv, paths: [/base/a], tokenizer: sentencepiece, field: text, model: /base/m, "
        "max_length: 3, nulls: refuse, separator: auto, header: true, types: null}"),
    ROW("{kind: arrow, paths: a, decode: false, nulls: refuse}",
        "{kind: arrow, paths: [/base/a], tokenizer: none, decode: false, nulls: refuse, cache: "
        "1073741824}"),
};

static void expect_dataset_forms(const struct form *forms, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        _cleanup_free_ char *text = NULL;
        assert_true(asprintf(&text, "dataset: %s", forms[i].written) > 0);
        expect_form("dataset", text, forms[i].canonical);
    }
}

TEST(test_dataset_forms)
{
    expect_dataset_forms(dataset_forms, ARRAY_SIZE(dataset_forms));
    expect_dataset_forms(chat_forms, ARRAY_SIZE(chat_forms));
    expect_dataset_forms(record_forms, ARRAY_SIZE(record_forms));
    expect_dataset_forms(column_forms, ARRAY_SIZE(column_forms));
}

TEST(test_other_forms)
{
    static const struct {
        const char *section;
        struct form form;
    } forms[] = {
        {"collate", {"{}", "{kind: default}"}},
        {"collate", {"{kind: none}", "{kind: none}"}},
        {"collate", {"{kind: pad}", "{kind: pad, value: 0.0, side: right, multiple_of: 1}"}},
        {"collate",
         {"{kind: pad, fields: [tokens, pair.0, a], multiple_of: 1048576, side: left, value: -1}",
          "{kind: pad, value: -1.0, side: left, multiple_of: 1048576, fields: [a, pair.0,"
          " tokens]}"}},
        {"collate",
         {"{kind: pad, value: -.inf}", "{kind: pad, value: -.inf, side: right, multiple_of: 1}"}},
        {"collate",
         {"{kind: plugin, path: c.so}", "{kind: plugin, path: /base/c.so, config: null}"}},
        {"collate",
         {"{config: [1, {b: 1, a: 2}], path: /c.so, kind: plugin}",
          "{kind: plugin, path: /c.so, config: [1, {a: 2, b: 1}]}"}},
        {"sampler", {"{kind: client}", "{kind: client}"}},
        {"workers", {"{count: 0}", "{count: 0, retries: 2, on_error: raise, in_order: true}"}},
        {"workers",
         {"{count: 256, in_order: false}",
          "{count: 256, prefetch: 2, timeout: 0s, retries: 2, on_error: raise,"
          " in_order: false}"}},
        {"workers",
         {"{count: 1, helpers: auto}",
          "{count: 1, prefetch: 2, timeout: 0s, retries: 2, on_error: raise, in_order: true}"}},
        {"workers",
         {"{count: 1, helpers: 0}", "{count: 1, prefetch: 2, timeout: 0s, retries: 2, on_error: "
                                    "raise, in_order: true, helpers: 0}"}},
        {"workers",
         {"{count: 0, on_error: skip}",
          "{count: 0, retries: 2, on_error: skip, max_bad: 100, in_order: true}"}},
        {"workers",
         {"{count: 0, on_error: substitute, max_bad: 0.5%}",
          "{count: 0, retries: 2, on_error: substitute, max_bad: 0.005, in_order: true}"}},
        {"workers",
         {"{count: 0, on_error: substitute, max_bad: 65536}",
          "{count: 0, retries: 2, on_error: substitute, max_bad: 65536, in_order: true}"}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        _cleanup_free_ char *text = NULL;
        assert_true(asprintf(&text, "{dataset: {kind: range, length: 3}, %s: %s}", forms[i].section,
                             forms[i].form.written) > 0);
        expect_form(forms[i].section, text, forms[i].form.canonical);
    }
}

/* A dataset that does not say how long it is has an order only where the client makes it. */
TEST(test_unknown_length)
{
    static const char *const samplers[] = {"{}", "{kind: random}", "{kind: weighted, weights: [1]}",
                                           "{kind: indices, indices: [0]}"};

    for (size_t i = 0; i < ARRAY_SIZE(samplers); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        struct dl_error err = {0};
        char text[128];

        snprintf(text, sizeof text, "{dataset: {kind: python, object: 'a:b'}, sampler: %s}",
                 samplers[i]);
        expect_spec(text, &spec);
        assert_int_equal(spec_check_length(&spec, UINT64_MAX, &err), -EINVAL);
        assert_string_equal(err.path, "sampler.kind");
        assert_non_null(strstr(err.message, "needs the number of the dataset's samples"));
        assert_int_equal(spec_check_length(&spec, 1, &err), 0);
    }
}

TEST(test_iterable)
{
    static const struct {
        const char *dataset;
        bool iterable;
    } cases[] = {
        {"{kind: range, length: 1}", false},
        {"{kind: range, length: 1, iterable: true}", true},
        {"{kind: chain, datasets: [{kind: tar, paths: x}]}", true},
        {"{kind: tar, paths: x}", true},
        {"{kind: plugin, path: x}", false},
        {"{kind: python, object: 'a:b'}", false},
        {"{kind: concat, datasets: [{kind: python, host: 7}]}", false},
        {"{kind: concat, datasets: [{kind: plugin, path: x}]}", false},
        {"{kind: text, paths: x}", false},
        {"{kind: imagefolder, paths: x}", false},
    };
    static const char *const samplers[] = {"random", "client"};
    static const char *const shards[] = {"strided", "batch", "split", "dispatch"};
    static const char words[] =
        " has no meaning, as the dataset is iterable: samples come in its own order; leave sampler "
        "out, or shuffle in the dataset (tar: shuffle)";

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        char text[256], message[256];

        snprintf(text, sizeof text, "dataset: %s", cases[i].dataset);
        expect_spec(text, &spec);
        assert_int_equal(spec_dataset_is_iterable(&spec.dataset), cases[i].iterable);
        assert_int_equal(spec_check_iterable(&spec, NULL), 0);
        for (size_t j = 0; j < ARRAY_SIZE(shards); j++) {
            _cleanup_(spec_deinit) struct dl_spec shared = {0};

            snprintf(text, sizeof text, "{dataset: %s, shard: {mode: %s}}", cases[i].dataset,
                     shards[j]);
            expect_spec(text, &shared);
            assert_int_equal(spec_check_iterable(&shared, NULL), 0);
        }
        for (size_t j = 0; j < ARRAY_SIZE(samplers); j++) {
            _cleanup_(spec_deinit) struct dl_spec drawn = {0};
            struct dl_error err = {0};

            snprintf(text, sizeof text, "{dataset: %s, sampler: {kind: %s}}", cases[i].dataset,
                     samplers[j]);
            snprintf(message, sizeof message, "\"%s\"%s", samplers[j], words);
            int r = read_spec(text, "/base", &drawn, &err);
            assert_int_equal(r, cases[i].iterable ? -EINVAL : 0);
            if (r == 0) /* a plug-in that turned out iterable */
                assert_int_equal(spec_check_iterable(&drawn, &err), -EINVAL);
            assert_string_equal(err.path, "sampler.kind");
            assert_string_equal(err.message, message);
        }
    }
}

#define FOLDER(keys) "{kind: imagefolder, paths: x, " keys "}"
#define TAR(keys)    "{kind: tar, paths: x, " keys "}"
#define TEXT(keys)   "{kind: text, paths: x, " keys "}"
#define NO_MODEL \
    "is a tokenizer's file; write tokenizer: sentencepiece or huggingface, or leave model out"
#define NO_NAME "is not a field's name: 1 to 128 bytes without dots and control characters"
#define NOT_DECODED                                                                               \
    "has no effect with decode: false, which leaves images as they are stored; leave out one of " \
    "them"

static const struct refusal dataset_refusals[] = {
    {"{kind: range, length: 1, divide: true}", "dataset.divide",
     "true only applies to an iterable dataset; write iterable: true, or leave divide out"},
    {"{kind: range, length: 1, iterable: 1}", "dataset.iterable", "1 is not true or false"},
    {"{kind: chain, datasets: [{kind: tar, paths: x}, {kind: idx, paths: x}]}",
     "dataset.datasets.1",
     "idx is map-style; chain takes iterable datasets, concat map-style ones"},
    {"{kind: chain, datasets: [{kind: range, length: 1}]}", "dataset.datasets.0",
     "range is map-style without iterable: true; chain takes iterable datasets, concat map-style "
     "ones"},
    {"{kind: concat, datasets: [{kind: chain, datasets: [{kind: plugin, path: x}]}]}",
     "dataset.datasets.0",
     "chain is iterable; concat takes map-style datasets, chain iterable ones"},
    {"{kind: subset, indices: [0], dataset: {kind: tar, paths: x}}", "dataset.dataset",
     "tar is iterable and has no indices; subset takes a map-style dataset: write index: auto"},
    {"{kind: split, parts: [1], part: 0, seed: 1, dataset: {kind: range, length: 1, iterable: "
     "true}}",
     "dataset.dataset", "range is iterable and has no indices; split takes a map-style dataset"},
    {"{kind: chain, datasets: []}", "dataset.datasets",
     "the list is empty; give datasets, such as [{kind: npy, paths: a.npy}, ...]"},

    {"{kind: text}", "dataset.paths", "missing; a dataset of kind text needs it"},
    {"{kind: text, paths: []}", "dataset.paths",
     "a list is neither a path nor a list of paths: it is empty"},
    {"{kind: text, paths: {a: b}}", "dataset.paths",
     "a mapping is neither a path nor a list of paths"},
    {"{kind: text, paths: 5}", "dataset.paths",
     "5 is neither a path nor a list of paths; put it in quotes"},
    {"{kind: text, paths: [a, 5]}", "dataset.paths.1",
     "5 is not the path of a file; put it in quotes"},
    {"{kind: text, paths: ''}", "dataset.paths", "\"\" is not the path of a file"},
    {TEXT("format: csv"), "dataset.format", "\"csv\" is not one of auto, lines, json"},
    {TEXT("field: 5"), "dataset.field", "5 is not a string; put it in quotes"},
    {TEXT("field: a.b"), "dataset.field", "\"a.b\" " NO_NAME},
    {TEXT("field: ''"), "dataset.field", "\"\" " NO_NAME},
    {TEXT("format: lines, field: text"), "dataset.field",
     "\"text\" has no effect with format: lines; write format: json, or leave field out"},
    {"{kind: parquet, paths: x, field: text}", "dataset.field",
     "\"text\" is the field that becomes tokens, but tokenizer: none makes no tokens; write "
     "tokenizer: bytes, sentencepiece or huggingface, or leave field out"},
    {TEXT("second: target"), "dataset.second",
     "\"target\" is a field that becomes tokens, but tokenizer: none makes no tokens; write "
     "tokenizer: bytes, sentencepiece or huggingface, or leave second out"},
    {TEXT("tokenizer: bytes, second: a.b"), "dataset.second", "\"a.b\" " NO_NAME},
    {TEXT("tokenizer: huggingface, model: m, chat: jinja"), "dataset.chat_template",
     "missing; chat: jinja needs it, the chat_template.jinja or tokenizer_config.json that "
     "save_pretrained() wrote"},
    {TEXT("tokenizer: huggingface, model: m, chat: plain, chat_template: x"),
     "dataset.chat_template",
     "\"x\" only applies to a model's own template; write chat: jinja, or leave chat_template out"},
    {TEXT("tokenizer: huggingface, model: m, prompt: x"), "dataset.prompt",
     "\"x\" only applies to conversations; write chat: jinja or another template, or leave prompt "
     "out"},
    {TEXT("tokenizer: huggingface, model: m, chat: plain, cut: first"), "dataset.cut",
     "\"first\" is not one of tokens, oldest, newest"},
    {"{kind: tar, paths: x, tokenizer: bytes, field: a..b}", "dataset.field",
     "\"a..b\" is not a field's name: 1 to 128 bytes without dots and control characters"},
    {"{kind: imagefolder, paths: x, tokenizer: bytes}", "dataset.tokenizer",
     "not a key of a dataset of kind imagefolder; it takes kind, paths, cache, size, transform, "
     "resize, flip, scale, aspect, layout, grey, transforms, views"},
    {TEXT("tokenizer: bpe"), "dataset.tokenizer",
     "\"bpe\" is not one of none, bytes, sentencepiece, huggingface"},
    {TEXT("tokenizer: sentencepiece"), "dataset.model",
     "missing; tokenizer: sentencepiece needs it, the .model file that spm_train wrote"},
    {TEXT("tokenizer: huggingface"), "dataset.model",
     "missing; tokenizer: huggingface needs it, the tokenizer.json that save_pretrained() or "
     "Tokenizer.save() wrote"},
    {TEXT("tokenizer: sentencepiece, model: y, special_tokens: true"), "dataset.special_tokens",
     "true only applies to a tokenizer.json; write tokenizer: huggingface, or leave "
     "special_tokens out"},
    {TEXT("tokenizer: bytes, eos: x"), "dataset.eos",
     "\"x\" is not the number of a token, from 0 to 2147483647; only a tokenizer.json has their "
     "texts"},
    {TEXT("tokenizer: huggingface, model: y, bos: -5"), "dataset.bos",
     "-5 is neither the number of a token, from 0 to 2147483647, nor its text, of 1 to 128 bytes"},
    {TEXT("tokenizer: huggingface, model: y, chat: llama"), "dataset.chat",
     "\"llama\" is not one of none, chatml, llama3, plain, jinja, jinja2; did you mean llama3?"},
    {TEXT("tokenizer: huggingface, model: y, mlm_probability: 2"), "dataset.mlm_probability",
     "2 is not a number from 0 to 1"},
    {TEXT("tokenizer: sentencepiece, model: 5"), "dataset.model",
     "5 is not the path of a file; put it in quotes"},
    {TEXT("tokenizer: sentencepiece, model: ''"), "dataset.model",
     "\"\" is not the path of a file"},
    {TEXT("model: a.model"), "dataset.model", "\"a.model\" " NO_MODEL},
    {TEXT("tokenizer: bytes, model: a.model"), "dataset.model", "\"a.model\" " NO_MODEL},
    {"{kind: concat, datasets: [{kind: text, paths: x, tokenizer: sentencepiece}]}",
     "dataset.datasets.0.model",
     "missing; tokenizer: sentencepiece needs it, the .model file that spm_train wrote"},
    {"{kind: tokens, paths: x, sequence_length: 5, model: y}", "dataset.model",
     "not a key of a dataset of kind tokens; it takes kind, paths, dtype, sequence_length, stride, "
     "widen"},
    {TEXT("max_length: 5"), "dataset.max_length",
     "5 is a number of tokens, but tokenizer: none makes no tokens; write tokenizer: bytes, "
     "sentencepiece or huggingface, or leave max_length out"},
    {TEXT("tokenizer: bytes, max_length: 0"), "dataset.max_length", "0 is not a positive integer"},

    {"{kind: imagefolder}", "dataset.paths", "missing; a dataset of kind imagefolder needs it"},
    {FOLDER("size: 0"), "dataset.size", "0 is not a number of pixels from 1 to 65535"},
    {FOLDER("size: 65536"), "dataset.size", "65536 is not a number of pixels from 1 to 65535"},
    {FOLDER("size: 1.5"), "dataset.size", "1.5 is not a number of pixels from 1 to 65535"},
    {FOLDER("size: [3, -1]"), "dataset.size.1", "-1 is not a number of pixels from 1 to 65535"},
    {FOLDER("size: [3]"), "dataset.size",
     "a list is neither one number of pixels nor [height, width]"},
    {FOLDER("size: {h: 3}"), "dataset.size",
     "a mapping is neither one number of pixels nor [height, width]"},
    {FOLDER("transform: crop, size: 5"), "dataset.transform",
     "\"crop\" is not one of none, resize, center_crop, random_crop"},
    {FOLDER("transform: none, size: 5"), "dataset.size",
     "has no meaning with transform: none; leave out one of them"},
    {FOLDER("transform: resize"), "dataset.size",
     "missing; transform: resize needs it, such as size: 224 or size: [480, 640]"},
    {FOLDER("transform: random_crop"), "dataset.size",
     "missing; transform: random_crop needs it, such as size: 224 or size: [480, 640]"},
    {FOLDER("size: 5, resize: 6"), "dataset.resize",
     "6 only applies to transform: center_crop; write that, or leave resize out"},
    {FOLDER("size: 5, transform: center_crop, resize: 0"), "dataset.resize",
     "0 is not a positive integer"},
    {FOLDER("flip: 1.5"), "dataset.flip", "1.5 is not a number from 0 to 1"},
    {FOLDER("flip: -1"), "dataset.flip", "-1 is not a number from 0 to 1"},
    {FOLDER("flip: .nan"), "dataset.flip", "nan is not a number"},
    {FOLDER("flip: true"), "dataset.flip", "true is not a number"},
    {FOLDER("size: 5, transform: center_crop, scale: [0.5, 1]"), "dataset.scale",
     "a list only applies to transform: random_crop; write that, or leave scale out"},
    {FOLDER("aspect: [0.5, 1]"), "dataset.aspect",
     "a list only applies to transform: random_crop; write that, or leave aspect out"},
    {FOLDER("size: 5, transform: random_crop, scale: 0.5"), "dataset.scale",
     "0.5 is not a list of two numbers, the smaller and the larger"},
    {FOLDER("size: 5, transform: random_crop, scale: [0.5, x]"), "dataset.scale",
     "a list is not a list of two numbers, the smaller and the larger"},
    {FOLDER("size: 5, transform: random_crop, scale: [0.5, 0.4]"), "dataset.scale",
     "0.5 and 0.4 are not a range above 0, smaller first"},
    {FOLDER("size: 5, transform: random_crop, scale: [0, 1]"), "dataset.scale",
     "0 and 1 are not a range above 0, smaller first"},
    {FOLDER("size: 5, transform: random_crop, scale: [0.5, 1.5]"), "dataset.scale",
     "1.5 is above the maximum of 1"},
    {FOLDER("size: 5, transform: random_crop, aspect: [1, .inf]"), "dataset.aspect",
     "1 and inf are not a range above 0, smaller first"},
    {FOLDER("layout: nchw"), "dataset.layout",
     "\"nchw\" is not one of hwc, chw; did you mean chw?"},

    {"{kind: tar}", "dataset.paths", "missing; a dataset of kind tar needs it"},
    {TAR("shuffle: 1048577"), "dataset.shuffle", "1048577 is above the maximum of 1048576"},
    {TAR("shuffle: true"), "dataset.shuffle", "true is not a non-negative integer"},
    {TAR("decode: false, size: 5"), "dataset.size", "5 " NOT_DECODED},
    {TAR("decode: false, transform: none"), "dataset.transform", "\"none\" " NOT_DECODED},
    {TAR("decode: false, layout: hwc"), "dataset.layout", "\"hwc\" " NOT_DECODED},
    {TAR("decode: false, flip: 0.5"), "dataset.flip", "0.5 " NOT_DECODED},

    {"{kind: plugin}", "dataset.path", "missing; a dataset of kind plugin needs it"},
    {"{kind: plugin, path: x, colour: red}", "dataset.colour",
     "unknown key; dataset takes kind, path, config"},
};

static const struct refusal other_refusals[] = {
    {"collate: {kind: pad, value: x}", "collate.value", "\"x\" is not a number"},
    {"collate: {kind: pad, value: .nan}", "collate.value", "nan is not a number"},
    {"collate: {kind: pad, side: top}", "collate.side", "\"top\" is not one of right, left"},
    {"collate: {kind: pad, multiple_of: 0}", "collate.multiple_of", "0 is not a positive integer"},
    {"collate: {kind: pad, multiple_of: 1048577}", "collate.multiple_of",
     "1048577 is above the maximum of 1048576"},
    {"collate: {kind: pad, fields: []}", "collate.fields",
     "a list is empty; list the leaves to pad, such as [tokens, pair.0]; leave fields out to pad "
     "all leaves"},
    {"collate: {kind: pad, fields: tokens}", "collate.fields",
     "\"tokens\" is not a list of leaves, such as [tokens, pair.0]; leave fields out to pad all "
     "leaves"},
    {"collate: {kind: pad, fields: [a, 5]}", "collate.fields.1",
     "5 is not the name of a leaf; put it in quotes"},
    {"collate: {kind: pad, fields: [a..b]}", "collate.fields.0",
     "\"a..b\" is not the name of a leaf, such as tokens or pair.0"},
    {"collate: {kind: pad, fields: [a.]}", "collate.fields.0",
     "\"a.\" is not the name of a leaf, such as tokens or pair.0"},
    {"collate: {kind: pad, fields: ['']}", "collate.fields.0",
     "\"\" is not the name of a leaf, such as tokens or pair.0"},
    {"collate: {kind: pad, fields: [a, b, a]}", "collate.fields", "\"a\" occurs twice"},
    {"collate: {kind: pad, config: 5}", "collate.config",
     "not a key of collate of kind pad; it takes kind, length, to, value, side, multiple_of, "
     "fields"},
    {"collate: {kind: plugin}", "collate.path", "missing; collate of kind plugin needs it"},
    {"collate: {kind: plugin, path: 5}", "collate.path",
     "5 is not the path of a file; put it in quotes"},
    {"collate: {kind: python}", "collate.kind",
     "python takes the samples of a dataset of kind python; with kind range write default, pad, "
     "none or plugin"},
    {"collate: {kind: python, object: 5}", "collate.object",
     "5 is not module:name, such as mypackage.batches:collate; put it in quotes"},
    {"collate: {kind: none, fields: [a]}", "collate.fields",
     "not a key of collate of kind none; it takes kind"},
};

TEST(test_refusals)
{
    EXPECT_REFUSALS("dataset: ", dataset_refusals);
    EXPECT_REFUSALS("dataset: {kind: range, length: 1}\n", other_refusals);
}

/* One path, one leaf more than there may be. */
TEST(test_too_many)
{
    static const struct {
        const char *section;
        const char *text;
        const char *key;
        uint64_t most;
        const char *message;
    } cases[] = {
        {"dataset", "dataset: {kind: text}", "paths", DL_MAX_DATASET_PARTS,
         "1025 paths are above the maximum of 1024; write patterns with *"},
        {"collate", "{dataset: {kind: range, length: 1}, collate: {kind: pad}}", "fields",
         DL_MAX_COLLATE_FIELDS, "1025 leaves are above the maximum of 1024"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(value_deinit) struct value v = {0};
        _cleanup_(spec_deinit) struct dl_spec spec = {0}, over = {0};
        struct dl_error err = {0};
        struct value *section, *list, *item;
        char name[16];

        assert_int_equal(yaml_parse(cases[i].text, strlen(cases[i].text), "t", &v, NULL), 0);
        assert_int_equal(value_set(&v, cases[i].section, &section), 0);
        assert_int_equal(value_set_string(section, "kind", i ? "pad" : "text"), 0);
        assert_int_equal(value_set(section, cases[i].key, &list), 0);
        for (uint64_t n = 0; n <= cases[i].most; n++) {
            snprintf(name, sizeof name, "n%04u", (unsigned)n);
            if (n == cases[i].most)
                assert_int_equal(spec_from_value(&v, "/", &spec, &err), 0);
            assert_int_equal(value_push(list, &item), 0);
            assert_int_equal(value_make_string(item, name), 0);
        }
        assert_int_equal(spec_from_value(&v, "/", &over, &err), -EINVAL);
        assert_string_equal(err.message, cases[i].message);
    }
}
