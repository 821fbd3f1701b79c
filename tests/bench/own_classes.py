"""Datasets as people write them, whose own code opens photographs by Pillow, and only the import changed: batches a
second, and processor time a sample, 2 workers each.

    PYTHON own_classes.py --build BUILD [--seconds S] [--rounds N] [ROW ...]

PYTHON has PyTorch, torchvision and Pillow; for the rows `timm` and `hf` timm and datasets, for `cv2` OpenCV; where one
is missing the line says so. Photographs are made in a private directory, as photos.py makes them. Transforms are
RandomResizedCrop(224), a flip, ToTensor and Normalize, unless the row says otherwise. Runs take turns; printed are
medians, and their ratio to PyTorch's of the same turns. Processor time is that of all processes of a run: a busy
machine changes it less.

folder: ImageFolder itself, for comparison. subclass: of it, with a method of its own. own: Image.open() and
convert("RGB"). views: two of one picture. timm: create_transform() for training. hf: set_transform() of a datasets'
Image column. array: np.asarray() of the picture, a crop and a flip of that, as albumentations has it. cv2, read_image:
decoding by other libraries, which is not ours.

Bars: subclass, own and views >= 3 x PyTorch, timm and hf >= 2.5 x, array >= 1.3 x.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import photos
import rates

WORKERS, BATCH, COUNT = 2, 64, 320

OWN = """
class Own(torch.utils.data.Dataset):
    def __init__(self):
        self.paths = sorted(glob.glob("photos/*/*.jpg"))
    def __len__(self):
        return len(self.paths)
"""
ROWS = {
    "folder": """
data = torchvision.datasets.ImageFolder("photos", transform)""",
    "subclass": """
class Indexed(torchvision.datasets.ImageFolder):
    def __getitem__(self, n):
        picture, label = super().__getitem__(n)
        return picture, label, n
data = Indexed("photos", transform)""",
    "own": OWN + """
    def __getitem__(self, n):
        return transform(Image.open(self.paths[n]).convert("RGB")), n
data = Own()""",
    "views": OWN + """
    def __getitem__(self, n):
        picture = Image.open(self.paths[n]).convert("RGB")
        return transform(picture), transform(picture), n
data = Own()""",
    "timm": OWN + """
    def __getitem__(self, n):
        return transform(Image.open(self.paths[n]).convert("RGB")), n
from timm.data import create_transform
transform = create_transform(224, is_training=True)
data = Own()""",
    "hf": """
import datasets
datasets.disable_progress_bars()
paths = sorted(glob.glob("photos/*/*.jpg"))
data = datasets.Dataset.from_dict({"image": [{"bytes": open(path, "rb").read()} for path in paths],
                                   "label": list(range(len(paths)))},
                                  datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}))
def transformed(rows):
    rows["pixels"] = [transform(picture.convert("RGB")) for picture in rows.pop("image")]
    return rows
data.set_transform(transformed)""",
    "array": OWN + """
    def __getitem__(self, n):
        array = np.asarray(Image.open(self.paths[n]).convert("RGB"))
        top, left = random.randint(0, array.shape[0] - 224), random.randint(0, array.shape[1] - 224)
        array = array[top:top + 224, left:left + 224]
        array = array[:, ::-1] if random.random() < 0.5 else array
        return torch.from_numpy(np.ascontiguousarray(array)).permute(2, 0, 1), n
data = Own()""",
    "cv2": OWN + """
    def __getitem__(self, n):
        array = cv2.cvtColor(cv2.imread(self.paths[n]), cv2.COLOR_BGR2RGB)[:224, :224]
        return torch.from_numpy(np.ascontiguousarray(array)).permute(2, 0, 1), n
import cv2
data = Own()""",
    "read_image": OWN + """
    def __getitem__(self, n):
        return torchvision.io.read_image(self.paths[n])[:, :224, :224], n
data = Own()""",
}
CONTENDERS = {"PyTorch": "torch.utils.data", "import changed": "dloaderd"}

PROGRAM = """
import ctypes, glob, os, random, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: a process whose parent has ended stays in the tree
import numpy as np, torch, torchvision
import torchvision.transforms as t
from PIL import Image
from IMPORT import DataLoader
transform = t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ToTensor(),
                       t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
ROW
loader = DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=WORKERS, persistent_workers=True)

def spent():
    found, known = {}, {os.getpid()}
    for one in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{one}/stat") as file:
                found[int(one)] = file.read().rpartition(")")[2].split()
        except OSError:
            pass
    while more := {one for one, of in found.items() if int(of[1]) in known and one not in known}:
        known |= more
    return sum(int(found[one][11]) + int(found[one][12]) for one in known) / os.sysconf("SC_CLK_TCK")

for _ in range(2):  # from the second epoch on all memory is there
    for _ in loader:
        pass
begin, before, n = time.perf_counter(), spent(), 0
while time.perf_counter() - begin < SECONDS:
    for _ in loader:
        n += 1
print("rate", n / (time.perf_counter() - begin), flush=True)
print("spent", (spent() - before) / n / BATCH * 1000, flush=True)
"""


def program(row, contender, seconds):
    words = {"IMPORT": CONTENDERS[contender], "ROW": ROWS[row], "BATCH": str(BATCH), "WORKERS": str(WORKERS),
             "SECONDS": str(seconds)}
    text = PROGRAM
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def run(row, contender, folder, args):
    """(Batches a second, samples a second of a processor) of a program of its own; or why there is none, twice."""
    (folder / "run.py").write_text(program(row, contender, args.seconds))
    build = args.build.resolve()
    packages = [str(build / "client/python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(packages), "DLOADERD": str(build / "daemon/dloaderd"),
           "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-W", "ignore", "run.py"], cwd=folder, text=True, env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    spent = [1000 / float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("spent ")]
    rate = rates.rate_of(done)
    return rate, spent[0] if spent else rate


def measure(row, folder, args):
    """{contender: its runs}"""
    runs = {name: [] for name in CONTENDERS}
    for _ in range(args.rounds):
        for name in runs:
            runs[name].append(run(row, name, folder, args))
    return runs


def shown(runs, base):
    """By the clock, and by the processors' time."""
    clock, spent = zip(*runs)
    others, others_spent = zip(*base)
    told = rates.shown(clock, clock, others, "{:.2f} x PyTorch")
    if not isinstance(spent[-1], float):
        return told
    samples = rates.shown(spent, spent, others_spent, "{:.2f} x PyTorch")
    return f"{told}; {samples.replace('batches/s', 'samples/s of a processor')}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    args = parser.parse_args()
    if not photos.can_make():
        sys.exit(f"{sys.executable} has no Pillow, which makes the photographs; name another interpreter")
    print(f"load {os.getloadavg()[0]:.2f} at the start; {'photographs' if photos.sources() else 'painted pictures'}")
    with tempfile.TemporaryDirectory(prefix="bench-own-") as folder:
        (pathlib.Path(folder) / "photos").mkdir()
        photos.make(os.path.join(folder, "photos"), COUNT)
        for row in args.rows or ROWS:
            runs = measure(row, pathlib.Path(folder), args)
            for name, of in runs.items():
                print(f"{row:10} {name:16} {shown(of, runs['PyTorch'])}", flush=True)


if __name__ == "__main__":
    main()
