"""Datasets as people write them, whose own code opens photographs by Pillow or calls a tokenizer, and only the import
changed: batches a second, and processor time a sample, 2 workers each; and the bars, each with whether it is met.

    PYTHON own_classes.py --build BUILD [--seconds S] [--rounds N] [ROW ...]

PYTHON has PyTorch, torchvision and Pillow; for the rows `timm` and `hf` timm and datasets, for `bert` and `gpt2`
transformers, for `cv2` OpenCV; where one is missing the line says so. Photographs are made in a private directory, as
photos.py makes them. Transforms are RandomResizedCrop(224), a flip, ToTensor and Normalize, unless the row says
otherwise. Runs take turns; printed are medians, and their ratio to PyTorch's of the same turns. Processor time is that
of all processes of a run: a busy machine changes it less. Without names of rows it takes about eight minutes.

folder: ImageFolder itself, for comparison. subclass: of it, with a method of its own. own: Image.open() and
convert("RGB"). views: two of one picture. timm: create_transform() for training. hf: set_transform() of a datasets'
Image column. array: np.asarray() of the picture, a crop and a flip of that, as albumentations has it. bert, gpt2:
collate_fn calls a fast tokenizer of transformers, padded, at most 512 tokens. cv2, read_image: decoding by other
libraries, which is not ours; only by name.

plain: datasets without pictures or texts, beside native="off", which switches all of this off, in turns in one
program. first: the time to the first batch, likewise, of all kinds of programs.
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import photos
import rates

WORKERS, BATCH, COUNT = 2, 64, 320
TEXTS, VOCABULARY = 2000, 8000

OWN = """
class Own(torch.utils.data.Dataset):
    def __init__(self):
        self.paths = sorted(glob.glob("photos/*/*.jpg"))
    def __len__(self):
        return len(self.paths)
"""
TOKENIZED = """
import transformers
kept = {"pad_token": "[PAD]", "model_max_length": 512}
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file="NAME.json", **kept)
data = open("texts").read().split("\\n")
def collate(texts):
    return tokenizer(texts, padding=True, truncation=True, max_length=512, return_tensors="pt")
options["collate_fn"] = collate"""
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
    "bert": TOKENIZED.replace("NAME", "bert"),
    "gpt2": TOKENIZED.replace("NAME", "gpt2"),
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
# Rows whose bars are ratios to PyTorch's time.
BARS = {"subclass": 3, "own": 3, "views": 3, "timm": 2.5, "hf": 2.5, "array": 1.3, "bert": 5, "gpt2": 5}
NEAR_FOLDER, PLAIN = 0.8, 0.99
OTHERS = ("cv2", "read_image")
CONTENDERS = {"PyTorch": "torch.utils.data", "import changed": "dloaderd"}

HEAD = """
import ctypes, glob, json, os, random, statistics, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: a process whose parent has ended stays in the tree
import numpy as np, torch, torchvision
import torchvision.transforms as t
from PIL import Image
from IMPORT import DataLoader
transform = t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ToTensor(),
                       t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
options = {"batch_size": BATCH, "shuffle": True, "drop_last": True, "num_workers": WORKERS}
ROW

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
"""
PROGRAM = HEAD + """
loader = DataLoader(data, persistent_workers=True, **options)
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


# What is neither a picture nor a text: arrays, and small Python objects that PyTorch's rules make batches of.
NEITHER = """
class Own(torch.utils.data.Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, n):
        return KIND
data = Own()
"""
KINDS = {"arrays": "np.full((64, 64), n, np.float32), n", "objects": '{"n": n, "name": str(n), "at": (n * 0.5, n)}'}
# Each with a loader of its own, as it is and with native="off", by turns; persistent, so that the start is not in it.
PLAIN_PROGRAM = HEAD + """
both = [DataLoader(data, persistent_workers=True, **options, **more) for more in ({}, {"native": "off"})]
found = []
for turn in range(TURNS):
    taken = [0, 0]
    for which in ((0, 1) if turn % 2 else (1, 0)):
        begin = time.perf_counter()
        for _ in both[which]:
            pass
        taken[which] = time.perf_counter() - begin
    found.append(taken)
print("found", json.dumps(found[2:]))
"""
# To the first batch, from iter() on.
FIRST_PROGRAM = HEAD + """
found = []
for turn in range(TURNS):
    taken = [0, 0]
    for which in ((0, 1) if turn % 2 else (1, 0)):
        loader = DataLoader(data, **options, **({}, {"native": "off"})[which])
        begin = time.perf_counter()
        iterator = iter(loader)
        next(iterator)
        taken[which] = time.perf_counter() - begin
        del iterator, loader
    found.append(taken)
print("found", json.dumps(found[2:]))
"""
FIRSTS = ("arrays", "own", "views", "array", "hf", "bert")
PLAIN_TURNS, FIRST_TURNS = 42, 22


def program(text, row, contender, seconds=0, turns=0):
    words = {"IMPORT": CONTENDERS[contender], "ROW": row, "BATCH": str(BATCH), "WORKERS": str(WORKERS),
             "SECONDS": str(seconds), "TURNS": str(turns)}
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def ended(text, folder, args):
    (folder / "run.py").write_text(text)
    build = args.build.resolve()
    packages = [str(build / "client/python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(packages), "DLOADERD": str(build / "daemon/dloaderd"),
           "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.run([sys.executable, "-W", "ignore", "run.py"], cwd=folder, text=True, env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(row, contender, folder, args):
    """(Batches a second, samples a second of a processor) of a program of its own; or why there is none, twice."""
    done = ended(program(PROGRAM, ROWS[row], contender, args.seconds), folder, args)
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


def ratio(ours, theirs):
    """The median of those of the same turns, by the clock; None: there is none."""
    found = [one / other for (one, _), (other, _) in zip(ours, theirs) if isinstance(one, float) and isinstance(
        other, float)]
    return statistics.median(found) if found else None


def say_bar(what, got, least):
    said = "not measured" if got is None else f"{'met' if got >= least else 'MISSED'}: {got:.2f}"
    print(f"bar        {what} >= {least:g}: {said}", flush=True)


def paired(text, row, turns, folder, args):
    """[as it is, native="off"] of each turn, in seconds; or why there is none."""
    done = ended(program(text, row, "import changed", turns=turns), folder, args)
    found = [json.loads(line.split(" ", 1)[1]) for line in done.stdout.splitlines() if line.startswith("found ")]
    return found[0] if found else (done.stderr.strip().splitlines() or ["ended early"])[-1]


def is_later(pairs):
    """Whether it is by more than chance has it: a sign test, one of twenty."""
    n, more = len(pairs), sum(ours > off for ours, off in pairs)
    return sum(math.comb(n, k) for k in range(more, n + 1)) / 2 ** n < 0.05


def say_paired(name, pairs, words):
    if isinstance(pairs, str):
        print(f"{name:10} none: {pairs}", flush=True)
        return None
    ours, off = (statistics.median(one[n] for one in pairs) for n in (0, 1))
    quick, slow = statistics.quantiles([b / a for a, b in pairs], n=4)[::2]
    got = statistics.median(b / a for a, b in pairs)
    print(f"{name:10} {words}: {ours * 1000:.1f} ms, native='off' {off * 1000:.1f} ms; {got:.3f} x, half of "
          f"{len(pairs)} turns from {quick:.3f} to {slow:.3f}", flush=True)
    return got


def plain(folder, args):
    for name, kind in KINDS.items():
        pairs = paired(PLAIN_PROGRAM, NEITHER.replace("KIND", kind), PLAIN_TURNS, folder, args)
        say_bar(f"plain, {name}", say_paired("plain", pairs, f"{name}, an epoch"), PLAIN)


def first(folder, args):
    for name in FIRSTS:
        row = ROWS[name] if name in ROWS else NEITHER.replace("KIND", KINDS[name])
        pairs = paired(FIRST_PROGRAM, row, FIRST_TURNS, folder, args)
        say_paired("first", pairs, name)
        said = "not measured" if isinstance(pairs, str) else "MISSED" if is_later(pairs) else "met"
        print(f"bar        first batch of {name} no later: {said}", flush=True)


def rate_rows(rows, folder, args):
    base = None
    for row in rows:
        runs = measure(row, folder, args)
        ours, theirs = runs["import changed"], runs["PyTorch"]
        for name, of in runs.items():
            print(f"{row:10} {name:16} {shown(of, theirs)}", flush=True)
        base = ours if row == "folder" else base
        if row in BARS:
            say_bar(f"{row}, x PyTorch", ratio(ours, theirs), BARS[row])
        if row in ("subclass", "own") and base is not None:
            say_bar(f"{row}, x ImageFolder's native rate", ratio(ours, base), NEAR_FOLDER)


def make_texts(folder):
    """Texts of some hundred words, and two tokenizers made of them: as BERT's are, and GPT-2's."""
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlcumwfgypbvk", k=rng.randint(2, 9))) for _ in range(20000)]
    weights = list(itertools.accumulate(1 / (i + 2) for i in range(len(words))))
    texts = [" ".join(rng.choices(words, cum_weights=weights, k=rng.randint(100, 600))) for _ in range(TEXTS)]
    (folder / "texts").write_text("\n".join(texts))
    try:
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    except ImportError:
        return  # their rows say so
    options = {"vocab_size": VOCABULARY, "special_tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "show_progress": False}
    bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer, bert.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    bert.train_from_iterator(texts, trainers.WordPieceTrainer(**options))
    bert.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2),
                                                                                                  ("[SEP]", 3)])
    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    gpt2.train_from_iterator(texts, trainers.BpeTrainer(
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options))
    for name, tokenizer in (("bert", bert), ("gpt2", gpt2)):
        tokenizer.save(str(folder / f"{name}.json"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{', '.join(ROWS)}, plain, first")
    args = parser.parse_args()
    if not photos.can_make():
        sys.exit(f"{sys.executable} has no Pillow, which makes the photographs; name another interpreter")
    print(f"load {os.getloadavg()[0]:.2f} at the start; {'photographs' if photos.sources() else 'painted pictures'}")
    rows = args.rows or [*(row for row in ROWS if row not in OTHERS), "plain", "first"]
    with tempfile.TemporaryDirectory(prefix="bench-own-") as made:
        folder = pathlib.Path(made)
        (folder / "photos").mkdir()
        photos.make(os.path.join(made, "photos"), COUNT)
        make_texts(folder)
        rate_rows([row for row in rows if row in ROWS], folder, args)
        for name, section in (("plain", plain), ("first", first)):
            if name in rows:
                section(folder, args)


if __name__ == "__main__":
    main()
