"""A wheel for any Linux: `./dev wheel`.

    build_wheel.py WORK OUT     builds below the folder WORK, leaves the wheel in the folder OUT

It runs where glibc is 2.28 or later, with CPython 3.11 or later. The compiler is Zig's, from PyPI,
which links with the symbols of any glibc; Debian's own links with those of the glibc that is there.
The libraries are Debian's static ones, as they lie in the -dev packages; a symbol that glibc 2.28
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
import sbom

GLIBC = "2.28"
PLATFORM = "manylinux_2_28_x86_64"
MACHINE = "x86_64"
MULTIARCH = "x86_64-linux-gnu"
PYTHON = "cp311"  # the oldest, whose stable ABI the modules keep to

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Debian's packages: of a line, the first that has the library. Linked statically; headers that are
# compiled in; libraries that are found at run time, of which there are the headers alone.
LINKED = [("libjansson-dev",), ("libjpeg62-turbo-dev",), ("libmsgpack-c-dev", "libmsgpack-dev"),
          ("libncurses-dev",), ("libpcre2-dev",), ("libpng-dev",), ("libutf8proc-dev",),
          ("libuv1-dev",), ("libwebp-dev",), ("libxxhash-dev",), ("libyaml-dev",), ("zlib1g-dev",)]
HEADERS = [("librandom123-dev",), ("uthash-dev",)]
FOUND = [("libcurl4-openssl-dev",), ("libmicrohttpd-dev",), ("libseccomp-dev",), ("libsndfile1-dev",), ("libtiff-dev",)]

# Archives by names other than those that pkg-config's files have for them.
ARCHIVES = {"libuv_a.a": "libuv.a"}

# Debian's archives are for programs, whose linker gives the C library's variables a place in the
# program itself; in a shared library that cannot be. Named otherwise, they are ours (STREAMS). And
# what a newer glibc's headers call by new names is what the older one has.
RENAMED = {"stdin": "dl_stdin", "stdout": "dl_stdout", "stderr": "dl_stderr",
           **{f"__isoc23_{name}": name for name in ("strtol", "strtoll", "strtoul", "strtoull",
                                                    "sscanf", "fscanf", "vsscanf")}}
STREAMS = HERE / "src/streams.c"

SETTINGS = ["b_pie=true", "found_at_run_time=curl,microhttpd,seccomp", "sentencepiece=disabled",
            "huggingface=enabled", "microhttpd=enabled", "seccomp=enabled", "sndfile=enabled",
            "ncurses=enabled", "tiff=enabled", "webp=enabled"]


def run(*command, **options):
    subprocess.run([str(word) for word in command], check=True, **options)


def answer(*command):
    return subprocess.run([str(word) for word in command], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


# ---- libraries -----------------------------------------------------------------------------------

def files_of(names):
    """(package, its files) of the first of these packages that is here and has a library or headers."""
    for name in names:
        done = subprocess.run(["dpkg-query", "-L", name], capture_output=True, text=True, check=False)
        files = [pathlib.Path(line) for line in done.stdout.splitlines()]
        if any(file.suffix in (".a", ".h") for file in files):
            return name, [file for file in files if file.is_file()]
    sys.exit(f"build_wheel: there is no {names[0]}; apt install {names[0]}")


class Libraries:
    """A folder of headers, static libraries and pkg-config's files, and nothing of the C library."""

    def __init__(self, folder, compiler):
        self.folder = folder
        self.include, self.lib = folder / "include", folder / "lib"
        self.pkgconfig, self.licences = folder / "lib/pkgconfig", folder / "licences"
        shutil.rmtree(folder, ignore_errors=True)
        for made in (self.include, self.pkgconfig, self.licences):
            made.mkdir(parents=True)
        self.streams = folder / "streams.o"
        run(*compiler, "-O2", "-fPIC", "-c", STREAMS, "-o", self.streams)
        self.uses = {}  # how each of Debian's packages is used, in words
        self.names = folder / "renamed"
        self.names.write_text("".join(f"{old} {new}\n" for old, new in RENAMED.items()),
                              encoding="ascii")

    def add_header(self, file):
        to = self.include / re.sub(rf"^/usr/include/({MULTIARCH}/)?", "", str(file))
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)

    def add_archive(self, file):
        to = self.lib / ARCHIVES.get(file.name, file.name)
        run("objcopy", f"--redefine-syms={self.names}", file.resolve(), to)
        if any(name in answer("nm", to) for name in ("dl_stdin", "dl_stdout", "dl_stderr")):
            run("ar", "qsD", to, self.streams)

    def add_pkgconfig(self, file, linked):
        text = file.read_text(encoding="utf-8")
        text = re.sub(rf"^includedir=.*/include(/{MULTIARCH})?", f"includedir={self.include}", text,
                      flags=re.MULTILINE)
        text = re.sub(r"^libdir=.*", f"libdir={self.lib}", text, flags=re.MULTILINE)
        text = text.replace(f"/usr/lib/{MULTIARCH}", str(self.lib))
        # Some rely on the linker's own folders, which have the shared library.
        text = re.sub(r"^Libs:", f"Libs: -L{self.lib}", text, flags=re.MULTILINE)
        if not linked:
            text = re.sub(r"^(Libs|Requires)(\.private)?:.*\n", "", text, flags=re.MULTILINE)
        (self.pkgconfig / file.name).write_text(text, encoding="utf-8")

    def add(self, names, linked):
        package, files = files_of(names)
        for file in files:
            if file.is_relative_to("/usr/include"):
                self.add_header(file)
            elif file.suffix == ".a" and linked:
                self.add_archive(file)
            elif file.suffix == ".pc":
                self.add_pkgconfig(file, linked)
        self.uses[package] = ("linked statically" if linked else "found at run time" if names in FOUND else
                              "headers are compiled in")
        if names not in FOUND:
            shutil.copyfile(f"/usr/share/doc/{package}/copyright", self.licences / f"{package}.txt")

    def add_python(self):
        """Python's own headers, whose one for the machine is named from /usr/include."""
        name = pathlib.Path(sysconfig.get_path("include")).name
        machine = pathlib.Path("/usr/include", MULTIARCH, name)
        if machine.is_dir():
            shutil.copytree(machine, self.include / MULTIARCH / name)
        if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
            sys.exit("build_wheel: there is no Python.h; apt install python3-dev")


# ---- the wheel ------------------------------------------------------------------------------------

def compiler(work):
    import ziglang  # of PyPI

    zig = pathlib.Path(ziglang.__file__).with_name("zig")
    # With -O it would check for undefined behaviour or leave assertions out, as Zig does.
    return [zig, "cc", "-target", f"{MACHINE}-linux-gnu.{GLIBC}", "-fno-sanitize=undefined",
            "-UNDEBUG"]


def build(work, libraries, command):
    """The wheel as meson-python makes it: its path."""
    native = work / "native.ini"
    words = [*command, "-isystem", libraries.include]
    native.write_text("[binaries]\nc = [" + ", ".join(f"'{word}'" for word in words) + "]\n",
                      encoding="utf-8")
    os.environ["PKG_CONFIG_LIBDIR"] = str(libraries.pkgconfig)
    out = work / "built"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    name = build_backend.build_wheel(out, {"setup-args": [
        f"--native-file={native}", "-Dc_args=-D_FORTIFY_SOURCE=2 -fstack-protector-strong",
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
    listed.write_text(sbom.document(folder.name.partition("-")[2], libraries.uses), encoding="utf-8")
    for program in (folder / "dloaderd/bin").iterdir():
        run("patchelf", "--remove-rpath", program)
    run(sys.executable, "-m", "wheel", "pack", "--dest-dir", wheel.parent, folder)


def main(work, out):
    if platform.machine() != MACHINE:
        sys.exit(f"build_wheel: builds for {MACHINE}, on {MACHINE}; this is {platform.machine()}")
    work, out = pathlib.Path(work).resolve(), pathlib.Path(out).resolve()
    work.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(work / "zig"))
    # The meson that this Python has: Debian 12's own does not know Zig's linker.
    os.environ["PATH"] = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    command = compiler(work)
    libraries = Libraries(work / "libraries", command)
    for kind, linked in ((LINKED, True), (HEADERS, False), (FOUND, False)):
        for names in kind:
            libraries.add(names, linked)
    libraries.add_python()
    wheel = build(work, libraries, command)
    finish(work, wheel, libraries)
    run(sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag", PYTHON, wheel)
    wheel = next((work / "built").glob("*.whl"))
    shutil.rmtree(out, ignore_errors=True)
    run(sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM, "--only-plat",
        "--wheel-dir", out, wheel)
    print(*out.glob("*.whl"))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: build_wheel.py WORK OUT")
    main(*sys.argv[1:])
