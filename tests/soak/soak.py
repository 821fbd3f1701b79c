"""A daemon under everything at once, with faults at random points: `./dev soak`.

    soak.py --build DIR [--minutes N | --seconds N | --short] [--seed S] [--crews N] [--only WORD]

Crews of trainers of every kind of loader come and go, and share batches; workers, hosts of Python,
trainers and the daemon itself are killed, or stopped for a while; workers become more or fewer, and
misbehave by themselves; some samples are slow, and others pass them; hostile sessions do what they
like. Every batch must come to its rank once, in the order of the plan, with the bytes of an
undisturbed run; and at the end the daemon must have what it had at the start: descriptors,
mappings, processes, memory. Its end checks what users are charged with.

What is done follows from the seed; when it happens, from the machine. The exit status is 1 if
anything was wrong; the directory with daemon.log and what every rank received is then kept.
"""

import argparse
import collections
import concurrent.futures
import ctypes
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = {"DLOADERD": "daemon/dloaderd", "DLCTL": "client/dlctl/dlctl",
            "SOAK_TRAINER": "tests/soak/trainer", "BAD_WORKER": "tests/fault/bad_worker",
            "BAD_PLUGIN": "tests/unit/bad_plugin.so",
            "DLOADER_LOCAL_MODULE": "client/dlclient-local.so"}
NOBODY = 65534
BECOME_SUBREAPER = 36  # prctl: a process that loses its parent below this one becomes its child
MISBEHAVES = "any-random-300"  # at one task of 300; see tests/fault/bad_worker.c
WITH_PYTHON_TRAINERS = 30  # seconds of soak from which on it has time for them
STALL = 180  # seconds in which some rank must get a batch


def read_arguments():
    parser = argparse.ArgumentParser(description="a daemon under everything at once")
    parser.add_argument("--build", help="build directory; absent: programs come from the environment")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seconds", type=float, help="in place of minutes")
    parser.add_argument("--short", action="store_true", help="as in the tests: 8 seconds")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--crews", type=int, default=5, help="at a time")
    parser.add_argument("--only", default="", help="recipes whose name has this in it")
    parser.add_argument("--no-python", action="store_true", help="no datasets in Python")
    o = parser.parse_args()
    for name, path in PROGRAMS.items() if o.build else ():
        os.environ[name] = os.path.abspath(os.path.join(o.build, path))
    o.seconds = 8 if o.short else o.seconds or 60 * o.minutes
    o.package = os.path.abspath(os.path.join(o.build or os.environ["BUILD"], "client/python"))
    return o


def prepare_process():
    """Orphans of a killed daemon come to light as children of this process."""
    ctypes.CDLL(None).prctl(BECOME_SUBREAPER, 1, 0, 0, 0)
    # Freed memory that a sanitizer keeps is no leak.
    for name, value in {"ASAN_OPTIONS": "quarantine_size_mb=8", "UBSAN_OPTIONS": "halt_on_error=1"}.items():
        os.environ[name] = ":".join(filter(None, [os.environ.get(name), value]))


class Soak:
    def __init__(self, o, say=print):
        self.o, self.say = o, say
        self.dir = tempfile.mkdtemp(prefix="dltest-soak-")
        os.chmod(self.dir, 0o755)
        self.out = self.path("out")
        os.mkdir(self.out)
        os.chmod(self.out, 0o777)  # of any user's trainers
        self.plugins = self.path("plugins")
        os.mkdir(self.plugins)
        self.crews, self.hostile, self.due = [], [], []
        self.counts = collections.Counter()
        self.wrong = []
        self.finished_tasks = {}
        self.jobs = random.Random(f"jobs {o.seed}")
        self.whims = random.Random(f"faults {o.seed}")
        self.with_python = not o.no_python and pythons.can_host(o.package)
        self.with_torch = self.with_python and pythons.can_import("torch")
        self.runtime = self.path("runtime")  # of private daemons
        os.mkdir(self.runtime)
        self.recipes = recipes.all_recipes(self.out, self.plugins, self.with_python)
        self.recipes = [recipe for recipe in self.recipes if o.only in recipe.name]
        self.numbers = [recipe for recipe in self.recipes if recipe.is_numbers]
        self.reference = crew.Reference(self.config())
        # What came is checked beside the loop, which would inject few faults else.
        self.checker = concurrent.futures.ThreadPoolExecutor(1)
        self.checks = []
        self.daemon = None
        self.pauses = pauses.Pauses()

    def path(self, name):
        return os.path.join(self.dir, name)

    # ---- the daemon ----------------------------------------------------------------------------

    def site(self):
        """What trainers of another user may name."""
        return {"objects": [f"pydata:{name}" for name in ("Rows", "SlowRows", "Stream", "Crops", "stack")],
                "plugins": [os.path.join(self.plugins, name) for name in sorted(os.listdir(self.plugins))]}

    def config(self, **more):
        config = {"linger": "300ms", "socket_mode": "0666", "data_roots": ["/"], "plugins": [self.plugins],
                  "site": self.site(),
                  "limits": {"workers": 256, "sessions": 200}, **more}
        if self.with_python:
            config["python"] = [pythons.interpreter(self.dir)]
            config["python_path"] = [self.o.package, str(HERE.parent / "lib")]
        return config

    def start_daemon(self):
        link = self.path(MISBEHAVES)
        if not os.path.islink(link):
            os.symlink(os.environ["BAD_WORKER"], link)
        self.daemon = dltest.Daemon(self.dir, self.config(worker=link), ("--log-level", "info"))

    def restart_daemon(self, x, y):
        if time.monotonic() > self.last_restart:
            return False
        self.daemon.kill()
        time.sleep(y * 0.3)
        self.start_daemon()
        self.finished_tasks = {}
        return True

    def view(self, name):
        with self.daemon.client() as client:
            return client.query(name)

    # ---- crews ---------------------------------------------------------------------------------

    def new_crew(self):
        """What it is follows from the seed alone."""
        draw, number = self.jobs, self.counts["crews"]
        python = self.with_python and self.numbers and self.o.seconds >= WITH_PYTHON_TRAINERS
        if draw.random() < 0.1 and python:
            self.new_python_crew()
            return
        recipe = draw.choice(self.recipes)
        options = {"pause": draw.choice([0, 500, 3000]), "pins": draw.choice([0, 0, 3]),
                   "tensors": draw.choice([0, 0, 3]), "detach": draw.choice([0, 1]),
                   "poll": draw.choice([0, 0, 1]), "credits": draw.choice([0, 0, 1, 9]),
                   "own": draw.choice([0, 0, 1]), "resume": draw.choice([0, 1])}
        saves = draw.choice([0, 0, 7])
        if recipe.has_states and saves:
            options["saves"] = saves
        stop = draw.choice([0, 0, 0, 20])
        if recipe.order in ("plan", "rounds", "own") and stop:
            options["stop"] = stop
        also = draw.sample(self.recipes, min(draw.choice([0, 0, 0, 2]), len(self.recipes)))
        user = NOBODY if draw.random() < 0.2 and self.can_be_another else None
        world, epoch, epochs = draw.choice(recipe.worlds), draw.randrange(3), draw.randrange(1, 4)
        slow = draw.randrange(2 * world)
        paths = [one.write(self.out) for one in also if one.order != "fed"]
        one = crew.Crew(self.out, self.daemon.socket, recipe, f"{number:05}-{recipe.name}", world,
                        epoch, epochs, user, paths, **options)
        if slow < world:
            one.ranks[slow].options = {"pause": 12000}
        self.begin(one)

    def new_python_crew(self):
        """Of dloaderd.Loader, or once in a while a DataLoader with a daemon of its own."""
        draw, number = self.jobs, self.counts["crews"]
        recipe = draw.choice(self.numbers)
        world, epoch, seed = draw.choice([1, 2]), draw.randrange(3), draw.randrange(1 << 32)
        if self.with_torch and draw.random() < 0.4:
            one = pythons.DropIn(self.out, None, recipe, f"{number:05}-drop-in", epoch=seed)
        else:
            one = pythons.PythonCrew(self.out, self.daemon.socket, recipe,
                                     f"{number:05}-python-{recipe.name}", world, epoch, 2)
        one.environment = pythons.environment(self.o.package, self.runtime)
        self.counts["crews in Python"] += 1
        self.begin(one)

    def begin(self, one):
        self.counts["crews"] += 1
        one.moved, one.was = time.monotonic(), -1
        self.crews.append(one.start())

    def look_after(self, one):
        try:
            done = one.poll()
        except AssertionError as error:
            self.wrong.append(str(error))
            done = True
            one.end()
        now = one.size()
        if now != one.was:
            one.was, one.moved = now, time.monotonic()
        if not done and time.monotonic() - one.moved > STALL:
            raise Stalled(f"{one.label} got nothing for {STALL} s")
        if done:
            self.crews.remove(one)
            self.counts["lives of trainers"] += sum(rank.starts for rank in one.ranks)
            self.checks.append((one, self.checker.submit(one.check, self.reference)))

    def take_checks(self):
        for one, check in [pair for pair in self.checks if pair[1].done()]:
            self.checks.remove((one, check))
            self.wrong += check.result()
            for rank in one.ranks:
                if not os.path.exists(rank.path):
                    continue  # it checks by itself
                lines = crew.read_lines(rank.path)
                self.counts["batches"] += sum(map(len, lines.values()))
                for path in [rank.path, f"{rank.path}.state"] if not check.result() else ():
                    pathlib.Path(path).unlink(missing_ok=True)

    # ---- faults --------------------------------------------------------------------------------

    def later(self, seconds, action):
        self.due.append((time.monotonic() + seconds, action))

    def do_what_is_due(self):
        now = time.monotonic()
        for at, action in [one for one in self.due if one[0] <= now]:
            self.due.remove((at, action))
            action()

    def victim(self, x):
        """A worker that has finished a task since it was hit last: one that never does is given up."""
        rows = [row for row in self.view("workers") if row["pid"] and row["state"] == "ready" and
                self.finished_tasks.get((row["loader"], row["worker"]), -1) < row["tasks"]]
        if not rows:
            return None
        row = rows[int(x * len(rows))]
        self.finished_tasks[row["loader"], row["worker"]] = row["tasks"]
        return row["pid"]

    def send(self, pid, number):
        try:
            os.kill(pid, number)
        except (ProcessLookupError, TypeError):  # ended, or there was none
            return False
        return True

    def pause(self, pid, seconds):
        def go_on():
            if not self.pauses.end(pid):
                self.later(0.02, go_on)

        begun = self.pauses.begin(pid)
        if begun:
            self.later(seconds, go_on)
        return begun

    def kill_worker(self, x, y):
        return self.send(self.victim(x), signal.SIGKILL)

    def stop_worker(self, x, y):
        return self.pause(self.victim(x), 3 * y)

    def host(self, x):
        # One that never got as far as to start workers is an error for the client that opens a loader. All of its
        # workers die with it.
        hosts = [pid for pid in self.daemon.workers
                 if "dloaderd.host" in startline.command_of(pid) and dltest.children_of(pid)]
        if not hosts or any(self.finished_tasks.get((row["loader"], row["worker"]), -1) >= row["tasks"]
                            for row in self.view("workers") if row["interpreter"]):
            return None
        self.finished_tasks.update({(row["loader"], row["worker"]): row["tasks"]
                                    for row in self.view("workers") if row["interpreter"]})
        return hosts[int(x * len(hosts))]

    def kill_host(self, x, y):
        return self.send(self.host(x), signal.SIGKILL)

    def stop_host(self, x, y):
        return self.pause(self.host(x), y)

    def rank(self, x):
        ranks = [rank for one in self.crews for rank in one.ranks if not rank.done]
        return ranks[int(x * len(ranks))] if ranks else None

    def kill_trainer(self, x, y):
        rank = self.rank(x)
        if rank and rank.crew.recipe.together and rank.starts < rank.lives:
            rank.crew.restart()
            return True
        return bool(rank) and rank.starts < rank.lives and rank.signal(signal.SIGKILL)

    def stop_trainer(self, x, y):
        rank = self.rank(x)
        if isinstance(rank, pythons.DropInRank):  # or its daemon, or a worker of that
            family = startline.descendants(rank.process.pid)
            return self.pause(family[int(y * len(family))] if family else None, 2 * y)
        return self.pause(rank.process.pid if rank else None, 2 * y)

    def stop_daemon(self, x, y):
        return self.pause(self.daemon.process.pid, y)

    def reload(self, x, y):
        return self.send(self.daemon.process.pid, signal.SIGHUP)

    def resize(self, x, y):
        rows = [row["name"] for row in self.view("loaders") if row["state"] == "open"]
        if not rows:
            return False
        try:
            with self.daemon.client() as client:
                client.resize(rows[int(x * len(rows))], int(6 * y))  # 0: as many as it finds
        except dltest.DaemonError:  # it has ended, or its steps are bound to workers
            return False
        return True

    def be_hostile(self, x, y):
        recipe = self.recipes[int(x * len(self.recipes))]
        self.hostile.append((time.monotonic(), subprocess.Popen(
            [sys.executable, str(HERE / "hostile.py"), self.daemon.socket, str(int(y * 2**32)),
             recipe.name], stdin=subprocess.DEVNULL)))
        return True

    FAULTS = [(8, kill_worker), (4, stop_worker), (1, kill_host), (1, stop_host), (8, kill_trainer),
              (4, stop_trainer), (2, stop_daemon), (1, restart_daemon), (1, reload), (4, resize),
              (3, be_hostile)]

    def next_fault(self):
        """Draws one, and when the next is due; the draws do not depend on what is there."""
        weights, kinds = zip(*self.FAULTS)
        kind = self.whims.choices(kinds, weights)[0]
        x, y, gap = self.whims.random(), self.whims.random(), self.whims.expovariate(6)
        if not self.pauses.is_on(self.daemon.process.pid) and kind(self, x, y):
            self.counts[kind.__name__] += 1
        self.fault_at = time.monotonic() + gap

    def watch_hostile(self, patience=90):
        for one in list(self.hostile):
            since, process = one
            if process.poll() is None and time.monotonic() - since > patience:
                process.kill()
                process.wait()
            if process.returncode is not None:
                self.hostile.remove(one)
                if process.returncode not in (0, -signal.SIGKILL):
                    self.wrong.append(f"a hostile session ended with {process.returncode}")

    # ---- from the start line to the start line -------------------------------------------------

    def find_out_users(self):
        """Whether another user's trainer could be started at all: it must reach the program."""
        self.can_be_another = os.geteuid() == 0 and subprocess.run(
            [os.environ["SOAK_TRAINER"]], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=lambda: os.setuid(NOBODY)).returncode == 2

    def tick(self, more):
        self.do_what_is_due()
        for one in list(self.crews):
            self.look_after(one)
        self.watch_hostile()
        self.take_checks()
        if more and len(self.crews) < self.o.crews:
            self.new_crew()
        if more and time.monotonic() > self.fault_at:
            self.next_fault()
        if self.daemon.process.poll() is not None:
            raise Stalled(f"the daemon ended with {self.daemon.process.returncode}")
        time.sleep(0.005)

    def soak(self):
        begin = time.monotonic()
        end = begin + self.o.seconds
        self.last_restart = begin + self.o.seconds / 2
        self.fault_at, told = begin + 0.5, begin
        self.memory = []
        while time.monotonic() < end and not self.wrong:
            self.tick(True)
            if time.monotonic() - told > 10:
                told = time.monotonic()
                self.memory.append(startline.memory(self.daemon.process.pid))
                self.say(f"{told - begin:5.0f} s: {self.counts['crews']} crews, "
                         f"{self.counts['batches']} batches, {self.counts['lives of trainers']} "
                         f"lives of trainers, daemon {self.memory[-1]['rss']} KiB")
        while (self.crews or self.hostile or self.due or self.checks) and not self.wrong:
            self.tick(False)

    def check_start_line(self):
        """Nothing is left but what was there before anything came."""
        def back():
            for pid in self.daemon.workers:  # hosts would linger for a minute
                if "dloaderd.host" in startline.command_of(pid):
                    self.send(pid, signal.SIGKILL)
            self.now = startline.of_daemon(self.daemon)
            return self.now == self.before

        try:
            dltest.wait_until(back, "the start line", 2 * dltest.PATIENCE)
        except AssertionError:
            for key, value in self.before.items():
                if self.now[key] != value:
                    self.wrong.append(f"the daemon's {key} are {self.now[key]} at the end, and were "
                                      f"{value} at the start")
        after = startline.memory(self.daemon.process.pid)
        bound = 2 * self.memory_before["rss"] + 64 * 1024
        self.say(f"the daemon's memory: {self.memory_before['rss']} KiB before, {after['rss']} after")
        if after["rss"] > bound:
            self.wrong.append(f"the daemon takes {after['rss']} KiB at the end, bound {bound}")

    def check_orphans(self):
        mine = [self.reference.daemon.process.pid]
        mine += startline.descendants(mine[0])
        try:
            dltest.wait_until(lambda: set(startline.descendants(os.getpid())) <= set(mine),
                              "processes that have lost their daemon to end", 20)
        except AssertionError as error:
            left = set(startline.descendants(os.getpid())) - set(mine)
            self.wrong.append(f"{error}: {[startline.command_of(pid) for pid in left]}")

    def warm_up(self):
        """What is there permanently from the first loader on."""
        with self.daemon.client() as client:
            spec = dltest.named("warm-up", workers=recipes.native())  # a worker may hang here, too
            client.epoch_indices(client.open(spec)["loader"])
        dltest.wait_until(lambda: self.view("loaders") == [] and not self.daemon.workers,
                          "the first loader to go")

    def run(self):
        self.find_out_users()
        self.start_daemon()
        try:
            self.warm_up()
            self.before = startline.of_daemon(self.daemon)
            self.memory_before = startline.memory(self.daemon.process.pid)
            self.soak()
            if not self.wrong:
                self.check_start_line()
        except (Stalled, TimeoutError, AssertionError) as what:
            self.wrong.append(repr(what))
            self.dump()
        finally:
            self.end()
        return not self.wrong

    def dump(self):
        """All of it is said, since the directory may be gone with the machine."""
        self.pauses.end_all()
        ranks = [rank for one in self.crews for rank in one.ranks]
        with open(self.path("stall.txt"), "w") as file:
            for line in stall.tell(self.daemon, self.view, ranks):
                print(line, file=file, flush=True)
                self.say(f"| {line}")

    def end(self):
        for one in self.crews:
            one.end()
        for _, process in self.hostile:
            process.kill()
            process.wait()
        self.pauses.end_all()
        try:
            self.daemon.stop()
        except AssertionError as error:
            self.wrong.append(str(error)[-3000:])
        self.check_orphans()
        self.checker.shutdown(cancel_futures=True)
        try:
            self.reference.stop()
        except AssertionError as error:
            self.wrong.append(f"the undisturbed daemon: {str(error)[-3000:]}")
        if not self.wrong:
            shutil.rmtree(self.dir)


class Stalled(Exception):
    pass


def main():
    soak = Soak(OPTIONS, lambda text: print(text, flush=True))
    print(f"seed {OPTIONS.seed}, {OPTIONS.seconds:.0f} s, in {soak.dir}", flush=True)
    good = soak.run()
    for name, count in sorted(soak.counts.items()):
        print(f"{count:8} {name}")
    for text in soak.wrong:
        print(f"WRONG: {text}")
    if not good:
        print(f"seed {OPTIONS.seed}; see {soak.dir}")
    return 0 if good else 1


if __name__ == "__main__":
    OPTIONS = read_arguments()
    prepare_process()
    sys.path.insert(0, str(HERE))

import crew  # noqa: E402
import dltest  # noqa: E402
import pauses  # noqa: E402
import pythons  # noqa: E402
import recipes  # noqa: E402
import stall  # noqa: E402
import startline  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
