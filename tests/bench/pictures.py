"""Photographs through torchvision's ImageFolder, and only the import changed: batches a second, 2 workers.

    PYTHON pictures.py --build BUILD [--seconds S] [--rounds N] [ROW ...]

PYTHON has PyTorch, torchvision and Pillow; where one is missing the line says so. Photographs are made
in a private directory, as photos.py makes them. Runs take turns; printed are medians, and their ratio
to PyTorch's of the same turns. All rows but that of RandAugment also have DALI and SPDL, where they are installed.

Bars: crop >= 3 x PyTorch, and with fast=True >= 4 x; large: the same, and fast=True ahead of exact; all ahead of DALI
and SPDL.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import photos
import rates
from picture_others import OTHERS, ROWS

WORKERS, BATCH = 2, 64
COUNT, LARGE_COUNT, LARGE = 320, 128, (2000, 1500)

PIPELINES = {
    "crop": """
    t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ToTensor(), normalize""",
    "v2": """
    t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ToImage(), t.ToDtype(torch.float32, scale=True), normalize""",
    "randaugment": """
    t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.RandAugment(), t.ColorJitter(0.4, 0.4, 0.4, 0.1),
    t.ToImage(), t.ToDtype(torch.float32, scale=True), normalize, t.RandomErasing(0.25)""",
    "large": """
    t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ToTensor(), normalize""",
    "resize": """
    t.Resize(256), t.CenterCrop(224), t.ToTensor(), normalize""",
}
# The generation of each row's transforms.
MODULES = {"crop": "torchvision.transforms", "large": "torchvision.transforms",
           "resize": "torchvision.transforms"}
CONTENDERS = {"PyTorch": ("torch.utils.data", ""), "import changed": ("dloaderd", ""),
              "fast": ("dloaderd", ", fast=True"), "cached": ("dloaderd", ', cache="4GiB"')}

PROGRAM = """
import time, torch, torchvision
import MODULE as t
from IMPORT import DataLoader
normalize = t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
data = torchvision.datasets.ImageFolder("photos", t.Compose([PIPELINE]))
loader = DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=WORKERS,
                    persistent_workers=TrueMORE)
"""
# Of all contenders, with a loader.
MEASURE = """
for _ in range(2):  # from the second epoch on all memory is there
    for _ in loader:
        pass
begin, n = time.perf_counter(), 0
while time.perf_counter() - begin < SECONDS:
    for _ in loader:
        n += 1
print("rate", n / (time.perf_counter() - begin), flush=True)
"""


def program(row, contender, seconds):
    module, more = CONTENDERS.get(contender, ("", ""))
    words = {"MODULE": MODULES.get(row, "torchvision.transforms.v2"), "IMPORT": module, "MORE": more,
             "PIPELINE": PIPELINES[row], "BATCH": str(BATCH), "WORKERS": str(WORKERS), "SECONDS": str(seconds)}
    words |= ROWS.get(row, {}) if contender in OTHERS else {}
    text = OTHERS.get(contender, PROGRAM) + MEASURE
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, words[word])
    return text


def rate(row, contender, folder, seconds, build):
    """Batches a second of a program of its own; or why there are none."""
    (folder / "run.py").write_text(program(row, contender, seconds))
    env = {**os.environ, "PYTHONPATH": str(build / "client/python"), "DLOADERD": str(build / "daemon/dloaderd"),
           "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-W", "ignore", "run.py"], cwd=folder, text=True, env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return rates.rate_of(done)


def make(row, folder):
    (folder / "photos").mkdir()
    ordinary = photos.SIZES
    photos.SIZES = (LARGE,) if row == "large" else ordinary
    try:
        photos.make(str(folder / "photos"), LARGE_COUNT if row == "large" else COUNT)
    finally:
        photos.SIZES = ordinary  # of the next row
    os.remove(folder / "photos" / photos.DONE)


def contenders(row):
    return [*CONTENDERS, *(OTHERS if row in ROWS else ())]


def measure(row, folder, args):
    """{contender: the rates of its runs, or why there is none}"""
    make(row, folder)
    names = contenders(row)
    runs = {name: [] for name in names}
    for _ in range(args.rounds):
        for name in names:
            runs[name].append(rate(row, name, folder, args.seconds, args.build.resolve()))
    return runs


def shown(runs, base):
    return rates.shown(runs, runs, base, "{:.2f} x PyTorch")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(PIPELINES))
    args = parser.parse_args()
    if not photos.can_make():
        sys.exit(f"{sys.executable} has no Pillow, which makes the photographs; name another interpreter")
    print(f"load {os.getloadavg()[0]:.2f} at the start; {'photographs' if photos.sources() else 'painted pictures'}")
    for row in args.rows or PIPELINES:
        with tempfile.TemporaryDirectory(prefix="bench-pictures-") as folder:
            runs = measure(row, pathlib.Path(folder), args)
        for name, of in runs.items():
            print(f"{row:12} {name:16} {shown(of, runs['PyTorch'])}", flush=True)


if __name__ == "__main__":
    main()
