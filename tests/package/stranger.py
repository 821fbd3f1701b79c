"""What somebody does with a wheel on a machine that has Python, pip and NumPy; told as JSON.

    stranger.py WHEEL DATA WORK [TORCH [PILLOW]]    DATA: folder of specs (*.yaml) and what they load;
                                                    WORK: a new folder; TORCH, PILLOW: folders to
                                                    import PyTorch and Pillow from, or ""

Run by the machine's own Python, with nothing of the project in reach but the wheel.
"""

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

FIRST_BATCH = """
import sys
import dloaderd
with dloaderd.Loader(sys.argv[1], as_="numpy") as loader:
    batch = next(iter(loader))
print(type(next(iter(batch.values()))).__name__)
"""

DROP_IN = """
import numpy
from torch.utils.data import Dataset
from dloaderd import DataLoader

class Squares(Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        return numpy.full(4, index)

if __name__ == "__main__":
    print(sum(len(batch) for batch in DataLoader(Squares(), batch_size=8, num_workers=2)))
"""

PATIENCE = 1800  # seconds, of one command: another processor is interpreted, and others may use this one

ARRAYS = "import numpy, sys; print(*sorted(numpy.load(sys.argv[1])))"

# Whether C's pixels are other than Pillow's, by format and size; null: C does not read it.
PICTURES = """import io, json
from PIL import Image, features
from dloaderd import _worker

def never(*_):
    raise AssertionError("nothing is drawn")

def differ(format, size, **options):
    file = io.BytesIO()
    pixels = bytes((x * x * (7 + c) + y * y * 5 + x * y * c) >> 3 & 255 for y in range(35) for x in range(51)
                   for c in range(3))
    Image.frombytes("RGB", (51, 35), pixels).save(file, format, quality=80, **options)
    with Image.open(file) as image:
        wanted = image.resize(size, Image.Resampling.BILINEAR) if size else image
        target = bytearray(wanted.tobytes())
        target[:] = bytes(len(target))
        text = [{"kind": "Resize", "size": size[::-1]}] if size else []
        handle = _worker.pictures(json.dumps(text), (never,) * 8, 3)
        made = _worker.picture_of_file(handle, file.getvalue(), 1 << 40, lambda *_: (target, target))
        return None if made is None else bytes(made) != wanted.tobytes()

formats = [("JPEG", {"subsampling": way}) for way in ("4:4:4", "4:2:2", "4:2:0")] + [("PNG", {}), ("WEBP", {})]
print(json.dumps({f"{format} {options} {size}": differ(format, size, **options) for format, options in formats
                  for size in (None, (22, 20), (90, 13))}))
"""

# What a wheel does without, where there is none.
ETCD = "rendezvous:\n  backend: etcd\n  endpoint: 127.0.0.1:2379\n  id: none\n"
PIECES = "dataset: {kind: text, paths: [x], tokenizer: sentencepiece, model: x}\nbatch: {size: 1}\n"


def run(*command, **env):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
                          timeout=PATIENCE, env={**os.environ, **env})


def run_well(*command, **env):
    done = run(*command, **env)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}")
    return done.stdout.strip()


def has_library(name):
    try:
        ctypes.CDLL(name)
        return True
    except OSError:
        return False


class Stranger:
    def __init__(self, wheel, data, work):
        self.wheel, self.data, self.work = wheel, data, work
        self.bin = work / "venv/bin"
        self.told = {"python": sys.version.split()[0],
                     "compilers": [name for name in ("cc", "gcc", "clang", "tcc") if shutil.which(name)]}

    def install(self):
        """From `pip install` to the first batch."""
        # With the system's pip: setting up another one takes longer than all the rest.
        run_well(sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", self.work / "venv")
        begin = time.monotonic()
        run_well(self.bin / "python", "-m", "pip", "install", "--no-index", self.wheel)
        batch = run_well(self.bin / "python", "-c", FIRST_BATCH, self.data / "rows.yaml")
        self.told |= {"seconds": round(time.monotonic() - begin, 1), "batch": batch}

    def digests(self):
        """Of each spec: in the own process, and by way of a daemon and its workers."""
        socket, log = self.work / "socket", self.work / "log"
        with open(log, "w", encoding="utf-8") as file:
            daemon = subprocess.Popen([self.bin / "dloaderd", "--socket", socket], stdout=file,
                                      stderr=file)
        try:
            while not socket.exists() and daemon.poll() is None:
                time.sleep(0.01)
            self.told["digests"] = {spec.stem: [self.digest("check", spec),
                                                self.digest("run", spec, "--socket", socket)]
                                    for spec in sorted(self.data.glob("*.yaml"))}
            run_well(self.bin / "dlctl", "replay", self.data / "rows.yaml", "--step", "0",
                     "-o", self.work / "x.npz", "--socket", socket)
            self.told["arrays"] = run_well(self.bin / "python", "-c", ARRAYS, self.work / "x.npz")
        finally:
            daemon.terminate()
            daemon.wait()
        self.told["log"] = log.read_text(encoding="utf-8")

    def digest(self, verb, spec, *options):
        told = run_well(self.bin / "dlctl", verb, spec, "--digest", "--json", *options)
        return json.loads(told)["digest"]

    def refusals(self):
        """What is said of the parts that a wheel does without."""
        config, spec = self.work / "etcd.conf", self.work / "pieces.yaml"
        config.write_text(ETCD, encoding="ascii")
        spec.write_text(PIECES, encoding="ascii")
        (self.work / "x").write_text("x", encoding="ascii")
        self.told["refusals"] = {
            "sentencepiece": run(self.bin / "dlctl", "check", spec).stdout}
        if not has_library("libcurl.so.4"):
            done = run(self.bin / "dloaderd", "--config", config, "--socket", self.work / "s")
            self.told["refusals"]["etcd"] = done.stdout

    def use_torch(self, folder):
        script = self.work / "drop_in.py"
        script.write_text(DROP_IN, encoding="ascii")
        self.told["torch"] = run_well(self.bin / "python", script, PYTHONPATH=folder)


    def use_pillow(self, folder):
        script = self.work / "pictures.py"
        script.write_text(PICTURES, encoding="ascii")
        self.told["pictures"] = json.loads(run_well(self.bin / "python", script, PYTHONPATH=folder))

    def uninstall(self):
        """What pip leaves of it."""
        run_well(self.bin / "python", "-m", "pip", "uninstall", "--yes", "dloaderd")
        self.told["left"] = sorted(str(path.relative_to(self.work)) for path in (self.work / "venv").rglob("*")
                                   if path.name.startswith(("dloader", "dlctl")))


def main(wheel, data, work, torch="", pillow=""):
    stranger = Stranger(wheel, pathlib.Path(data), pathlib.Path(work))
    stranger.work.mkdir(parents=True, exist_ok=True)
    stranger.install()
    stranger.digests()
    stranger.refusals()
    if torch:
        stranger.use_torch(torch)
    if pillow:
        stranger.use_pillow(pillow)
    stranger.uninstall()
    print(json.dumps(stranger.told))


if __name__ == "__main__":
    main(*sys.argv[1:])
