"""dlctl peek and replay: --png, --html, --text, and --sample with --draws."""

import gzip
import json
import os
import pathlib
import struct
import sys
import tarfile
import zlib

import numpy
from PIL import Image

for folder in "lib", "integration":
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", folder))
import media  # noqa: E402
from dloaderd import _worker  # noqa: E402
from dltest import TestCase, dlctl, dlctl_json, named  # noqa: E402
from tap import slow  # noqa: E402
from test_pictures import decode  # noqa: E402

TOP, LEFT, SIDE, GAP = 48, 12, 144, 8
CAPTIONS = 3  # lines: index, label, name
RANDOM = [{"kind": "RandomResizedCrop", "size": 24}, "RandomHorizontalFlip"]


def cell(sheet, number, captions=CAPTIONS):
    """The pixels of one picture, 24 by 24, as they were before they were enlarged."""
    top = TOP + number // 8 * (SIDE + captions * 12 + 4 + GAP)
    left = LEFT + number % 8 * (SIDE + GAP)
    return sheet[top:top + SIDE:SIDE // 24, left:left + SIDE:SIDE // 24]


class Look(TestCase):
    def setUp(self):
        super().setUp()
        self.running = self.daemon()
        self.folder = pathlib.Path(self.path("."))

    def pictures(self, name="pictures", **more):
        root = self.folder / "pictures"
        if not root.exists():
            media.pictures(root, 20)
        return self.spec(name, **{"dataset": {"kind": "imagefolder", "paths": "pictures", "transforms": RANDOM},
                                  "sampler": {"kind": "random"}, "batch": {"size": 10}, "seed": 7, **more})

    def look(self, verb, spec, *args):
        """JSON, and the sheet."""
        told = dlctl_json(verb, spec, "--png", self.path("sheet.png"), *args, daemon=self.running)
        return told, decode((self.folder / "sheet.png").read_bytes())

    def batch(self, spec, *args):
        """What replay writes."""
        dlctl("replay", spec, "-o", self.path("batch.npz"), *args, daemon=self.running)
        with numpy.load(self.path("batch.npz")) as file:
            return dict(file)

    def assert_fails(self, status, code, path, message, *args):
        done = dlctl(*args, "--json", daemon=self.running, check=False)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        error = json.loads(done.stderr)["error"]
        self.assertEqual((error["code"], error["path"]), (code, path))
        self.assertIn(message, error["message"])


class Pictures(Look):
    @slow
    def test_contact_sheet(self):
        """Pixel by pixel what the batch has, of both verbs."""
        spec = self.pictures()
        want = self.batch(spec, "--step", "1", "--epoch", "2")
        for verb in "peek", "replay":
            told, sheet = self.look(verb, spec, "--step", "1", "--epoch", "2")
            self.assertEqual(told["png"], self.path("sheet.png"))
            for i in range(10):
                numpy.testing.assert_array_equal(cell(sheet, i), want["image"][i], f"{verb}, {i}")

    @slow
    def test_normalised_channels_first(self):
        """A picture looks the same whatever the model gets."""
        plain = [{"kind": "Resize", "size": [24, 24]}]
        _, want = self.look("peek", self.pictures("plain", dataset={
            "kind": "imagefolder", "paths": "pictures", "transforms": plain}))
        _, got = self.look("peek", self.pictures("floats", dataset={
            "kind": "imagefolder", "paths": "pictures", "transforms": [
                *plain, "ToTensor", {"kind": "Normalize", "mean": [0.2, 0.3, 0.4], "std": [0.5, 0.6, 0.7]}]}))
        for i in range(10):
            self.assertLessEqual(abs(cell(got, i).astype(int) - cell(want, i)).max(), 1)

    @slow
    def test_by_name_and_without_an_archive(self):
        client = self.client(self.running)
        self.pictures()
        client.open(named("seen", dataset={"kind": "imagefolder", "paths": str(self.folder / "pictures"),
                                           "transforms": RANDOM}))
        told, sheet = self.look("replay", "seen")
        self.assertEqual(told["name"], "seen")
        self.assertTrue((cell(sheet, 0, 2) != 224).any())
        self.assertFalse((self.folder / "batch.npz").exists())

    def test_text_says_what_was_written(self):
        lines = dlctl("peek", self.pictures(), "--values", "0", "--png", self.path("a.png"), "--html",
                      self.path("a.html"), daemon=self.running).stdout.splitlines()
        self.assertEqual(lines[-2:], [f"written   {self.path('a.png')}", f"written   {self.path('a.html')}"])
        page = (self.folder / "a.html").read_text()
        self.assertIn('alt="Contact sheet; pictures.yaml  epoch 0, step 0, rank 0 of 1, seed 7; image: uint8 '
                      '[24, 24, 3]"', page)
        self.assertIn("<td>[10, 24, 24, 3]</td>", page)

    def test_no_pictures(self):
        self.rows("data.npy", 100, 33)
        spec = self.spec("rows", dataset={"kind": "npy", "paths": {"data": "data.npy"}})
        self.assert_fails(1, "EINVAL", "--png", "it has data uint8 [33]", "peek", spec, "--png", self.path("no.png"))
        self.assertFalse((self.folder / "no.png").exists())

    @slow
    def test_places(self):
        spec = self.pictures()
        (self.folder / "dir").mkdir()
        self.assert_fails(1, "EINVAL", self.path("dir"), "--png batch.png", "peek", spec, "--png", self.path("dir"))
        self.assert_fails(1, "EINVAL", "/dev/stdout", "is not a file", "peek", spec, "--html", "/dev/stdout")
        self.assert_fails(1, "ENOENT", self.path("none/a.png"), "", "peek", spec, "--png", self.path("none/a.png"))

    def test_usage(self):
        for path, args in [("--draws", ["--draws", "3"]), ("--draws", ["--sample", "1", "--draws", "0"]),
                           ("--draws", ["--sample", "1", "--draws", "65"]),
                           ("--step", ["--sample", "1", "--step", "2"]),
                           ("--indices", ["--sample", "1", "--indices", "2"]), ("--png", ["--png", ""]),
                           ("--draws", ["--sample", "1", "--epoch", str(2 ** 64 - 1)]),
                           ("--sample", ["--sample", "-1"])]:
            with self.subTest(args=args):
                self.assert_fails(2, "EINVAL", path, "", "peek", "x.yaml", *args)
        self.assert_fails(2, "EINVAL", "--output", "-o batch.npz", "replay", "x.yaml")


class Names(Look):
    def test_sample_names(self):
        """Through whatever combines datasets; None where samples are neither files nor members of shards."""
        self.pictures()
        base = str(self.folder)
        media.shard(self.path("a.tar"), 0, 3)
        tar = {"kind": "tar", "paths": "a.tar", "index": "auto"}
        with tarfile.open(self.path("a.tar")) as shard:
            member = f"{base}/a.tar: {shard.getnames()[0]}"
        files = sorted(self.folder.glob("pictures/*/*.png"))
        folder = {"kind": "imagefolder", "paths": "pictures"}
        for dataset, indices, want in [
                (folder, [0, 19], [files[0], files[19]]), (folder, [20], [""]), (folder, [], []),
                ({"kind": "subset", "indices": [5, 3], "dataset": folder}, [1], [files[3]]),
                ({"kind": "concat", "datasets": [folder, folder]}, [21], [files[1]]),
                (tar, [0], [member]), ({**tar, "index": "off"}, [0], None),
                ({"kind": "range", "length": 5}, [0], None),
                ({"kind": "concat", "datasets": [folder, {"kind": "range", "length": 5}]}, [0], None)]:
            with self.subTest(dataset=dataset):
                found = _worker.sample_names(json.dumps({"dataset": dataset}), base, indices)
                self.assertEqual(found, want and [str(one) for one in want] if want != [] else [])
        for text, why in [("{", "spec"), ("{}", "dataset"),
                          ('{"dataset": {"kind": "imagefolder", "paths": "no"}}', "no")]:
            with self.subTest(text=text), self.assertRaisesRegex(ValueError, why):
                _worker.sample_names(text, base, [0])
        with self.assertRaises(OverflowError):
            _worker.sample_names(json.dumps({"dataset": folder}), base, [-1])

    def test_read_spec(self):
        self.assertEqual(_worker.read_spec("a: [1, 2.5, x, null, true]\nb: {c: 18446744073709551615}"),
                         {"a": [1, 2.5, "x", None, True], "b": {"c": 2 ** 64 - 1}})
        for text in "{", "a: 1\na: 2", "\0":
            with self.assertRaises(ValueError):
                _worker.read_spec(text)


class Draws(Look):
    @slow
    def test_as_the_epochs_have_it(self):
        """The very pixels that a training gets, of a spec that shuffles, with its own batches and names."""
        spec = self.pictures(name="training", shard={"mode": "strided"}, workers={"count": 2})
        want = {}
        for epoch in 3, 4, 5:
            for step in 0, 1:
                batch = self.batch(spec, "--epoch", str(epoch), "--step", str(step))
                for at in numpy.flatnonzero(batch["__indices__"] == 17):
                    want[epoch] = batch["image"][at]
        told, sheet = self.look("peek", spec, "--sample", "17", "--draws", "3", "--epoch", "3")
        self.assertEqual([(one["epoch"], one["tree"][0]["path"]) for one in told["draws"]],
                         [(3, "image"), (4, "image"), (5, "image")])
        for i, epoch in enumerate((3, 4, 5)):
            numpy.testing.assert_array_equal(cell(sheet, i, 2), want[epoch])
        self.assertEqual(len({zlib.crc32(one.tobytes()) for one in want.values()}), 3)

    def test_text(self):
        lines = dlctl("peek", self.pictures(), "--sample", "3", daemon=self.running).stdout.splitlines()
        self.assertEqual(lines[:2], ["loader    pictures.yaml, seed 7", "sample    3"])
        self.assertEqual(len(lines), 2 + 2 * 16)
        self.assertRegex(lines[2], r"\Aepoch 0   image  uint8  \[1, 24, 24, 3\]  min \d+  max \d+  mean \d+")
        self.assertRegex(lines[-1], r"\Aepoch 15  label  int64  \[1\]  min 0  max 0  mean 0\Z")

    def test_what_there_is_not(self):
        self.assert_fails(1, "ERANGE", str(self.folder / "pictures"), "20", "peek", self.pictures(), "--sample", "20")
        client = self.client(self.running)
        client.open(named("strict"))
        self.assert_fails(1, "EINVAL", "sampler.kind", "", "peek", "strict", "--sample", "2")

    def test_of_a_client_that_samples(self):
        client = self.client(self.running)
        client.open(named("fed", sampler={"kind": "client"}, batch={"size": 4}))
        told = dlctl_json("peek", "fed", "--sample", "9", "--draws", "2", daemon=self.running)
        self.assertEqual([one["tree"][0]["min"] for one in told["draws"]], [9, 9])


class Documented(Look):
    """client/docs/sheet.png: made anew with DLOADER_SHEET=PATH, else compared with what is made now."""

    PLACE = pathlib.Path(__file__).resolve().parents[2] / "client/docs/sheet.png"
    DATA = "/usr/share/datasets/fashion-mnist/t10k-{}-ubyte.gz"
    CLASSES = "t-shirt trousers pullover dress coat sandal shirt sneaker bag boot".split()
    EACH = 4  # images of a class
    SPEC = {"dataset": {"kind": "imagefolder", "paths": "clothes", "transforms": [
        {"kind": "Resize", "size": [96, 96]}, {"kind": "RandomResizedCrop", "size": 72, "scale": [0.5, 1]},
        "RandomHorizontalFlip", "ToTensor",
        {"kind": "Normalize", "mean": [0.286], "std": [0.353]}]},
        "sampler": {"kind": "random"}, "batch": {"size": 16}, "seed": 5}

    def photos(self):
        """Images of Fashion-MNIST, which anybody may give away, as people have theirs: a folder for each class."""
        try:
            pixels, labels = (gzip.open(self.DATA.format(name)).read() for name in ("images-idx3", "labels-idx1"))
        except FileNotFoundError:
            self.skipTest("no images (Debian: dataset-fashion-mnist)")
        images = numpy.frombuffer(pixels, numpy.uint8, offset=16).reshape(-1, 28, 28, 1)
        numbers = numpy.frombuffer(labels, numpy.uint8, offset=8)
        for number, name in enumerate(self.CLASSES):
            folder = self.folder / "clothes" / name
            folder.mkdir(parents=True)
            for at in numpy.flatnonzero(numbers == number)[:self.EACH]:
                Image.fromarray(images[at].repeat(3, 2)).save(folder / f"{at:05}.png")

    @slow
    def test_sheet(self):
        self.photos()
        _, made = self.look("peek", self.spec("clothes", **self.SPEC))
        place = os.environ.get("DLOADER_SHEET")
        if place:
            pathlib.Path(place).write_bytes((self.folder / "sheet.png").read_bytes())
        kept = decode(self.PLACE.read_bytes())
        self.assertEqual(made.shape, kept.shape, "./dev pictures makes it anew")
        for i in range(16):  # below are texts in Pillow's font, which is not always the same
            top, left = TOP + i // 8 * (SIDE + CAPTIONS * 12 + 4 + GAP), LEFT + i % 8 * (SIDE + GAP)
            numpy.testing.assert_array_equal(made[top:top + SIDE, left:left + SIDE],
                                             kept[top:top + SIDE, left:left + SIDE], "./dev pictures makes it anew")
        self.assertLess(self.PLACE.stat().st_size, 200_000)


class Tokens(Look):
    def corpus(self, file, **more):
        (self.folder / "lines.txt").write_text("one\nthree\n\x1b[31mred\nseventeen\n")
        return self.spec(file, dataset={"kind": "text", "paths": "lines.txt", "tokenizer": "bytes"}, seed=1, **more)

    def text(self, spec, *args):
        lines = dlctl("peek", spec, "--text", *args, daemon=self.running).stdout.splitlines()
        return lines[next(i for i, line in enumerate(lines) if line.startswith("text")):]

    def test_padded(self):
        spec = self.corpus("padded", batch={"size": 3}, collate={"kind": "pad"})
        self.assertEqual(self.text(spec), ["text      #0: one⟦5 padding⟧", "          #1: three⟦3 padding⟧",
                                           "          #2: \N{REPLACEMENT CHARACTER}[31mred"])
        self.assertEqual(self.text(spec, "--values", "1"), ["text      #0: one⟦5 padding⟧", "          ..."])

    def test_packed(self):
        spec = self.corpus("packed", batch={"tokens": 32}, collate={"kind": "pack", "length": 32})
        told = dlctl_json("peek", spec, "--text", "--html", self.path("a.html"), daemon=self.running)
        (row,) = told["rows"]
        self.assertEqual(row["samples"], [f"#{i}" for i in told["indices"]])
        self.assertEqual([span["segment"] for span in row["spans"] if not span["padding"]], [1, 2, 3, 4])
        want = {0: "one", 1: "three", 2: "\x1b[31mred", 3: "seventeen"}
        self.assertEqual([span["text"] for span in row["spans"] if not span["padding"]],
                         [want[i] for i in told["indices"]])
        self.assertEqual(sum(span["tokens"] for span in row["spans"]), 32)
        page = (self.folder / "a.html").read_text()
        for text in "one", "three":
            self.assertIn(f">{text}</span>", page)
        self.assertNotIn("\x1b", page)

    def test_chat(self):
        """Through tokenizer.json, as it is at the batch's end: what counts for the loss is the assistant's."""
        pieces = {chr(byte if 33 <= byte < 127 else 256 + byte): byte for byte in range(127)}
        special = [{"id": 127 + i, "content": text, "special": True}
                   for i, text in enumerate(("<|im_start|>", "<|im_end|>"))]
        (self.folder / "t.json").write_text(json.dumps({
            "model": {"type": "BPE", "vocab": pieces, "merges": []}, "added_tokens": special,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}))
        talks = [[{"role": "user", "content": "how much?"}, {"role": "assistant", "content": "two"}],
                 [{"role": "user", "content": "why"}, {"role": "assistant", "content": "no reason at all"}]]
        (self.folder / "talk.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
        spec = self.spec("chat", dataset={"kind": "text", "paths": "talk.jsonl", "field": "messages", "model": "t.json",
                                          "tokenizer": "huggingface", "chat": "chatml"}, batch={"size": 2},
                         collate={"kind": "pad", "value": 0, "fields": ["tokens", "loss_mask"]})
        done = dlctl("check", spec, check=False)
        if "built without" in done.stderr:
            self.skipTest("no tokenizers in this build")
        said, first, second = self.text(spec)
        self.assertEqual(said, "text      «...» counts for the loss")
        self.assertRegex(first, r"#0: <\|im_start\|>user↵how much\?<\|im_end\|>↵<\|im_start\|>assistant↵"
                                r"«two<\|im_end\|>↵?»↵?⟦\d+ padding⟧\Z")
        self.assertRegex(second, r"«no reason at all<\|im_end\|>↵?»↵?\Z")

    def test_none(self):
        self.assertEqual(self.text(self.pictures()), ["text      there are no tokens in the batch"])

    def test_by_name(self):
        """The daemon knows what the loader was opened with, and where its files are."""
        client = self.client(self.running)
        spec = self.corpus("named", name="words", batch={"size": 2}, collate={"kind": "pad"})
        client.open(pathlib.Path(spec).read_text(), base=str(self.folder))
        self.assertEqual(self.text("words"), ["text      #0: one⟦2 padding⟧", "          #1: three"])
        known = dlctl_json("spec", "words", daemon=self.running)
        self.assertEqual(known["dataset"]["paths"], [str(self.folder / "lines.txt")])

    def test_numbers_where_there_is_no_tokenizer(self):
        client = self.client(self.running)
        made = self.npy("tokens.npy", (2, 3), "<i8", struct.pack("<6q", *range(7, 13)))
        client.open(named("plain", dataset={"kind": "npy", "paths": {"tokens": made}}, batch={"size": 2}))
        self.assertEqual(self.text("plain"), ["text      #0: 7 8 9", "          #1: 10 11 12"])

    def test_a_model_that_is_none(self):
        """The loader opens elsewhere before: here alone it can be damaged."""
        (self.folder / "m.json").write_text("{}")
        from dloaderd import _detokenize
        with self.assertRaisesRegex(ValueError, "m.json: is not a tokenizer.json"):
            _detokenize.of_spec({"dataset": {"tokenizer": "huggingface", "model": "m.json"}}, str(self.folder))
