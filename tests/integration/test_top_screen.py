"""dlctl top on a terminal, which is tmux's: what is on the screen, at which size and in which
terminal, what keys do, and a daemon that goes away."""

import contextlib
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import unittest

import dltest
from dltest import PATIENCE, TestCase, named, wait_until
from tap import slow
from test_top import TopCase

TMUX = shutil.which("tmux")
# What is missing for a screen; None: nothing.
MISSING = None if TMUX else "tmux: apt-get install tmux"
SSH = shutil.which("ssh")
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
# Who measures tests by perf blocks it for all that they start: ssh would not hear of a terminal's new size.
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGWINCH})
COLOUR = re.compile(r"\x1b\[[0-9;]*(3[0-7]|4[0-7])(;[0-9;]*)?m")


def terminals():
    """The sizes of all, and who is at them: who has not heard of a new size?"""
    return subprocess.run("for tty in /dev/pts/[0-9]*; do echo $tty $(stty -F $tty size) $(ps -o args= -t $tty); done",
                          shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=PATIENCE).stdout


class Screen:
    """A terminal of its own, with one command in it, and then `rc=` and its status."""

    made = 0

    def __init__(self, case, command, width=80, height=24, **env):
        Screen.made += 1
        self.socket = case.path(f"tmux{Screen.made}")
        settings = {"LC_ALL": "C.UTF-8", "NO_COLOR": "", **env}
        words = shlex.join(["env", *(f"{key}={value}" for key, value in settings.items()), *command])
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height),
                  f"{words}; echo rc=$?; stty -a | tr ';' '\\n' | grep -c -- '-echo \\|-icanon'; "
                  "exec sleep 1000")
        case.addCleanup(self.end)

    def end(self):
        """What runs in it does not outlive it: under a leak checker a process whose terminal goes away hangs."""
        panes = subprocess.run([TMUX, "-S", self.socket, "list-panes", "-a", "-F", "#{pane_pid}"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for pid in panes.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(pid), signal.SIGKILL)
        subprocess.run([TMUX, "-S", self.socket, "kill-server"], stderr=subprocess.DEVNULL)

    def tmux(self, *args):
        done = subprocess.run([TMUX, "-S", self.socket, *args], capture_output=True, check=False,
                              text=True, timeout=PATIENCE)
        if done.returncode != 0:
            raise AssertionError(f"tmux {args}: {done.stderr}")
        return done.stdout

    @property
    def text(self):
        return self.tmux("capture-pane", "-p")

    @property
    def coloured(self):
        return self.tmux("capture-pane", "-p", "-e")

    @property
    def lines(self):
        return self.text.split("\n")[:-1]

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def size(self, width, height):
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    def wait(self, pattern, without=None):
        """Until the screen has it, and not the other; the whole of it then.

        A screen may be seen half drawn, with rows of the one before: whatever is wanted of it is
        waited for in one call."""
        seen = []

        def has():
            seen[:] = [self.text]
            return re.search(pattern, seen[0], re.M) and not (without and re.search(without, seen[0], re.M))

        try:
            wait_until(has, pattern)
        except AssertionError as error:
            size = self.tmux("list-panes", "-F", "#{pane_width}x#{pane_height} #{pane_tty}")
            raise AssertionError(f"{error}\n{size}{seen[0]}\n{terminals()}") from None
        return seen[0]


class ScreenCase(TopCase):
    def screen(self, *args, **options):
        return Screen(self, [dltest.DLCTL, "top", "--interval", "0.2", "--socket", self.server.socket,
                             *args], **options)


@unittest.skipIf(MISSING, f"no {MISSING}")
class Shown(ScreenCase):
    def test_80_by_24(self):
        screen = self.screen()
        text = screen.wait(r"^images +2 +[0-9.]+ [KM]iB (.|\n)*loader-bound(.|\n)*\nq quit +sort by: .* e errors\n")
        lines = text.split("\n")
        self.assertRegex(lines[0], r"^dloaderd \S+ running, up [^,]+, 3 sessions, .*, by name$")
        self.assertRegex(lines[1], r"^NAME +WORKERS +MEMORY .* SAMPLES/S .* ERRORS$")
        self.assertRegex(text, r"\n  loader-bound: trainers waited")
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertRegex(screen.coloured, COLOUR)

    def test_every_size(self):
        screen = self.screen()
        screen.wait(r"^images +2")
        for width, height, want in [(132, 43, r"^NAME .* DELIVERED/S .* ERRORS"), (40, 10, r"^NAME +SAMPLES/S"),
                                    (20, 4, r"^NAME +SAMPLES/S$"), (5, 2, r"^\(. mo"),
                                    (80, 24, r"^q quit .* e errors$")]:
            screen.size(width, height)
            screen.wait(want)
            # Nothing is left of the size before.
            wait_until(lambda: all(re.match(r"$|dloa|NAME|images|  |q |\(", line) for line in screen.lines),
                       "a screen without remains")
            lines = screen.lines
            self.assertLessEqual(len(lines), height)
            self.assertLessEqual(max(map(len, lines)), width)
        self.assertEqual((screen.text.count("NAME"), screen.text.count("images")), (1, 1))

    def test_more_than_fits(self):
        """First the verdicts go; rows that have no room are counted."""
        for n in range(12):
            self.client(self.server).open(named(f"other{n:02}", dataset={"kind": "range", "length": n + 1}))
        screen = self.screen(height=24)
        screen.wait(r"^  loader-bound(.|\n)*^other11 ")
        screen.size(80, 16)
        screen.wait(r"^images (.|\n)*^other11 ", without="loader-bound")
        screen.size(80, 8)
        screen.wait(r"^other02 (.|\n)*^\(9 more\)\nq quit", without="other03")

    def test_without_colours(self):
        screen = self.screen(NO_COLOR="1")
        screen.wait(r"loader-bound")
        self.assertNotRegex(screen.coloured, COLOUR)
        self.assertIn("\x1b[", screen.coloured)  # bold and turned round they still are


@unittest.skipIf(MISSING, f"no {MISSING}")
class Keys(ScreenCase):
    def test_order(self):
        self.train("text", 1)
        screen = self.screen()
        screen.wait(r"by name$(.|\n)*\nimages +2(.|\n)*\ntext +2")
        screen.keys("n")
        screen.wait(r"by name, reversed(.|\n)*\ntext +2(.|\n)*\nimages +2")
        for key, name in (("s", "samples/s"), ("w", "wait"), ("m", "memory"), ("e", "errors"), ("c", "CPU"),
                          ("n", "name")):
            screen.keys(key)
            screen.wait(f"by {name}$")

    def test_end(self):
        """The terminal is as it was: echo is on, lines are whole, and what stood there is back."""
        for name, rc, end in (("q", 0, lambda s: s.keys("q")), ("Ctrl-C", 0, lambda s: s.keys("C-c")),
                              ("SIGTERM", 143, lambda s: os.kill(self.top_pid(s), signal.SIGTERM))):
            with self.subTest(name):
                screen = self.screen()
                screen.wait(r"^images +2")
                end(screen)
                screen.wait(rf"^rc={rc}\n0$", without="images")

    def test_end_by_itself(self):
        screen = self.screen("--count", "3", COLUMNS="300", LINES="99")  # which are not its size
        screen.wait(r"^rc=0\n0$")

    @unittest.skipUnless(shutil.which("bash"), "no bash")
    def test_suspended(self):
        """Ctrl-Z leaves the terminal as it was; with `fg` it comes again, at the size that is now."""
        screen = Screen(self, ["bash", "--norc", "-i"], PS1="ready> ", TERM="xterm")
        screen.wait("^ready> *$")
        screen.keys(shlex.join([dltest.DLCTL, "top", "--socket", self.server.socket]), "Enter")
        screen.wait(r"^images +2")
        screen.keys("C-z")
        screen.wait(r"^ready> *$", without="images")
        screen.size(132, 43)
        screen.keys("fg", "Enter")
        screen.wait(r"^NAME .* DELIVERED/S .* ERRORS")
        screen.keys("q")
        screen.wait(r"^ready> *$")
        screen.keys("echo status=$?", "Enter")
        screen.wait(r"^status=0$")

    def top_pid(self, screen):
        shell = int(screen.tmux("display-message", "-p", "#{pane_pid}"))
        return dltest.children_of(shell)[0]


@unittest.skipIf(MISSING, f"no {MISSING}")
class Away(TestCase):
    def start(self):
        daemon = dltest.Daemon(self.dir)
        self.addCleanup(lambda: daemon.process.poll() is None and daemon.kill())
        screen = Screen(self, [dltest.DLCTL, "top", "--interval", "0.2", "--socket", daemon.socket])
        screen.wait("no loader is open")
        return daemon, screen

    def test_killed(self):
        daemon, screen = self.start()
        daemon.kill()
        screen.wait("^trying again: .*socket")
        self.assertIn("away", screen.lines[0])
        other = self.daemon()
        client = self.client(other)
        client.open(dltest.named("afterwards"))
        screen.wait(r"^afterwards ", without="trying again")
        screen.keys("q")
        screen.wait(r"^rc=0")

    @slow
    def test_standing_still(self):
        """It is said how long it has not answered; keys are heard meanwhile."""
        daemon, screen = self.start()
        daemon.process.send_signal(signal.SIGSTOP)
        self.addCleanup(lambda: daemon.process.send_signal(signal.SIGCONT))
        screen.wait(r"^the daemon has not answered for \d+ s")
        screen.keys("n")
        screen.wait("by name, reversed$")
        daemon.process.send_signal(signal.SIGCONT)
        wait_until(lambda: "has not answered" not in screen.text, "an answer")
        daemon.process.send_signal(signal.SIGSTOP)
        screen.keys("q")
        screen.wait(r"^rc=0")
        daemon.process.send_signal(signal.SIGCONT)

    def test_none_from_the_beginning(self):
        screen = Screen(self, [dltest.DLCTL, "top", "--socket", self.path("nothing")])
        self.assertIn("dlctl: ", screen.wait(r"^rc=1"))


@unittest.skipIf(MISSING, f"no {MISSING}")
@unittest.skipUnless(SSH and SSHD, "no ssh or sshd: apt-get install openssh-client openssh-server")
class OverSsh(ScreenCase):
    """A server of this test's own, with keys of its own, that serves one connection: no port."""

    def setUp(self):
        shell = pwd.getpwuid(os.geteuid()).pw_shell
        if shell.rpartition("/")[2] in ("nologin", "false"):
            self.skipTest(f"nobody can log in as this user: its shell is {shell}")
        # Root's wants a directory that is made at boot where it is a service; here nobody else sees it.
        self.before = ""
        if os.geteuid() == 0 and not os.path.isdir("/run/sshd"):
            self.before = "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && "
            if subprocess.run(["unshare", "-m", "sh", "-c", self.before + "true"], capture_output=True,
                              check=False, timeout=PATIENCE).returncode:
                self.skipTest("root's sshd needs /run/sshd, and no namespace can be had to make it in")
        super().setUp()
        os.chmod(self.dir, 0o700)
        for name in "host", "user":
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)], check=True,
                           stdin=subprocess.DEVNULL, timeout=PATIENCE)
        shutil.copy(self.path("user.pub"), self.path("authorized"))
        with open(self.path("host.pub")) as file, open(self.path("known"), "w") as known:
            known.write("loopback " + file.read())
        self.write("sshd.conf", HostKey=self.path("host"), AuthorizedKeysFile=self.path("authorized"),
                   StrictModes="no", UsePAM="no", PasswordAuthentication="no", PermitRootLogin="yes",
                   PidFile="none", PrintMotd="no", PrintLastLog="no")
        self.write("ssh.conf", IdentityFile=self.path("user"), IdentitiesOnly="yes", IdentityAgent="none",
                   UserKnownHostsFile=self.path("known"), HostKeyAlias="loopback",
                   StrictHostKeyChecking="yes", PasswordAuthentication="no",
                   ProxyCommand=("unshare -m " if self.before else "") + self.path("serve"))
        with open(self.path("serve"), "w") as file:
            file.write(f"#!/bin/sh\n{self.before}exec {SSHD} -i -f {self.path('sshd.conf')} -E "
                       f"{self.path('sshd.log')}\n")
        os.chmod(self.path("serve"), 0o700)

    def write(self, name, **settings):
        with open(self.path(name), "w") as file:
            file.writelines(f"{key} {value}\n" for key, value in settings.items())

    def test_resize_and_end(self):
        words = [dltest.DLCTL, "top", "--interval", "0.2", "--socket", self.server.socket]
        remote = "env LC_ALL=C.UTF-8 ASAN_OPTIONS=$HERE " + shlex.join(words)
        remote = remote.replace("$HERE", shlex.quote(os.environ.get("ASAN_OPTIONS", "")))
        screen = Screen(self, [SSH, "-t", "-F", self.path("ssh.conf"), "loopback", remote])
        screen.wait(r"^images +2 ")
        screen.size(40, 10)
        screen.wait(r"^NAME +SAMPLES/S")
        screen.size(132, 43)
        screen.wait(r"^NAME .* DELIVERED/S .* ERRORS")
        screen.keys("n")
        screen.wait("by name, reversed$")
        screen.keys("q")
        screen.wait(r"^rc=0")
