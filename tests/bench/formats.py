"""Formats that others write, beside their own readers: batches a second, 2 workers each.

    PYTHON formats.py --build BUILD [--seconds S] [--rounds N] [ROW ...]

PYTHON has NumPy, for photographs Pillow, for Parquet pyarrow, and for the others' side PyTorch and their
libraries (webdataset, mosaicml-streaming, litdata with polars, megatron-core, datasets, pandas, lmdb); where one is
missing its line says so.
`import changed`: their program, or `their loader`, with the DataLoader of dloaderd in place of PyTorch's.
Each row's data are made in a private directory. Runs take turns, and only ratios of neighbours mean
something.

Bars: indexed tar shuffled >= 0.95 of sequential and >= 2 x webdataset with Pillow; MDS >= 20 x
mosaic's reader; Megatron >= Megatron's; Arrow's token rows >= 50 x datasets; Parquet shuffled >= 0.8
of sequential and >= 10 x datasets; its texts >= 2 x litData's reader of Parquet.

Measured with two cores, on a quiet machine: Megatron 42 x, Parquet 1360 x and 1.04 of sequential, tar 1.01
of sequential, CSV 100 x, Arrow 17 x. Under load (8 to 12): MDS 144 x, litData 162 x, tar 6 x webdataset,
texts 12 x, LMDB 4.5 x; Arrow with rows of 512 tokens 23 to 33 x, of 128 34 to 67 x. Arrow's bar is not met,
and copying leaves no room for it: a batch is 1 MiB, and numpy.take() of as many rows takes 0.14 ms of a core by
itself, which on two is 27 x what datasets does in all.
"""

import argparse
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tarfile
import tempfile

import numpy
import photos
import rates

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import arrow_files  # noqa: E402
import media  # noqa: E402

WORKERS = 2

# What the others' program of a row begins with, in the folder of its data: `batches` is its iterator.
FOREVER = """
def forever(loader):
    while True:
        yield from loader

"""
PEERS = {
    "megatron": """
import numpy, torch
from megatron.core.datasets.indexed_dataset import IndexedDataset

class Samples(torch.utils.data.Dataset):
    '''What GPTDataset does for a sample: reads of the documents that it spans, joined, as int64.'''

    def __init__(self, length):
        self.documents, self.length = IndexedDataset('corpus'), length
        lengths = self.documents.sequence_lengths.astype(numpy.int64)
        self.ends = numpy.concatenate([[0], numpy.cumsum(lengths)])

    def __len__(self):
        return int(self.ends[-1] - 1) // self.length

    def __getitem__(self, index):
        begin, end = index * self.length, (index + 1) * self.length + 1
        first, last = numpy.searchsorted(self.ends, [begin, end - 1], 'right') - 1
        parts = []
        for d in range(first, last + 1):
            offset = max(begin - self.ends[d], 0)
            length = min(end, self.ends[d + 1]) - self.ends[d] - offset
            parts.append(self.documents.get(d, offset=int(offset), length=int(length)))
        tokens = torch.from_numpy(numpy.concatenate(parts).astype(numpy.int64))
        return {'tokens': tokens[:-1].contiguous(), 'labels': tokens[1:].contiguous()}

batches = forever(torch.utils.data.DataLoader(Samples(1024), batch_size=32, shuffle=True,
                                              num_workers=WORKERS, persistent_workers=True))
""",
    "mds": """
from streaming import StreamingDataset
from torch.utils.data import DataLoader
data = StreamingDataset(local='mds', shuffle=True, batch_size=256)
batches = forever(DataLoader(data, batch_size=256, num_workers=WORKERS, persistent_workers=True))
""",
    "litdata": """
import litdata
data = litdata.StreamingDataset('litdata', shuffle=True)
batches = forever(litdata.StreamingDataLoader(data, batch_size=256, num_workers=WORKERS,
                                              persistent_workers=True))
""",
    "arrow": """
import datasets, torch
data = datasets.load_from_disk('arrow').with_format('torch')
batches = forever(torch.utils.data.DataLoader(data, batch_size=64, shuffle=True, num_workers=WORKERS,
                                              persistent_workers=True))
""",
    "parquet": """
import datasets, torch
datasets.disable_progress_bars()
data = datasets.load_dataset('parquet', data_files='*.parquet', split='train', streaming=True)
data = data.shuffle(buffer_size=10000, seed=1).with_format('torch')
batches = iter(torch.utils.data.DataLoader(data, batch_size=1024, num_workers=WORKERS))
""",
    "text": """
import litdata
from litdata.streaming.item_loader import ParquetLoader
litdata.index_parquet_dataset('text')
data = litdata.StreamingDataset('text', item_loader=ParquetLoader(), shuffle=True)
del __file__  # else workers, which Polars wants to be spawned, would run this program, too
batches = forever(litdata.StreamingDataLoader(data, batch_size=256, num_workers=WORKERS,
                                              multiprocessing_context='spawn', persistent_workers=True))
""",
    "csv": """
import pandas, torch

class Rows(torch.utils.data.Dataset):
    def __init__(self, path):
        self.frame = pandas.read_csv(path)

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, index):
        return dict(self.frame.iloc[index])

batches = forever(torch.utils.data.DataLoader(Rows('table.csv'), batch_size=1024, shuffle=True,
                                              num_workers=WORKERS, persistent_workers=True))
""",
    "lmdb": """
import lmdb, torch

class Records(torch.utils.data.Dataset):
    '''An environment is opened in each worker: one that was forked with is of no use there.'''

    def __init__(self, path):
        self.path, self.transaction = path, None
        with lmdb.open(path, readonly=True, lock=False) as environment:
            self.length = environment.stat()['entries']

    def open(self, worker):
        environment = lmdb.open(self.path, readonly=True, lock=False, readahead=False)
        self.transaction = environment.begin(buffers=False)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.frombuffer(bytearray(self.transaction.get(b'%08d' % index)), dtype=torch.uint8)

def open_here(worker):
    torch.utils.data.get_worker_info().dataset.open(worker)

batches = forever(torch.utils.data.DataLoader(Records('lmdb'), batch_size=256, shuffle=True,
                                              num_workers=WORKERS, persistent_workers=True,
                                              worker_init_fn=open_here))
""",
    "tar": """
import random
import numpy, torch, webdataset
from PIL import Image

def crop(image):
    '''A random crop and a bilinear resize, by Pillow.'''
    width, height = image.size
    area, ratio = random.uniform(.08, 1) * width * height, random.uniform(.75, 4 / 3)
    w, h = min(width, int((area * ratio) ** .5)), min(height, int((area / ratio) ** .5))
    x, y = random.randrange(width - w + 1), random.randrange(height - h + 1)
    return torch.from_numpy(numpy.array(image.resize((224, 224), Image.BILINEAR,
                                                     box=(x, y, x + w, y + h))))

shards = ['t-%d.tar' % i for i in range(8)]
data = webdataset.WebDataset(shards, shardshuffle=8, workersplitter=webdataset.split_by_worker)
data = data.shuffle(500).decode('pil').to_tuple('jpg', 'cls').map_tuple(crop, int).repeat()
batches = iter(webdataset.WebLoader(data.batched(32), batch_size=None, num_workers=WORKERS))
""",
}
# Programs of which only the import changes: where DataLoader comes from.
CHANGED = {
    "mds": PEERS["mds"],
    "tar": """
import torch, webdataset
from torchvision.transforms import v2
from torch.utils.data import DataLoader

crop = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToImage(),
                   v2.ToDtype(torch.float32, scale=True)])
shards = ['t-%d.tar' % i for i in range(8)]
data = webdataset.WebDataset(shards, shardshuffle=8).shuffle(500).decode('pil')
data = data.to_tuple('jpg', 'cls').map_tuple(crop, None).repeat()
batches = iter(DataLoader(data, batch_size=32, num_workers=WORKERS))
""",
}
OURS = """
from dloaderd import Loader
batches = forever(Loader(SPEC, as_='numpy'))
"""
MEASURE = """
import time
next(batches)
begin, n = time.perf_counter(), 0
while time.perf_counter() - begin < SECONDS:
    next(batches)
    n += 1
print('rate', n / (time.perf_counter() - begin), flush=True)
import multiprocessing, os
for worker in multiprocessing.active_children():
    worker.kill()  # those that were spawned would live on, with the pipe that we are read from
os._exit(0)
"""


def make_megatron(folder):
    rng = numpy.random.default_rng(0)
    lengths = numpy.maximum(rng.lognormal(6, 1, 30_000).astype(numpy.int32), 8)
    rng.integers(50_000, size=int(lengths.sum()), dtype=numpy.uint16).tofile(folder / "corpus.bin")
    offsets = 2 * (numpy.cumsum(lengths, dtype=numpy.int64) - lengths)
    with open(folder / "corpus.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
        for array in (lengths, offsets, numpy.arange(len(lengths) + 1, dtype=numpy.int64)):
            file.write(array.tobytes())


def make_mds(folder, rows=40_000, width=3072, shards=2):
    rng = numpy.random.default_rng(0)
    (folder / "mds").mkdir()
    index, own = [], rows // shards
    for shard in range(shards):
        size = 8 + width
        table = numpy.arange(own + 1, dtype=numpy.uint32) * size + 4 * (own + 2)
        body = numpy.zeros((own, size), numpy.uint8)
        body[:, :width] = rng.integers(256, size=(own, width), dtype=numpy.uint8)
        body[:, width:] = numpy.arange(own).astype("<i8").view(numpy.uint8).reshape(own, 8)
        data = struct.pack("<I", own) + table.tobytes() + body.tobytes()
        name = f"shard.{shard:05}.mds"
        (folder / "mds" / name).write_bytes(data)
        index.append({"column_encodings": [f"ndarray:uint8:{width}", "int"], "column_names": ["x", "y"],
                      "column_sizes": [width, 8], "compression": None, "format": "mds", "hashes": [],
                      "raw_data": {"basename": name, "bytes": len(data), "hashes": {}}, "samples": own,
                      "size_limit": None, "version": 2, "zip_data": None})
    (folder / "mds" / "index.json").write_text(json.dumps({"shards": index, "version": 2}))


def make_litdata(folder, rows=40_000, width=3072, chunks=2):
    """What optimize() writes of {"x": tensor, "y": int}: rows of 3 KiB, of one dimension."""
    rng = numpy.random.default_rng(0)
    (folder / "litdata").mkdir()
    index, own = [], rows // chunks
    for chunk in range(chunks):
        data = media.litdata_chunk([media.litdata_item([rng.bytes(width), struct.pack("<q", i)]) for i in range(own)])
        name = f"chunk-0-{chunk}.bin"
        (folder / "litdata" / name).write_bytes(data)
        index.append((name, len(data), own, None))
    media.litdata_index(folder / "litdata", ["x", "y"], ["no_header_tensor:11", "int"], index)


def make_arrow(folder, rows=16_000, length=2048):
    """What Dataset.save_to_disk() writes: a column of lists of int64, a thousand rows a batch."""
    rng = numpy.random.default_rng(0)
    (folder / "arrow").mkdir()
    with open(folder / "arrow/data-00000-of-00001.arrow", "wb") as file:
        file.write(arrow_files.schema_message([("tokens", ("list", "int64"))], None))
        for _ in range(0, rows, 1000):
            file.write(arrow_files.batch_of_lists(rng.integers(50_000, size=(1000, length), dtype=numpy.int64)))
        file.write(struct.pack("<iI", -1, 0))
    (folder / "arrow/state.json").write_text(json.dumps({
        "_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "bench", "_format_columns": None,
        "_format_kwargs": {}, "_format_type": None, "_output_all_columns": False, "_split": None}))
    (folder / "arrow/dataset_info.json").write_text(json.dumps({
        "features": {"tokens": {"feature": {"dtype": "int64", "_type": "Value"}, "_type": "List"}}}))


def make_lmdb(folder, rows=20_000, width=3072):
    """Values of 3 KiB, by numbers as keys."""
    data = numpy.random.default_rng(0).bytes(rows * width)
    media.lmdb(folder / "lmdb", {b"%08d" % i: data[i * width:(i + 1) * width] for i in range(rows)})


def make_csv(folder, rows=100_000):
    """Eight columns of numbers, two of them whole."""
    rng = numpy.random.default_rng(0)
    columns = [rng.standard_normal(rows) for _ in range(6)] + [rng.integers(1000, size=rows) for _ in range(2)]
    with open(folder / "table.csv", "w") as file:
        file.write("a,b,c,d,e,f,i,j\n")
        file.writelines(",".join(f"{value:.6g}" for value in row) + "\n" for row in zip(*columns))


def make_tar(folder, count=800, shards=8):
    """Photographs, as photos.py makes them."""
    (folder / "photos").mkdir()
    photos.make(str(folder / "photos"), count)
    names = sorted((folder / "photos").glob("*/*.jpg"))
    random.Random(0).shuffle(names)
    for shard in range(shards):
        with tarfile.open(folder / f"t-{shard}.tar", "w") as tar:
            for i in range(shard, count, shards):
                for extension, data in (("jpg", names[i].read_bytes()), ("cls", b"%d" % (i % 10))):
                    info = tarfile.TarInfo(f"{i:06}.{extension}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))


def make_parquet(folder, files=4, rows=400_000, group=50_000):
    """Numbers: five columns of 8 bytes and five of 4, as pyarrow writes them by default."""
    import pyarrow
    import pyarrow.parquet
    rng = numpy.random.default_rng(0)
    for i in range(files):
        columns = {f"f{k}": rng.standard_normal(rows) for k in range(4)}
        columns |= {f"s{k}": rng.standard_normal(rows).astype(numpy.float32) for k in range(4)}
        columns |= {"id": numpy.arange(i * rows, (i + 1) * rows),
                    "label": rng.integers(10, size=rows, dtype=numpy.int32)}
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"{i}.parquet", row_group_size=group)


def make_text(folder, files=4, rows=20_000, group=5_000):
    """Texts of a hundred words or so, and their numbers."""
    import pyarrow
    import pyarrow.parquet
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(5_000)]
    (folder / "text").mkdir()
    for i in range(files):
        texts = [" ".join(rng.choices(words, k=rng.randint(50, 200))) for _ in range(rows)]
        pyarrow.parquet.write_table(pyarrow.table({"id": range(i * rows, (i + 1) * rows), "text": texts}),
                                    folder / f"text/{i}.parquet", row_group_size=group)


def parquet_spec(folder, **sampler):
    """Whose row groups are decoded in every epoch: the cache has room for some of them."""
    return spec({"kind": "parquet", "paths": f"{folder}/*.parquet", "cache": "48MiB"}, 1024, sampler=sampler)


def spec(dataset, batch, **keys):
    return {"dataset": dataset, "batch": {"size": batch}, "seed": 1, "workers": {"count": WORKERS},
            "sampler": {"kind": "random"}, **keys}


def tar_spec(folder, **keys):
    return spec({"kind": "tar", "paths": f"{folder}/t-{{0..7}}.tar", "index": "auto", "size": 224,
                 "transform": "random_crop", "fields": ["jpg", "cls"]}, 32, **keys)


# How its data are made, and our specs by what they measure.
ROWS = {
    "megatron": (make_megatron, lambda folder: {"ours": spec(
        {"kind": "megatron", "paths": f"{folder}/corpus", "view": "samples", "sequence_length": 1024}, 32)}),
    "mds": (make_mds, lambda folder: {"ours": spec({"kind": "mds", "paths": f"{folder}/mds"}, 256)}),
    "litdata": (make_litdata, lambda folder: {
        "ours": spec({"kind": "litdata", "paths": f"{folder}/litdata"}, 256)}),
    "arrow": (make_arrow, lambda folder: {"ours": spec({"kind": "arrow", "paths": f"{folder}/arrow"}, 64)}),
    "parquet": (make_parquet, lambda folder: {
        "ours": parquet_spec(folder, kind="random", order="native", block=50_000, window=8),
        "ours in order": parquet_spec(folder, kind="sequential")}),
    "text": (make_text, lambda folder: {
        "ours": spec({"kind": "parquet", "paths": f"{folder}/text/*.parquet"}, 256)}),
    "csv": (make_csv, lambda folder: {"ours": spec({"kind": "csv", "paths": f"{folder}/table.csv"}, 1024)}),
    "lmdb": (make_lmdb, lambda folder: {"ours": spec(
        {"kind": "lmdb", "paths": f"{folder}/lmdb", "fields": ["value"]}, 256)}),
    "tar": (make_tar, lambda folder: {
        "ours": tar_spec(folder), "ours in order": tar_spec(folder, sampler={"kind": "sequential"})}),
}


def rate(code, folder, seconds, **env):
    """Batches a second of a program of its own; or why there are none."""
    code = f"WORKERS, SECONDS = {WORKERS}, {seconds}\n{FOREVER}{code}{MEASURE}"
    (folder / "run.py").write_text(code)
    done = subprocess.run([sys.executable, "-W", "ignore", "run.py"], cwd=folder, text=True,
                          env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return rates.rate_of(done)


def our_rate(build, code, folder, seconds):
    """Beside a daemon of its own."""
    with rates.daemon(build, folder) as socket:
        return rate(code, folder, seconds, DLOADER_SOCKET=str(socket), PYTHONPATH=str(build / "client/python"))


def best(runs):
    """The best of several, or why there is none."""
    return max((run for run in runs if isinstance(run, float)), default=runs[-1])


def measure(row, build, folder, seconds, rounds):
    make, specs = ROWS[row]
    make(folder)
    contenders = {"theirs": lambda: rate(PEERS[row], folder, seconds)}
    for name, one in specs(folder).items():
        contenders[name] = lambda one=one: our_rate(build, f"SPEC = {one!r}\n{OURS}", folder, seconds)
    if row in CHANGED:
        theirs, changed = CHANGED[row], CHANGED[row].replace("from torch.utils.data", "from dloaderd")
        if theirs != PEERS[row]:
            contenders["their loader"] = lambda: rate(theirs, folder, seconds)
        contenders["import changed"] = lambda: our_rate(build, changed, folder, seconds)
    runs = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            runs[name].append(run())
    return {name: best(of) for name, of in runs.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f} at the start")
    for row in args.rows or ROWS:
        with tempfile.TemporaryDirectory(prefix="bench-formats-") as folder:
            found = measure(row, args.build.resolve(), pathlib.Path(folder), args.seconds, args.rounds)
        for name, value in found.items():
            shown = f"{value:.1f} batches/s" if isinstance(value, float) else f"none: {value}"
            print(f"{row:10} {name:14} {shown}", flush=True)


if __name__ == "__main__":
    main()
