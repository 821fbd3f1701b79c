"""Every kind of dataset gives from servers that others wrote what it gives of a local copy: those of
tests/lib/object_stores.py that are installed. All check signatures. Where runs have turns, each meets a fourth of the
kinds: test_remote_files has all of them, from a server of its own."""

import os
import unittest

import test_remote_files
from digest_datasets import DATASETS
from dltest import dlctl
from tap import tries
from object_stores import MOTO, NGINX, RADOSGW, RCLONE, SWIFT, WEED, Ceph, Moto, Nginx, Rclone, Swift, Weed


def needs_list(value):
    """Whether a dataset's files are found by a pattern, or are whatever is in a directory."""
    if isinstance(value, dict):
        return any(map(needs_list, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(needs_list, value))
    return isinstance(value, str) and ("*" in value or (
        os.path.isdir(value) and not os.path.exists(os.path.join(value, "index.json"))))


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
        spec = self.spec("refused", dataset={"kind": "npy", "paths": f"{self.PLACE}/none.npy"})
        done = dlctl("run", spec, daemon=daemon, check=False)
        daemon.stop()
        self.assertRegex(done.stderr, "SignatureDoesNotMatch|status 403")

    def all_from(self, make):
        server = make(self)
        self.assert_signatures_are_checked(server)
        self.read_all(server)

    def read_all(self, server):
        daemon = self.daemon({"linger": "0s"}, env=server.environment)
        self.dir = self.path("data")
        for name, kind, keys in map(DATASETS.__getitem__, tries(len(DATASETS))):
            if kind in test_remote_files.LOCAL or name in test_remote_files.LOCAL_ROWS:
                continue
            with self.subTest(dataset=name):
                made = keys(self)
                if not server.lists and needs_list(made):
                    continue
                server.bring()
                want, have = self.digests(daemon, name, kind, lambda _, made=made: made)
                self.assertEqual(have, want)

    @unittest.skipUnless(RCLONE, "no rclone")
    def test_rclone(self):
        self.all_from(Rclone)

    @unittest.skipUnless(WEED, "no SeaweedFS")
    def test_seaweedfs(self):
        self.all_from(Weed)

    @unittest.skipUnless(WEED, "no SeaweedFS")
    def test_google(self):
        """gs:// of an endpoint of one's own; that of s3:// is another."""
        server = Weed(self)
        endpoint = server.environment.pop("AWS_ENDPOINT_URL")
        server.environment.update(CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE=endpoint,
                                  AWS_ENDPOINT_URL="http://127.0.0.1:9")
        self.PLACE = "gs://bucket"
        self.assert_signatures_are_checked(server)
        self.read_all(server)

    @unittest.skipUnless(NGINX, "no nginx")
    def test_nginx(self):
        """https:// by an authority of one's own."""
        server = Nginx(self)
        self.PLACE = server.url
        self.read_all(server)

    @unittest.skipUnless(NGINX, "no nginx")
    def test_redirects(self):
        server = Nginx(self)
        self.PLACE = f"{server.url}/moved"
        self.read_all(server)

    @unittest.skipUnless(MOTO, "no moto")
    def test_moto(self):
        self.all_from(Moto)

    @unittest.skipUnless(SWIFT, "no Swift")
    def test_swift(self):
        self.all_from(Swift)

    @unittest.skipUnless(RADOSGW, "no radosgw, ceph-mon and ceph-osd")
    def test_ceph(self):
        self.all_from(Ceph)
