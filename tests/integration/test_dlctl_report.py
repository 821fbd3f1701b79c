"""dlctl report: a page of one loader, while it is read and afterwards."""

import html
import html.parser
import json
import os
import re
import unittest

from dltest import RANGE, TestCase, dlctl, dlctl_json, main, named, wait_until

EVIL = "name: x # <script>alert(1)</script> & \"\n"
VOID = {"meta", "line", "path", "rect"}


class Checker(html.parser.HTMLParser):
    """What elements there are; each is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.wrong = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.wrong += [name for name, value in attrs if name.startswith("on") or name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


class Report(TestCase):
    def report(self, daemon, *args):
        done = dlctl("report", *args, daemon=daemon, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def check(self, page):
        checker = Checker()
        checker.feed(page)
        self.assertEqual((checker.open, checker.wrong), ([], []))
        self.assertNotIn("script", checker.seen)
        self.assertNotIn("http", re.sub(r"http-equiv", "", page))
        return checker.seen

    def test_during_and_after(self):
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(named("reported", **{**RANGE, "dataset": {"kind": "range", "length": 400}}))["loader"]
        page = self.report(daemon, "reported")
        self.check(page)
        self.assertIn("None of its batches has been released yet.", page)
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
            page = file.read()
        seen = self.check(page)
        self.assertGreaterEqual(seen.count("svg"), 6)
        self.assertIn("name: x # &lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;", page)
        self.assertIn("dlctl peek 'reported' --epoch 0 --world 1 --rank 0 --step ", page)
        for part in ("The last ten minutes", "Throughput and waiting", "Slowest batches", "Epochs", "Errors", "Workers",
                     "Machine", "Spec"):
            self.assertIn(f"<h2>{part}", page)
        batches = client.next_batches()
        while batches:
            for batch in batches:
                batch.release()
            batches = client.next_batches()
        client.close()
        page = self.report(daemon, "reported")
        self.check(page)
        self.assertIn("Of the last 40 batches that were released, of 1 rank.", page)
        # Also then: who waited, and what was opened, with the seed.
        self.assertIn("How long each rank waited in that time", page)
        self.assertIn("&quot;kind&quot;: &quot;range&quot;", page)
        spec = html.unescape(re.search(r"<h2>Spec</h2>.*?<pre>(.*?)</pre>", page, re.DOTALL).group(1))
        self.assertEqual(json.loads(spec)["dataset"]["length"], 400)
        self.assertIn("seed", json.loads(spec))

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
        wait_until(lambda: "dlctl peek" in self.report(daemon, "shared"), "a batch to be traced")
        page = html.unescape(self.report(daemon, "shared"))
        place, = set(re.findall("dlctl peek 'shared' --epoch 0 (--world . --rank 2) --step 0", page))
        plan = dlctl("plan", self.spec("shared", **spec), *place.split(), "--steps", "1", "--json").stdout
        self.assertEqual(json.loads(plan)["indices"], want[2])

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
                self.assertRegex(during, r"<p>Rank 0: \d+ tokens, ")
                while (batches := client.next_batches()):
                    for batch in batches:
                        batch.release()
                client.close()
                wait_until(lambda name=name: not [row for row in dlctl_json("epochs", daemon=daemon)
                                                  if row["loader"] == name], "the epoch to be over")
                after = self.lengths_of(daemon, name, lengths)
                self.assertNotIn("<p>Rank 0:", after)

    def lengths_of(self, daemon, name, lengths):
        """The report, whose histogram is that of all lines."""
        before = self.row_of(daemon, name)
        page = self.report(daemon, name)
        after = self.row_of(daemon, name)
        self.check(page)
        figure = page[page.index("Samples of the dataset by length"):]
        bars = {int(upper): int(n) for upper, n in
                re.findall(r"<text[^>]*>(\d+): (\d+)</text>", figure[:figure.index("</figure>")])}
        uppers = sorted(bars)
        self.assertEqual(uppers, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
        for below, upper in zip([0, *uppers], uppers):
            self.assertEqual(bars[upper], sum(below < n <= upper for n in lengths), upper)
        said = re.search(r"<p>In all delivered batches: (\d+) tokens, (?:&lt; )?([0-9.]+) % of the batches "
                         r"padding.", page)
        self.assertTrue(before["tokens"] <= int(said.group(1)) <= after["tokens"], (before, said.group(0), after))
        if before["padded"] == after["padded"]:  # nothing was delivered meanwhile
            padding = 100 * (after["padded"] - after["tokens"]) / after["padded"]
            self.assertAlmostEqual(float(said.group(2)), padding, delta=0.1 if padding < 9.9 else 0.51)  # figures.h
        return page

    def row_of(self, daemon, name):
        (row,) = [row for row in dlctl_json("loaders", daemon=daemon) if row["name"] == name]
        return row

    def test_slow_batches(self):
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        client = self.client(daemon)
        client.epoch_indices(client.open(named("slow", workers={"count": 2}))["loader"])
        page = self.report(daemon, "slow")
        self.check(page)
        self.assertIn("0 steps failed, 0 samples are bad.", page)
        slowest = re.search(r"<caption>Of these.*?<tbody>\s*<tr>(.*?)</tr>", page, re.DOTALL).group(1)
        fetch, unit = re.findall(r"<td>([0-9.]+) (ms|s)</td>", slowest)[0]
        self.assertGreaterEqual(float(fetch) / {"ms": 1000, "s": 1}[unit], 0.05)

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


if __name__ == "__main__":
    main()
