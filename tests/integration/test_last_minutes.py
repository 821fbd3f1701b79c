"""The last ten minutes, which the daemon keeps even if nobody looks: dlctl lately."""

from dltest import TestCase, dlctl, dlctl_json, named, wait_until


class Lately(TestCase):
    def rows(self, daemon, *args):
        rows = dlctl_json("lately", *args, daemon=daemon)
        for row in rows:
            self.assertEqual(row["bin_s"], 10)
            self.assertLessEqual(row["last_s"], 10)
            for key in ("waits", "batches", "bytes"):
                self.assertLessEqual(len(row[key] or []), 60)
        return [row for row in rows if row["rank"] is None], [row for row in rows if row["rank"] is not None]

    def read(self, client, loader, n, **options):
        client.start(loader, credits=1, **options)
        while n > 0:
            for batch in client.next_batches():
                n -= 1
                batch.release()

    def test_a_rank_that_waits(self):
        """A worker is 50 ms slow with each batch, and the trainer does nothing else than wait."""
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        client = self.client(daemon)
        loader = client.open(named("slow", workers={"count": 1}, dataset={"kind": "range", "length": 400}))["loader"]
        self.assertEqual(self.rows(daemon)[1], [])
        self.read(client, loader, 10)
        (whole,), (rank,) = self.rows(daemon)
        self.assertEqual((rank["loader"], rank["rank"], rank["world"], rank["job"]), ("slow", 0, 1, ""))
        self.assertEqual((rank["batches"], whole["waits"], whole["job"]), (None, None, None))
        self.assertEqual(whole["age_s"], 0)
        self.assertGreater(rank["read_s"], 0.4)
        self.assertLessEqual(rank["waited_s"], rank["read_s"])
        self.assertGreaterEqual(sum(whole["batches"]), 10)
        self.assertGreater(sum(whole["bytes"]), 0)
        self.assertIsNotNone(rank["session"])

    def test_it_is_there_afterwards(self):
        """Also once the epoch is over, and its client gone; and the next one's client goes on with the job's line."""
        daemon = self.daemon({"linger": "1h"}, clock=True)
        spec = named("kept", dataset={"kind": "range", "length": 40})
        client = self.client(daemon)
        for job, epoch in (("", 0), ("nightly", 0), ("nightly", 1)):
            self.read(client, client.open(spec)["loader"], 2, epoch=epoch, **({"job": job} if job else {}))
            daemon.advance(2)
        client.close()
        wait_until(lambda: all(row["session"] is None for row in self.rows(daemon)[1]), "the client's end to be seen")
        (whole,), ranks = self.rows(daemon)
        self.assertEqual([row["job"] for row in ranks], ["", "nightly"])
        for row in ranks:
            self.assertGreaterEqual(row["read_s"], 2)
        self.assertGreaterEqual(sum(whole["batches"]), 6)  # and what was looked ahead
        daemon.advance(700)
        (later,), _ = self.rows(daemon)
        self.assertAlmostEqual(later["age_s"] - whole["age_s"], 700, delta=60)

    def test_table(self):
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(named("drawn"))["loader"]
        self.read(client, loader, 1)
        client.open(named("other"))
        head, whole, rank = dlctl("lately", "drawn", daemon=daemon).stdout.splitlines()
        for word in ("LOADER", "RANK", "WAIT SHARE", "TEN MINUTES"):
            self.assertIn(word, head)
        self.assertTrue(whole.startswith("drawn"))
        self.assertRegex(rank, r"^drawn +0 .*[▁▂▃▄▅▆▇█]$")
        self.assertEqual(len(self.rows(daemon)[0]), 2)
