"""A build of the release before this one, for the tests that have it talk to this one.

That is the last tag v* before this commit. It is built once, from its own source and its own build files, without
optional features, into .build/releases of the checkout that the tests are of.
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

UNITY = ["--unity=on", "--unity-size=8"]
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


def last_commit():
    """Raises LookupError, in words."""
    tag = last_tag()
    if tag is None:
        raise LookupError("no release is tagged before this commit; in a shallow clone: git fetch --unshallow --tags")
    return git("rev-parse", "--verify", "--quiet", tag + "^{commit}", check=True).stdout.decode().strip()


def library_of(source):
    version = re.search(r"version: '([^']+)'", (source / "meson.build").read_text(encoding="utf-8"))[1]
    return f"client/libdlclient.so.{version}"


def configure(source, tree):
    options = (source / "meson_options.txt").read_text()
    features = re.findall(r"option\('(\w+)', type: 'feature'", options)
    return ["meson", "setup", "--buildtype=plain", "-Dwerror=false", *UNITY,
            *(f"-D{feature}=disabled" for feature in features if feature != "python"), str(tree), str(source)]


def has_target(tree, name):
    return subprocess.run(["ninja", "-C", str(tree), "-t", "query", name], stdin=subprocess.DEVNULL,
                          capture_output=True).returncode == 0


def run(command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=BUILD_SECONDS)


def build(commit, place):
    """Its programs, library, Python package and trainer in `place`, where they lie as in its build."""
    with tempfile.TemporaryDirectory(dir=BUILDS) as folder:
        source, tree = pathlib.Path(folder, "source"), pathlib.Path(folder, "build")
        source.mkdir()
        archive = git("archive", commit, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
        library, package = library_of(source), "client/python/dloaderd"
        extensions = [f"{package}/{module}.abi3.so" for module in ("_client", "_worker")]  # where there is a Python.h
        trainer = ["cc", "-I", str(source), "-o", str(tree / TRAINER), str(source / "tests/integration/trainer.c"),
                   str(tree / library), "-Wl,-rpath,$ORIGIN"]
        run(configure(source, tree))
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


def find():
    """The folder with the release's programs. Skips the test where its source or a compiler is not there."""
    try:
        commit = last_commit()
    except LookupError as why:
        raise unittest.SkipTest(str(why)) from None
    place = BUILDS / commit
    for program in ("meson", "ninja", "cc"):
        if not place.exists() and not shutil.which(program):
            raise unittest.SkipTest(f"the last release cannot be built: there is no {program}")
    BUILDS.mkdir(parents=True, exist_ok=True)
    with open(BUILDS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            build(commit, place)
    return place
