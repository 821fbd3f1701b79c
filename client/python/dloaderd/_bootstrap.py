"""What a worker process does before its first sample, in Python: open_named() and open_job()."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from . import _dataset_state, _info, _names, _seeds, _states
from ._errors import StateError

# A line of text for the daemon's log and `dlctl`; the whole report travels besides.
SHORT_TEXT = 400

# Bytes of the report's beginning, which has the traceback, and of its end; more cannot be sent.
REPORT_PART = 30000


class _Broken:
    """Stands for what could not be made: each access raises why, with the first traceback."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._trace = error.__traceback__

    def _raise(self) -> Any:
        raise self._error.with_traceback(self._trace)

    def __getitem__(self, index: Any) -> Any:
        self._raise()

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        self._raise()


def _without_middle(story: str) -> str:
    data = story.encode(errors="surrogatepass")
    left_out = len(data) - 2 * REPORT_PART
    if left_out <= 0:
        return story
    begin, end = (part.decode(errors="ignore") for part in (data[:REPORT_PART], data[-REPORT_PART:]))
    return f"{begin}\n… {left_out} bytes are left out …\n{end}"


class Source:
    """One worker's dataset and what belongs to it; the C loop reads these attributes.

    dataset: the user's. iterable: it is read by iterate(), not by index. length: of a map-style
    dataset, None where it does not say. collate: what makes a batch of a list of samples; None:
    the default rules, which C knows itself. convert: what makes a sample by itself deliverable.
    reseed: is called before each step with a seed that no other step has, where the loader was
    opened by a spec; None: the generators were seeded once and run on, as PyTorch's do. keeper: a
    _states.Keeper, a _dataset_state.Saver, or of a map-style dataset a Carrier, of states that the dataset says
    behind each batch; None: it is not asked. columns: where samples are
    rows of tensors in memory, these (_native.Columns); None: the dataset is called. files: where an iterable
    dataset gives numbers of samples, the spec, as JSON, of a loader that has these under these numbers; None:
    it gives samples. layouts: tensors keep their strides, and what they share. one_by_one:
    a __getitems__ of the dataset is a loop over __getitem__, and is passed over.
    """

    def __init__(self, worker: int, workers: int, dataset: Any, iterable: bool) -> None:
        self.worker = worker
        self.workers = workers
        self.dataset = dataset
        self.iterable = iterable
        self.length = None if iterable else _length(dataset)
        self.collate: Callable | None = None
        self.convert: Callable = _convert
        self.reseed: Callable[[int], None] | None = None
        self.saver: _dataset_state.Saver | None = None
        self.keeper: Any = None
        self.columns: Any = None
        self.files: str | None = None
        self.layouts = False
        self.one_by_one = not iterable and _names.is_loop(dataset)

    def name(self, index: int) -> str:
        """Where people find a sample; "" where nothing says so."""
        return _names.of_sample(self.dataset, index)

    def samples_of(self, numbers: list, why: str) -> list:
        """Where the dataset gives numbers of samples, and C cannot read these, and says why."""
        return self.dataset.samples_of(numbers, why)

    def default_collate(self, samples: list) -> Any:
        """PyTorch's default_collate, for what the rules in C do not cover."""
        try:
            from torch.utils.data._utils.collate import default_collate
        except ImportError as error:
            raise ImportError("a batch of these samples needs PyTorch's rules, but torch cannot be "
                              f"imported by {sys.executable}: {error}; install torch, give a collate_fn, "
                              "or return NumPy arrays and numbers") from None
        return default_collate(samples)

    def iterate(self, rank: int, world: int, epoch: int, state: bytes | None = None) -> Iterator:
        """The samples of a new epoch of an iterable dataset, from where the state says; an error in
        it comes by next(), one of the state at once.
        """
        del rank, world
        pipes = sys.modules.get("dloaderd._datapipes")
        try:
            if pipes is not None:
                pipes.begin_epoch(self.dataset)
            if self.saver is not None:
                return self.saver.begin(state, epoch)
            return iter(self.dataset) if self.keeper is None else self.keeper.begin(state)
        except StateError:
            raise
        except Exception as error:
            return _Broken(error)

    def describe(self, exc_info: Any, index: Any) -> tuple[str, str]:
        """(one line, the whole report) of an error; see "Errors of a step" in the protocol.

        exc_info: (type, value, traceback), or the exception itself. index: of the sample, or None.
        """
        if isinstance(exc_info, BaseException):
            exc_info = type(exc_info), exc_info, exc_info.__traceback__
        kind, value, trace = exc_info
        name = kind.__name__
        module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
        where = kind.__qualname__ if module == "builtins" else f"{module}:{kind.__qualname__}"
        try:
            said = str(value)
        except Exception:
            said = "<its text cannot be made>"
        short = " ".join(f"{name}: {said}".split())[:SHORT_TEXT]
        if index is not None:
            short += f", at sample {index}"
        story = _without_middle("".join(traceback.format_exception(kind, value, trace)))
        return short, (f"{where}\nCaught {name} in DataLoader worker process {self.worker}.\n"
                       f"Original {story}")


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:
        return None


def _convert(sample: Any) -> Any:
    if "torch" in sys.modules:
        from torch.utils.data._utils.collate import default_convert
        return default_convert(sample)
    return sample


def resolve(name: str) -> Any:
    """What "package.module:callable" names; ImportError or AttributeError with the remedy."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise ValueError(f"object: {name!r} is not of the form package.module:callable")
    value: Any = importlib.import_module(module)
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _is_iterable(dataset: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dataset, torch.utils.data.Dataset):
        return isinstance(dataset, torch.utils.data.IterableDataset)
    return not hasattr(dataset, "__getitem__") and hasattr(dataset, "__iter__")


def _one_thread() -> None:
    if "torch" in sys.modules:
        import torch
        torch.set_num_threads(1)


def _seed_by_steps(source: Source, seed: int) -> None:
    """The loader was opened by a spec with this seed."""
    own = _seeds.seed_all(_seeds.epoch_base(seed, 0), source.worker)
    _info.set_worker_info(source.worker, source.workers, own, source.dataset)
    source.reseed = _seeds.seed_step


def _open_named(worker: int, workers: int, seed: int, name: str, args: Any) -> Source:
    make = resolve(name)
    # What is drawn while the dataset is made is the same in all workers: they make the same one.
    _seeds.seed_all(_seeds.epoch_base(seed, 0), 0)
    if isinstance(args, dict):
        dataset = make(**args)
    elif isinstance(args, (list, tuple)):
        dataset = make(*args)
    elif args is None:
        dataset = make() if callable(make) else make
    else:
        raise TypeError(f"args: {args!r} is neither a mapping of keyword arguments nor a list")
    source = Source(worker, workers, dataset, _is_iterable(dataset))
    if source.iterable:
        source.keeper = _states.Keeper(dataset)
    _one_thread()
    _seed_by_steps(source, seed)
    return source


def _save_states(source: Source, states: dict) -> None:
    """Each batch takes the dataset's state along."""
    saver = _dataset_state.Saver(source.worker, source.dataset, states["states"].get(source.worker),
                                 finished=states["finished"], drop_last=states["drop_last"])
    source.collate = saver.with_state(source.collate or source.default_collate)
    source.convert = saver.with_state(source.convert)
    source.saver = saver


class Job:
    """What the workers of a DataLoader do.

    collate: collate_fn, which makes batches if batched. init: worker_init_fn or None. base_seed:
    of the first epoch; the generators run on from there. states: as _dataset_state.to_send() says, or None.
    native: what is known of the dataset is done in C. pictures: how its pictures are, too
    (_native.pictures_of()), and stages of a pipeline; None: they are not. pads: batches are padded at once,
    if the dataset is known. lazy: pictures that the dataset's own code opens are decoded by C (_lazy.py).
    by_steps: each step is seeded by itself, whichever worker makes it.
    """

    def __init__(self, dataset: Any, iterable: bool, collate: Callable,
                 init: Callable[[int], None] | None, base_seed: int, states: dict | None, *,
                 batched: bool = True, native: bool = False, pictures: Any = None, pads: bool = False,
                 lazy: bool = False, by_steps: bool = False) -> None:
        self.dataset = dataset
        self.iterable = iterable
        self.collate = collate
        self.batched = batched
        self.init = init
        self.base_seed = base_seed
        self.states = states
        self.native = native
        self.pictures = pictures
        self.pads = pads
        self.lazy = lazy
        self.by_steps = by_steps
        self.columns = self._lower()
        self.padded = self._pad()
        self.numbered = self._number()
        self.known = self._with_pictures(True) if init is None else None
        if self.has_lazy_texts():
            from . import _lazy_texts  # noqa: F401  here once, not by each worker of each epoch

    def __getstate__(self) -> dict[str, Any]:
        """Without the columns: they may be as large as the files that the dataset is pickled by."""
        return {**vars(self), "columns": None, "padded": None, "numbered": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.columns = self._lower()
        self.padded = self._pad()
        self.numbered = self._number()

    def knows_collate(self) -> bool:
        """Whether C makes its batches of samples: the rules are PyTorch's, as of now."""
        from . import _rules
        return self.batched and _rules.why_not(self.collate) is None

    def _lower(self, in_worker: bool = False) -> Any:
        """What init() changes in a worker is not known before."""
        from . import _native
        if not self.native or self.iterable or (self.init is not None and not in_worker):
            return None
        try:
            return _native.lower(self.dataset, self.collate)
        except _native.Unknown:
            return None

    def _pad(self, in_worker: bool = False) -> Any:
        from . import _native
        if not self.pads or (self.init is not None and not in_worker):
            return None
        return _native.padded(self.dataset, self.collate)

    def _number(self, in_worker: bool = False) -> Any:
        from . import _native
        if not self.native or not self.iterable or (self.init is not None and not in_worker):
            return None
        if not self.knows_collate():
            return None
        return _native.numbered(self.dataset)

    def numbered_in_worker(self) -> Any:
        """After init(): what stands for an iterable dataset, and gives numbers of samples; None: nothing does."""
        return self._number(True) if self.init is not None else self.numbered

    def padded_in_worker(self) -> Any:
        """After init(): (dataset, collate) that stand for the two; None: nothing does."""
        return self._pad(True) if self.init is not None else self.padded

    def _with_pictures(self, shared: bool) -> Any:
        from . import _native
        if self.pictures is None or self.columns is not None:
            return self.dataset
        return _native.with_pictures(self.dataset, self.pictures, shared)

    def may_open_pictures(self) -> bool:
        """Whether Pillow may open some for its code, of which C may do the work."""
        if not self.lazy or self.columns is not None or "PIL.Image" not in sys.modules:
            return False
        from . import _versions
        return not _versions.not_compared("PIL")

    def has_lazy_texts(self) -> bool:
        """Whether C makes tokens of those that transformers is called with."""
        return self.lazy and self.columns is None and "transformers.tokenization_utils_base" in sys.modules

    def dataset_in_worker(self) -> Any:
        """After init(): what gives its samples."""
        return self.known if self.init is None else self._with_pictures(False)

    def columns_in_worker(self) -> Any:
        """After init()."""
        return self._lower(True) if self.init is not None else self.columns


def _install_with_first_picture() -> None:
    """_lazy.install(), which takes its time, once PIL.Image.open() is called."""
    image: Any = sys.modules["PIL.Image"]
    opener = image.open

    @functools.wraps(opener)
    def opened(*args: Any, **options: Any) -> Any:
        nonlocal opener
        if image.open is opened:
            image.open = opener
            from . import _lazy
            _lazy.install()
            opener = image.open
        return opener(*args, **options)

    image.open = opened


def open_job(job: Job, worker: int, workers: int) -> Source:
    """Makes worker `worker` of `workers` in a host that has the dataset.

    What fails on the way is told by the first batch, as PyTorch's workers do.
    """
    _info.set_worker_info(worker, workers, None, None)
    states = job.states
    place = worker if states is None else (worker + states["turn"]) % workers
    source = Source(place, workers, job.dataset, job.iterable)
    source.collate = source.convert = source.default_collate = job.collate  # type: ignore[method-assign]
    source.layouts = True
    if job.by_steps:
        source.reseed = _seeds.seed_step
    if states is None and source.iterable:
        # Its iterators may know their place, which shows when there is one.
        source.keeper = _states.Keeper(source.dataset)
    _one_thread()
    own = _seeds.seed_all(job.base_seed, place)
    _info.set_worker_info(place, workers, own, source.dataset)
    try:
        if job.init is not None:
            job.init(place)
        if job.knows_collate():
            source.collate = None
        if states is not None:
            _save_states(source, states)
            if job.by_steps:
                source.keeper = source.saver if source.iterable else _dataset_state.Carrier(source.dataset)
        else:
            source.columns = job.columns_in_worker()
            source.dataset = job.dataset_in_worker()
            if source.keeper is not None and source.dataset is not job.dataset:
                source.keeper = _states.Keeper(source.dataset)
            padded = job.padded_in_worker()
            if padded is not None:
                source.dataset, source.collate = padded
            numbered = job.numbered_in_worker()
            if numbered is not None and numbered.opens():
                source.dataset, source.files = numbered, numbered.files
                source.keeper = _states.Keeper(numbered) if _states.knows(numbered) else None
        if job.may_open_pictures():
            # What is known of the dataset is, by now: its functions have to be the library's own.
            _install_with_first_picture()
        if job.has_lazy_texts():
            from . import _lazy_texts
            _lazy_texts.install()
    except Exception as error:
        source.dataset, source.saver, source.keeper = _Broken(error), None, None
    return source


def open_named(worker: int, workers: int, seed: int, name: str, args: Any,
               collate_name: str | None, has_collate: bool) -> Source:
    """Makes worker `worker` of `workers` of the dataset that `name`, "module:callable", makes of args.

    collate_name: "module:callable", or None. has_collate: the spec has collate.kind python; without,
    collate is None. Raises whatever the import of a named object raises.
    """
    _info.set_worker_info(worker, workers, None, None)
    source = _open_named(worker, workers, seed, name, args)
    if collate_name:
        source.collate = source.convert = resolve(collate_name)
    elif not has_collate:
        source.collate = None
    return source


def _own_place(trace: Any) -> str | None:
    """Where the user's code begins, whatever it calls; None: it was not reached."""
    ours = {os.path.dirname(file) for file in (__file__, importlib.__file__)}
    for frame in traceback.extract_tb(trace):
        if not frame.filename.startswith("<") and os.path.dirname(frame.filename) not in ours:
            return f"{frame.filename}:{frame.lineno}"
    return None


def open_named_telling(*args: Any) -> Source:
    """As open_named(), for the host: an error's text says which line of the user's it came from,
    as no traceback goes with the refusal of a loader.
    """
    try:
        return open_named(*args)
    except Exception as error:
        place = _own_place(error.__traceback__)
        if place is None:
            raise
        base = MemoryError if isinstance(error, MemoryError) else Exception
        raise type(type(error).__name__, (base,), {})(f"{error}, at {place}") from error
