"""What explain() says of a dataset whose code is called: what C does at that code's request (_lazy.py and the like)."""

from __future__ import annotations

import sys
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from . import _native_pictures, _native_transforms, _versions
from ._native_pictures import Stage
from ._native_transforms import Unknown


def why_not(loader: Any) -> str | None:
    """Why Pillow decodes what the dataset's code opens."""
    if loader.num_workers == 0:
        return "num_workers=0: in your own process Pillow stays as it is"
    others = _versions.not_compared("PIL")
    if others:
        return f"{others} has not been compared"
    from . import _lazy
    return _lazy.why_not()


def _leaves(dataset: Any) -> list:
    if type(dataset) is Subset:
        return _leaves(dataset.dataset)
    return [leaf for one in dataset.datasets for leaf in _leaves(one)] if type(dataset) is ConcatDataset else [dataset]


def _transform_stages(compose: Any) -> list[Stage]:
    from . import _lazy_transforms
    text = _native_pictures.text_of(list(compose.transforms))
    try:
        parts = _lazy_transforms.Plan(compose).parts
    except Unknown as why:
        return [Stage("transform", text, str(why))]
    return [Stage("transform", _native_pictures.text_of(part._items.known), None)
            if type(part) is _lazy_transforms.Part else
            Stage("transform", _native_pictures.text_of([part]), "it is called") for part in parts]


def _composes(dataset: Any) -> list:
    """Those among its attributes."""
    return [one for one in getattr(dataset, "__dict__", {}).values() if _native_transforms.is_compose(one)] \
        if "torchvision" in sys.modules else []


def _texts(loader: Any) -> list[Stage]:
    """Nothing where there are no tokenizers."""
    if "transformers.tokenization_utils_base" not in sys.modules:
        return []
    from . import _lazy_texts
    if not _lazy_texts._tokenizers():
        return []
    why = "num_workers=0: in your own process transformers stays as it is" if loader.num_workers == 0 else None
    return [Stage("texts", "that a fast tokenizer of transformers is called with", why)]


def stages(loader: Any) -> list[Stage]:
    return [*_pictures(loader), *_texts(loader)]


def _pictures(loader: Any) -> list[Stage]:
    """Nothing where Pillow is not even imported."""
    if "PIL.Image" not in sys.modules:
        return []
    why = why_not(loader)
    kept = "; kept decoded" if loader._options.cache and why is None else ""
    found = [Stage("pictures", f"JPEG files that its code opens by Pillow{kept}", why)]
    for leaf in _leaves(loader.dataset) if why is None else ():
        for compose in _composes(leaf):
            found += [stage for stage in _transform_stages(compose) if stage not in found]
    return found
