"""What the shells offer for the command lines of dlctl and dloaderd.

Environment: COMPLETIONS: the folder that the build made the files in, besides what dltest needs.
"""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess

import dltest

FOLDER = pathlib.Path(os.environ["COMPLETIONS"])
COMMON = ["--help", "--json", "--socket"]

# No limit of time: what is slow here is the machine.
ASK = """
source "$1/$2"
timeout() { shift; "$@"; }
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"_$1"
((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}"
"""


def said(program, *words):
    done = subprocess.run([program, *words, "--help"], check=True, text=True, timeout=dltest.PATIENCE,
                          stdout=subprocess.PIPE)
    return done.stdout


class Bash(dltest.TestCase):
    def offered(self, *words, program="dlctl"):
        path = f"{self.programs()}:{os.environ['PATH']}"
        done = subprocess.run(["bash", "-c", ASK, "ask", FOLDER, program, *words], text=True,
                              capture_output=True, timeout=dltest.PATIENCE, check=False, cwd=self.dir,
                              env={**os.environ, "PATH": path})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return sorted(done.stdout.splitlines())

    def programs(self):
        """A folder with the programs by their names."""
        folder = pathlib.Path(self.dir, "bin")
        if not folder.exists():
            folder.mkdir()
            for name, path in [("dlctl", dltest.DLCTL), ("dloaderd", dltest.DLOADERD)]:
                (folder / name).symlink_to(os.path.abspath(path))
        return folder

    def files(self, *names):
        for name in names:
            path = pathlib.Path(self.dir, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text("", encoding="utf-8")

    def test_all_verbs_are_offered(self):
        verbs = re.findall(r"^  ([a-z][\w-]*) ", said(dltest.DLCTL), re.MULTILINE)
        self.assertIn("status", verbs)
        self.assertEqual(self.offered(""), sorted([*verbs, "--help", "--version"]))

    def test_verbs_by_their_beginning(self):
        self.assertEqual(self.offered("re"), ["ready", "reload", "remote", "replay", "report", "resize"])
        self.assertEqual(self.offered("--v"), ["--version"])
        self.assertEqual(self.offered("no-such"), [])

    def test_help_takes_a_verb(self):
        self.assertEqual(self.offered("help", "re"), ["ready", "reload", "remote", "replay", "report", "resize"])

    def test_options_are_those_of_the_verb(self):
        for verb in ("plan", "run", "peek", "trace", "status"):
            told = re.findall(r"^  (--[\w-]+)", said(dltest.DLCTL, verb), re.MULTILINE)
            with self.subTest(verb):
                self.assertEqual([word for word in self.offered(verb, "-") if word[1] == "-"],
                                 sorted(told))
        self.assertEqual(self.offered("metrics", "--"), COMMON)

    def test_a_short_option_is_offered_and_takes_the_same(self):
        self.files("trace.json")
        self.assertIn("-o", self.offered("trace", "-"))
        self.assertEqual(self.offered("trace", "-o", "tr"), ["trace.json"])

    def test_words_that_a_value_may_be(self):
        self.assertEqual(self.offered("run", "--world", ""), ["cluster"])
        self.assertEqual(self.offered("run", "--rank", "a"), ["all"])
        self.assertEqual(self.offered("peek", "--rank", ""), [])

    def test_a_value_behind_an_equals_sign(self):
        self.assertEqual(self.offered("run", "--rank", "=", ""), ["all"])
        self.assertEqual(self.offered("run", "--rank", "="), ["all"])

    def test_specs_are_files_in_yaml(self):
        self.files("a.yaml", "a.yml", "a.txt", "deep/b.yaml")
        self.assertEqual(self.offered("check", ""), ["a.yaml", "a.yml", "bin", "deep"])
        self.assertEqual(self.offered("check", "deep/"), ["deep/b.yaml"])

    def test_other_files_are_any(self):
        self.files("a.yaml", "a.state")
        self.assertEqual(self.offered("state", "a"), ["a.state", "a.yaml"])
        self.assertEqual(self.offered("run", "--save-state", "a"), ["a.state", "a.yaml"])

    def test_names_with_blanks_are_one_word(self):
        self.files("my own spec.yaml")
        for start in ("my\\ own", "'my own", '"my own'):
            with self.subTest(start):
                self.assertEqual(self.offered("check", start), ["my own spec.yaml"])

    def test_loaders_are_those_of_the_daemon(self):
        daemon = self.daemon()
        with daemon.client() as client:
            for name in ("words", "images/train"):
                client.open(dltest.named(name))
            at = ("--socket", daemon.socket)
            self.files("words.yaml")
            self.assertEqual(self.offered("times", *at, ""), ["images/train", "words"])
            self.assertEqual(self.offered("times", *at, "im"), ["images/train"])
            # As bash hands --socket=PATH over.
            self.assertEqual(self.offered("times", "--socket", "=", daemon.socket, "im"), ["images/train"])
            self.assertEqual(self.offered("run", *at, "wo"), ["words", "words.yaml"])

    def test_without_a_daemon_nothing_is_said(self):
        self.assertEqual(self.offered("times", "--socket", self.path("none"), ""), [])

    def test_the_daemons_options(self):
        self.files("d.conf")
        self.assertEqual(self.offered("--log-level", "", program="dloaderd"),
                         ["debug", "error", "info", "warning"])
        self.assertEqual(self.offered("--config", "d", program="dloaderd"), ["d.conf"])
        self.assertIn("--private", self.offered("-", program="dloaderd"))
        self.assertEqual(self.offered("", program="dloaderd"), [])

    def test_a_completed_name_is_quoted_for_the_shell(self):
        self.files("my own $spec.yaml")
        script = (f"source {FOLDER}/dlctl; PS1=; dlctl() {{ printf '<%s>\\n' \"$@\" done; }}\n"
                  "dlctl check my\t\n")
        master, slave = pty.openpty()
        with subprocess.Popen(["bash", "--norc", "--noprofile", "-i"], stdin=slave, stdout=slave,
                              stderr=slave, cwd=self.dir, start_new_session=True,
                              env={**os.environ, "TERM": "dumb", "HISTFILE": ""}) as shell:
            os.close(slave)
            os.write(master, script.encode())
            # It ends when all was read: what a terminal has yet to show may be lost with its last user.
            out = b""
            while b"<done>" not in out and select.select([master], [], [], dltest.PATIENCE)[0]:
                out += os.read(master, 4096)
            os.write(master, b"exit\n")
            shell.wait(dltest.PATIENCE)
        os.close(master)
        self.assertIn("<check>\r\n<my own $spec.yaml>\r\n<done>", out.decode())


class OtherShells(dltest.TestCase):
    def test_zsh_reads_them(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        for name in ("_dlctl", "_dloaderd"):
            subprocess.run(["zsh", "-n", FOLDER / name], check=True, timeout=dltest.PATIENCE)

    def test_fish_offers_verbs_options_and_values(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")
        for line, wanted in [("dlctl rel", {"reload"}), ("dlctl run --cr", {"--credits"}),
                             ("dlctl run --world ", {"cluster"}),
                             ("dloaderd --log-level d", {"debug"})]:
            with self.subTest(line):
                name = line.split()[0]
                done = subprocess.run(
                    ["fish", "--no-config", "-c", 'source $argv[1]; complete -C $argv[2]',
                     FOLDER / f"{name}.fish", line], text=True, stdout=subprocess.PIPE, timeout=dltest.PATIENCE,
                    check=True, env={**os.environ, "HOME": self.dir})
                self.assertEqual({one.split("\t")[0] for one in done.stdout.splitlines()}, wanted)
