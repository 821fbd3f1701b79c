"""What people see of a DataLoader in dlctl, which finds the program's daemon by itself: the script and
the dataset. Needs dloaderd and dlctl.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import dloaderd

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(dloaderd.__file__)))
HAS_TORCH = importlib.util.find_spec("torch") is not None

# Prints the names of the loaders that are open, line by line.
SCRIPT = """
import json, os, subprocess
from torch.utils.data import Dataset, Subset
from dloaderd import DataLoader

class ImageFolder(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return index

def tell():
    said = subprocess.run([os.environ["DLCTL"], "loaders", "--json", *OPTIONS], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    print(json.dumps([[row["name"], row["verdict"]] for row in json.loads(said)]), flush=True)

if __name__ == "__main__":
    train = DataLoader(ImageFolder(), batch_size=4, num_workers=1)
    valid = DataLoader(Subset(ImageFolder(), range(8)), batch_size=4, num_workers=1)
    other = DataLoader(ImageFolder(), batch_size=4, num_workers=1)
    for epoch in range(2):
        batches = iter(train)
        next(batches)
        tell()
        for _ in batches:
            pass
    iterators = [iter(other), iter(valid), iter(train)]
    tell()
    del iterators, batches, other
    third = DataLoader(ImageFolder(), batch_size=4, num_workers=1)
    batches = iter(third)
    tell()
"""


@unittest.skipUnless(HAS_TORCH, "needs torch")
@unittest.skipUnless(os.environ.get("DLOADERD"), "needs dloaderd in $DLOADERD")
class Labels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environ = {**os.environ, "XDG_RUNTIME_DIR": folder.name, "TMPDIR": folder.name,
                        "PYTHONPATH": PACKAGE}
        self.environ.pop("DLOADER_SOCKET", None)

    def test_script_and_dataset(self):
        script = self.folder / "train.py"
        # Where there is a service, that one is asked.
        options = ["--socket", "train.py"] if os.path.exists("/run/dloaderd/socket") else []
        script.write_text(f"OPTIONS = {options}\n{SCRIPT}", encoding="utf-8")
        done = subprocess.run([sys.executable, script], env=self.environ, stdout=subprocess.PIPE,
                              text=True, timeout=300, check=True)
        first, second, all_three, third = map(json.loads, done.stdout.splitlines())
        label = "train.py: ImageFolder"
        self.assertEqual([name for name, _ in first], [label])
        self.assertEqual([name for name, _ in second], [label])
        self.assertRegex(first[0][1], r"^too early to tell: \d batches so far$")
        self.assertRegex(second[0][1], r"^too early to tell: \d batches so far; at the end of the last epoch it was ")
        self.assertEqual({name for name, _ in all_three},
                         {label, label + " 2", "train.py: Subset of ImageFolder"})
        self.assertEqual([name for name, _ in third], [label + " 2"])  # nobody has it any more

    def script_of(self, *command, **popen):
        ask = "from dloaderd import _label; print(_label.script())"
        done = subprocess.run([sys.executable, *[ask if word == "ASK" else word for word in command]],
                              env={**self.environ, "PYTHONPATH": f"{PACKAGE}:{self.folder}"}, text=True,
                              stdout=subprocess.PIPE, timeout=300, check=True, **popen)
        return done.stdout.strip()

    def test_programs_without_a_file(self):
        ask = "from dloaderd import _label; print(_label.script())"
        package = self.folder / "mytrainer"
        package.mkdir()
        (package / "__main__.py").write_text(ask, encoding="utf-8")
        (package / "tune.py").write_text(ask, encoding="utf-8")
        self.assertEqual(self.script_of("-c", "ASK"), "python")
        self.assertEqual(self.script_of("-", input=ask), "python")
        self.assertEqual(self.script_of("-m", "mytrainer"), "mytrainer")
        self.assertEqual(self.script_of("-m", "mytrainer.tune"), "tune.py")

    def test_any_name_becomes_a_label(self):
        from dloaderd import _label

        class Dataset:
            pass

        for name, want in (("Ünïcode", "Ünïcode"), ("a  b\n c", "a b c"), ("a\x1b[31mb\x9b", "a?[31mb?"),
                           ("ж" * 200, "ж" * 45)):
            Dataset.__name__ = name
            said = _label._one_line(_label._dataset(Dataset()))
            self.assertEqual(said, want)
