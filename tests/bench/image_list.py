"""Millions of small files in class folders: how long a loader takes to start, and what its processes copy of the list.

    PYTHON image_list.py --build BUILD [--files N] [--folders N] [--read N] [--rounds N] [--directory DIR] [NAME ...]

PYTHON has PyTorch, torchvision and Pillow. The files are hard links of small pictures, made in a private directory of
DIR, once. Each contender is a program of its own with 2 workers, in turns: torchvision's ImageFolder with PyTorch's
DataLoader, and with only the import changed; and dloaderd.Loader with `kind: imagefolder`, which lists the folder
itself. Each run is repeated with a hundredth of the files. Printed are medians of

  listing   seconds until the list is there: of ImageFolder(), of one process with `workers: {count: 0}`, or of
            os.scandir() alone
  start     seconds from there to the first batch; of `kind: imagefolder`, beyond what one process took to list
  user      seconds of a processor of all its processes for that start
  a worker  memory that each worker has of its own (Private_* of smaps_rollup) behind `--read` samples, shuffled,
            beyond that with a hundredth of the files
  in all    PSS of the program and all its processes, likewise

Bars, with only the import changed: start below 1 s; what a worker has of its own does not grow with the number of
files. Of 2 million, at a load of 3 on two cores, one round: start 0.70 s, 0.50 s of a processor, of a listing of 3.3 s;
a worker copies 286 MiB with PyTorch, and with the import changed no more than of 20,000 files. With `kind: imagefolder`
it is 0.1 MiB: one worker lists, and all share 24 bytes a file (daemon/docs/performance.md).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WORKERS, BATCH, SMALLER = 2, 256, 100
LINKS = 60_000  # of one file; ext4 allows 65,000

SCANDIR = """
import json, os, sys, time
begin = time.perf_counter()
names = [sorted(entry.name for entry in os.scandir(folder))
         for folder in sorted(os.scandir("pictures"), key=lambda entry: entry.name)]
print(json.dumps({"listing": time.perf_counter() - begin}))
"""
# Of both classes: what a loader is, and what is asked of it.
PROGRAM = """
import json, os, resource, sys, time
import private_memory
MAKE

def used():
    return sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) + \\
        sum(map(ticks, private_memory.descendants({os.getpid()}) - {os.getpid()})) / os.sysconf("SC_CLK_TCK")

def ticks(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[11])
    except OSError:
        return 0

def is_daemon(pid):
    try:
        with open(f"/proc/{pid}/comm") as name:
            return name.read().strip() == "dloaderd"
    except OSError:
        return False

begin = time.perf_counter()
data = listed()
there, before = time.perf_counter(), used()
batches = iter(opened(data))
next(batches)
started, user = time.perf_counter() - there, used() - before
for _, _ in zip(range(READ // BATCH - 1), batches):
    pass
pids = private_memory.descendants({os.getpid()}) - {os.getpid()}
private = sorted(private_memory.private_of(pid) for pid in pids if not is_daemon(pid))
print(json.dumps({"listing": there - begin, "start": started, "user": user, "workers": private[-WORKERS:],
                  "all": private_memory.measure()["pss_bytes"]}), flush=True)
os._exit(0)
"""
TORCHVISION = """
import torch, torchvision
from torchvision.transforms import v2
from IMPORT import DataLoader
transform = v2.Compose([v2.Resize((8, 8)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])

def listed():
    return torchvision.datasets.ImageFolder("pictures", transform)

def opened(data):
    return DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=WORKERS)
"""
SPEC = """
import dloaderd

def loader(workers):
    return dloaderd.Loader({"name": f"list-{workers}", "seed": 1, "workers": {"count": workers},
                           "batch": {"size": BATCH}, "sampler": {"kind": "random"}, "dataset": {
                               "kind": "imagefolder", "paths": os.path.abspath("pictures"),
                               "transforms": [{"kind": "Resize", "size": [8, 8]}]}})

def listed():
    loader(0)

def opened(data):
    return loader(WORKERS)
"""
CONTENDERS = {
    "scandir": SCANDIR,
    "PyTorch": PROGRAM.replace("MAKE", TORCHVISION.replace("IMPORT", "torch.utils.data")),
    "import changed": PROGRAM.replace("MAKE", TORCHVISION.replace("IMPORT", "dloaderd")),
    "imagefolder": PROGRAM.replace("MAKE", SPEC),
}


def make(root, files, folders):
    """`files` names of small pictures, of JPEG, in `folders` class folders."""
    from PIL import Image
    first, links = None, LINKS
    for folder in range(folders):
        directory = root / f"n{folder:08d}"
        directory.mkdir(parents=True)
        for i in range(files // folders):
            name = directory / f"n{folder:08d}_{i}.JPEG"
            if links < LINKS:
                os.link(first, name)
                links += 1
            else:
                Image.new("RGB", (8, 8), (200, 10, 10)).save(name, "JPEG")
                first, links = name, 1


def environment(build):
    return {**os.environ, "PYTHONPATH": f"{HERE}:{build / 'client/python'}", "DLOADERD": str(build / "daemon/dloaderd"),
            "DLOADER_LOCAL_MODULE": str(build / "client/dlclient-local.so"),
            "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def run(contender, place, read, build):
    """What its program printed; place: a directory that has `pictures`."""
    text = CONTENDERS[contender]
    for word, value in (("WORKERS", WORKERS), ("BATCH", BATCH), ("READ", read)):
        text = text.replace(word, str(value))
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", text], cwd=place, text=True, env=environment(build),
                          capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{contender}: {done.stderr.strip() or done.returncode}")
    return json.loads(done.stdout)


def beyond(contender, large, small):
    """One round in figures: of the large list, and of memory what is beyond that of the small one."""
    if "start" not in large:
        return {"listing": large["listing"]}
    start = large["start"] - (large["listing"] if contender == "imagefolder" else 0)
    grown = [a - b for a, b in zip(large["workers"], small["workers"])]
    return {"listing": large["listing"], "start": start, "user": large["user"], "worker": max(grown),
            "all": large["all"] - small["all"]}


def line(name, rounds):
    """Medians of what beyond() gave."""
    got = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
    text = f"{name:16} listing {got['listing']:6.2f} s"
    if "start" in got:
        text += (f"   start {got['start']:6.2f} s, user {got['user']:6.2f} s"
                 f"   a worker {got['worker'] / 2**20:7.1f} MiB, in all {got['all'] / 2**20:7.1f} MiB")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--files", type=int, default=2_000_000)
    parser.add_argument("--folders", type=int, default=1000)
    parser.add_argument("--read", type=int, default=100_000, help="samples before memory is looked at")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=pathlib.Path, help="where the files are made; default: that of tempfile")
    parser.add_argument("contenders", nargs="*", metavar="CONTENDER", help=", ".join(CONTENDERS))
    args = parser.parse_args()
    names = args.contenders or list(CONTENDERS)
    print(f"load {os.getloadavg()[0]:.2f} at the start; {args.files} files")
    with tempfile.TemporaryDirectory(prefix="bench-list-", dir=args.directory) as directory:
        places = [pathlib.Path(directory) / size for size in ("large", "small")]
        make(places[0] / "pictures", args.files, args.folders)
        make(places[1] / "pictures", args.files // SMALLER, max(1, args.folders // SMALLER))
        rounds = {name: [] for name in names}
        for _ in range(args.rounds):
            for name in names:
                large, small = (run(name, place, args.read, args.build.resolve()) for place in places)
                rounds[name].append(beyond(name, large, small))
    for name in names:
        print(line(name, rounds[name]), flush=True)


if __name__ == "__main__":
    main()
