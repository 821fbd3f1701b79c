"""Programs whose dataset's classes are their own: what is defined in __main__ comes back as that."""

import os
import pathlib
import subprocess
import sys
import tempfile

import black_box
from black_box import Case, HERE, needs_local_objects

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

# Classes that nobody finds by their name.
LOCAL = CLASSES + '''
def make():
    class Local:
        def __init__(self, number):
            self.number = number
    Other = collections.namedtuple("Hidden", "x")
    class Set(torch.utils.data.Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, index):
            return (Local(index), Other(index)) if index else (Local(0), lambda: 7)
    return Local, Other, Set()

Local, Other, numbers = make()
init = Local.__init__
got = list(DataLoader(numbers, num_workers=2, batch_size=None))
assert [type(sample[0]) for sample in got] == [Local] * 4, got
assert [type(sample[1]) for sample in got[1:]] == [Other] * 3, got
assert [sample[0].number for sample in got] == [0, 1, 2, 3]
assert got[0][1]() == 7
assert Local.__init__ is init
print("right")
'''


class TestMain(Case):
    def runs(self, text, how):
        text = text.replace("HERE", repr(HERE))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program.py")
            path.write_text(text, encoding="utf-8")
            arguments = {"file": [str(path)], "module": ["-m", "program"], "text": ["-c", text]}
            done = subprocess.run([sys.executable, *arguments[how]], cwd=folder, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=black_box.PATIENCE, env=dict(os.environ), check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "right\n"), done.stdout)

    def test_classes_of_a_script(self):
        self.runs(GUARDED, "file")

    def test_classes_of_what_has_no_file_or_another_name(self):
        self.runs(GUARDED, "text" if black_box.LOCAL_OBJECTS else "module")

    @needs_local_objects
    def test_local_classes(self):
        if black_box.OURS:  # PyTorch's workers cannot send them back
            self.runs(LOCAL, "file")
