"""Lowering: datasets that are known so well that C makes their batches without calling them.

A dataset is known by its exact type: a subclass, or a method that somebody has put in place of
PyTorch's, is not. Known are tensors and NumPy arrays in memory, TensorDataset, and Subset and
ConcatDataset of known ones; collate_fn must be PyTorch's default_collate. The batches are equal to
PyTorch's, and so are the errors: an index that is no sample goes to the dataset itself.

Datasets of pictures are another matter: C makes their samples, one by one (_native_pictures.py). Of
iterable ones, pipelines of webdataset are known, some of whose stages are C's (_native_webdataset.py),
those of streaming (_native_streaming.py) and litData (_native_litdata.py), and datasets' streams of Parquet files
(_native_tables.py).
"""

from __future__ import annotations

import itertools
import sys
from typing import Any, NamedTuple

import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset
from torch.utils.data import dataset as _theirs

from . import (
    _html,
    _native_datasets,
    _native_litdata,
    _native_padding,
    _native_pictures,
    _native_streaming,
    _native_tables,
    _native_webdataset,
    _rules,
)
from ._native_transforms import Unknown
from ._native_transforms import name_of as _name

# Kinds of NumPy's numbers that default_collate makes a tensor of the same type of, one by one.
_NUMBERS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")
# Keys of a batch from which on looking at the dataset takes less time than calling it.
MANY = 8
# What makes the samples of PyTorch's datasets.
_METHODS = ("__getitem__", "__getitems__", "__len__")


class Columns(NamedTuple):
    """A dataset whose samples are rows.

    parts: of each dataset that was joined, a tuple of its columns: tensors or arrays of as many
    rows. bare: a sample is a row of the only column, else a tuple of one of each. rows: the row of
    each sample, counted through all parts, an int64 tensor; None: sample i is row i. length: samples.
    keys: what each column is called, and a batch is a dict; None: it is a list. dtypes: what the columns
    become in a batch, PyTorch's types; None: they stay. spreads: of each column whether a batch has a list
    with a tensor for each element of its rows; None: none has. apart: why samples that are asked for one by
    one are others, which matters to a ConcatDataset; None: they are not.
    """

    parts: tuple
    bare: bool
    rows: Any
    length: int
    keys: Any = None
    dtypes: Any = None
    spreads: Any = None
    apart: str | None = None


# ---- is it what it seems to be ------------------------------------------------------------------

def _check_methods(dataset: Any) -> None:
    """Unknown: somebody has put other code in place of PyTorch's."""
    for name in _METHODS:
        method = getattr(type(dataset), name, None)
        code = getattr(method, "__code__", None)
        if method is not None and (code is None or code.co_filename != _theirs.__file__):
            raise Unknown(f"{_name(type(dataset))}.{name} is not PyTorch's own")
    if "__getitems__" in vars(dataset):
        raise Unknown(f"this {_name(type(dataset))} has a __getitems__ of its own")


def _check_collate(function: Any) -> None:
    why = _rules.changed_functions() if _native_datasets.is_collator(function) else _rules.why_not(function)
    if why is not None:
        raise Unknown(why)


# ---- columns ------------------------------------------------------------------------------------

def _check_tensor(tensor: Any, what: str) -> None:
    if type(tensor) is not torch.Tensor:
        raise Unknown(f"{what} is of type {_name(type(tensor))}, not a plain tensor")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        raise Unknown(f"{what} is not a dense tensor in the CPU's memory")
    if tensor.requires_grad:
        raise Unknown(f"{what} requires a gradient; detach() it")
    if tensor.dim() == 0 or tensor.numel() == 0:
        raise Unknown(f"{what} has no rows with elements")
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        raise Unknown(f"{what} is a view whose rows are not in order; use its contiguous()")


def _check_array(array: Any) -> None:
    what = f"the {_name(type(array))}"
    if array.ndim == 0 or array.size == 0:
        raise Unknown(f"{what} has no rows with elements")
    if not array.flags.c_contiguous:
        raise Unknown(f"{what} is a view whose rows are not in order; use numpy.ascontiguousarray()")
    if array.ndim == 1 and array.dtype.name not in _NUMBERS:
        raise Unknown(f"{what} has elements of type {array.dtype}")
    try:
        torch.from_numpy(array[:1].copy())
    except (TypeError, ValueError):
        raise Unknown(f"{what} has elements of type {array.dtype}, which PyTorch does not have") from None


def _tensors(dataset: Any) -> Columns:
    tensors = dataset.tensors
    if type(tensors) is not tuple or not tensors:
        raise Unknown("the TensorDataset has no tensors")
    for number, tensor in enumerate(tensors):
        _check_tensor(tensor, f"tensor {number} of the TensorDataset")
    lengths = {len(tensor) for tensor in tensors}
    if len(lengths) != 1:
        raise Unknown("the tensors of the TensorDataset have unequal lengths")
    return Columns((tensors,), False, None, lengths.pop())


def _schema(columns: Columns) -> tuple:
    part = columns.parts[0]
    shapes = [(type(column), column.dtype, tuple(column.shape[1:])) for column in part]
    return columns.bare, shapes, columns.keys, columns.dtypes, columns.spreads


def _integers(indices: Any) -> torch.Tensor:
    """Of a Subset."""
    if type(indices) is torch.Tensor and indices.dim() == 1 and indices.dtype == torch.int64:
        return indices.detach().clone()
    if type(indices) is range:
        return torch.arange(indices.start, indices.stop, indices.step)
    numpy = sys.modules.get("numpy")
    is_array = numpy is not None and type(indices) is numpy.ndarray and indices.ndim == 1
    if is_array and indices.dtype.name in ("int64", "int32"):
        return torch.from_numpy(indices.astype("int64"))
    if type(indices) in (list, tuple) and set(map(type, indices)) <= {int}:
        return torch.tensor(indices, dtype=torch.int64)
    raise Unknown(f"the indices of the Subset are {_name(type(indices))}, not integers")


def _subset(dataset: Any, collate: Any) -> Columns:
    whole = lower(dataset.dataset, collate)
    rows = _integers(dataset.indices)
    rows = torch.where(rows < 0, rows + whole.length, rows)
    if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= whole.length):
        raise Unknown("the Subset has indices beyond its dataset")
    return whole._replace(rows=rows if whole.rows is None else whole.rows[rows], length=len(rows))


def _concat(dataset: Any, collate: Any) -> Columns:
    found = [lower(one, collate) for one in dataset.datasets]
    if not found or any(_schema(one) != _schema(found[0]) for one in found):
        raise Unknown("the datasets of the ConcatDataset have samples of unequal types or shapes")
    for one in found:
        if one.apart:
            raise Unknown(one.apart)
    if dataset.cumulative_sizes != list(itertools.accumulate(one.length for one in found)):
        raise Unknown("the ConcatDataset's cumulative_sizes are not those of its datasets")
    parts = tuple(part for one in found for part in one.parts)
    length = dataset.cumulative_sizes[-1]
    if all(one.rows is None for one in found):
        return found[0]._replace(parts=parts, length=length)
    rows, before = [], 0
    for one in found:
        rows.append((torch.arange(one.length) if one.rows is None else one.rows) + before)
        before += sum(len(part[0]) for part in one.parts)
    return found[0]._replace(parts=parts, rows=torch.cat(rows), length=length)


def lower(dataset: Any, collate: Any = None) -> Columns:
    """The columns of a dataset that is known; Unknown: why it is not.

    collate: what makes its batches, if not default_collate: one that _check_collate() knows.
    """
    if collate is not None:
        _check_collate(collate)
        if _rules.is_default(collate):
            collate = None
    kind = type(dataset)
    if _native_datasets.is_dataset(kind):
        return _native_datasets.lower(dataset, collate)
    if kind in (Subset, ConcatDataset):
        _check_methods(dataset)
        return (_subset if kind is Subset else _concat)(dataset, collate)
    if collate is not None:
        raise Unknown(_rules.why_not(collate))
    if kind is torch.Tensor:
        _check_tensor(dataset, "the tensor")
        return Columns(((dataset,),), True, None, len(dataset))
    numpy = sys.modules.get("numpy")
    if numpy is not None and kind in (numpy.ndarray, numpy.memmap):
        _check_array(dataset)
        return Columns(((dataset,),), True, None, len(dataset))
    if kind is not TensorDataset:
        raise Unknown(f"{_name(kind)} is not one of the datasets that are known")
    _check_methods(dataset)
    return _tensors(dataset)


# ---- a loader -----------------------------------------------------------------------------------

# Packages whose iterable datasets read files that a kind of Loader reads as well.
_READ_BY = {"streaming": "mds", "webdataset": "tar", "datasets": "arrow or parquet", "litdata": "litdata"}


def _iterable_text(dataset: Any) -> str:
    """Why an iterable dataset is called: which samples a worker has, and in which order, is its own."""
    for kind in type(dataset).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in _READ_BY:
            return (f"the dataset is iterable: {package}'s {kind.__name__} divides and orders its samples "
                    f"itself; dloaderd.Loader reads such files in an order of its own, by kind: "
                    f"{_READ_BY[package]}; see formats.md")
    return "the dataset is iterable"


def _numbering(dataset: Any) -> Any:
    """The module that knows such an iterable dataset, of which C reads the samples by number; None: none does."""
    known = (_native_streaming, _native_tables, _native_litdata)
    return next((one for one in known if one.is_dataset(type(dataset))), None)


def _check_loader(loader: Any) -> None:
    if loader._is_iterable and _numbering(loader.dataset) is None:
        raise Unknown(_iterable_text(loader.dataset))
    _check_batches(loader)


def _check_batches(loader: Any) -> None:
    if not loader._auto_collation:
        raise Unknown("batch_size: None asks for single samples")
    _check_collate(loader.collate_fn)


def is_on(loader: Any) -> bool:
    """Whether the loader's dataset may be lowered, if it is known."""
    if loader._options.native == "off":
        return False
    try:
        _check_loader(loader)
    except Unknown:
        return False
    return True


def numbered(dataset: Any) -> Any:
    """What stands for an iterable dataset in a worker, and gives numbers of samples whose files C reads; None:
    nothing does.
    """
    known = _numbering(dataset)
    try:
        return None if known is None else known.Numbers(dataset, known.lower(dataset))
    except Unknown:
        return None


def remote_of(loader: Any) -> str | None:
    """A URL that its workers read by the daemon's fetcher; None: there is none."""
    if loader._options.native == "off" or loader.num_workers == 0 or not loader._is_iterable:
        return None
    known = _numbering(loader.dataset)
    try:
        if known is not None:
            return known.lower(loader.dataset).url
        if _is_pipeline(loader):
            return _native_webdataset.remote_of(loader.dataset, _how(loader))
    except Unknown:
        return None
    return None


def gives_numbers(loader: Any) -> bool:
    """Whether its workers ask the dataset for no samples, but for numbers of them."""
    if not is_on(loader) or not loader._is_iterable:
        return False
    try:
        _lower_numbered(loader)
    except Unknown:
        return False
    return True


def _lower_numbered(loader: Any) -> None:
    if loader.num_workers == 0:
        raise Unknown("num_workers=0: without workers, it is called")
    _numbering(loader.dataset).lower(loader.dataset)


def pads(loader: Any) -> bool:
    """Whether its batches may be padded at once (_native_padding), if its dataset is known."""
    return loader._options.native != "off" and loader.num_workers > 0 and not loader._is_iterable and \
        loader._auto_collation and _native_padding.is_collator(loader.collate_fn)


def padded(dataset: Any, collate: Any) -> tuple[Any, Any] | None:
    """What stands for the two in a worker; None: nothing does."""
    try:
        return _native_padding.lower(dataset, collate)
    except Unknown:
        return None


def pictures_of(loader: Any) -> _native_pictures.How | None:
    """How C may make the pictures of its samples; None: it may not."""
    if loader._options.native == "off" or (loader._is_iterable and not _is_pipeline(loader)):
        return None
    return _how(loader)


def _is_pipeline(loader: Any) -> bool:
    """Whether its dataset is a pipeline of webdataset's, of which some stages may be C's."""
    return loader._is_iterable and _native_webdataset.is_pipeline(loader.dataset)


def _how(loader: Any) -> _native_pictures.How:
    bare = loader._auto_collation and _rules.why_not(loader.collate_fn) is None
    keeps = loader._options.cache and loader.num_workers > 0
    files = _native_pictures.files_of(loader.dataset) if keeps else 0
    return _native_pictures.How(bare, loader._options.fast, files)


def kept_root(loader: Any) -> str | None:
    """The folder whose pictures its workers keep decoded; None: they keep none. Of which one its own code opens them
    is not known before: "/".
    """
    how = pictures_of(loader)
    if how is None:
        return None
    try:
        if _native_pictures.has_pictures(loader.dataset):
            _native_pictures.lower(loader.dataset, how)
            return _native_pictures.root_of(loader.dataset) if how.files else None
    except Unknown:
        pass
    return "/" if _opens_pictures(loader) else None


def _opens_pictures(loader: Any) -> bool:
    """Whether the dataset's code is called, and C decodes what that opens."""
    from . import _own_class
    return "PIL.Image" in sys.modules and not loader._is_iterable and _own_class.why_not(loader) is None and \
        _why_not(lower, loader.dataset, loader.collate_fn) is not None


def with_pictures(dataset: Any, how: _native_pictures.How, shared: bool) -> Any:
    """What gives the same samples, their pictures made by C where these are known. shared: by processes
    that are forked from this one.
    """
    if _native_webdataset.is_pipeline(dataset):
        try:
            return _native_webdataset.lower(dataset, how).dataset
        except Unknown:
            return dataset
    try:
        copy = _native_pictures.lower(dataset, how).dataset
    except Unknown:
        return dataset
    if shared:
        _native_pictures.share(copy, dataset)
    return copy


def require(loader: Any) -> None:
    """ValueError: not all of it is known; the text says what is not."""
    try:
        if pads(loader):
            _native_padding.lower(loader.dataset, loader.collate_fn)
            return
        if _is_pipeline(loader):
            _check_pipeline(loader)
            return
        _check_loader(loader)
        _check_samples(loader)
    except Unknown as why:
        raise ValueError(f"native='require': {why}; see dloaderd.explain(), or use native='auto'") from None


def _check_pipeline(loader: Any) -> None:
    why = _native_webdataset.lower(loader.dataset, _how(loader)).why
    if why:
        raise Unknown(why)
    _check_batches(loader)


def _check_samples(loader: Any) -> None:
    if loader._is_iterable:
        _lower_numbered(loader)
        return
    if not _native_pictures.has_pictures(loader.dataset):
        lower(loader.dataset, loader.collate_fn)
        return
    why = _native_pictures.lower(loader.dataset, _how(loader)).why
    if why:
        raise Unknown(why)


def takes(loader: Any) -> bool:
    """Whether take() may make the loader's batches. What a Subset or a ConcatDataset joins may be
    changed between two of them, which would have to be looked at each time.
    """
    return is_on(loader) and not loader._is_iterable and type(loader.dataset) not in (Subset, ConcatDataset)


def take(dataset: Any, keys: Any, collate: Any = None) -> Any:
    """The batch of these keys, in this process; None: the dataset has to be called."""
    if len(keys) < MANY or set(map(type, keys)) != {int}:
        return None
    try:
        columns = lower(dataset, collate)
    except Unknown:
        return None
    rows = torch.tensor(keys)
    rows = torch.where(rows < 0, rows + columns.length, rows)
    if int(rows.min()) < 0 or int(rows.max()) >= columns.length:
        return None
    if columns.keys is not None:
        return _native_datasets.take(columns, rows)
    batch = [torch.index_select(column, 0, rows) if type(column) is torch.Tensor else
             torch.from_numpy(column.take(rows.numpy(), 0)) for column in columns.parts[0]]
    return batch[0] if columns.bare else batch


# What explain() says to what is not all native.
_REMEDY = ("a tensor, an array, a TensorDataset or a datasets.Dataset, torchvision's pictures with its "
           "transforms, or Subset or ConcatDataset of such, or a pipeline of webdataset's, streaming's or "
           "litData's StreamingDataset or datasets' stream of Parquet files, in batches of PyTorch's "
           "default_collate; "
           "what-runs-native.md lists them")


# ---- for people ---------------------------------------------------------------------------------

def _kind_text(dataset: Any) -> str:
    inner = getattr(dataset, "datasets", [getattr(dataset, "dataset", None)])
    kinds = list(dict.fromkeys(_kind_text(one) for one in inner if one is not None))
    name = type(dataset).__name__
    return f"{name} of {', '.join(kinds)}" if type(dataset) in (Subset, ConcatDataset) else name


def _why_not(check: Any, *arguments: Any) -> str | None:
    try:
        check(*arguments)
    except Unknown as why:
        return str(why)
    return None


def _why_not_native(loader: Any) -> str | None:
    if loader._options.native == "off":
        return "native='off'"
    if loader._is_iterable and not _is_pipeline(loader):
        is_known = _numbering(loader.dataset) is not None
        return _why_not(_lower_numbered, loader) if is_known else _iterable_text(loader.dataset)
    if loader.num_workers == 0 and type(loader.dataset) in (Subset, ConcatDataset) and not \
            _native_pictures.has_pictures(loader.dataset):
        return "num_workers=0: without workers, these are called"
    return None


def _cache_stages(loader: Any) -> list[_native_pictures.Stage]:
    """Of a cache that is not used: why not."""
    if not loader._options.cache or kept_root(loader) is not None:
        return []
    why = "num_workers=0: there are no workers to share with" if loader.num_workers == 0 else \
        "no pictures of files are decoded in C"
    return [_native_pictures.Stage("cache", "nothing is kept", why)]


def _stages(loader: Any) -> tuple[list[_native_pictures.Stage], bool]:
    """What explain() prints, and whether there is something that could run in C."""
    collate = getattr(loader.collate_fn, "__name__", type(loader.collate_fn).__name__)
    off = _why_not_native(loader)
    stage = _native_pictures.Stage
    if off is None and _is_pipeline(loader):
        return _pipeline_stages(loader, collate)
    if off is None and not loader._is_iterable and _native_pictures.has_pictures(loader.dataset):
        try:
            found = _native_pictures.lower(loader.dataset, _how(loader))
            batches = _why_not(_check_loader, loader)
            return [*found.stages, *_cache_stages(loader), stage("batches", collate, batches)], \
                bool(found.why or batches)
        except Unknown as why:
            off = str(why)
    if off is None and pads(loader):
        unpadded = _why_not(_native_padding.lower, loader.dataset, loader.collate_fn)
        return [stage("samples", _kind_text(loader.dataset), unpadded), *_cache_stages(loader),
                stage("batches", f"{type(loader.collate_fn).__name__}, padded by NumPy", unpadded)], bool(unpadded)
    if off is None and loader._is_iterable:
        batches = _why_not(_check_loader, loader)
        return [stage("order", _kind_text(loader.dataset), "its own code, once an epoch"),
                stage("samples", _numbering(loader.dataset).text_of(loader.dataset), batches),
                stage("batches", collate, batches)], bool(batches)
    samples = off or _why_not(lower, loader.dataset, loader.collate_fn)
    batches = off or samples or _why_not(_check_loader, loader)
    from . import _own_class
    own = _own_class.stages(loader) if samples and off != "native='off'" else []
    return [stage("samples", _kind_text(loader.dataset), samples or batches), *own, *_cache_stages(loader),
            stage("batches", collate, batches)], bool(batches)


def _pipeline_stages(loader: Any, collate: str) -> tuple[list[_native_pictures.Stage], bool]:
    batches = _why_not(_check_batches, loader)
    try:
        found = _native_webdataset.lower(loader.dataset, _how(loader))
        stages, why = found.stages, found.why
        if loader.num_workers == 0:
            unread = "num_workers=0: no daemon reads URLs for this process"
            stages = [stage._replace(why=unread) if stage.name == "shards" else stage for stage in stages]
    except Unknown as error:
        why = str(error)
        stages = [_native_pictures.Stage("samples", _kind_text(loader.dataset), why)]
    return [*stages, *_cache_stages(loader), _native_pictures.Stage("batches", collate, batches)], \
        bool(why or batches)


def _spec_stages(loader: Any) -> list[_native_pictures.Stage]:
    """Of a Loader."""
    from . import _worker  # type: ignore[attr-defined]
    stage = _native_pictures.Stage
    spec = _worker.read_spec(loader.spec)
    kind = spec["dataset"]["kind"]
    return [stage("samples", f"kind {kind}", "its own code" if kind == "python" else None),
            *(stage("conversations", path if why is None else f"{path}, by jinja2", why)
              for path, why in _worker.chat_templates(loader.spec, loader._spec.base)),
            stage("batches", f"collate {spec.get('collate', {}).get('kind', 'default')}", None)]


def explain(loader: Any, file: Any = None) -> None:
    """Prints, stage by stage, which of a DataLoader's or a Loader's work C does, which Python does, and why;
    in a notebook it shows a table.

    Once workers have made batches, it also tells how much of a sample's time remains Python, and of which
    functions: for their names, another process, started as the workers are, makes samples for half a second.

    file: where to print, instead of sys.stdout.
    """
    from . import _measured
    explained(loader, _measured.rows_of(loader) if hasattr(loader, "_options") else None).tell(file)


def explained(loader: Any, measured: list[tuple[str, str, str, str]] | None = None) -> _html.Shown:
    """What explain() tells, as text and as HTML. measured: further rows."""
    stages, more = _stages(loader) if hasattr(loader, "_options") else (_spec_stages(loader), False)
    rows = [(stage, "Python" if why else "C", what, why or "") for stage, what, why in stages] + (measured or [])
    width = 2 + max(len(row[0]) for row in rows)
    lines = [f"{stage:<{width}}{by:<8}{what}{f'  ({why})' if why else ''}" for stage, by, what, why in rows]
    remedy = f"to run in C: {_REMEDY}" if more and loader._options.native != "off" else ""
    text = "\n".join([*lines, remedy] if remedy else lines)
    return _html.Shown(text, _html.table(("stage", "by", "what", "why"), rows, remedy))
