"""dlctl report: the live page with what there is of one loader, while it is read and afterwards."""

import html
import json
import os
import pathlib
import re
import sys
import unittest

from browser import CHROMIUM, MISSING, Browser
from dltest import RANGE, TestCase, dlctl, dlctl_json, named, wait_until

PAGE = pathlib.Path(__file__).parent.parent.parent / "daemon/serve/page"
sys.path.insert(0, str(PAGE))
import embed  # noqa: E402

EVIL = "name: x # <script>alert(1)</script> & \"</pre>\n"


class ReportCase(TestCase):
    def report(self, daemon, *args):
        done = dlctl("report", *args, daemon=daemon, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def read(self, page):
        """What is in it; all else is the live page, and may run nothing but its script."""
        policy, = re.findall('<meta http-equiv="Content-Security-Policy" content="(.*?)">\n', page)
        data, = re.findall('<pre id="views" hidden>([^<]+)</pre>', page)
        live = (PAGE / "page.html").read_text()
        self.assertEqual(html.unescape(policy), embed.policy(live, ""))
        self.assertEqual(re.sub("<meta http-equiv.*\n", "", page.replace(data, "")), live)
        return json.loads(html.unescape(data))

    def written(self, daemon, *args):
        return self.read(self.report(daemon, *args))


class Report(ReportCase):
    def test_during_and_after(self):
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(named("reported", **{**RANGE, "dataset": {"kind": "range", "length": 400}}))["loader"]
        told = self.written(daemon, "reported")
        self.assertEqual(told["views"]["trace"], [{"loader": "reported", "batches": []}])
        client.start(loader)
        for _ in range(5):
            for batch in client.next_batches():
                batch.release()
        self.spec("unused")
        with open(self.path("spec.yaml"), "w") as file:
            file.write(EVIL)
        self.assertEqual(self.report(daemon, "reported", "-o", self.path("report.html"), "--spec",
                                     self.path("spec.yaml")), "")
        with open(self.path("report.html")) as file:
            told = self.read(file.read())
        self.assertEqual(told["spec"], EVIL)
        self.assertRegex(told["at"], r"Written at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ by dlctl ")
        self.assertRegex(told["machine"], r" on \S+: \d+ processors?, .*iB of memory")
        self.assertEqual([row["rank"] for row in told["views"]["epochs"]], [0])
        batches = client.next_batches()
        while batches:
            for batch in batches:
                batch.release()
            batches = client.next_batches()
        client.close()
        told = self.written(daemon, "reported")
        self.assertEqual(len(told["views"]["trace"][0]["batches"]), 40)
        # Also then: who waited, and what was opened, with the seed.
        self.assertEqual([row["rank"] for row in told["views"]["lately"]], [None, 0])
        spec = json.loads(told["spec"])
        self.assertEqual(spec["dataset"], {"kind": "range", "length": 400})
        self.assertIn("seed", spec)

    def test_nothing_of_others(self):
        daemon = self.daemon()
        client = self.client(daemon)
        for name in ("reported", "confidential"):
            client.epoch_indices(client.open(named(name))["loader"])
        page = self.report(daemon, "reported")
        self.assertIn("reported", page)
        for word in ("confidential", daemon.socket):
            self.assertNotIn(word, page)

    def test_spec(self):
        """It is what was opened: it is opened again, and the same order comes out."""
        daemon = self.daemon()
        client = self.client(daemon)
        opened = client.open(named("drawn", dataset={"kind": "range", "length": 40}, sampler={"kind": "random"}))
        want = client.epoch_indices(opened["loader"])
        text = dlctl("spec", "drawn", daemon=daemon).stdout
        self.assertEqual(json.loads(text), dlctl_json("spec", "drawn", daemon=daemon))
        again = client.open({**json.loads(text), "name": "again"})
        self.assertEqual(client.epoch_indices(again["loader"]), want)
        done = dlctl("spec", "absent", daemon=daemon, check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "dlctl: absent: no loader of that name is open; see dlctl loaders\n"))

    def text(self, lengths):
        self.spec("unused")  # the directory is there
        with open(self.path("lines.txt"), "w") as file:
            file.writelines("x" * n + "\n" for n in lengths)
        return {"kind": "text", "paths": [self.path("lines.txt")], "tokenizer": "bytes"}

    def test_lengths_and_padding(self):
        """For each sort of batches of tokens, while it is read and when the last reader is gone."""
        daemon, lengths = self.daemon(), [1 + 7 * i % 60 for i in range(300)]
        dataset = self.text(lengths)
        sorts = {"sorted": {"strategy": "sorted"}, "bucket": {"strategy": "bucket"},
                 "sequential": {"strategy": "sequential"}, "pack": {}}
        for name, batch in sorts.items():
            with self.subTest(name):
                client = self.client(daemon)
                collate = {"kind": "pack", "length": 64} if name == "pack" else {"kind": "pad"}
                loader = client.open(named(name, dataset=dataset, batch={"tokens": 256, **batch},
                                           collate=collate))["loader"]
                client.start(loader)
                for batch in client.next_batches():
                    batch.release()
                during = self.lengths_of(daemon, name, lengths)
                self.assertTrue([row for row in during["epochs"] if row["padded"] > 0])
                while (batches := client.next_batches()):
                    for batch in batches:
                        batch.release()
                client.close()
                wait_until(lambda name=name: not [row for row in dlctl_json("epochs", daemon=daemon)
                                                  if row["loader"] == name], "the epoch to be over")
                after = self.lengths_of(daemon, name, lengths)
                self.assertEqual(after["epochs"], [])

    def lengths_of(self, daemon, name, lengths):
        """The report, whose histogram is that of all lines."""
        before = self.row_of(daemon, name)
        views = self.written(daemon, name)["views"]
        after = self.row_of(daemon, name)
        row, = views["loaders"]
        bars = {one["upper"]: one["samples"] for one in row["lengths"]}
        uppers = sorted(bars)
        self.assertEqual(uppers, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
        for below, upper in zip([0, *uppers], uppers):
            self.assertEqual(bars[upper], sum(below < n <= upper for n in lengths), upper)
        for key in ("tokens", "padded"):
            self.assertTrue(0 < before[key] <= row[key] <= after[key], (before, row, after))
        return views

    def row_of(self, daemon, name):
        (row,) = [row for row in dlctl_json("loaders", daemon=daemon) if row["name"] == name]
        return row

    def test_slow_batches(self):
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        client = self.client(daemon)
        client.epoch_indices(client.open(named("slow", workers={"count": 2}))["loader"])
        told = self.written(daemon, "slow")["views"]
        row, = told["loaders"]
        self.assertEqual((row["faults"], row["bad"]), (0, 0))
        self.assertGreaterEqual(max(batch[6] - batch[5] for batch in told["trace"][0]["batches"]), 5e7)

    def test_what_is_wrong(self):
        daemon = self.daemon()
        self.client(daemon).open(named("there"))
        for args, words in ((["absent"], "absent: no loader of that name is open; see dlctl loaders"),
                            (["there", "--spec", "/no/spec"], "/no/spec: No such file or directory"),
                            (["there", "--spec", "/"], "/: Is a directory"),
                            (["there", "-o", "/no/report"], "/no/report: No such file or directory")):
            with self.subTest(args=args):
                done = dlctl("report", *args, daemon=daemon, check=False)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", f"dlctl: {words}\n"))
        self.assertEqual(dlctl("report", daemon=daemon, check=False).returncode, 2)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_a_full_disk(self):
        daemon = self.daemon()
        self.client(daemon).open(named("there"))
        done = dlctl("report", "there", "-o", "/dev/full", daemon=daemon, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, "dlctl: /dev/full: No space left on device\n"))



@unittest.skipUnless(CHROMIUM, MISSING)
class Drawn(ReportCase):
    """What a browser makes of the file, without a daemon."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def draw(self, daemon, *args):
        self.spec("unused")  # the directory is there
        path = self.path("report.html")
        self.report(daemon, *args, "-o", path)
        self.browser.open("file://" + path)
        self.browser.wait("document.body?.dataset.looks === '1'")
        self.assertEqual(self.browser.complaints(), [])
        self.assertFalse(self.browser.value("[...document.querySelectorAll('#all, #pause')].some(e => !e.hidden)"))

    def test_parts(self):
        self.spec("unused")
        with open(self.path("spec.yaml"), "w") as file:
            file.write(EVIL)
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        client = self.client(daemon)
        client.epoch_indices(client.open(named("slow", workers={"count": 2}))["loader"])
        self.draw(daemon, "slow", "--spec", self.path("spec.yaml"))
        browser = self.browser
        self.assertEqual(browser.value("document.title"), "Loader slow")
        self.assertEqual(browser.value("document.querySelector('#spec').textContent"), EVIL)
        self.assertIn("0 tasks tried again, 0 steps failed, 0 samples bad", browser.text("#one-facts"))
        for table, words in (("minutes", "Batches a second"), ("stages", "fetch"), ("traced", "fetch: samples"),
                             ("workers", "ready"), ("slow-batches", "dlctl peek 'slow' --epoch 0 --world 1 --rank 0")):
            self.assertIn(words, browser.text(f"#{table}"), table)
        self.assertRegex(browser.text("#machine"), "processors?, ")
        fetch, unit = browser.value("document.querySelector('#slow-batches tbody td:nth-child(5)').innerText").split()
        self.assertGreaterEqual(float(fetch) / {"ms": 1000, "s": 1}[unit], 0.05)
        lines = browser.value("[...document.querySelectorAll('#traced path')].map(p => p.getAttribute('d'))")
        self.assertGreaterEqual(len(lines), 4)
        self.assertTrue(all(lines), lines)

    def test_before_the_first_batch(self):
        daemon = self.daemon()
        self.client(daemon).open(named("there"))
        self.draw(daemon, "there")
        self.assertTrue(self.browser.value("document.querySelector('#traced').parentNode.hidden"))
        self.assertEqual(self.browser.text("#nameless"), "")
        self.assertIn('"kind": "range"', self.browser.text("#spec"))

    def test_padding(self):
        daemon = self.daemon()
        client = self.client(daemon)
        self.spec("unused")
        with open(self.path("lines.txt"), "w") as file:
            file.writelines("x" * (1 + n % 60) + "\n" for n in range(300))
        loader = client.open(named("texts", dataset={"kind": "text", "paths": [self.path("lines.txt")],
                                                     "tokenizer": "bytes"},
                                   batch={"tokens": 256}, collate={"kind": "pad"}))["loader"]
        client.start(loader)
        for batch in client.next_batches():
            batch.release()
        self.draw(daemon, "texts")
        self.assertRegex(self.browser.text("#one-facts"), r"; \d+ tokens, [<0-9. ]+ % of the batches padding; ")
        self.assertIn("tokens of ranks", self.browser.text("#extra"))
        self.assertIn("lengths", self.browser.text("#extra"))

    def test_the_command_for_a_batch_of_replicas(self):
        """It counts as trainers do: all that read, and not those of the samples, which the daemon knows."""
        daemon = self.daemon()
        spec = named("shared", shard={"replicas": 2}, sampler={"kind": "random"})
        clients = [self.client(daemon) for _ in range(4)]
        for i, client in enumerate(clients):
            client.start(client.open(spec)["loader"], world=2, rank=i // 2, replica=i % 2, replicas=2)
        batches = [client.next_batches()[0] for client in clients]
        want = [batch.indices for batch in batches]
        for batch in batches:
            batch.release()
        wait_until(lambda: {batch[1] for batch in self.written(daemon, "shared")["views"]["trace"][0]["batches"]}
                   == {0, 1}, "batches of both ranks to be traced")
        self.draw(daemon, "shared")
        places = set(re.findall("dlctl peek 'shared' --epoch 0 (--world . --rank 2) --step 0",
                                self.browser.text("#slow-batches")))
        place, = places
        plan = dlctl("plan", self.spec("shared", **spec), *place.split(), "--steps", "1", "--json").stdout
        self.assertEqual(json.loads(plan)["indices"], want[2])
