"""Runs a file of unittest cases with several interpreters and prints one TAP for all of them.

    everywhere.py FILE

The interpreters are the one that runs this script and those of the colon-separated list
DLOADER_TORCH_PYTHONS; each case's name begins with what they have, as in "torch 2.13.0: ".
PYTHONPATH is the package's folder in the build tree BUILD. DLOADER_SANITIZERS and CC tell what the
modules were built with: Python itself knows nothing of sanitizers, so that their library has to be
there before all others.

If DLOADER_RELEASE_BUILD names a build tree without sanitizers, all interpreters but the first run with
what lies there: what their users have, in half the time. DLOADER_TEST_TORCH says that the file is about
PyTorch's interface. If it is "released", the first interpreter runs with that tree, too: a process with
PyTorch and the sanitizer takes three times as long to fork, and other files watch the same C. "programs" is
the same for files that are not about PyTorch's interface.

Of several interpreters the last runs the files whole. The others run as with DLOADER_TEST_QUICK, where a
file draws fewer cases at random or crosses less: what it crosses does not depend on the version of PyTorch.

With DLOADER_TEST_QUICK, what is not about PyTorch's interface runs with the first interpreter alone, and a file
that is about it and has DLOADER_TEST_QUICK_TORCH, a number, with one of them: the versions of PyTorch share those
files. With DLOADER_TEST_TURN, a number, a file runs with one of the interpreters, which have turns: what is about
PyTorch's interface every other time at least with the last. One about other packages, which few interpreters have, runs
with the last and one of the others: of a single one, half of the files have their turn.
"""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

TAP = pathlib.Path(__file__).resolve().parent.parent / "lib" / "tap.py"
CASE = re.compile(r"^(not ok|ok)\b\s*\d*\s*(?:- )?(.*)$")
PLAN = re.compile(r"^1\.\.\d+\s*(#.*)?$")

# Which torch there is, without the seconds that importing it takes.
ASK = """
import importlib.util, pathlib, sys
spec = importlib.util.find_spec("torch")
found = {}
if spec and spec.origin:
    exec(pathlib.Path(spec.origin).with_name("version.py").read_text(), found)
print(*sys.version_info[:2], found.get("__version__", ""))
"""


class Unusable(Exception):
    """An interpreter that no case can be run with; the text says why."""


def label(python):
    """What the cases' names begin with: "torch 1.13.1"; without torch, "Python 3.12"."""
    try:
        asked = subprocess.run([python, "-c", ASK], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unusable(f"{python} cannot be asked for its version: {error}") from None
    major, minor, *torch = asked.stdout.split()
    if (int(major), int(minor)) < (3, 11):
        raise Unusable(f"{python} is Python {major}.{minor}; the package needs 3.11")
    return f"torch {torch[0].split('+')[0]}" if torch else f"Python {major}.{minor}"


def library(compiler, name):
    """The path of one of the compiler's libraries; None: it has no such library."""
    path = subprocess.run([*compiler, f"-print-file-name={name}"], stdout=subprocess.PIPE,
                          text=True, timeout=60, check=True).stdout.strip()
    return os.path.realpath(path) if os.path.isabs(path) else None


def environment():
    """For the interpreters; raises Unusable if the sanitizer cannot be had."""
    env = dict(os.environ)
    if "address" not in env.get("DLOADER_SANITIZERS", ""):
        return env
    compiler = shlex.split(env.get("CC", "cc"))
    asan = library(compiler, "libasan.so")
    if asan is None:
        raise Unusable(f"{compiler[-1]} has no libasan.so to load before Python; build with gcc")
    # PyTorch throws C++ exceptions, which the sanitizer can catch only if it finds their library
    # from the beginning.
    env["LD_PRELOAD"] = " ".join(filter(None, [asan, library(compiler, "libstdc++.so.6")]))
    # Interpreters leave much behind on purpose; the C parts have unit tests that look for leaks.
    # Each fork copies the tables of all pages that freed memory, which is kept apart for a while, holds.
    env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0:quarantine_size_mb=8"
    env.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
    return env


def released(env):
    """The environment with the release build in place of this one."""
    here, there = env["BUILD"], env["DLOADER_RELEASE_BUILD"]
    env = {name: text.replace(here, there) for name, text in env.items()}
    return {**env, "DLOADER_SANITIZERS": "none"}


def about_torch():
    return os.environ.get("DLOADER_TEST_TORCH") in ("released", "sanitized")


def interpreters(path):
    """Those that run the file, this one first; and the one that runs it whole, if it is among them."""
    others = os.environ.get("DLOADER_TORCH_PYTHONS", "").split(":")
    pythons = list(dict.fromkeys([sys.executable, *filter(None, others)]))
    quick, turn = os.environ.get("DLOADER_TEST_QUICK"), os.environ.get("DLOADER_TEST_TURN")
    *others, last = pythons
    if about_torch():
        one = quick and os.environ.get("DLOADER_TEST_QUICK_TORCH")
        if turn and not quick:
            number = int(turn) + sum(path.stem.encode())
            if path.stem.startswith(("test_packages_", "test_with_")):
                at = number % max(2, len(others))
                return [*others[at:at + 1], last], last
            return {0: others[:1], 2: others[1:2]}.get(number % 4) or [last], last
    else:
        one = "0" if quick else turn
    chosen = [pythons[int(one) % len(pythons)]] if one else pythons
    return chosen, chosen[-1]


def is_released(python):
    """Whether it runs with the release build, if there is one."""
    if not {"BUILD", "DLOADER_RELEASE_BUILD"} <= os.environ.keys():
        return False
    return python != sys.executable or os.environ.get("DLOADER_TEST_TORCH") in ("released", "programs")


class Everywhere:
    """Numbers the lines of several runs, as if they were one."""

    def __init__(self, out=sys.stdout):
        self.out = out
        self.told = 0
        self.failed = 0

    def tell(self, line):
        print(line, file=self.out, flush=True)

    def case(self, verdict, text):
        self.told += 1
        self.failed += verdict != "ok"
        self.tell(f"{verdict} {self.told} - {text}")

    def relay(self, line, name):
        """True if the line ends a run."""
        if PLAN.match(line):
            return True
        case = CASE.match(line)
        if case:
            self.case(case.group(1), f"{name}: {case.group(2)}")
        else:
            self.tell(line if line.startswith("#") else f"# {line}")
        return False

    def run(self, python, path, env, kind=""):
        try:
            name = label(python) + kind
        except Unusable as why:
            self.case("ok", f"{path.stem} # SKIP {why}")
            return
        failed, ended = self.failed, False
        with subprocess.Popen([python, str(TAP), str(path)], stdout=subprocess.PIPE, text=True,
                              errors="replace", env=env) as runner:
            for line in runner.stdout:
                ended |= self.relay(line.rstrip("\n"), name)
        status = runner.returncode
        if not ended or (status and self.failed == failed):
            how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            self.case("not ok", f"{name}: {path.stem} ended early or badly, with {how}")

    def run_all(self, path):
        pythons, whole = interpreters(path)
        for python in pythons:
            quick = {} if python == whole else {"DLOADER_TEST_QUICK": "1"}
            if is_released(python):
                self.run(python, path, {**released(os.environ), **quick}, ", release")
                continue
            try:
                env = environment()
            except Unusable as why:
                self.case("ok", f"{path.stem} # SKIP {why}")
            else:
                self.run(python, path, {**env, **quick})
        self.tell(f"# ran with {', '.join(pythons)}")
        self.tell(f"1..{self.told}")
        return 1 if self.failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: everywhere.py FILE")
    sys.exit(Everywhere().run_all(pathlib.Path(sys.argv[1]).resolve()))
