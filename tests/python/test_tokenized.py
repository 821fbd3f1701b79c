"""Texts of Arrow, Parquet, CSV and tar shards as tokens, beside the libraries whose users have them so:
`datasets` writes the files, `tokenizers` makes the ids. Conversations beside those of kind: text.

Where `datasets` is not installed nothing of this runs; tests/unit/test_tokenized.c needs none.
"""

import importlib.util
import io
import json
import os
import pathlib
import random
import sys
import tarfile
import tempfile
import unittest

import numpy
from dloaderd import Loader

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
# `datasets` is Hugging Face's here, and not the file of that name beside this one.
if HERE in sys.path:
    sys.path.remove(HERE)
from dltest import QUICK  # noqa: E402
from tap import slow  # noqa: E402

ROWS = 60 if QUICK else 400
ALPHABET = "etaoin shrdlu,.'\n ETAOIN 0123 äßéñ 日本語 🙂 \u00a0\u200b"


def has(module):
    found = importlib.util.find_spec(module)
    return found is not None and os.path.dirname(found.origin or "") != HERE


def text_of(rng):
    return "".join(rng.choices(ALPHABET, k=rng.choice([0, 1, 5, 40, 300])))


def conversation_of(rng):
    return [{"role": role, "content": text_of(rng).strip()}
            for _ in range(rng.randrange(3)) for role in ("user", "assistant")]


def trained(path, texts):
    """A byte-level BPE in the style of GPT-2's, with special tokens around a text; saved."""
    import tokenizers
    special = ["<s>", "</s>", "[MASK]", "<|im_start|>", "<|im_end|>"]
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    made.save(str(path))
    return made


@unittest.skipUnless(has("datasets") and has("tokenizers"), "datasets and tokenizers are not installed")
class Texts(unittest.TestCase):
    def setUp(self):
        import datasets
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        rng = random.Random(23)
        self.texts = [text_of(rng) for _ in range(ROWS)]
        self.talks = [conversation_of(rng) for _ in range(ROWS)]
        self.tokenizer = trained(self.folder / "tokenizer.json", self.texts)
        self.keys = {"tokenizer": "huggingface", "model": str(self.folder / "tokenizer.json")}
        datasets.disable_progress_bars()
        self.data = datasets.Dataset.from_dict({
            "id": list(range(ROWS)), "text": self.texts,
            "messages": datasets.Dataset.from_list([{"m": talk} for talk in self.talks])["m"][:]})

    def samples(self, **dataset):
        spec = {"dataset": {**dataset, **self.keys}, "batch": {"size": None}, "workers": {"count": 0},
                "seed": 1}
        with Loader(spec, as_="numpy") as loader:
            return list(loader)

    def path(self, name):
        return str(self.folder / name)

    def check(self, name="text", inside=None, **dataset):
        ours = self.samples(**dataset)
        theirs = [encoding.ids for encoding in self.tokenizer.encode_batch(self.texts)]
        self.assertEqual(len(ours), ROWS)
        for i, (sample, ids) in enumerate(zip(ours, theirs)):
            tokens = (sample[inside] if inside else sample)["tokens"]
            self.assertEqual((tokens.dtype, tokens.tolist()), (numpy.dtype("int64"), ids), (name, i))
        return ours

    def write_shard(self):
        with tarfile.open(self.path("texts.tar"), "w") as tar:
            for i, (text, talk) in enumerate(zip(self.texts, self.talks)):
                whole = json.dumps({"text": text, "messages": talk, "id": i})
                for extension, data in (("txt", text), ("json", whole)):
                    info = tarfile.TarInfo(f"{i:05}.{extension}")
                    info.size = len(data.encode())
                    tar.addfile(info, io.BytesIO(data.encode()))
        return self.path("texts.tar")

    def test_arrow(self):
        self.data.select_columns(["id", "text"]).save_to_disk(self.path("saved"))
        ours = self.check(kind="arrow", paths=self.path("saved"))
        self.assertEqual([list(sample) for sample in ours[:1]], [["id", "tokens"]])
        self.assertEqual([int(sample["id"]) for sample in ours], list(range(ROWS)))

    def test_parquet(self):
        self.data.select_columns(["text", "id"]).to_parquet(self.path("texts.parquet"), batch_size=17)
        self.check(kind="parquet", paths=self.path("texts.parquet"))

    def test_csv(self):
        self.data.select_columns(["text"]).to_csv(self.path("texts.csv"), index=False)
        self.check(kind="csv", paths=self.path("texts.csv"), types={"text": "string"})

    def test_tar(self):
        shard = self.write_shard()
        self.check(kind="tar", paths=shard, fields=["txt"], field="txt", index="auto")
        self.check(kind="tar", paths=shard, fields=["txt"], field="txt")
        self.check(kind="tar", paths=shard, field="json.text", fields=["json"], inside="json", index="auto")

    def test_max_length(self):
        self.data.select_columns(["text"]).save_to_disk(self.path("saved"))
        self.tokenizer.enable_truncation(9)
        self.check(kind="arrow", paths=self.path("saved"), max_length=9)
        self.keys["model"] = self.path("cut.json")  # the file itself says so
        self.tokenizer.save(self.keys["model"])
        self.check(kind="arrow", paths=self.path("saved"))
        self.check(kind="arrow", paths=self.path("saved"), max_length=100)

    def test_batches_of_tokens(self):
        """Every token comes once, in batches that are full."""
        self.data.select_columns(["text"]).to_parquet(self.path("texts.parquet"))
        spec = {"dataset": {"kind": "parquet", "paths": self.path("texts.parquet"), **self.keys},
                "sampler": {"kind": "random"}, "batch": {"tokens": 1024},
                "collate": {"kind": "pad", "value": -1}, "workers": {"count": 0}, "seed": 3}
        with Loader(spec, as_="numpy") as loader:
            batches = [batch["tokens"] for batch in loader]
        ours = sorted(row[row >= 0].tolist() for batch in batches for row in batch)
        self.assertEqual(ours, sorted(e.ids for e in self.tokenizer.encode_batch(self.texts)))
        self.assertLessEqual(max(batch.size for batch in batches), 1024)

    def test_masked(self):
        self.data.select_columns(["text"]).save_to_disk(self.path("saved"))
        spec = {"dataset": {"kind": "arrow", "paths": self.path("saved"), "mlm_probability": 0.3, **self.keys},
                "batch": {"size": None}, "workers": {"count": 0}, "seed": 3}
        hidden = []
        with Loader(spec, as_="numpy") as loader:
            for sample, encoding in zip(loader, self.tokenizer.encode_batch(self.texts)):
                tokens, labels, mask = sample["tokens"], sample["labels"], sample["loss_mask"]
                self.assertEqual(labels.tolist(), encoding.ids)
                self.assertTrue((tokens == labels)[~mask].all())
                self.assertFalse(mask[numpy.array(encoding.special_tokens_mask, bool)].any())
                hidden += [int(one) for one in tokens[mask]]
        share = len(hidden) / sum(len(e.ids) - 2 for e in self.tokenizer.encode_batch(self.texts))
        self.assertTrue(0.27 < share < 0.33, share)
        masks = hidden.count(self.tokenizer.token_to_id("[MASK]")) / len(hidden)
        self.assertTrue(0.75 < masks < 0.85, masks)

    def expect_talks(self, ours, inside=None):
        """As kind: text makes them of JSON lines, which Templates compares with transformers."""
        for i, (sample, want) in enumerate(zip(ours, self.lines)):
            sample = sample[inside] if inside else sample
            self.assertEqual(sample["tokens"].tolist(), want["tokens"].tolist(), i)
            self.assertEqual(sample["loss_mask"].tolist(), want["loss_mask"].tolist(), i)
        self.assertEqual(len(ours), ROWS)
        self.assertTrue(any(sample["loss_mask"].any() for sample in self.lines))

    def test_chats(self):
        self.keys |= {"chat": "chatml", "field": "messages"}
        (self.folder / "talks.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n"
                                                         for talk in self.talks))
        self.lines = self.samples(kind="text", paths=self.path("talks.jsonl"))
        self.data.select_columns(["messages"]).save_to_disk(self.path("saved"))
        self.expect_talks(self.samples(kind="arrow", paths=self.path("saved")))
        self.data.select_columns(["messages"]).to_parquet(self.path("talks.parquet"))
        self.expect_talks(self.samples(kind="parquet", paths=self.path("talks.parquet")))
        self.data.select_columns(["messages"]).map(lambda row: {"messages": json.dumps(row["messages"])}).to_csv(
            self.path("talks.csv"), index=False)
        self.expect_talks(self.samples(kind="csv", paths=self.path("talks.csv"), types={"messages": "string"}))
        shard = self.write_shard()
        self.keys["field"] = "json.messages"
        self.expect_talks(self.samples(kind="tar", paths=shard, fields=["json"], index="auto"), "json")


# What Llama 3 splits texts by, which takes newlines by themselves, as templates want it.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SAID = "{% if m.role == 'assistant' %}{% generation %}{{ WORDS }}{% endgeneration %}{% else %}{{ WORDS }}{% endif %}"
# The two formats as Jinja has them, what a loss is taken of in `generation`; and their tokens.
TEMPLATES = {
    "chatml": (r"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
               + SAID.replace("WORDS", "m.content + '<|im_end|>'") + r"{{ '\n' }}{% endfor %}",
               ["<|im_start|>", "<|im_end|>"]),
    "llama3": (r"{{ '<|begin_of_text|>' }}{% for m in messages %}"
               r"{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}"
               + SAID.replace("WORDS", "(m.content | trim) + '<|eot_id|>'") + "{% endfor %}",
               ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
}


@unittest.skipUnless(has("tokenizers") and has("transformers"), "tokenizers and transformers are not installed")
class Templates(unittest.TestCase):
    """Conversations beside apply_chat_template(): the tokens, and those of the assistant."""

    def check(self, folder, name):
        import tokenizers
        import transformers
        template, special = TEMPLATES[name]
        rng = random.Random(name)
        talks = [talk for talk in (conversation_of(rng) for _ in range(ROWS)) if talk]
        for turn in (turn for talk in talks for turn in talk if turn["content"]):
            turn["content"] = rng.choice(["", " ", "  "]) + turn["content"] + rng.choice(["", " ", "\n"])
        made = tokenizers.Tokenizer(tokenizers.models.BPE())
        made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        made.train_from_iterator([turn["content"] for talk in talks for turn in talk], tokenizers.trainers.BpeTrainer(
            vocab_size=400, special_tokens=special, show_progress=False,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
        made.save(str(folder / "tokenizer.json"))
        (folder / "talks.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
        spec = {"dataset": {"kind": "text", "paths": str(folder / "talks.jsonl"), "field": "messages", "chat": name,
                            "tokenizer": "huggingface", "model": str(folder / "tokenizer.json")},
                "batch": {"size": None}, "workers": {"count": 0}, "seed": 1}
        theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=made)
        with Loader(spec, as_="numpy") as loader:
            for talk, ours in zip(talks, loader, strict=True):
                want = theirs.apply_chat_template(talk, chat_template=template, tokenize=True, return_dict=True,
                                                  return_assistant_tokens_mask=True)
                self.assertEqual(ours["tokens"].tolist(), want["input_ids"], talk)
                self.assertEqual(ours["loss_mask"].tolist(), list(map(bool, want["assistant_masks"])), talk)

    @slow
    def test_templates(self):
        for name in TEMPLATES:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                self.check(pathlib.Path(folder), name)
