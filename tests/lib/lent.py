"""Helpers, as tests start them: dloaderd --helper, a way to it that can be cut, and a daemon that has some."""

import contextlib
import json
import os
import pathlib
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import dltest
from dltest import TestCase, children_of, dlctl_json, view_of, wait_until
from web import fetchers_of

SECRET = "0123456789abcdef0123456789abcdef"
PLACE = re.compile(r"lends up to \d+ workers at (\S+)")


class Helper:
    """dloaderd --helper, or by its configuration; that and its log are files in `directory`. `user`: another one."""

    def __init__(self, directory, config, address="127.0.0.1:0", env=None, user=None):
        directory.mkdir(exist_ok=True)
        place = [] if config["helpers"].get("lend_at") else ["--helper", address]
        other = [f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        (directory / "dloaderd.conf").write_text(json.dumps(config))
        self.log_path = directory / "log"
        with open(self.log_path, "ab") as log:
            # It needs no client, and would stay where a test is killed.
            self.process = subprocess.Popen(
                ["setpriv", *other, "--pdeathsig", "TERM", dltest.DLOADERD, *place, "--config",
                 str(directory / "dloaderd.conf")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **(env or {})})
        wait_until(lambda: self.process.poll() is not None or PLACE.search(self.log), "the helper to listen")
        if not PLACE.search(self.log):
            raise AssertionError(self.log)
        self.address = PLACE.findall(self.log)[-1]

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    @property
    def ends(self):
        """The processes that serve a connection each."""
        return [pid for pid in children_of(self.process.pid) if pid not in self.fetchers]

    @property
    def workers(self):
        """What the ends have started."""
        return [pid for end in self.ends for pid in children_of(end)]

    @property
    def fetchers(self):
        return list(fetchers_of(self))

    def end(self, how=signal.SIGTERM):
        children = children_of(self.process.pid)
        self.process.send_signal(how)
        self.process.wait(dltest.PATIENCE)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children), "its processes to end")


class Authority:
    """Who signs certificates: helpers.certificate and the keys beside it, of each name."""

    def __init__(self, directory):
        self.dir = directory
        directory.mkdir()
        self.make("req", "-x509", "-days", "2", "-subj", "/CN=authority", "-out", "authority.pem",
                  *self.key("authority"))

    def make(self, *args):
        subprocess.run(["openssl", *args], cwd=self.dir, check=True, capture_output=True, stdin=subprocess.DEVNULL)

    def key(self, name):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]

    def issue(self, name):
        self.make("req", "-subj", f"/CN={name}", "-out", f"{name}.csr", *self.key(name))
        self.make("x509", "-req", "-days", "2", "-in", f"{name}.csr", "-CA", "authority.pem", "-CAkey", "authority.key",
                  "-CAcreateserial", "-out", f"{name}.pem")
        files = {"certificate": f"{name}.pem", "key": f"{name}.key", "authority": "authority.pem"}
        return {key: str(self.dir / file) for key, file in files.items()}


class Passing:
    """A socket to which everything passes by `take`."""

    def __init__(self, sock, take):
        self.sock, self.take = sock, take

    def sendall(self, data):
        self.take(self.sock, data)

    def __getattr__(self, name):
        return getattr(self.sock, name)

    def __hash__(self):
        return hash(self.sock)

    def __eq__(self, other):
        return self.sock == getattr(other, "sock", other)


class Way:
    """A way to a helper that can be cut: then nothing passes, and nobody hears of it. `heard`: what passed first."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.target = (host, int(port))
        self.cut = threading.Event()
        self.sides = []
        self.heard = b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.wake, self.end = socket.socketpair()
        self.thread = threading.Thread(target=self.carry)
        self.thread.start()

    def carry(self):
        other = {}
        while True:
            ready, _, _ = select.select([self.end, self.listener, *other], [], [])
            if self.end in ready:
                break
            for one in ready:
                if one is self.listener:
                    self.join(self.listener.accept()[0], other)
                    continue
                if one not in other:
                    continue
                if self.cut.is_set():
                    other.pop(one)  # whatever it says stays there
                    continue
                try:
                    data = one.recv(1 << 16)
                    self.heard += data[:max(4096 - len(self.heard), 0)]
                    other[one].sendall(data)
                except (OSError, KeyError):
                    data = b""
                if not data:
                    for side in (one, other.pop(one)):
                        other.pop(side, None)
                        with contextlib.suppress(OSError):
                            side.shutdown(socket.SHUT_RDWR)

    def join(self, near, other):
        self.sides.append(near)
        try:
            far = socket.create_connection(self.target)
        except ConnectionRefusedError:
            near.shutdown(socket.SHUT_RDWR)
            return
        self.sides.append(far)
        other.update({near: far, far: near})

    def close(self):
        self.wake.send(b".")
        self.thread.join()
        for one in (self.listener, self.wake, self.end, *self.sides):
            one.close()


class HelperCase(TestCase):
    def setUp(self):
        super().setUp()
        self.secret = pathlib.Path(self.path("secret"))
        self.secret.write_text(SECRET + "\n")

    def helper(self, name="helper", address="127.0.0.1:0", env=None, user=None, **config):
        own = {"secret_file": str(self.secret), **config.pop("helpers", {})}
        helper = Helper(pathlib.Path(self.path(name)), {"helpers": own, **config}, address, env, user)
        self.addCleanup(lambda: helper.process.poll() is None and helper.end())
        return helper

    def helped(self, addresses, workers=1, directory="daemon", env=None, **config):
        """A daemon with so many workers on these, whose own workers are slow."""
        plan = self.path("slow-always-1")
        if not os.path.lexists(plan):
            os.symlink(dltest.BAD_WORKER, plan)
        os.mkdir(self.path(directory))
        helpers = {"addresses": addresses, "count": workers, "secret_file": str(self.secret)}
        daemon = dltest.Daemon(self.path(directory), {"worker": plan, "sandbox": "off", "linger": "0s",
                                                      "helpers": helpers, **config}, env=env)
        self.addCleanup(daemon.stop)
        return daemon

    def rows(self, daemon, name):
        return [row for row in view_of(daemon, "workers") if row["loader"] == name]

    def away(self, daemon, name):
        return [row for row in self.rows(daemon, name) if row["helper"]]

    def wait_for(self, daemon, name, count):
        wait_until(lambda: sum(row["state"] == "ready" for row in self.away(daemon, name)) == count,
                   lambda: f"{count} of {self.rows(daemon, name)} to be ready:\n{daemon.log[-3000:]}")

    def range(self, name, length=300, **spec):
        return self.spec(name, **{"name": name, "seed": 7, "dataset": {"kind": "range", "length": length},
                                  "sampler": {"kind": "random"}, "batch": {"size": 2},
                                  "workers": {"count": 1, "retries": 100}, **spec})

    def run_while(self, daemon, spec, name, count, do, check=True):
        """Loads the spec while `do` is done: once helpers have done some of it. What dlctl says of it, and of the
        same without a daemon."""
        with self.client(daemon) as client, ThreadPoolExecutor(1) as pool:
            client.open(json.loads(pathlib.Path(spec).read_text()))
            self.wait_for(daemon, name, count)
            run = pool.submit(dlctl_json, "run", spec, "--digest", daemon=daemon)
            wait_until(lambda: sum(row["tasks"] for row in self.away(daemon, name)) > 4, "helpers to work")
            do()
            return run.result(), dlctl_json("check", spec, "--digest") if check else None

    def assert_same(self, run, check):
        for key in ("digest", "batches", "samples", "bytes", "length", "steps"):
            self.assertEqual(run[key], check[key], key)


class PythonHelperCase(HelperCase):
    """Helpers that run Python: `module` is the text of a module that they can import, `module_name` its name."""

    module, module_name = "", ""

    def setUp(self):
        super().setUp()
        self.modules = self.folder("modules")
        self.interpreter = self.path("python")
        preload, options = (shlex.quote(os.environ.get(name, "")) for name in ("LD_PRELOAD", "ASAN_OPTIONS"))
        pathlib.Path(self.interpreter).write_text(
            f"#!/bin/sh\nexport LD_PRELOAD={preload} ASAN_OPTIONS={options}\nexec {sys.executable} \"$@\"\n")
        os.chmod(self.interpreter, 0o755)

    def folder(self, name):
        """Of the module."""
        folder = pathlib.Path(self.path(name))
        folder.mkdir()
        (folder / f"{self.module_name}.py").write_text(self.module)
        return folder

    def config(self, folder=None, **config):
        """Of a daemon whose Python finds what that folder has."""
        path = [str(folder or self.modules), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
        return {"python": [self.interpreter], "python_path": path, **config}
