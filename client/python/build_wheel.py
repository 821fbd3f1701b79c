"""A wheel for any Linux: `./dev wheel`.

    build_wheel.py WORK OUT [MACHINE]    builds below the folder WORK, leaves the wheel in the folder OUT;
                                         MACHINE: x86_64 (unless said) or aarch64

It runs where glibc is 2.28 or later, with CPython 3.11 or later. The compiler is Zig's, from PyPI,
which links with the symbols of any glibc, for any processor; Debian's own links with those of the
glibc that is there. The libraries are Debian's static ones, as they lie in the -dev packages: those
that are installed, or for another processor those that debian_packages.py fetches. A symbol that glibc 2.28
does not have is an error of the linker, and auditwheel looks once more. libcurl, libseccomp and
libmicrohttpd are found at run time instead (found_at_run_time): the first needs the system's
certificates and updates, the others are LGPL, as is libsndfile, which every build finds at run time.
What else is optional is left out, and says so where somebody asks for it.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig

import build_backend
import debian_packages
import sbom

GLIBC = "2.28"
MACHINES = ("x86_64", "aarch64")
PYTHON = "cp311"  # the oldest, whose stable ABI the modules keep to

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Debian's packages: of a line, the first that has the library. Linked statically; headers that are
# compiled in; libraries that are found at run time, of which there are the headers alone.
LINKED = [("libdeflate-dev",), ("libjansson-dev",), ("libjpeg62-turbo-dev",), ("libmsgpack-c-dev", "libmsgpack-dev"),
          ("libpcre2-dev",), ("libpng-dev",), ("libutf8proc-dev",), ("libuv1-dev",),
          ("libwebp-dev",), ("libxxhash-dev",), ("libyaml-dev",), ("zlib1g-dev",)]
HEADERS = [("librandom123-dev",), ("uthash-dev",)]
FOUND = [("libcurl4-openssl-dev",), ("libmicrohttpd-dev",), ("libseccomp-dev",), ("libsndfile1-dev",), ("libtiff-dev",)]

# Archives by names other than those that pkg-config's files have for them.
ARCHIVES = {"libuv_a.a": "libuv.a"}

# Debian's archives are for programs, whose linker gives the C library's variables a place in the
# program itself; in a shared library that cannot be. Named otherwise, they are ours (STREAMS). And
# what a newer glibc's headers call by new names is what the older one has. For ARM, GCC has helpers
# of its older atomic operations that LLVM's library lacks; they do what those for acquire and release do.
RENAMED = {"stdin": "dl_stdin", "stdout": "dl_stdout", "stderr": "dl_stderr",
           **{f"__aarch64_{name}_sync": f"__aarch64_{name}_acq_rel" for name in ("cas4", "ldadd4")},
           **{f"__isoc23_{name}": name for name in ("strtol", "strtoll", "strtoul", "strtoull",
                                                    "sscanf", "fscanf", "vsscanf")}}
STREAMS = HERE / "src/streams.c"

# It takes no platform but those of the processor it believes to run on.
AUDITWHEEL = """
import platform, sys
platform.machine = lambda: "{machine}"
from auditwheel.main import main
sys.exit(main())
"""

SETTINGS = ["b_pie=true", "found_at_run_time=curl,microhttpd,seccomp", "sentencepiece=disabled",
            "huggingface=enabled", "microhttpd=enabled", "seccomp=enabled", "sndfile=enabled",
            "tiff=enabled", "webp=enabled"]


def run(*command, **options):
    subprocess.run([str(word) for word in command], check=True, **options)


def answer(*command):
    return subprocess.run([str(word) for word in command], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


# ---- libraries -----------------------------------------------------------------------------------

def is_library(files):
    return any(file.suffix in (".a", ".h") for file in files)


class Installed:
    """This machine's packages."""

    root = pathlib.Path("/")

    def files_of(self, names):
        """(package, where its files lie, these) of the first of the packages that has a library or headers."""
        for name in names:
            done = subprocess.run(["dpkg-query", "-L", name], capture_output=True, text=True, check=False)
            files = [pathlib.Path(line) for line in done.stdout.splitlines()]
            if is_library(files):
                return name, self.root, [file for file in files if file.is_file()]
        sys.exit(f"build_wheel: there is no {names[0]}; apt install {names[0]}")

    def describe(self, name):
        """What it says of itself: debian_packages.FIELDS."""
        return debian_packages.fields_of(["dpkg-query", "--show", "--showformat", debian_packages.SHOW, name])


class Fetched:
    """Those of another processor."""

    def __init__(self, folder, machine):
        shutil.rmtree(folder, ignore_errors=True)
        self.packages, self.folder = debian_packages.Packages(folder, machine), folder

    def files_of(self, names):
        for name in filter(self.packages.has, names):
            root = self.folder / "unpacked" / name
            self.packages.unpack(name, root)
            files = [file for file in root.rglob("*") if file.is_file()]
            if is_library(files):
                documents = root / "usr/share/doc" / name
                if documents.is_symlink():  # those of a package that it needs
                    self.packages.unpack(documents.readlink().name, root)
                return name, root, files
        sys.exit(f"build_wheel: Debian's archive has no {names[0]}")

    def describe(self, name):
        return self.packages.describe(name)


class Libraries:
    """A folder of headers, static libraries and pkg-config's files, and nothing of the C library."""

    def __init__(self, folder, target, packages):
        self.folder, self.target, self.packages = folder, target, packages
        self.include, self.lib = folder / "include", folder / "lib"
        self.pkgconfig, self.licences = folder / "lib/pkgconfig", folder / "licences"
        shutil.rmtree(folder, ignore_errors=True)
        for made in (self.include, self.pkgconfig, self.licences):
            made.mkdir(parents=True)
        self.streams = folder / "streams.o"
        self.taken = []  # of Debian's packages, with how each is used: as sbom.py has them
        run(*target.compiler, "-O2", "-fPIC", "-c", STREAMS, "-o", self.streams)
        self.names = folder / "renamed"
        self.names.write_text("".join(f"{old} {new}\n" for old, new in RENAMED.items()),
                              encoding="ascii")

    def add_header(self, file, root):
        to = self.include / re.sub(rf"^usr/include/({self.target.multiarch}/)?", "", str(file.relative_to(root)))
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)

    def add_archive(self, file):
        to = self.lib / ARCHIVES.get(file.name, file.name)
        run(self.target.tool("objcopy"), f"--redefine-syms={self.names}", file.resolve(), to)
        if any(name in answer(self.target.tool("nm"), to) for name in ("dl_stdin", "dl_stdout", "dl_stderr")):
            run(self.target.tool("ar"), "qsD", to, self.streams)

    def add_pkgconfig(self, file, linked):
        text = file.read_text(encoding="utf-8")
        multiarch = self.target.multiarch
        text = re.sub(rf"^includedir=.*/include(/{multiarch})?", f"includedir={self.include}", text,
                      flags=re.MULTILINE)
        text = re.sub(r"^libdir=.*", f"libdir={self.lib}", text, flags=re.MULTILINE)
        text = text.replace(f"/usr/lib/{multiarch}", str(self.lib))
        # Some rely on the linker's own folders, which have the shared library.
        text = re.sub(r"^Libs:", f"Libs: -L{self.lib}", text, flags=re.MULTILINE)
        if not linked:
            text = re.sub(r"^(Libs|Requires)(\.private)?:.*\n", "", text, flags=re.MULTILINE)
        (self.pkgconfig / file.name).write_text(text, encoding="utf-8")

    def add(self, names, linked):
        package, root, files = self.packages.files_of(names)
        for file in files:
            if file.is_relative_to(root / "usr/include"):
                self.add_header(file, root)
            elif file.suffix == ".a" and linked:
                self.add_archive(file)
            elif file.suffix == ".pc":
                self.add_pkgconfig(file, linked)
        use = "linked statically" if linked else "found at run time" if names in FOUND else "headers are compiled in"
        self.taken.append({**self.packages.describe(package), "use": use})
        if names not in FOUND:
            shutil.copyfile(root / f"usr/share/doc/{package}/copyright", self.licences / f"{package}.txt")

    def add_python(self):
        """Python's own headers, whose one for the machine is named from /usr/include."""
        name = pathlib.Path(sysconfig.get_path("include")).name
        if self.target.machine != platform.machine():
            _, root, _ = self.packages.files_of((f"lib{name}-dev",))
        else:
            root = self.packages.root
        machine = root / "usr/include" / self.target.multiarch / name
        if machine.is_dir():
            shutil.copytree(machine, self.include / self.target.multiarch / name)
        if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
            sys.exit("build_wheel: there is no Python.h; apt install python3-dev")


# ---- the wheel ------------------------------------------------------------------------------------

class Target:
    """The processor that the wheel is for."""

    def __init__(self, machine):
        import ziglang  # of PyPI

        zig = pathlib.Path(ziglang.__file__).with_name("zig")
        self.machine, self.multiarch = machine, f"{machine}-linux-gnu"
        self.platform = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
        # With -O it would check for undefined behaviour or leave assertions out, as Zig does.
        self.compiler = [zig, "cc", "-target", f"{machine}-linux-gnu.{GLIBC}", "-fno-sanitize=undefined", "-UNDEBUG"]

    def tool(self, name):
        """That of binutils which knows its object files."""
        if self.machine == platform.machine():
            return name
        found = shutil.which(f"{self.multiarch}-{name}")
        return found or sys.exit(f"build_wheel: there is no {self.multiarch}-{name}; "
                                 f"apt install binutils-{self.multiarch}")

    def machine_file(self, work, libraries):
        """Meson's option that names a file with all this."""
        words = ", ".join(f"'{word}'" for word in [*self.compiler, "-isystem", libraries.include])
        native = self.machine == platform.machine()
        file = work / ("native.ini" if native else "cross.ini")
        text = f"[binaries]\nc = [{words}]\n"
        if not native:
            text += "".join(f"{name} = '{self.tool(name)}'\n" for name in ("ar", "objcopy", "strip"))
            text += (f"pkg-config = 'pkg-config'\npython = '{sys.executable}'\n[host_machine]\nsystem = 'linux'\n"
                     f"cpu_family = '{self.machine}'\ncpu = '{self.machine}'\nendian = 'little'\n")
            os.environ["_PYTHON_HOST_PLATFORM"] = f"linux-{self.machine}"
        file.write_text(text, encoding="utf-8")
        return f"--{file.stem}-file={file}"


def build(work, libraries, target):
    """The wheel as meson-python makes it: its path."""
    os.environ["PKG_CONFIG_LIBDIR"] = str(libraries.pkgconfig)
    out = work / "built"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    name = build_backend.build_wheel(out, {"setup-args": [
        target.machine_file(work, libraries), "-Dc_args=-D_FORTIFY_SOURCE=2 -fstack-protector-strong",
        "-Dc_link_args=-s", *[f"-D{setting}" for setting in SETTINGS]]})
    return out / name


def finish(work, wheel, libraries):
    """With the licences of the project and of all that is compiled in, a list of that, and no path of the build."""
    unpacked = work / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    run(sys.executable, "-m", "wheel", "unpack", "--dest", unpacked, wheel)
    folder = next(unpacked.iterdir())
    licences = next(folder.glob("*.dist-info")) / "licenses"
    shutil.copytree(libraries.licences, licences / "libraries")
    shutil.copyfile(ROOT / "LICENSE", licences / "LICENSE")
    listed = licences.parent / "sboms/dloaderd.cdx.json"
    listed.parent.mkdir()
    listed.write_text(sbom.document(folder.name.partition("-")[2], libraries.taken), encoding="utf-8")
    for program in (folder / "dloaderd/bin").iterdir():
        run("patchelf", "--remove-rpath", program)
    run(sys.executable, "-m", "wheel", "pack", "--dest-dir", wheel.parent, folder)


def main(work, out, machine="x86_64"):
    if platform.machine() != "x86_64" or machine not in MACHINES:
        sys.exit(f"build_wheel: builds on x86_64 for {' and '.join(MACHINES)}; "
                 f"this is {platform.machine()}, for {machine}")
    work, out = pathlib.Path(work).resolve(), pathlib.Path(out).resolve()
    work.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(work / "zig"))
    # The meson that this Python has: Debian 12's own does not know Zig's linker.
    os.environ["PATH"] = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    target = Target(machine)
    packages = Installed() if machine == platform.machine() else Fetched(work / "debian", machine)
    libraries = Libraries(work / "libraries", target, packages)
    for kind, linked in ((LINKED, True), (HEADERS, False), (FOUND, False)):
        for names in kind:
            libraries.add(names, linked)
    libraries.add_python()
    wheel = build(work, libraries, target)
    finish(work, wheel, libraries)
    run(sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag", PYTHON, wheel)
    wheel = next((work / "built").glob("*.whl"))
    shutil.rmtree(out, ignore_errors=True)
    run(sys.executable, "-c", AUDITWHEEL.format(machine=machine), "repair", "--plat", target.platform, "--only-plat",
        "--wheel-dir", out, wheel)
    print(*out.glob("*.whl"))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: build_wheel.py WORK OUT [MACHINE]")
    main(*sys.argv[1:])
