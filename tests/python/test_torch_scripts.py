"""Programs as people write them: whatever PyTorch's forked workers take, ours do."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile

import black_box
import programs
from black_box import Case, HERE

CLASSES = '''
import collections, enum, os, sys
sys.path.insert(0, HERE)
import torch
from black_box import DataLoader, OURS

Pt = collections.namedtuple("Pt", "x y")

class Color(enum.Enum):
    RED = 1

class Thing:
    made = 0
    def __init__(self, number):
        self.number = number
        self.tensor = torch.full((3,), number)
    def twice(self):
        return len(SEEN) + 2 * self.number

SEEN = []
'''

GUARDED = CLASSES + '''
class Set(torch.utils.data.Dataset):
    def __init__(self, make):
        self.make = make
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return self.make(index)

class ByKey(Set):
    def __getitem__(self, key):
        assert type(key) is Pt, type(key)
        return key.x + key.y

def point(index):
    return Pt(index, torch.tensor([index]))

def thing(index):
    return Thing(index)

def stuck(index):
    return (n for n in range(3))

def same(samples):
    return samples

if __name__ == "__main__":
    import __main__
    init = Thing.__init__
    got = list(DataLoader(Set(point), num_workers=2, batch_size=3))
    assert len(got) == 2 and all(type(batch) is Pt for batch in got), got
    assert got[1].x.tolist() == [3, 4, 5] and got[1].y.shape == (3, 1), got
    got = list(DataLoader(Set(point), num_workers=2, batch_size=None))
    assert [type(sample) for sample in got] == [Pt] * 6, got
    got = list(DataLoader(Set(thing), num_workers=1, batch_size=2, collate_fn=same))
    SEEN.append(0)
    for number, sample in enumerate(sample for batch in got for sample in batch):
        assert type(sample) is Thing and isinstance(sample, __main__.Thing), type(sample)
        assert sample.tensor.tolist() == [number] * 3
        # Its methods are this program's, with this program's variables.
        assert sample.twice() == len(SEEN) + 2 * number
    got = list(DataLoader(Set(members), num_workers=1, batch_size=None))
    assert all(sample["color"] is Color.RED and sample["kind"] is Thing for sample in got), got
    got = list(DataLoader(ByKey(None), sampler=[Pt(1, 2), Pt(3, 4)], num_workers=1))
    assert [int(batch) for batch in got] == [3, 7], got
    assert Thing.__init__ is init
    try:
        if not OURS:  # whose worker tells nobody
            raise TypeError("cannot pickle 'generator' object")
        list(DataLoader(Set(stuck), num_workers=1, batch_size=None))
    except TypeError as error:
        assert "cannot pickle 'generator' object" in str(error), error
        print("right")
'''.replace("def same(samples)", '''def members(index):
    return {"color": Color.RED, "kind": Thing, "tensor": torch.ones(2)}

def same(samples)''')

# Nothing is guarded, and nobody finds the classes by their names.
UNGUARDED = """
import os, sqlite3, sys, tempfile
sys.path.insert(0, HERE)
import multiprocessing, threading
import torch
from black_box import DataLoader

FACTOR = 2

def numbers():
    class Local(torch.utils.data.Dataset):
        def __init__(self):
            self.lock = threading.Lock()
            self.rest = (n for n in range(100))
            self.file = open("/proc/self/status")
            self.base = sqlite3.connect(":memory:")
            self.base.execute("create table t (n)")
            self.base.execute("insert into t values (7)")
            self.module = sys
        def __len__(self):
            return 4
        def __getitem__(self, index):
            with self.lock:
                row = self.base.execute("select n from t").fetchone()
                return index * FACTOR + row[0] + (self.file.fileno() < 0)
    return Local()

loader = DataLoader(numbers(), batch_size=2, num_workers=2, collate_fn=lambda b: sum(b),
                    worker_init_fn=lambda worker: None)
assert list(loader) == [16, 24], list(loader)
FACTOR = 10  # Workers of the next epoch see what the program has changed.
assert list(loader) == [24, 64], list(loader)
print("right")
"""

# What processes share stays shared, with workers that stay, too.
SHARED = """
import sys
sys.path.insert(0, HERE)
import multiprocessing
import torch
from black_box import DataLoader

class Epochs(torch.utils.data.Dataset):
    def __init__(self):
        self.value = multiprocessing.Value("i", 0)
        self.tensor = torch.zeros(1, dtype=torch.long).share_memory_()
        self.event = multiprocessing.Event()
        self.queue = multiprocessing.Queue()
        self.count = multiprocessing.Value("q", 0)
    def __len__(self):
        return 4
    def __getitem__(self, index):
        with self.count.get_lock():
            self.count.value += 1
        self.queue.put(index)
        return 1000 * self.event.is_set() + 100 * self.value.value + 10 * int(self.tensor) + index

dataset = Epochs()
loader = DataLoader(dataset, batch_size=2, num_workers=2, persistent_workers=True)
for epoch in range(3):
    dataset.value.value = epoch
    dataset.tensor.fill_(epoch)
    if epoch == 2:
        dataset.event.set()
    got = torch.cat(list(loader)).tolist()
    assert got == [1000 * (epoch == 2) + 110 * epoch + i for i in range(4)], got
    assert sorted(dataset.queue.get(timeout=60) for _ in range(4)) == [0, 1, 2, 3]
assert dataset.count.value == 12
print("right")
"""

# The pattern of PyTorch's tutorial on distributed training: the trainers are spawned.
SPAWNED = """
import sys
sys.path.insert(0, HERE)
import torch
from black_box import DataLoader

class Set(torch.utils.data.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return torch.full((8,), float(index)), index

def train(rank, name, queue):
    shares = torch.utils.data.DistributedSampler(Set(), 2, rank, shuffle=False)
    for context in CONTEXTS[rank::2]:
        loader = DataLoader(Set(), 4, sampler=shares, num_workers=1, multiprocessing_context=context)
        queue.put([index for _, indices in loader for index in indices.tolist()])

CONTEXTS = (None, "fork", "spawn", "forkserver")  # two for each, since they take seconds

if __name__ == "__main__":
    queue = torch.multiprocessing.get_context("spawn").Queue()
    torch.multiprocessing.spawn(train, (__name__, queue), nprocs=2)
    got = [queue.get(timeout=60) for _ in CONTEXTS]
    assert sorted(got) == 2 * [list(range(0, 16, 2))] + 2 * [list(range(1, 16, 2))], got
    print("right")
"""

# Tensors that plain pickle cannot do, in a dataset and from a worker.
TENSORS = """
import sys
sys.path.insert(0, HERE)
import torch
from black_box import DataLoader

def quantized(i):
    return torch.quantize_per_tensor(torch.full((3,), float(i)), 0.1, 0, torch.quint8)

KINDS = {
    "sparse": lambda i: torch.eye(3).mul(i).to_sparse(),
    "csr": lambda i: torch.eye(3).mul(i).to_sparse_csr(),
    "quantized": quantized,
    "parameter": lambda i: torch.nn.Parameter(torch.full((2,), float(i))),
}
if hasattr(torch, "float8_e4m3fn"):
    KINDS["nested"] = lambda i: torch.nested.nested_tensor([torch.full((2,), i * 1.0), torch.ones(3)])
    KINDS["float8"] = lambda i: torch.full((3,), float(i)).to(torch.float8_e4m3fn)

class Made(torch.utils.data.Dataset):
    def __init__(self, make):
        self.make = make
    def __len__(self):
        return 3
    def __getitem__(self, index):
        return self.make(index)

def same(got, want):
    assert type(got) is type(want) and got.dtype == want.dtype, (got, want)
    assert got.layout == want.layout and got.is_quantized == want.is_quantized, (got, want)
    if got.is_nested:
        return all(map(torch.equal, got.unbind(), want.unbind()))
    if want.dtype.itemsize == 1 and want.dtype.is_floating_point if hasattr(want.dtype, "itemsize") else False:
        got, want = got.float(), want.float()
    return torch.equal(got.to_dense(), want.to_dense()) if got.layout != torch.strided else \
        torch.equal(got, want)

for name, make in KINDS.items():
    for dataset in ([make(i) for i in range(3)], Made(make)):
        got = list(DataLoader(dataset, batch_size=None, num_workers=1, collate_fn=lambda x: x))
        assert len(got) == 3 and all(same(x, make(i)) for i, x in enumerate(got)), (name, got)
print("right")
"""

# An iterator that is alive when the program ends says nothing.
ALIVE = """
import sys
sys.path.insert(0, HERE)
from black_box import DataLoader
iterator = iter(DataLoader(range(100), batch_size=4, num_workers=1))
next(iterator)
print("right")
"""

# A worker's loader is refused, as PyTorch refuses it.
WITHIN = """
import sys
sys.path.insert(0, HERE)
import torch
from black_box import DataLoader

class Outer(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        assert torch.utils.data.get_worker_info().id in (0, 1)
        return torch.stack(list(DataLoader(range(3), num_workers=WORKERS))).sum()

WORKERS = 0
assert [int(b) for b in DataLoader(Outer(), num_workers=2)] == [3, 3]
WORKERS = 1
try:
    list(DataLoader(Outer(), num_workers=2))
except AssertionError as error:
    assert "daemonic processes are not allowed to have children" in str(error), error
    print("right")
"""

# A batch system tells all of a job's processes something, just when one has been forked.
TOLD = '''
import os, signal, sys
sys.path.insert(0, HERE)
import torch
from black_box import DataLoader

os.setpgid(0, 0)
program, number = os.getpid(), signal.NUMBER
forks = []

def handler(*_):
    with open("handled", "a", encoding="utf-8") as file:
        print(os.getpid(), file=file)

def tell():
    if not forks:  # by the host, and not by the workers that it forks
        forks.append(os.getpid())
        os.killpg(0, number)

signal.signal(number, handler)
os.register_at_fork(after_in_child=tell)
before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
try:
    assert torch.cat(list(DataLoader(range(10), batch_size=2, num_workers=2))).tolist() == list(range(10))
except (OSError, RuntimeError):
    assert number == signal.SIGTERM  # the host and its workers end, as they are told
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
with open("handled", encoding="utf-8") as file:
    handled = set(map(int, file))
assert handled == {program}, (handled, program)
print("right")
'''


# Its own name, a folder, a key and a column; of a library that is there, pictures and a table.
ASTRAL = """
import importlib.util, os, sys
sys.path.insert(0, HERE)
import numpy, torch
from black_box import DataLoader, OURS

class Set(torch.utils.data.Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return {"😀": index, "text": "𠀀" * index}

if __name__ == "__main__":
    assert "😀" in __file__
    for options in ({}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}):
        loader = DataLoader(Set(), batch_size=3, **options)
        for _ in range(2):
            got = list(loader)
            assert got[1]["😀"].tolist() == [3, 4, 5], got
            assert got[0]["text"] == ["", "𠀀", "𠀀" * 2], got
    if OURS:
        import dloaderd
        numpy.save("rows 😀.npy", numpy.arange(6))
        spec = {"dataset": {"kind": "npy", "paths": {"😀": "rows 😀.npy"}}, "batch": {"size": 3}}
        with dloaderd.Loader(spec, as_="torch") as loader:
            assert [batch["😀"].tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5]]
    if importlib.util.find_spec("torchvision"):
        import PIL.Image, torchvision
        os.makedirs("pictures 😀/a 𠀀")
        PIL.Image.new("RGB", (8, 8), (9, 8, 7)).save("pictures 😀/a 𠀀/one 😀.png")
        pictures = torchvision.datasets.ImageFolder("pictures 😀", torchvision.transforms.ToTensor())
        [(images, labels)] = DataLoader(pictures, num_workers=1)
        assert (images * 255).round().long()[0, :, 0, 0].tolist() == [9, 8, 7]
    sys.path.remove(HERE)  # it has a file of this name
    sys.modules.pop("datasets", None)
    if importlib.util.find_spec("datasets"):
        import datasets
        table = datasets.Dataset.from_dict({"😀": [1, 2]}).with_format("torch")
        [batch] = DataLoader(table, batch_size=2, num_workers=1)
        assert batch["😀"].tolist() == [1, 2]
    print("right")
"""


class TestScripts(Case):
    def runs(self, text, how, ends="right\n", forked=True, name="program.py"):
        text = text.replace("HERE", repr(HERE))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, name)
            path.write_text(text, encoding="utf-8")
            arguments = {"file": [str(path)], "module": ["-m", "program"], "text": ["-c", text],
                         "stdin": ["-"]}
            command = ["-W", "ignore", *arguments[how]]
            options = {"cwd": folder, "text": True, "input": text if how == "stdin" else "",
                       "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT,
                       "timeout": black_box.PATIENCE}
            done = (programs.run(command, **options) if forked else
                    subprocess.run([sys.executable, *command], **options, check=False))
        self.assertEqual((done.returncode, done.stdout), (0, ends), done.stdout)

    def test_classes_of_a_script(self):
        self.runs(GUARDED, "file", forked=False)

    def test_classes_of_what_has_no_file_or_another_name(self):
        self.runs(GUARDED, "module")
        self.runs(GUARDED, "stdin")

    def test_names_beyond_16_bits(self):
        self.runs(ASTRAL, "file", forked=False, name="program \U0001f600.py")

    def test_nothing_is_guarded(self):
        for how in ("text", "stdin"):
            with self.subTest(how):
                self.runs(UNGUARDED, how)

    def test_what_is_shared_stays_shared(self):
        self.runs(SHARED, "file")

    def test_trainers_that_are_spawned(self):
        self.runs(SPAWNED, "file", forked=False)  # as what it spawns

    def test_tensors_of_all_kinds(self):
        self.runs(TENSORS, "file")

    def test_an_iterator_that_stays(self):
        self.runs(ALIVE, "file")

    def test_a_loader_in_a_worker(self):
        self.runs(WITHIN, "file")

    def test_signals_that_come_at_the_start(self):
        """The program's handlers are for the program: PyTorch's workers run them, ours do not."""
        if not black_box.OURS:
            self.skipTest("PyTorch's workers run the program's handlers")
        for number in ("SIGUSR1", "SIGTERM"):
            with self.subTest(number):
                self.runs(TOLD.replace("NUMBER", number), "file")

    def test_what_has_no_name(self):
        """PyTorch's workers cannot send it back; ours can where cloudpickle is."""
        if not black_box.OURS:
            self.skipTest("PyTorch's class refuses it")
        if importlib.util.find_spec("cloudpickle") is None:
            self.skipTest("cloudpickle is not installed")
        self.runs(CLASSES + """
def made(index):
    class Local:
        number = index
    return Local(), lambda: index

class Set(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return made(index)

got = list(DataLoader(Set(), num_workers=1, batch_size=None))
assert [(x.number, f()) for x, f in got] == [(0, 0), (1, 1)], got
print("right")
""", "file")
