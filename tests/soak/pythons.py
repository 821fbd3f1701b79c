"""Python in the soak: the interpreter for datasets, of a daemon that may be sanitized, and trainers."""

import glob
import os
import pathlib
import re
import shlex
import subprocess

import crew

PYTHON = "/usr/bin/python3"
TRAINER = str(pathlib.Path(__file__).with_name("pytrainer.py"))


def can_import(module):
    return subprocess.run([PYTHON, "-c", f"import {module}"],
                          stderr=subprocess.DEVNULL).returncode == 0


def can_host(package):
    """Whether it is there, with all that datasets in Python need."""
    return bool(glob.glob(os.path.join(package, "dloaderd", "_client*.so"))) and can_import("numpy")


def library(compiler, name):
    path = subprocess.run([*compiler, f"-print-file-name={name}"], stdout=subprocess.PIPE, text=True,
                          check=True).stdout.strip()
    return os.path.realpath(path) if os.path.isabs(path) else None


def is_sanitized(program):
    with open(program, "rb") as file:
        return b"__asan_init" in file.read()


def preloaded():
    """Python itself knows nothing of sanitizers: their library has to be there before all others. ""
    where there are none.
    """
    if not is_sanitized(os.environ["DLOADERD"]):
        return ""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    return " ".join(filter(None, [library(compiler, "libasan.so"),
                                  library(compiler, "libstdc++.so.6")]))


def interpreter(directory):
    preload = preloaded()
    if not preload:
        return PYTHON
    path = os.path.join(directory, "python")
    if not os.path.exists(path):
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\nASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" "
                       f"LD_PRELOAD=\"{preload}\" exec {PYTHON} \"$@\"\n")
        os.chmod(path, 0o755)
    return path


def environment(package, directory):
    """Of a trainer in Python."""
    env = {**os.environ, "DLOADER_RECONNECT": str(crew.LOOKS_FOR_A_DAEMON), "PYTHONPATH": package,
           "XDG_RUNTIME_DIR": directory,
           "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    return {**env, "LD_PRELOAD": preloaded()} if preloaded() else env


class PythonRank(crew.Rank):
    lives = 6  # it takes seconds until it has imported what it needs

    def command(self):
        one = self.crew
        return [PYTHON, TRAINER, "loader", one.socket, one.spec_path, self.path, str(one.epoch),
                str(one.epochs), str(self.rank), str(one.world)]


class PythonCrew(crew.Crew):
    """Of dloaderd.Loader, for recipes whose samples are their own indices."""

    rank_type = PythonRank

    def __init__(self, directory, socket, recipe, label, *args, **options):
        super().__init__(directory, socket, recipe, label, *args, **options)
        # Its ranks belong to no job: there may be no others that read the same loader.
        self.spec_path = recipe.write(directory, label)

    def as_written(self, lines):
        return [re.sub(r"^(\d+) \S+", r"\1 -", line) for line in lines]

    def as_read(self, lines):
        return [line.partition(" | ")[0] for line in lines]


class DropInRank(crew.Rank):
    """A trainer whose daemon is its own, and which checks by itself what it gets."""

    lives = 3

    def size(self):
        return self.starts  # it has no file that would grow

    def command(self):
        return [PYTHON, TRAINER, "dataloader", str(self.crew.epoch)]


class DropIn(crew.Crew):
    rank_type = DropInRank

    def check(self, reference):
        return []
