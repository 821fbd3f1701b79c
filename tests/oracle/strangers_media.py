"""Pictures, sound, archives and arrays, beside Pillow, soundfile, tarfile, h5py and NumPy. See strangers.py.

A part is a picture, a sound, a sample of a shard, or a dataset, by its name.
"""

import itertools
import os
import re
import tarfile
import tempfile

import numpy
from dloaderd import Loader

ROWS = 1000  # of a dataset are compared, the first ones


def load(dataset, batches=None, **keys):
    spec = {"dataset": dataset, "batch": {"size": 1}, "workers": {"count": 0}, "seed": 1, **keys}
    with Loader(spec, as_="numpy") as loader:
        return list(itertools.islice(loader, batches))


class Array:
    """Compared at once, and not number by number; `near`: up to a difference."""

    def __init__(self, values, near=0):
        self.values, self.near = numpy.asarray(values), near

    def differs_from(self, ours):
        mine, ours = self.values, ours.values
        if mine.shape != ours.shape or mine.dtype.newbyteorder("=") != ours.dtype:
            return True
        if self.near:
            return bool(numpy.abs(mine - ours).max(initial=0) > self.near)
        return not numpy.array_equal(mine, ours, equal_nan=mine.dtype.kind in "fc")

    def __repr__(self):
        return f"{self.values.dtype}{list(self.values.shape)} {self.values.ravel()[:6].tolist()}"


def folder_with(path, root):
    """A folder of one class, and of that file."""
    os.mkdir(os.path.join(root, "class"))
    os.symlink(os.path.abspath(path), os.path.join(root, "class", os.path.basename(path)))
    return root


# ---- pictures --------------------------------------------------------------------------------------

def picture(path):
    with tempfile.TemporaryDirectory() as root:
        [batch] = load({"kind": "imagefolder", "paths": folder_with(path, root)})
    return {"picture": Array(batch["image"][0])}


def pillows(path):
    from PIL import Image
    with Image.open(path) as image:
        image.load()
        if image.mode.startswith("I;16"):  # of which we have the upper 8 bits
            grey = (numpy.asarray(image).astype(numpy.uint16) >> 8).astype(numpy.uint8)
            return {"picture": Array(numpy.repeat(grey[:, :, None], 3, 2))}
        return {"picture": Array(image.convert("RGB"))}


# ---- sound -----------------------------------------------------------------------------------------

def sound(path):
    with tempfile.TemporaryDirectory() as root:
        [batch] = load({"kind": "audiofolder", "paths": folder_with(path, root), "channels": "keep"})
    return {"sound": Array(batch["audio"][0]), "rate": int(batch["sample_rate"][0])}


def soundfiles(path):
    import soundfile
    values, rate = soundfile.read(path, dtype="float32", always_2d=True)
    is_exact = soundfile.info(path).format not in ("OGG", "MP3")
    return {"sound": Array(values, 0 if is_exact else 1e-6), "rate": rate}


# ---- shards ----------------------------------------------------------------------------------------

def shard(path):
    samples = load({"kind": "tar", "paths": path, "decode": False}, collate={"kind": "none"})
    return {"samples": [{name: bytes(value) for name, value in sample.items() if name != "__key__"}
                        for [sample] in samples]}


def tarfiles(path):
    """Grouped as webdataset does it."""
    samples, key = [], None
    with tarfile.open(path) as tar:
        for member in tar:
            found = re.match(r"^((?:.*/|)[^.]+)[.]([^/]+)$", member.name)
            if not member.isreg() or not found:
                continue
            if found[1] != key:
                key = found[1]
                samples.append({})
            samples[-1][found[2].lower()] = tar.extractfile(member).read()
    return {"samples": samples}


# ---- arrays ----------------------------------------------------------------------------------------

def names_of(path):
    """Datasets, and the parts of compounds, that have rows."""
    import h5py
    found = []

    def take(name, thing):
        if isinstance(thing, h5py.Dataset) and thing.ndim:
            parts = thing.dtype.names
            found.extend([(name, part) for part in parts] if parts else [(name, None)])
    with h5py.File(path) as file:
        file.visititems(take)
    return found


def rows_of(values):
    """Numbers at once, texts one by one."""
    if len(values) and isinstance(values[0], (bytes, str)):
        return [text if isinstance(text, str) else text.decode() for text in values]
    return Array(values if len(values) else [])


def datasets(path):
    parts = {}
    for name, part in names_of(path):
        source = name if part is None else f"{name}/{part}"
        try:
            rows = load({"kind": "hdf5", "paths": path, "fields": {"x": source}}, ROWS)
            values = [value for row in rows for value in row["x"]]
            parts[source] = rows_of(values) if rows and isinstance(values[0], str) else Array(
                numpy.concatenate([row["x"] for row in rows]) if rows else [])
        except Exception as error:
            parts[source] = error
    return parts


def h5pys(path):
    import h5py
    parts = {}
    for name, part in names_of(path):
        with h5py.File(path) as file:
            try:
                values = file[name][:ROWS]
                values = values if part is None else values[part]
                parts[name if part is None else f"{name}/{part}"] = rows_of(values)
            except Exception as error:
                parts[name if part is None else f"{name}/{part}"] = error
    return parts


def array(path):
    rows = load({"kind": "npy", "paths": {"x": path}}, ROWS)
    return {"array": Array(numpy.concatenate([row["x"] for row in rows]) if rows else [])}


def numpys(path):
    values = numpy.load(path, allow_pickle=False)[:ROWS]
    return {"array": Array(values if len(values) else [])}


READERS = {
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff"), (picture, pillows)),
    **dict.fromkeys((".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3"), (sound, soundfiles)),
    **dict.fromkeys((".tar", ".tgz"), (shard, tarfiles)),
    **dict.fromkeys((".h5", ".hdf5", ".he5", ".mat", ".nc"), (datasets, h5pys)),
    ".npy": (array, numpys),
}
