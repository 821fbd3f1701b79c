"""Workers on other machines: `dloaderd --helper` lends them, and batches are the same wherever they are made.
"""

import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import dltest
from bucket import Bucket
import media
from digest_datasets import COLLATES, DATASETS, ITERABLE, tokenized
from dltest import QUICK, dlctl_json, wait_until
from lent import SECRET, Authority, HelperCase, Passing, Way
from tap import slow

TURN = os.environ.get("DLOADER_TEST_TURN")


def share(every, shift):
    """(every, first) of the datasets: a ninth in quick runs; a fourth where runs have turns, and each other one's."""
    return (9, 2 * shift) if QUICK else (4, (int(TURN) + shift) % 4) if TURN else (every, 0)


class Narrow(Way):
    """A way to helpers that takes `rate` bytes a second, and as much back as there is."""

    def __init__(self, address, rate):
        self.rate = rate
        super().__init__(address)

    def join(self, near, other):
        def take(sock, data):
            time.sleep(len(data) / self.rate)
            sock.sendall(data)

        super().join(near, other)
        if near in other:
            other[near] = Passing(other[near], take)


class SameBatches(HelperCase):
    def setUp(self):
        super().setUp()
        self.plugins = pathlib.Path(self.dir)

    def check_dataset(self, daemon, name, kind, make, count):
        spec = self.spec(name, name=name, seed=77, dataset={"kind": kind, **make(self)}, collate=COLLATES.get(name, {}),
                         sampler={"kind": "random", "order": "native"}, batch={"size": 4}, workers={"count": 1})
        with self.client(daemon) as client:
            client.open(json.loads(pathlib.Path(spec).read_text()))
            self.wait_for(daemon, name, count)
            args = ["--world", "3", "--rank", "all", "--batches", "6", "--digest"]
            self.assert_same(dlctl_json("run", spec, *args, daemon=daemon), dlctl_json("check", spec, *args))
            return sum(row["tasks"] for row in self.away(daemon, name))

    def check_all(self, daemon, count, every, first=0, but=""):
        done = 0
        for at, (name, kind, make) in enumerate(DATASETS):
            if name in ITERABLE or at % every != first or kind == but:
                continue
            with self.subTest(name):
                done += self.check_dataset(daemon, name, kind, make, count)
        self.assertGreater(done, 0)

    def test_one_helper(self):
        self.check_all(self.helped([self.helper().address]), 1, *share(9, 0))

    @slow
    def test_two_helpers(self):
        addresses = [self.helper(name).address for name in ("first", "second")]
        self.check_all(self.helped(addresses, workers=2), 2, *share(1, 1))

    def test_served(self):
        """A helper that has no file of the datasets reads those of the daemon's machine, if that one says so."""
        os.mkdir(self.path("empty"))
        helper = self.helper(data_roots=[{"path": self.path("empty"), "seen_as": self.dir}])
        daemon = self.helped([helper.address], helpers={"addresses": [helper.address], "count": 1, "serve": "yes",
                                                        "secret_file": str(self.secret)})
        self.check_all(daemon, 1, *share(2, 2), but="plugin")
        self.assertIn("files are read from the daemon's machine: ", helper.log)

    def test_served_in_blocks(self):
        """Of a file that is larger than what a worker of the helper may have of it at a time."""
        os.mkdir(self.path("empty"))
        helper = self.helper(data_roots=[{"path": self.path("empty"), "seen_as": self.dir}], limits={"bytes": "16MiB"})
        rows = dltest.TestCase.rows(self, "x", 4000, 5000)
        spec = self.spec("rows", name="rows", seed=3, batch={"size": 4}, sampler={"kind": "random"},
                         workers={"count": 1, "retries": 100}, dataset={"kind": "npy", "paths": {"x": rows}})
        daemon = self.helped([helper.address], helpers={"addresses": [helper.address], "count": 1, "serve": "yes",
                                                        "secret_file": str(self.secret)})
        sent = []

        def look():
            wait_until(lambda: sum(row["tasks"] for row in self.away(daemon, "rows")) > 100, "many batches")
            sent.append(sum(row["sent_bytes"] for row in self.away(daemon, "rows")))

        self.assert_same(*self.run_while(daemon, spec, "rows", 1, look))
        self.assertGreater(sent[0], os.path.getsize(rows))  # random rows: most blocks came more than once

    def test_waiting_for_served(self):
        """It counts as time that the network takes, by which the verdict names it."""
        os.mkdir(self.path("empty"))
        helper = self.helper(data_roots=[{"path": self.path("empty"), "seen_as": self.dir}], limits={"bytes": "16MiB"})
        way = Narrow(helper.address, 16 << 20)
        self.addCleanup(way.close)
        spec = self.spec("rows", name="rows", seed=3, batch={"size": 4}, sampler={"kind": "random"},
                         workers={"count": 1, "retries": 100}, dataset={"kind": "npy", "paths": {"x": self.npy(
                             "x", (1200, 5000), "|u1", random.Random(1).randbytes(1200 * 5000))}})
        daemon = self.helped([way.address], helpers={"addresses": [way.address], "count": 1, "serve": "yes",
                                                     "secret_file": str(self.secret)})
        rows = []
        self.assert_same(*self.run_while(daemon, spec, "rows", 1, lambda: rows.extend(self.away(daemon, "rows"))))
        self.assertGreater(rows[0]["way_s"], rows[0]["busy_s"] / 2)
        self.assertGreater(rows[0]["sent_bytes"], rows[0]["received_bytes"])

    def test_stream_stopped(self):
        """What a helper has under way of it is done there, and dropped: it is free then, and nothing is kept."""
        helper = self.helper()
        daemon = self.helped([helper.address], workers=2)
        spec = {"name": "run", "dataset": {"kind": "range", "length": 60}, "batch": {"size": 1},
                "workers": {"count": 1, "prefetch": 8, "timeout": 0}}
        trainer, other = self.client(daemon), self.client(daemon)
        loader = other.open(spec)["loader"]
        self.wait_for(daemon, "run", 2)
        workers = helper.workers
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        stream = trainer.start(trainer.open(spec)["loader"], credits=20)["stream"]
        wait_until(lambda: any(row["queued"] for row in self.away(daemon, "run")), lambda: self.rows(daemon, "run"))
        trainer.send(dltest.STOP, stream)
        trainer.close()
        wait_until(lambda: other.query("epochs") == [], lambda: other.query("epochs"))
        most = {row["worker"]: row["tasks"] + row["queued"] for row in self.away(daemon, "run")}
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not any(row["queued"] for row in self.rows(daemon, "run")),
                   lambda: self.rows(daemon, "run"))
        self.assertEqual({row["worker"]: row["tasks"] for row in self.away(daemon, "run")}, most)
        self.assertEqual([row["leases"] for row in other.query("users")], [0])
        self.assertEqual(sorted(sum(other.epoch_indices(loader, epoch=1), [])), list(range(60)))
        self.assertEqual(helper.workers, workers)

    def test_by_its_configuration(self):
        """helpers.lend_at does what --helper does, but where a socket for clients is named."""
        helper = self.helper(helpers={"lend_at": "127.0.0.1:0"})
        daemon = self.helped([helper.address], helpers={"addresses": [helper.address], "count": 1,
                                                        "lend_at": "127.0.0.1:0", "secret_file": str(self.secret)})
        self.assert_same(*self.run_while(daemon, self.range("run", 60), "run", 1, lambda: None))

    def test_kept_pictures(self):
        """By dataset.cache a helper reads each picture once for all of its workers, and forgets them with the last."""
        folder = pathlib.Path(self.path("pictures"))
        folder.joinpath("cats").mkdir(parents=True)
        for i in range(40):
            (folder / "cats" / f"{i:02}.png").write_bytes(media.png(f"kept{i}", 120, 120))
        dltest.settle_files()
        helper = self.helper()
        daemon = self.helped([helper.address], workers=2)
        spec = self.spec("kept", name="kept", seed=3, batch={"size": 2}, workers={"count": 1, "retries": 100},
                         dataset={"kind": "imagefolder", "paths": str(folder), "cache": "8MiB",
                                  "transforms": [{"kind": "RandomResizedCrop", "size": [16, 20]}]})
        args = (spec, "--digest", "--epochs", "10")
        with self.client(daemon) as client:
            client.open(json.loads(pathlib.Path(spec).read_text()))
            self.wait_for(daemon, "kept", 2)
            before = self.bytes_read(helper)
            run = dlctl_json("run", *args, daemon=daemon)
            read = self.bytes_read(helper) - before
            self.assertGreater(2 * sum(row["tasks"] for row in self.away(daemon, "kept")), 4 * 40)
            self.assertTrue(self.keeps(helper))
        self.assertLess(read, 1.5 * sum(path.stat().st_size for path in folder.rglob("*.png")))
        self.assertEqual(run["digest"], dlctl_json("check", *args)["digest"])
        wait_until(lambda: not self.keeps(helper), "what was kept to be freed")

    def bytes_read(self, helper):
        return sum(int(re.search(r"rchar: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text())[1])
                   for pid in helper.workers)

    def keeps(self, helper):
        return self.bytes_kept(helper) > 0

    def bytes_kept(self, helper):
        return 512 * sum(os.stat(link).st_blocks for link in pathlib.Path(f"/proc/{helper.process.pid}/fd").iterdir()
                         if "dloader-pictures" in os.readlink(link))

    def test_kept_ids(self):
        """By dataset.ids likewise what a tokenizer makes of texts, which are then not tokenized again."""
        path = self.path("lines.txt")
        with open(path, "w") as file:
            for i in range(1000):
                file.write(f"{i} " * 50 + "\n")
        helper = self.helper()
        daemon = self.helped([helper.address], workers=2)
        tokenizer = tokenized(self, "tokens")
        for name, ids in (("none", 0), ("kept", "8MiB")):
            spec = self.spec(name, name=name, seed=1, batch={"size": 10}, collate={"kind": "pad"},
                             dataset={"kind": "text", "paths": path, "ids": ids, **tokenizer},
                             workers={"count": 1})
            with self.client(daemon) as client:
                client.open(json.loads(pathlib.Path(spec).read_text()))
                self.wait_for(daemon, name, 2)
                run = dlctl_json("run", spec, "--digest", daemon=daemon)
                # Of half of the texts and more, which are 200 bytes each and have as many ids.
                self.assertEqual(self.bytes_kept(helper) > 400 * 500, name == "kept", name)
            self.assert_same(run, dlctl_json("check", spec, "--digest"))
        wait_until(lambda: not self.keeps(helper), "what was kept to be freed")

    def test_own_workers_first(self):
        """A helper gets what the loader's own workers have no room for: here nothing."""
        daemon = self.daemon({"helpers": {"addresses": [self.helper().address], "secret_file": str(self.secret)}})
        client = self.client(daemon)
        loader = client.open({"name": "quick", "dataset": {"kind": "range", "length": 50}, "batch": {"size": 1},
                              "workers": {"count": 4}})["loader"]
        self.wait_for(daemon, "quick", 2)
        stream = client.start(loader, credits=1)
        for _ in range(50):
            batch, = client.next_batches()
            batch.release()
        self.assertEqual(client.next_batches(), [])
        self.assertEqual(stream["steps"], 50)
        self.assertRegex(dltest.dlctl("workers", daemon=daemon).stdout, r"PID +HELPER +STATE")
        self.assertEqual([row["tasks"] for row in self.away(daemon, "quick")], [0, 0])

    def test_as_many_as_the_spec_says(self):
        own = {"addresses": [self.helper().address], "secret_file": str(self.secret), "count": 2}
        daemon = self.daemon({"helpers": own})
        client = self.client(daemon)
        for name, helpers, count in (("all", "auto", 2), ("one", 1, 1), ("more", 9, 2), ("none", 0, 0)):
            with self.subTest(name):
                client.open({"name": name, "dataset": {"kind": "range", "length": 50}, "batch": {"size": 1},
                             "workers": {"count": 1, "helpers": helpers}})
                self.wait_for(daemon, name, count)
                self.assertEqual(len(self.rows(daemon, name)), 1 + count)

    def test_as_many_as_help(self):
        """By helpers.count auto more while the trainer waits and gains by them, and one where nobody reads."""
        os.symlink(dltest.BAD_WORKER, self.path("slow-always-1"))
        address = self.helper(worker=self.path("slow-always-1"), sandbox="off").address
        daemon = self.helped([address], helpers={"addresses": [address], "secret_file": str(self.secret)})
        spec = self.range("run", 3000)
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(dlctl_json, "run", spec, "--digest", daemon=daemon)
            wait_until(lambda: run.done() or sum(row["tasks"] > 0 for row in self.away(daemon, "run")) > 2,
                       lambda: f"more than two: {self.rows(daemon, 'run')}\n{daemon.log[-3000:]}")
            self.assert_same(run.result(), dlctl_json("check", spec, "--digest"))
        self.assertRegex(daemon.log, r"workers at helpers: [12] become [234]\n")
        self.client(daemon).open(json.loads(pathlib.Path(self.range("idle")).read_text()))
        wait_until(lambda: "idle: workers at helpers: 2 become 1\n" in daemon.log, lambda: daemon.log)
        wait_until(lambda: len(self.away(daemon, "idle")) == 1, lambda: f"one: {self.rows(daemon, 'idle')}")

    def test_limits_are_of_own_workers(self):
        own = {"addresses": [self.helper().address], "secret_file": str(self.secret), "count": 2}
        daemon = self.daemon({"helpers": own, "limits": {"workers": 2}})
        client = self.client(daemon)
        ranged = {"dataset": {"kind": "range", "length": 50}, "batch": {"size": 1}}
        client.open({"name": "small", "workers": {"count": 1}, **ranged})
        self.wait_for(daemon, "small", 2)
        with self.assertRaisesRegex(dltest.DaemonError, "limits.workers: 2 more would exceed the limit of 2"):
            client.open({"name": "large", "workers": {"count": 2}, **ranged})

    def test_resized(self):
        """More own workers, and fewer again, while helpers work; their numbers stay."""
        daemon = self.helped([self.helper().address], workers=2)
        spec = self.range("run", 400, workers={"count": 2, "retries": 100})

        def resize(workers, **how):
            return dltest.dlctl("resize", "run", "--workers", str(workers), daemon=daemon, **how)

        def numbers(away):
            return [row["worker"] for row in self.rows(daemon, "run") if bool(row["helper"]) == away]

        def happen():
            resize(4)
            self.assertEqual((numbers(False), numbers(True)), ([0, 1, 4, 5], [2, 3]))
            refused = resize(1, check=False)
            self.assertIn("1 workers are fewer than the 2 that it began with", refused.stderr)
            resize(2)
            wait_until(lambda: numbers(False) == [0, 1], "those that came later to go")
            resize(3)

        self.assert_same(*self.run_while(daemon, spec, "run", 2, happen))

    def test_what_is_seen(self):
        """What went over the network, how far that is, and nothing of it for a worker of this machine."""
        daemon = self.helped([self.helper().address])
        keys = ("sent_bytes", "received_bytes", "way_s", "round_trip_s")

        def look():
            own, away = self.rows(daemon, "run")
            self.assertEqual([own[key] for key in keys], [None] * 4)
            self.assertTrue(all(away[key] > 0 for key in keys), away)
            # Each batch of it is two indices of 8 bytes.
            self.assertGreaterEqual(away["received_bytes"], 16 * (away["tasks"] - 1))
            self.assertGreater(away["samples_per_s"], 0)
            self.assertAlmostEqual(own["step_share"] + away["step_share"], 1)
            self.assertGreater(away["step_share"], own["step_share"])  # whose worker is slow
            metrics = dltest.dlctl("metrics", daemon=daemon).stdout
            for line in (r'helper_bytes_total\{loader="run",worker="1",direction="received"\} [1-9]',
                         r'samples_per_second\{loader="run",worker="1"\} [1-9]',
                         r'step_share\{loader="run",worker="1"\} 0\.[5-9]',
                         r'restarts_total\{loader="run",worker="1"\} 0'):
                self.assertRegex(metrics, "dloader_worker_" + line)
            self.assertRegex(dltest.dlctl("workers", "--wide", daemon=daemon).stdout,
                             r"HELPER .*SAMPLES/S +STEP SHARE +RESTARTS .*RECEIVED +WAY +ROUND TRIP")

        self.assert_same(*self.run_while(daemon, self.range("run", 300), "run", 1, look))

    def test_slow_samples(self):
        """Those that take long there are named, and their time is counted."""
        folder = pathlib.Path(self.path("pictures"))
        folder.joinpath("cats").mkdir(parents=True)
        for i in range(30):
            wide = 600 if i % 10 == 7 else 60
            (folder / "cats" / f"{i:02}.png").write_bytes(media.png(f"slow{i}", wide, wide))
        helper = self.helper()
        daemon = self.helped([helper.address])
        spec = self.spec("seldom", name="seldom", batch={"size": 2}, workers={"count": 1},
                         dataset={"kind": "imagefolder", "paths": str(folder), "size": [32, 32]})
        with self.client(daemon) as client:
            client.open(json.loads(pathlib.Path(spec).read_text()))
            self.wait_for(daemon, "seldom", 1)
            dlctl_json("run", spec, "--epochs", "4", daemon=daemon)
            rows = dlctl_json("slow", "seldom", daemon=daemon)
            there = [row for row in rows if row["helper"] is not None]
            self.assertTrue(any(row["sample"] % 10 == 7 for row in there), rows)
            for row in there:
                self.assertEqual((row["helper"], row["name"]),
                                 (helper.address, str(folder / "cats" / f"{row['sample']:02}.png")[-255:]))
            worker, = self.away(daemon, "seldom")
            self.assertGreater(worker["slow_s"], 0)
            self.assertLess(worker["slow_s"], worker["fetch_s"])

    def test_larger_batches(self):
        """Slots grow: lines that get longer and longer."""
        path = self.path("lines.txt")
        with open(path, "w") as file:
            for i in range(120):
                file.write("x" * (1 + 400 * i) + "\n")
        spec = self.spec("lines", name="lines", seed=1, dataset={"kind": "text", "paths": path, "tokenizer": "bytes"},
                         batch={"size": 2}, collate={"kind": "pad"}, workers={"count": 1})
        daemon = self.helped([self.helper().address], workers=2)
        self.assert_same(*self.run_while(daemon, spec, "lines", 2, lambda: None))

    def test_tokens(self):
        """Lengths are taken there, too, and batches have what the plan knows of them."""
        path = self.path("lines.txt")
        with open(path, "w") as file:
            for i in range(1500):
                file.write("".join(chr(97 + (i + j) % 26) for j in range(1 + i * i % 60)) + "\n")
        spec = self.spec("tokens", name="tokens", seed=1, batch={"tokens": 200}, sampler={"kind": "random"},
                         dataset={"kind": "text", "paths": path, "tokenizer": "bytes"}, collate={"kind": "pad"},
                         workers={"count": 1})
        self.assert_same(*self.run_while(self.helped([self.helper().address]), spec, "tokens", 1, lambda: None))

    def test_lengths_while_it_is_read(self):
        path = self.path("lines.txt")
        with open(path, "w") as file:
            for i in range(3000):
                file.write("".join(chr(97 + (i + j) % 26) for j in range(1 + i * i % 60)) + "\n")
        for name, collate in (("rows", {"kind": "pack", "length": 100}), ("padded", {"kind": "pad"})):
            size = {"tokens": 400, "documents": 200} if name == "rows" else {"tokens": 200}
            spec = self.spec(name, name=name, seed=1, batch={**size, "lengths": "lazy"}, sampler={"kind": "random"},
                             dataset={"kind": "text", "paths": path, "tokenizer": "bytes"}, collate=collate,
                             workers={"count": 1})
            daemon = self.helped([self.helper(name).address], directory=f"daemon-{name}")
            run, check = self.run_while(daemon, spec, name, 1, lambda: None)
            self.assert_same({**run, "steps": check["steps"]}, check)  # which only who takes all lengths before knows
            daemon.stop()

    def test_iterable(self):
        """Two of three replicas are made there, and go on here when the helper is gone."""
        helper = self.helper()
        daemon = self.helped([helper.address], workers=2)
        spec = self.spec("stream", name="stream", dataset={"kind": "range", "length": 600, "iterable": True},
                         batch={"size": 2}, workers={"count": 3, "helpers": 2, "retries": 100})
        alone = self.spec("alone", name="alone", dataset={"kind": "range", "length": 600, "iterable": True},
                          batch={"size": 2}, workers={"count": 3, "helpers": 0})

        def kill():
            self.assertEqual([row["worker"] for row in self.away(daemon, "stream")], [1, 2])
            helper.end(signal.SIGKILL)
            wait_until(lambda: not self.away(daemon, "stream"), lambda: self.rows(daemon, "stream"))

        run, _ = self.run_while(daemon, spec, "stream", 2, kill, check=False)
        self.assert_same(run, dlctl_json("run", alone, "--digest", daemon=daemon))

    def test_bad_samples(self):
        """What a helper's worker says of a picture that is none is what any would say."""
        folder = pathlib.Path(self.path("pictures"))
        (folder / "cats").mkdir(parents=True)
        for i in range(90):
            (folder / "cats" / f"{i:02}.png").write_bytes(b"none" if i % 3 == 1 else media.png(f"p{i}", 20, 20))
        spec = self.spec("odd", name="odd", seed=1, batch={"size": 2},
                         dataset={"kind": "imagefolder", "paths": str(folder), "size": [8, 8]},
                         workers={"count": 1, "on_error": "substitute"})
        daemon = self.helped([self.helper().address])
        with self.client(daemon) as client:
            client.open(json.loads(pathlib.Path(spec).read_text()))
            self.wait_for(daemon, "odd", 1)
            said = [dltest.dlctl(verb, spec, "--digest", "--json", daemon=where, check=False)
                    for verb, where in (("run", daemon), ("check", None))]
            self.assertGreater(sum(row["tasks"] for row in self.away(daemon, "odd")), 4)
            self.assertEqual(len(dlctl_json("quarantine", daemon=daemon)), 30)
        self.assertEqual(said[0].returncode, said[1].returncode)
        self.assert_same(*(json.loads(one.stdout) for one in said))


class Strangers(HelperCase):
    def refused(self, daemon, spec, words):
        """The loader is loaded without the helper, and the log says why."""
        self.client(daemon).open(json.loads(pathlib.Path(spec).read_text()))
        self.assert_same(dlctl_json("run", spec, "--digest", daemon=daemon), dlctl_json("check", spec, "--digest"))
        wait_until(lambda: words in daemon.log, lambda: f"{words} in:\n{daemon.log}")
        self.assertEqual([row["tasks"] for row in self.away(daemon, "run")], [0])

    def test_other_secret(self):
        helper = self.helper()
        other = pathlib.Path(self.path("other"))
        other.write_text("f" * 32)
        daemon = self.helped([helper.address], helpers={"addresses": [helper.address], "count": 1,
                                                        "secret_file": str(other)})
        self.refused(daemon, self.range("run", 20), "both need the same helpers.secret_file")
        self.assertIn("a connection is refused: it does not prove that it knows the secret", helper.log)

    def test_other_files(self):
        """The same paths there lead to other files, of which the first is named: data_roots of the helper says where
        they are."""
        here, there = pathlib.Path(self.path("here")), pathlib.Path(self.path("there"))
        for place in (here, there):
            place.mkdir()
        for i in range(3):
            for place in (here, there):
                (place / f"{i}.txt").write_text(f"line {i}\n" * 30)
        for i in (1, 2):
            (there / f"{i}.txt").write_text(f"line {i + 1}\n" * 30)
        helper = self.helper(data_roots=[{"path": str(there), "seen_as": str(here)}])
        spec = self.spec("run", name="run", seed=1, batch={"size": 4}, workers={"count": 1}, collate={"kind": "pad"},
                         dataset={"kind": "text", "paths": [f"{here}/*.txt"], "tokenizer": "bytes"})
        self.refused(self.helped([helper.address]), spec,
                     f"at helper {helper.address}: {here}/1.txt: differs on the helper's machine")

    def test_files_elsewhere(self):
        """The same files under another path, which data_roots says."""
        here, there = pathlib.Path(self.path("here")), pathlib.Path(self.path("there"))
        for place in (here, there):
            place.mkdir()
            (place / "0.txt").write_text("".join(f"line {i}\n" for i in range(200)))
        helper = self.helper(data_roots=[{"path": str(there), "seen_as": str(here)}])
        spec = self.spec("run", name="run", seed=1, batch={"size": 4}, workers={"count": 1}, collate={"kind": "pad"},
                         dataset={"kind": "text", "paths": f"{here}/0.txt", "tokenizer": "bytes"})
        self.assert_same(*self.run_while(self.helped([helper.address]), spec, "run", 1, lambda: None))

    def test_noise(self):
        """What is no daemon is hung up on, and bothers nobody."""
        helper = self.helper()
        host, port = helper.address.split(":")
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\x00" * 64, b"\x10\x00\x00\x00" + b"\x91" * 16):
            with socket.create_connection((host, int(port)), timeout=dltest.PATIENCE) as stranger:
                stranger.sendall(noise)
                with contextlib.suppress(ConnectionResetError):
                    while stranger.recv(4096):
                        pass
        wait_until(lambda: not helper.ends, "its processes to end")
        self.assertEqual(helper.log.count("it is no dloaderd"), 4, helper.log)
        spec = self.range("run", 60)
        self.assert_same(*self.run_while(self.helped([helper.address]), spec, "run", 1, lambda: None))

    def test_no_more_than_it_lends(self):
        """Of three workers that a daemon asks for it gets one, and is told why."""
        daemon = self.helped([self.helper(helpers={"lend": 1}).address], workers=3)

        def look():
            self.assertEqual([row["state"] for row in self.away(daemon, "run")].count("ready"), 1)
            wait_until(lambda: "all its workers are lent" in daemon.log, "it to say that there are no more")

        self.assert_same(*self.run_while(daemon, self.range("run", 60), "run", 1, look))

    def test_silent(self):
        """Who does not prove itself in time is gone, and does not keep others out meanwhile."""
        helper = self.helper(helpers={"lend": 1})
        host, port = helper.address.split(":")
        strangers = [socket.create_connection((host, int(port))) for _ in range(5)]
        self.addCleanup(lambda: [stranger.close() for stranger in strangers])
        spec = self.range("run", 60)
        self.assert_same(*self.run_while(self.helped([helper.address]), spec, "run", 1, lambda: None))
        wait_until(lambda: not helper.ends, "them to be hung up on")

    def test_not_for_all(self):
        """Where it is not said how many shares of an iterable dataset are made there, none is."""
        daemon = self.helped([self.helper().address])
        client = self.client(daemon)
        loader = client.open({"name": "stream", "dataset": {"kind": "range", "length": 20, "iterable": True},
                              "batch": {"size": 2}, "workers": {"count": 1}})["loader"]
        self.assertEqual(sum(map(len, client.epoch_indices(loader))), 20)
        self.assertEqual(self.away(daemon, "stream"), [])  # with helpers: auto its share stays here


@unittest.skipUnless(os.geteuid() == 0, "only root can become other users")
class OwnUser(HelperCase):
    NOBODY = 65534

    def test_its_rights(self):
        """Its processes are all of its user, who reads what that one may, whatever the daemon may."""
        os.chmod(self.dir, 0o755)
        helper = self.helper(user=self.NOBODY)
        refused = f"user {self.NOBODY} may not read it; grant read permission"
        for name, mode, serve in (("open", 0o644, "no"), ("closed", 0o600, "no"), ("served", 0o600, "yes")):
            with self.subTest(name):
                path = self.path(f"{name}.txt")
                pathlib.Path(path).write_text("".join(f"line {i}\n" for i in range(400)))
                os.chmod(path, mode)
                spec = self.spec(name, name=name, seed=1, batch={"size": 4}, collate={"kind": "pad"},
                                 workers={"count": 1, "retries": 100},
                                 dataset={"kind": "text", "paths": path, "tokenizer": "bytes"})
                daemon = self.helped([helper.address], directory=f"daemon-{name}", helpers={
                    "addresses": [helper.address], "count": 1, "secret_file": str(self.secret), "serve": serve})
                if name == "closed":
                    self.client(daemon).open(json.loads(pathlib.Path(spec).read_text()))
                    wait_until(lambda daemon=daemon, path=path: f"{path}: {refused}" in daemon.log,
                               lambda daemon=daemon: daemon.log)
                    self.assertEqual([row["tasks"] for row in self.away(daemon, name)], [0])
                    continue
                users = []
                self.assert_same(*self.run_while(daemon, spec, name, 1, lambda users=users: users.extend(
                    os.stat(f"/proc/{pid}").st_uid for pid in (helper.process.pid, *helper.ends, *helper.workers))))
                self.assertGreaterEqual(len(users), 3)
                self.assertEqual(set(users), {self.NOBODY})
        self.assertEqual(helper.log.count("files are read from the daemon's machine: "), 1, helper.log)


class Remote(HelperCase):
    """Files behind URLs, which helpers fetch by themselves."""

    def setUp(self):
        super().setUp()
        self.bucket = self.store("store")

    def store(self, name):
        folder = pathlib.Path(self.path(name))
        folder.mkdir()
        bucket = Bucket(str(folder))
        self.addCleanup(bucket.close)
        return bucket

    def lines(self, store, seed=0):
        for i in range(3):
            text = "".join(f"{seed} {i} {'x' * (j % 50)}\n" for j in range(150))
            (pathlib.Path(self.path(store)) / f"{i}.txt").write_text(text)

    def spec_of(self, paths):
        return self.spec("run", name="run", seed=1, batch={"size": 4}, collate={"kind": "pad"},
                         workers={"count": 1, "retries": 100}, sampler={"kind": "random"},
                         dataset={"kind": "text", "paths": paths, "tokenizer": "bytes"})

    def test_same_batches(self):
        """By a pattern; the helper's process that fetches may end."""
        self.lines("store")
        helper = self.helper(env=self.bucket.environment)
        daemon = self.helped([helper.address], env=self.bucket.environment)
        remote = self.spec_of("s3://bucket/*.txt")

        def kill():
            for pid in helper.fetchers:
                os.kill(pid, signal.SIGKILL)

        run, _ = self.run_while(daemon, remote, "run", 1, kill, check=False)
        self.assert_same(run, dlctl_json("check", self.spec_of(self.path("store/*.txt")), "--digest"))

    def test_fetched_where_it_is_made(self):
        """The daemon's machine does not fetch ahead what helpers make."""
        media.pictures(pathlib.Path(self.path("store")), 400)
        there = Bucket(self.path("store"))
        self.addCleanup(there.close)
        daemon = self.helped([self.helper(env=there.environment).address], env=self.bucket.environment)
        spec = self.spec("run", name="run", seed=1, batch={"size": 2}, workers={"count": 1},
                         dataset={"kind": "imagefolder", "paths": "s3://bucket", "size": [8, 8]})
        with self.client(daemon) as client:
            client.open(json.loads(pathlib.Path(spec).read_text()))
            self.wait_for(daemon, "run", 1)
            run = dlctl_json("run", spec, "--digest", daemon=daemon)
            own, away = self.rows(daemon, "run")
        here = self.spec("here", name="run", seed=1, batch={"size": 2}, workers={"count": 1},
                         dataset={"kind": "imagefolder", "paths": self.path("store"), "size": [8, 8]})
        self.assert_same(run, dlctl_json("check", here, "--digest"))
        self.assertGreater(away["tasks"], 20)
        self.assertEqual(away["restarts"], 0)
        self.assertGreater(away["remote_s"], 0)
        asked = [sum(count for name, count in store.asked.items() if name.endswith("png"))
                 for store in (self.bucket, there)]
        # Of what it makes, and some that was asked for to open the dataset, or twice.
        for count, row in zip(asked, (own, away)):
            self.assertLessEqual(count, 2 * row["tasks"] + 20)

    def test_other_store(self):
        """The same names and sizes, and other objects."""
        self.lines("store")
        other = self.store("other")
        self.lines("other", 1)
        daemon = self.helped([self.helper(env=other.environment).address], env=self.bucket.environment)
        self.client(daemon).open(json.loads(pathlib.Path(self.spec_of("s3://bucket/*.txt")).read_text()))
        wait_until(lambda: "the helper sees other files than this machine" in daemon.log, lambda: daemon.log)
        self.assertEqual([row["tasks"] for row in self.away(daemon, "run")], [0])


class Encrypted(HelperCase):
    """TLS with certificates of both ends."""

    def setUp(self):
        super().setUp()
        self.authority = Authority(pathlib.Path(self.path("authority")))

    def through(self, way, **helpers):
        self.addCleanup(way.close)
        return self.helped([way.address], directory=f"daemon{len(os.listdir(self.dir))}",
                           helpers={"addresses": [way.address], "count": 1, "secret_file": str(self.secret), **helpers})

    def test_same_batches(self):
        """Of some size; and who listens reads nothing, as they would without certificates."""
        rows = dltest.TestCase.rows(self, "x", 640, 3000)
        spec = self.spec("pictures", name="pictures", seed=3, batch={"size": 64}, workers={"count": 1, "retries": 100},
                         dataset={"kind": "npy", "paths": {"x": rows}})
        for files in ({}, self.authority.issue("one")):
            way = Way(self.helper(f"helper{len(files)}", helpers=files).address)
            daemon = self.through(way, **files)
            with self.client(daemon) as client:
                client.open(json.loads(pathlib.Path(spec).read_text()))
                self.wait_for(daemon, "pictures", 1)
                self.assert_same(dlctl_json("run", spec, "--digest", daemon=daemon),
                                 dlctl_json("check", spec, "--digest"))
                self.assertGreater(sum(row["tasks"] for row in self.away(daemon, "pictures")), 0)
            self.assertEqual(b"sequential" in way.heard, not files)

    def test_strangers(self):
        """Of another authority, without certificates, or the only one that has some: words on both sides."""
        ours, others = self.authority.issue("one"), Authority(pathlib.Path(self.path("others"))).issue("two")
        mixed = {**others, "authority": ours["authority"]}
        for name, far, near, words, far_words in (
                ("others", ours, others, "helpers.authority: the other end's certificate is not accepted: ", "TLS"),
                ("signed", ours, mixed, "it refuses this machine's certificate", "certificate is not accepted: "),
                ("plain", {}, ours, "the two ends do not come to speak TLS", "a connection is refused"),
                ("alone", ours, {}, "helpers.certificate on both, or on neither", "")):
            with self.subTest(name):
                helper = self.helper(name, helpers=far)
                daemon = self.through(Way(helper.address), **near)
                with self.client(daemon) as client:
                    client.open(json.loads(pathlib.Path(self.range(name, 20)).read_text()))
                    wait_until(lambda daemon=daemon, words=words: words in daemon.log,
                               lambda daemon=daemon, words=words: f"{words} in:\n{daemon.log}")
                wait_until(lambda helper=helper, words=far_words: words in helper.log, lambda helper=helper: helper.log)
                daemon.stop()


class Configuration(dltest.LifeCase):
    def conf(self, **config):
        path = self.path("conf")
        pathlib.Path(path).write_text(json.dumps(config))
        return path

    def test_refusals(self):
        pathlib.Path(self.path("short")).write_text("short")
        for config, words in [
                ({"helpers": {"addresses": ["node7"]}}, "\"node7\" is not the address of a helper"),
                ({"helpers": {"addresses": ["node7:0"]}}, "\"node7:0\" is not the address of a helper"),
                ({"helpers": {"addresses": ["::1:7071"]}}, "\"::1:7071\" is not the address of a helper"),
                ({"helpers": {"addresses": ["[::1]:7071"]}}, "helpers.secret_file: is not set"),
                ({"helpers": {"secret_file": self.path("short")}}, "16 to 512 letters"),
                ({"helpers": {"certificate": self.path("short")}}, "helpers.key: \"\" is not the absolute path"),
                ({"helpers": {"certificate": "one.pem"}}, "helpers.certificate: \"one.pem\" is not the absolute path"),
                ({"helpers": {"certificate": "/none.pem"}}, "helpers.certificate: /none.pem cannot be read: No such"),
                ({"helpers": {"versions": "newer"}}, "\"newer\" is not one of same, any"),
                ({"helpers": {"addresses": "node7:7071"}}, "is not a list of HOST:PORT")]:
            self.assert_does_not_start(words, "--config", self.conf(**config))

    def test_refusals_of_helper(self):
        self.assert_does_not_start("helpers.secret_file: is not set", "--helper", "127.0.0.1:0")
        self.assert_does_not_start("leave out --private", "--helper", "127.0.0.1:0", "--private", status=2)
        pathlib.Path(self.path("secret")).write_text(SECRET)
        conf = self.conf(helpers={"secret_file": self.path("secret")})
        self.assert_does_not_start("--helper: \"here\" is not an address", "--helper", "here", "--config", conf)
        conf = self.conf(helpers={"secret_file": self.path("secret"), "lend_at": "here"})
        done = subprocess.run([dltest.DLOADERD, "--config", conf], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("helpers.lend_at: \"here\" is not an address", done.stderr)

    def test_no_port(self):
        """A daemon with helpers or without listens at no port."""
        pathlib.Path(self.path("secret")).write_text(SECRET)
        daemon = self.daemon({"helpers": {"addresses": ["127.0.0.1:1"], "secret_file": self.path("secret")}})
        own = set()
        for link in pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                own.add(os.readlink(link))
        for family in ("tcp", "tcp6"):
            sockets = pathlib.Path(f"/proc/{daemon.process.pid}/net/{family}").read_text()
            rows = [line.split() for line in sockets.splitlines()[1:]]
            listening = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
            self.assertFalse(own & listening)
