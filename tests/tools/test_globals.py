"""What the programs and the library keep outside of any object: nothing but what is listed here.

Environment: DLOADERD, DLOADER_WORKER, DLCTL, DLCLIENT, DLCLIENT_LOCAL: what the build made. Constant
tables are no globals: they lie in sections that are read-only once the program runs.
"""

import os
import re
import shutil
import subprocess
import unittest

OBJDUMP = shutil.which("objdump")
SECTIONS = re.compile(r"\.(?:data|bss|tdata|tbss)$")

# glob() gives its error function no argument; a signal's handler has no other way to its data, and
# only the worker installs it. Of libhdf5, libsndfile and libtiff, what is loaded at first use, and its table of
# functions, which it takes as not constant. Whether the processor has AVX2: it is slow to answer. Why this process
# reads no files behind URLs, in words: for the error of who opens one.
DATA = {"globs_context", "guard_before", "guard_installed", "hdf5_library", "io", "remote_before", "remote_installed",
        "remote_none", "sndfile_library", "tiff_library", "vectors_known"}
ALLOWED = {
    # Of the calling thread: what dl_set_interrupt() sets.
    "DLCLIENT": {"io_interrupt"},
    "DLCLIENT_LOCAL": DATA,
    # What is logged: from the configuration, set once; and how much of it is about whom. What it
    # dies of: for a signal's handler. Of curl, where it is found at run time, its table of functions.
    "DLOADERD": {"max_level", "log_lines", "log_users", "blame_state", "blame_now", "curl_library"},
    # What a forked copy leaves: the handlers of fork() have no argument.
    "DLOADER_WORKER": DATA | {"forked_copy", "forked_leave", "forked_owner", "forked_registered"},
    # The path that plug-ins may lie below; never written. The terminal as it was, for a signal's handler.
    "DLCTL": DATA | {"root_dir", "offline_everywhere", "terminal_before"},
}
# Of compilers and linkers, and of sanitizers.
FOREIGN = re.compile(r"_|\.|DW\.|completed\.0$|data_start$|.*@")


def listed(path, table):
    """Of each symbol in `table`, objdump's option: what stands behind address and flags."""
    done = subprocess.run([OBJDUMP, table, path], check=True, text=True, stdout=subprocess.PIPE)
    return [line[17:].split() for line in done.stdout.splitlines()]


def copied(path):
    """The names of libraries' variables that the program has a copy of, as of stderr: those have a version."""
    return {fields[-1] for fields in listed(path, "-T") if len(fields) >= 4 and SECTIONS.match(fields[-4])}


def mutable(path):
    """The names of the variables in sections that stay writable."""
    found = {fields[-1] for fields in listed(path, "-t")
             if len(fields) >= 3 and SECTIONS.match(fields[-3]) and int(fields[-2], 16) > 0}
    # One of a function has a number behind it, which the compiler chooses.
    return {re.sub(r"\.\d+$", "", name) for name in found - copied(path) if not FOREIGN.match(name)}


@unittest.skipUnless(OBJDUMP, "objdump is not installed")
class Globals(unittest.TestCase):
    def test_there_are_none_but_those_listed(self):
        for program, allowed in ALLOWED.items():
            with self.subTest(program=program):
                self.assertLessEqual(mutable(os.environ[program]), allowed)

    def test_they_are_found(self):
        self.assertIn("io_interrupt", mutable(os.environ["DLCLIENT"]))
        self.assertIn("max_level", mutable(os.environ["DLOADERD"]))
