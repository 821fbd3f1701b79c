"""The wheel of `./dev wheel`: what is in it, and what a stranger has of it.

    test_wheel.py WHEEL [BASE.CLASS…]

Environment: DLCTL: a dlctl of this machine's own build, whose digests count. CHROOTS: a folder for
bare Debian systems, which are made if they are not there; without it they are left out. TORCH: a
Python with a PyTorch, for the systems that have a Python of that version. PILLOW: a folder to import
the Pillow of the wheel's processor from, where that is not this machine's.
"""

import gzip
import io
import json
import os
import pathlib
import platform
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

import bare
import debian_packages  # bare.py has its folder
import kinds

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "lib"))

import media  # noqa: E402

WHEEL = pathlib.Path()  # set by the command line
MACHINE = platform.machine()  # the processor that it is for
MOST_BYTES = 8 * 1024 * 1024
NEWEST_GLIBC = (2, 28)
# glibc's own; everything else has to be in the wheel.
SYSTEM = {"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1",
          "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
PACKAGES = ("python3", "python3-numpy", "python3-pip", "python3-venv")

SPECS = {
    "rows": "dataset: {kind: npy, paths: {x: rows.npy}}\nsampler: {kind: random}\n"
            "batch: {size: 64}\nseed: 42\nworkers: {count: 2}\n",
    "digits": "dataset: {kind: idx, paths: {x: digits.gz}}\nsampler: {kind: random, order: native}\n"
              "batch: {size: 7}\nseed: 1\n",
    "pictures": "dataset: {kind: imagefolder, paths: pictures, size: 24, transform: random_crop, "
                "flip: 0.5, layout: chw}\nsampler: {kind: random}\nbatch: {size: 4}\nseed: 3\n",
    "shards": "dataset: {kind: tar, paths: [a.tar, b.tar], size: 16}\n"
              "batch: {size: 5}\nseed: 7\n",
    "text": "dataset: {kind: text, paths: [lines.txt], tokenizer: bytes}\ncollate: {kind: pad}\n"
            "batch: {tokens: 200}\nseed: 5\n",
}


def make_data(folder):
    """Specs of many kinds and their files."""
    rows = bytes(i * 7 % 251 for i in range(1000 * 16))
    header = repr({"descr": "|u1", "fortran_order": False, "shape": (1000, 16)}).ljust(117) + "\n"
    (folder / "rows.npy").write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", 118) + header.encode() + rows)
    digits = struct.pack(">HBBIII", 0, 8, 3, 100, 4, 4) + rows[:1600]
    (folder / "digits.gz").write_bytes(gzip.compress(digits, mtime=0))
    media.pictures(folder / "pictures", 30)
    photographs(folder / "pictures/class0")
    for i, name in enumerate(("a.tar", "b.tar")):
        media.shard(folder / name, 20 * i, 20)
    (folder / "lines.txt").write_text("\n".join(filter(None, media.words("lines", 100))), encoding="utf-8")
    for name, text in SPECS.items():
        (folder / f"{name}.yaml").write_text(text, encoding="ascii")


def photographs(folder):
    """JPEG, where PIL is there to write it: gradients, of several sizes and ways of storing colour."""
    try:
        from PIL import Image
    except ImportError:
        return
    for i in range(6):
        wide, high = 40 + 9 * i, 61 - 5 * i
        image = Image.frombytes("RGB", (wide, high), bytes(
            (x * 3 + y * 5 + i * 11 + c * 40) % 256 for y in range(high) for x in range(wide)
            for c in range(3)))
        image.save(folder / f"photo{i}.jpg", quality=60 + 6 * i, subsampling=i % 3,
                   progressive=i % 2 == 1)


def torch_for(version):
    """The folder to import $TORCH's PyTorch from, where that Python is of this version ("3.11")."""
    if not os.environ.get("TORCH"):
        return None
    told = subprocess.run([os.environ["TORCH"], "-c", "import sys, torch; print("
                           "'%d.%d' % sys.version_info[:2], torch.__path__[0])"],
                          stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return pathlib.Path(told[1]).parent if told[0] == version else None


class Contents(unittest.TestCase):
    """Nothing is installed: what the file says of itself."""

    @classmethod
    def setUpClass(cls):
        cls.zip = zipfile.ZipFile(WHEEL)
        cls.addClassCleanup(cls.zip.close)

    def programs(self):
        for name in self.zip.namelist():
            if self.zip.read(name)[:4] == b"\x7fELF":
                yield name

    def read_elf(self, name, *options):
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.zip.read(name))
            file.flush()
            return subprocess.run(["readelf", "-W", *options, file.name], stdout=subprocess.PIPE,
                                  text=True, check=True).stdout

    def test_its_size(self):
        self.assertLessEqual(WHEEL.stat().st_size, MOST_BYTES)

    def test_its_tags(self):
        self.assertRegex(WHEEL.name, r"^dloaderd-[\d.]+-cp311-abi3-manylinux_2_28_(x86_64|aarch64)\.whl$")

    def test_no_file_is_where_another_project_has_one(self):
        """PyPI's dloader, a package and a module of that name, can be there, too."""
        version = WHEEL.name.split("-")[1]
        self.assertEqual({name.partition("/")[0] for name in self.zip.namelist()},
                         {"dloaderd", f"dloaderd-{version}.dist-info"})
        commands = self.zip.read(f"dloaderd-{version}.dist-info/entry_points.txt").decode()
        self.assertEqual(sorted(re.findall(r"^(\w+) *=", commands, re.MULTILINE)), ["dlctl", "dloaderd"])

    def test_its_programs_need_glibc_alone(self):
        programs = set(self.programs())
        self.assertEqual({pathlib.PurePath(name).name for name in programs},
                         {"dloaderd", "dloader-worker", "dlctl", "_client.abi3.so", "_worker.abi3.so",
                          "dlclient-local.module", "libdlclient.so.0"})
        for name in programs:
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", self.read_elf(name, "--dynamic"))
            self.assertEqual(set(needed) - SYSTEM, set(), name)

    def test_its_programs_need_no_newer_glibc(self):
        for name in self.programs():
            versions = re.findall(r"GLIBC_(\d+)\.(\d+)", self.read_elf(name, "--version-info"))
            self.assertTrue(versions, name)
            self.assertLessEqual(max(tuple(map(int, version)) for version in versions), NEWEST_GLIBC,
                                 name)

    def test_its_programs_are_hardened(self):
        for name in self.programs():
            self.assertIn("DYN (", self.read_elf(name, "--file-header"), name)
            self.assertIn("GNU_RELRO", self.read_elf(name, "--program-headers"), name)

    def test_what_is_for_c_is_in_it(self):
        names = set(self.zip.namelist())
        self.assertLessEqual({"dloaderd/include/dlclient.h", "dloaderd/include/dloader-plugin.h",
                              "dloaderd/pkgconfig/dlclient.pc", "dloaderd/pkgconfig/dloader-plugin.pc"},
                             names)

    def test_the_licences_are_in_it(self):
        found = {pathlib.PurePath(name).name for name in self.zip.namelist()
                 if ".dist-info/licenses/" in name}
        self.assertIn("LICENSE", found)
        for library in ("libjpeg62-turbo-dev", "libpng-dev", "libuv1-dev", "uthash-dev"):
            self.assertIn(library + ".txt", found)

    def test_what_is_in_it_is_listed(self):
        [listed] = [name for name in self.zip.namelist() if name.endswith(".dist-info/sboms/dloaderd.cdx.json")]
        bom = json.loads(self.zip.read(listed))
        self.assertEqual((bom["bomFormat"], bom["specVersion"]), ("CycloneDX", "1.6"))
        self.assertEqual(bom["metadata"]["component"]["version"], WHEEL.name.split("-")[1])
        uses = {one["bom-ref"]: one["properties"][0]["value"] for one in bom["components"]}
        # Those of its processor, whatever is installed here.
        architecture = debian_packages.ARCHITECTURES[MACHINE]
        self.assertEqual({one["purl"].rpartition("?arch=")[2] for one in bom["components"]} - {"all"}, {architecture})
        self.assertTrue(all(one["version"] and one["licenses"][0]["expression"] for one in bom["components"]))
        # A notice of each that is within, and none of those that are not.
        notices = {pathlib.PurePath(name).stem for name in self.zip.namelist()
                   if "/licenses/libraries/" in name and name.endswith(".txt")}
        self.assertEqual({name for name, use in uses.items() if use != "found at run time"}, notices)
        self.assertIn("libsndfile1-dev", set(uses) - notices)


class Stranger:
    """What a stranger told: `told` is set by the classes below."""

    def test_the_first_batch_comes(self):
        self.assertEqual(self.told["batch"], "ndarray")
        print(f"# {type(self).__name__}: Python {self.told['python']}, {self.told['seconds']} s from pip "
              "install to the first batch", file=sys.stderr)

    def test_the_digests_are_those_of_this_machines_build(self):
        self.assertEqual(set(self.told["digests"]), set(SPECS))
        for spec, digests in self.told["digests"].items():
            self.assertEqual(digests, [self.digests[spec]] * 2, spec)

    def test_a_batch_is_made_once_more(self):
        self.assertEqual(self.told["arrays"], "__batch__ __indices__ x")

    def test_workers_are_closed_in(self):
        self.assertNotIn("without libseccomp", self.told["log"])

    def test_a_pytorch_script_runs(self):
        if "torch" not in self.told:
            self.skipTest("no PyTorch of this Python's version")
        self.assertEqual(self.told["torch"], "100")

    def test_uninstalling_leaves_nothing(self):
        self.assertEqual(self.told["left"], [])

    def test_what_is_not_in_it_is_refused_with_a_remedy(self):
        refusals = self.told["refusals"]
        self.assertIn("SentencePiece", refusals["sentencepiece"])


class Everywhere(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="dloader-wheel-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.work = pathlib.Path(folder.name)
        cls.data = cls.work / "data"
        cls.data.mkdir()
        make_data(cls.data)
        cls.digests = {name: cls.digest(cls.data / f"{name}.yaml") for name in SPECS}
        cls.told = cls.ask()

    @staticmethod
    def digest(spec):
        done = subprocess.run([os.environ["DLCTL"], "check", spec, "--digest", "--json"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            raise AssertionError(f"{spec}: {done.stdout}")
        return json.loads(done.stdout)["digest"]

    @classmethod
    def heard(cls, done):
        if done.returncode:
            raise AssertionError(done.stdout)
        return json.loads(done.stdout.splitlines()[-1])


class Here(Stranger, Everywhere):
    """This machine's Python, in an environment of its own, with no compiler on the path."""

    @classmethod
    def setUpClass(cls):
        if platform.machine() != MACHINE:
            raise unittest.SkipTest(f"the wheel is for {MACHINE}")
        super().setUpClass()

    @classmethod
    def ask(cls):
        tools = cls.work / "bin"
        tools.mkdir()
        (tools / "python3").symlink_to(sys.executable)
        torch = torch_for("%d.%d" % sys.version_info[:2])
        return cls.heard(subprocess.run(
            [sys.executable, HERE / "stranger.py", WHEEL, cls.data, cls.work / "work",
             *([torch] if torch else [])],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=bare.PATIENCE, cwd="/",
            env={"PATH": str(tools), "HOME": str(cls.work), "LC_ALL": "C.UTF-8"}, check=False))

    def test_nothing_could_be_compiled(self):
        self.assertEqual(self.told["compilers"], [])


class Bare(Stranger, Everywhere):
    """A Debian with Python, pip, NumPy and nothing else, and without a network."""

    other = False  # than this machine's processor

    @classmethod
    def setUpClass(cls):
        if "CHROOTS" not in os.environ:
            raise unittest.SkipTest("no folder for bare systems (CHROOTS)")
        if (platform.machine() != MACHINE) != cls.other:
            raise unittest.SkipTest(f"the wheel is for {MACHINE}")
        try:
            cls.system = bare.System(cls.release, os.environ["CHROOTS"], cls.packages, MACHINE)
        except bare.Impossible as why:
            raise unittest.SkipTest(f"no bare system: {why}") from None
        super().setUpClass()

    @classmethod
    def ask(cls):
        bind = {HERE: "/stranger", WHEEL.parent: "/wheel", cls.data: "/data"}
        there = cls.system.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        torch = None if cls.other else torch_for(there.stdout.strip())
        pillow = os.environ.get("PILLOW") if cls.other else None
        bind |= {torch: "/torch"} if torch else {}
        bind |= {pillow: "/pillow"} if pillow else {}
        return cls.heard(cls.system.run(
            "python3", "/stranger/stranger.py", f"/wheel/{WHEEL.name}", "/data", "/tmp/work",
            "/torch" if torch else "", "/pillow" if pillow else "", bind=bind))

    def test_nothing_could_be_compiled(self):
        self.assertEqual(self.told["compilers"], [])

    def test_etcd_without_libcurl_is_refused_with_a_remedy(self):
        self.assertRegex(self.told["refusals"]["etcd"], r"no libcurl\.so\.4; install it \(libcurl4")


class Debian12(Bare):
    release, packages = "bookworm", PACKAGES


class Debian13(Bare):
    release, packages = "trixie", PACKAGES


class OtherProcessor(Bare):
    """Its programs are interpreted, some ten times as slow."""

    release, other = "bookworm", True
    packages = (*PACKAGES, "libseccomp2", "libsndfile1", "libtiff6")

    def test_workers_are_closed_in(self):
        self.skipTest("qemu's system calls know no sandbox")

    def test_etcd_without_libcurl_is_refused_with_a_remedy(self):
        self.skipTest("said above, on this machine's processor")

    def test_every_kind(self):
        """Of every kind of dataset, by the program alone: neither daemon nor Python."""
        with zipfile.ZipFile(WHEEL) as archive:
            archive.extractall(self.work / "wheel")
        for name in ("dlctl", "dloader-worker"):
            (self.work / "wheel/dloaderd/bin" / name).chmod(0o755)
        wanted = kinds.make(self.work / "kinds")
        here = [self.work / "kinds", *filter(pathlib.Path.is_dir, kinds.PACKAGED)]
        told = kinds.heard(self.system.run("sh", "-c", kinds.SCRIPT, "sh", self.work / "kinds", "/w/dloaderd",
                                           bind={**{path: path for path in here}, self.work / "wheel": "/w"}))
        self.assertEqual(told, wanted)
        self.assertGreater(len(told), 70)

    def test_pictures_are_pillows(self):
        if "PILLOW" not in os.environ:
            self.skipTest("no Pillow of that processor (PILLOW)")
        self.assertEqual({what: differs for what, differs in self.told["pictures"].items() if differs is not False}, {})


class Debian11(unittest.TestCase):
    """Whose Python is too old, and whose glibc is 2.31: the programs alone."""

    def test_the_programs_run(self):
        if platform.machine() != MACHINE:
            self.skipTest(f"the wheel is for {MACHINE}")
        if "CHROOTS" not in os.environ:
            self.skipTest("no folder for bare systems (CHROOTS)")
        try:
            system = bare.System("bullseye", os.environ["CHROOTS"])
        except bare.Impossible as why:
            self.skipTest(f"no bare system: {why}")
        with tempfile.TemporaryDirectory(prefix="dloader-wheel-test-") as folder:
            data = pathlib.Path(folder, "data")
            data.mkdir()
            make_data(data)
            with zipfile.ZipFile(io.BytesIO(WHEEL.read_bytes())) as archive:
                archive.extractall(folder)
            program = pathlib.Path(folder, "dloaderd/bin/dlctl")
            program.chmod(0o755)
            for spec in SPECS:
                done = system.run("env", "DLOADER_LOCAL_MODULE=/w/dloaderd/dlclient-local.module",
                                  "/w/dloaderd/bin/dlctl", "check", f"/w/data/{spec}.yaml", "--digest",
                                  "--json", bind={folder: "/w"})
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertEqual(json.loads(done.stdout)["digest"],
                                 Everywhere.digest(data / f"{spec}.yaml"), spec)


# They are for those that inherit from them; unittest would run them, too.
del Bare, Stranger

if __name__ == "__main__":
    WHEEL = pathlib.Path(sys.argv.pop(1)).resolve()
    MACHINE = re.search(r"manylinux_\d+_\d+_(\w+)\.whl", WHEEL.name)[1]
    unittest.main(verbosity=2)
