"""What PyPI serves today of the packages that C knows: which of them C does the work of, and whether it does it right.

    compat.py [--keep] VENV BUILD       VENV: where they are installed, anew, or, to be kept, have been;
                                        BUILD: a build with the Python package

Prints a table: package; the newest version of it; the one that goes with the newest others; whether it is in
_versions.py; who makes its samples, and why; and what its tests said, in quick mode, with all versions taken for known
ones. Exit status 1: C does the work of something and its tests fail.
"""

import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
PATIENCE = 3600  # seconds, of one file of tests; an installation has four times as long
# The tests that compare C with the package.
ORACLES = {
    "torch": ["test_torch_collate", "test_torch_rules"], "torchvision": ["test_with_torchvision"],
    "pillow": [], "datasets": ["test_with_datasets", "test_with_buckets"],
    "transformers": ["test_with_tokenizers", "test_with_transformers"],
    "webdataset": ["test_with_webdataset", "test_with_buckets"],
    "mosaicml-streaming": ["test_with_streaming", "test_with_buckets"], "litdata": ["test_with_litdata"],
    "accelerate": ["test_with_accelerate"], "lightning": ["test_with_lightning"],
}
# What names older versions of the others than it works with, and what it needs besides.
ALONE = {"mosaicml-streaming": ["brotli", "catalogue", "cramjam", "python-snappy", "zstd"]}

# What is served counts, whatever a machine's own configuration of pip holds back.
PIP = {**os.environ, "PIP_CONSTRAINT": os.devnull}


def run(*command, patience=PATIENCE, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=patience, **options)


def install(venv):
    """Those that go together at once, so that pip finds such versions."""
    run(sys.executable, "-m", "venv", "--clear", venv, check=True)
    # Most modules of theirs are never imported.
    pip = f"{venv}/bin/pip", "install", "-q", "--no-compile"
    run(*pip, "numpy", *(one for one in ORACLES if one not in ALONE), patience=4 * PATIENCE, check=True,
        env=PIP)
    run(*pip, "--no-deps", *itertools.chain.from_iterable([one, *needs] for one, needs in ALONE.items()), check=True,
        env=PIP)


def newest(venv, package):
    told = run(f"{venv}/bin/pip", "index", "versions", package, stderr=subprocess.DEVNULL).stdout
    found = re.search(r"\(([^)]+)\)", told)
    return found[1] if found else "?"


def installed(venv):
    told = json.loads(run(f"{venv}/bin/pip", "list", "--format=json", check=True).stdout)
    return {one["name"].lower().replace("_", "-"): one["version"] for one in told}


def environment(venv, build):
    build = pathlib.Path(build).resolve()
    return {**os.environ, "BUILD": str(build), "DLCTL": str(build / "client/dlctl/dlctl"),
            "DLOADERD": str(build / "daemon/dloaderd"), "DLOADER_SANITIZERS": "none",
            "DLOADER_LOCAL_MODULE": str(next(build.rglob("dlclient-local.so"))), "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(pathlib.Path(venv, "compiled").resolve()),
            "PYTHONPATH": str(build / "client/python")}


def lowered(venv, env):
    """By package: whether its version is known, who makes its samples, and why."""
    told = run(f"{venv}/bin/python", "-P", str(TESTS / "tools/lowered_today.py"), env=env).stdout
    return {line[0]: line[1:] for line in map(json.loads, told.splitlines())}


def tried(venv, env, name):
    """Cases that passed, failed and were skipped."""
    try:
        told = run(f"{venv}/bin/python", str(TESTS / "lib/tap.py"), str(TESTS / f"python/{name}.py"),
                   env={**env, "DLOADER_TEST_ANY_VERSION": "1", "DLOADER_TEST_QUICK": "1"}, stderr=subprocess.DEVNULL
                   ).stdout
    except subprocess.TimeoutExpired as late:
        told = (late.stdout or b"").decode(errors="replace")
    print(told, file=sys.stderr)
    skipped = len(re.findall(r"^ok .*# SKIP", told, re.MULTILINE))
    ended = re.search(r"^1\.\.\d", told, re.MULTILINE)
    return (len(re.findall(r"^ok ", told, re.MULTILINE)) - skipped,
            len(re.findall(r"^not ok ", told, re.MULTILINE)) + (not ended), skipped)


def verdict(counts):
    passed, failed, skipped = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0)
    if not passed + failed:
        return f"{skipped} skipped" if skipped else "by its user's"
    return (f"different: {failed} of {passed + failed} failed" if failed else f"equal: {passed} passed") + \
        (f", {skipped} skipped" if skipped else "")


def rows(venv, build):
    env = environment(venv, build)
    have, who = installed(venv), lowered(venv, env)
    for package, names in ORACLES.items():
        known, by, why = who[package]
        yield (package, newest(venv, package), have.get(package, "?"), "yes" if known else "no", by,
               verdict([tried(venv, env, name) for name in names]), why)


def main(venv, build, keep):
    if not keep:
        install(venv)
    table = [("package", "newest", "tried", "known", "samples by", "tests", "why"), *rows(venv, build)]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]) - 1)]
    for row in table:
        print(*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[-1], sep="  ")
    return any(row[4] == "C" and row[5].startswith("different") for row in table)


if __name__ == "__main__":
    kept = "--keep" in sys.argv
    paths = [arg for arg in sys.argv[1:] if arg != "--keep"]
    if len(paths) != 2:
        sys.exit("usage: compat.py [--keep] VENV BUILD")
    sys.exit(main(*paths, kept))
