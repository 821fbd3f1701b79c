"""Hugging Face's datasets, of rows in a table and of streams, in a program's own loop."""

import gc
import io
import itertools
import json
import os
import random
import sys
import tempfile
import warnings
from unittest import mock

import numpy
import torch

import dloaderd
import trainers
from black_box import HERE, QUICK, Case, TorchLoader
from dloaderd import DataLoader, _native_datasets, _versions

rows, transformers = trainers.need("datasets", "transformers")
import pyarrow  # noqa: E402
from PIL import Image  # noqa: E402
from PIL.PngImagePlugin import PngInfo  # noqa: E402
from datasets.distributed import split_dataset_by_node  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.models import WordLevel  # noqa: E402

sys.path.append(os.path.join(HERE, "..", "lib"))
from dltest import TestCase, dlctl  # noqa: E402
from tap import tries  # noqa: E402

rows.disable_progress_bars()
N, BATCH, EPOCHS = 22, 4, 3
STEPS = EPOCHS * -(-N // BATCH)


def table(length=N):
    return rows.Dataset.from_dict({
        "x": [[i / 7, i / 9, 1.0] for i in range(length)], "y": [float(i % 5) for i in range(length)],
        "name": [f"row {i}" for i in range(length)]})


def stream(shards=4):
    return table().to_iterable_dataset(num_shards=shards)


def twice(row):
    return {"x": [2 * x for x in row["x"]], "y": row["y"] + 1}


def padded():
    """(rows of several lengths, what pads them)"""
    words = {"[PAD]": 0, **{f"w{i}": i for i in range(1, 10)}}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, "[PAD]")), pad_token="[PAD]")
    data = rows.Dataset.from_dict({"input_ids": [list(range(1, 2 + i % 5)) for i in range(N)],
                                   "label": list(range(N))})
    return data, transformers.DataCollatorWithPadding(tokenizer)


def tokenizer(side="right", **more):
    words = {"[PAD]": 0, "[MASK]": 1, "[CLS]": 2, "[SEP]": 3, **{f"w{i}": i for i in range(4, 20)}}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, "[PAD]")), pad_token="[PAD]", mask_token="[MASK]",
        cls_token="[CLS]", sep_token="[SEP]", padding_side=side, **more)


def padding_collator(draw):
    made = tokenizer(draw.choice(["left", "right"]))
    multiple = draw.choice([None, 8, 3])
    if draw.random() < 0.5:
        return transformers.DataCollatorWithPadding(made, pad_to_multiple_of=multiple)
    return transformers.DataCollatorForLanguageModeling(made, mlm=draw.random() < 0.6, pad_to_multiple_of=multiple)


def tokens(draw, n):
    """A table of what a tokenizer makes, in batches of a few rows."""
    sizes = [draw.randrange(1, 12) for _ in range(n)]
    columns = {"input_ids": [[draw.randrange(2, 20) for _ in range(size)] for size in sizes]}
    if draw.random() < 0.6:
        columns["attention_mask"] = [[draw.randrange(2) for _ in range(size)] for size in sizes]
    if draw.random() < 0.4:
        columns["token_type_ids"] = [[draw.randrange(2) for _ in range(size)] for size in sizes]
    if draw.random() < 0.4:
        columns["special_tokens_mask"] = [[draw.randrange(2) for _ in range(size)] for size in sizes]
    if draw.random() < 0.7:
        columns[draw.choice(["label", "labels", "score"])] = [draw.choice([draw.random(), 3.0]) for _ in range(n)] \
            if draw.random() < 0.5 else [draw.randrange(9) for _ in range(n)]
    names = list(columns)
    draw.shuffle(names)
    whole = rows.Dataset.from_dict({name: columns[name] for name in names})
    return rows.concatenate_datasets([whole.select(range(n // 3)), whole.select(range(n // 3, n))])


class TestTables(Case):
    def test_formats(self):
        data = table()
        formats = {
            "plain": data, "torch": data.with_format("torch"), "numpy": data.with_format("numpy"),
            "columns": data.with_format("torch", columns=["y"], output_all_columns=True),
            "transformed": data.with_transform(lambda batch: {"n": [len(n) for n in batch["name"]]}),
            "mapped": data.map(twice), "selected": data.select([5, 3, 9, 9, 0, 1]),
            "shuffled": data.shuffle(seed=1), "renamed": data.rename_column("x", "z"),
        }
        for name, data in formats.items():
            for workers in (0, 1):
                with self.subTest(f"{name}, {workers}"):
                    batches = self.check(lambda cls: cls(data, batch_size=BATCH, shuffle=True,
                                                         num_workers=workers))
                    self.assertEqual(len(batches), -(-len(data) // BATCH))

    def test_without_batches_and_from_a_file(self):
        for data in (table(), self.on_disk(table())):
            self.check(lambda cls: cls(data, batch_size=None, num_workers=1))
            self.check(lambda cls: cls(data, batch_size=5, drop_last=True, num_workers=2))

    def on_disk(self, data):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        data.save_to_disk(folder.name)
        return rows.load_from_disk(folder.name)

    def test_padding(self):
        data, collate = padded()
        batches = self.check(lambda cls: cls(data, batch_size=BATCH, shuffle=True, num_workers=2,
                                             collate_fn=collate), epochs=2)
        self.assertEqual(sorted(torch.cat([batch["labels"] for batch in batches[:6]]).tolist()),
                         list(range(N)))


def numbers(draw, length):
    """Columns of every type of number, of lists of them, and labels."""
    def values(*shape):
        return numpy.random.default_rng(draw.randrange(1 << 30)).uniform(-100, 100, (length, *shape))

    columns = {"input_ids": [list(map(abs, row)) for row in values(4).astype(int).tolist()],
               "label": draw.choice([lambda: list(range(length)), lambda: values().tolist()])()}
    for kind in draw.sample(["int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "float64",
                             "bool"], 4):
        shape = draw.choice([(), (3,), (2, 2)])
        feature = rows.Value(kind)
        for size in reversed(shape):
            feature = rows.Sequence(feature, length=draw.choice([-1, size]))
        columns[kind] = (feature, numpy.abs(values(*shape)).astype(kind).tolist())
    features = {"input_ids": rows.Sequence(rows.Value("int64")),
                "label": rows.Value("int64" if columns["label"] == list(range(length)) else "float32")}
    features.update({name: value[0] for name, value in columns.items() if type(value) is tuple})
    return rows.Dataset.from_dict({name: value[1] if type(value) is tuple else value
                                   for name, value in columns.items()}, rows.Features(features))


def texts(draw, length):
    """Columns of texts, and one of numbers."""
    letters = "ab \0\u00e9\u4e2d\U0001f600"
    columns = {}
    for number, kind in enumerate(draw.choices(["string", "large_string", "binary", "large_binary"], k=3)):
        made = ["".join(draw.choices(letters, k=draw.choice([0, 1, 3, 40]))) for _ in range(length)]
        values = [text.encode() for text in made] if "binary" in kind else made
        columns[f"{kind}_{number}"] = (rows.Value(kind), values)
    columns["n"] = (rows.Value("int16"), list(range(length)))
    columns = dict(draw.sample([*columns.items()], len(columns)))
    whole = rows.Dataset.from_dict({name: value[1] for name, value in columns.items()},
                                   rows.Features({name: value[0] for name, value in columns.items()}))
    return rows.concatenate_datasets([whole.select(range(7)), whole.select(range(7, length))])


def flat(data):
    """Without lists of lists."""
    return data.select_columns([name for name in data.column_names if str(data.features[name]).count("List(") < 2
                                and str(data.features[name]).count("Sequence(") < 2])


def chosen(draw, data):
    """Some rows of it, as users choose them."""
    return draw.choice([lambda: data, lambda: data.shuffle(seed=3), lambda: data.select([5, 3, 9, 9, 0, 1]),
                        lambda: data.train_test_split(0.3, seed=1)["train"],
                        lambda: data.shuffle(seed=3).select(range(4, 19)),
                        lambda: torch.utils.data.random_split(data, [0.5, 0.5])[1],
                        lambda: rows.concatenate_datasets([data, data.select(range(3))])])()


def encoded(picture, format, **options):
    file = io.BytesIO()
    picture.save(file, format, **options)
    return file.getvalue()


def painted(draw, mode, size):
    pixels = numpy.random.default_rng(draw.randrange(1 << 30)).integers(0, 256, (size[1] // 8, size[0] // 8, 3))
    return Image.fromarray(pixels.astype("uint8")).resize(size, Image.Resampling.BICUBIC).convert(mode)


def orientation(value):
    exif = Image.Exif()
    exif[0x0112] = value
    exif[0x010F] = "a camera's maker"
    return exif.tobytes()


def plain_picture(draw, size):
    """A file whose picture C makes: (its bytes, its channels)."""
    mode = draw.choice(["RGB", "L"])
    picture = painted(draw, mode, size)
    kind = draw.choice(["JPEG", "progressive", "exif", "upright", "PNG", "PNG and more"])
    if kind == "PNG":
        data = encoded(picture, "PNG", optimize=draw.random() < 0.3)
    elif kind == "PNG and more":
        info = PngInfo()
        info.add_text("Software", "a test")
        data = encoded(picture, "PNG", pnginfo=info, dpi=(72, 72), transparency=(1, 2, 3) if mode == "RGB" else 7)
    else:
        more = {"progressive": {"progressive": True}, "exif": {"exif": orientation(1), "quality": 50},
                "upright": {"subsampling": draw.choice(["4:4:4", "4:2:2", "4:2:0"]), "comment": b"upright"}}
        data = encoded(picture, "JPEG", **more.get(kind, {}))
    return data, len(mode) if mode == "RGB" else 1


def other_pictures(draw, size):
    """Files that datasets has to make pictures of: {what it is: its bytes}."""
    rgb, xmp = painted(draw, "RGB", size), b'<x tiff:Orientation="6"/>'
    text, damaged = PngInfo(), bytearray(encoded(rgb, "PNG", dpi=(72, 72)))
    text.add_itxt("XML:com.adobe.xmp", xmp.decode())
    damaged[damaged.index(b"pHYs") + 5] ^= 1
    found = {f"turned {value}": encoded(rgb, "JPEG", exif=orientation(value)) for value in range(2, 9)}
    return {**found, "XMP": encoded(rgb, "JPEG", xmp=xmp), "PNG, XMP": encoded(rgb, "PNG", pnginfo=text),
            "PNG, EXIF": encoded(rgb, "PNG", exif=orientation(6)), "CMYK": encoded(painted(draw, "CMYK", size), "JPEG"),
            "palette": encoded(rgb.quantize(16), "PNG"), "alpha": encoded(rgb.convert("RGBA"), "PNG"),
            "bits": encoded(rgb.convert("1"), "PNG"), "16 bits": encoded(rgb.convert("I").convert("I;16"), "PNG"),
            "WebP": encoded(rgb, "WEBP", lossless=True), "GIF": encoded(rgb, "GIF"), "BMP": encoded(rgb, "BMP"),
            "damaged": bytes(damaged), "cut": encoded(rgb, "JPEG")[:-200], "cut PNG": encoded(rgb, "PNG")[:-40],
            "empty": b"", "no picture": b"\xff\xd8\xff\xe1\0\x08Exif\0\0", "text": b"hello"}


def pictures(files, mode=None, **columns):
    features = {"image": rows.Image(mode=mode), "n": rows.Value("int32")}
    features.update({name: rows.Image(mode="RGB") if name == "other" else rows.Value("string") for name in columns})
    return rows.Dataset.from_dict({"image": files, "n": list(range(len(files))), **columns}, rows.Features(features))


def as_they_are(samples):
    """A collate_fn."""
    return samples


class TestImages(Case):
    def check_alike(self, data, workers, **keys):
        return self.check(lambda cls: cls(data, num_workers=workers, **{"batch_size": 9, **keys}))

    def test_random_pictures(self):
        """Of one size, with what is beside them, in batches."""
        for seed in tries(6 if QUICK else 24):
            draw = random.Random(seed)
            size = draw.choice([(32, 32), (57, 43), (200, 151)])
            mode, kind = draw.choice([None, "RGB"]), draw.choice(["torch", "numpy"])
            found = [plain_picture(draw, size) for _ in range(40)]
            channels = draw.choice([1, 3])
            files = [data for data, had in found if mode or had == channels][:25]
            names = {"name": [f"picture {i}" for i in range(len(files))]} if draw.random() < 0.5 else {}
            data = chosen(draw, pictures(files * 25, mode, **{name: of * 25 for name, of in names.items()})
                          .select(range(23)).with_format(kind))
            with self.subTest(f"seed {seed}: {kind}, {mode}: {data}"):
                self.assertTrue(self.check(lambda cls: cls(
                    data, batch_size=9, shuffle=True, num_workers=draw.choice([0, 1, 2, 3]),
                    **({} if cls is TorchLoader else {"native": "require"}))))

    def test_other_pictures(self):
        """One by one, whatever they are: what comes of each, or its error, is PyTorch's."""
        draw = random.Random(1)
        files = {**other_pictures(draw, (57, 43)), "plain": plain_picture(draw, (57, 43))[0]}
        for kind, mode in itertools.product(("torch", "numpy"), (None, "RGB")):
            data = pictures([*files.values()], mode).with_format(kind)
            theirs, ours = (self.samples_and_errors(cls, data) for cls in (TorchLoader, DataLoader))
            for name, expected, found in zip(files, theirs, ours, strict=True):
                with self.subTest(f"{name}, {kind}, {mode}"):
                    self.assertEqual(found, expected)
            errors = [name for name, found in zip(files, ours, strict=True) if len(found) == 2]
            self.assertEqual(errors, ["damaged", "cut", "cut PNG", "empty", "no picture", "text"])

    def samples_and_errors(self, cls, data):
        """Of each sample what it is, or the error that is raised in its place."""
        batches, found = iter(cls(data, batch_size=1, num_workers=1, collate_fn=as_they_are)), []
        for _ in range(len(data)):
            try:
                image = next(batches)[0]["image"]
                found.append((type(image), image.dtype, image.shape, image.tolist()))
            except Exception as error:
                found.append((type(error), str(error).splitlines()[-1].partition("<_io")[0]))
        del batches
        gc.collect()  # errors keep PyTorch's iterator, which no child is to find
        return found

    def test_what_is_plain_is_not_left_to_pillow(self):
        loads = mock.Mock(side_effect=AssertionError("Pillow was called"))
        draw = random.Random(2)
        for mode in (None, "RGB"):
            for kind in ("torch", "numpy"):
                data = pictures([plain_picture(draw, (57, 43))[0] for _ in range(30)], mode).with_format(kind)
                loader = DataLoader(data, batch_size=10, num_workers=1, collate_fn=as_they_are)
                dloaderd.explain(loader, io.StringIO())  # it compares Pillow's decoders, once
                with mock.patch("PIL.ImageFile.ImageFile.load", loads):
                    self.assertEqual(len(list(loader)), 3)

    def test_pictures_and_others(self):
        """Of unequal sizes, turned ones among them, None, several columns; and files."""
        draw = random.Random(3)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        files = [plain_picture(draw, draw.choice([(40, 32), (32, 40)]))[0] for _ in range(20)]
        for number in range(0, 20, 3):
            path = os.path.join(folder.name, str(number))
            with open(path, "wb") as file:
                file.write(files[number])
            files[number] = path
        files[5] = encoded(painted(draw, "RGB", (48, 32)), "JPEG", exif=orientation(6))
        files[7] = None
        for kind in ("torch", "numpy"):
            data = pictures(files, other=files[::-1]).with_format(kind)
            for made in (data, data.shuffle(seed=1), torch.utils.data.ConcatDataset([data, data.select([5, 7])]),
                         torch.utils.data.Subset(data, [7, 3, 5]), data.with_format(kind, columns=["other"])):
                for workers in (0, 2):
                    self.assertTrue(self.check_alike(made, workers, collate_fn=as_they_are))
            self.check_alike(data.select(range(4)), 1, batch_size=None)
            self.check_alike(data.select([0, 1, 2]), 1, collate_fn=as_they_are, multiprocessing_context="spawn")

    def test_explain(self):
        data = pictures([plain_picture(random.Random(4), (40, 32))[0]])
        out = io.StringIO()
        dloaderd.explain(DataLoader(data.with_format("torch"), num_workers=1), out)
        self.assertEqual(out.getvalue().splitlines(), [
            "samples   Python  Dataset  (its own code, but for the pictures)",
            "pictures  C       columns image: JPEG and PNG, grey or RGB; others by Pillow",
            "batches   C       default_collate"])
        for unknown, says in [(data, "column image: a Dataset without a format gives PIL's pictures"),
                              (pictures([None], "L").with_format("torch"), "column image has pictures of mode L"),
                              (data.with_transform(as_they_are), "format is custom")]:
            with self.assertRaisesRegex(ValueError, says):
                DataLoader(unknown, num_workers=1, native="require")
        with mock.patch("PIL.__version__", "1.0"), \
                self.assertWarnsRegex(UserWarning, "Pillow 1.0: not what the tests run with, but decoders gave"):
            DataLoader(data.with_format("torch"), num_workers=1, native="require")


def of(home, function):
    """It, as if it were that module's own."""
    function.__code__ = function.__code__.replace(co_filename=home.__file__)
    return function


class TestVersions(Case):
    """Versions that are not listed: C does the work if it makes of some rows what the packages make, and it is said."""

    def setUp(self):
        super().setUp()
        _versions._said.clear()
        self.addCleanup(_versions._said.clear)

    def told(self, data, **options):
        """What was said, and why C does not do it; None: it does."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                why = DataLoader(data, batch_size=4, num_workers=1, native="require", **options) and None
            except ValueError as error:
                why = str(error)
        return [str(one.message) for one in said if "what the tests run with" in str(one.message)], why

    def cases(self):
        """What a user has: (the package that is another one, datasets, options, a change of the package's results)."""
        numbers, labels = table().with_format("torch"), table().rename_column("y", "label").remove_columns("name")
        lines, collate = padded()
        image = pictures([plain_picture(random.Random(4), (40, 32))[0]] * 3).with_format("torch")
        masks = transformers.DataCollatorForLanguageModeling(collate.tokenizer, mlm=False)
        formatter, collators = rows.formatting.torch_formatter, transformers.data.data_collator
        backwards = mock.patch.object(
            formatter.TorchFormatter, "format_batch",
            lambda *args, make=formatter.TorchFormatter.format_batch: {k: v[::-1] for k, v in make(*args).items()})
        doubled = mock.patch.object(collators, "torch_default_data_collator", of(
            collators, lambda samples, make=collators.torch_default_data_collator: {
                key: value * 2 for key, value in make(samples).items()}))
        base = transformers.tokenization_utils_base
        sided = mock.patch.object(base.PreTrainedTokenizerBase, "_pad", of(
            base, lambda *args, make=base.PreTrainedTokenizerBase._pad, **options: {
                key: value[::-1] for key, value in make(*args, **options).items()}))
        feature = rows.features.image
        turned = mock.patch.object(feature.Image, "decode_example", of(
            feature, lambda *args, make=feature.Image.decode_example, **more: make(*args, **more).transpose(0)))
        return {
            "rows": (rows, numbers, {}, backwards),
            "labels": (transformers, labels, {"collate_fn": transformers.default_data_collator}, doubled),
            "padding": (transformers, lines, {"collate_fn": collate}, sided),
            "tokens": (transformers, lines.remove_columns("label"), {"collate_fn": masks}, sided),
            "padded rows": (rows, lines, {"collate_fn": collate}, sided),
            "pictures": (rows, image, {}, turned),
        }

    def test_equal_ones_are_native_and_said_once(self):
        for name, (package, data, options, _) in self.cases().items():
            with self.subTest(name), mock.patch.object(package, "__version__", "9.7.1"):
                before = torch.get_rng_state().tolist()
                said, why = self.told(data, **options)
                self.assertEqual((why, len(said)), (None, 1))
                self.assertRegex(said[0], f"^{package.__name__} 9.7.1: not what the tests run with, but rows "
                                 r"0(, \d+)* of a Dataset became what C makes of them, in [\d.]+ (µs|ms|s); C does the "
                                 "work$")
                self.assertEqual(self.told(data, **options), ([], None))
                self.assertEqual(torch.get_rng_state().tolist(), before)
                _versions._said.clear()

    def test_different_ones_are_called_and_said_once(self):
        for name, (package, data, options, change) in self.cases().items():
            with self.subTest(name), mock.patch.object(package, "__version__", "9.7.1"), change:
                said, why = self.told(data, **options)
                self.assertIn(f"{package.__name__} 9.7.1: not what the tests run with, and rows 0", why)
                self.assertIn("became something else than C makes of them", why)
                self.assertRegex(said[0], f"Python does the work, slower; install {package.__name__} .*, or a "
                                 "dloaderd that knows what is here$")
                self.assertEqual((len(said), self.told(data, **options)[0]), (1, []))
                _versions._said.clear()

    def test_listed_ones_are_not_compared(self):
        with mock.patch.object(_native_datasets, "_outcome", side_effect=AssertionError):
            for name, (_, data, options, _) in self.cases().items():
                with self.subTest(name):
                    self.assertEqual(self.told(data, **options), ([], None))

    def test_a_collator_with_a_seed_is_called(self):
        lines, collate = padded()
        masks = transformers.DataCollatorForLanguageModeling(collate.tokenizer, mlm=False, seed=3)
        with mock.patch.object(transformers, "__version__", "9.7.1"):
            self.assertIn("a seed of its own cannot be compared", self.told(lines, collate_fn=masks)[1])


class TestNative(Case):
    """What is known is made in C, and equal."""

    def check_native(self, data, workers, **keys):
        def make(cls):
            native = {} if cls is TorchLoader else {"native": "require"}
            return cls(data, batch_size=9, shuffle=True, num_workers=workers, **keys, **native)

        return self.check(make)

    def test_random_tables(self):
        collators = {"default": {}, "labels": {"collate_fn": transformers.default_data_collator}}
        for seed in tries(4 if QUICK else 24):
            draw = random.Random(seed)
            data = numbers(draw, 23)
            kind, (name, collate) = draw.choice(["torch", "numpy", None]), draw.choice([*collators.items()])
            if kind is None and name == "default":
                data = flat(data)
            if "bool" in data.column_names and draw.random() < 0.5:
                data = data.remove_columns("bool")
            data = chosen(draw, data if kind is None else data.with_format(kind))
            with self.subTest(f"seed {seed}: {kind}, {name}: {data}"):
                self.check_native(data, draw.choice([0, 1, 2]), **collate)

    def test_texts(self):
        """Of any characters, zeroes at their ends too, as str and as bytes, beside numbers."""
        for seed in tries(6 if QUICK else 24):
            draw = random.Random(seed)
            data = texts(draw, 25)
            if draw.random() < 0.5:
                data = data.remove_columns(draw.choice(data.column_names))
            kind = draw.choice(["torch", None])
            data = chosen(draw, data.with_format(kind))
            with self.subTest(f"seed {seed}: {kind}: {data}"):
                for batch in self.check_native(data, draw.choice([0, 1, 2, 3])):
                    self.assertTrue(any(type(column) is list for column in batch.values()), batch)

    def test_lists_of_a_plain_table(self):
        """Become lists of tensors, each of its own, as many as a row has elements."""
        data = table().select_columns(["x", "name"])
        for workers in (0, 2):
            batch = self.check_native(data, workers)[0]
            self.assertEqual([len(batch["x"]), batch["x"][0].shape, batch["x"][0].dtype], [3, (9,), torch.float64])
        wide = rows.Dataset.from_dict({"input_ids": [list(range(i, i + 1500)) for i in range(20)], "n": [0] * 20})
        self.check_native(wide, 1)
        self.check_native(wide.with_format(None, columns=["input_ids"]), 0)

    def test_texts_of_chosen_columns(self):
        data = table().with_format("torch", columns=["name"])
        self.check_native(data, 1)
        self.check_native(table().with_format("torch"), 2)
        self.check_native(torch.utils.data.ConcatDataset([data, data.select([4, 2])]), 1)
        self.check_native(torch.utils.data.ConcatDataset([table(5).select_columns("name")] * 2), 2)

    def test_texts_are_not_called_for(self):
        """Nothing of the dataset's own code reads rows, in workers or without."""
        called = mock.Mock(side_effect=AssertionError("the dataset was called"))
        with mock.patch("datasets.arrow_dataset.query_table", called):
            for data in (texts(random.Random(1), 25), table().with_format("torch")):
                for workers in (0, 1):
                    loader = DataLoader(data, batch_size=9, num_workers=workers, drop_last=True)
                    self.assertEqual(len(list(loader)), 2)

    def test_a_damaged_text(self):
        """One that is no UTF-8 is PyTorch's error, in workers and without; the batches before it are native."""
        starts = pyarrow.array(range(0, 2 * N + 1, 2), "int32")
        for at in (0, N - 1):
            values = bytearray(b"ab" * N)
            values[2 * at] = 0xFF
            array = pyarrow.Array.from_buffers(pyarrow.string(), N, [None, starts.buffers()[1],
                                                                     pyarrow.py_buffer(values)])
            data = rows.Dataset(pyarrow.table({"name": array, "n": list(range(N))}))
            for workers in (0, 1, 2):
                said = []
                for cls in (TorchLoader, DataLoader):
                    read = []
                    with self.assertRaisesRegex((UnicodeDecodeError, RuntimeError), "can't decode byte 0xff") as caught:
                        for batch in cls(data, batch_size=11, num_workers=workers):
                            read += batch["name"]
                    said.append((read, type(caught.exception), str(caught.exception).splitlines()[-1]))
                self.assertEqual(said[0], said[1])
                self.assertEqual(len(said[0][0]), 0 if at == 0 else 11)

    def test_several_batches_of_a_file(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        numbers(random.Random(1), 2500).save_to_disk(folder.name, num_shards=2)
        data = rows.load_from_disk(folder.name).with_format("torch")
        for workers, how in ((0, None), (2, None), (1, "spawn")):
            self.check_native(data.shuffle(seed=1).select(range(100)), workers, multiprocessing_context=how)

    def test_joined(self):
        for kind in ("torch", None):
            data = flat(numbers(random.Random(2), 20)).with_format(kind)
            self.check_native(torch.utils.data.ConcatDataset([data, data.select([4, 2])]), 1)

    def test_texts_are_left_out_for_labels(self):
        data = table().add_column("label", list(range(N)))
        self.check_native(data, 1, collate_fn=transformers.default_data_collator)

    def test_padded(self):
        """By both collators, of tables of several batches, whatever is beside the tokens."""
        for seed in tries(4 if QUICK else 16):
            draw = random.Random(seed)
            collate = padding_collator(draw)
            data = tokens(draw, 60).with_format(draw.choice(["torch", None]))
            if draw.random() < 0.5:
                data = data.shuffle(seed=seed).select(range(draw.randrange(20, 50)))
            if draw.random() < 0.3:
                data = rows.concatenate_datasets([data, data.select(range(5))])
            with self.subTest(f"seed {seed}: {collate} of {data}"):
                self.check_native(data, draw.choice([1, 2]), collate_fn=collate, drop_last=draw.random() < 0.5)

    def test_what_is_not_padded(self):
        draw = random.Random(3)
        collate = transformers.DataCollatorWithPadding(tokenizer())
        data = rows.Dataset.from_dict({"input_ids": [[1, 2], [3]], "n": [1, 2]})
        named = transformers.DataCollatorWithPadding(tokenizer())
        named.tokenizer.pad = lambda *args, **keys: None
        for dataset, function, says in [
                (data.remove_columns("input_ids"), collate, "no column input_ids"),
                (data.add_column("word", ["a", "b"]), collate, "column word is of type string"),
                (data.add_column("labels", [[1], [2, 3]]), collate, "column labels has lists, which are not padded"),
                (data.add_column("attention_mask", [[1], [1, 1]]), collate, "lists of other lengths than input_ids"),
                (rows.Dataset.from_dict({"input_ids": [[1], []]}), collate, "or empty ones"),
                (rows.Dataset.from_dict({"input_ids": [[1], None]}), collate, "column input_ids has nulls"),
                (data.with_format("numpy"), collate, "format is numpy"),
                (data, named, ".pad is not transformers' own"),
                ([1, 2], collate, "list is not a datasets.Dataset")]:
            with self.subTest(says), self.assertRaisesRegex(ValueError, says):
                DataLoader(dataset, batch_size=2, num_workers=1, collate_fn=function, native="require")
        longest = transformers.DataCollatorWithPadding(tokenizer(), padding="max_length", max_length=9)
        self.check_native(tokens(draw, 30), 1, collate_fn=longest)  # known, but for this padding
        out = io.StringIO()
        dloaderd.explain(DataLoader(data, num_workers=1, collate_fn=collate), out)
        self.assertIn("batches  C       DataCollatorWithPadding, padded by NumPy", out.getvalue())

    def test_what_is_not_known(self):
        class Other(rows.Dataset):
            pass

        plain = table().select_columns(["x", "y"])
        ragged = rows.Dataset.from_dict({"x": [[1], [1, 2]]})
        missing = rows.Dataset.from_dict({"x": [1, None]})
        arrays = plain.with_format("numpy")
        labels = {"collate_fn": transformers.default_data_collator}
        for data, says, keys in [
                (rows.Dataset.from_dict({"x": [[[1], [2]]]}), "become lists of lists of tensors", {}),
                (table().with_format("numpy"), "become NumPy's", {}),
                (rows.Dataset.from_dict({"name": ["a", None]}), "column name has nulls", {}),
                (rows.Dataset.from_dict({"names": [["a"], ["b"]]}), "column names is of type string", {}),
                (rows.Dataset.from_dict({"data": [b"a", b"b"]}), "column data is of type binary", labels),
                (ragged.with_format("torch"), "lists of several lengths", {}),
                (missing.with_format("torch"), "column x has nulls", {}),
                (plain.with_format("arrow"), "format is arrow", {}),
                (plain.with_format("torch", dtype=torch.float16), "arguments of its own", {}),
                (table().with_format("torch", columns=["y"], output_all_columns=True), "two formats", {}),
                (plain.with_transform(lambda batch: batch), "format is custom", {}),
                (Other(plain.data), "Other is not one of", {}),
                (torch.utils.data.ConcatDataset([arrays, arrays]), "one by one", {}),
                (rows.Dataset.from_dict({"label": [[1]]}), "column label has lists", labels),
                (rows.Dataset.from_dict({"x": [1, 2]}).filter(lambda row: row["x"] > 5), "is empty", {})]:
            with self.subTest(says), self.assertRaisesRegex(ValueError, says):
                DataLoader(data, native="require", **keys)

    def test_changes_are_seen(self):
        """A format that is set between two epochs; a method that somebody replaces."""
        data = table().select_columns(["y"])
        data.set_format("torch")
        loader = DataLoader(data, batch_size=11, native="require")
        self.assertEqual(next(iter(loader))["y"].dtype, torch.float32)
        data.set_format(None)
        self.assertEqual(next(iter(loader))["y"].dtype, torch.float64)
        with mock.patch.object(rows.Dataset, "__getitems__", lambda self, keys: [{"y": 1}] * len(keys)):
            self.assertEqual(next(iter(loader))["y"].tolist(), [1] * 11)


class TestPretokenized(TestCase):
    def test_arrow(self):
        """What `dlctl pretokenize` writes for Arrow, in several record batches."""
        texts = ["", "one", "\u4e2d" * 3000] + ["x" * (i * 7919 % 20000) for i in range(300)]
        with open(self.path("texts.jsonl"), "w", encoding="utf-8") as out:
            out.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        spec = self.spec("texts", batch={"size": 1}, dataset={
            "kind": "text", "paths": "texts.jsonl", "tokenizer": "bytes", "eos": 70000})
        told = dlctl("pretokenize", spec, "-o", self.path("made.arrow"), "--quiet", daemon=self.daemon())
        self.assertIn("made.arrow: ", told.stdout)
        wanted = [[*text.encode(), *[70000] * bool(text)] for text in texts]
        with pyarrow.memory_map(self.path("made.arrow")) as file:
            table = pyarrow.ipc.open_stream(file).read_all()
            table.validate(full=True)
            self.assertGreater(table.column("tokens").num_chunks, 1)
            self.assertEqual(table.to_pylist(), [{"tokens": one} for one in wanted])
        made = rows.Dataset.from_file(self.path("made.arrow"))
        self.assertEqual(made[2]["tokens"], wanted[2])
        self.assertEqual(len(made), len(wanted))


class TestStreams(Case):
    def test_as_with_pytorchs(self):
        kinds = {"plain": stream(), "mapped": stream().map(twice), "taken": stream().skip(3).take(9),
                 "torch": stream().with_format("torch"), "one shard": stream(1),
                 "batched": stream().batch(3),
                 "shuffled": stream().shuffle(seed=4, buffer_size=6),
                 "a node's": split_dataset_by_node(stream(), rank=1, world_size=2)}
        for name, data in kinds.items():
            for workers in (0, 2):
                with self.subTest(f"{name}, {workers}"):
                    size = None if name == "batched" else BATCH
                    self.assertTrue(self.check(lambda cls: cls(data, batch_size=size,
                                                               num_workers=workers), epochs=2))

    def test_an_epoch_that_is_set_reaches_workers_that_stay(self):
        def epochs(cls, workers, stays):
            data = stream().shuffle(seed=4, buffer_size=6)
            loader = cls(data, batch_size=BATCH, num_workers=workers, persistent_workers=stays)
            found = []
            for epoch in range(3):
                data.set_epoch(epoch)
                found.append([batch["name"] for batch in loader])
            return found

        for workers, stays in ((0, False), (2, False), (2, True)):
            expected = epochs(TorchLoader, workers, stays)
            self.assertEqual(epochs(DataLoader, workers, stays), expected)
            self.assertNotEqual(expected[0], expected[1])


# ---- a run that is killed ----------------------------------------------------------------------

def train(cls, folder, dies, resumes, streams, workers, stays=False):
    """A loop as one writes it."""
    path = os.path.join(folder, "checkpoint")
    torch.manual_seed(9 if resumes else 7)
    data = stream().map(twice).with_format("torch") if streams else table().with_format("torch")
    loader = cls(data.select_columns(["x", "y"]), batch_size=BATCH, num_workers=workers,
                 persistent_workers=stays, shuffle=None if streams else True)
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    torch.manual_seed(8)
    step, first = 0, 0
    if resumes:
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(json.loads(saved["loader"]))
        step, first = saved["step"], saved["epoch"]
    for epoch in range(first, EPOCHS):
        for batch in loader:
            loss = torch.nn.functional.mse_loss(model(batch["x"]).squeeze(1), batch["y"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            trainers.tell(loss)
            step += 1
            if step == dies and not resumes:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                            "loader": json.dumps(loader.state_dict()), "step": step,
                            "epoch": epoch}, path)
                trainers.die()


class TestKilled(Case):
    def test_tables(self):
        for workers, stays in ((0, False), (2, True)):
            trainers.check_killed(self, train, STEPS, False, workers, stays)

    def test_streams(self):
        for workers, stays in ((0, False), (1, True), (2, False)):
            # Anywhere; in the first epoch, and at its end: those that come are whole.
            dies = (random.randrange(1, STEPS), 2, STEPS // EPOCHS)
            trainers.check_killed(self, train, STEPS, True, workers, stays, dies=dies)
