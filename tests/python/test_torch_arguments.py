"""What the constructor accepts and refuses, attributes, and len()."""

import contextlib
import multiprocessing
import warnings
from unittest import mock

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

import black_box
import datasets
from black_box import Case, DataLoader, TORCH
from dloaderd import _processors

DATA = datasets.Numbers(10)
SAMPLER = [1, 2, 3]
STREAM = datasets.Split(5)


@contextlib.contextmanager
def with_accelerator():
    """As if there were one; nothing may be asked of it."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("torch.cuda.is_available", lambda: True))
        if hasattr(torch, "accelerator"):
            stack.enter_context(mock.patch("torch.accelerator.is_available", lambda: True))
            stack.enter_context(mock.patch("torch.accelerator.current_accelerator", lambda: None))
        yield


class TestRefusals(Case):
    """Equal type and text to the running PyTorch's, which are asserted to be the known ones."""

    def refused(self, kind, text, data=DATA, **options):
        error = self.both(lambda cls: cls(data, **options) and None)
        self.assertIsInstance(error, kind)
        self.assertRegex(str(error), text)

    def test_numbers_out_of_range(self):
        self.refused(ValueError, "^num_workers option should be non-negative; "
                     "use num_workers=0 to disable multiprocessing.$", num_workers=-1)
        self.refused(ValueError, "^timeout option should be non-negative$", timeout=-1)
        for size in (0, -1, 2.5, True, "3", [2]):
            self.refused(ValueError, "^batch_size should be a positive integer value, but got "
                         "batch_size=", batch_size=size)
        self.refused(ValueError, "^drop_last should be a boolean value, but got drop_last=1$",
                     batch_size=2, drop_last=1)

    def test_numbers_that_are_none(self):
        """What PyTorch's class takes, and refuses when it is used."""
        for options in ({"num_workers": 1.5}, {"num_workers": 2.0}, {"num_workers": 1, "prefetch_factor": 1.5},
                        {"num_workers": 2, "prefetch_factor": 1.5}, {"num_workers": True},
                        {"num_workers": 1, "prefetch_factor": 100000}, {"num_workers": 1, "prefetch_factor": True}):
            with self.subTest(options):
                def read(cls):
                    try:
                        return [batch.tolist() for batch in cls(datasets.Numbers(5), **options)]
                    except Exception as error:
                        return black_box.told(error)
                self.both(read)

    def test_prefetch_factor(self):
        self.refused(ValueError, "^prefetch_factor option could only be specified in "
                     "multiprocessing.let num_workers > 0 to enable multiprocessing",
                     prefetch_factor=3)
        if TORCH >= (2, 0):
            self.refused(ValueError, "otherwise set prefetch_factor to None.$", prefetch_factor=2)
            self.refused(ValueError, "^prefetch_factor option should be non-negative$",
                         prefetch_factor=-1, num_workers=1)
        for factor in (0, -1):
            error = self.both(lambda cls: iter(cls(DATA, prefetch_factor=factor, num_workers=1)))
            self.assertIsInstance(error, (AssertionError, ValueError))

    def test_persistent_workers_without_workers(self):
        self.refused(ValueError, "^persistent_workers option needs num_workers > 0$",
                     persistent_workers=True)

    def test_multiprocessing_context(self):
        self.refused(ValueError, r"^multiprocessing_context can only be used with multi-process "
                     r"loading \(num_workers > 0\), but got num_workers=0$",
                     multiprocessing_context="fork")
        self.refused(ValueError, r"^multiprocessing_context option should specify a valid start "
                     r"method in \[.*\], but got multiprocessing_context='bad'$",
                     multiprocessing_context="bad", num_workers=1)
        self.refused(TypeError, "^multiprocessing_context option should be a valid context object",
                     multiprocessing_context=object, num_workers=1)

    def test_iterable_dataset_takes_no_order(self):
        for name, value in (("shuffle", True), ("sampler", SAMPLER), ("batch_sampler", SAMPLER),
                            ("shuffle", 7)):
            self.refused(ValueError, "^DataLoader with IterableDataset: expected unspecified "
                         f"{name} option, but got {name}=", STREAM, **{name: value})
        self.assertEqual(len(list(DataLoader(STREAM, shuffle=False))), 5)

    def test_sampler_and_shuffle(self):
        self.refused(ValueError, "^sampler option is mutually exclusive with shuffle$",
                     sampler=SAMPLER, shuffle=True)

    def test_batch_sampler_and_others(self):
        for options in ({"batch_size": 2}, {"batch_size": None}, {"shuffle": True},
                        {"sampler": SAMPLER}, {"drop_last": True}):
            self.refused(ValueError, "^batch_sampler option is mutually exclusive with "
                         "batch_size, shuffle, sampler, and drop_last$",
                         batch_sampler=[[1]], **options)

    def test_no_batches_and_drop_last(self):
        self.refused(ValueError, "^batch_size=None option disables auto-batching and is mutually "
                     "exclusive with drop_last$", batch_size=None, drop_last=True)

    def test_shuffle_of_nothing(self):
        options = {"shuffle": True}
        data = datasets.Numbers(0)
        try:
            RandomSampler(data)
        except ValueError:
            self.refused(ValueError, "^num_samples should be a positive integer value, but got "
                         "num_samples=0$", data, **options)
        else:
            self.both(lambda cls: list(cls(data, **options)))

    def test_order_of_the_checks(self):
        """Each has all the faults that come after it, too."""
        faults = [({"num_workers": -1}, "^num_workers option"),
                  ({"timeout": -1}, "^timeout option"),
                  ({"persistent_workers": True}, "^persistent_workers option"),
                  ({"multiprocessing_context": "bad"}, "^multiprocessing_context can only"),
                  ({"sampler": SAMPLER, "shuffle": True}, "^sampler option"),
                  ({"batch_sampler": [[1]]}, "^batch_sampler option"),
                  ({"batch_size": None, "drop_last": True}, "^batch_size=None option")]
        for first in range(len(faults)):
            options = {}
            for fault, _ in reversed(faults[first:]):
                options.update(fault)
            self.refused(ValueError, faults[first][1], **options)

    def test_timeout_without_workers(self):
        error = self.both(lambda cls: iter(cls(DATA, timeout=1)))
        self.assertIsInstance(error, AssertionError)

    def test_unknown_and_positional_arguments(self):
        with self.assertRaises(TypeError):
            DataLoader(DATA, no_such_option=1)
        with self.assertRaises(TypeError):
            DataLoader()
        loader = DataLoader(DATA, 3, False, None, None, 1, datasets.as_list, False, True, 60,
                            datasets.set_value, None, torch.Generator())
        self.assertEqual((loader.batch_size, loader.num_workers, loader.drop_last, loader.timeout),
                         (3, 1, True, 60))
        self.assertIs(loader.worker_init_fn, datasets.set_value)


class TestAssignment(Case):
    def test_what_may_not_be_assigned_later(self):
        for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset",
                     "persistent_workers"):
            error = self.both(lambda cls: setattr(cls(DATA), name, getattr(cls(DATA), name)))
            self.assertEqual((type(error), str(error)), (
                ValueError,
                f"{name} attribute should not be set after DataLoader is initialized"))

    def test_what_may_be_assigned_later(self):
        for workers in (0, 1):
            loader = DataLoader(DATA, batch_size=5, num_workers=workers)
            next(iter(loader))
            loader.collate_fn = datasets.as_list
            self.assertEqual(list(loader), [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
        loader = DataLoader(datasets.Streams(2), batch_size=None)
        self.assertEqual([sample[1] for sample in loader], [-1, -1])
        loader.num_workers = 1
        loader.prefetch_factor = 2
        self.assertEqual([sample[1] for sample in loader], [0, 0])
        loader.anything_else = 3
        self.assertEqual(loader.anything_else, 3)

    def test_assigned_worker_init_fn_and_generator(self):
        loader = DataLoader(datasets.Informed(), num_workers=1, collate_fn=datasets.as_list)
        self.assertEqual(next(iter(loader))[0][4], "from the beginning")
        loader.worker_init_fn = datasets.set_value
        self.assertEqual(next(iter(loader))[0][4], "set in worker 0")
        loader.generator = torch.Generator().manual_seed(42)
        self.assertEqual(next(iter(loader))[0][2], 6909045637428952499)


class TestAttributes(Case):
    NAMES = ["batch_size", "drop_last", "num_workers", "prefetch_factor", "pin_memory", "timeout",
             "pin_memory_device", "persistent_workers", "worker_init_fn", "generator"]

    def test_attributes(self):
        names = self.NAMES + ["in_order"] * (TORCH >= (2, 6))
        for options in ({}, {"batch_size": None}, {"batch_size": 3, "drop_last": True},
                        {"num_workers": 2}, {"num_workers": 1, "prefetch_factor": 5, "timeout": 3},
                        {"num_workers": 1, "persistent_workers": True}, {"pin_memory": True},
                        {"batch_sampler": [[1]]}, {"worker_init_fn": datasets.set_value}):
            with self.subTest(options):
                self.both(lambda cls: [getattr(cls(DATA, **options), name) for name in names])

    def test_samplers(self):
        for options in ({}, {"shuffle": True}, {"batch_size": None}, {"sampler": SAMPLER},
                        {"batch_sampler": SAMPLER}, {"batch_size": 3, "drop_last": True}):
            with self.subTest(options):
                self.both(lambda cls: [type(getattr(cls(DATA, **options), name))
                                       for name in ("sampler", "batch_sampler")])
        loader = DataLoader(DATA, batch_size=4, shuffle=True)
        self.assertIs(loader.dataset, DATA)
        self.assertIsInstance(loader.sampler, RandomSampler)
        self.assertIsInstance(loader.batch_sampler, BatchSampler)
        self.assertIs(loader.batch_sampler.sampler, loader.sampler)
        self.assertIsInstance(DataLoader(DATA).sampler, SequentialSampler)

    def test_collate_fn(self):
        from torch.utils.data._utils.collate import default_collate, default_convert
        self.assertIs(DataLoader(DATA).collate_fn, default_collate)
        self.assertIs(DataLoader(DATA, batch_size=None).collate_fn, default_convert)
        self.assertIs(DataLoader(DATA, collate_fn=datasets.as_list).collate_fn, datasets.as_list)

    def test_multiprocessing_context_is_kept(self):
        self.assertIsNone(DataLoader(DATA, num_workers=1).multiprocessing_context)
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            for given in (method, context):
                kept = self.both(lambda cls: cls(DATA, num_workers=1,
                                                 multiprocessing_context=given
                                                 ).multiprocessing_context.get_start_method())
                self.assertEqual(kept, method)

    def test_a_worker_for_each_processor(self):
        with mock.patch("os.sched_getaffinity", return_value={0, 3, 5}), \
                mock.patch.object(_processors, "_read", return_value=""):
            loader = DataLoader(DATA, num_workers="auto")
        self.assertEqual((loader.num_workers, loader.prefetch_factor), (3, 2))
        self.assertEqual(black_box.flat(loader), black_box.flat(DataLoader(DATA, num_workers=3)))
        with self.assertRaises(TypeError):
            DataLoader(DATA, num_workers="many")

    def test_processors_of_control_groups(self):
        files = {"/proc": "1:cpu:/x\n0::/a/b\n", "/c/a/cpu.max": "250000 100000\n", "/c/a/b/cpu.max": "max 100000\n"}
        for quota, found in (("max 100000", 3), ("50000 100000", 1), ("nonsense", 3), ("999999 100000", 3)):
            files["/c/a/b/cpu.max"] = quota
            with mock.patch("os.sched_getaffinity", return_value=set(range(8))), \
                    mock.patch.object(_processors, "_read", lambda path: files.get(path, "")):
                self.assertEqual(_processors.usable("/c", "/proc"), found)

    def test_contexts_load_the_same(self):
        loader = DataLoader([1, 2, 3], num_workers=1,
                            multiprocessing_context=multiprocessing.get_context("fork"))
        self.assertEqual(black_box.flat(loader), [1, 2, 3])

    def test_subclasses_and_type_arguments(self):
        class Mine(DataLoader):
            def __init__(self, data):
                super().__init__(data, batch_size=2)
                self.own = "kept"

        mine = Mine([1, 2, 3])
        self.assertEqual((black_box.flat(mine), len(mine), mine.own), ([1, 2, 3], 2, "kept"))
        with self.assertRaisesRegex(ValueError, "should not be set after Mine is initialized"):
            mine.batch_size = 3
        self.assertIsNotNone(DataLoader[int])


class TestLength(Case):
    def test_map_style(self):
        for n in (0, 1, 7, 8):
            for options in ({}, {"batch_size": None}, {"batch_size": 4},
                            {"batch_size": 4, "drop_last": True}, {"sampler": range(5)},
                            {"sampler": range(5), "batch_size": 2}, {"batch_sampler": [[1], [2]]},
                            {"batch_size": 4, "num_workers": 2}):
                self.both(lambda cls: len(cls(datasets.Numbers(n), **options)))

    def test_iterable(self):
        for n in (0, 1, 7, 8):
            for options in ({}, {"batch_size": None}, {"batch_size": 4},
                            {"batch_size": 4, "drop_last": True},
                            {"batch_size": 4, "num_workers": 2}):
                self.both(lambda cls: len(cls(datasets.Sized(n), **options)))

    def test_what_has_no_length(self):
        self.assertIsInstance(self.both(lambda cls: len(cls(STREAM))), TypeError)
        self.assertIsInstance(self.both(lambda cls: len(cls(DATA, sampler=iter([1, 2])))),
                              TypeError)
        self.assertIsInstance(self.both(lambda cls: len(cls(datasets.Keys()))), TypeError)


class TestProfiles(Case):
    def test_the_ranges_of_a_profile(self):
        """Tools look for these names."""
        for way in ({}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}):
            def ranges(cls):
                loader = cls(DATA, batch_size=4, **way)
                with torch.autograd.profiler.profile() as profile:
                    list(loader)
                names = [event.name for event in profile.function_events]
                return sorted(name for name in names if name.startswith("enumerate(DataLoader)"))

            found = self.both(ranges)
            self.assertEqual(len(found), 4, found)  # the last one is told that there is none


class TestWarnings(Case):
    def test_too_many_workers(self):
        def build(cls):
            return cls(DATA, num_workers=1000) and None

        self.both(build)
        with self.assertWarnsRegex(UserWarning, "^This DataLoader will create 1000 worker "
                                   "processes in total. Our suggested max number of worker"):
            build(DataLoader)

    def test_nothing_is_said_of_what_is_right(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for options in ({}, {"shuffle": True, "batch_size": 3}, {"num_workers": 1},
                            {"num_workers": 1, "persistent_workers": True}):
                loader = DataLoader(DATA, **options)
                self.assertEqual(sum(black_box.flat(loader)), 45)

    def test_pin_memory_without_accelerator(self):
        if torch.cuda.is_available():
            self.skipTest("there is an accelerator")
        texts = []
        for cls in (black_box.TorchLoader, DataLoader):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                batches = [batch for workers in (0, 1) for batch in
                           cls(datasets.Numbers(4, "dict"), batch_size=2, pin_memory=True,
                               num_workers=workers)]
            self.assertEqual([batch["label"].tolist() for batch in batches],
                             [[0, 1], [2, 3]] * 2)
            self.assertFalse(any(batch["x"].is_pinned() for batch in batches))
            texts.append({str(w.message) for w in caught})
        self.assertEqual(texts[1], texts[0])

    def test_pin_memory_device(self):
        """Of effect, or deprecated, or without pin_memory, as PyTorch's version has it."""
        with with_accelerator():
            for options in ({"pin_memory": True, "pin_memory_device": "cuda"},
                            {"pin_memory_device": "cuda"}, {"pin_memory": True}):
                self.both(lambda cls: [batch.pinned for batch in cls(
                    DATA, batch_size=5, collate_fn=datasets.OwnBatch, **options)])

    def test_a_batch_that_pins_itself(self):
        ways = ({}, {"num_workers": 1}, {"num_workers": 2, "persistent_workers": True})
        for way in ways if black_box.OURS else ways[:1]:  # PyTorch's thread for it needs a device
            with with_accelerator(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for collate in (datasets.OwnBatch, datasets.own_batches):
                    loader = DataLoader(DATA, batch_size=5, collate_fn=collate, pin_memory=True,
                                        **way)
                    for _ in range(2):
                        batches = list(loader)
                        own = [batch if collate is datasets.OwnBatch else batch["own"][0]
                               for batch in batches]
                        self.assertEqual([batch.pinned for batch in own], [1, 1], way)

    def test_lambdas_and_local_classes(self):
        class Local(torch.utils.data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                return offset + index

        offset = 100
        for workers in (0, 2):
            loader = DataLoader(Local(), batch_size=2, num_workers=workers,
                                collate_fn=lambda samples: [-s for s in samples],
                                worker_init_fn=lambda worker: None)
            self.assertEqual(list(loader), [[-100, -101], [-102, -103]])
