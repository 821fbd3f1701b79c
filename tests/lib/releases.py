"""Builds of releases before this one, for the tests that have them talk to it.

RELEASES is the one place that names them: commits of before there were tags; "tagged" is the last tag v* before this
commit. Each is built once, from its own source and its own build files, without optional features, into
.build/releases of the checkout that the tests are of.
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
UNITY = ["--unity=on", "--unity-size=8"]
MIXED = ("week",)  # where files of one name would be compiled as one
PROGRAMS = ["daemon/dloaderd", "daemon/dloader-worker", "client/dlctl/dlctl"]
TRAINER = "client/trainer"
# Two processors took 40 s. It ends what hangs, not what others slow down.
BUILD_SECONDS = 1800


def git(*args, **options):
    # Of another user's checkout, as in containers, git would do nothing.
    return subprocess.run(["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *args], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def last_tag():
    """None: no tag v* before this commit."""
    done = git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^", check=False)
    return done.stdout.decode().strip() if done.returncode == 0 else None


def commit_of(name):
    """Raises LookupError, in words."""
    named = last_tag() if name == "tagged" else RELEASES[name]
    if named is None:
        raise LookupError("no release is tagged before this commit")
    done = git("rev-parse", "--verify", "--quiet", named + "^{commit}", check=False)
    if done.returncode != 0:
        raise LookupError(f"{named}, the release '{name}', is not in this checkout; in a clone: git fetch --unshallow")
    return done.stdout.decode().strip()


def library_of(source):
    version = re.search(r"version: '([^']+)'", (source / "meson.build").read_text(encoding="utf-8"))[1]
    return f"client/libdlclient.so.{version}"


def package_of(source):
    return next(path for path in ("client/python/dloaderd", "client/python/dloader") if (source / path).is_dir())


def configure(name, source, tree):
    options = (source / "meson_options.txt").read_text()
    features = re.findall(r"option\('(\w+)', type: 'feature'", options)
    return ["meson", "setup", "--buildtype=plain", "-Dwerror=false", *([] if name in MIXED else UNITY),
            *(f"-D{feature}=disabled" for feature in features if feature != "python"), str(tree), str(source)]


def has_target(tree, name):
    return subprocess.run(["ninja", "-C", str(tree), "-t", "query", name], stdin=subprocess.DEVNULL,
                          capture_output=True).returncode == 0


def run(command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=BUILD_SECONDS)


def build(name, commit, place):
    """Its programs, library, Python package and trainer in `place`, where they lie as in its build."""
    with tempfile.TemporaryDirectory(dir=BUILDS) as folder:
        source, tree = pathlib.Path(folder, "source"), pathlib.Path(folder, "build")
        source.mkdir()
        archive = git("archive", commit, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
        library, package = library_of(source), package_of(source)
        extensions = [f"{package}/{module}.abi3.so" for module in ("_client", "_worker")]  # where there is a Python.h
        trainer = ["cc", "-I", str(source), "-o", str(tree / TRAINER), str(source / "tests/integration/trainer.c"),
                   str(tree / library), "-Wl,-rpath,$ORIGIN"]
        run(configure(name, source, tree))
        targets = [*PROGRAMS, library, *(file for file in extensions if has_target(tree, file))]
        run(["ninja", "-C", str(tree), *targets])
        run(trainer)
        made = pathlib.Path(folder, "made")
        shutil.copytree(source / package, made / package)
        for file in (*targets, TRAINER):
            (made / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tree / file, made / file)
        os.symlink(pathlib.Path(library).name, made / "client/libdlclient.so.0")
        os.rename(made, place)


def find(name):
    """The folder with the release's programs. Skips the test where its source or a compiler is not there."""
    try:
        commit = commit_of(name)
    except LookupError as why:
        raise unittest.SkipTest(str(why)) from None
    place = BUILDS / commit
    for program in ("meson", "ninja", "cc"):
        if not place.exists() and not shutil.which(program):
            raise unittest.SkipTest(f"the release '{name}' cannot be built: there is no {program}")
    BUILDS.mkdir(parents=True, exist_ok=True)
    with open(BUILDS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            build(name, commit, place)
    return place
