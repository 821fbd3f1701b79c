"""A spec of each line of tests/integration/digest_datasets.py, and what digests two dlctl say of them."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("integration", "lib")]

import digest_datasets  # noqa: E402
import dltest  # noqa: E402

# In the system: the digest of each spec in the folder, by the programs of an unpacked wheel.
SCRIPT = """
export DLOADER_LOCAL_MODULE=$2/dlclient-local.module
for spec in "$1"/*.yaml; do
    echo "# $spec"
    "$2/bin/dlctl" check "$spec" --digest --json 2>&1
done
"""
# What is compiled for one processor, what no wheel has, and what the bare system has no library for.
LEFT_OUT = ("plugin", "sentencepiece", "libhdf5")
PACKAGED = [pathlib.Path("/usr/share/datasets")]  # what some lines read, of Debian's packages
SAMPLERS = {False: {"kind": "random", "order": "native"}, True: {"kind": "sequential"}}  # iterable?


class Case(dltest.TestCase):
    """What the lines make their files by, in a folder that stays."""

    def __init__(self, folder):
        super().__init__()
        self.dir = str(folder)


def digest_of(text):
    """The digest; else the words: what is left out of either build is refused alike."""
    try:
        return json.loads(text.splitlines()[-1])["digest"]
    except (ValueError, IndexError, KeyError):
        return text.strip()


def write(case, name, kind, make):
    return case.spec(name, name=name, seed=77, dataset={"kind": kind, **make(case)}, batch={"size": 4},
                     sampler=SAMPLERS[name in digest_datasets.ITERABLE],
                     collate=digest_datasets.COLLATES.get(name, {}), workers={"count": 1})


def make(folder):
    """{name: what this machine's own dlctl says}."""
    os.environ.update(HUGGINGFACE="1", TIFF="1", WEBP="1")
    folder.mkdir()
    case, said = Case(folder), {}
    for name, kind, maker in digest_datasets.DATASETS:
        if any(word in name for word in LEFT_OUT):
            continue
        try:
            spec = write(case, name, kind, maker)
        except unittest.SkipTest:
            continue
        done = subprocess.run([dltest.DLCTL, "check", spec, "--digest", "--json"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        said[name] = digest_of(done.stdout)
    return said


def heard(done):
    """{name: what dlctl said in the system}."""
    parts = done.stdout.split("# ")[1:]
    return {pathlib.PurePath(head).stem: digest_of(rest) for head, _, rest in (part.partition("\n") for part in parts)}
