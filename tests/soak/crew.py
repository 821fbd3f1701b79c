"""Trainers that survive (trainer.c), and what they must have received: the plan, batch by batch.

A crew is the ranks of one loader spec. Each rank is a process that writes one line for each batch;
killed and started again it goes on behind its last line. `Reference` knows the lines of an
undisturbed run, from a daemon of its own, whose indices are those of `dlctl plan`. Standard library
only; the program comes from the environment: SOAK_TRAINER.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import dltest  # noqa: E402
import rounds  # noqa: E402

TRAINER = os.environ.get("SOAK_TRAINER", "trainer")
LOOKS_FOR_A_DAEMON = 120  # seconds without progress until a trainer gives up


class Recipe:
    """A loader spec, and how its ranks are to be treated.

    order: "plan": as `dlctl plan` says; "rounds": as the model of workers that take turns says;
    "own": as an undisturbed run says, and nobody else can; "any": the plan's steps in any order;
    "own-any": an undisturbed run's, in any order;
    "fed": as the trainer itself says, of `length` samples.
    """

    def __init__(self, name, spec, order="plan", worlds=(1, 2, 3), length=0, options=None):
        self.name, self.order, self.worlds, self.length = name, order, worlds, length
        self.options = options or {}
        self.spec = {"name": name, "seed": 7, **spec}
        # Ranks that take rows of the same batches are those of one training, which dies as a whole,
        # and whose loader is its own.
        self.together = self.spec.get("shard", {}).get("mode") == "dispatch"
        # A state says where all ranks are, in an order that there is before anything is loaded.
        self.has_states = order not in ("any", "own-any", "fed") and not self.together

    def write(self, directory, name=None):
        """The path of the spec, for a loader of that name; None: its own."""
        path = os.path.join(directory, f"{name or self.name}.yaml")
        if not os.path.exists(path):
            with open(path + ".new", "w") as file:
                json.dump({**self.spec, "name": name or self.spec["name"]}, file)
            os.rename(path + ".new", path)
        return path

    def arguments(self):
        more = {"fed": {"fed": self.length}, "any": {"any": 1}, "own-any": {"any": 1}}.get(self.order, {})
        return {**self.options, **more}


class Rank:
    """One trainer, from its first start until it has all it is to have."""

    lives = 1 << 30  # of the last one nobody deprives it

    def __init__(self, crew, rank):
        self.crew, self.rank = crew, rank
        self.path = os.path.join(crew.directory, f"{crew.label}.{rank}")
        self.process = None
        self.starts = 0
        self.done = False
        self.options = {}  # of this rank alone

    def command(self):
        crew = self.crew
        words = {"rank": self.rank, "world": crew.world, "epoch": crew.epoch,
                 "epochs": crew.epochs, "recover": LOOKS_FOR_A_DAEMON,
                 "random": self.starts + 97 * self.rank, **crew.options, **self.options}
        asks = self.starts > 0 and not words.get("saves")
        words["resume"] = words.get("resume", 0) and int(asks)
        return [TRAINER, crew.socket, crew.spec_path, self.path,
                *(f"{key}={value}" for key, value in words.items()), f"job={crew.label}",
                *(f"also={path}" for path in crew.also)]

    def start(self):
        crew = self.crew
        command = self.command()
        self.starts += 1
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=self.errors, env=crew.environment,
            user=crew.user, group=crew.user, extra_groups=None if crew.user is None else [])

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()

    def poll(self):
        """True once it is done; AssertionError if it failed; killed ones are started again."""
        if self.done or self.process.poll() is None:
            return self.done
        status, said = self.process.returncode, self.said()
        self.errors.close()
        if status == -signal.SIGKILL:
            self.start()
            return False
        if status or said:
            raise AssertionError(f"rank {self.rank} of {self.crew.label} ended with {status}: {said}")
        self.done = True
        return True

    def lines(self):
        """(place, line) of each whole line: the epoch and the step, or one behind all steps."""
        if not os.path.exists(self.path):
            return
        with open(self.path) as file:
            for line in filter(lambda line: line.endswith("\n"), file):
                epoch, step = line.split()[:2]
                yield (int(epoch), int(step) if step.isdigit() else 1 << 60), line

    def place(self):
        """What it gets next."""
        (epoch, step) = max((place for place, _ in self.lines()), default=(self.crew.epoch, -1))
        return (epoch + 1, 0) if step == 1 << 60 else (epoch, step + 1)

    def cut(self, place):
        """Forgets what it got from there on."""
        kept = [line for at, line in self.lines() if at < place]
        if os.path.exists(self.path):
            with open(self.path, "w") as file:  # whose owner may be another user
                file.writelines(kept)
        self.done = False

    def size(self):
        try:
            return os.stat(self.path).st_size
        except FileNotFoundError:
            return 0

    def signal(self, number):
        """Whether it was there to get it."""
        if self.done or self.process.poll() is not None:
            return False
        self.process.send_signal(number)
        return True

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Crew:
    """All ranks of a recipe, on one daemon."""

    rank_type = Rank

    def __init__(self, directory, socket, recipe, label, world=1, epoch=0, epochs=1, user=None,
                 also=(), **options):
        self.directory, self.socket, self.recipe, self.label = directory, socket, recipe, label
        self.world, self.epoch, self.epochs, self.user, self.also = world, epoch, epochs, user, also
        self.options = {**recipe.arguments(), **options}
        # Who goes on when the daemon is another one: the library, or the trainer itself.
        self.environment = {**os.environ,
                            "DLOADER_RECONNECT": "0" if options.get("own") else str(LOOKS_FOR_A_DAEMON)}
        self.spec_path = recipe.write(directory, label if recipe.together else None)
        self.ranks = [self.rank_type(self, rank) for rank in range(world)]

    def start(self):
        for rank in self.ranks:
            rank.start()
        return self

    def restart(self):
        """As a training that was killed and goes on at the first step that some rank has not got."""
        self.end()
        place = min(rank.place() for rank in self.ranks)
        for rank in self.ranks:
            rank.options["resume"] = 0  # the daemon knows how far each was by itself
            rank.cut(place)
            rank.start()

    def poll(self):
        """True once all ranks are done."""
        return all([rank.poll() for rank in self.ranks])

    def size(self):
        return sum(rank.size() for rank in self.ranks)

    def end(self):
        for rank in self.ranks:
            rank.end()

    def as_written(self, lines):
        """Of the reference, as this crew writes them."""
        return lines

    def as_read(self, lines):
        """Of a rank's file, without what is there for itself alone."""
        return lines

    def check(self, reference):
        """What is wrong with what they received: a list of sentences."""
        return [f"{self.label}, rank {rank.rank} of {self.world}: {what}" for rank in self.ranks
                for what in differences(rank, reference)]


# ---- what they received, and what they should have ----------------------------------------------

def read_lines(path):
    """{epoch: [line...]}: "STEP DIGEST INDEX...", "fault TEXT", "end"."""
    epochs = {}
    with open(path) as file:
        for line in file:
            epoch, _, rest = line.rstrip("\n").partition(" ")
            epochs.setdefault(int(epoch), []).append(rest)
    return epochs


def step_of(line):
    found = re.match(r"\d+", line)
    return int(found[0]) if found else -1


def expected_lines(rank, epoch, reference):
    crew = rank.crew
    lines = crew.as_written(reference.lines(crew.recipe, epoch, crew.world, rank.rank))
    stop = crew.options.get("stop", 0)
    for i, line in enumerate(lines):
        if stop and step_of(line) >= stop - 1:
            return lines[:i + 1] + ["end"]
    return lines + ["end"]


def first_difference(found, wanted):
    for i, (one, other) in enumerate(zip(found + ["nothing"], wanted + ["nothing"])):
        if one != other:
            behind = f" behind {found[i - 1][:30]!r}" if i else ""
            return f"got {one[:200]!r}{behind}, wanted {other[:200]!r}"
    return f"got {len(found)} lines, wanted {len(wanted)}"


def differences(rank, reference):
    crew = rank.crew
    found = read_lines(rank.path)
    wanted = range(crew.epoch, crew.epoch + crew.epochs)
    if sorted(found) != list(wanted):
        yield f"epochs {sorted(found)}, wanted {list(wanted)}"
    for epoch in wanted:
        lines = crew.as_read(found.get(epoch, []))
        want = expected_lines(rank, epoch, reference)
        if crew.recipe.order in ("any", "own-any"):
            lines, want = sorted(lines, key=step_of), sorted(want, key=step_of)
        if lines != want:
            yield f"epoch {epoch}: {first_difference(lines, want)}"


class Reference:
    """What an undisturbed daemon delivers, found out when it is asked for."""

    def __init__(self, config=None, **options):
        self.directory = tempfile.mkdtemp(prefix="dltest-calm-")
        self.daemon = dltest.Daemon(self.directory, config, **options)
        self.known = {}

    def lines(self, recipe, epoch, world, rank):
        key = (recipe.name, epoch, world)
        if key not in self.known:
            self.known[key] = self.find_out(recipe, epoch, world)
        return self.known[key][rank]

    def find_out(self, recipe, epoch, world):
        """The lines of each rank; all run, since there are loaders where one waits for the others."""
        crew = Crew(self.directory, self.daemon.socket, recipe, f"{recipe.name}-{epoch}-{world}",
                    world, epoch)
        crew.options.update({key: 0 for key in ("pause", "pins", "tensors", "detach", "saves")})
        run([crew])
        found = [read_lines(rank.path)[epoch] for rank in crew.ranks]
        for rank, lines in enumerate(found):
            if lines.pop() != "end":
                raise AssertionError(f"the undisturbed run of {crew.label} has no end")
            want = self.planned(crew, rank)
            words = [line.split() for line in sorted(lines, key=step_of)]
            if want not in (None, [(int(step), [int(i) for i in indices])
                                   for step, _, *indices in words]):
                raise AssertionError(f"{crew.label}: the undisturbed run is not what is planned")
        return found

    def planned(self, crew, rank):
        """(step, indices) of a rank; None: nobody knows before."""
        if crew.recipe.order == "rounds":
            return rounds.of_spec(crew.recipe.spec, crew.world, rank)
        if crew.recipe.order not in ("plan", "any"):
            return None
        done = dltest.dlctl("plan", crew.spec_path, "--json", "--epoch", str(crew.epoch), "--world",
                            str(crew.world), "--rank", str(rank))
        return [(row["step"], row["indices"]) for row in map(json.loads, done.stdout.splitlines())]

    def stop(self):
        self.daemon.stop()
        for name in os.listdir(self.directory):
            os.unlink(os.path.join(self.directory, name))
        os.rmdir(self.directory)


class At:
    """Says when the next of `times` points is reached, which are drawn among the bytes that crews
    are going to write.
    """

    def __init__(self, rng, crews, reference, times):
        whole = sum(self.bytes_of(rank, reference) for crew in crews for rank in crew.ranks)
        self.crews = crews
        self.points = sorted(rng.randrange(whole * 9 // 10) for _ in range(times))

    @staticmethod
    def bytes_of(rank, reference):
        crew = rank.crew
        return sum(len(line) + 3 for epoch in range(crew.epoch, crew.epoch + crew.epochs)
                   for line in expected_lines(rank, epoch, reference))

    def is_due(self):
        if not self.points or sum(crew.size() for crew in self.crews) < self.points[0]:
            return False
        self.points.pop(0)
        return True


def run(crews, each=lambda: None, patience=10 * dltest.PATIENCE):
    """Until all crews are done; `each` is called all the time. A stall is an error."""
    moved, size = time.monotonic(), -1
    try:
        for crew in crews:
            crew.start()
        while not all([crew.poll() for crew in crews]):
            each()
            now = sum(crew.size() for crew in crews)
            if now != size:
                moved, size = time.monotonic(), now
            if time.monotonic() - moved > patience:
                raise AssertionError(f"no batch came for {patience} s")
            time.sleep(0.002)
    finally:
        for crew in crews:
            crew.end()
