"""The Trainer of transformers: it makes PyTorch's class and has Accelerate prepare it. In a subclass
of five lines our workers load, or a loader of one's own is prepared and stays ours; rows come from datasets.
"""

import functools
import random
import signal
import tempfile
import warnings

import torch

import trainers
from black_box import Case, TorchLoader
from dloaderd import DataLoader, adopt

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
    """As the manual shows it."""

    def get_train_dataloader(self):
        return adopt(super().get_train_dataloader())

    def get_eval_dataloader(self, *args):
        return adopt(super().get_eval_dataloader(*args))


class OfOnesOwn(Told):
    """A loader that the Trainer does not make."""

    def get_train_dataloader(self):
        loader = DataLoader(self.train_dataset, batch_size=BATCH, shuffle=True,
                            collate_fn=self.data_collator, num_workers=1)
        return self.accelerator.prepare(loader)


class Dies(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_save(self, args, state, control, **_):
        if state.global_step == self.step:
            if args.world_size > 1:
                torch.distributed.barrier()  # the first rank writes for all
            trainers.die()


def train(cls, folder, dies, resumes, kind=Adopting, rows=data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind = kind if cls is DataLoader else Told
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=BATCH, per_device_eval_batch_size=BATCH,
            report_to=[], use_cpu=True, disable_tqdm=True, seed=5, learning_rate=0.1,
            save_steps=dies or 1000, save_strategy="steps" if dies else "no", logging_steps=1000,
            dataloader_pin_memory=False, **{"num_train_epochs": EPOCHS, **options})
        trainer = kind(model=Model(), args=arguments, train_dataset=rows(), eval_dataset=data(),
                       data_collator=collator(), callbacks=[Dies(None if resumes else dies)])
        loader = trainer.get_train_dataloader()
        for one in (loader, transformers.trainer.skip_first_batches(loader, 1)):
            assert isinstance(one.base_dataloader, DataLoader) == (kind is not Told)
        trainer.train(resume_from_checkpoint=resumes or None)
        print("loss of evaluation", trainer.evaluate()["eval_loss"], "steps",
              trainer.state.global_step)


def stream():
    return data().to_iterable_dataset(num_shards=2)


class TrainerCase(Case):
    def losses(self, cls, world, **options):
        with tempfile.TemporaryDirectory() as folder:
            return trainers.losses(functools.partial(train, **options), cls, folder, None, False,
                                   world=world)

    def check_same(self, steps, world=1, **options):
        """The losses are those with PyTorch's class, and so many steps are made of them."""
        expected = self.losses(TorchLoader, world, **options)
        self.assertEqual(self.losses(DataLoader, world, **options), expected)
        self.assertTrue(expected[0][-1].endswith(f"steps {steps}"), expected[0][-1])
        return expected

    def check_killed(self, world=1, **options):
        steps = EPOCHS * -(-N // (world * BATCH)) + 1  # the last is the evaluation
        trainers.check_killed(self, functools.partial(train, **options), steps, world=world,
                              dies=(random.randint(1, steps - 2),))


class TestTrainer(TrainerCase):
    def test_the_same_losses_as_with_pytorchs(self):
        for options in ({}, {"train_sampling_strategy": "group_by_length"},
                        {"dataloader_drop_last": True, "dataloader_num_workers": 2,
                         "dataloader_persistent_workers": True}):
            steps = EPOCHS * (N // BATCH) if "dataloader_drop_last" in options else STEPS
            self.check_same(steps, **options)

    def test_the_last_step_of_an_epoch_is_one(self):
        """Of 6 batches, 4 and 2: two steps."""
        for kind in (Adopting, OfOnesOwn):
            self.check_same(EPOCHS * 2, gradient_accumulation_steps=4, kind=kind)

    def test_streams(self):
        self.check_same(8, rows=stream, max_steps=8, dataloader_num_workers=1)

    def test_a_loader_of_ones_own(self):
        self.check_same(STEPS, kind=OfOnesOwn)

    def test_killed_and_resumed_bit_for_bit(self):
        self.check_killed(dataloader_num_workers=1)

    def test_resumed_as_with_pytorchs(self):
        """Where the Trainer does not come back to the same samples: it begins the epoch again, or
        its sampler draws from generators that it puts back later.
        """
        for options in ({"ignore_data_skip": True}, {"train_sampling_strategy": "group_by_length"}):
            dies, told = random.randint(1, STEPS - 1), []
            with self.subTest(f"{options} dies at {dies}"):
                for cls in (TorchLoader, DataLoader):
                    work = functools.partial(train, **options)
                    with tempfile.TemporaryDirectory() as folder:
                        begun = trainers.losses(work, cls, folder, dies, False,
                                                ends=-signal.SIGKILL)
                        told.append([begun, trainers.losses(work, cls, folder, dies, True)])
                self.assertEqual(told[1], told[0])
                self.assertEqual([len(lines) for lines, in told[1]], [dies, STEPS - dies + 1])


class TestTwoRanks(TrainerCase):
    """PyTorch's class has no workers here: they were forked beside gloo's threads."""

    def test_shares(self):
        """Each rank's losses, and with them its share, are as with PyTorch's class."""
        steps = EPOCHS * -(-N // (2 * BATCH))
        for options in ({}, {"train_sampling_strategy": "group_by_length"}):
            told = self.check_same(steps, world=2, **options)
            self.assertNotEqual(told[0], told[1])
            self.assertEqual([len(lines) for lines in told], [steps + 1] * 2)

    def test_the_last_step_of_an_epoch_is_one(self):
        self.check_same(EPOCHS * 2, world=2, gradient_accumulation_steps=2)

    def test_killed_and_resumed_bit_for_bit(self):
        self.check_killed(world=2)
