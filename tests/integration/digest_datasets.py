"""The datasets that test_digest.py loads: one line in DATASETS for each kind and what its keys change.

A line is (name, kind, keys), keys being a function of the test case, in whose directory it makes
what there is to read. COLLATES and ITERABLE say by name what is not as usual.
"""

import ctypes
import gzip
import io
import json
import math
import os
import pathlib
import random
import re
import shlex
import shutil
import struct
import subprocess
import tarfile
import unittest
import zipfile

import dltest
import media

SOURCE = pathlib.Path(__file__).resolve().parents[2]
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
HDF5 = SOURCE / "tests/fuzz/corpus/hdf5/rows"  # which h5py wrote, of ROWS rows
ROWS = 61  # prime: divides into neither batches nor ranks


# ---- files --------------------------------------------------------------------------------------

def noise(name, size):
    """Bytes that differ from place to place and from file to file, the same in every run."""
    return random.Random(name).randbytes(size)


def npy(case, name, descr, *shape):
    width = int(re.sub(r"\D", "", descr))
    data = noise(name, ROWS * width * math.prod(shape))
    if descr == "|b1":
        data = bytes(byte & 1 for byte in data)
    if os.path.exists(case.path(name)):
        raise FileExistsError(name)
    return case.npy(name, (ROWS, *shape), descr, data)


IDX_TYPES = {"u1": (8, 1), "i1": (9, 1), "i2": (11, 2), "i4": (12, 4), "f4": (13, 4),
             "f8": (14, 8)}  # number and width


def idx(case, name, dtype, *shape):
    number, width = IDX_TYPES[dtype]
    data = struct.pack(f">BBBB{1 + len(shape)}I", 0, 0, number, 1 + len(shape), ROWS, *shape)
    data += noise(name, ROWS * width * math.prod(shape))
    if name.endswith(".gz"):  # two members, as some tools write them
        data = gzip.compress(data[:100]) + gzip.compress(data[100:])
    return write(case, name, data)


def write(case, name, data):
    path = case.path(name)
    with open(path, "xb") as file:  # no other line's
        file.write(data)
    return path


def records(case, name, dtype, width, shape, offset=0):
    size = offset + ROWS * width * math.prod(shape)
    return {"paths": write(case, name, noise(name, size)), "dtype": dtype, "shape": list(shape),
            "offset": offset}


def tokens(case, name, width, dtype=None, stride=None, **keys):
    """A file for ROWS windows of 17 tokens."""
    step = stride or 17
    data = noise(name, width * ((ROWS - 1) * step + 18))
    if dtype:
        keys.update(paths=write(case, name, data), dtype=dtype)
    else:
        keys.update(paths=case.npy(name, (len(data) // width,), f"<u{width}", data))
    if stride:
        keys["stride"] = stride
    return {"sequence_length": 17, **keys}


def pictures(case, prefix):
    """A dataset of ROWS samples with two fields."""
    return {"kind": "npy", "paths": {
        "image": npy(case, prefix + "-image.npy", "|u1", 9, 5),
        "label": npy(case, prefix + "-label.npy", "<i8")}}


def split(inner, parts, part):
    return {"kind": "split", "dataset": inner, "parts": parts, "part": part, "seed": 5}


def mixture(case, prefix):
    """Three kinds in each other, in 2 · ROWS samples."""
    whole = {"kind": "concat", "datasets": [pictures(case, prefix + "1"),
                                            pictures(case, prefix + "2")]}
    return [{"kind": "subset", "dataset": split(whole, [50, 72], 1),
             "indices": [71 - i for i in range(ROWS)]},
            split(whole, [0.5, 0.5], 0)]


def fashion(*names):
    if not FASHION.is_dir():
        raise unittest.SkipTest("the package dataset-fashion-mnist is not installed")
    return {name: str(FASHION / f"t10k-{file}.gz") for name, file in names}


def shards(case, prefix):
    """Eight shards of unequal length, ROWS samples together; the ranks and workers share them."""
    first = 0
    for i in range(8):
        count = ROWS - first if i == 7 else 4 + i
        media.shard(case.path(f"{prefix}-{i}.tar"), first, count)
        first += count
    return case.path(f"{prefix}-{{0..7}}.tar")


def shards_of_arrays(case, prefix):
    """Two shards, ROWS samples together, of an .npz of two arrays each, stored or deflated."""
    for first, count in ((0, 20), (20, ROWS - 20)):
        with tarfile.open(case.path(f"{prefix}-{first}.tar"), "w") as tar:
            for i in range(first, first + count):
                packed = io.BytesIO()
                with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED if i % 2 else zipfile.ZIP_STORED) as archive:
                    for name, shape, descr, width in (("ids", (7,), "<i8", 56), ("mask", (2, 3), "|u1", 6)):
                        path = case.npy(f"{prefix}-{name}.npy", shape, descr, noise(f"{name}{i}", width))
                        archive.write(path, f"{name}.npy")
                        os.unlink(path)
                info = tarfile.TarInfo(f"{i:03}.npz")
                info.size = len(packed.getvalue())
                tar.addfile(info, io.BytesIO(packed.getvalue()))
    return case.path(f"{prefix}-*.tar")


def megatron(case, name):
    media.megatron(case.path(name), ROWS)
    return case.path(name)


def megatron_windows(case, name):
    """A file for ROWS samples and a part of one, of 17 tokens."""
    documents = media.megatron(case.path(name), 2 * ROWS)
    tokens = sum(len(document) for document in documents)
    return {"paths": case.path(name), "view": "samples", "sequence_length": (tokens - 1) // ROWS}


def mds(case, name):
    media.mds(pathlib.Path(case.path(name)), ROWS)
    return case.path(name)


def litdata(case, name):
    media.litdata(pathlib.Path(case.path(name)), ROWS)
    return case.path(name)


def litdata_blocks(case, name):
    """ROWS blocks in two chunks, which each have a few tokens more."""
    media.litdata_tokens(pathlib.Path(case.path(name)), [30 * 17 + 4, (ROWS - 30) * 17 + 9])
    return {"paths": case.path(name), "sequence_length": 17}


def csv(case, prefix):
    """Two files; a cell has line ends and quotes in it, and some have nothing."""
    for k, (first, last) in enumerate(((0, 9), (9, ROWS))):
        rows = [f'"the ""{i}""\nthing",{i / 8},{i if i % 3 else ""}\n' for i in range(first, last)]
        pathlib.Path(case.path(f"{prefix}-{k}.csv")).write_text("name,price,count\n" + "".join(rows))
    return case.path(f"{prefix}-*.csv")


def lmdb(case, name):
    """Pictures and texts under keys that say what they are, and one of another sort."""
    folder = pathlib.Path(case.path(name))
    records = {f"p{i:03}".encode(): media.png(f"lmdb{i}", 12 + i % 5, 11) for i in range(ROWS)}
    records |= {f"t{i:03}".encode(): media.words(f"l{i}", 1)[0].encode() for i in range(ROWS)}
    media.lmdb(folder, {**records, b"__len__": b"%d" % ROWS})
    return str(folder)


def check_libhdf5():
    for name in ("libhdf5_serial.so.310", "libhdf5_serial.so.103"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise unittest.SkipTest("libhdf5 is not installed (Debian: libhdf5-103-1)")


def arrays(case, name):
    """ROWS files of arrays of one shape in a folder, .npz stored or deflated."""
    folder = pathlib.Path(case.path(name))
    folder.mkdir()
    for i in range(ROWS):
        way = zipfile.ZIP_DEFLATED if i % 2 else zipfile.ZIP_STORED
        with zipfile.ZipFile(folder / f"{i:03}.npz", "w", way) as packed:
            for key, shape, descr, width in (("x", (4, 5), "<f4", 80), ("y", (), "<i8", 8)):
                path = case.npy(f"{name}-{key}.npy", shape, descr, noise(f"{key}{i}", width))
                packed.write(path, f"{key}.npy")
                os.unlink(path)
    return str(folder)


def list_of_arrays(case, name):
    """A text file of the names of such files, from its own directory on."""
    arrays(case, name)
    return write(case, f"{name}.list", "".join(f"{name}/{i:03}.npz\n" for i in reversed(range(ROWS))).encode())


def flat_pictures(case, name):
    """Pictures of several sizes and formats, each a sample."""
    folder = pathlib.Path(case.path(name))
    media.pictures(folder, ROWS)
    return str(folder / "*/*.*")


def foreign(case):
    """What libhdf5 reads."""
    check_libhdf5()
    return write(case, "foreign.h5", HDF5.with_name("foreign").read_bytes())


def check_libsndfile():
    try:
        ctypes.CDLL("libsndfile.so.1")
    except OSError:
        raise unittest.SkipTest("libsndfile is not installed (Debian: libsndfile1)") from None


def sounds(case, name):
    check_libsndfile()
    media.sounds(pathlib.Path(case.path(name)), ROWS)
    return case.path(name)


def sound_shard(case, name):
    check_libsndfile()
    media.sound_shard(case.path(name), ROWS)
    return case.path(name)


def sound_columns(case, name, file):
    """No file lies there but those that are read."""
    check_libsndfile()
    media.sound_columns(pathlib.Path(case.path(name)), ROWS)
    os.remove(os.path.join(case.path(name), "arrow.arrow" if file == "parquet.parquet" else "parquet.parquet"))
    return os.path.join(case.path(name), file)


def tfrecords(case, prefix):
    media.tfrecord(case.path(f"{prefix}-0.tfrecord"), 0, 7)
    media.tfrecord(case.path(f"{prefix}-1.tfrecord"), 7, ROWS - 7)
    return case.path(f"{prefix}-*.tfrecord")


def parquet(case, name, rows=ROWS):
    """A directory of two partitions, of row groups of several lengths."""
    for k, (first, last) in enumerate(((0, 9), (9, rows))):
        root = pathlib.Path(case.path(name)) / f"part={k}"
        root.mkdir(parents=True)
        media.parquet(root / "0.parquet", {
            "x": [i * i for i in range(first, last)], "y": [i / 8 for i in range(first, last)],
            "text": media.words(f"parquet{k}", last - first),
            "ids": [list(range(i % 7)) for i in range(first, last)]}, 5 + k)
    return case.path(name)


def arrow(case, name):
    media.arrow(pathlib.Path(case.path(name)), ROWS)
    return case.path(name)


def folder(case, name):
    media.pictures(pathlib.Path(case.path(name)), ROWS)
    return case.path(name)


def coded(case, name, kind):
    """Pictures of the fuzzer's corpus, which Pillow wrote; behind two bytes of the fuzzer's own."""
    if os.environ.get(kind.upper()) != "1":
        raise unittest.SkipTest(f"built without {kind} (Debian: lib{kind}-dev)")
    files = sorted((SOURCE / "tests/fuzz/corpus/image").glob(f"{kind}_*"))
    for i in range(ROWS):
        place = pathlib.Path(case.path(name)) / f"class{i % 3}" / f"{i:04}.{kind}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(files[i % len(files)].read_bytes()[2:])
    return case.path(name)


def lines(case, name):
    return write(case, name, "\n".join(media.words(name, ROWS)).encode())


def pieces(case, name):
    """Lines as tokens of a model that is made of the same words."""
    if not dltest.SPM_TRAIN:
        raise unittest.SkipTest("no spm_train (Debian: sentencepiece), or built without the "
                                "tokenizer (Debian: libsentencepiece-dev)")
    text = lines(case, name)
    subprocess.run([dltest.SPM_TRAIN, f"--input={text}", f"--model_prefix={case.path(name)}",
                    "--vocab_size=40", "--hard_vocab_limit=false", "--num_threads=1"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {"paths": [text], "tokenizer": "sentencepiece", "model": case.path(f"{name}.model"),
            "max_length": 20}


def byte_level_file(case, name):
    """A tokenizer.json in the style of GPT-2's, of a few merges; with special tokens around a text."""
    letters = {chr(c if 33 <= c <= 126 or c > 160 else 256 + c): c for c in range(127)}
    merges = [f"{a} {b}" for a, b in zip("etaoinsh", "rhnusgtd")]
    vocab = {**letters, **{merge.replace(" ", ""): 127 + i for i, merge in enumerate(merges)}}
    special = ["<s>", "</s>", "[MASK]", "<|im_start|>", "<|im_end|>"]
    file = {"version": "1.0", "model": {"type": "BPE", "vocab": vocab, "merges": merges},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": r"\p{Greek}{1,3}|\bt"}, "behavior": "Isolated"},
                {"type": "ByteLevel", "add_prefix_space": False}]},
            "added_tokens": [{"id": len(vocab) + i, "content": token, "special": True}
                             for i, token in enumerate(special)],
            "post_processor": {"type": "BertProcessing", "cls": ["<s>", len(vocab)],
                               "sep": ["</s>", len(vocab) + 1]}}
    return write(case, name, json.dumps(file).encode())


def tokenized(case, name, **keys):
    if os.environ.get("HUGGINGFACE") != "1":
        raise unittest.SkipTest("built without tokenizers (Debian: libpcre2-dev libutf8proc-dev)")
    return {"tokenizer": "huggingface", "model": byte_level_file(case, f"{name}.json"), **keys}


def conversations(case, name):
    """As many words as lines, each answered by the next."""
    said = media.words(name, ROWS + 1)
    return write(case, name, b"".join(
        json.dumps({"messages": [{"role": "user", "content": question},
                                 {"role": "assistant", "content": answer}],
                    "other": [{"role": "user", "content": answer}, {"role": "assistant", "content": "-"}] * 3,
                    "tools": [{"name": question}]}).encode() + b"\n"
        for question, answer in zip(said, said[1:])))


def template(case, name):
    """A chat template, without generation blocks."""
    return write(case, name, b"{{ name }}{% for t in tools %}{{ t | tojson }}{% endfor %}"
                 b"{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}")


def ranges(**keys):
    return {"kind": "range", "length": 2 * ROWS, "iterable": True, **keys}


def plugin(case, name, text):
    """An example plug-in, compiled where the daemons may load it from, and the file it reads."""
    library = case.plugins / f"{name}.so"
    if not library.exists():
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "jansson"], check=True,
                               stdout=subprocess.PIPE, text=True).stdout.split()
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", "-O1",
                        f"-I{SOURCE / 'daemon/data/plugin'}", str(SOURCE / f"daemon/examples/{name}.c"),
                        "-o", str(library), *flags], check=True)
        library.chmod(0o755)
    return {"path": str(library), "config": {"path": write(case, f"{name}.txt", text.encode())}}


def plugin_of_leaves(case):
    """The plug-in of tests/unit/bad_plugin.c: leaves of every kind, and random numbers."""
    library = case.plugins / "leaves.so"
    if not library.exists():
        shutil.copy(os.environ["BAD_PLUGIN"], library)
        library.chmod(0o755)
    return {"path": str(library), "config": f"rows {ROWS}"}


# ---- the tables ---------------------------------------------------------------------------------

# Name of the case, kind of dataset, its keys. Files are made in the case's directory, each line's
# under names of its own.
DATASETS = [
    ("range", "range", lambda case: {"length": ROWS}),
    ("idx_one_file", "idx", lambda case: {"paths": idx(case, "images", "u1", 9, 7)}),
    ("idx_gzipped", "idx", lambda case: {"paths": idx(case, "zipped.gz", "u1", 9, 7)}),
    ("idx_several_files", "idx", lambda case: {"paths": {
        "image": idx(case, "images.gz", "u1", 5, 4, 3), "label": idx(case, "labels", "u1"),
        **{dtype: idx(case, dtype, dtype, 3) for dtype in IDX_TYPES}}}),
    ("idx_fashion_mnist", "idx", lambda case: {"paths": fashion(
        ("image", "images-idx3-ubyte"), ("label", "labels-idx1-ubyte"))}),
    ("npy_one_file", "npy", lambda case: {"paths": npy(case, "rows.npy", "|u1", 33)}),
    ("npy_of_numbers", "npy", lambda case: {"paths": npy(case, "numbers.npy", "<f8")}),
    ("npy_several_files", "npy", lambda case: {"paths": {
        descr[1:]: npy(case, descr[1:] + ".npy", descr, *shape) for descr, shape in [
            ("|b1", (5,)), ("|i1", ()), ("<u2", (3,)), ("<i4", (2, 2)), ("<u8", ()), ("<i8", (1,)),
            ("<f2", (7,)), ("<f4", (2, 3)), ("<f8", ()), ("<c8", (2,)), ("<c16", (1, 1, 2))]}}),
    ("records_rows", "records", lambda case: records(case, "rows", "float32", 4, (3, 5))),
    ("records_behind_a_header", "records", lambda case: records(case, "late", "uint8", 1, (61,), 99)),
    ("records_of_numbers", "records", lambda case: records(case, "numbers", "int64", 8, ())),
    ("tokens_widened", "tokens", lambda case: tokens(case, "corpus", 2, "uint16")),
    ("tokens_of_npy", "tokens", lambda case: tokens(case, "corpus.npy", 4, stride=5)),
    ("tokens_as_they_are", "tokens", lambda case: tokens(case, "ids", 4, "int32", 40,
                                                         widen="none")),
    ("concat_of_two", "concat", lambda case: {"datasets": [
        pictures(case, "one"), pictures(case, "two")]}),
    ("concat_of_mixtures", "concat", lambda case: {"datasets": mixture(case, "mixed")}),
    ("mix_of_two", "mix", lambda case: {"weights": [0.7, 0.3], "datasets": [
        pictures(case, "mix1"), pictures(case, "mix2")]}),
    ("mix_of_mixtures", "mix", lambda case: {
        "stop": "all", "weights": [5, 1], "datasets": mixture(case, "inmix")}),
    ("mix_at_random", "mix", lambda case: {
        "stop": "never", "length": ROWS, "draw": "random", "weights": [5, 1], "datasets": mixture(case, "drawn")}),
    ("mix_by_schedule", "mix", lambda case: {
        "stop": "never", "length": ROWS, "global_batch": 4, "datasets": [
            {"kind": "range", "length": 7}, {"kind": "range", "length": 50}, {"kind": "range", "length": 9}],
        "schedule": [{"step": 0, "weights": [1, 1, 0]}, {"step": 6, "weights": [1, 3, 0]},
                     {"step": 20, "weights": [0, 1, 2], "ramp": "linear"}]}),
    ("mix_of_streams", "mix", lambda case: {
        "stop": "never", "length": 2 * ROWS, "global_batch": 4, "datasets": [
            ranges(), {"kind": "range", "length": 7, "iterable": True, "divide": False}, ranges()],
        "schedule": [{"step": 0, "weights": [1, 1, 0]}, {"step": 6, "weights": [1, 3, 0]},
                     {"step": 20, "weights": [0, 1, 2], "ramp": "linear"}]}),
    ("mix_in_a_mix", "mix", lambda case: {
        "stop": "all", "weights": [2, 3], "datasets": [pictures(case, "outer"), {
            "kind": "mix", "weights": [3, 1, 2], "stop": "first", "datasets": [
                pictures(case, "inner1"), pictures(case, "inner2"), {
                    "kind": "mix", "weights": [1, 4], "stop": "never", "length": 11, "datasets": [
                        pictures(case, "inmost1"), pictures(case, "inmost2")]}]}]}),
    ("mix_in_a_mix_by_schedule", "mix", lambda case: {
        "stop": "all", "weights": [2, 3], "datasets": [{"kind": "range", "length": ROWS}, {
            "kind": "mix", "stop": "never", "length": 40, "global_batch": 4, "datasets": [
                {"kind": "range", "length": 7}, {"kind": "range", "length": 50}],
            "schedule": [{"step": 0, "weights": [1, 0]}, {"step": 3, "weights": [1, 3]},
                         {"step": 9, "weights": [2, 1], "ramp": "linear"}]}]}),
    ("mix_in_a_mix_of_streams", "mix", lambda case: {
        "stop": "never", "length": 2 * ROWS, "weights": [1, 2], "datasets": [ranges(), {
            "kind": "mix", "weights": [1, 3], "stop": "all", "datasets": [
                ranges(), {"kind": "range", "length": 7, "iterable": True, "divide": False}]}]}),
    ("mix_of_shards", "mix", lambda case: {
        "stop": "all", "weights": [1, 4], "datasets": [
            {"kind": "tar", "paths": shards(case, f"mixed-{part}"), "decode": False, "divide": False,
             "shuffle": part} for part in (0, 10)]}),
    ("subset_backwards", "subset", lambda case: {
        "dataset": pictures(case, "some"), "indices": [ROWS - 1 - i for i in range(ROWS)]}),
    ("split_in_lengths", "split", lambda case: split(
        {"kind": "concat", "datasets": [pictures(case, "cut1"), pictures(case, "cut2")]},
        [122 - ROWS, ROWS], 1)),
    ("range_iterable", "range", lambda case: {"length": 2 * ROWS, "iterable": True}),
    ("range_iterable_whole", "range", lambda case: {"length": 21, "iterable": True,
                                                    "divide": False}),
    ("chain_of_ranges", "chain", lambda case: {"datasets": [
        ranges(), {"kind": "range", "length": 7, "iterable": True, "divide": False}, ranges()]}),
    ("text_lines", "text", lambda case: {"paths": [lines(case, "a.txt")]}),
    ("text_fields", "text", lambda case: {
        "paths": [write(case, "fields.jsonl", "".join(
            json.dumps({"body": word, "y": i % 3, "pair": {"second": word[::-1], "score": i / 4}}) + "\n"
            for i, word in enumerate(media.words("fields", ROWS))).encode())],
        "fields": {"text": "body", "label": "y", "pair": "pair"}, "tokenizer": "bytes", "max_length": 7}),
    ("text_marked", "text", lambda case: {"paths": [lines(case, "b.txt")], "tokenizer": "bytes", "bos": 0,
                                          "eos": 256, "max_length": 12}),
    ("text_sentencepiece", "text", lambda case: pieces(case, "pieces.txt")),
    ("text_huggingface", "text", lambda case: tokenized(
        case, "bpe", paths=[lines(case, "bpe.txt")], max_length=24)),
    ("text_masked", "text", lambda case: tokenized(
        case, "mlm", paths=[lines(case, "mlm.txt")], special_tokens=False, bos="<s>", eos="</s>",
        mlm_probability=0.3)),
    ("text_chat", "text", lambda case: tokenized(
        case, "chat", paths=[conversations(case, "chat.jsonl")], field="messages", chat="chatml")),
    ("text_pairs", "text", lambda case: tokenized(
        case, "pairs", paths=[conversations(case, "pairs.jsonl")], field="messages", second="other", tools="tools",
        chat="jinja", chat_template=template(case, "pairs.jinja"), loss="last", cut="oldest", max_length=60,
        chat_args={"name": "digest"})),
    ("tar_of_bytes", "tar", lambda case: {"paths": shards(case, "bytes"), "decode": False}),
    ("tar_decoded_and_shuffled", "tar", lambda case: {
        "paths": shards(case, "decoded"), "shuffle": 10, "size": 12, "transform": "random_crop",
        "flip": 0.5}),
    ("tar_of_raw_bytes", "tar", lambda case: {
        "paths": shards(case, "raw"), "decode": False, "raw": "uint8"}),
    ("tfrecord_of_raw_bytes", "tfrecord", lambda case: {
        "paths": tfrecords(case, "raw"), "decode": False, "raw": "uint8"}),
    ("tar_indexed", "tar", lambda case: {
        "paths": shards(case, "indexed"), "index": "auto", "size": 12, "transform": "random_crop",
        "fields": {"picture": "jpg;png", "label": "cls", "name": "__key__"}}),
    ("tar_of_arrays", "tar", lambda case: {"paths": shards_of_arrays(case, "arrays"), "index": "auto"}),
    ("megatron_documents", "megatron", lambda case: {"paths": megatron(case, "documents")}),
    ("megatron_samples", "megatron", lambda case: megatron_windows(case, "samples")),
    ("mds_of_rows", "mds", lambda case: {"paths": mds(case, "mds-rows"), "fields": ["id", "array"]}),
    ("mds_of_columns", "mds", lambda case: {"paths": mds(case, "columns"), "size": 12}),
    ("litdata_of_rows", "litdata", lambda case: {
        "paths": litdata(case, "lit-rows"), "fields": ["id", "half", "even"]}),
    ("litdata_of_leaves", "litdata", lambda case: {"paths": litdata(case, "leaves"), "fields": {
        "id": "id", "text": "text", "ids": "ids", "matrix": "matrix", "picture": "picture"}, "size": 12}),
    ("litdata_of_tokens", "litdata", lambda case: litdata_blocks(case, "blocks")),
    ("tfrecord_of_examples", "tfrecord", lambda case: {
        "paths": tfrecords(case, "examples"), "images": ["picture"], "size": [7, 6]}),
    ("tfrecord_of_bytes", "tfrecord", lambda case: {
        "paths": tfrecords(case, "bytes"), "decode": False}),
    ("parquet_of_rows", "parquet", lambda case: {
        "paths": [parquet(case, "rows_of_parquet")], "fields": ["x", "y", "part"], "cache": 100}),
    ("parquet_of_columns", "parquet", lambda case: {
        "paths": [parquet(case, "columns_of_parquet", 2 * ROWS)], "filter": {"part": [0, 1]}}),
    ("parquet_of_nulls", "parquet", lambda case: {"paths": [parquet(case, "nulls")], "nulls": -1}),
    ("arrow_of_rows", "arrow", lambda case: {
        "paths": arrow(case, "rows-saved"), "fields": {"number": "id", "pair": "pair"}}),
    ("arrow_of_columns", "arrow", lambda case: {
        "paths": arrow(case, "columns-saved"), "nulls": 0, "size": 7}),
    ("arrow_of_tokens", "arrow", lambda case: tokenized(
        case, "arrow-bpe", paths=arrow(case, "texts-saved"), fields=["id", "text"], nulls=0, max_length=9,
        mlm_probability=0.3)),
    ("parquet_of_tokens", "parquet", lambda case: tokenized(
        case, "parquet-bpe", paths=[parquet(case, "texts_of_parquet")], fields=["text", "x"], bos="<s>")),
    ("tar_of_tokens", "tar", lambda case: {
        "paths": shards(case, "texts"), "fields": {"name": "txt", "label": "cls"}, "field": "name",
        "tokenizer": "bytes", "eos": 256}),
    ("csv_of_rows", "csv", lambda case: {
        "paths": csv(case, "rows"), "fields": {"x": "price", "n": "count"}, "nulls": -1,
        "types": {"price": "float32"}}),
    ("csv_of_columns", "csv", lambda case: {
        "paths": csv(case, "columns"), "types": {"count": "string"}}),
    ("lmdb_of_records", "lmdb", lambda case: {
        "paths": lmdb(case, "lmdb-records"), "fields": {"name": "key", "text": "value"}, "prefix": "t"}),
    ("lmdb_of_images", "lmdb", lambda case: {
        "paths": lmdb(case, "lmdb-images"), "prefix": "p", "images": ["value"], "size": 9,
        "transform": "random_crop"}),
    ("audiofolder_of_rows", "audiofolder", lambda case: {
        "paths": sounds(case, "cut-sounds"), "sample_rate": 12000, "frames": 500}),
    ("audiofolder_of_whole_sounds", "audiofolder", lambda case: {
        "paths": sounds(case, "whole-sounds"), "channels": "keep", "dtype": "int16", "sample_rate": 8000}),
    ("hdf5_of_root", "hdf5", lambda case: {
        "paths": write(case, "root.h5", HDF5.read_bytes()), "cache": 100}),
    ("hdf5_of_groups", "hdf5", lambda case: {
        "paths": write(case, "groups.h5", HDF5.read_bytes()), "fields": {"picture": "image", "y": "g/x"}}),
    ("hdf5_by_libhdf5", "hdf5", lambda case: {
        "paths": foreign(case), "fields": {"x": "g/table/at", "y": "chunked", "z": "big"}}),
    ("files_of_arrays", "files", lambda case: {"paths": arrays(case, "npzs")}),
    ("files_of_a_list", "files", lambda case: {
        "paths": list_of_arrays(case, "listed"), "listed": True, "fields": {"picture": "x"}}),
    ("files_of_grey_pictures", "files", lambda case: {
        "paths": flat_pictures(case, "greys"), "grey": True, "size": [9, 8], "transform": "random_crop", "flip": 0.5}),
    ("files_of_raw_bytes", "files", lambda case: {
        "paths": flat_pictures(case, "raws"), "decode": False, "raw": "uint8"}),
    ("tar_of_sounds", "tar", lambda case: {
        "paths": sound_shard(case, "sounds.tar"), "index": "auto", "audio": ["flac", "wav"],
        "fields": {"speech": "flac;wav", "label": "cls"}, "sample_rate": 8000, "frames": 300}),
    ("arrow_of_sounds", "arrow", lambda case: {
        "paths": sound_columns(case, "arrow-sounds", "arrow.arrow"), "audio": ["speech"], "dtype": "int16",
        "frames": 400}),
    ("parquet_of_sounds", "parquet", lambda case: {
        "paths": sound_columns(case, "parquet-sounds", "parquet.parquet"), "audio": ["speech"]}),
    ("imagefolder_random_crop", "imagefolder", lambda case: {
        "paths": folder(case, "crops"), "size": [14, 12], "transform": "random_crop", "flip": 0.5}),
    ("imagefolder_webp", "imagefolder", lambda case: {
        "paths": coded(case, "webps", "webp"), "size": [14, 12], "transform": "random_crop", "flip": 0.5}),
    ("imagefolder_tiff", "imagefolder", lambda case: {
        "paths": coded(case, "tiffs", "tiff"), "size": [14, 12], "transform": "random_crop", "flip": 0.5}),
    ("imagefolder_center_chw", "imagefolder", lambda case: {
        "paths": folder(case, "centers"), "size": 12, "transform": "center_crop", "layout": "chw"}),
    ("imagefolder_grey", "imagefolder", lambda case: {
        "paths": folder(case, "grey"), "size": 12, "transform": "center_crop", "layout": "chw", "grey": True}),
    ("imagefolder_transforms", "imagefolder", lambda case: {
        "paths": folder(case, "transforms"), "transforms": [
            {"kind": "RandomResizedCrop", "size": [14, 12]}, "RandAugment",
            {"kind": "ColorJitter", "brightness": 0.4, "hue": 0.1}, "ToTensor",
            {"kind": "RandomErasing", "value": "random"}, {"kind": "Normalize", "mean": 0.5, "std": 0.2}]}),
    ("imagefolder_narrow", "imagefolder", lambda case: {
        "paths": folder(case, "narrow"), "transforms": [
            {"kind": "RandomCrop", "size": [14, 12], "pad_if_needed": True}, "ToImage",
            {"kind": "ToDtype", "dtype": "bfloat16", "scale": True}, {"kind": "RandomErasing", "p": 1},
            {"kind": "Normalize", "mean": 0.5, "std": 0.2}]}),
    ("imagefolder_stack", "imagefolder", lambda case: {
        "paths": folder(case, "stack"), "transforms": [
            {"kind": "Resize", "size": [20, 22]}, "AugMix", {"kind": "TenCrop", "size": [14, 12]}, "ToTensor"]}),
    ("imagefolder_mixed", "imagefolder", lambda case: {
        "paths": folder(case, "mixed"), "transforms": [{"kind": "RandomResizedCrop", "size": [14, 12]}, "ToTensor"]}),
    ("imagefolder_views", "imagefolder", lambda case: {
        "paths": folder(case, "views"), "views": [
            {"count": 2, "transforms": [{"kind": "RandomResizedCrop", "size": [14, 12]}, "RandomHorizontalFlip",
                                        "ToTensor"]},
            {"count": 3, "transforms": [{"kind": "RandomResizedCrop", "size": 6, "scale": [0.05, 0.4]}]}]}),
    ("imagefolder_varying_views", "imagefolder", lambda case: {
        "paths": folder(case, "varying_views"), "views": [
            {"transforms": ["RandomVerticalFlip"]}, {"transforms": [{"kind": "RandomCrop", "size": 5}]}]}),
    ("imagefolder_kept", "imagefolder", lambda case: {
        "paths": folder(case, "kept"), "cache": "1MiB", "transforms": [
            {"kind": "RandomResizedCrop", "size": [14, 12]}, "RandomHorizontalFlip"]}),
    ("imagefolder_varying_transforms", "imagefolder", lambda case: {
        "paths": folder(case, "varying"), "layout": "chw", "transforms": [
            {"kind": "RandomRotation", "degrees": 20, "expand": True}, "RandomVerticalFlip"]}),
    ("plugin_csv", "plugin", lambda case: plugin(case, "csv", media.csv(ROWS))),
    ("plugin_of_leaves", "plugin", plugin_of_leaves),
    ("plugin_fasta", "plugin", lambda case: plugin(case, "fasta", media.fasta("f", 3 * ROWS))),
    ("split_in_fractions", "split", lambda case: split({"kind": "range", "length": 2 * ROWS},
                                                       [0.5, 0.5], 0)),
]

# What each is collated by, where that is not the default: samples that vary need it.
COLLATES = {
    "text_sentencepiece": {"kind": "pad", "value": -1},
    "text_huggingface": {"kind": "pad", "value": 0},
    "text_masked": {"kind": "pad", "value": 0, "multiple_of": 8},
    "text_chat": {"kind": "pad", "value": 0, "side": "left"},
    "text_pairs": {"kind": "pad", "value": 0},
    "text_marked": {"kind": "pad", "value": -1},
    "text_fields": {"kind": "pad", "fields": ["tokens"]},
    "tokens_of_npy": {"kind": "none"},
    "tar_of_bytes": {"kind": "none"},
    "tar_of_raw_bytes": {"kind": "none"},
    "tfrecord_of_raw_bytes": {"kind": "pad", "value": 0},
    "files_of_raw_bytes": {"kind": "none"},
    "mix_of_shards": {"kind": "none"},
    "tar_decoded_and_shuffled": {"kind": "none"},
    "megatron_documents": {"kind": "pad", "multiple_of": 4},
    "litdata_of_leaves": {"kind": "pad", "fields": ["ids"]},
    "tfrecord_of_examples": {"kind": "pad", "fields": ["floats"]},
    "tfrecord_of_bytes": {"kind": "none"},
    "arrow_of_tokens": {"kind": "pad", "value": 0, "multiple_of": 4},
    "parquet_of_tokens": {"kind": "pad", "value": -1},
    "tar_of_tokens": {"kind": "none"},
    "csv_of_columns": {"kind": "none"},
    "audiofolder_of_whole_sounds": {"kind": "none"},
    "parquet_of_sounds": {"kind": "pad", "fields": ["speech"]},
    "lmdb_of_records": {"kind": "none"},
    "lmdb_of_images": {"kind": "none"},
    "parquet_of_columns": {"kind": "pad", "fields": ["ids"]},
    "parquet_of_nulls": {"kind": "none"},
    "arrow_of_columns": {"kind": "pad", "fields": ["tokens"]},
    "plugin_fasta": {"kind": "pad", "value": 9, "multiple_of": 8, "side": "left"},
    "imagefolder_center_chw": {"kind": "pad", "fields": ["image"]},
    "imagefolder_mixed": {"kind": "default", "mixup": 0.4, "cutmix": 1, "classes": 7},
    "imagefolder_varying_transforms": {"kind": "none"},
    "imagefolder_varying_views": {"kind": "none"},
}
ITERABLE = {"range_iterable", "range_iterable_whole", "chain_of_ranges", "mix_of_streams", "mix_of_shards",
            "mix_in_a_mix_of_streams", "tar_of_bytes", "tar_of_raw_bytes", "tar_decoded_and_shuffled",
            "tar_of_tokens", "plugin_fasta"}
