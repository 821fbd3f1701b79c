"""For `./dev compat`: whether C makes the samples of each known package's datasets, with what is installed here.

Prints a JSON line each: [the package, whether its version is in _versions.py, "C" or "Python", why].
"""

import contextlib
import importlib
import json
import os
import sys
import tempfile
import warnings

import torch
from torch.utils.data import TensorDataset

from dloaderd import DataLoader, _native, _versions


def picture_folder(root):
    from PIL import Image
    os.makedirs(f"{root}/pictures/a")
    Image.effect_mandelbrot((90, 60), (-2, -1.5, 1, 1.5), 90).convert("RGB").save(f"{root}/pictures/a/0.jpg")
    return f"{root}/pictures"


def pictures(root, generation):
    from torchvision import datasets
    t = importlib.import_module(generation)
    last = [t.ToTensor()] if generation.endswith("transforms") else [t.ToImage(), t.ToDtype(torch.float32, scale=True)]
    steps = [t.RandomResizedCrop(48), t.RandomHorizontalFlip(), *last, t.Normalize((0.5,) * 3, (0.2,) * 3)]
    return datasets.ImageFolder(picture_folder(root), t.Compose(steps))


def rows(root):
    import datasets
    return datasets.Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]}).with_format("torch")


def padded(root):
    import datasets
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast
    words = WordLevel({"[PAD]": 0, "a": 1}, "[PAD]")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), pad_token="[PAD]")
    lines = datasets.Dataset.from_dict({"input_ids": [[1], [1, 1]], "attention_mask": [[1], [1, 1]]})
    return lines, DataCollatorWithPadding(tokenizer)


def shards(root):
    import webdataset
    with webdataset.TarWriter(f"{root}/s-0.tar") as tar:
        for number in range(4):
            tar.write({"__key__": f"k{number}", "txt": f"text {number}", "cls": number})
    return webdataset.WebDataset(f"{root}/s-0.tar", shardshuffle=False).decode().to_tuple("txt", "cls")


def streamed(root):
    import streaming
    with streaming.MDSWriter(out=f"{root}/mds", columns={"id": "int"}) as writer:
        for number in range(4):
            writer.write({"id": number})
    return streaming.StreamingDataset(local=f"{root}/mds", batch_size=2)


def chunks(root):
    import litdata
    from litdata.streaming.writer import BinaryWriter
    writer = BinaryWriter(f"{root}/lit", chunk_size=2)
    for number in range(4):
        writer[number] = {"id": number}
    writer.done()
    writer.merge(1)
    return litdata.StreamingDataset(f"{root}/lit")


SAMPLES = {
    "torch": lambda root: TensorDataset(torch.randn(8, 3)),
    "torchvision": lambda root: pictures(root, "torchvision.transforms.v2"),
    "pillow": lambda root: pictures(root, "torchvision.transforms"),
    "datasets": rows,
    "transformers": padded,
    "webdataset": shards,
    "mosaicml-streaming": streamed,
    "litdata": chunks,
}


def look(make, root):
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        made = make(root)
        dataset, collate = made if isinstance(made, tuple) else (made, None)
        stages, _ = _native._stages(DataLoader(dataset, batch_size=2, num_workers=1, collate_fn=collate))
    whys = [why for stage, _, why in stages if why and stage != "order"]
    return ("Python", whys[0]) if whys else ("C", "")


def main():
    for package, (module, *_) in _versions.PACKAGES.items():
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            try:
                importlib.import_module(module)
                by = look(SAMPLES[package], folder) if package in SAMPLES else ("it trains", "")
            except Exception as error:
                by = "no sample", f"{type(error).__name__}: {error}"
            told = [package, _versions.is_compared(module), *by]
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
