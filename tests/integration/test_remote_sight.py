"""What is told of remote files: views, metrics and verdicts say what the store has counted, and nobody sees the secrets
of a URL. tests/lib/bucket.py is the store."""

import contextlib
import os
import re
import signal
import subprocess
import termios

from bucket import Bucket
from digest_datasets import folder
from dltest import DLCTL, TestCase, dlctl, dlctl_json, wait_until
from test_metrics import samples
from web import fetchers_of

VIEWS = ("status", "loaders", "epochs", "workers", "ring", "sessions", "users", "quarantine", "members", "times",
         "trace", "mixtures", "lately", "slowest", "remote", "specs")
SECRET = "SECRETSIGNATURE"


class SightCase(TestCase):
    def make_bucket(self, **how):
        bucket = Bucket(self.path(""), **how)
        self.addCleanup(bucket.close)
        return bucket

    def daemon_of(self, bucket, config=None):
        return self.daemon({"linger": "0s", **(config or {})}, env=bucket.environment)

    def numbers(self, rows, width=64):
        """Rows of 256 bytes."""
        return self.npy("numbers.npy", (rows, width), "<f4", os.urandom(4 * rows * width))

    def of_numbers(self, path="s3://bucket/numbers.npy", **more):
        return self.spec("numbers", **{"name": "numbers", "dataset": {"kind": "npy", "paths": path}, "seed": 1,
                                       "sampler": {"kind": "random"}, "batch": {"size": 50},
                                       "workers": {"count": 2}, **more})

    def look(self, daemon):
        return dlctl_json("remote", daemon=daemon)

    def wait_until_told(self, daemon, want):
        """The counts, once nothing is under way any more. Of a request that was sent twice the store has sent more."""
        def is_told():
            view = self.look(daemon)
            if view["hedged"] and view["received_bytes"] <= want().get("received_bytes", 0):
                view["received_bytes"] = want()["received_bytes"]
            return view["under_way"] == view["waiting"] == 0 and {key: view[key] for key in want()} == want()
        wait_until(is_told, lambda: f"{self.look(daemon)} is not {want()}")


class Counts(SightCase):
    @staticmethod
    def told_by(bucket):
        with bucket.lock:
            refused = bucket.told[503] + bucket.told[429]
            return {"requests": sum(bucket.asked.values()), "received_bytes": bucket.written, "throttled": refused,
                    "broken_off": bucket.told["cut"], "repeated": refused + bucket.told["cut"], "timed_out": 0,
                    "server_faults": 0, "failed": 0}

    def test_nothing_yet(self):
        view = self.look(self.daemon())
        self.assertEqual(view.pop("pid"), None)
        self.assertEqual({view.pop("hit_share"), view.pop("throttled_share")}, {None})
        self.assertEqual(set(view.values()), {0})

    def test_faults(self):
        """Requests, bytes and causes are the store's own, in the view and as metrics."""
        self.numbers(20000)
        bucket = self.make_bucket(faults=[None, "slow down", None, "cut", None])
        daemon = self.daemon_of(bucket)
        dlctl("run", self.of_numbers(), daemon=daemon)
        self.wait_until_told(daemon, lambda: self.told_by(bucket))
        self.assertGreater(bucket.told[503], 0)
        self.assertGreater(bucket.told["cut"], 0)
        view = self.look(daemon)
        self.assertAlmostEqual(view["throttled_share"], view["throttled"] / view["requests"])
        found = samples(dlctl("metrics", daemon=daemon).stdout)
        told = {"requests_total": "requests", "repeated_requests_total": "repeated", "failed_requests_total": "failed",
                "hedged_requests_total": "hedged",
                "received_bytes_total": "received_bytes", 'faults_total{cause="throttled"}': "throttled",
                'faults_total{cause="broken_off"}': "broken_off", 'faults_total{cause="timed_out"}': "timed_out",
                'faults_total{cause="server"}': "server_faults", "objects": "objects",
                'given_bytes_total{source="store"}': "from_store_bytes",
                'given_bytes_total{source="disk"}': "from_disk_bytes",
                'given_bytes_total{source="peers"}': "from_peers_bytes", "peers": "peers",
                "to_peers_bytes_total": "to_peers_bytes", "peers_failed_requests_total": "peers_failed",
                "peers_refused_requests_total": "peers_refused",
                'given_bytes_total{source="memory"}': "from_memory_bytes",
                "held_back_requests_total": "held_back", "slowed_hosts": "slowed_hosts",
                "slowed_requests": "slowed_at_once", "kept_bytes": "kept_bytes",
                "kept_limit_bytes": "kept_limit_bytes", "spoilt_blocks_total": "spoilt",
                'pending_requests{state="under_way"}': "under_way", 'pending_requests{state="waiting"}': "waiting",
                "held_bytes": "held_bytes", "held_limit_bytes": "limit_bytes"}
        for name, key in told.items():
            name, _, labels = name.partition("{")
            self.assertEqual(found["dloader_remote_" + name, labels.rstrip("}") or None], view[key], name)
        self.assertEqual(set(view) - set(told.values()), {"pid", "hit_share", "throttled_share"})

    def test_given(self):
        """Each byte is given from the store once, and then from memory."""
        pictures = folder(self, "pictures")
        sizes = [os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(pictures) for name in names]
        bucket = self.make_bucket()
        daemon = self.daemon_of(bucket)
        spec = self.spec("pictures", name="pictures", batch={"size": 1}, workers={"count": 1},
                         dataset={"kind": "imagefolder", "paths": "s3://bucket/pictures", "size": 8})
        dlctl("run", spec, "--epochs", "2", daemon=daemon)
        self.wait_until_told(daemon, lambda: self.told_by(bucket))
        view = self.look(daemon)
        self.assertEqual(view["from_store_bytes"], sum(sizes))
        self.assertEqual(view["held_bytes"], sum(sizes))
        self.assertEqual(view["limit_bytes"], 1 << 30)
        self.assertGreaterEqual(view["from_memory_bytes"], sum(sizes))
        self.assertAlmostEqual(view["hit_share"],
                               view["from_memory_bytes"] / (view["from_memory_bytes"] + view["from_store_bytes"]))

    def test_goes_on(self):
        """What was counted stays when the process ends; what it held is gone."""
        self.numbers(5000)
        bucket = self.make_bucket()
        daemon = self.daemon_of(bucket)
        dlctl("run", self.of_numbers(), daemon=daemon)
        self.wait_until_told(daemon, lambda: self.told_by(bucket))
        before = self.look(daemon)
        self.assertEqual([before["pid"]], list(fetchers_of(daemon)))
        self.assertGreater(before["held_bytes"], 0)
        os.kill(before["pid"], signal.SIGKILL)
        wait_until(lambda: self.look(daemon)["pid"] is None, lambda: self.look(daemon))
        after = self.look(daemon)
        gone = {"pid": None, "objects": 0, "held_bytes": 0, "limit_bytes": 0}
        self.assertEqual(after, {**before, **gone})
        dlctl("run", self.of_numbers(), daemon=daemon)
        self.wait_until_told(daemon, lambda: self.told_by(bucket))
        self.assertNotIn(self.look(daemon)["pid"], (None, before["pid"]))

    def test_given_up(self):
        """What is refused is one that failed; what does not exist is none."""
        self.numbers(100)
        bucket = self.make_bucket()
        daemon = self.daemon_of(bucket)
        dlctl("run", self.of_numbers("s3://bucket/none.npy"), daemon=daemon, check=False)
        self.assertEqual(self.look(daemon)["failed"], 0)
        bucket.keys = dict.fromkeys(bucket.keys, "another")
        done = dlctl("run", self.of_numbers(), daemon=daemon, check=False)
        self.assertIn("SignatureDoesNotMatch", done.stderr)
        self.assertGreater(bucket.told[403], 0)
        self.wait_until_told(daemon, lambda: {"failed": bucket.told[403]})


class Verdicts(SightCase):
    def run_with(self, faults):
        """Each repetition takes 50 to 200 ms, so that workers wait for most of the time."""
        self.numbers(20000)
        bucket = self.make_bucket(faults=faults)
        daemon = self.daemon_of(bucket, {"linger": "1h"})
        spec = self.of_numbers(workers={"count": 1, "prefetch": 1})
        outcome = dlctl_json("run", spec, "--batches", "40", daemon=daemon)
        self.assertGreater(dlctl_json("workers", daemon=daemon)[0]["remote_s"], 0)
        return outcome["verdict"], dlctl_json("loaders", daemon=daemon)[0]["verdict"]

    def test_throttled(self):
        for verdict in self.run_with(["slow down", None]):
            text = verdict["text"] if isinstance(verdict, dict) else verdict
            self.assertRegex(text, r"throttled by the store: the trainer waited .*; it refuses [45]\d % of requests "
                             r"\(status 503 or 429\),( so that .* were held back,)? and gives .*/s; a larger remote")

    def test_starved(self):
        for verdict in self.run_with(["cut", None]):
            text = verdict["text"] if isinstance(verdict, dict) else verdict
            self.assertRegex(text, r"starved by storage: the trainer waited .*; 1 worker waits for remote files for "
                             r"(\d\d|100)(\.\d)? % of what it does, and the store gives .*/s; more workers.prefetch")

    def test_local(self):
        """A loader of local files says nothing of stores."""
        path = self.numbers(1000)
        daemon = self.daemon({"linger": "1h"})
        dlctl("run", self.of_numbers(path), daemon=daemon)
        self.assertEqual({row["remote_s"] for row in dlctl_json("workers", daemon=daemon)}, {None})


class Fetch(SightCase):
    def test_fetch(self):
        """An epoch after it asks the store for nothing but what the object is."""
        path = self.numbers(5000)
        bucket = self.make_bucket()
        daemon = self.daemon_of(bucket)
        told = dlctl_json("fetch", self.of_numbers(), daemon=daemon)
        self.assertEqual({key: told[key] for key in ("loader", "epoch", "batches", "samples", "fits", "failed")},
                         {"loader": "numbers", "epoch": 0, "batches": 100, "samples": 5000, "fits": True, "failed": 0})
        self.assertEqual(told["from_store_bytes"], os.path.getsize(path))
        self.assertEqual(told["received_bytes"], bucket.written)
        self.assertEqual(told["requests"], sum(bucket.asked.values()))
        sent = bucket.sent
        dlctl("run", self.of_numbers(), daemon=daemon)
        self.assertEqual(bucket.sent, sent)

    def test_bar(self):
        """On a terminal: from the first batch on, until all are there; then it makes room for what came of it."""
        self.numbers(5000)
        bucket = self.make_bucket()
        main, other = os.openpty()
        termios.tcsetwinsize(main, (24, 100))
        command = [DLCTL, "fetch", self.of_numbers(), "--epoch", "0", "--socket", self.daemon_of(bucket).socket]
        with subprocess.Popen(command, stdin=other, stdout=other, stderr=other, close_fds=True) as process:
            os.close(other)
            shown = b""
            with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
                while data := os.read(main, 4096):
                    shown += data
            self.assertEqual(process.wait(), 0)
        os.close(main)
        bars, _, rest = shown.decode().rpartition("\r\x1b[K")
        lines = re.findall(r"\r *(\d+) % \[(#*)(\.*)\] ([^\r\x1b]*)\x1b\[K", bars)
        shares = [int(share) for share, *_ in lines]
        self.assertEqual(shares, sorted(shares))
        self.assertLess(shares[0], 100)
        self.assertEqual((shares[-1], lines[-1][2]), (100, ""))
        for share, done, left, words in lines:
            room = len(done + left)
            self.assertTrue(int(share) * room // 100 <= len(done) <= (int(share) + 1) * room // 100, (share, done))
            self.assertRegex(words, r"^[\d.]+ \w*B fetched by \d+ requests  [\d.]+ \w*B/s(  left [\d.]+ \w+)?$")
        self.assertIn(f"by {sum(bucket.asked.values())} requests", lines[-1][3])
        self.assertRegex(rest, "^epoch 0: 5000 samples in ")

    def test_words(self):
        self.numbers(5000)
        bucket = self.make_bucket()
        daemon = self.daemon_of(bucket, {"remote": {"held": "1MiB"}})
        spec = self.of_numbers(sampler={"kind": "sequential"}, workers={"count": 1})
        done = dlctl("fetch", spec, "--epoch", "3", daemon=daemon)
        self.assertRegex(done.stdout, r"^epoch 3: 5000 samples in .*\n"
                         r"from the store: .* by \d+ requests, .*; repeated 0\n"
                         r"from disk: 0 B\nfrom memory: .*\nheld: .* of 1.0 MiB; it is full: .* raise remote.held in "
                         r"dloaderd.conf, or set cache.size\n$")

    def test_fails(self):
        """With words, and a status: what is not there, and where nothing is remote."""
        path = self.numbers(100)
        daemon = self.daemon_of(self.make_bucket())
        for where, words in ("s3://bucket/none.npy", "s3://bucket/none.npy: "), (path, "none of its files is remote"):
            done = dlctl("fetch", self.of_numbers(where), daemon=daemon, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)

    def test_left_out(self):
        """What the spec has left out fails it, too."""
        pictures = folder(self, "pictures")
        with open(os.path.join(pictures, sorted(os.listdir(pictures))[0], "broken.jpg"), "wb") as file:
            file.write(b"no picture")
        spec = self.spec("pictures", name="pictures", batch={"size": 4}, workers={"count": 1, "on_error": "skip"},
                         dataset={"kind": "imagefolder", "paths": "s3://bucket/pictures", "size": 8})
        done = dlctl("fetch", spec, daemon=self.daemon_of(self.make_bucket()), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("pictures: 1 of its samples could not be read, and are left out or replaced; "
                      "dlctl quarantine pictures lists them", done.stderr)


class Secrets(SightCase):
    def presigned(self, bucket, name):
        return f"{bucket.url}/bucket/{name}?X-Amz-Credential={SECRET}%2F2026&X-Amz-Signature={SECRET}"

    def assert_hidden(self, text, where):
        self.assertNotIn(SECRET, text, where)

    def test_everywhere(self):
        """The batches are there, and no view, report, metric or line of the log has the signature."""
        self.numbers(3000)
        bucket = self.make_bucket(signed=False, faults=[None, "slow down", "cut"])
        daemon = self.daemon_of(bucket, {"linger": "1h"})
        spec = self.of_numbers(self.presigned(bucket, "numbers.npy"))
        self.assertEqual(dlctl_json("run", spec, daemon=daemon)["samples"], 3000)
        client = self.client(daemon)
        for view in VIEWS:
            self.assert_hidden(str(client.query(view)), view)
        self.assertIn(f"{bucket.url}/bucket/numbers.npy?*", str(client.query("specs")))
        self.assert_hidden(dlctl("metrics", daemon=daemon).stdout, "metrics")
        self.assert_hidden(dlctl("spec", "numbers", daemon=daemon).stdout, "spec")
        for more in ([], ["--spec", spec]):
            dlctl("report", "numbers", "-o", self.path("report.html"), *more, daemon=daemon)
            with open(self.path("report.html"), encoding="utf-8") as file:
                self.assert_hidden(file.read(), f"report {more}")
        daemon.stop()
        self.assert_hidden(daemon.log, "log")

    def test_errors(self):
        """Of what is not there, is refused, or has a password; with a daemon, and without one."""
        bucket = self.make_bucket(signed=False)
        daemon = self.daemon_of(bucket)
        urls = [(self.presigned(bucket, "none.npy"), "none.npy?*: "),
                (f"http://user:{SECRET}@127.0.0.1/x.npy", "http://*@127.0.0.1/x.npy: "),
                (f"s3://AKID:{SECRET}@bucket/x.npy", "s3://*@bucket/x.npy: "),
                (f"ftp://u:{SECRET}@127.0.0.1/x.npy", "ftp://*@127.0.0.1/x.npy")]
        for url, words in urls:
            for command in (["run"], ["check"], ["fetch"]):
                with self.subTest(url=url, command=command):
                    socket = [] if command == ["check"] else ["--socket", daemon.socket]
                    done = subprocess.run([DLCTL, *command, self.of_numbers(url), *socket], capture_output=True,
                                          text=True, check=False)
                    self.assertEqual(done.returncode, 1, done.stdout)
                    self.assertIn(words, done.stderr)
                    self.assert_hidden(done.stdout + done.stderr, command)
        daemon.stop()
        self.assert_hidden(daemon.log, "log")
