"""Hugging Face's datasets, of rows in a table and of streams, in a program's own loop."""

import json
import os
import sys
import tempfile
import unittest

import torch

import trainers
from black_box import Case, TorchLoader
from dloader import DataLoader

rows, transformers = trainers.need("datasets", "transformers")
from datasets.distributed import split_dataset_by_node  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.models import WordLevel  # noqa: E402

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
            trainers.check_killed(self, train, STEPS, True, workers, stays)
            # In the first epoch, and at its end: those that come are whole.
            for dies in (2, STEPS // EPOCHS):
                trainers.check_killed(self, train, STEPS, True, workers, stays, dies=dies)


if __name__ == "__main__":
    sys.exit(unittest.main())
