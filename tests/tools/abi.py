"""Whether programs linked with the last release's libdlclient run with this one: `./dev abi`.

    abi.py WORK     builds both libraries below the folder WORK; that of a release is kept there

The last release is the last tag v* before this commit. What abidiff of libabigail finds in the functions and types of
dlclient.h is printed; more functions are no finding. It is an error unless the soversion is another one. That there is
nothing to compare with is one, too: nobody knows then.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/lib"))
import releases  # noqa: E402

FAILED, CHANGED = 3, 4  # of abidiff's exit status: it has not compared, or found something


def last_release():
    """Its tag, and its commit."""
    try:
        commit = releases.last_commit()
    except LookupError as why:
        sys.exit(f"abi: nothing to compare this library with: {why}")
    return releases.last_tag(), commit


def build(source, place, tree):
    """The library, with what the compiler knows of its types, and the header, in `place`."""
    subprocess.run([*releases.configure(source, tree), "-Ddebug=true"], check=True, stdout=sys.stderr)
    subprocess.run(["ninja", "-C", tree, releases.library_of(source)], check=True, stdout=sys.stderr)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    shutil.copy(source / "client/dlclient.h", place)
    shutil.copy(tree / releases.library_of(source), place / "libdlclient.so")


def soversion(place):
    told = subprocess.run(["readelf", "-d", place / "libdlclient.so"], stdout=subprocess.PIPE, text=True, check=True)
    return re.search(r"SONAME.*\[(.*)\]", told.stdout)[1]


def compare(old, new):
    """What abidiff says of them; "": nothing that matters."""
    done = subprocess.run(["abidiff", "--no-added-syms", "--drop-private-types", "--headers-dir1", old,
                           "--headers-dir2", new, old / "libdlclient.so", new / "libdlclient.so"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode & FAILED:
        sys.exit(f"abi: abidiff: {done.stdout}")
    return done.stdout if done.returncode & CHANGED else ""


def main(work):
    work = pathlib.Path(work).resolve()
    name, commit = last_release()
    old, new = work / commit, work / "this"
    work.mkdir(parents=True, exist_ok=True)
    if not (old / "libdlclient.so").exists():
        with tempfile.TemporaryDirectory(dir=work) as folder:
            source = pathlib.Path(folder, "source")
            source.mkdir()
            subprocess.run(["tar", "-x", "-C", source], check=True,
                           input=releases.git("archive", commit, check=True).stdout)
            build(source, old, pathlib.Path(folder, "build"))
    with tempfile.TemporaryDirectory(dir=work) as folder:
        build(ROOT, new, pathlib.Path(folder))
    found = compare(old, new)
    same = soversion(old) == soversion(new)
    print(found, end="")
    if not found:
        print(f"abi: programs that are linked with {soversion(old)} of {name} run with this {soversion(new)}")
    elif same:
        print(f"abi: programs that are linked with {soversion(old)} of {name} may not run with this one: "
              "restore what they use, or raise the soversion in client/meson.build")
    return 1 if found and same else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: abi.py WORK")
    sys.exit(main(sys.argv[1]))
