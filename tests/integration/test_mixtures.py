"""What dlctl, top and metrics say of a mixture: the shares its datasets want, and have. And what its start reads."""

import json
import os
import random
import re
import struct

from dltest import TestCase, dlctl, dlctl_json, report_views, wait_until
from tap import slow


class Mixtures(TestCase):
    def setUp(self):
        super().setUp()
        self.running = self.daemon()
        self.user = self.client(self.running)

    def open(self, dataset, **spec):
        spec.setdefault("batch", {"size": 10})
        return self.user.open({"name": "mixed", "seed": 1, "dataset": {"kind": "mix", **dataset},
                               "sampler": {"kind": "random", "order": "native"}, **spec})["loader"]

    def read(self, loader, batches, **options):
        """So many batches of a rank; the indices of their samples."""
        self.user.start(loader, credits=1, **options)
        indices = []
        while batches > 0:
            for batch in self.user.next_batches():
                indices += batch.indices
                batches -= 1
                if batches:
                    batch.release()
        return indices

    def rows(self, *args):
        return dlctl_json("mixtures", *args, daemon=self.running)

    def ranges(self, *lengths):
        return [{"kind": "range", "length": n} for n in lengths]

    def test_samples(self):
        loader = self.open({"datasets": self.ranges(300, 200, 50), "weights": [5, 4, 1]})
        self.assertEqual(self.rows(), [])
        indices = self.read(loader, 20, job="job")
        rows = self.rows("mixed")
        parts = ((0, 300), (300, 500), (500, 550))
        self.assertEqual([row["samples"] for row in rows],
                         [sum(low <= i < high for i in indices) for low, high in parts])
        for row, want in zip(rows, (0.5, 0.4, 0.1)):
            self.assertAlmostEqual(row["wanted"], want)
            self.assertAlmostEqual(row["share"], row["samples"] / 200)
            self.assertAlmostEqual(row["due"], 200 * want)
            self.assertLessEqual(abs(row["samples"] - row["due"]), 1)
            self.assertEqual((row["tokens"], row["token_share"], row["by"]), (None, None, "samples"))
        self.assertEqual({(row["loader"], row["job"], row["epoch"], row["rank"], row["world"], row["dataset"])
                          for row in rows}, {("mixed", "job", 0, 0, 1, "range")})
        epoch, = dlctl_json("epochs", daemon=self.running)
        self.assertEqual(epoch["mixture"], [{key: row[key] for key in epoch["mixture"][0]} for row in rows])
        self.assertEqual(self.rows("another"), [])
        # What was delivered stays known when nobody reads any more; and of two streams it is the sum.
        whole = dlctl_json("loaders", daemon=self.running)[0]["mixture"]
        self.assertEqual(whole, epoch["mixture"])
        other = self.client(self.running)
        self.user, gone = other, self.user
        again = self.open({"datasets": self.ranges(300, 200, 50), "weights": [5, 4, 1]})
        gone.close()
        wait_until(lambda: not any(row["job"] != "job" for row in self.rows()), "its client's end to be seen")
        more = self.read(again, 20, epoch=1)
        self.assertEqual([child["samples"] for child in dlctl_json("loaders", daemon=self.running)[0]["mixture"]],
                         [sum(low <= i < high for i in indices + more) for low, high in parts])
        other.close()
        wait_until(lambda: not dlctl_json("sessions", daemon=self.running) or
                   len(dlctl_json("sessions", daemon=self.running)) == 1, "all to be gone")
        self.assertEqual(sum(child["samples"] for child in dlctl_json("loaders", daemon=self.running)[0]["mixture"]),
                         400)
        told, = report_views("mixed", self.running)["loaders"]
        self.assertEqual(sum(child["samples"] for child in told["mixture"]), 400)

    def test_a_schedule_and_ranks(self):
        """Of two ranks that each have half of every step, both have the weights of their steps."""
        loader = self.open({"datasets": self.ranges(1000, 1000), "stop": "never", "length": 400, "global_batch": 20,
                            "schedule": [{"step": 0, "weights": [1, 0]}, {"step": 5, "weights": [1, 3]}]})
        for rank in range(2):
            self.read(loader, 10, rank=rank, world=2)
        rows = self.rows()
        self.assertEqual([(row["rank"], row["child"]) for row in rows], [(0, "0"), (0, "1"), (1, "0"), (1, "1")])
        for row in rows:
            self.assertAlmostEqual(row["wanted"], 0.375 if row["child"] == "1" else 0.625)
        for child, due in (("0", 125), ("1", 75)):
            self.assertLess(abs(sum(row["samples"] for row in rows if row["child"] == child) - due), 1)
        text = dlctl("metrics", daemon=self.running).stdout
        found = {child: float(n) for child, n in re.findall(
            r'^dloader_mixture_samples_total\{loader="mixed",job_name="",child="(\d)",dataset="range"\} (\S+)$',
            text, re.M)}
        self.assertEqual(found, {"0": 125, "1": 75})
        self.assertIn('dloader_mixture_due_total{loader="mixed",job_name="",child="1",dataset="range"} 75', text)
        self.assertNotIn("dloader_mixture_tokens_total{", text)

    def test_a_mix_in_a_mix(self):
        inner = {"kind": "mix", "datasets": self.ranges(100, 50), "weights": [2, 1], "stop": "all"}
        loader = self.open({"datasets": [*self.ranges(400), inner], "weights": [3, 1], "stop": "all"})
        indices = self.read(loader, 24)
        rows = self.rows()
        self.assertEqual([row["child"] for row in rows], ["0", "1", "1.0", "1.1"])
        counts = [sum(low <= i < high for i in indices) for low, high in ((0, 400), (400, 550), (400, 500), (500, 550))]
        self.assertEqual([row["samples"] for row in rows], counts)
        for row, want, of in zip(rows, (3 / 4, 1 / 4, 2 / 3, 1 / 3), (240, 240, counts[1], counts[1])):
            self.assertAlmostEqual(row["wanted"], want)
            self.assertAlmostEqual(row["share"], row["samples"] / of)
            self.assertLessEqual(abs(row["samples"] - want * of), 1)
        text = dlctl("metrics", daemon=self.running).stdout
        self.assertIn('dloader_mixture_samples_total{loader="mixed",job_name="",child="1.1",dataset="range"} '
                      f"{counts[3]}", text)
        whole = dlctl_json("loaders", daemon=self.running)[0]["mixture"]
        self.assertEqual([row["samples"] for row in whole], counts)

    def streams(self, *lengths):
        return [{"kind": "range", "length": n, "iterable": True} for n in lengths]

    def test_streams(self):
        """What workers mix themselves is counted, too: of both ranks, by the schedule, and inside a mix in it."""
        inner = {"kind": "mix", "datasets": self.streams(4000, 4000), "weights": [1, 3]}
        loader = self.user.open({
            "name": "mixed", "seed": 1, "batch": {"size": 10}, "workers": {"count": 2}, "dataset": {
                "kind": "mix", "datasets": [*self.streams(4000), inner], "stop": "never", "length": 4000,
                "global_batch": 20,
                "schedule": [{"step": 0, "weights": [1, 0]}, {"step": 8, "weights": [1, 1]}]}})["loader"]
        for rank in range(2):
            self.read(loader, 16, rank=rank, world=2)
        rows = self.rows()
        self.assertEqual([(row["rank"], row["child"]) for row in rows],
                         [(rank, child) for rank in range(2) for child in ("0", "1", "1.0", "1.1")])
        for row, want, of in zip(rows, (0.75, 0.25, 0.25, 0.75) * 2, (160, 160, 40, 40) * 2):
            self.assertAlmostEqual(row["wanted"], want)
            self.assertLessEqual(abs(row["samples"] - want * of), 2)  # a sample of each worker
        self.assertEqual(sum(row["samples"] for row in rows if "." not in row["child"]), 320)
        text = dlctl("metrics", daemon=self.running).stdout
        self.assertIn('dloader_mixture_due_total{loader="mixed",job_name="",child="0",dataset="range"} 240', text)

    def test_streams_dispatched(self):
        loader = self.user.open({
            "name": "mixed", "seed": 1, "batch": {"size": 10}, "shard": {"mode": "dispatch"}, "dataset": {
                "kind": "mix", "datasets": self.streams(4000, 4000), "weights": [3, 1]}})["loader"]
        for rank in range(2):
            self.read(loader, 4, rank=rank, world=2, job="job")
        wait_until(lambda: sum(row["samples"] for row in self.rows()) >= 80, "both ranks' rows")
        for row in self.rows():
            self.assertLessEqual(abs(row["samples"] - row["due"]), 8, row)
        self.assertEqual({row["rank"] for row in self.rows()}, {0, 1})

    def test_dispatched(self):
        loader = self.open({"datasets": self.ranges(300, 300), "weights": [1, 1]}, shard={"mode": "dispatch"})
        got = [self.read(loader, 1, rank=rank, world=2, job="job") for rank in range(2)]
        want = [n for indices in got for n in (sum(i < 300 for i in indices), sum(i >= 300 for i in indices))]
        self.assertEqual([row["samples"] for row in self.rows()], want)

    def test_tokens(self):
        for name, lines in (("short", 400), ("long", 100)):
            with open(self.path(name), "w") as file:
                file.write(("ab\n" if name == "short" else "a" * 20 + "\n") * lines)
        loader = self.open({"by": "tokens", "weights": [1, 1], "datasets": [
            {"kind": "text", "paths": self.path(name), "tokenizer": "bytes"} for name in ("short", "long")]},
            batch={"tokens": 100, "strategy": "sequential"}, collate={"kind": "pad"})
        indices = self.read(loader, 10)
        short, long = self.rows()
        of_short = sum(i < 400 for i in indices)
        self.assertEqual((short["samples"], short["tokens"]), (of_short, 2 * of_short))
        self.assertEqual(long["tokens"], 20 * long["samples"])
        for row in short, long:
            self.assertEqual((row["by"], row["wanted"]), ("tokens", 0.5))
            self.assertLess(abs(row["token_share"] - 0.5), 0.05)
            self.assertEqual(row["due"], (short["tokens"] + long["tokens"]) / 2)
        self.assertEqual(short["dataset"], self.path("short"))
        told = re.findall(r'^dloader_mixture_tokens_total\{loader="mixed",job_name="",child="(\d)",dataset="([^"]*)"\} '
                          r"(\S+)$", dlctl("metrics", daemon=self.running).stdout, re.M)
        self.assertEqual([(child, path, float(n)) for child, path, n in told],
                         [(row["child"], row["dataset"], row["tokens"]) for row in (short, long)])

    def test_what_is_skipped_is_not_counted(self):
        with open(self.path("bad.jsonl"), "w") as file:
            file.write('{"text": "a"}\n{"text": "b\n' * 10)
        with open(self.path("good.jsonl"), "w") as file:
            file.write('{"text": "c"}\n' * 20)
        loader = self.open({"weights": [1, 1], "datasets": [
            {"kind": "text", "paths": self.path(name)} for name in ("bad.jsonl", "good.jsonl")]},
            collate={"kind": "none"}, workers={"on_error": "skip"})
        indices = self.read(loader, 3)
        bad, good = self.rows()
        self.assertEqual((bad["samples"], good["samples"]),
                         (sum(i < 20 for i in indices), sum(i >= 20 for i in indices)))
        self.assertLess(bad["share"], 0.45)

    def test_for_people(self):
        loader = self.open({"datasets": self.ranges(300, 200), "weights": [3, 1]})
        self.read(loader, 4)
        head, *lines = dlctl("mixtures", daemon=self.running).stdout.splitlines()
        cells = [dict(zip(re.split("  +", head.strip()), re.split("  +", line.strip()))) for line in lines]
        self.assertEqual([(row["WANTED"], row["SHARE"], row["SAMPLES"]) for row in cells],
                         [("75 %", "75 %", "30"), ("25 %", "25 %", "10")])
        self.assertNotIn("TOKENS", head)

    def random_spec(self, draw, number):
        """Of lines, by chance: how they are mixed, and how batches are made."""
        children = draw.randint(1, 4)

        def weights():
            return [draw.randint(1, 9) for _ in range(children)]

        def lines():
            return {"kind": "text", "paths": self.path(f"lines-{draw.randint(0, 3)}"), "tokenizer": "bytes"}

        def child():
            if draw.random() < 0.7:
                return lines()
            inner = [lines() for _ in range(draw.randint(1, 3))]
            return {"kind": "mix", "datasets": inner, "weights": [draw.randint(1, 9) for _ in inner],
                    **draw.choice([{"stop": "first"}, {"stop": "all"}, {"stop": "never", "length": 25}])}
        mix = {"kind": "mix", "stop": draw.choice(["first", "all", "never"]), "datasets": [
            child() for _ in range(children)]}
        if mix["stop"] == "never":
            mix["length"] = draw.randint(1, 150)
            mix["draw"] = draw.choice(["exact", "random"])
        if draw.random() < 0.5:
            mix.update(global_batch=draw.randint(1, 8), schedule=[
                {"step": 0, "weights": weights()},
                {"step": draw.randint(1, 20), "weights": weights(), "ramp": draw.choice(["none", "linear"])}])
        else:
            mix["weights"] = weights()
        sampler = draw.choice([{"kind": "sequential"}, {"kind": "random", "order": "native"}])
        batch, collate = draw.choice([
            ({"size": draw.randint(1, 9)}, {"kind": "pad"}), ({"tokens": 60}, {"kind": "pad"}),
            ({"tokens": 60, "strategy": "bucket"}, {"kind": "pad"}),
            ({"tokens": 60, "strategy": "sequential"}, {"kind": "pad"}),
            ({"tokens": 64, "window": 4}, {"kind": "pack", "length": 32})])
        if "tokens" in batch and mix["stop"] != "all" and "draw" not in mix:
            mix["by"] = "tokens"
        return {"name": f"any-{number}", "dataset": mix, "sampler": sampler, "batch": batch, "collate": collate,
                "shard": {"even": False}, "seed": number, "workers": {"count": 2}}

    @slow
    def test_plan_check_and_run_agree(self):
        """On which samples each step of each rank has, in which order, and on what is in them."""
        draw = random.Random(22)
        for i in range(4):
            with open(self.path(f"lines-{i}"), "w") as file:
                file.writelines("x" * draw.randint(1, 30) + f"{n}\n" for n in range(draw.randint(5, 60)))
        for number in range(24):
            spec = self.random_spec(draw, number)
            world, epoch = draw.choice([1, 2, 3]), draw.randint(0, 2)
            path = self.spec(spec["name"], **spec)
            with self.subTest(spec=spec, world=world, epoch=epoch):
                told = dlctl("plan", path, "--world", str(world), "--rank", "all", "--epoch", str(epoch), "--json")
                planned = {(row["rank"], row["step"]): row["indices"]
                           for row in map(json.loads, told.stdout.splitlines()) if "step" in row}
                run, check = (dlctl_json(verb, path, "--digest", "--world", str(world), "--rank", "all",
                                         option, str(epoch), daemon=daemon)
                              for verb, option, daemon in (("run", "--first-epoch", self.running),
                                                           ("check", "--epoch", None)))
                self.assertEqual(run["digest"], check["digest"])
                self.assertEqual(run["samples"], sum(map(len, planned.values())))
                loader = self.user.open(spec)["loader"]
                for rank in range(world):
                    self.user.start(loader, rank=rank, world=world, epoch=epoch)
                    while batches := self.user.next_batches():
                        for batch in batches:
                            self.assertEqual(batch.indices, planned.pop((rank, batch.step)))
                            batch.release()
                self.assertEqual(planned, {})

    def test_no_mixture(self):
        loader = self.user.open({"name": "plain", "dataset": {"kind": "range", "length": 100}})["loader"]
        self.user.start(loader)
        self.user.next_batches()
        self.assertEqual(self.rows(), [])
        self.assertIsNone(dlctl_json("epochs", daemon=self.running)[0]["mixture"])
        self.assertEqual(dlctl("mixtures", daemon=self.running).stdout, "no mixtures\n")


class Blends(TestCase):
    """Ten sets of 10^8 tokens each, as Megatron-LM has them: files of 2 GB that take no room, and real indices."""

    SETS, TOKENS, DOCUMENT = 10, 100_000_000, 1000

    def corpus(self, number):
        """Megatron-LM's two files; the .bin's tokens are 0, and nowhere on the disk."""
        path, n = self.path(f"corpus{number}"), self.TOKENS // self.DOCUMENT
        with open(f"{path}.bin", "xb") as file:
            file.truncate(2 * self.TOKENS)
        with open(f"{path}.idx", "xb") as file:
            file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, n, n + 1)
                       + struct.pack(f"<{n}i", *[self.DOCUMENT] * n)
                       + struct.pack(f"<{n}q", *range(0, 2 * self.TOKENS, 2 * self.DOCUMENT))
                       + struct.pack(f"<{n + 1}q", *range(n + 1)))
        return path

    def mapped(self, pid):
        """{name of a file of a corpus: its bytes that this process has looked at, and those around them}"""
        found, name = {}, None
        with open(f"/proc/{pid}/smaps", encoding="ascii") as smaps:
            for line in smaps:
                words = line.split()
                if "-" in words[0]:
                    name = os.path.basename(words[-1]) if "corpus" in words[-1] else None
                elif name and words[0] == "Rss:":
                    found[name] = found.get(name, 0) + int(words[1]) * 1024
        return found

    def test_start(self):
        """Takes the same work however many tokens there are: no list of documents or samples is made, none is read,
        and of the tokens no more is looked at than the first batches have. (Of an index no more than its two ends:
        test_megatron.) The kernel maps up to 64 KiB around what is touched."""
        paths = [self.corpus(i) for i in range(self.SETS)]
        daemon = self.daemon()
        user = self.client(daemon)
        loader = user.open({"seed": 1, "sampler": {"kind": "random", "order": "native"}, "batch": {"size": 4},
                            "workers": {"count": 1}, "dataset": {
                                "kind": "mix", "weights": list(range(1, self.SETS + 1)), "datasets": [
                                    {"kind": "megatron", "paths": path, "view": "samples", "sequence_length": 1024}
                                    for path in paths]}})
        per_set = (self.TOKENS - 1) // 1024
        self.assertEqual(loader["length"], self.SETS * per_set)
        user.start(loader["loader"], credits=1)
        batch, = user.next_batches()
        self.assertEqual(len(batch.indices), 4)
        worker, = daemon.workers
        found = self.mapped(worker)
        self.assertEqual(len(found), 2 * self.SETS, found)
        around = 2 * 65536
        tokens = sum(touched for name, touched in found.items() if name.endswith(".bin"))
        self.assertLessEqual(tokens, 32 * 4 * around, found)  # of the batches that are loaded ahead, too
        with open(f"/proc/{worker}/io", encoding="ascii") as io:
            read = int(re.search("rchar: ([0-9]+)", io.read())[1])
        self.assertLess(read, self.SETS * os.stat(f"{paths[0]}.idx").st_size // 4, "an index was read")
        self.assertEqual(sorted(name for name in os.listdir(self.dir) if name.startswith("corpus")),
                         sorted(os.path.basename(path) + end for path in paths for end in (".bin", ".idx")))
