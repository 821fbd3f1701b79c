"""The interpreter for datasets in Python, of a daemon that may be sanitized."""

import glob
import os
import shlex
import subprocess

PYTHON = "/usr/bin/python3"


def can_host(package):
    """Whether it is there, with all that datasets in Python need."""
    return bool(glob.glob(os.path.join(package, "dloader", "_client*.so"))) and subprocess.run(
        [PYTHON, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode == 0


def library(compiler, name):
    path = subprocess.run([*compiler, f"-print-file-name={name}"], stdout=subprocess.PIPE, text=True,
                          check=True).stdout.strip()
    return os.path.realpath(path) if os.path.isabs(path) else None


def is_sanitized(program):
    with open(program, "rb") as file:
        return b"__asan_init" in file.read()


def interpreter(directory):
    """Python itself knows nothing of sanitizers: their library has to be there before all others."""
    if not is_sanitized(os.environ["DLOADERD"]):
        return PYTHON
    compiler = shlex.split(os.environ.get("CC", "cc"))
    preload = " ".join(filter(None, [library(compiler, "libasan.so"),
                                     library(compiler, "libstdc++.so.6")]))
    path = os.path.join(directory, "python")
    if not os.path.exists(path):
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\nASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" "
                       f"LD_PRELOAD=\"{preload}\" exec {PYTHON} \"$@\"\n")
        os.chmod(path, 0o755)
    return path
