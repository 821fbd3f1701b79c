"""The log of a daemon in health: a few lines for its own life, and none for what it serves."""

import os
import re
import signal
import subprocess
import urllib.request

from dltest import RANGE, LifeCase, dlctl, dlctl_json, named, wait_until
from test_metrics_http import free_port

FAKE_HOST = os.environ["FAKE_HOST"]
TRAINER = os.environ["TRAINER"]
HTTP = os.environ["HTTP"] == "1"


class Quiet(LifeCase):
    """At the level that is the default: what is told with debug is for who asks for it."""

    def begin(self):
        os.symlink(FAKE_HOST, self.path("host-good"))
        self.config = {"python": [self.path("host-good")], "linger": "100ms",
                       "sandbox": "off"}  # else the kernel of the machine has a word in it
        if HTTP:
            self.config["metrics"] = {"listen": f"127.0.0.1:{free_port()}"}
        self.server = self.daemon(self.config, args=("--log-level", "info"))

    def specs(self):
        """One of each kind of work, and with names and without."""
        with open(self.path("lines.txt"), "w") as file:
            file.writelines("word " * (i % 50 + 1) + "\n" for i in range(500))
        rows = self.rows("rows.npy", 100, 8)
        text = {"kind": "text", "paths": self.path("lines.txt"), "tokenizer": "bytes"}
        return {"plain": named("plain"),
                "nameless": RANGE,
                "random": {"dataset": {"kind": "npy", "paths": rows}, "sampler": {"kind": "random"}},
                "iterable": {"dataset": {"kind": "range", "length": 90, "iterable": True},
                             "batch": {"size": 7}, "workers": {"count": 3}},
                "text": {"dataset": text, "collate": {"kind": "none"}, "batch": {"size": 9}},
                "any": named("any", workers={"count": 2, "in_order": False}),
                "python": {"dataset": {"kind": "python", "object": "my.data:Set",
                                       "args": {"mode": "good", "length": 40}},
                           "collate": {"kind": "python"}, "workers": {"count": 2}},
                "tokens": {"name": "tokens", "dataset": text, "collate": {"kind": "pad"},
                           "batch": {"tokens": 512}, "seed": 3}}

    def work(self):
        for name, spec in self.specs().items():
            done = dlctl_json("run", self.spec(name, **spec), "--epochs", "2", daemon=self.server)
            self.assertGreater(done["samples"], 0, name)
        # Ranks, and a trainer of libdlclient's.
        subprocess.run([TRAINER, self.server.socket, self.spec("ranks", **named("ranks")), "epochs=2", "rank=0",
                        "world=2", "job=j"], check=True, capture_output=True)

    def clients(self):
        """They come and go as they like, in the middle of an epoch and with batches in hand."""
        for _ in range(20):
            self.server.client().close()
        client, _, _, _ = self.streaming(self.server, "left")
        client.close()
        client, _, _, batches = self.streaming(self.server, "ended")
        self.finish_epoch(client, batches)
        killed = subprocess.Popen([TRAINER, self.server.socket, self.spec("killed", **named("killed")), "epochs=1000",
                                   "pause_us=10000"], stdout=subprocess.PIPE)
        killed.stdout.readline()
        killed.kill()
        killed.wait()
        killed.stdout.close()

    def look(self):
        for verb in ("status", "loaders", "epochs", "workers", "ring", "sessions", "times", "metrics", "trace"):
            dlctl(verb, daemon=self.server)
        if HTTP:
            url = f"http://{self.config['metrics']['listen']}/metrics"
            for _ in range(5):
                with urllib.request.urlopen(url) as answer:
                    self.assertIn(b"dloader_info", answer.read())

    def test_a_life(self):
        self.begin()
        self.work()
        self.clients()
        self.look()
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reloaded" in self.server.log, "the reload")
        self.work()  # again, with loaders that may be new
        # All that linger have gone; and the last epoch ends in the daemon's drain.
        client, _, _, batches = self.streaming(self.server, "last")
        self.server.process.terminate()
        wait_until(lambda: "draining" in self.server.log, "the drain")
        self.assertEqual(self.finish_epoch(client, batches), list(range(10)))
        client.close()
        self.assert_ends(self.server)
        self.assert_lines([
            *([f"metrics are at http://{self.config['metrics']['listen']}/metrics, and a page at /"] if HTTP else []),
            f"listening on {self.server.socket}",
            fr"{self.path('host-good')} -m dloaderd.host \(pid \d+\) hosts workers",
            r"tokens: 500 lengths were (taken in [\d.]+ (µs|ms|s)|in the cache)",
            f"reloaded {self.path('dloaderd.conf')}",
            "draining",
            "stopping"])

    def assert_lines(self, want):
        """Exactly these, all of them information; lengths of samples each time a loader takes them."""
        lines = self.server.log.splitlines()
        for pattern in want:
            found = [line for line in lines if re.fullmatch("<6>dloaderd: " + pattern, line)]
            most = 2 if "lengths" in pattern or "hosts" in pattern else 1
            self.assertIn(len(found), range(1, most + 1), f"{pattern} in {lines}")
            lines = [line for line in lines if line not in found]
        self.assertEqual(lines, [])
