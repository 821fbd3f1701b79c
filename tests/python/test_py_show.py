"""What a notebook gets to see: dloaderd.show(), loaders, and explain() as a table."""

import html.parser
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import dloaderd  # noqa: E402
import media  # noqa: E402
from dloaderd import _html, _view  # noqa: E402
from test_pictures import decode  # noqa: E402

try:
    import torch
    from torch.utils.data import IterableDataset, TensorDataset
except ImportError:
    torch = None

CLOSED = {"meta", "img", "link", "br"}


class Balanced(html.parser.HTMLParser):
    """Tags that are opened and closed in order, and the text between them."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.tags = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in CLOSED:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


def parse(text):
    parser = Balanced()
    parser.feed(text)
    assert not parser.open, parser.open
    return parser


class Show(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_images(self):
        image = numpy.random.default_rng(3).integers(0, 256, (4, 24, 24, 3), numpy.uint8)
        view = dloaderd.show({"image": image, "label": numpy.arange(4)}, classes=["cat", "dog"], title="a <b>")
        sheet = decode(view.png())
        self.assertEqual(sheet[48:48 + 144:6, 12:12 + 144:6].tolist(), image[0].tolist())
        page = parse(view.page())
        ((_, shown),) = [tag for tag in page.tags if tag[0] == "img"]
        self.assertEqual(shown["alt"], "Contact sheet; a <b>; image: uint8 [24, 24, 3]")
        self.assertTrue(shown["src"].startswith("data:image/png;base64,"))
        self.assertIn("[4, 24, 24, 3]", page.texts)
        self.assertEqual(str(view).splitlines()[2], "label  int64  [4]             min 0  max 3  mean 1.5")

    def test_is_neither_changed_nor_kept(self):
        batch = {"image": numpy.full((2, 24, 24), 0.5, numpy.float32), "tokens": numpy.array([[97, 98]] * 2)}
        before = {key: value.copy() for key, value in batch.items()}
        view = dloaderd.show(batch)
        for key, value in batch.items():
            numpy.testing.assert_array_equal(value, before[key])
            value[:] = 0
        self.assertIn("97 98", str(view))
        for value in batch.values():
            self.assertLessEqual(sys.getrefcount(value), 3)

    def test_what_it_takes(self):
        for batch in (numpy.zeros((2, 3)), [], {}, None, 5, "text", {"a": {"b": [numpy.zeros(2), "x"]}}, [object()],
                      {"a": numpy.zeros((0, 3))}, {"a": numpy.array(["x"])}, {"a": numpy.float32(2)}):
            with self.subTest(batch=batch):
                view = dloaderd.show(batch)
                parse(view._repr_html_())
                self.assertIsInstance(str(view), str)
                with self.assertRaisesRegex(ValueError, "is an image"):
                    view.png()

    @unittest.skipUnless(torch, "needs torch")
    def test_torch(self):
        image = torch.rand(3, 3, 16, 20)
        for batch in ([image, torch.arange(3)], (image.bfloat16(), torch.arange(3)), {"x": image.requires_grad_()}):
            view = dloaderd.show(batch)
            self.assertEqual(decode(view.png()).shape[2], 3)
        self.assertIn("float32", str(view))

    def test_tokenizer(self):
        class Upper:
            def decode(self, ids):
                return "".join(map(chr, ids)).upper()

        batch = {"input_ids": numpy.array([[97, 60, 98]]), "attention_mask": numpy.array([[1, 1, 0]])}
        view = dloaderd.show(batch, tokenizer=Upper(), indices=[17])
        self.assertEqual(str(view).splitlines()[-1], "text      #17: A<⟦1 padding⟧")
        self.assertIn("A<", parse(view._repr_html_()).texts)
        file = self.folder / "tokenizer.json"
        file.write_text(json.dumps({"model": {"vocab": {"one": 97, "two": 60}}, "decoder": None}))
        self.assertIn("one two", str(dloaderd.show(batch, tokenizer=file)))
        with self.assertRaisesRegex(TypeError, "tokenizer: int is neither"):
            dloaderd.show(batch, tokenizer=5)
        with self.assertRaises(FileNotFoundError):
            dloaderd.show(batch, tokenizer="none.json")

    def test_of_a_loader(self):
        """Its tokenizer, and how its images were normalised; relative paths start from its file."""
        (self.folder / "lines.txt").write_text("one\nthree\n")
        spec = self.folder / "text.yaml"
        spec.write_text("dataset: {kind: text, paths: lines.txt, tokenizer: bytes}\nbatch: {size: 2}\n"
                        "collate: {kind: pad}\nworkers: {count: 0}\n")
        with dloaderd.Loader(str(spec), as_="numpy") as loader:
            view = dloaderd.show(next(iter(loader)), loader)
        self.assertEqual(view.text_lines(), ["text      row 0: one⟦2 padding⟧", "          row 1: three"])
        media.pictures(self.folder / "pictures", 4)
        spec = {"dataset": {"kind": "imagefolder", "paths": str(self.folder / "pictures"), "transforms": [
            {"kind": "Resize", "size": [24, 24]}, "ToTensor", {"kind": "Normalize", "mean": [0.1], "std": [9.0]}]},
            "batch": {"size": 4}, "workers": {"count": 0}}
        with dloaderd.Loader(spec, as_="numpy") as loader:
            view = dloaderd.show(next(iter(loader)), loader)
        self.assertIn("normalised as the spec says, undone", view._repr_html_())

    def test_save(self):
        view = dloaderd.show({"image": numpy.zeros((2, 9, 9), numpy.uint8)})
        for ending in "png", "html", "txt":
            view.save(self.folder / f"batch.{ending}")
        self.assertEqual((self.folder / "batch.png").read_bytes(), view.png())
        parse((self.folder / "batch.html").read_text())
        self.assertEqual((self.folder / "batch.txt").read_text(), f"{view}\n")
        with self.assertRaisesRegex(ValueError, "ends in none of .png, .html, .txt"):
            view.save(self.folder / "batch.jpg")
        self.assertFalse((self.folder / "batch.jpg").exists())

    def test_normalised_by(self):
        last = {"kind": "Normalize", "mean": [1, 2, 3], "std": [4, 5, 6]}
        for spec, want in [({"dataset": {"transforms": ["ToTensor", last]}}, [1, 2, 3]),
                           ({"dataset": {"kind": "subset", "dataset": {"transforms": [last]}}}, [1, 2, 3]),
                           ({"dataset": {"kind": "concat", "datasets": [{"transforms": [last]}]}}, [1, 2, 3]),
                           ({"dataset": {"transforms": [last, "ToTensor"]}}, None), ({}, None), (None, None),
                           ({"dataset": {"transforms": []}}, None), ({"dataset": {"datasets": []}}, None),
                           ({"dataset": {"transforms": [{"kind": "Normalize", "mean": "x", "std": 1}]}}, None)]:
            with self.subTest(spec=spec):
                found = _view.normalised_by(spec)
                self.assertEqual(None if found is None else found[0].tolist(), want)


class Tables(unittest.TestCase):
    def facts(self, shown):
        texts = parse(shown._repr_html_()).texts
        last = texts.index("stage") if "stage" in texts else len(texts)
        return dict(zip(texts[1:last:2], texts[2:last:2])), texts

    def test_loader(self):
        with dloaderd.Loader({"dataset": {"kind": "range", "length": 10}, "batch": {"size": 4}, "seed": 5,
                             "name": "show", "workers": {"count": 0}}, as_="numpy") as loader:
            found, _ = self.facts(loader)
            self.assertEqual({key: found[key] for key in ("name", "samples", "batch size", "seed", "epoch", "rank")},
                             {"name": "show", "samples": "10", "batch size": "4", "seed": "5", "epoch": "0",
                              "rank": "0 of 1"})
            self.assertNotIn("batches an epoch", found)  # which only starting one would tell
            next(iter(loader))
            self.assertEqual(self.facts(loader)[0]["batches an epoch"], "3")
        self.assertIn("dloaderd.Loader, closed", self.facts(loader)[1])

    @unittest.skipUnless(torch, "needs torch")
    def test_dataloader(self):
        found, texts = self.facts(dloaderd.DataLoader(TensorDataset(torch.arange(10)), batch_size=4, shuffle=True))
        self.assertEqual([found[key] for key in ("dataset", "samples", "batch size", "workers", "sampler")],
                         ["TensorDataset", "10", "4", "0", "RandomSampler"])
        self.assertEqual(texts[texts.index("stage"):][4:7], ["samples", "C", "TensorDataset"])

        class Endless(IterableDataset):
            def __iter__(self):
                return iter(())

        found, texts = self.facts(dloaderd.DataLoader(Endless()))
        self.assertNotIn("samples", found)
        self.assertIn("Python", texts)

    @unittest.skipUnless(torch, "needs torch")
    def test_explain(self):
        """Printed where there is no notebook, or into a file; the table says the same."""
        loader = dloaderd.DataLoader(["a"] * 4)
        file = io.StringIO()
        dloaderd.explain(loader, file)
        from dloaderd import _native
        shown = _native.explained(loader)
        self.assertEqual(f"{shown}\n", file.getvalue())
        texts = parse(shown._repr_html_()).texts
        self.assertTrue(texts[0].startswith("to run in C: "))
        self.assertEqual(texts[1:8], ["stage", "by", "what", "why", "samples", "Python", "list"])

    def test_cells_are_text(self):
        self.assertNotIn("<b>", _html.table(("<b>",), [("<b>",)], "<b>") + _html.facts("<b>", [("<b>", "<b>")]))
