"""Samples of 100 KiB from a store that is far away, bytes alone, 2 workers each: ours beside others, in turns.

    PYTHON remote.py --build BUILD [--delay MS] [--mbit N] [--samples N] [--shard N] [--rounds N] [--seconds N]
                     [ROW ...]

PYTHON has PyTorch, boto3 and pyarrow, and what the contenders of a row are: litdata, mosaicml-streaming,
s3torchconnector, webdataset; where one is missing the line says so. far_store.c is the store: each answer comes
--delay after its request, all together at --mbit a second. Each run is a process of its own that reads one epoch, or
what it can in --seconds, in an order of its own where the contender can; ours has a daemon of its own. No disk of ours
is filled: every byte comes from the store, once.

objects: a file a sample. mds, litdata, tar: shards of --shard samples, 64. parquet: row groups of as many, which come
in random order, rows of eight shuffled together.

Printed are medians: samples a second, from before the dataset is opened on; the share of the link from a second after
the first byte on, as long as data came; from before it is opened until it is, and from then to the first batch, in
delays of the store, of which so many are the time that the link takes for what was sent until then; requests a sample;
processor seconds of all processes a thousand samples. Then the bars, each with what was found: >= 0.9 of the link; >=
20 x PyTorch with boto3; >= 2 x the best other on objects, >= 1.2 x on shards; the first batch <= 4 delays after it is
open, besides what its bytes take. --delay 200 --mbit 200 has as much on its way as 20 ms and 2 Gbit/s, and needs a
tenth of the processors.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

import rates

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
BATCH, WORKERS, SAMPLE = 32, 2, 100 << 10
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}

# What gives `batches`. Paths are those of far_store's directory.
OURS = """
import dloaderd
spec = {"dataset": DATASET, "batch": {"size": BATCH}, "workers": {"count": WORKERS}, "seed": 1,
        "sampler": {"kind": "random"}}
loader = dloaderd.Loader(spec, as_="numpy")
ready()
batches = iter(loader)"""
TORCH = """
import torch
from torch.utils.data import DataLoader
def as_tensors(samples):
    return torch.stack([torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in samples])
keys = ["objects/" + name for name in names]
"""
BOTO = TORCH + """
import boto3
class Own(torch.utils.data.Dataset):
    client = None
    def __len__(self):
        return len(keys)
    def __getitem__(self, n):
        self.client = self.client or boto3.client("s3")
        return self.client.get_object(Bucket="bucket", Key=keys[n])["Body"].read()
ready()
batches = iter(DataLoader(Own(), batch_size=BATCH, shuffle=True, num_workers=WORKERS, collate_fn=as_tensors))"""
CONNECTOR = TORCH + """
import s3torchconnector as s3
data = s3.S3MapDataset.from_objects([f"s3://bucket/{key}" for key in keys], region="us-east-1", endpoint=endpoint,
                                    transform=lambda one: one.read(),
                                    s3client_config=s3.S3ClientConfig(force_path_style=True))
ready()
batches = iter(DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=WORKERS, collate_fn=as_tensors))"""
# What litData reads by takes no http:// unless told; a store elsewhere has https://.
ALLOWED = """
import litdata.streaming.downloader as downloader
downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"
"""
RAW = TORCH + ALLOWED + """
from litdata import StreamingRawDataset
data = StreamingRawDataset("s3://bucket/objects/c0", cache_dir=scratch)  # the endpoint is in the environment
ready()
batches = iter(DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=WORKERS, collate_fn=as_tensors))"""
LITDATA = ALLOWED + """
import litdata
data = litdata.StreamingDataset("s3://bucket/litdata", cache_dir=scratch, shuffle=True, storage_options=options,
                                max_cache_size="100GB")
ready()
batches = iter(litdata.StreamingDataLoader(data, batch_size=BATCH, num_workers=WORKERS,
                                           collate_fn=lambda some: some))"""
MOSAIC = """
import streaming
from torch.utils.data import DataLoader
data = streaming.StreamingDataset(remote="s3://bucket/mds", local=scratch, shuffle=True, batch_size=BATCH)
ready()
batches = iter(DataLoader(data, batch_size=BATCH, num_workers=WORKERS, collate_fn=lambda some: some))"""
WEBDATASET = """
import webdataset
from torch.utils.data import DataLoader
urls = [f"{endpoint}/bucket/tar/{n:05}.tar" for n in range(shards)]
data = webdataset.WebDataset(urls, shardshuffle=len(urls), workersplitter=webdataset.split_by_worker)
ready()
batches = iter(DataLoader(data.batched(BATCH, collation_fn=lambda some: some), batch_size=None, num_workers=WORKERS))"""

ROWS = {
    "objects": {"ours": OURS.replace("DATASET", '{"kind": "audiofolder", "paths": "s3://bucket/objects", '
                                     '"dtype": "int16", "frames": 51178, "channels": "mono"}'),
                "PyTorch, boto3": BOTO, "s3torchconnector": CONNECTOR, "litdata raw": RAW},
    "mds": {"ours": OURS.replace("DATASET", '{"kind": "mds", "paths": "s3://bucket/mds"}'), "mosaic": MOSAIC},
    "litdata": {"ours": OURS.replace("DATASET", '{"kind": "litdata", "paths": "s3://bucket/litdata"}'),
                "litdata": LITDATA},
    "tar": {"ours": OURS.replace("DATASET", '{"kind": "tar", "paths": "s3://bucket/tar/*.tar", "decode": False}')
            .replace("random", "sequential"),
            "webdataset": WEBDATASET},
    "parquet": {"ours": OURS.replace("DATASET", '{"kind": "parquet", "paths": "s3://bucket/parquet/*.parquet"}')
                .replace('"random"', '"random", "order": "native", "block": SHARD, "window": 8')},
}

PROGRAM = """
import ctypes, json, os, resource, sys, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what a daemon leaves is waited for here
def ready():
    global opened
    opened = time.perf_counter()
IMPORTS
begin = time.perf_counter()
CODE
first = None
taken = 0
for batch in batches:
    if not first:
        first = time.perf_counter()
        print("first", flush=True)
    taken += 1
    if time.perf_counter() - begin > SECONDS:
        break
end = time.perf_counter()
print(json.dumps({"open": opened - begin, "first": first - opened, "taken": taken * BATCH,
                  "rate": taken * BATCH / (end - begin)}), flush=True)
os._exit(0)  # some take long to end
"""


# ---- data ----------------------------------------------------------------------------------------


def samples_of(count):
    """(name, bytes), alike in size."""
    import media
    head = media.wav([0] * 51178, 1, 16000)[:44]
    assert len(head) + 2 * 51178 == SAMPLE
    for i in range(count):
        yield f"{i:06}", head + os.urandom(2 * 51178)


def make_objects(folder, count, shard):
    (folder / "c0").mkdir()
    for name, data in samples_of(count):
        (folder / "c0" / f"{name}.wav").write_bytes(data)


def make_mds(folder, count, shard):
    from streaming import MDSWriter
    with MDSWriter(out=str(folder), columns={"data": "bytes"}, size_limit=shard * (SAMPLE + 16)) as out:
        for _, data in samples_of(count):
            out.write({"data": data})


def make_litdata(folder, count, shard):
    from litdata.streaming.writer import BinaryWriter
    writer = BinaryWriter(str(folder), chunk_size=shard)
    for i, (_, data) in enumerate(samples_of(count)):
        writer[i] = data
    writer.done()
    writer.merge()


def make_tar(folder, count, shard):
    import io
    import tarfile
    for i, (name, data) in enumerate(samples_of(count)):
        if i % shard == 0:
            archive = tarfile.open(folder / f"{i // shard:05}.tar", "w", format=tarfile.USTAR_FORMAT)
        member = tarfile.TarInfo(f"{name}.bin")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
        if i % shard == shard - 1 or i == count - 1:
            archive.close()


def make_parquet(folder, count, shard):
    import pyarrow
    import pyarrow.parquet
    rows = [data for _, data in samples_of(count)]
    each = -(-count // 8 // shard) * shard
    for i in range(0, count, each):
        table = pyarrow.table({"data": pyarrow.array(rows[i:i + each], pyarrow.binary())})
        pyarrow.parquet.write_table(table, folder / f"{i // each:05}.parquet", compression="none",
                                    use_dictionary=False, row_group_size=shard)


MAKE = {"objects": make_objects, "mds": make_mds, "litdata": make_litdata, "tar": make_tar, "parquet": make_parquet}


# ---- runs ----------------------------------------------------------------------------------------


class Store:
    def __init__(self, build, folder, args):
        self.process = subprocess.Popen([build / "tests/bench/far_store", folder, str(args.delay), str(args.mbit)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().split()[1]}"

    def told(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def link_share(tenths, args):
    """From a second after the first tenth with data on, until the last one but one."""
    some = [i for i, sent in enumerate(tenths) if sent > SAMPLE]
    steady = tenths[some[0] + 10:some[-1]] if some else []
    return sum(steady) / len(steady) / (args.mbit * 12500) if len(steady) >= 10 else float("nan")


def run(row, contender, folder, store, args):
    """{figure: value} of a process of its own; or why there is none."""
    build = args.build.resolve()
    with tempfile.TemporaryDirectory(prefix="bench-remote-run-") as scratch:
        words = {"names": sorted(f"c0/{one.name}" for one in (folder / "objects/c0").glob("*")), "endpoint": store.url,
                 "options": {"endpoint_url": store.url}, "scratch": scratch, "BATCH": BATCH, "WORKERS": WORKERS,
                 "shards": -(-args.samples // args.shard), "SHARD": args.shard, "SECONDS": args.seconds}
        text = "".join(f"{name} = {value!r}\n" for name, value in words.items())
        code = ROWS[row][contender]
        imports = "\n".join(line for line in code.splitlines() if line.startswith(("import ", "from ")))
        (pathlib.Path(scratch) / "run.py").write_text(
            text + PROGRAM.replace("IMPORTS", imports).replace("CODE", code))
        with rates.daemon(build, pathlib.Path(scratch), {**os.environ, **KEYS, "AWS_ENDPOINT_URL": store.url}) \
                if contender == "ours" else open(os.devnull) as socket:
            env = {**os.environ, **KEYS, "AWS_ENDPOINT_URL": store.url, "S3_ENDPOINT_URL": store.url,
                   "OMP_NUM_THREADS": "1", "PYTHONPATH": str(build / "client/python"),
                   "DLOADER_SOCKET": str(socket) if contender == "ours" else ""}
            before = os.times()
            store.told()
            with open(pathlib.Path(scratch) / "said", "w+") as said, subprocess.Popen(
                    [sys.executable, "-W", "ignore", "run.py"], cwd=scratch, text=True, env=env,
                    stdout=subprocess.PIPE, stderr=said, start_new_session=True) as process:
                parts, found = [], None
                for line in process.stdout:
                    if line.startswith(("first", "{")):
                        parts.append(store.told())
                    if line.startswith("{"):
                        found = json.loads(line)
                        break
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # a worker may live on, and hold its output
                process.wait()
                said.seek(0)
                words = said.read().strip().splitlines()
        after = os.times()
    if not found:
        return ([line for line in words if "Error" in line] or words or ["ended early"])[-1]
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    # The tenth in which the first batch came is in both parts.
    tenths = parts[0]["tenths"][:-1] + [parts[0]["tenths"][-1] + parts[1]["tenths"][0], *parts[1]["tenths"][1:]]
    return {"rate": found["rate"], "link": link_share(tenths, args),
            "open": found["open"] * 1000 / args.delay, "first": found["first"] * 1000 / args.delay,
            "bytes": sum(parts[0]["tenths"]) / (args.mbit * 125) / args.delay,
            "requests": sum(part["requests"] for part in parts) / found["taken"],
            "spent": spent / found["taken"] * 1000}


def shown(runs, ours):
    failed = [one for one in runs if isinstance(one, str)]
    if failed:
        return f"none: {failed[-1]}"
    of = {key: statistics.median(one[key] for one in runs) for key in runs[0]}
    text = (f"{of['rate']:8.1f} samples/s  {of['link']:.2f} of the link  open after {of['open']:5.1f} delays, first "
            f"batch {of['first']:5.1f} later, {of['bytes']:5.1f} for bytes  "
            f"{of['requests']:.2f} requests and {of['spent']:.2f} s of processor a thousand")
    pairs = [(a, b) for a, b in zip(ours, runs) if isinstance(a, dict) and isinstance(b, dict)]
    if runs is not ours and pairs:
        text += f"  ours {statistics.median(a['rate'] / b['rate'] for a, b in pairs):.2f} x"
    return text


def median_of(runs, key):
    values = [one[key] for one in runs if isinstance(one, dict)]
    return statistics.median(values) if values else float("nan")


def times(ours, others):
    return statistics.median([a["rate"] / b["rate"] for a, b in zip(ours, others)
                              if isinstance(a, dict) and isinstance(b, dict)] or [float("nan")])


def print_bars(found):
    """`found`: of each row {contender: runs}."""
    def bar(what, value, least=None, most=None):
        good = value >= least if most is None else value <= most
        limit = f">= {least}" if most is None else f"<= {most}"
        word = "pass" if good else "none" if value != value else "FAIL"
        print(f"bar: {word}  {what}: {value:.2f}, {limit}", flush=True)

    for row, runs in found.items():
        ours, others = runs.get("ours", []), {one: some for one, some in runs.items() if one != "ours"}
        bar(f"{row}: share of the link", median_of(ours, "link"), least=0.9)
        bar(f"{row}: delays to the first batch, without those of its bytes",
            max(0, median_of(ours, "first") - median_of(ours, "bytes")), most=4)
        for one, some in others.items():
            bar(f"{row}: x {one}", times(ours, some),
                least=20 if one == "PyTorch, boto3" else 2 if row == "objects" else 1.2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--delay", type=int, default=20, metavar="MS")
    parser.add_argument("--mbit", type=int, default=2000)
    parser.add_argument("--samples", type=int, default=6000)
    parser.add_argument("--shard", type=int, default=64, help="samples of a shard, or rows of a row group")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20, help="for which a run reads at most")
    parser.add_argument("--only", default="", help="contenders that begin with this")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f} at the start", flush=True)
    found = {}
    with tempfile.TemporaryDirectory(prefix="bench-remote-") as name:
        folder = pathlib.Path(name)
        for row in args.rows or ROWS:
            (folder / row).mkdir()
            MAKE[row](folder / row, args.samples, args.shard)
            with Store(args.build, folder, args) as store:
                runs = {one: [] for one in ROWS[row] if one.startswith(args.only)}
                for _ in range(args.rounds):
                    for one, some in runs.items():
                        some.append(run(row, one, folder, store, args))
            found[row] = runs
            for one, some in runs.items():
                print(f"{row:8} {one:16} {shown(some, runs.get('ours', []))}", flush=True)
            shutil.rmtree(folder / row)
    print_bars(found)
    print(f"load {os.getloadavg()[0]:.2f} at the end", flush=True)


if __name__ == "__main__":
    main()
