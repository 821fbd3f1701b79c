"""Every kind of dataset gives from servers that others wrote what it gives of a local copy: SeaweedFS and rclone, whose
signatures are checked, where they are installed ($WEED, $RCLONE, or as weed and rclone)."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import unittest
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import test_remote_files  # noqa: E402
from bucket import ENVIRONMENT, KEY, SECRET  # noqa: E402
from digest_datasets import DATASETS  # noqa: E402
from dltest import dlctl, main, wait_until  # noqa: E402

WEED = os.environ.get("WEED") or shutil.which("weed")
RCLONE = os.environ.get("RCLONE") or shutil.which("rclone")


def free_ports(count):
    """Whose gRPC's, 10,000 above, are free, too."""
    with contextlib.ExitStack() as stack:
        found = []
        while len(found) < count:
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port + 10000))
                found.append(port)
        return found


class Server:
    """What a reader's environment has to have; and what is to be done before it reads."""

    def __init__(self, case, *command):
        self.log = case.path("server.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        case.addCleanup(self.stop)
        self.environment = dict(ENVIRONMENT)

    def told(self, pattern):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return re.search(pattern, file.read())

    def wait_until_told(self, pattern):
        wait_until(lambda: self.process.poll() is not None or self.told(pattern), lambda: f"{pattern} in {self.log}")
        found = self.told(pattern)
        if not found:
            raise AssertionError(f"{self.log}: the server has ended")
        return found

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Rclone(Server):
    """Of a folder whose folders are buckets."""

    def __init__(self, case):
        os.makedirs(case.path("served"))
        os.symlink(case.path("data"), case.path("served/bucket"))
        super().__init__(case, RCLONE, "serve", "s3", "--addr", "127.0.0.1:0", "--auth-key", f"{KEY},{SECRET}",
                         "--copy-links", "--dir-cache-time", "0s", "--poll-interval", "0", case.path("served"))
        self.environment["AWS_ENDPOINT_URL"] = self.wait_until_told(r"http://127.0.0.1:\d+/")[0]

    def bring(self):
        pass


class Weed(Server):
    """With a filer, by which files get into the bucket."""

    def __init__(self, case):
        master, volume, filer, s3 = free_ports(4)
        os.makedirs(case.path("weed"))
        identity = {"name": "reader", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                    "actions": ["Read", "List"]}
        with open(case.path("s3.json"), "w", encoding="utf-8") as file:
            json.dump({"identities": [identity]}, file)
        super().__init__(case, WEED, "server", f"-dir={case.path('weed')}", "-ip=127.0.0.1", f"-master.port={master}",
                         f"-volume.port={volume}", "-volume.max=4", "-filer", f"-filer.port={filer}", "-s3",
                         f"-s3.port={s3}", f"-s3.config={case.path('s3.json')}", "-master.volumeSizeLimitMB=64")
        self.environment["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{s3}"
        self.data, self.filer, self.there = case.path("data"), filer, {}
        wait_until(lambda: self.put("ready", b"x") == 201, lambda: f"the server to take a file: {self.log}")

    def put(self, name, data):
        connection = http.client.HTTPConnection("127.0.0.1", self.filer)
        try:
            connection.request("PUT", "/buckets/bucket/" + urllib.parse.quote(name), data)
            return connection.getresponse().status
        except OSError:
            return None
        finally:
            connection.close()

    def bring(self):
        for folder, _, names in os.walk(self.data):
            for name in names:
                path = os.path.join(folder, name)
                of = os.stat(path)
                if self.there.get(path) != (of.st_mtime_ns, of.st_size):
                    with open(path, "rb") as file:
                        assert self.put(os.path.relpath(path, self.data), file.read()) == 201, path
                    self.there[path] = of.st_mtime_ns, of.st_size


class Stores(test_remote_files.RemoteCase):
    """Files are in a folder of their own, beside what a server needs."""

    digests = test_remote_files.Kinds.digests

    def setUp(self):
        super().setUp()
        os.makedirs(self.path("data"))

    def make_bucket(self, **how):
        return None

    def assert_signatures_are_checked(self, server):
        daemon = self.daemon({"linger": "0s"}, env={**server.environment, "AWS_SECRET_ACCESS_KEY": "another"})
        spec = self.spec("refused", dataset={"kind": "npy", "paths": "s3://bucket/none.npy"})
        done = dlctl("run", spec, daemon=daemon, check=False)
        daemon.stop()
        self.assertRegex(done.stderr, "SignatureDoesNotMatch|status 403")

    def all_from(self, make):
        server = make(self)
        self.assert_signatures_are_checked(server)
        daemon = self.daemon({"linger": "0s"}, env=server.environment)
        self.dir = self.path("data")
        for name, kind, keys in DATASETS:
            if kind in test_remote_files.LOCAL or name in test_remote_files.LOCAL_ROWS:
                continue
            with self.subTest(dataset=name):
                made = keys(self)
                server.bring()
                want, have = self.digests(daemon, name, kind, lambda _, made=made: made)
                self.assertEqual(have, want)

    @unittest.skipUnless(RCLONE, "no rclone")
    def test_rclone(self):
        self.all_from(Rclone)

    @unittest.skipUnless(WEED, "no SeaweedFS")
    def test_seaweedfs(self):
        self.all_from(Weed)


if __name__ == "__main__":
    main()
