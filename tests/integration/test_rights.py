"""Who may read, run and see what: the table RIGHTS of dloaderd(8), a row here for each cell of it.

Real daemons of other users and of root, real clients, modes, access control lists, links, and names
that change. Needs root, to be several users.
"""

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import unittest

import dltest
import test_digest
from dltest import DaemonError, LifeCase, RawClient, as_user, dlctl_json, named, wait_until
from tap import slow

FAKE_HOST = os.environ.get("FAKE_HOST", "fake_host")
BAD_PLUGIN = os.environ.get("BAD_PLUGIN", "bad_plugin.so")

# Users and a group that no system has.
DAEMON, OTHER, VICTIM, GROUP = 61001, 61002, 61003, 61010

OWN, ELSE, ROOT = "its own user", "another user", "root"
PRIVATE, USERS, SYSTEM = "--private", "a user's own", "the system's"


def access_list(*entries):
    """(tag, rights, id) each, as the attribute system.posix_acl_access has them."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def list_naming(uid, rights, others):
    nobody = 2 ** 32 - 1
    return access_list((1, 6, nobody), (2, rights, uid), (4, 0, nobody), (16, 7, nobody),
                       (32, others, nobody))


def code_of(client, spec):
    """0, or the errno by which it is refused."""
    try:
        client.open(spec)
        return 0
    except DaemonError as error:
        return error.code


@unittest.skipIf(os.geteuid(), "only root can be several users")
class RightsCase(LifeCase):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        # The build may lie where only its owner gets.
        os.mkdir(self.path("bin"))
        for program in (dltest.DLOADERD, os.path.join(os.path.dirname(dltest.DLOADERD), "dloader-worker"),
                        FAKE_HOST, BAD_PLUGIN):
            shutil.copy(program, self.path("bin"))
        os.rename(self.path("bin/" + os.path.basename(FAKE_HOST)), self.path("bin/host-good"))
        self.plugin = self.path("bin/" + os.path.basename(BAD_PLUGIN))
        os.chmod(self.path("bin"), 0o755)
        os.mkdir(self.path("data"), 0o755)
        self.row_file("public.npy", 1)

    def row_file(self, name, value, mode=0o644, owner=0, group=0):
        """Four rows of that value."""
        path = self.npy("data/" + name, (4, 16), "|u1", bytes([value]) * 64)
        os.chown(path, owner, group)
        os.chmod(path, mode)
        return path

    def start(self, config=None, uid=DAEMON, args=(), **options):
        folder = self.path("run")
        os.mkdir(folder)
        os.chown(folder, uid, uid)
        if config is not None:
            with open(os.path.join(folder, "conf"), "w") as file:
                json.dump(config, file)
            args = ("--config", os.path.join(folder, "conf"), *args)
        daemon = dltest.Daemon(folder, args=args, user=uid, group=uid, extra_groups=[],
                               executable=self.path("bin/dloaderd"), **options)
        self.addCleanup(daemon.stop)
        return daemon

    def shared(self, uid=DAEMON, **config):
        return self.start({"socket_mode": "0666", "data_roots": [self.path("data")], **config}, uid)

    def files_spec(self, name, path, **extra):
        return named(name, dataset={"kind": "npy", "paths": {"x": path}}, batch={"size": 4},
                     workers={"count": 1}, **extra)


# ---- what is shown ------------------------------------------------------------------------------

class Shown(RightsCase):
    def test_specs(self):
        """Whose loader it is sees its spec, as do root and the daemon's own user; others see that there is one."""
        daemon = self.shared()
        spec = self.files_spec("secret", self.path("data/public.npy"), seed=7)

        def ask(work):
            client = daemon.client()
            try:
                return work(client)
            finally:
                client.close()

        as_user(OTHER, lambda: ask(lambda client: client.open(spec)["length"]))
        for uid, sees in ((OTHER, True), (VICTIM, False), (DAEMON, True), (0, True)):
            with self.subTest(uid=uid):
                row, = as_user(uid, lambda: ask(lambda client: client.query("specs")))
                self.assertEqual((row["loader"], row["uid"]), ("secret", OTHER))
                self.assertEqual(row["why_not"], None if sees else "another user's")
                self.assertEqual("public.npy" in str(row["spec"]), sees)
        said = json.loads(row["spec"])
        self.assertEqual((said["seed"], said["batch"]["size"]), (7, 4))
        # It can be opened again.
        self.assertEqual(as_user(OTHER, lambda: ask(lambda client: client.open(said)["length"])), 4)


# ---- code ---------------------------------------------------------------------------------------

def view_code(client):
    try:
        client.query("status")
        return 0
    except DaemonError as error:
        return error.code


def control_code(client):
    """0, or the errno by which a reload is refused."""
    client.send(dltest.CONTROL, 1, "reload")
    message = client.recv_number(dltest.INFO, dltest.ERROR)
    return 0 if message[0] == dltest.INFO else message[2]


class Code(RightsCase):
    """Each kind of code, numbers, views and control, of each kind of daemon, by each kind of user."""

    # What is allowed; all else is EPERM.
    ALLOWED = {
        "object": {(OWN, PRIVATE), (OWN, USERS), (OWN, SYSTEM)},
        "object of the site": {(OWN, PRIVATE), (OWN, USERS), (OWN, SYSTEM), (ELSE, SYSTEM), (ROOT, SYSTEM)},
        "interpreter": {(OWN, PRIVATE), (OWN, USERS), (OWN, SYSTEM)},
        "plug-in": {(OWN, PRIVATE), (OWN, USERS), (OWN, SYSTEM)},
        "plug-in of the site": {(OWN, PRIVATE), (OWN, USERS), (OWN, SYSTEM), (ELSE, SYSTEM), (ROOT, SYSTEM)},
        "files": {(OWN, PRIVATE), (OWN, USERS), (OWN, SYSTEM), (ELSE, SYSTEM), (ROOT, SYSTEM)},
        "host": {(OWN, PRIVATE), (OWN, USERS), (OWN, SYSTEM), (ELSE, SYSTEM), (ROOT, SYSTEM),
                 (ROOT, USERS)},
        "numbers": {(OWN, PRIVATE), (OWN, USERS), (OWN, SYSTEM), (ELSE, SYSTEM), (ROOT, SYSTEM),
                    (ROOT, USERS)},
        "views": {(who, way) for who in (OWN, ELSE, ROOT) for way in (PRIVATE, USERS, SYSTEM)},
        "control": {(who, way) for who in (OWN, ROOT) for way in (PRIVATE, USERS, SYSTEM)},
    }

    def setUp(self):
        super().setUp()
        shutil.copy(self.plugin, self.path("bin/site.so"))
        os.mkdir(self.path("bin/second"))
        shutil.copy(self.path("bin/host-good"), self.path("bin/second"))

    def specs(self):
        code = {"collate": {"kind": "python"}, "batch": {"size": 4}, "workers": {"count": 1}}
        return {
            "object": {"dataset": {"kind": "python", "object": "my.data:Set"}, **code},
            "object of the site": {"dataset": {"kind": "python", "object": "site.data:Set",
                                               "args": {"length": 8}}, **code},
            "interpreter": {"dataset": {"kind": "python", "object": "site.data:Set",
                                        "interpreter": self.path("bin/second/host-good")}, **code},
            "plug-in": named("plug-in", dataset={"kind": "plugin", "path": self.plugin}),
            "plug-in of the site": named("site", dataset={"kind": "plugin",
                                                          "path": self.path("bin/site.so")}),
            "files": self.files_spec("files", self.path("data/public.npy")),
            "host": {"dataset": {"kind": "python", "host": 7}, **code},
            "numbers": named("numbers"),
        }

    def config(self, way):
        own = {"python": [self.path("bin/host-good"), self.path("bin/second/host-good")], "linger": "0s"}
        site = {"site": {"objects": ["site.data:Set"], "plugins": [self.path("bin/site.so")]}}
        return {PRIVATE: {**own, "socket_mode": "0666"}, USERS: own,
                SYSTEM: {**own, **site, "socket_mode": "0666", "data_roots": [self.path("data")]}}[way]

    def ask(self, socket_path):
        """{what: errno}; or that of the connection."""
        try:
            client = RawClient(socket_path)
        except OSError as error:
            return error.errno
        with client, self.bring_host(client):
            codes = {what: code_of(client, spec) for what, spec in self.specs().items()}
            return {**codes, "views": view_code(client), "control": control_code(client)}

    @contextlib.contextmanager
    def bring_host(self, client):
        """A process of the client's own, for the spec that names it."""
        daemons, hosts = socket.socketpair()
        with daemons, hosts:
            process = subprocess.Popen([self.path("bin/host-good"), "--socket", str(hosts.fileno()), "8"],
                                       pass_fds=[hosts.fileno()])
            message = dltest.pack([dltest.HOST, 7])
            socket.send_fds(client.sock, [struct.pack("<I", len(message)) + message], [daemons.fileno()])
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def check_way(self, way, uids):
        daemon = self.start(self.config(way), args=("--private",) if way == PRIVATE else ())
        for who, uid in uids.items():
            with self.subTest(who=who):
                codes = as_user(uid, lambda: self.ask(daemon.socket)) if uid else self.ask(daemon.socket)
                if way == USERS and who == ELSE:
                    self.assertEqual(codes, errno.EACCES)
                    continue
                for what, code in codes.items():
                    with self.subTest(what=what):
                        allowed = (who, way) in self.ALLOWED[what]
                        # Its own user's plug-in is refused by the plug-in itself, which is a bad one.
                        if allowed and "plug-in" in what:
                            self.assertNotEqual(code, errno.EPERM)
                        else:
                            self.assertEqual(code, 0 if allowed else errno.EPERM)

    def test_of_the_system(self):
        self.check_way(SYSTEM, {OWN: DAEMON, ELSE: OTHER, ROOT: 0})

    def test_of_a_user(self):
        self.check_way(USERS, {OWN: DAEMON, ELSE: OTHER, ROOT: 0})

    def test_private_by_its_own_user(self):
        self.check_way(PRIVATE, {OWN: DAEMON})

    def test_private_by_another(self):
        self.check_way(PRIVATE, {ELSE: OTHER})

    def test_private_by_root(self):
        self.check_way(PRIVATE, {ROOT: 0})

    def test_what_the_site_lists_is_closed_in(self):
        daemon = self.start({**self.config(SYSTEM), "linger": "60s"})

        def work(name):
            with RawClient(daemon.socket) as client:
                loader = client.open({"name": name, **self.specs()["object of the site"]})["loader"]
                steps = client.epoch_indices(loader)
                client.open(named("native", workers={"count": 1}))
                sandbox = {row["loader"]: row["sandbox"] for row in client.query("workers")}
                return len(steps), sandbox[name], sandbox["native"]

        steps, theirs, native = as_user(OTHER, lambda: work("theirs"))
        _, own, _ = as_user(DAEMON, lambda: work("own"))
        self.assertEqual(steps, 2)
        self.assertEqual(theirs, native)
        self.assertIn(own, ("calls", "off"))

    def attacks(self, mark, daemon):
        return {"builtins:exec": [f"open({mark!r}, 'w')"], "builtins:eval": [f"open({mark!r}, 'w')"],
                "os:system": [f"id >{mark}"], "subprocess:getoutput": [f"id >{mark}"],
                "runpy:run_path": [mark + ".py"], "os:kill": [daemon.process.pid, 9]}

    def test_the_attacks(self):
        """Each names code that every interpreter has."""
        config = {**self.config(SYSTEM), "python": ["/usr/bin/python3"]}
        daemon = self.start(config)
        mark = self.path("run/mark")

        attacks = self.attacks(mark, daemon)

        def work():
            told = []
            for attack, args in attacks.items():
                with RawClient(daemon.socket) as client:
                    try:
                        client.open({"dataset": {"kind": "python", "object": attack, "args": args}})
                        told.append([attack, 0, "", ""])
                    except DaemonError as error:
                        told.append([attack, error.code, error.path, error.message])
            return told

        for attack, code, path, message in as_user(OTHER, work):
            with self.subTest(attack=attack):
                self.assertEqual((code, path), (errno.EPERM, "dataset.object"))
                self.assertIn(f"{attack} is code that user {OTHER} names, and this daemon runs as user "
                              f"{DAEMON}: start a daemon of your own (systemctl --user enable --now "
                              "dloaderd.socket", message)
        self.assertIsNone(daemon.process.poll())
        self.assertFalse(os.path.exists(mark))


# ---- files --------------------------------------------------------------------------------------

class Files(RightsCase):
    """A daemon of root's, which may read everything, for users who may not."""

    def setUp(self):
        super().setUp()
        self.row_file("secret.npy", 9, 0o600)
        self.row_file("others-own.npy", 2, 0o600, OTHER)
        self.row_file("groups.npy", 3, 0o640, 0, GROUP)
        self.row_file("not-the-groups.npy", 4, 0o604, 0, GROUP)
        for name, rights, others in (("listed.npy", 4, 0), ("shut-out.npy", 0, 4)):
            path = self.row_file(name, 5, 0o600)
            try:
                os.setxattr(path, "system.posix_acl_access", list_naming(OTHER, rights, others))
            except OSError as error:
                if error.errno != errno.ENOTSUP:
                    raise
                os.remove(path)
        os.mkdir(self.path("data/home"))
        self.row_file("home/public.npy", 6)
        os.chown(self.path("data/home"), VICTIM, VICTIM)
        os.chmod(self.path("data/home"), 0o700)
        self.npy("outside.npy", (4, 16), "|u1", bytes([7]) * 64)
        os.chmod(self.path("outside.npy"), 0o644)
        os.symlink(self.path("outside.npy"), self.path("data/out.npy"))
        os.symlink(self.path("data/public.npy"), self.path("data/link.npy"))
        os.symlink(self.path("data/public.npy"), self.path("data/home/link.npy"))

    # Who gets it, of another user, the same with a group, the victim, and root.
    EXPECTED = {
        "public.npy": (0, 0, 0, 0),
        "link.npy": (0, 0, 0, 0),
        "secret.npy": (1, 1, 1, 0),
        "others-own.npy": (0, 0, 1, 0),
        "groups.npy": (1, 0, 1, 0),
        "not-the-groups.npy": (0, 1, 0, 0),
        "listed.npy": (0, 0, 1, 0),
        "shut-out.npy": (1, 1, 0, 0),
        "home/public.npy": (1, 1, 0, 0),
        "home/link.npy": (1, 1, 0, 0),
        "home/none.npy": (1, 1, 2, 2),
        "none.npy": (2, 2, 2, 2),
        "out.npy": (1, 1, 1, 1),
        "../outside.npy": (1, 1, 1, 1),
        "/etc/shadow": (1, 1, 1, 1),
        "/etc/no-such-file": (1, 1, 1, 1),
    }

    def read(self, daemon, name, path, **extra):
        """(errno, message); 0: its rows were read."""
        with RawClient(daemon.socket) as client:
            try:
                loader = client.open(self.files_spec(name, path, **extra))["loader"]
                client.epoch_indices(loader)
                return 0, ""
            except DaemonError as error:
                return error.code, error.message

    def test_each_file_for_each_user(self):
        daemon = self.shared(0)
        users = ((OTHER, ()), (OTHER, (GROUP,)), (VICTIM, ()), (0, ()))
        codes = (0, errno.EACCES, errno.ENOENT)

        def work(mark):
            return [[file, *self.read(daemon, f"{file}-{mark}".replace("/", "-"),
                                      os.path.join(self.path("data"), file))]
                    for file in self.EXPECTED
                    if file not in ("listed.npy", "shut-out.npy") or os.path.lexists(self.path("data/" + file))]

        for place, (uid, groups) in enumerate(users):
            told = as_user(uid, lambda: work(len(groups)), groups) if uid else work("root")
            for file, code, message in told:
                with self.subTest(file=file, uid=uid, groups=groups):
                    self.assertEqual(code, codes[self.EXPECTED[file][place]], message)
                    if uid and code == errno.EACCES and "/" not in file and file != "out.npy":
                        self.assertIn(f"user {uid}, for whom it is opened, may not read it", message)
                    if file == "out.npy":
                        self.assertIn(f"links to {self.path('outside.npy')}, outside the daemon's data_roots", message)

    def test_nothing_is_told_of_what_may_not_be_looked_at(self):
        """The same words, whether something is there or not."""
        daemon = self.shared(0)
        os.symlink(self.path("data/home/public.npy"), self.path("data/to-there.npy"))
        os.symlink(self.path("data/home/nothing.npy"), self.path("data/to-nothing.npy"))

        def work():
            pairs = (("home/public.npy", "home/nothing.npy"), ("to-there.npy", "to-nothing.npy"),
                     ("home/p*.npy", "home/q*.npy"))
            told = []
            for pair in pairs:
                for file in pair:
                    path = os.path.join(self.path("data"), file)
                    spec = {"dataset": {"kind": "tar", "paths": [path], "decode": False}} \
                        if "*" in file else self.files_spec("x", path)
                    with RawClient(daemon.socket) as client:
                        try:
                            client.open(spec)
                            told.append([0, ""])
                        except DaemonError as error:
                            told.append([error.code, error.message])
            return told

        told = as_user(OTHER, work)
        for there, nothing in zip(told[::2], told[1::2]):
            self.assertEqual(there, nothing)
            self.assertEqual(there[0], errno.EACCES)

    def test_a_folder_and_a_pattern(self):
        """What is listed needs to be readable, and below the folder what is opened."""
        daemon = self.shared(0)
        for name in ("pics/cat", "pics/dog"):
            os.makedirs(self.path("data/" + name))
        os.symlink(self.path("data/home"), self.path("data/pics/cat/more"))
        with open(self.path("data/a.txt"), "w") as file:
            file.write("one\n")
        shutil.copy(self.path("data/a.txt"), self.path("data/b.txt"))
        os.chmod(self.path("data/b.txt"), 0o600)

        def work():
            answers = []
            for dataset in ({"kind": "imagefolder", "paths": self.path("data/pics"), "size": [8, 8]},
                            {"kind": "text", "paths": [self.path("data/*.txt")], "tokenizer": "bytes"},
                            {"kind": "text", "paths": [self.path("data/a*.txt")], "tokenizer": "bytes"},
                            {"kind": "text", "paths": [self.path("data/home/*.txt")], "tokenizer": "bytes"}):
                with RawClient(daemon.socket) as client:
                    try:
                        client.open({"dataset": dataset, "workers": {"count": 1},
                                     "collate": {"kind": "pad"}})
                        answers.append([0, ""])
                    except DaemonError as error:
                        answers.append([error.code, f"{error.path}: {error.message}"])
            return answers

        folder, both, one, home = as_user(OTHER, work)
        self.assertEqual(folder[0], errno.EACCES, folder)
        self.assertIn("pics/cat/more", folder[1])
        self.assertEqual(both[0], errno.EACCES, both)
        self.assertIn("b.txt", both[1])
        self.assertEqual(one[0], 0, one)
        self.assertEqual(home[0], errno.EACCES, home)

    @slow
    def test_a_name_that_is_swapped(self):
        """Now the user's own file, now a link to what only root may read."""
        daemon = self.shared(0)
        os.mkdir(self.path("data/theirs"))
        os.chown(self.path("data/theirs"), OTHER, OTHER)
        swapping = os.fork()
        if swapping == 0:
            os.chdir(self.path("data/theirs"))
            while True:
                for target in ("../public.npy", "../secret.npy"):
                    os.symlink(target, "new")
                    os.rename("new", "name.npy")
        self.addCleanup(lambda: (os.kill(swapping, signal.SIGKILL), os.waitpid(swapping, 0)))
        wait_until(lambda: os.path.lexists(self.path("data/theirs/name.npy")), "the first link")

        def work():
            rows, refused = set(), 0
            for i in range(100):
                with RawClient(daemon.socket) as client:
                    try:
                        loader = client.open(self.files_spec(
                            f"swap-{i}", self.path("data/theirs/name.npy")))["loader"]
                        client.start(loader)
                        batch = client.next_batches()[0]
                        rows |= set(bytes(batch.slot)[-64:])
                        client.send(dltest.CLOSE, loader)
                    except DaemonError:
                        refused += 1
            return sorted(rows), refused

        rows, refused = as_user(OTHER, work)
        self.assertNotIn(9, rows)
        self.assertGreater(refused, 0)

    def test_others_with_other_groups_do_not_join(self):
        daemon = self.shared(0)
        path = self.path("data/groups.npy")

        def hold(meeting):
            with RawClient(daemon.socket) as client:
                client.open(self.files_spec("same", path))
                client.open({"dataset": {"kind": "npy", "paths": {"x": path}}, "seed": 1})
                with socket.socket(socket.AF_UNIX) as peer:
                    peer.connect(meeting)
                    peer.recv(1)
            return True

        def join():
            answers = []
            with RawClient(daemon.socket) as client:
                for spec in ("same", self.files_spec("same", path),
                             {"dataset": {"kind": "npy", "paths": {"x": path}}, "seed": 1}):
                    try:
                        client.open(spec)
                        answers.append([0, ""])
                    except DaemonError as error:
                        answers.append([error.code, error.message])
            return answers

        meeting = self.path("meeting")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(meeting)
            os.chmod(meeting, 0o666)
            listening.listen()
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    as_user(OTHER, lambda: hold(meeting), (GROUP,))
                os._exit(0)
            listening.settimeout(dltest.PATIENCE)
            peer, _ = listening.accept()
            with peer:
                without, with_it = as_user(OTHER, join), as_user(OTHER, join, (GROUP,))
                self.assertEqual(len(dlctl_json("loaders", daemon=daemon)), 2)
            os.waitpid(child, 0)
        self.assertEqual([code for code, _ in with_it], [0, 0, 0])
        self.assertEqual([code for code, _ in without], [errno.EACCES] * 3)
        self.assertIn("opened with other groups", without[0][1])
        self.assertIn("may not read it", without[2][1])


# ---- each kind ----------------------------------------------------------------------------------

class Maker:
    """What test_digest.py makes its datasets by, in a folder of data."""

    def __init__(self, folder):
        self.folder = folder
        os.mkdir(folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    npy = dltest.TestCase.npy

    def files(self):
        return [os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names]


class Kinds(RightsCase):
    """Each file of each kind of dataset is one more that the reader must be able to read."""

    NO_FILES = {"range", "plugin"}  # the plug-ins of the site are the administrator's choice
    UNREAD = (".vocab",)            # what is left of making a file
    EACH = 3                        # files of a dataset, the first and the last among them
    loaders = 0

    def read(self, daemon, name, dataset):
        """(0, ""), or the first error; of a loader of its own, which has opened nothing before."""
        spec = {"name": f"{name}-{self.loaders}", "dataset": dataset, "batch": {"size": 8},
                "workers": {"count": 1}, "seed": 1,
                "collate": test_digest.COLLATES.get(name, {"kind": "default"})}
        with RawClient(daemon.socket) as client:
            try:
                client.epoch_indices(client.open(spec)["loader"])
                return 0, ""
            except DaemonError as error:
                return error.code, f"{error.path}: {error.message}"

    def read_as_other(self, daemon, name, dataset):
        self.loaders += 1
        return as_user(OTHER, lambda: self.read(daemon, name, dataset))

    def check_files(self, daemon, name, dataset, files):
        self.assertEqual(self.read_as_other(daemon, name, dataset), [0, ""])
        for file in {*files[:self.EACH - 1], files[-1]}:
            os.chmod(file, 0o600)
            with self.subTest(dataset=name, file=file):
                code, message = self.read_as_other(daemon, name, dataset)
                self.assertEqual(code, errno.EACCES, message)
                self.assertIn(f"user {OTHER}, for whom it is opened, may not read it", message)
            os.chmod(file, 0o644)

    @slow
    def test_each_file(self):
        daemon, kinds = self.shared(0, linger="0s"), set()
        for name, kind, make in test_digest.DATASETS:
            maker = Maker(self.path(f"data/{name}"))
            try:
                dataset = {"kind": kind, **({} if kind in self.NO_FILES else make(maker))}
            except unittest.SkipTest:  # there is no such tokenizer
                continue
            files = sorted(file for file in maker.files() if not file.endswith(self.UNREAD))
            if files:
                kinds.add(kind)
                self.check_files(daemon, name, dataset, files)
        self.assertEqual(set(test_digest.all_kinds()) - kinds, self.NO_FILES | {"chain", "python"})


# ---- who may connect ----------------------------------------------------------------------------

class Sockets(RightsCase):
    NEEDED = "data_roots: other users may connect to "

    def test_a_shared_socket_needs_roots(self):
        for mode in ("0660", "0666", "0606"):
            with self.subTest(mode=mode):
                with open(self.path("conf"), "w") as file:
                    json.dump({"socket_mode": mode}, file)
                self.assert_does_not_start(self.NEEDED + self.path("s"), "--config", self.path("conf"),
                                           "--socket", self.path("s"))
                self.assertFalse(os.path.lexists(self.path("s")))

    def test_by_default_it_is_its_users_own(self):
        daemon = self.start()
        self.assertEqual(stat.S_IMODE(os.stat(daemon.socket).st_mode), 0o600)
        as_user(DAEMON, lambda: self.read_status(daemon))

    @staticmethod
    def read_status(daemon):
        with RawClient(daemon.socket) as client:
            client.query("status")

    def test_a_socket_that_is_passed(self):
        """By a socket unit, whose mode counts."""
        for mode, starts in ((0o660, False), (0o600, True)):
            with self.subTest(mode=oct(mode)), socket.socket(socket.AF_UNIX) as listening:
                path = self.path(f"passed-{mode:o}")
                listening.bind(path)
                os.chmod(path, mode)
                listening.listen()
                code = (f"import os; os.dup2({listening.fileno()}, 3); os.environ.update("
                        f"LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); "
                        f"os.execv({dltest.DLOADERD!r}, ['dloaderd'])")
                with open(self.path("log"), "w+") as log:
                    process = subprocess.Popen([sys.executable, "-c", code], stderr=log,
                                               pass_fds=[listening.fileno()])
                    self.addCleanup(process.wait)
                    self.addCleanup(process.kill)
                    if starts:
                        with RawClient(path) as client:
                            client.query("status")
                        process.terminate()
                    self.assertEqual(process.wait(dltest.PATIENCE), 0 if starts else 1)
                    log.seek(0)
                    said = log.read()
                self.assertEqual(self.NEEDED + path in said, not starts, said)

    def test_a_reload_cannot_take_the_roots_away(self):
        daemon = self.shared()
        with open(self.path("run/conf"), "w") as file:
            json.dump({"socket_mode": "0666"}, file)
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "the configuration was not changed: " + self.NEEDED in daemon.log,
                   "the daemon to say so")
        path = self.path("data/public.npy")
        self.assertEqual(as_user(OTHER, lambda: self.open_code(daemon, path)), 0)

    def open_code(self, daemon, path):
        with RawClient(daemon.socket) as client:
            return code_of(client, self.files_spec(os.path.basename(path), path))

    def test_a_root_that_is_not_there(self):
        """Nothing lies below it; that is no reason to keep a daemon from starting."""
        daemon = self.start({"socket_mode": "0666", "data_roots": [self.path("none"), self.path("data")]})
        self.assertEqual(as_user(OTHER, lambda: self.open_code(daemon, self.path("data/public.npy"))), 0)
        self.assertEqual(as_user(OTHER, lambda: self.open_code(daemon, self.path("none/x.npy"))),
                         errno.ENOENT)
