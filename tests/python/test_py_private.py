"""The daemon of a process: started once, gone with it. Needs dloaderd in $DLOADERD.

Where the extension module is not built, a plain connection stands in for its client.
"""

import fcntl
import glob
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import dloaderd
import programs

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(dloaderd.__file__)))

FAKE = '''
import socket, sys, types
try:
    import dloaderd._client
except ImportError:
    class Client:
        def __init__(self, path, agent):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(path)
        def close(self):
            self.socket.close()
    import dloaderd
    dloaderd._client = sys.modules["dloaderd._client"] = types.ModuleType("dloaderd._client")
    dloaderd._client.Client = Client
from dloaderd import _private
'''
exec(FAKE)  # for this process as well
_private = sys.modules["dloaderd._private"]

# What the programs import, but for the extension module, whose absence is one of their cases.
MODULES = ("numpy", "torch", "dloaderd") if importlib.util.find_spec("torch") else ("numpy", "dloaderd")
HAS_DAEMON = bool(os.environ.get("DLOADERD"))


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def descendants(pid):
    """Children of all its threads, their children, and so on."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with open(path, encoding="utf-8") as children:
            found += map(int, children.read().split())
    return found + [pid for child in found for pid in descendants(child)]


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.environ = {**os.environ, "XDG_RUNTIME_DIR": self.folder.name, "PYTHONPATH": PACKAGE}
        self.environ.pop("DLOADER_SOCKET", None)

    def tearDown(self):
        self.folder.cleanup()

    def left(self):
        return glob.glob(self.folder.name + "/*")

    def start(self, code, **options):
        """A program, forked with what it imports."""
        return programs.start(["-c", FAKE + code], modules=MODULES, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=self.environ, **options)


class Sweep(InFolder):
    """What dead processes left is removed; in a shared folder others may have made what looks like it."""

    def make(self, name, lock=True):
        folder = os.path.join(self.folder.name, f"dloader-{os.geteuid()}-{name}")
        os.mkdir(folder, 0o700)
        if lock:
            with open(os.path.join(folder, "lock"), "w", encoding="utf-8"):
                pass
        return folder

    def sweep(self):
        """Names of what is left."""
        _, err = self.start(f"_private._sweep(_private._base(), 'dloader-{os.geteuid()}-')").communicate(timeout=300)
        self.assertEqual(err, "")
        return sorted(os.path.basename(path).split("-")[2] for path in self.left())

    def test_dead_and_new_ones(self):
        self.make("dead"), self.make("new", lock=False)
        held = open(os.path.join(self.make("alive"), "lock"), encoding="utf-8")
        with held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.assertEqual(self.sweep(), ["alive", "new"])

    def test_links(self):
        """To a file that this user has, and to a folder: neither is locked, nor is anything removed."""
        target = os.path.join(self.folder.name, "dloader-x-target")
        os.rename(self.make("first"), target)
        os.symlink(target, os.path.join(self.folder.name, f"dloader-{os.geteuid()}-link"))
        os.symlink(os.path.join(target, "lock"), os.path.join(self.make("linked", lock=False), "lock"))
        self.assertEqual(self.sweep(), ["link", "linked", "target"])
        self.assertEqual(os.listdir(target), ["lock"])

    @unittest.skipUnless(os.geteuid() == 0, "only root can give a folder away")
    def test_another_users(self):
        os.chown(self.make("folder"), 65534, 65534)
        os.chown(os.path.join(self.make("lock"), "lock"), 65534, 65534)
        self.make("mine")
        self.assertEqual(self.sweep(), ["folder", "lock"])

    @unittest.skipUnless(os.geteuid() == 0, "only root can give a folder away")
    def test_another_users_runtime_folder(self):
        """As su leaves it in the environment: nothing is put there, nor looked for."""
        os.chown(self.folder.name, 65534, 65534)
        out, err = self.start("print(_private._base())").communicate(timeout=300)
        self.assertEqual((out, err), (tempfile.gettempdir() + "\n", ""))


@unittest.skipUnless(HAS_DAEMON, "$DLOADERD is not set")
class RealDaemon(InFolder):
    def test_ends_with_its_process(self):
        child = self.start("c = _private.connect(None, 'x', private=True); "
                           "print(_private._daemon.process.pid, flush=True)")
        out, err = child.communicate(timeout=300)
        self.assertEqual(child.returncode, 0, err)
        self.assertTrue(wait_for(lambda: is_gone(int(out))))
        self.assertEqual(self.left(), [])

    def test_ends_with_a_killed_process_whose_folder_is_swept(self):
        child = self.start("c = _private.connect(None, 'x', private=True); "
                           "print(_private._daemon.process.pid, flush=True); sys.stdin.read()",
                           stdin=subprocess.PIPE)
        pid = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=300)
        self.assertTrue(wait_for(lambda: is_gone(pid)))
        self.assertEqual(len(self.left()), 1)
        _, err = self.start("_private.connect(None, 'x', private=True)").communicate(timeout=300)
        self.assertEqual((self.left(), err), ([], ""))

    def test_ends_with_a_killed_process_of_which_a_fork_lives_on(self):
        # The fork happens behind Python's back: the child has every connection of its parent.
        child = self.start('''
import ctypes, time
from dloaderd import DataLoader
batches = iter(DataLoader(list(range(1000)), num_workers=2))
next(batches), next(batches)  # one of each worker
fork = ctypes.CDLL(None).fork()
if fork == 0:
    time.sleep(3600)
print(_private._daemon.process.pid, fork, flush=True)
sys.stdin.read()
''', stdin=subprocess.PIPE)
        daemon, fork = map(int, child.stdout.readline().split())
        processes = [pid for pid in descendants(child.pid) if pid != fork]
        try:
            child.kill()
            child.wait()
            self.assertIn(daemon, processes)
            self.assertGreaterEqual(len(processes), 4)  # a host and two workers
            wait_for(lambda: all(map(is_gone, processes)))
            self.assertEqual([pid for pid in processes if not is_gone(pid)], [])
            self.assertFalse(is_gone(fork))
        finally:
            os.kill(fork, signal.SIGKILL)
            child.communicate(timeout=300)

    def test_a_living_ones_folder_stays(self):
        child = self.start("c = _private.connect(None, 'x', private=True); print(1, flush=True); "
                           "sys.stdin.read()", stdin=subprocess.PIPE)
        child.stdout.readline()
        self.start("_private.connect(None, 'x', private=True)").communicate(timeout=300)
        self.assertEqual(len(self.left()), 1)
        child.communicate(timeout=300)
        self.assertEqual(self.left(), [])

    def test_one_for_all_threads_and_another_for_a_fork(self):
        code = '''
import os, threading
seen = []
threads = [threading.Thread(target=lambda: seen.append(_private.private_daemon().process.pid))
           for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
assert len(seen) == 8 and len(set(seen)) == 1, seen
child = os.fork()
if child == 0:
    mine = _private.private_daemon().process.pid
    code = 3 if mine == seen[0] else 0
    _private._at_exit()
    os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert _private.private_daemon().process.pid == seen[0]
'''
        child = self.start(code)
        _, err = child.communicate(timeout=300)
        self.assertEqual((child.returncode, err, self.left()), (0, "", []))

    def test_prepared_ahead(self):
        """Constructing starts it, once; what never iterates leaves nothing, and is told nothing."""
        child = self.start('''
from dloaderd import DataLoader
assert _private._daemon is None
DataLoader([1, 2, 3])
assert _private._daemon is None
loader = DataLoader([1, 2, 3], num_workers=1)
daemon = _private._daemon
assert daemon.is_alive
DataLoader([1, 2, 3], num_workers=2)
assert _private._daemon is daemon
print(daemon.process.pid)
''')
        out, err = child.communicate(timeout=300)
        self.assertEqual((child.returncode, err, self.left()), (0, "", []))
        self.assertTrue(wait_for(lambda: is_gone(int(out))))

    def test_ends_at_once_though_a_batch_is_kept(self):
        """As by a loop's variable at the top of a script, which lives as long as the process."""
        child = self.start('''
from dloaderd import DataLoader, Loader
spec = {"dataset": {"kind": "range", "length": 100}, "batch": {"size": 10}}
with Loader(spec, as_="numpy") as loader:
    for batch in loader:
        pass
for another in DataLoader(range(100), batch_size=10, num_workers=1):
    pass
_private._daemon.process.terminate = lambda: print("it had to be told to end")
_private._at_exit()
assert batch.tolist() == another.tolist() == list(range(90, 100))
''')
        out, err = child.communicate(timeout=300)
        self.assertEqual((child.returncode, out, err, self.left()), (0, "", "", []))

    def test_prepared_and_forked(self):
        child = self.start('''
import os
from dloaderd import DataLoader
loader = DataLoader([1, 2, 3], num_workers=1)
child = os.fork()
if child == 0:
    assert _private._daemon is None
    os._exit(0 if len(list(loader)) == 3 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert len(list(loader)) == 3
''')
        _, err = child.communicate(timeout=300)
        self.assertEqual((child.returncode, err), (0, ""))

    def test_a_dead_one_is_started_again(self):
        child = self.start('''
import os, signal
from dloaderd import DaemonError, DataLoader
loader = DataLoader(range(1000), num_workers=1, persistent_workers=True)
iterator = iter(loader)
next(iterator)
first = _private.private_daemon()
os.kill(first.process.pid, signal.SIGKILL)
first.process.wait()
assert "killed by signal 9" in _private.obituary()
for _ in range(2):
    try:
        for _ in iterator:
            pass
    except DaemonError:
        continue
    raise AssertionError("it goes on")
assert len(list(loader)) == 1000
second = _private.private_daemon()
os.kill(second.process.pid, signal.SIGKILL)
second.process.wait()
_private.connect(None, "x", private=True)
assert _private.private_daemon() not in (first, second)
''')
        _, err = child.communicate(timeout=300)
        self.assertEqual((child.returncode, err, self.left()), (0, "", []))


class WithoutDaemon(InFolder):
    def failing(self, text, code, **environ):
        self.environ.update(environ)
        child = self.start(code)
        _, err = child.communicate(timeout=300)
        self.assertRegex(err, text)
        self.assertEqual(self.left(), [])
        # Merely prepared for, it says nothing.
        _, err = self.start("from dloaderd import DataLoader; "
                            "DataLoader([1], num_workers=1)").communicate(timeout=300)
        self.assertEqual((err, self.left()), ("", []))

    def test_none_there(self):
        code = "_private.connect(None, 'x', private=True)"
        self.environ.pop("DLOADERD", None)
        self.failing("DaemonError: there is no dloaderd; install", code, PATH="/nowhere")
        self.failing(r"\$DLOADERD: '/nowhere/d' is not an executable program", code, DLOADERD="/nowhere/d")

    def test_that_does_not_start(self):
        with tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False) as script:
            script.write("#!/bin/sh\necho 'the cat sat on it' >&2\nexit 3\n")
        os.chmod(script.name, 0o700)
        self.failing("did not start: it ended with status 3\n  dloaderd: the cat sat on it",
                     "_private.connect(None, 'x', private=True)", DLOADERD=script.name)
        os.unlink(script.name)

    def test_environment(self):
        environ = _private._environment()
        self.assertEqual(environ["DLOADER_PRELOAD"], "numpy,torch")
        self.assertIn(PACKAGE, environ["PYTHONPATH"].split(os.pathsep))
