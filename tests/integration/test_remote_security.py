"""Whom the process that fetches talks to, and what it says there: no keys for another host, no network that URLs may
not lead to, no server without its certificate; and what it could do if it were broken into."""

import os
import re
import subprocess
import unittest

from dltest import TestCase, dlctl
from web import Web, fetchers_of

TOKEN = "hf_secret_of_the_tests"
QUIET = {"AWS_EC2_METADATA_DISABLED": "true"}


class SecurityCase(TestCase):
    def setUp(self):
        super().setUp()
        with open(self.npy("x.npy", (4, 4), "|u1", bytes(range(16))), "rb") as file:
            self.data = file.read()

    def web(self, paths, **how):
        web = Web(paths, **how)
        self.addCleanup(web.close)
        return web

    def ask(self, url, config=None, env=None):
        """(how many samples there are, what was said)"""
        daemon = self.daemon({"linger": "0s", **(config or {})}, env={**QUIET, **(env or {})})
        spec = self.spec("asked", dataset={"kind": "npy", "paths": url}, batch={"size": 2}, workers={"count": 1})
        done = dlctl("run", spec, "--json", daemon=daemon, check=False)
        daemon.stop()
        self.assertNotIn(TOKEN, done.stderr + daemon.log)
        return done.returncode, done.stderr

    def assert_read(self, url, config=None, env=None):
        self.assertEqual(self.ask(url, config, env), (0, ""))

    def assert_refused(self, url, *patterns, config=None, env=None):
        status, said = self.ask(url, config, env)
        self.assertEqual(status, 1)
        for pattern in (re.escape(url), *patterns):
            self.assertRegex(said, pattern)


class Networks(SecurityCase):
    def test_addresses(self):
        """Each is refused at once: nobody is asked, nor asked again."""
        for host in "169.254.169.254", "169.254.170.2", "[fe80::1]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", \
                "2852039166", "0xa9fea9fe", "100.100.100.200":
            with self.subTest(host=host):
                self.assert_refused(f"http://{host}/x.npy", "in a network that no URL may lead to: see remote.denied")

    def test_files(self):
        """No URL leads to this machine's files, whose names say so themselves where a spec may have them."""
        for url in f"file://{self.path('x.npy')}", f"FILE://localhost{self.path('x.npy')}", "file:///etc/passwd":
            with self.subTest(url=url):
                self.assert_refused(url, "s3://, gs://, hf://, https://|no such file")

    def test_names(self):
        web = self.web({"/x.npy": self.data})
        denied = {"remote": {"denied": ["127.0.0.0/8", "::1/128"]}}
        self.assert_refused(web.url("/x.npy", host="localhost"), "no URL may lead to", config=denied)
        self.assertEqual(web.asked, [])
        self.assert_read(web.url("/x.npy", host="localhost"))

    def test_redirects(self):
        web = self.web({"/x.npy": self.data, "/metadata": "http://169.254.169.254/latest/meta-data/",
                        "/file": "file:///etc/passwd", "/ftp": "ftp://127.0.0.1/x.npy", "/loop": "/loop"})
        web.paths["/other"] = web.url("/x.npy", host="127.0.0.2")
        denied = {"remote": {"denied": ["127.0.0.2/32"]}}
        for path, config, *patterns in (("/metadata", {}, "169.254.169.254 is in a network"), ("/file", {}, "file"),
                                        ("/ftp", {}, "ftp"), ("/loop", {}, "redirects"),
                                        ("/other", denied, "127.0.0.2 is in a network")):
            with self.subTest(path=path):
                web.asked.clear()
                self.assert_refused(web.url(path), *patterns, config=config)
                self.assertEqual({asked[1] for asked in web.asked}, {path})
                # Once expected, and once opened; what may pass would be asked for eight times each.
                self.assertLessEqual(len(web.asked), 12 if path == "/loop" else 2)
        self.assert_read(web.url("/other"))
        self.assert_read(web.url("/other"), config={"remote": {"denied": []}})


class Keys(SecurityCase):
    def test_hub(self):
        """Its token is for the hub alone, not for where that keeps its bytes."""
        for host, port in ("127.0.0.2", 0), ("127.0.0.1", 1):
            with self.subTest(host=host, port=port):
                store = self.web({"/bytes": self.data})
                hub = store if not port else self.web({})
                hub.paths["/datasets/o/n/resolve/main/x.npy"] = store.url("/bytes", host=host)
                self.assert_read("hf://datasets/o/n/x.npy", env={"HF_ENDPOINT": hub.url(""), "HF_TOKEN": TOKEN})
                asked = {path: headers.get("Authorization") for _, path, headers, _ in store.asked + hub.asked}
                self.assertEqual(asked, {"/datasets/o/n/resolve/main/x.npy": f"Bearer {TOKEN}", "/bytes": None})

    def test_signed(self):
        """A signed request is not sent on at all."""
        other = self.web({"/bucket/x.npy": self.data})
        store = self.web({"/bucket/x.npy": other.url("/bucket/x.npy")})
        for status in 301, 302, 307:
            with self.subTest(status=status):
                store.paths["/bucket/x.npy"] = lambda *_, status=status: (status, b"")
                self.assert_refused("s3://bucket/x.npy", str(status), env={
                    "AWS_ENDPOINT_URL": store.url(""), "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": TOKEN})
        store.paths["/bucket/x.npy"] = other.url("/bucket/x.npy")
        self.assert_refused("s3://bucket/x.npy", "302", env={
            "AWS_ENDPOINT_URL": store.url(""), "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": TOKEN})
        self.assertEqual(other.asked, [])
        self.assertIn("Authorization", store.asked[-1][2])


class Certificates(SecurityCase):
    def test_verified(self):
        """A server that shows another's certificate, or one that nobody vouches for, is asked for nothing."""
        pem = self.path("server.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=d",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", self.path("key"),
                        "-out", self.path("crt")], check=True, capture_output=True)
        with open(pem, "w") as file:
            for part in "key", "crt":
                with open(self.path(part)) as one:
                    file.write(one.read())
        web = self.web({"/x.npy": self.data}, certificate=pem)
        self.assert_refused(web.url("/x.npy", scheme="https"), "certificate")
        self.assertEqual(web.asked, [])
        self.assert_refused(web.url("/x.npy", scheme="https", host="127.0.0.2"), "certificate|subject",
                            env={"AWS_CA_BUNDLE": self.path("crt")})
        self.assertEqual(web.asked, [])
        self.assert_read(web.url("/x.npy", scheme="https"), env={"AWS_CA_BUNDLE": self.path("crt")})


class Confined(SecurityCase):
    def status_of(self, **config):
        daemon = self.daemon({"linger": "0s", **config}, env=QUIET)
        web = self.web({"/x.npy": self.data})
        client = self.client(daemon)
        client.open({"dataset": {"kind": "npy", "paths": web.url("/x.npy")}, "batch": {"size": 2},
                     "workers": {"count": 1}})
        status, = fetchers_of(daemon).values()
        client.close()
        daemon.stop()
        return {key: status[key].strip() for key in ("Seccomp", "NoNewPrivs")}

    @unittest.skipIf(os.environ.get("SECCOMP") == "0", "built without libseccomp")
    def test_status(self):
        """What it can still do: test_remote_confine.c."""
        self.assertEqual(self.status_of(), {"Seccomp": "2", "NoNewPrivs": "1"})
        self.assertEqual(self.status_of(sandbox="off"), {"Seccomp": "0", "NoNewPrivs": "1"})


class Bounds(SecurityCase):
    def test_answers(self):
        """What a server says is believed, and held, as far as that makes sense."""
        def lie(headers, _):
            last = int(re.fullmatch(r"bytes=0-(\d+)", headers["Range"])[1])
            return 206, bytes(last + 1), {"ETag": '"x"', "Content_Range": f"bytes 0-{last}/{2 ** 60}"}

        web = self.web({"/long": (200, b"x" * 5_000_000),
                        "/lines": (200, b"", {f"X-Line-{number}": "x" * 60_000 for number in range(10)}),
                        "/size": lie})
        for path, pattern in ("/long", "too long|whole object"), ("/lines", "too long"), ("/size", "remote.held"):
            with self.subTest(path=path):
                web.asked.clear()
                self.assert_refused(web.url(path), pattern)
                self.assertLessEqual(len(web.asked), 2)

    def test_lists(self):
        """A list that never ends, and a page of one that is larger than any server's."""
        page = ("<ListBucketResult><IsTruncated>{}</IsTruncated><NextContinuationToken>again</NextContinuationToken>"
                "<Contents><Key>d/{}.txt</Key><Size>1</Size></Contents></ListBucketResult>")
        for body, pattern, most in ((page.format("true", "a"), "goes on where it began", 4),
                                    (page.format("false", "a" * (9 << 20)), "too long|larger than 8 MiB", 2)):
            with self.subTest(pattern=pattern):
                web = self.web({"/bucket/": (200, body.encode())})
                daemon = self.daemon({"linger": "0s"}, env={**QUIET, "AWS_ENDPOINT_URL": web.url("")})
                spec = self.spec("listed", dataset={"kind": "text", "paths": ["s3://bucket/d/*.txt"],
                                                    "tokenizer": "bytes"}, batch={"size": 2}, workers={"count": 1})
                done = dlctl("run", spec, daemon=daemon, check=False)
                daemon.stop()
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, f"s3://bucket/d/.*({pattern})")
                self.assertLessEqual(len(web.asked), most)
