"""The Debian packages: installed, used, brought up to date and removed.

    sandbox.py python3 test_package.py FOLDER    the folder has the packages

One system's life, so the cases go in order and each takes the system as the one before left it.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEBS = []  # set by the command line
NAMES = ["dlctl", "dloaderd", "libdlclient-dev", "libdlclient0", "python3-dloaderd"]
CONFIG = pathlib.Path("/etc/dloaderd.conf")
SOCKET = pathlib.Path("/run/dloaderd/socket")
MEMBER = "nobody"  # made one of the group
STRANGER = "daemon"  # a user of every Debian system, of no such group
SECOND, HOSTILE = "games", "news"  # two more, made members as well

# A daemon's files come and go; these are the system's own records.
NOT_OURS = re.compile(
    r"/var/(cache|log|tmp|lib/(dpkg|apt|systemd/(catalog|timers)))(/|$)|/__pycache__(/|$)|"
    r"/etc/((passwd|group|shadow|gshadow)-?|ld\.so\.cache|\.pwd\.lock)$")
TREES = ("/etc", "/lib", "/usr", "/var")

PROGRAM = r"""
#include <dlclient.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct dl_client *client;
    struct dl_loader *loader;
    struct dl_epoch *epoch;
    struct dl_batch *batch;
    uint64_t n = 0;

    if (dl_client_connect(&client, NULL, NULL) < 0 ||
        dl_loader_open_file(client, argv[1], &loader) < 0 ||
        dl_epoch_start(loader, NULL, &epoch) < 0) {
        fprintf(stderr, "%s\n", dl_client_error(client));
        return 1;
    }
    while (dl_epoch_next(epoch, -1, &batch) == 0) {
        if (++n == 3 && argc > 2) {
            printf("three\n");
            fflush(stdout);
            getchar();
        }
    }
    printf("%s: %llu\n", dl_version(), (unsigned long long)n);
    dl_client_close(client);
    return 0;
}
"""

SPEC = """\
name: {name}
dataset: {{kind: npy, paths: {{x: {folder}/rows.npy}}}}
batch: {{size: 32}}
workers: {{count: 1}}
"""

TRAINER = """
import sys
import dloaderd
with dloaderd.Loader(sys.argv[1], as_="numpy") as loader:
    print(sum(1 for _ in loader), dloaderd.__file__)
"""

DROP_IN = """
import numpy
from torch.utils.data import Dataset
from dloaderd import DataLoader

class Squares(Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        return numpy.full(4, index)

if __name__ == "__main__":
    print(sum(len(batch) for batch in DataLoader(Squares(), batch_size=8, num_workers=1)))
"""

# With hosts that it brings itself: its code is run as its user. "started" comes with the first batch.
LONG_DROP_IN = """
import time

import numpy
from torch.utils.data import Dataset
from dloaderd import DataLoader

class Squares(Dataset):
    def __len__(self):
        return 200
    def __getitem__(self, index):
        time.sleep(0.002)
        return numpy.full(4, index * index)

if __name__ == "__main__":
    loader = DataLoader(Squares(), batch_size=8, num_workers=2, persistent_workers=True)
    right = 0
    for epoch in range(8):
        for step, batch in enumerate(loader):
            right += [int(row[0]) for row in batch] == [i * i for i in range(8 * step, 8 * step + 8)]
            if epoch == step == 0:
                print("started", flush=True)
    print("right:", right)
"""

# Says how often it was refused for want of quota, when its input ends.
ATTACK = r"""
import random, select, socket, struct, sys

def frame(payload):
    return struct.pack("<I", len(payload)) + payload

def text(words):
    return b"\xda" + struct.pack(">H", len(words)) + words.encode()

HELLO = frame(b"\x93\x01\x03\xa1x")
def OPEN(i):
    spec = text("{name: a%d, dataset: {kind: range, length: 100}, workers: {count: 2}}" % i)
    return frame(b"\x97\x02" + bytes([i % 128]) + b"\xa1/" + spec + b"\x00\x00\x00")
STATUS = frame(b"\x94\x08\x01\xa6status\x00")

refused, rng = 0, random.Random(1)
while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(10)
            peer.connect(sys.argv[1])
            kind = rng.randrange(3)
            if kind == 0:
                peer.sendall(rng.randbytes(5000))
            elif kind == 1:
                peer.sendall(HELLO + b"".join(OPEN(i) for i in range(60)))
                for _ in range(20):
                    refused += peer.recv(1 << 16).count(b"limits.")
            else:
                peer.sendall(HELLO + STATUS * 200)
                peer.recv(1 << 16)
    except OSError:
        pass
print("refused:", refused)
"""


def run(*command, user=None, check=True, env=None, timeout=120):
    if user:
        command = ("setpriv", f"--reuid={user}", "--init-groups", "--reset-env", *command)
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, timeout=timeout, stdin=subprocess.DEVNULL,
                          env={**os.environ, **(env or {})}, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}")
    return done.stdout if check else done


def files():
    found = set()
    for tree in TREES:
        for folder, folders, names in os.walk(tree):
            if NOT_OURS.search(folder):
                folders.clear()
                continue
            found |= {path for name in names + folders
                      if not NOT_OURS.search(path := os.path.join(folder, name))}
    return found


def dpkg(*words):
    return run("dpkg", "--force-unsafe-io", *words, env={"DEBIAN_FRONTEND": "noninteractive"},
               timeout=300)


def prop(unit, name):
    return run("systemctl", "show", "--value", "--property", name, unit).strip()


def journal(priority):
    """What the daemon itself has told, from that priority on."""
    run("journalctl", "--sync")
    return run("journalctl", "_COMM=dloaderd", "--priority", priority, "--output", "cat",
               "--no-pager", "--quiet")


def wait_until(condition, what):
    """Ends only by what is waited for, or as a failure long after it is due."""
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.05)


class Package(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        # What the machine itself has of it.
        dpkg("--purge", *NAMES)
        cls.before = files()
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="package-", dir="/srv"))
        cls.spec = cls.make_rows(cls.folder)

    @classmethod
    def make_rows(cls, folder):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        run(sys.executable, "-c", "import numpy, sys; numpy.save(sys.argv[1], "
            "numpy.arange(640, dtype='f4').reshape(320, 2))", folder / "rows.npy")
        spec = folder / "rows.yaml"
        spec.write_text(SPEC.format(folder=folder, name=folder.name), encoding="utf-8")
        return spec

    def compile(self, source, *flags, name="program"):
        out = self.folder / name
        run("cc", "-Wall", "-Werror", "-o", out, source, *flags)
        return out

    def flags(self, *words):
        return run("pkg-config", "--cflags", "--libs", *words).split()

    def member(self, *command):
        return run(*command, user=MEMBER)

    def test_01_installing_starts_the_daemon(self):
        dpkg("--install", *DEBS)
        self.assertEqual(run("dpkg", "--audit"), "")
        run("usermod", "--append", "--groups", "dloaderd", MEMBER)
        for unit in ("dloaderd.socket", "dloaderd.service"):
            self.assertEqual(prop(unit, "ActiveState"), "active", unit)
            self.assertEqual(prop(unit, "UnitFileState"), "enabled", unit)
        owner = pathlib.Path("/proc", prop("dloaderd.service", "MainPID")).stat().st_uid
        self.assertEqual(owner, int(run("id", "-u", "dloaderd")))
        self.assertEqual((SOCKET.stat().st_mode & 0o777, SOCKET.group()), (0o660, "dloaderd"))

    def test_02_what_debian_expects_is_there(self):
        found = files() - self.before
        for path in found:
            self.assertRegex(path, r"^/(etc|(usr/)?lib|usr/(bin|include|libexec|share)|var/lib|"
                             r"var/cache)/")
        self.assertIn("libdlclient.so.0 ", run("ldconfig", "-p"))
        for page in ("dloaderd.8", "dlctl.1", "dloaderd.conf.5", "dloader-spec.5", "dlclient.3",
                     "dloader-plugin.3"):
            name, _, section = page.rpartition(".")
            self.assertIn(page, run("man", "-w", section, name))
        self.assertIn("dlclient.3", run("man", "-w", "dl_epoch_next"))
        for program in ("dlctl", "dloaderd"):
            self.assertIn(program, run("man", "-f", program))
            for path in (f"bash-completion/completions/{program}",
                         f"fish/vendor_completions.d/{program}.fish",
                         f"zsh/vendor-completions/_{program}"):
                self.assertIn("/usr/share/" + path, found)
        self.assertEqual(run("systemd-analyze", "verify", "dloaderd.service", "dloaderd.socket"), "")

    def test_03_a_member_of_the_group_is_served(self):
        self.assertIn(" 320 samples,", self.member("dlctl", "run", self.spec))

    def test_04_another_user_is_not(self):
        done = run("dlctl", "status", user=STRANGER, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, "permission denied by .* join the group dloaderd")

    def test_05_an_installed_example_runs(self):
        spec = pathlib.Path("/usr/share/doc/dlctl/examples/fashion.yaml")
        if not os.path.exists("/usr/share/datasets/fashion-mnist"):
            self.skipTest("the package dataset-fashion-mnist is not installed")
        self.assertIn(" 60000 samples,", self.member("dlctl", "run", spec))

    def test_06_c_programs_find_the_library(self):
        source = self.folder / "program.c"
        source.write_text(PROGRAM, encoding="utf-8")
        version = run("dlctl", "--version").split()[1]
        shared = self.compile(source, *self.flags("dlclient"))
        self.assertIn("libdlclient.so.0 => /", run("ldd", shared))
        self.assertEqual(self.member(shared, self.spec), f"{version}: 10\n")
        flags = [flag for flag in self.flags("--static", "dlclient") if flag != "-ldlclient"]
        static = self.compile(source, "-l:libdlclient.a", *flags, "-ldl", name="static")
        self.assertNotIn("libdlclient", run("ldd", static))
        self.assertEqual(self.member(static, self.spec), f"{version}: 10\n")

    def test_07_the_examples_in_c_compile(self):
        folder = pathlib.Path("/usr/share/doc/libdlclient-dev/examples")
        self.compile(folder / "softmax.c", "-O2", *self.flags("dlclient"), "-lm", name="softmax")
        plugins = sorted(folder.glob("*.c"))
        plugins.remove(folder / "softmax.c")
        self.assertGreaterEqual(len(plugins), 4)
        for plugin in plugins:
            self.compile(plugin, "-O2", "-shared", "-fPIC", *self.flags("dloader-plugin", "jansson"),
                         name=plugin.stem + ".so")

    def test_08_python_reads_from_the_daemon(self):
        script = self.folder / "trainer.py"
        script.write_text(TRAINER, encoding="utf-8")
        done = self.member("env", f"DLOADER_SOCKET={SOCKET}", "/usr/bin/python3", script, self.spec)
        self.assertEqual(done.split(), ["10", "/usr/lib/python3/dist-packages/dloaderd/__init__.py"])

    def test_09_pytorchs_loader_has_a_daemon_of_its_own(self):
        if run("/usr/bin/python3", "-c", "import torch", check=False).returncode != 0:
            self.skipTest("the package python3-torch is not installed")
        script = self.folder / "drop_in.py"
        script.write_text(DROP_IN, encoding="utf-8")
        self.assertEqual(self.member("/usr/bin/python3", script), "100\n")

    def test_10_the_journal_tells_of_no_trouble(self):
        self.assertEqual(journal("warning"), "")

    def entries(self, event):
        """The journal's entries of an event of log.def, by the number that the manual has."""
        definitions = (ROOT / "daemon/base/log.def").read_text(encoding="utf-8")
        number = re.search(rf'^EVENT\({event}, "(\w+)"', definitions, re.MULTILINE)[1]
        run("journalctl", "--sync")
        found = run("journalctl", f"MESSAGE_ID={number}", "--output", "json", "--no-pager", "--quiet")
        return [json.loads(line) for line in found.splitlines()]

    def test_10b_the_journal_has_fields_and_a_catalog(self):
        started = self.entries("STARTED")
        self.assertGreaterEqual(len(started), 1)
        for entry in started:
            self.assertEqual((entry["MESSAGE"], entry["PRIORITY"], entry["SYSLOG_IDENTIFIER"],
                              entry["_SYSTEMD_UNIT"]),
                             (f"listening on {SOCKET}", "6", "dloaderd", "dloaderd.service"))
        explained = run("journalctl", f"MESSAGE_ID={started[0]['MESSAGE_ID']}", "--catalog",
                        "--no-pager")
        self.assertIn("Subject: The daemon has started", explained)
        self.member("dlctl", "run", self.spec)
        worker = json.loads(self.member("dlctl", "workers", "--json"))[0]
        run("kill", "-KILL", worker["pid"])
        wait_until(lambda: self.entries("WORKER_DIED"), "the death is told")
        [died] = self.entries("WORKER_DIED")
        self.assertEqual((died["PRIORITY"], died["DLOADER_LOADER"], died["DLOADER_WORKER"],
                          died["DLOADER_WORKER_PID"]),
                         ("4", worker["loader"], str(worker["worker"]), str(worker["pid"])))

    def metrics(self):
        with urllib.request.urlopen("http://127.0.0.1:9400/metrics", timeout=60) as answer:
            return answer.read().decode()

    def test_10c_homes_are_outside_and_that_is_told(self):
        home = pathlib.Path("/home/somebody")
        home.mkdir(parents=True)
        self.addCleanup(shutil.rmtree, home)
        shutil.copy(self.folder / "rows.npy", home)
        spec = self.folder / "home.yaml"
        spec.write_text(SPEC.format(name="home", folder=home), encoding="utf-8")
        done = run("dlctl", "run", spec, user=MEMBER, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("lies outside the daemon's data_roots (/srv, ...)", done.stdout)

    def test_11_a_reload_takes_a_changed_configuration(self):
        spec = self.make_rows(pathlib.Path("/opt/package"))
        self.addCleanup(shutil.rmtree, "/opt/package")
        CONFIG.write_text(re.sub(r"^data_roots: .*$", "data_roots: [/srv]",
                                 CONFIG.read_text(encoding="utf-8"), flags=re.M), encoding="utf-8")
        pid = prop("dloaderd.service", "MainPID")
        run("systemctl", "reload", "dloaderd.service")
        wait_until(lambda: "reload" in journal("info"), "the daemon tells that it has read it")
        done = run("dlctl", "run", spec, user=MEMBER, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("data_roots", done.stdout)
        self.assertIn(" 320 samples,", self.member("dlctl", "run", self.spec))
        self.assertEqual(prop("dloaderd.service", "MainPID"), pid)

    def test_12_the_first_client_starts_the_daemon(self):
        run("systemctl", "stop", "dloaderd.service")
        self.assertEqual(prop("dloaderd.service", "Result"), "success")
        self.assertEqual(prop("dloaderd.socket", "ActiveState"), "active")
        self.member("dlctl", "status")
        self.assertEqual(prop("dloaderd.service", "ActiveState"), "active")

    def crash(self):
        """Kills the daemon as the kernel would, with a client on its way; the next one's process id."""
        unit = "dloaderd.service"
        pid = prop(unit, "MainPID")
        run("kill", "-KILL", pid)
        # A client that asks in between waits at the socket.
        self.member("dlctl", "status")
        self.assertNotIn(prop(unit, "MainPID"), ("0", pid))

    def test_12a_it_comes_back_however_often_it_crashes(self):
        inode = SOCKET.stat().st_ino
        for _ in range(20):
            self.crash()
        self.assertEqual(prop("dloaderd.socket", "ActiveState"), "active")
        self.assertEqual(prop("dloaderd.service", "ActiveState"), "active")
        self.assertGreaterEqual(int(prop("dloaderd.service", "NRestarts")), 20)
        self.assertEqual(SOCKET.stat().st_ino, inode)
        self.assertIn(" 320 samples,", self.member("dlctl", "run", self.spec))
        # Where it would note what it crashes of: nobody is to blame for a kill.
        noted = pathlib.Path("/run/dloaderd-state/crashes")
        self.assertEqual((noted.stat().st_size, noted.owner()), (0, "dloaderd"))
        run("systemctl", "stop", "dloaderd.service")
        self.assertFalse(noted.exists())
        self.member("dlctl", "status")

    def test_12ab_so_does_a_users_own(self):
        """By the units of a user's service manager."""
        runtime = pathlib.Path("/run/own")
        runtime.mkdir(mode=0o700)
        shutil.chown(runtime, SECOND, SECOND)
        run("systemd-run", "--unit=own", f"--uid={SECOND}", "--property=Delegate=yes", "--setenv=HOME=/tmp",
            f"--setenv=XDG_RUNTIME_DIR={runtime}", "/lib/systemd/systemd", "--user", "--unit=sockets.target")
        self.addCleanup(run, "systemctl", "stop", "own.service")

        def own(*command):
            return run("env", f"XDG_RUNTIME_DIR={runtime}", f"DLOADER_SOCKET={runtime}/dloaderd/socket",
                       *command, user=SECOND)

        def show(name):
            return own("systemctl", "--user", "show", "--value", "--property", name, "dloaderd.service").strip()

        wait_until((runtime / "systemd/private").exists, "the user's service manager")
        own("systemctl", "--user", "start", "dloaderd.socket")
        for _ in range(20):
            own("dlctl", "status")
            pid = show("MainPID")
            run("kill", "-KILL", pid)
            wait_until(lambda pid=pid: show("MainPID") not in ("0", pid), "the next daemon")
        self.assertIn(" 320 samples,", own("dlctl", "run", self.spec))
        self.assertEqual(pathlib.Path("/proc", show("MainPID")).owner(), SECOND)

    def start_as(self, user, *command, socket=False):
        """A process of that user, whose output is read."""
        env = {**os.environ, "DLOADER_SOCKET": str(SOCKET)} if socket else None
        process = subprocess.Popen(["setpriv", f"--reuid={user}", "--init-groups", *map(str, command)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   stderr=subprocess.STDOUT, env=env)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_12aa_two_users_bring_hosts_and_a_third_attacks(self):
        if run("/usr/bin/python3", "-c", "import torch", check=False).returncode != 0:
            self.skipTest("the package python3-torch is not installed")
        for user in (SECOND, HOSTILE):
            run("usermod", "--append", "--groups", "dloaderd", user)
        scripts = {name: self.folder / f"{name}.py" for name in ("train", "attack")}
        scripts["train"].write_text(LONG_DROP_IN, encoding="utf-8")
        scripts["attack"].write_text(ATTACK, encoding="utf-8")
        hostile = self.start_as(HOSTILE, "/usr/bin/python3", scripts["attack"], SOCKET)
        honest = [self.start_as(user, "/usr/bin/python3", scripts["train"], socket=True)
                  for user in (MEMBER, SECOND)]
        for trainer in honest:
            self.assertEqual(trainer.stdout.readline(), "started\n")
        rows = json.loads(self.member("dlctl", "workers", "--json"))
        owners = {pathlib.Path("/proc", str(row["pid"])).owner() for row in rows if row["pid"]}
        self.assertGreaterEqual(owners, {MEMBER, SECOND})
        self.crash()
        for trainer in honest:
            self.assertEqual(trainer.communicate(timeout=240)[0], "right: 200\n")
            self.assertEqual(trainer.returncode, 0)
        told, _ = hostile.communicate("", timeout=60)
        self.assertRegex(told, r"^refused: [1-9]\d*$")
        wait_until(lambda: json.loads(self.member("dlctl", "status", "--json"))["sessions"] == 1,
                   "all sessions end")

    def test_12b_metrics_by_http_with_the_manuals_drop_in(self):
        config = CONFIG.read_text(encoding="utf-8")
        CONFIG.write_text(config + '\nmetrics: {listen: "127.0.0.1:9400"}\n', encoding="utf-8")
        run("systemctl", "reload", "dloaderd.service")
        wait_until(lambda: "see METRICS in dloaderd.conf(5)" in journal("err"),
                   "the unit's limits are told of")
        page = (ROOT / "daemon/dloaderd.conf.5.scd").read_text(encoding="utf-8")
        text = re.search(r"^# METRICS$.*?^```\n(\[Service\]\n.*?)^```$", page, re.M | re.S)[1]
        drop_in = pathlib.Path("/etc/systemd/system/dloaderd.service.d/override.conf")
        drop_in.parent.mkdir()
        drop_in.write_text(text, encoding="utf-8")
        run("systemctl", "daemon-reload")
        run("systemctl", "restart", "dloaderd.service")
        self.assertIn('dloader_info{version="', self.metrics())
        # Where it was: a reload alone hangs up.
        CONFIG.write_text(config, encoding="utf-8")
        run("systemctl", "reload", "dloaderd.service")
        wait_until(lambda: not self.reachable(), "nobody listens")
        shutil.rmtree(drop_in.parent)
        run("systemctl", "daemon-reload")
        run("systemctl", "restart", "dloaderd.service")

    def reachable(self):
        try:
            return bool(self.metrics())
        except OSError:  # refused, or hung up on: urllib's error is one, too
            return False

    def test_13_a_new_version_keeps_socket_settings_and_epochs(self):
        inode, pid = SOCKET.stat().st_ino, prop("dloaderd.service", "MainPID")
        with subprocess.Popen(["setpriv", f"--reuid={MEMBER}", "--init-groups",
                               self.folder / "program", self.spec, "wait"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as reader:
            self.assertEqual(reader.stdout.readline(), "three\n")
            dpkg("--install", *DEBS)
            self.assertEqual(SOCKET.stat().st_ino, inode)
            self.assertNotEqual(prop("dloaderd.service", "MainPID"), pid)
            self.assertEqual(prop("dloaderd.service", "ActiveState"), "active")
            told, _ = reader.communicate("\n", timeout=120)
        self.assertRegex(told, r"^[\d.]+: 10\n$")
        self.assertIn("data_roots: [/srv]", CONFIG.read_text(encoding="utf-8"))

    def test_14_removing_leaves_the_settings_alone(self):
        dpkg("--remove", *NAMES)
        self.assertEqual(run("pgrep", "-x", "dloaderd", check=False).stdout, "")
        self.assertFalse(SOCKET.exists())
        self.assertIn("data_roots: [/srv]", CONFIG.read_text(encoding="utf-8"))
        found = {path for path in files() - self.before if not path.startswith("/var/")}
        self.assertEqual({path for path in found if pathlib.Path(path).is_file()}, {str(CONFIG)})

    def test_15_purging_leaves_nothing(self):
        dpkg("--purge", *NAMES)
        self.assertEqual(files() ^ self.before, set())


def main(folder):
    DEBS.extend(str(path) for path in pathlib.Path(folder).glob("*.deb")
                if "-dbgsym_" not in path.name)
    if len(DEBS) != len(NAMES):
        sys.exit(f"{folder} has {len(DEBS)} packages, not {', '.join(NAMES)}")
    unittest.main(argv=sys.argv[:1], verbosity=2, failfast=False)


if __name__ == "__main__":
    main(sys.argv[1])
