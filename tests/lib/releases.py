"""Builds of releases before this one, for the tests that have them talk to it.

RELEASES is the one place that names them: commits, as the project has no tags yet. Each is built once, from its own
source and its own build files, without optional features, into .build/releases of the checkout that the tests are of.
"""

import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILDS = ROOT / ".build/releases"

RELEASES = {
    "last": "ac933209a716e63d5f1d3ae5ed3edac832aa6765",
    # Of 2026-11-23: the last one that speaks version 1 of the protocol by the letter, where OPEN has five fields.
    "week": "ec50c0b99d1a5a8f148e9d614af47d00ec7b654d",
}
UNITY = {"last": ["--unity=on", "--unity-size=8"]}  # where the names of all files differ
PROGRAMS = ["daemon/dloaderd", "daemon/dloader-worker", "client/dlctl/dlctl"]
TRAINER = "client/trainer"
LIBRARY = "client/libdlclient.so.0.1.0"
PACKAGE = "client/python/dloader"
EXTENSIONS = [f"{PACKAGE}/_client.abi3.so", f"{PACKAGE}/_worker.abi3.so"]  # where there is a Python.h
# Two processors that others use, too, took 40 s.
BUILD_SECONDS = 240


def git(*args, **options):
    # Of another user's checkout, as in containers, git would do nothing.
    return subprocess.run(["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *args], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def configure(name, source, tree):
    options = (source / "meson_options.txt").read_text()
    features = re.findall(r"option\('(\w+)', type: 'feature'", options)
    return ["meson", "setup", "--buildtype=plain", "-Dwerror=false", *UNITY.get(name, []),
            *(f"-D{feature}=disabled" for feature in features if feature != "python"), str(tree), str(source)]


def has_target(tree, name):
    return subprocess.run(["ninja", "-C", str(tree), "-t", "query", name], stdin=subprocess.DEVNULL,
                          capture_output=True).returncode == 0


def run(command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=BUILD_SECONDS)


def build(name, place):
    """Its programs, library, Python package and trainer in `place`, where they lie as in its build."""
    with tempfile.TemporaryDirectory(dir=BUILDS) as folder:
        source, tree = pathlib.Path(folder, "source"), pathlib.Path(folder, "build")
        source.mkdir()
        archive = git("archive", RELEASES[name], check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
        trainer = ["cc", "-I", str(source), "-o", str(tree / TRAINER), str(source / "tests/integration/trainer.c"),
                   str(tree / LIBRARY), "-Wl,-rpath,$ORIGIN"]
        run(configure(name, source, tree))
        targets = [*PROGRAMS, LIBRARY, *(file for file in EXTENSIONS if has_target(tree, file))]
        run(["ninja", "-C", str(tree), *targets])
        run(trainer)
        made = pathlib.Path(folder, "made")
        shutil.copytree(source / PACKAGE, made / PACKAGE)
        for file in (*targets, TRAINER):
            (made / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tree / file, made / file)
        os.symlink(pathlib.Path(LIBRARY).name, made / "client/libdlclient.so.0")
        os.rename(made, place)


def find(name):
    """The folder with the release's programs. Skips the test where its source or a compiler is not there."""
    commit = RELEASES[name]
    place = BUILDS / commit
    if git("cat-file", "-e", commit + "^{commit}").returncode != 0 and not place.exists():
        raise unittest.SkipTest(f"{commit}, the release '{name}', is not in this clone: git fetch --unshallow")
    for program in ("meson", "ninja", "cc"):
        if not place.exists() and not shutil.which(program):
            raise unittest.SkipTest(f"the release '{name}' cannot be built: there is no {program}")
    BUILDS.mkdir(parents=True, exist_ok=True)
    with open(BUILDS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            build(name, place)
    return place
