"""The Trainer of transformers: it makes PyTorch's class and has Accelerate prepare it. In a subclass
of five lines our workers load, or a loader of one's own is prepared; rows come from datasets.
"""

import os
import random
import sys
import tempfile
import unittest
import warnings

import torch

import trainers
from black_box import Case, TorchLoader
from dloader import DataLoader, adopt

transformers, rows = trainers.need("transformers", "datasets")
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.models import WordLevel  # noqa: E402
from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast  # noqa: E402
from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: E402

rows.disable_progress_bars()
N, BATCH, EPOCHS = 22, 4, 2
STEPS = EPOCHS * -(-N // BATCH)


def collator():
    words = {"[PAD]": 0, **{f"w{i}": i for i in range(1, 10)}}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, "[PAD]")),
                                        pad_token="[PAD]")
    return DataCollatorWithPadding(tokenizer)


def data():
    return rows.Dataset.from_dict({
        "input_ids": [[1 + (i + j) % 9 for j in range(2 + i % 5)] for i in range(N)],
        "labels": [float(i % 3) for i in range(N)]})


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.table = torch.nn.EmbeddingBag(10, 4, padding_idx=0)
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, input_ids, labels=None, attention_mask=None):
        said = self.layer(self.table(input_ids)).squeeze(1)
        return {"loss": torch.nn.functional.mse_loss(said, labels), "logits": said}


class Told(Trainer):
    """Prints the exact loss of each step."""

    def compute_loss(self, model, inputs, *args, **options):
        loss = super().compute_loss(model, inputs, *args, **options)
        if model.training:
            print(f"loss {loss.item().hex()} {inputs['input_ids'].sum().item()}", flush=True)
        return loss


class Adopting(Told):
    def get_train_dataloader(self):
        return adopt(super().get_train_dataloader())

    def get_eval_dataloader(self, *args):
        return adopt(super().get_eval_dataloader(*args))


class OfOnesOwn(Told):
    """A loader that the Trainer does not make."""

    def get_train_dataloader(self):
        loader = DataLoader(self.train_dataset, batch_size=BATCH, shuffle=True,
                            collate_fn=self.data_collator, num_workers=1)
        return adopt(self.accelerator.prepare(loader))


class Dies(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_save(self, args, state, control, **_):
        if state.global_step == self.step:
            trainers.die()


def train(kind, folder, options, dies=None, resumes=False):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=BATCH, per_device_eval_batch_size=BATCH,
            num_train_epochs=EPOCHS, report_to=[], use_cpu=True, disable_tqdm=True,
            save_steps=dies or 1000, save_strategy="steps" if dies else "no", logging_steps=1000,
            learning_rate=0.1, dataloader_pin_memory=False, seed=5, **options)
        trainer = kind(model=Model(), args=arguments, train_dataset=data(), eval_dataset=data(),
                       data_collator=collator(), callbacks=[Dies(dies)])
        loader = trainer.get_train_dataloader()
        assert isinstance(loader.base_dataloader, DataLoader) == (kind is not Told)
        trainer.train(resume_from_checkpoint=resumes or None)
        print("eval", trainer.evaluate()["eval_loss"], len(loader))


def losses(lines):
    return [line for line in lines if line.startswith(("loss", "eval"))]


class TestTrainer(Case):
    def run_(self, kind, *args, **options):
        with tempfile.TemporaryDirectory() as folder:
            return losses(trainers.lines(train, kind, folder, *args, **options))

    def test_the_same_losses_as_with_pytorchs(self):
        for options in ({}, {"train_sampling_strategy": "group_by_length"}):
            expected = self.run_(Told, options)
            self.assertEqual(len(expected), STEPS + 1)
            self.assertEqual(self.run_(Adopting, options), expected)
        accumulates = {"gradient_accumulation_steps": 3, "dataloader_num_workers": 1}
        self.assertEqual(self.run_(Adopting, accumulates), self.run_(Told, accumulates))

    def test_a_loader_of_ones_own(self):
        self.assertEqual(self.run_(OfOnesOwn, {}), self.run_(Told, {}))

    def test_killed_and_resumed_bit_for_bit(self):
        for options in ({"dataloader_num_workers": 1},
                        {"train_sampling_strategy": "group_by_length"}):
            dies = random.randint(1, STEPS - 1)
            with tempfile.TemporaryDirectory() as folder, self.subTest(f"dies at {dies}"):
                whole = self.run_(Adopting, options)
                status, said = trainers.Forked(train, Adopting, folder, options, dies).end()
                self.assertEqual(status, -9, said)
                rest = losses(trainers.lines(train, Adopting, folder, options, dies, True))
                self.assertEqual(losses(said.splitlines()) + rest, whole)


class TestTwoRanks(Case):
    def test_shares(self):
        """Each rank's losses, and with them its share, are as with PyTorch's class."""
        told = []
        for kind in (Told, Adopting):
            with tempfile.TemporaryDirectory() as folder:
                told.append([losses(lines) for lines in trainers.ranks(train, kind, folder, {})])
        self.assertEqual(told[1], told[0])
        self.assertNotEqual(told[0][0], told[0][1])
        self.assertEqual(len(told[0][0]), EPOCHS * -(-N // (2 * BATCH)) + 1)


if __name__ == "__main__":
    sys.exit(unittest.main())
