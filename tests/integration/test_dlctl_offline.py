"""dlctl without a daemon: plan, check, help, usage, and every way these can fail."""

import json
import os
import pathlib
import re
import resource

from offline import Case, dlctl
from tap import slow

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

VERBS = {
    "plan": ["epoch", "world", "rank", "from", "steps", "length", "totals", "quiet", "changes"],
    "check": ["epoch", "epochs", "world", "rank", "batches", "digest", "quiet", "changes"],
    "lengths": ["quiet"],
    "kinds": [],
    "mix": ["at", "epoch"],
    "run": ["epochs", "first-epoch", "world", "rank", "batches", "digest", "credits", "state",
            "save-state", "journal", "save-journal", "job", "resume", "quiet"],
    "state": [],
    "status": ["wide"],
    "loaders": ["wide"],
    "epochs": ["wide"],
    "workers": ["wide"],
    "ring": ["wide"],
    "sessions": ["wide"],
    "quarantine": ["wide"],
    "members": ["wide"],
    "mixtures": ["wide"],
    "lately": ["wide"],
    "slow": ["wide"],
    "remote": ["wide"],
    "fetch": ["epoch", "quiet"],
    "pretokenize": ["output", "quiet"],
    "spec": [],
    "report": ["output", "spec"],
    "times": ["wide"],
    "metrics": [],
    "trace": ["output"],
    "headspace": ["steps"],
    "stop": [],
    "drain": [],
    "reload": [],
    "close-run": [],
    "help": [],
}
FLAGS = {"digest", "json", "help", "totals", "resume", "wide", "quiet"}
FILES = {"state", "save-state", "journal", "save-journal", "job", "changes"}


class Plan(Case):
    def test_sequential(self):
        self.assertEqual(self.steps(self.range_spec()),
                         [(0, 0, [0, 1, 2]), (1, 0, [3, 4, 5]), (2, 0, [6, 7, 8]), (3, 0, [9])])

    def test_drop_last(self):
        spec = self.write("d.yaml", "dataset: {kind: range, length: 10}\n"
                                    "batch: {size: 3, drop_last: true}\n")
        self.assertEqual([indices for _, _, indices in self.steps(spec)],
                         [[0, 1, 2], [3, 4, 5], [6, 7, 8]])

    def test_torch_order(self):
        # torch.randperm(10) of a generator seeded 42, and 43 for epoch 1
        spec = self.range_spec(sampler="random, order: torch", batch=10, extra="seed: 42\n")
        self.assertEqual(self.steps(spec), [(0, 0, [2, 6, 1, 8, 4, 5, 0, 9, 3, 7])])
        self.assertEqual(self.steps(spec, "--epoch", 1), [(0, 0, [8, 4, 9, 0, 5, 1, 6, 7, 2, 3])])

    def test_native_order(self):
        spec = self.range_spec(1000, 100, "random, order: native", "seed: 7\n")
        first = self.steps(spec)
        self.assertEqual(first, self.steps(spec))
        self.assertNotEqual(first, self.steps(spec, "--epoch", 1))
        indices = [i for _, _, step in first for i in step]
        self.assertEqual(sorted(indices), list(range(1000)))
        self.assertNotEqual(indices, sorted(indices))

    def each_order(self, sampler, length=10):
        spec = self.range_spec(length, 100, sampler, "seed: 42\n")
        return self.steps(spec)[0][2]

    def test_samplers(self):
        self.assertEqual(self.each_order("random, num_samples: 12"),
                         [2, 6, 1, 8, 4, 5, 0, 9, 3, 7, 3, 5])
        self.assertEqual(self.each_order("random, replacement: true"),
                         [2, 7, 6, 4, 6, 5, 0, 4, 0, 3])
        self.assertEqual(self.each_order("indices, indices: [5, 5, 0]"), [5, 5, 0])
        self.assertEqual(self.each_order("subset_random, indices: [5, 6, 7, 8, 9]"),
                         [7, 9, 8, 5, 6])
        self.assertEqual(self.each_order("weighted, weights: [.1, .9, .4, .7, 3, .6], "
                                         "num_samples: 12", 6),
                         [1, 1, 1, 1, 4, 4, 5, 5, 1, 1, 1, 4])

    def test_a_trillion_samples(self):
        trillion = 10**12
        for sampler, length in [("random", trillion), ("random, replacement: true", trillion),
                                (f"random, num_samples: {trillion}", 7),
                                (f"weighted, weights: [1, 2], num_samples: {trillion}", 2),
                                (f"subset_random, indices: [{trillion - 1}]", trillion)]:
            spec = self.range_spec(length, 4, sampler + ", order: native", "seed: 1\n")
            last = trillion // 4 - 1 if "subset" not in sampler else 0
            begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            (step, _, indices), = self.steps(spec, "--from", last, "--steps", 1)
            self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin, 5)
            self.assertEqual((step, len(indices)), (last, 4 if last else 1))
            self.assertTrue(all(0 <= i < length for i in indices))

    def test_ranks(self):
        spec = self.range_spec(10, 2)
        self.assertEqual(self.steps(spec, "--world", 4, "--rank", 1),
                         [(0, 1, [1, 5]), (1, 1, [9])])
        # even: 12 samples of 10, the first two again
        self.assertEqual(self.steps(spec, "--world", 4, "--rank", 3),
                         [(0, 3, [3, 7]), (1, 3, [1])])

    def test_repeated(self):
        """13 samples, in order, for 3 ranks: what of the last steps is there for evenness alone."""
        for mode, size, repeated in (("strided", 2, [0, 1, 1]), ("batch", 2, [1, 2, 2]),
                                     ("split", 6, [1, 2, 2]), ("dispatch", 2, [0, 1, 1])):
            for even in (True, False):
                with self.subTest(mode=mode, even=even):
                    spec = self.range_spec(13, size, extra=f"shard: {{mode: {mode}, "
                                                           f"even: {str(even).lower()}}}\n")
                    _, out, _ = dlctl("plan", spec, "--json", "--world", 3, "--rank", "all")
                    lines = [json.loads(line) for line in out.splitlines()]
                    self.assertEqual([line["repeated"] for line in lines if line["step"] == 2],
                                     repeated if even else [0] * len(lines[6:]))
                    self.assertEqual(sum(line["repeated"] for line in lines[:6]), 0)
                    self.assertEqual(sum(len(line["indices"]) - line["repeated"]
                                         for line in lines), 13)

    def test_all_ranks(self):
        spec = self.range_spec(10, 2, extra="shard: {even: false}\n")
        every = self.steps(spec, "--world", 4, "--rank", "all")
        self.assertEqual([(step, rank) for step, rank, _ in every],
                         [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)])
        for rank in range(4):
            self.assertEqual([s for s in every if s[1] == rank],
                             self.steps(spec, "--world", 4, "--rank", rank))
        self.assertEqual(sorted(i for _, _, s in every for i in s), list(range(10)))

    def test_from_and_steps(self):
        spec = self.range_spec(1000, 7, "random, order: torch", "seed: 3\n")
        whole = self.steps(spec)
        self.assertEqual(len(whole), 143)
        self.assertEqual(self.steps(spec, "--from", 100), whole[100:])
        self.assertEqual(self.steps(spec, "--from", 50, "--steps", 3), whole[50:53])
        self.assertEqual(self.steps(spec, "--steps", 10**19), whole)
        self.assertEqual(self.steps(spec, "--from", 143), [])

    def test_from_past_the_end(self):
        spec = self.range_spec()
        self.assert_error(2, "EINVAL", "--from", "5 is past the end: .* 4 steps", "plan", spec,
                          "--from", 5)

    def test_length(self):
        spec = self.write("missing.yaml", "dataset: {kind: npy, paths: {x: nowhere.npy}}\n"
                                          "batch: {size: 2}\n")
        self.assertEqual([s[2] for s in self.steps(spec, "--length", 5)], [[0, 1], [2, 3], [4]])
        self.assertEqual(self.steps(spec, "--length", 0), [])
        self.assertEqual(self.steps(self.range_spec(), "--length", 2), [(0, 0, [0, 1])])

    def test_a_sampler_that_does_not_fit(self):
        spec = self.write("listed.yaml", "dataset: {kind: npy, paths: {x: nowhere.npy}}\n"
                                         "sampler: {kind: indices, indices: [3, 8]}\n")
        self.assertEqual([s[2] for s in self.steps(spec, "--length", 9)], [[3], [8]])
        self.assert_error(1, "EINVAL", "sampler.indices.1", "8 is past the end of a dataset of 8",
                          "plan", spec, "--length", 8)
        spec = self.npy_spec(11, sampler="weighted, weights: [1, 2]")
        for verb in "plan", "check":
            self.assert_error(1, "EINVAL", "sampler.weights",
                              "2 weights do not fit a dataset of 11 samples", verb, spec)

    def test_length_of_the_file(self):
        self.assertEqual(sorted(i for _, _, s in self.steps(self.npy_spec(11)) for i in s),
                         list(range(11)))

    def test_unbatched(self):
        spec = self.range_spec(3, "null")
        self.assertEqual([s[2] for s in self.steps(spec)], [[0], [1], [2]])

    def test_text(self):
        spec = self.range_spec(4, 2)
        self.assertEqual(dlctl("plan", spec), (0, "step 0: 0 1\nstep 1: 2 3\n", ""))
        self.assertEqual(dlctl("plan", spec, "--world", 2, "--rank", "all"),
                         (0, "step 0 rank 0: 0 2\nstep 0 rank 1: 1 3\n", ""))

    def test_many_steps_stream(self):
        """300,000 lines, more than any buffer: the numbers stay whole across its edges."""
        spec = self.range_spec(10**18, 1)
        status, out, _ = dlctl("plan", spec, "--from", 10**17, "--steps", 300000)
        self.assertEqual(status, 0)
        want = "".join(f"step {i}: {i}\n" for i in range(10**17, 10**17 + 300000))
        self.assertTrue(out == want)

    def test_drawn_seed_is_told(self):
        spec = self.range_spec(100, 100, "random, order: native")
        status, out, err = dlctl("plan", spec)
        seed = re.search(r"\Adlctl: seed: drawn: (\d+);", err).group(1)
        self.assertEqual(status, 0)
        given = self.range_spec(100, 100, "random, order: native", f"seed: {seed}\n", "s2.yaml")
        self.assertEqual(dlctl("plan", given), (0, out, ""))
        note = json.loads(dlctl("plan", spec, "--json")[2])
        self.assertNotEqual(note["note"]["seed"], int(seed))

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            status, _, err = dlctl("plan", self.range_spec(), stdout=full)
        self.assertEqual((status, err),
                         (1, "dlctl: standard output: No space left on device\n"))


class Check(Case):
    def test_range(self):
        found = self.check(self.range_spec())
        self.assertEqual((found["batches"], found["samples"], found["length"], found["steps"]),
                         (4, 10, 10, 4))
        self.assertEqual((found["wait_s"], found["digest"]), (0, None))
        self.assertGreaterEqual(found["seconds"], 0)
        self.assertGreater(found["batches_per_s"], 0)
        self.assertEqual(len(found["tree"]), 1)
        self.assertEqual(found["tree"][0]["shape"], [3])

    def test_npy(self):
        found = self.check(self.npy_spec(rows=10, batch=4))
        self.assertEqual((found["name"], found["seed"], found["length"]), ("small", 42, 10))
        self.assertEqual((found["batches"], found["samples"]), (3, 10))
        self.assertEqual(found["bytes"], 10 * (6 + 8))
        image, label = found["tree"]
        self.assertEqual((image["path"], image["dtype"], image["shape"]),
                         ("image", "uint8", [4, 2, 3]))
        self.assertEqual((label["path"], label["dtype"], label["shape"]), ("label", "int64", [4]))
        # rows 2, 6, 1, 8 of torch.randperm(10) seeded 42
        self.assertEqual((label["min"], label["max"], label["mean"]), (1, 8, 4.25))
        self.assertEqual((image["min"], image["max"]), (6, 53))

    def test_nothing_to_load(self):
        found = self.check(self.range_spec(0))
        self.assertEqual((found["batches"], found["samples"], found["bytes"], found["tree"],
                          found["batches_per_s"]), (0, 0, 0, [], 0))
        self.assertEqual(self.digest(self.range_spec(0)), "2d06800538d394c2")

    def test_batches(self):
        spec = self.npy_spec(rows=100, batch=4)
        self.assertEqual(self.check(spec, "--batches", 3)["batches"], 3)
        self.assertEqual(self.check(spec, "--batches", 10**19)["batches"], 25)
        self.assertEqual(
            self.check(spec, "--batches", 2, "--epochs", 3, "--world", 2, "--rank", "all")
            ["batches"], 12)

    def test_unbatched(self):
        found = self.check(self.npy_spec(rows=3, batch="null"))
        self.assertEqual(found["batches"], 3)
        self.assertEqual([leaf["shape"] for leaf in found["tree"]], [[2, 3], []])

    def test_text(self):
        status, out, err = dlctl("check", self.npy_spec(), "--digest")
        self.assertEqual((status, err), (0, ""))
        for want in ("small, seed 42", "10 samples, 3 steps", "image", "uint8", "[4, 2, 3]",
                     "3 batches, 10 samples, 140 B", "digest "):
            self.assertIn(want, out)
        self.assertNotIn("digest", dlctl("check", self.npy_spec())[1])

    def test_digest_is_stable(self):
        spec = self.npy_spec()
        self.assertEqual(self.digest(spec), self.digest(spec))
        self.assertEqual(self.digest(spec), self.digest(spec, "--world", 1, "--rank", 0))
        self.assertEqual(self.digest(spec), self.digest(spec, "--rank", "all"))
        self.assertEqual(self.digest(spec), self.digest(spec, "--batches", 3))

    def test_digest_is_sensitive(self):
        spec = self.npy_spec()
        seen = {self.digest(spec), self.digest(spec, "--epoch", 1),
                self.digest(spec, "--epochs", 2), self.digest(spec, "--batches", 2),
                self.digest(spec, "--world", 2), self.digest(spec, "--world", 2, "--rank", 1),
                self.digest(spec, "--world", 2, "--rank", "all"),
                self.digest(self.npy_spec(batch=5)), self.digest(self.npy_spec(extra="seed: 41\n")),
                self.digest(self.npy_spec(sampler="sequential")),
                self.digest(self.npy_spec(sampler="random, order: native"))}
        self.assertEqual(len(seen), 11)

    def test_digest_sees_each_byte(self):
        spec = self.npy_spec()
        before = self.digest(spec)
        with open(self.path("label.npy"), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x01")
        self.assertNotEqual(self.digest(spec), before)

    def test_digest_ignores_name_and_workers(self):
        before = self.digest(self.npy_spec())
        extra = "seed: 42\nworkers: {count: 7, prefetch: 5}\nmemory: {limit: 64MiB}\n"
        self.assertEqual(self.digest(self.npy_spec(extra=extra)), before)

    def test_sampler_does_not_change_what_is_in_it(self):
        shuffled = self.check(self.npy_spec(batch=10))
        ordered = self.check(self.npy_spec(batch=10, sampler="sequential"))
        self.assertEqual(shuffled["tree"], ordered["tree"])

    def test_relative_paths_start_from_the_spec(self):
        self.npy_spec()
        self.assertEqual(self.check(self.path("npy.yaml"))["length"], 10)
        status, out, _ = dlctl("check", "npy.yaml", "--json", cwd=self.dir)
        self.assertEqual((status, json.loads(out)["length"]), (0, 10))

    def test_json_spec(self):
        spec = self.write("s.json", json.dumps({"dataset": {"kind": "range", "length": 6},
                                                "batch": {"size": 4}}))
        self.assertEqual(self.check(spec)["batches"], 2)

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            status, _, err = dlctl("check", self.range_spec(), stdout=full)
        self.assertEqual((status, err),
                         (1, "dlctl: standard output: No space left on device\n"))


class Failures(Case):
    def each(self, code, path, pattern, spec):
        for verb in ("plan", "check"):
            with self.subTest(verb=verb):
                self.assert_error(1, code, path, pattern, verb, spec)

    def test_no_spec_file(self):
        spec = self.path("nowhere.yaml")
        self.each("ENOENT", spec, "No such file", spec)

    def test_directory(self):
        self.each("EISDIR", self.dir, "directory", self.dir)

    def test_spec_too_large(self):
        spec = self.write("big.yaml", "#" * 262145)
        self.each("EFBIG", spec, "at most 262144 bytes", spec)

    def test_no_yaml(self):
        spec = self.write("bad.yaml", "dataset: {kind: range\n")
        status, _, err = dlctl("check", spec, "--json")
        error = json.loads(err)["error"]
        self.assertEqual((status, error["code"]), (1, "EINVAL"))
        self.assertTrue(error["path"].startswith(spec + ":"), error)

    def test_binary(self):
        spec = self.write("bad.yaml", b"\xff\xfe\x00\x01" * 10)
        status, out, err = dlctl("check", spec)
        self.assertEqual((status, out, err.count("\n")), (1, "", 1))

    def test_an_order_that_torch_does_not_have(self):
        spec = self.range_spec(2, 1, "weighted, weights: [1, 2], replacement: false")
        self.each("EINVAL", "sampler.order", "write order: native", spec)

    def test_an_order_that_no_memory_holds(self):
        spec = self.range_spec(5, 1, f"random, num_samples: {2**62}")
        self.each("ENOMEM", "sampler.order", "more than the system has; write order: native", spec)

    def test_bad_value(self):
        self.each("EINVAL", "batch.size", "batch.size: -3", self.range_spec(batch=-3))

    def test_unknown_key(self):
        spec = self.range_spec(extra="colour: red\n")
        self.each("EINVAL", "colour", "colour", spec)

    def test_missing_data(self):
        spec = self.npy_spec()
        os.unlink(self.path("label.npy"))
        self.each("ENOENT", os.path.realpath(self.path("label.npy")), "(?i)no such file",
                  spec)

    def test_truncated_data(self):
        spec = self.npy_spec()
        image = os.path.realpath(self.path("image.npy"))
        os.truncate(image, os.path.getsize(image) - 1)
        status, out, err = dlctl("check", spec)
        self.assertEqual((status, out), (1, ""))
        self.assertTrue(err.startswith(f"dlctl: {image}: "), err)

    @slow
    def test_no_daemon(self):
        for verb in set(VERBS) - {"plan", "check", "lengths", "kinds", "state", "help"}:
            with self.subTest(verb=verb):
                args = [verb] + ([self.range_spec()] if verb in ("run", "headspace", "report", "spec", "fetch") else
                                 ["mixed", "0=1"] if verb == "mix" else
                                 [self.range_spec(), "-o", self.path("made")] if verb == "pretokenize" else [])
                socket = self.path("socket")
                for option in (["--socket", socket], ["--socket=" + socket]):
                    status, out, err = dlctl(*args, *option, "--json")
                    self.assertEqual((status, out), (1, ""))
                    error = json.loads(err)["error"]
                    self.assertEqual(error["code"], "ENOENT")
                    self.assertIn(socket, error["path"] + error["message"])

    def test_socket_path_too_long(self):
        status, _, err = dlctl("status", "--socket", "/" + "x" * 200, "--json")
        self.assertEqual((status, json.loads(err)["error"]["code"]), (1, "ENAMETOOLONG"))


class Usage(Case):
    @slow
    def test_numbers(self):
        few = ["", "-1", "18446744073709551616"]
        many = few + ["+1", "x", "1x", " 1", "0x10", "1.5", "1e3", "all1", "9" * 30]
        for verb in ("plan", "check", "run"):
            for option in VERBS[verb]:
                if option in FLAGS | FILES:
                    continue
                for bad in many if (verb, option) == ("plan", "rank") else few:
                    with self.subTest(verb=verb, option=option, bad=bad):
                        self.assert_error(2, "EINVAL", f"--{option}", "is not a whole number",
                                          verb, "spec.yaml", f"--{option}={bad}")

    def test_number_ranges(self):
        spec = self.range_spec()
        for verb, option, bad in (("plan", "world", 0), ("plan", "world", 1048577),
                                  ("plan", "steps", 0), ("plan", "length", 2**63),
                                  ("check", "batches", 0), ("check", "epochs", 0),
                                  ("run", "credits", 0), ("run", "credits", 65537)):
            with self.subTest(verb=verb, option=option, bad=bad):
                self.assert_error(2, "EINVAL", f"--{option}", f"'{bad}' is not a whole number",
                                  verb, spec, f"--{option}", bad)

    def test_rank_not_below_world(self):
        spec = self.range_spec()
        for verb in ("plan", "check", "run"):
            self.assert_error(2, "EINVAL", "--rank", "ranks are 0 to 0", verb, spec, "--rank", 1)
            self.assert_error(2, "EINVAL", "--rank", "--world 4 ranks are 0 to 3", verb, spec,
                              "--world", 4, "--rank", 4)

    def test_epochs_past_the_last(self):
        self.assert_error(2, "EINVAL", "--epochs", "pass the last", "run", "x", "--epochs", 2,
                          "--first-epoch", 2**64 - 1)

    def test_only_all_is_no_number(self):
        self.assert_error(2, "EINVAL", "--rank", "or all", "plan", self.range_spec(), "--rank",
                          "ALL")

    def test_unknown_verb(self):
        self.assert_error(2, "EINVAL", "frobnicate", "verbs are plan, check, lengths, kinds, state, run, "
                          "fetch, pretokenize, peek, replay, status", "frobnicate")

    def test_what_was_meant(self):
        for word, meant in (("statsu", "status"), ("stauts", "status"), ("lodaers", "loaders"),
                            ("headsp", "headspace"), ("sto", "stop"),
                            ("tpo", "top")):
            self.assert_error(2, "EINVAL", word, f"no such verb; did you mean {meant}\\?$", word)
        self.assert_error(2, "EINVAL", "statsu", "did you mean status", "help", "statsu")
        for word, meant in (("--epcoh", "--epoch"), ("--epcoh=3", "--epoch"), ("--lenght", "--length")):
            self.assert_error(2, "EINVAL", word, f"plan has no such option; did you mean {meant}\\?$",
                              "plan", self.range_spec(), word)

    def test_option_before_the_verb(self):
        self.assert_error(2, "EINVAL", "--socket", "after the verb", "--socket", "x", "status")

    def test_no_verb(self):
        status, out, err = dlctl()
        self.assertEqual((status, out), (2, ""))
        self.assertRegex(err, r"\Adlctl: needs a verb: .*\n\Z")

    @slow
    def test_unknown_option(self):
        for verb in VERBS:
            with self.subTest(verb=verb):
                self.assert_error(2, "EINVAL", "--xyzzy", f"{verb} has no such option; it has "
                                  "--socket PATH", verb, "--xyzzy")
        self.assert_error(2, "EINVAL", "-x", "no such option", "status", "-x")

    @slow
    def test_options_of_other_verbs(self):
        """Each verb with one in six of them, each of them with verbs of all kinds."""
        every = {option for options in VERBS.values() for option in options}
        for at, (verb, options) in enumerate(VERBS.items()):
            for option in sorted(every - set(options))[at % 6::6]:
                if any(own.startswith(option) for own in options):
                    continue  # a unique abbreviation
                with self.subTest(verb=verb, option=option):
                    status, out, err = dlctl(verb, "--" + option, "1")
                    self.assertEqual((status, out, err.count("\n")), (2, "", 1))
                    self.assertIn("no such option", err)

    def test_value_missing(self):
        self.assert_error(2, "EINVAL", "--epoch", "needs a value: --epoch E", "plan",
                          self.range_spec(), "--epoch")

    def test_value_unwanted(self):
        self.assert_error(2, "EINVAL", "--digest", "takes no value", "check", self.range_spec(),
                          "--digest=yes")

    def test_socket_empty(self):
        self.assert_error(2, "EINVAL", "--socket", "is empty", "status", "--socket", "")

    def test_missing_operand(self):
        self.assert_error(2, "EINVAL", "plan", "needs SPEC: dlctl plan SPEC", "plan")
        self.assert_error(2, "EINVAL", "check", "needs SPEC", "check", "--digest")
        self.assert_error(2, "EINVAL", "run", r"needs SPEC\|NAME", "run")
        self.assert_error(2, "EINVAL", "plan", "SPEC is empty", "plan", "")

    def test_surplus_operand(self):
        self.assert_error(2, "EINVAL", "b", "too many arguments", "plan", "a", "b")
        self.assert_error(2, "EINVAL", "a", "too many arguments: dlctl status \\[options\\]", "status", "a")


class Kinds(Case):
    def listed(self):
        status, out, _ = dlctl("kinds", "--json")
        self.assertEqual(status, 0)
        return json.loads(out)["kinds"]

    def test_all_are_listed(self):
        """Each kind that a spec may have, as its refusal lists them."""
        status, _, refusal = dlctl("check", self.write("k.yaml", "dataset: {kind: x}\n"))
        self.assertEqual(status, 1)
        kinds = re.search(r"is not one of ([a-z0-9_, \n]+)", refusal)[1].strip()
        self.assertEqual({row["kind"] for row in self.listed()}, set(re.split(r",\s+", kinds)))
        self.assertLessEqual({row["style"] for row in self.listed()}, {"map", "iterable", "either"})

    def test_what_is_missing_is_said(self):
        status, table, _ = dlctl("kinds")
        self.assertEqual(status, 0)
        for row in self.listed():
            self.assertRegex(table, rf"(?m)^{row['kind']} +{row['style']}\b")
            if row["without"]:
                self.assertIn(row["without"], table)


class Help(Case):
    def test_program(self):
        for option in ("--help", "-h"):
            status, out, err = dlctl(option)
            self.assertEqual((status, err), (0, ""))
            for verb in VERBS:
                self.assertRegex(out, rf"(?m)^  {verb}\b")

    def test_version(self):
        status, out, err = dlctl("--version")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"\Adlctl \d+\.\d+\.\d+\n\Z")

    @slow
    def test_each_verb(self):
        for verb, options in VERBS.items():
            for args in ([verb, "--help"], [verb, "-h"], [verb, "spec", "surplus", "--help"]):
                with self.subTest(args=args):
                    status, out, err = dlctl(*args)
                    self.assertEqual((status, err), (0, ""))
                    self.assertTrue(out.startswith(f"Usage: dlctl {verb}"))
                    named = re.findall(r"(?m)^  --([a-z-]+)", out)
                    self.assertEqual(sorted(named), sorted(options + ["socket", "json", "help"]))

    @slow
    def test_the_verb_help(self):
        self.assertEqual(dlctl("help"), dlctl("--help"))
        for verb in VERBS:
            self.assertEqual(dlctl("help", verb), dlctl(verb, "--help"))

    def test_manuals(self):
        """Each page has all words of its source, and none of its marks."""
        for page in (*ROOT.glob("client/*.scd"), *ROOT.glob("client/dlctl/*.scd"), *ROOT.glob("daemon/*.scd")):
            with self.subTest(page.name):
                status, out, err = dlctl("help", page.name.rsplit(".", 2)[0])
                self.assertEqual((status, err), (0, ""))
                lines = page.read_text().splitlines()
                said = "\n".join(line for line in lines if not line.startswith((";", "#")) and "```" not in line)
                marks = re.compile(r"[\\*_+]")
                plain = marks.sub("", out)
                self.assertEqual(plain.split()[0], f"{page.name.rsplit('.', 2)[0]}({page.name[-5]})")
                words = set(marks.sub("", said).split()) - set(plain.split())
                self.assertEqual([word for word in words if word not in plain], [])
                for line in out.splitlines():
                    self.assertFalse(line.startswith(("#", ";", "\t")), line)
        self.assertIn("\ndlctl - inspect and control dloaderd", dlctl("help", "dlctl")[1].replace("\n    ", "\n"))

    def test_fits_a_screen(self):
        for args in ([], *([verb] for verb in VERBS)):
            for line in dlctl("help", *args)[1].splitlines():
                self.assertLessEqual(len(line), 80, line)

    def test_full_disk(self):
        for args in (["--help"], ["help"], ["help", "run"]):
            with open("/dev/full", "wb") as full:
                self.assertEqual(dlctl(*args, stdout=full)[0], 1)
