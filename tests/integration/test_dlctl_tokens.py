"""dlctl without a daemon on batches of tokens: plan, check, lengths."""

import json
import pathlib

import media
from offline import Case, dlctl, write_npy
from tap import slow


def real(x):
    """A number as dlctl writes it: with 15 digits."""
    return float("%.15g" % x)


class TokenCase(Case):
    """Batches that are measured in tokens, of lines of text with a token for each byte."""

    LENGTHS = [3, 5, 2, 8, 1, 6, 4, 3]

    def token_spec(self, lengths, batch, collate="pad", sampler="sequential", extra="seed: 1\n",
                   name="tokens.yaml"):
        self.write("lines.txt", "".join("x" * n + "\n" for n in lengths))
        return self.write(name, "dataset: {kind: text, paths: lines.txt, tokenizer: bytes}\n"
                                f"sampler: {{kind: {sampler}}}\nbatch: {{{batch}}}\n"
                                f"collate: {{kind: {collate}}}\n{extra}")

    def varied(self, n=2000):
        """Lengths from 1 to 60 or so, short ones more often."""
        return [1 + i * 7919 % 30 + (i * 104729 % 31) ** 2 // 31 for i in range(n)]

    def lines(self, *args):
        status, out, err = dlctl("plan", *args, "--json")
        self.assertEqual((status, err), (0, ""))
        return [json.loads(line) for line in out.splitlines()]

    def totals(self, *args):
        status, out, err = dlctl("plan", *args, "--totals", "--json")
        self.assertEqual((status, err, out.count("\n")), (0, "", 1))
        return json.loads(out)


class TokenPlan(TokenCase):
    BUCKETS = "tokens: 16, strategy: bucket, interval: 4"

    def test_buckets(self):
        # Of 1 to 4 tokens four make a batch, of 5 to 8 two; what fills none comes at the end.
        want = [
            (0, [1, 3], [5, 8], 13, 16, 1),
            (1, [0, 2, 4, 6], [3, 2, 1, 4], 10, 16, 0),
            (2, [7], [3], 3, 3, 0),
            (3, [5], [6], 6, 6, 1),
        ]
        spec = self.token_spec(self.LENGTHS, self.BUCKETS)
        keys = ["step", "indices", "lengths", "tokens", "padded", "bucket"]
        lines = self.lines(spec)
        self.assertEqual([list(line) for line in lines],
                         [["step", "rank", "indices", "repeated", *keys[2:]]] * 4)
        self.assertEqual([tuple(line[key] for key in keys) for line in lines], want)
        self.assertEqual(dlctl("plan", spec)[1],
                         "step 0 bucket 1 tokens 13/16: 1 3\n"
                         "step 1 bucket 0 tokens 10/16: 0 2 4 6\n"
                         "step 2 bucket 0 tokens 3/3: 7\n"
                         "step 3 bucket 1 tokens 6/6: 5\n")
        self.assertEqual(dlctl("plan", spec, "--from", 1, "--steps", 1)[1],
                         "step 1 bucket 0 tokens 10/16: 0 2 4 6\n")

    def test_ranks(self):
        spec = self.token_spec(self.LENGTHS * 2, self.BUCKETS)
        status, out, _ = dlctl("plan", spec, "--world", 2, "--rank", "all", "--steps", 1)
        self.assertEqual((status, out), (0, "step 0 rank 0 bucket 1 tokens 11/12: 1 5\n"
                                            "step 0 rank 1 bucket 1 tokens 13/16: 3 9\n"))

    def test_totals(self):
        spec = self.token_spec(self.LENGTHS + [17], self.BUCKETS)
        self.assertEqual(self.totals(spec), {
            "groups": 4, "samples": 8, "tokens": 32, "padded": 41, "padding": real(1 - 32 / 41),
            "overlong": 1, "empty": 0, "leftover": 0, "carried": 0, "repeated": 0, "rows": None,
            "buckets": [{"upper": 4, "members": 5, "full": 4, "leftover": 1},
                        {"upper": 8, "members": 3, "full": 2, "leftover": 1}]})
        status, out, err = dlctl("plan", spec, "--totals")
        self.assertEqual((status, err), (0, ""))
        for want in ("groups: 4", "padding: 22 %", "rows: -", "  UPPER  MEMBERS  FULL  LEFTOVER",
                     "      4        5     4         1"):
            self.assertIn(want + "\n", out)

    def test_no_buckets(self):
        spec = self.token_spec(self.LENGTHS, "tokens: 16")
        self.assertEqual({line["bucket"] for line in self.lines(spec)}, {None})
        self.assertNotIn("bucket", dlctl("plan", spec)[1])
        self.assertIsNone(self.totals(spec)["buckets"])

    def test_pack(self):
        spec = self.token_spec(self.LENGTHS, "tokens: 16", "pack, length: 8")
        lines = self.lines(spec)
        for line in lines:
            length = dict(zip(line["indices"], line["lengths"]))
            self.assertEqual([i for row in line["rows"] for i in row], line["indices"])
            self.assertTrue(all(sum(length[i] for i in row) <= 8 for row in line["rows"]))
            self.assertEqual((line["padded"], line["tokens"]),
                             (8 * len(line["rows"]), sum(line["lengths"])))
        self.assertEqual(self.totals(spec)["rows"], sum(len(line["rows"]) for line in lines))
        shown = dlctl("plan", spec)[1].splitlines()
        for line, text in zip(lines, shown):
            rows = " | ".join(" ".join(map(str, row)) for row in line["rows"])
            self.assertEqual(text, f"step {line['step']} rows {len(line['rows'])} tokens "
                                   f"{line['tokens']}/{line['padded']}: {rows}")

    def test_each_sample_once(self):
        lengths = self.varied()
        for batch, collate, rank in (("tokens: 512", "pad", 1),
                                     ("tokens: 512, strategy: bucket", "pad, to: bucket", 1),
                                     ("tokens: 512", "pack, length: 128", 1),
                                     ("tokens: 512", "pad, multiple_of: 8", 3),
                                     ("tokens: 512, strategy: bucket, leftover: drop", "pad", 3)):
            with self.subTest(batch=batch, collate=collate, rank=rank):
                spec = self.token_spec(lengths, batch, collate, "random")
                args = ["--world", rank, "--rank", "all"]
                lines, totals = self.lines(spec, *args), self.totals(spec, *args)
                for line in lines:
                    self.assertEqual(line["lengths"], [lengths[i] for i in line["indices"]])
                    self.assertLessEqual(line["padded"], 512)
                    self.assertLessEqual(sum(line["lengths"]), line["padded"])
                indices = [i for line in lines for i in line["indices"]]
                self.assertEqual(len(set(indices)), len(lengths) - totals["leftover"])
                self.assertEqual(len(indices) - len(set(indices)), totals["repeated"])
                for key in "tokens", "padded":
                    self.assertEqual(sum(line[key] for line in lines), totals[key])
                self.assertEqual(len({line["step"] for line in lines}), totals["groups"])
                for key in "step", "bucket":
                    self.assertEqual([line[key] for line in lines[::rank]],
                                     [line[key] for line in lines[rank - 1::rank]])

    def test_length_alone(self):
        spec = self.token_spec(self.LENGTHS, "tokens: 16")
        self.assert_error(1, "EINVAL", "--length", "leave it out", "plan", spec, "--length", 8)

    def test_totals_of_samples(self):
        self.assert_error(1, "EINVAL", "--totals", "no batch.tokens", "plan", self.range_spec(),
                          "--totals")

    def test_no_length(self):
        spec = self.write("range.yaml", "dataset: {kind: range, length: 5}\n"
                                        "batch: {tokens: 16}\ncollate: {kind: pad}\n")
        for verb in "plan", "lengths":
            status, out, err = dlctl(verb, spec)
            self.assertEqual((status, out, err.count("\n")), (1, "", 1))

    def test_overlong_is_an_error(self):
        spec = self.token_spec([3, 17], "tokens: 16, overlong: error")
        self.assert_error(1, "EINVAL", "batch.overlong", "sample 1 has 17 tokens", "plan", spec)
        self.assertEqual(dlctl("lengths", spec)[0], 0)


class TokenCheck(TokenCase):
    def test_tokens(self):
        spec = self.token_spec(self.LENGTHS, TokenPlan.BUCKETS)
        found = self.check(spec)
        self.assertEqual((found["batches"], found["samples"], found["tokens"], found["padded"],
                          found["padding"]), (4, 8, 32, 41, real(1 - 32 / 41)))
        self.assertGreater(found["tokens_per_s"], 0)
        self.assertRegex(dlctl("check", spec)[1], r"(?m)^tokens    32, .* tokens/s, 22 % of 41")

    def test_as_planned(self):
        lengths = self.varied(500)
        for collate in "pad", "pack, length: 128":
            spec = self.token_spec(lengths, "tokens: 512", collate, "random")
            found = self.check(spec, "--world", 2, "--rank", "all")
            totals = self.totals(spec, "--world", 2)
            for key in "samples", "tokens", "padded", "padding":
                self.assertEqual(found[key], totals[key])

    def test_samples(self):
        self.assertNotIn("tokens", self.check(self.range_spec()))
        self.assertNotIn("tokens", dlctl("check", self.range_spec())[1])


class Lengths(TokenCase):
    def lengths(self, *args):
        status, out, err = dlctl("lengths", *args, "--json")
        self.assertEqual((status, err, out.count("\n")), (0, "", 1))
        return json.loads(out)

    def test_numbers(self):
        lengths = self.LENGTHS + [20]
        found = self.lengths(self.token_spec(lengths, "tokens: 16"))
        for key, want in {"samples": 9, "tokens": 52, "min": 1, "median": 4, "mean": real(52 / 9),
                          "p95": 20, "p99": 20, "max": 20, "limit": 16, "overlong": 1,
                          "batch_tokens": 16, "planned": 9}.items():
            self.assertEqual(found[key], want, key)
        self.assertEqual(found["histogram"], [{"from": n, "to": n, "count": lengths.count(n)}
                                              for n in range(1, 21)])
        choices = {(c["strategy"], c["interval"]): c for c in found["choices"]}
        self.assertEqual(list(choices), [("sorted", None)] + [("bucket", 2**i) for i in range(5)])
        # 6 | 5 | 8, and 1 2 3 3 4 in fours: see TokenPlan.test_buckets, and the longest too
        bucket = choices["bucket", 4]
        self.assertEqual((bucket["steps"], bucket["padding"], bucket["fill"],
                          bucket["padded_per_step"]), (4, real(1 - 32 / 41), 32 / 64, 41 // 4))

    def test_choices_are_plans(self):
        lengths = self.varied()
        found = self.lengths(self.token_spec(lengths, "tokens: 512", sampler="random"))
        for choice in found["choices"]:
            batch = f"tokens: 512, strategy: {choice['strategy']}"
            if choice["interval"]:
                batch += f", interval: {choice['interval']}"
            totals = self.totals(self.token_spec(lengths, batch, sampler="random"))
            self.assertEqual((choice["padding"], choice["steps"]),
                             (totals["padding"], totals["groups"]))
            self.assertEqual(choice["fill"], real(totals["tokens"] / totals["groups"] / 512))
        buckets = [c for c in found["choices"] if c["interval"]]
        self.assertEqual([c["interval"] for c in buckets], [1, 2, 4, 8, 16, 32, 64])
        fullest = max(c["fill"] for c in buckets)
        wide = max(c["interval"] for c in buckets if c["fill"] >= fullest - 0.01)
        best = max(found["choices"][0], *[c for c in buckets if c["interval"] == wide],
                   key=lambda c: c["fill"])
        self.assertEqual(found["suggest"], {"strategy": best["strategy"], "interval": wide,
                                            "padding": best["padding"],
                                            "fill": best["fill"]})

    def test_spec_without_tokens(self):
        found = self.lengths(self.token_spec(self.LENGTHS, "size: 4"))
        self.assertEqual((found["batch_tokens"], found["limit"], found["overlong"]),
                         (16384, 16384, 0))
        fed = self.lengths(self.token_spec(self.LENGTHS, "size: 4", "default", "client"))
        self.assertEqual(fed["median"], 3)

    def test_pack(self):
        found = self.lengths(self.token_spec(self.varied(), "tokens: 512", "pack, length: 128"))
        self.assertEqual([c["strategy"] for c in found["choices"]][:2], ["pack", "sorted"])
        self.assertEqual(found["limit"], 128)
        self.assertEqual(found["suggest"]["strategy"], "pack")

    def test_max_length_ends_the_histogram(self):
        spec = self.token_spec([1] * 50 + [40, 41, 90], "tokens: 128, max_length: 40")
        rows = self.lengths(spec)["histogram"]
        self.assertEqual(len(rows), 21)
        self.assertEqual(rows[-2:], [{"from": 39, "to": 40, "count": 1},
                                     {"from": 41, "to": 90, "count": 2}])

    def test_nothing_fits(self):
        found = self.lengths(self.token_spec([20, 30], "tokens: 16"))
        self.assertEqual((found["choices"], found["suggest"], found["overlong"]), ([], None, 2))
        status, out, _ = dlctl("lengths", self.path("tokens.yaml"))
        self.assertEqual(status, 0)
        self.assertIn("no sample fits a batch", out)

    @slow
    def test_many_samples(self):
        """Of more than 200,000 some are planned, the same ones each time, and all is estimated."""
        spec = self.token_spec(self.varied(300000), "tokens: 16384, strategy: bucket",
                               sampler="random", extra="")
        found = self.lengths(spec)
        self.assertEqual((found["samples"], found["planned"]), (300000, 200000))
        self.assertEqual(found, self.lengths(spec))
        self.assertIn("estimated from 200000 samples", dlctl("lengths", spec)[1])
        want = json.loads(dlctl("plan", spec, "--totals", "--json")[1])
        have, = [c for c in found["choices"] if c["interval"] == 8]
        self.assertAlmostEqual(have["steps"] / want["groups"], 1, delta=0.02)
        self.assertAlmostEqual(have["padding"], want["padding"], delta=0.002)

    def test_drawing(self):
        spec = self.token_spec(self.LENGTHS, "tokens: 16")
        for locale, bar in ("C", "#"), ("C.UTF-8", "\u2588"):
            status, out, err = dlctl("lengths", spec, env={"LC_ALL": locale})
            self.assertEqual((status, err), (0, ""))
            lines = out.splitlines()
            self.assertRegex(lines[0], r"\ALENGTH  SAMPLES   SHARE\Z")
            self.assertEqual(lines[3], f"     3        2     25 %  {bar * 57}"[:80])
            self.assertTrue(all(len(line) <= 80 for line in lines), out)
            for want in ("samples   8, 32 tokens", "min 1, median 3, mean 4.0, 95 % 8, 99 % 8, max 8",
                         "overlong  0, of more than 16 tokens", "suggest   strategy: "):
                self.assertIn(want, out)

    def test_failures(self):
        self.assert_error(1, "EINVAL", "dataset", "has no samples", "lengths",
                          self.token_spec([], "tokens: 16"))
        spec = self.write("i.yaml", "dataset: {kind: range, length: 5, iterable: true}\n")
        self.assert_error(1, "EINVAL", "dataset.kind", "iterable", "lengths", spec)
        self.assert_error(2, "EINVAL", "lengths", "needs SPEC", "lengths")
        spec = self.token_spec(self.LENGTHS, "size: 2", sampler="indices, indices: [3, 8]")
        self.assert_error(1, "EINVAL", "sampler.indices.1", "8 is past the end", "lengths", spec)

    def test_samples_without_lengths(self):
        """Where all are alike, or none is a sequence, a histogram says nothing."""
        self.assert_error(1, "EINVAL", "dataset", r"every sample is int64 \[\]: samples of one "
                          r"shape have no lengths to compare", "lengths", self.range_spec())
        write_npy(self.path("x.npy"), "<f4", (6, 28, 28), bytes(6 * 28 * 28 * 4))
        fixed = self.write("fixed.yaml", "dataset: {kind: npy, paths: {x: x.npy}}\n")
        self.assert_error(1, "EINVAL", "dataset", r"every sample is float32 \[28, 28\]", "lengths", fixed)
        media.pictures(pathlib.Path(self.path("images")), 3)
        folder = self.write("images.yaml", "dataset: {kind: imagefolder, paths: images}\n")
        self.assert_error(1, "EINVAL", "dataset", r"sample 0 is uint8 \[[\d, ]+\], which is not "
                                                  r"a sequence",
                          "lengths", folder)
