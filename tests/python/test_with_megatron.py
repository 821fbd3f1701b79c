"""Megatron: what `dlctl pretokenize` writes, in Megatron Core's datasets, and what --dataloader-type external takes, in
its own iterator.

Megatron's training script, which needs a GPU, hands such a loader to RerunDataIterator, calls next(), and
for a checkpoint save_state(), once for each data-parallel rank.
"""

import json
import os
import pathlib
import sys

import numpy
import torch

import trainers
from black_box import HERE, Case
from dloaderd import DataLoader

trainers.need("megatron.core")
sys.path.append(os.path.join(HERE, "..", "lib"))
from dltest import TestCase, dlctl  # noqa: E402
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder  # noqa: E402
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: E402
from megatron.core.datasets.indexed_dataset import IndexedDataset  # noqa: E402
from megatron.core.rerun_state_machine import (RerunDataIterator, RerunMode,  # noqa: E402
                                               get_rerun_state_machine,
                                               initialize_rerun_state_machine)

N, BATCH, MICRO, STEPS = 46, 3, 2, 10


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return N

    def __getitem__(self, index):
        return {"tokens": torch.arange(index, index + 9)}


class External:
    """Goes through the epochs, as Megatron counts in steps."""

    def __init__(self, loader):
        self.loader, self.batches = loader, iter(loader)

    def __next__(self):
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        return batch

    def save_state(self):
        return self.loader.state_dict()


def train(cls, folder, dies, resumes):
    """Micro-batches of a step, forward and backward, as Megatron's schedules ask for them."""
    rank, world = (int(os.environ.get(name, default)) for name, default in
                   (("RANK", 0), ("WORLD_SIZE", 1)))
    options = {"rank": rank, "world_size": world} if cls is DataLoader else {
        "sampler": torch.utils.data.DistributedSampler(Tokens(), world, rank)}
    loader = cls(Tokens(), batch_size=BATCH, shuffle=True if cls is DataLoader else None, num_workers=1,
                 drop_last=True, **options)
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 8), torch.nn.Linear(8, 64))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    first, kept = 0, pathlib.Path(folder, f"rank {rank}")
    if resumes:
        state = torch.load(kept, weights_only=False)
        first = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["dataloader_state_dict"])
    if cls is DataLoader:
        external = External(loader)
    else:
        external = iter(batch for epoch in range(9)
                        for batch in (loader.sampler.set_epoch(epoch), loader)[1])
    iterator = RerunDataIterator(external)
    for step in range(first + 1, STEPS + 1):
        optimizer.zero_grad()
        total = torch.zeros(())
        for _ in range(MICRO):
            tokens = next(iterator)["tokens"]
            loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1),
                                                     tokens[:, 1:].flatten())
            loss.backward()
            total += loss.detach()
        optimizer.step()
        trainers.tell(total)
        if step == dies:
            torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                        "dataloader_state_dict": iterator.iterable.save_state()}, kept)
            trainers.die()


class TestPretokenized(TestCase):
    """What `dlctl pretokenize` writes, as Megatron Core reads it."""

    def test_documents_and_samples(self):
        texts = ["", "one", "ä" * 300] + [f"text {i} " * (i % 7) for i in range(200)]
        with open(self.path("texts.jsonl"), "w", encoding="utf-8") as out:
            out.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        daemon = self.daemon()
        for eos, dtype in ((256, numpy.uint16), (70000, numpy.int32)):
            spec = self.spec(f"{eos}", batch={"size": 1}, dataset={
                "kind": "text", "paths": "texts.jsonl", "tokenizer": "bytes", "eos": eos})
            dlctl("pretokenize", spec, "-o", self.path(str(eos)), "--quiet", daemon=daemon)
            made = IndexedDataset(self.path(str(eos)))
            wanted = [[*text.encode(), *[eos] * bool(text)] for text in texts]
            self.assertEqual([made[i].tolist() for i in range(len(made))], wanted)
            self.assertEqual((made.index.dtype, made.document_indices.tolist()), (dtype, list(range(len(texts) + 1))))
            blend = self.blend(str(eos), eos)
            whole = [token for i in blend.document_index for token in made[int(i)].tolist()]
            samples = sorted((int(at), blend[i]["tokens"].tolist()) for i, at in enumerate(blend.shuffle_index))
            self.assertEqual([tokens for _, tokens in samples],
                             [whole[at:at + 64] for at in range(0, len(whole) - 64, 64)])

    def blend(self, name, eos):
        """Sequences of one epoch; it shuffles documents, and then sequences."""
        plain = type("Plain", (), {"vocab_size": eos + 1, "eod": eos, "unique_identifiers": {"name": name}})()
        config = GPTDatasetConfig(
            random_seed=1, sequence_length=64, blend=([self.path(name)], None), split="1,0,0", tokenizer=plain,
            path_to_cache=self.path("cache"), reset_position_ids=False, reset_attention_mask=False,
            eod_mask_loss=False, create_attention_mask=False)
        return BlendedMegatronDatasetBuilder(GPTDataset, [None] * 3, lambda: True, config).build()[0]


class TestExternal(Case):
    def test_a_run_that_is_killed_goes_on(self):
        for world in (1, 2):
            trainers.check_killed(self, train, STEPS, world=world)

    def test_an_iteration_is_run_again_on_the_same_batches(self):
        initialize_rerun_state_machine(mode=RerunMode.REPORT_DETERMINISM_STATS)
        self.addCleanup(get_rerun_state_machine().set_mode, RerunMode.DISABLED)
        iterator = RerunDataIterator(External(DataLoader(Tokens(), batch_size=BATCH, num_workers=1)))
        # More than the ring has room for.
        batches = [next(iterator)["tokens"].clone() for _ in range(12)]
        iterator.rewind()
        self.same([next(iterator)["tokens"] for _ in range(12)], batches)
        iterator.advance()
        self.assertEqual(next(iterator)["tokens"][0, 0], 36)
