"""`pip install ./client/python`, without the network: what is installed is complete and works from
where it lies, nothing is left in the source, and uninstalling takes all of it away.

Environment: SOURCE: the project's root; CC: a compiler. Skips, in words, what this machine's Python
lacks: python3-venv and python3-mesonpy on Debian.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("SOURCE", pathlib.Path(__file__).parents[2])).resolve()
PACKAGE = SOURCE / "client/python"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")[1:] if sysconfig.get_config_var("Py_GIL_DISABLED") else "abi3.so"
PATIENCE = 240

# A stranger's surroundings, in which no build tree can help.
OURS = ("DLOADER", "DLCTL", "PYTHON", "PIP_", "LD_", "ASAN_", "UBSAN_", "VIRTUAL_ENV", "MALLOC_")
STRANGER = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}

SPEC = {"name": "hundred", "dataset": {"kind": "range", "length": 100},
        "sampler": {"kind": "sequential"}, "batch": {"size": 10}}

# An epoch of Python's own, from the package's own daemon.
EPOCH = """
import json, sys
import dloaderd
with dloaderd.Loader(json.loads(sys.argv[1]), as_="numpy") as loader:
    print(sum(len(next(iter(batch.values())) if isinstance(batch, dict) else batch)
              for batch in loader))
"""

TRAINER = r"""
#include <dlclient.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct dl_client *client;
    struct dl_loader *loader;
    struct dl_epoch *epoch;
    struct dl_batch *batch;
    int n = 0;

    if (dl_client_connect_local(&client) < 0 ||
        dl_loader_open_file(client, argv[1], &loader) < 0 ||
        dl_epoch_start(loader, NULL, &epoch) < 0) {
        printf("%s\n", dl_client_error(client));
        return 1;
    }
    while (dl_epoch_next(epoch, -1, &batch) == 0)
        n++;
    printf("%d batches\n", n);
    dl_client_close(client);
    return 0;
}
"""

PLUGIN = """
#include <dloader-plugin.h>

int of_nobody(void)
{
    return sizeof(struct dl_plugin) > 0;
}
"""

PYTHON_EPOCH = """
from dloaderd import DataLoader
print([int(x) for batch in DataLoader(range(8), batch_size=3, num_workers=2) for x in batch])
"""


def run(*args, **options):
    return subprocess.run([str(arg) for arg in args], stdout=subprocess.PIPE, text=True,
                          **{"stderr": subprocess.STDOUT, "timeout": PATIENCE, "env": STRANGER,
                             "cwd": "/", **options})


def source_tree():
    return {path for path in PACKAGE.rglob("*") if "__pycache__" not in path.parts}


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for module in ("mesonpy", "ensurepip", "pip"):
            if importlib.util.find_spec(module) is None:
                raise unittest.SkipTest(f"{sys.executable} has no {module} to install with")
        if shutil.which("meson") is None:
            raise unittest.SkipTest("there is no meson to build with")
        folder = tempfile.TemporaryDirectory(prefix="dloader-install-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.venv = cls.folder / "venv"
        made = run(sys.executable, "-m", "venv", "--system-site-packages", cls.venv)
        if made.returncode:
            raise unittest.SkipTest(f"no virtual environment can be made here: {made.stdout}")
        cls.python = cls.venv / "bin/python"
        before = source_tree()
        # Quick to build; otherwise as a user would.
        cls.installed = run(cls.python, "-m", "pip", "install", "--no-index",
                            "--no-build-isolation", "--no-deps",
                            "--config-settings=setup-args=-Doptimization=0", PACKAGE)
        if cls.installed.returncode:
            raise AssertionError(cls.installed.stdout)
        cls.left_behind = source_tree() - before
        cls.site = next(cls.venv.glob("lib/python3.*/site-packages"))

    def run_python(self, code, *args, **options):
        done = run(self.python, "-c", code, *args, **options)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.strip()

    def spec(self, **more):
        path = self.folder / "spec.yaml"
        path.write_text(json.dumps({**SPEC, **more}), encoding="utf-8")
        return path

    def test_the_package_is_complete(self):
        files = {path.relative_to(self.site / "dloaderd").as_posix()
                 for path in (self.site / "dloaderd").rglob("*") if path.is_file()}
        # The build's list of Python files is that of the source folder.
        wanted = {path.name for path in (PACKAGE / "dloaderd").iterdir()
                  if path.suffix == ".py" or path.name == "py.typed"}
        wanted |= {f"_client.{SUFFIX}", f"_worker.{SUFFIX}", "dlclient-local.module", "bin/dloaderd",
                   "bin/dloader-worker", "bin/dlctl", "libdlclient.so.0", "include/dlclient.h",
                   "include/dloader-plugin.h", "pkgconfig/dlclient.pc",
                   "pkgconfig/dloader-plugin.pc"}
        got = {file for file in files if "__pycache__" not in file}
        self.assertEqual(got, wanted)

    def test_the_wheel_is_for_the_stable_abi(self):
        wheel = next(self.site.glob("dloaderd-*.dist-info/WHEEL")).read_text(encoding="utf-8")
        version = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        tag = f"{version}-{'abi3' if SUFFIX == 'abi3.so' else version + 't'}-linux_"
        self.assertIn(f"Tag: {tag}", wheel)

    def test_nothing_is_left_in_the_source(self):
        self.assertEqual(self.left_behind, set())

    def test_it_is_imported_from_anywhere(self):
        code = "import dloaderd, dloaderd._client, dloaderd._worker; print(dloaderd.__file__)"
        self.assertEqual(self.run_python(code), str(self.site / "dloaderd/__init__.py"))

    def test_the_commands_are_the_packages_own(self):
        version = self.run_python("import importlib.metadata as m; print(m.version('dloaderd'))")
        self.assertEqual(self.run_python("import dloaderd; print(dloaderd.__version__)"), version)
        for name in ("dlctl", "dloaderd"):
            done = run(self.venv / "bin" / name, "--version")
            self.assertEqual((done.returncode, done.stdout), (0, f"{name} {version}\n"))

    def test_no_program_needs_the_build_tree(self):
        for file in [*(self.site / "dloaderd").glob("*.so"), *(self.site / "dloaderd/bin").iterdir(),
                     self.site / "dloaderd/dlclient-local.module"]:
            done = run("ldd", file)
            self.assertNotIn("not found", done.stdout, file)
            self.assertNotIn("libdlclient", done.stdout, file)

    def build(self, name, text, package, *options):
        """The C program or library `text`, with the flags that pkg-config has for `package`."""
        if shutil.which("pkg-config") is None:
            self.skipTest("there is no pkg-config to find the flags by")
        flags = run("pkg-config", "--cflags", "--libs", package,
                    env={**STRANGER, "PKG_CONFIG_PATH": str(self.site / "dloaderd/pkgconfig")})
        self.assertEqual(flags.returncode, 0, flags.stdout)
        source = self.folder / (name + ".c")
        source.write_text(text, encoding="utf-8")
        done = run(*os.environ.get("CC", "cc").split(), source, *options, *flags.stdout.split(),
                   "-o", self.folder / name)
        self.assertEqual(done.returncode, 0, done.stdout)
        return self.folder / name

    def test_a_trainer_in_c_is_built_with_it(self):
        program = self.build("trainer", TRAINER, "dlclient")
        done = run(program, self.spec(workers={"count": 0}))
        self.assertEqual((done.returncode, done.stdout), (0, "10 batches\n"))

    def test_a_plugin_is_built_with_it(self):
        self.build("plugin.so", PLUGIN, "dloader-plugin", "-shared", "-fPIC")

    def samples_by_way_of_the_daemon(self, spec):
        """What `dlctl run` says, with the package's own daemon."""
        socket = self.folder / "socket"
        with open(self.folder / "log", "w+", encoding="utf-8") as log:
            daemon = subprocess.Popen([self.venv / "bin/dloaderd", "--private", "--socket", socket],
                                      stdout=log, stderr=log, env=STRANGER)
            try:
                run(self.python, "-c", "import os, sys, time\n"
                    "while not os.path.exists(sys.argv[1]): time.sleep(0.01)", socket)
                done = run(self.venv / "bin/dlctl", "run", spec, "--socket", socket, "--json")
            finally:
                daemon.terminate()
                daemon.wait(PATIENCE)
            log.seek(0)
            self.assertEqual(done.returncode, 0, done.stdout + log.read())
        return json.loads(done.stdout)["samples"]

    def test_its_daemon_finds_its_worker(self):
        self.assertEqual(self.samples_by_way_of_the_daemon(self.spec()), 100)

    def test_loading_in_the_own_process_finds_its_module(self):
        spec = self.spec(workers={"count": 0})
        self.assertEqual(self.samples_by_way_of_the_daemon(spec), 100)

    def test_a_native_epoch(self):
        self.assertEqual(self.run_python(EPOCH, json.dumps(SPEC)), "100")

    def test_an_epoch_of_a_python_dataset(self):
        """Daemon, interpreter and workers: all of it is found from where the package lies."""
        if importlib.util.find_spec("torch") is None:
            self.skipTest(f"{sys.executable} has no torch")
        self.assertEqual(self.run_python(PYTHON_EPOCH), "[0, 1, 2, 3, 4, 5, 6, 7]")

    def test_zz_uninstalling_takes_all_of_it_away(self):
        """The last one, by its name."""
        done = run(self.python, "-m", "pip", "uninstall", "--yes", "dloaderd")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([str(path) for path in self.venv.rglob("*") if "dloaderd" in path.name
                          or path.name == "dlctl"], [])


class Backend(unittest.TestCase):
    def test_a_source_distribution_is_refused_in_words(self):
        if importlib.util.find_spec("mesonpy") is None:
            self.skipTest(f"{sys.executable} has no mesonpy")
        done = run(sys.executable, "-c", "import build_backend; build_backend.build_sdist('.')",
                   cwd=PACKAGE, env={**STRANGER, "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("pip install ./client/python", done.stdout)

    def refusal(self, pretence):
        """What the first question that pip asks is answered by, under another Python."""
        if importlib.util.find_spec("mesonpy") is None:
            self.skipTest(f"{sys.executable} has no mesonpy")
        done = run(sys.executable, "-c", f"import build_backend, sys, sysconfig; {pretence}; "
                   "build_backend.get_requires_for_build_wheel()",
                   cwd=PACKAGE, env={**STRANGER, "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual(done.returncode, 1)
        return done.stdout

    def test_an_older_python_is_refused_before_anything_is_built(self):
        told = self.refusal("sys.version_info = (3, 10, 13)")
        self.assertIn("needs CPython 3.11 or later", told)
        self.assertIn("is Python 3.10.13", told)

    def test_an_older_free_threaded_python_is_refused_in_words(self):
        told = self.refusal("sysconfig.get_config_var = {'Py_GIL_DISABLED': 1}.get; "
                            "sys.version_info = (3, 13, 5)")
        self.assertIn("free-threaded Python 3.13.5: of these dloaderd needs 3.14", told)
