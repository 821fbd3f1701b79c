"""A release, made and tried from a clean clone: `./dev release`.

    release.py WORK OUT ARCHITECTURE...     works below the folder WORK, leaves all files in the folder OUT

What is in OUT: a source archive, a wheel for each architecture with the list of what is in it (CycloneDX), Debian
packages for each release of Debian, and SHA256SUMS of all of them. The wheel of this machine's architecture is
installed, used and removed in bare systems of Debian 11 to 13, the packages in this machine's and in bare ones, and as
an image. What is committed counts: with a change that is not, nothing is done. Nothing is tagged or uploaded here.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/package"))
import bare  # noqa: E402

# Those whose packages are built elsewhere than on this machine, with what builds them there.
DEBIANS = {"12": "bookworm", "13": "trixie"}
BUILD = r"""
set -e
cp -r /source /tmp/source
cd /tmp/source
mv systemd/debian debian
dpkg-buildpackage -us -uc -b >/out/build.log 2>&1
cp /tmp/*.deb /out/
"""


def say(*words):
    print("\n==", *words, file=sys.stderr, flush=True)


def run(*command, cwd=ROOT, **options):
    return subprocess.run([str(word) for word in command], cwd=cwd, check=True, text=True, **options)


def answer(*command):
    return run(*command, stdout=subprocess.PIPE).stdout.strip()


def version_of(source):
    return re.search(r"version: '([^']+)'", (source / "meson.build").read_text(encoding="utf-8"))[1]


def faults(source):
    """What is not as a release has it, in words."""
    version = version_of(source)
    debian = (source / "systemd/debian/changelog").read_text(encoding="utf-8")
    if f"\n## {version}\n" not in (source / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md has no section {version}, the version of meson.build"
    if not debian.startswith(f"dloaderd ({version}-"):
        yield f"systemd/debian/changelog does not begin with {version}, the version of meson.build"


def clone(to):
    """HEAD as others get it, if nothing here is uncommitted."""
    if answer("git", "status", "--porcelain"):
        sys.exit("release: there are changes that are not committed: commit or stash them")
    shutil.rmtree(to, ignore_errors=True)
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, to)
    run("git", "checkout", "--quiet", "--detach", answer("git", "rev-parse", "HEAD"), cwd=to)


def tell_tag(version):
    tags = answer("git", "tag", "--points-at", "HEAD").split()
    if f"v{version}" in tags:
        say(f"this is v{version}")
    else:
        say(f"this commit has no tag v{version}: what is made is no release yet; tag it when all has passed")


def archive(source, name, out):
    run("git", "archive", f"--prefix={name}/", f"--output={out / name}.tar.gz", "HEAD", cwd=source)


def wheels(source, architectures, work, out):
    kept = {**os.environ, "DLOADER_CHROOTS": str(work / "chroots")}
    for architecture in architectures:
        own = architecture == os.uname().machine
        run("./dev", "wheel", *(["--systems"] if own else ["--arch", architecture, "--test"]), cwd=source,
            env=kept)
        for wheel in (source / ".build" / ("wheel" if own else f"wheel-{architecture}")).glob("*.whl"):
            shutil.copy(wheel, out)
            with zipfile.ZipFile(wheel) as content:
                [listed] = [name for name in content.namelist() if name.endswith("/sboms/dloaderd.cdx.json")]
                (out / f"{wheel.stem}.cdx.json").write_bytes(content.read(listed))


def build_depends(source):
    """What builds the packages, but for what has other names: of alternatives the first."""
    text = (source / "systemd/debian/control").read_text(encoding="utf-8")
    listed = re.search(r"^Build-Depends:\n((?: .*\n)+)", text, re.MULTILINE)[1]
    told = {"debhelper-compat": "debhelper", "dh-sequence-python3": "dh-python",
            "dh-sequence-installsysusers": "debhelper"}
    names = re.findall(r"^ ([a-z0-9][a-z0-9+.-]*)", listed, re.MULTILINE)
    return sorted({"build-essential", "fakeroot", *(told.get(name, name) for name in names)})


def debs(source, release, work, out):
    """The packages of a release of Debian, which this machine's are, or are made in a bare system of it."""
    name = DEBIANS[release]
    if f'VERSION_ID="{release}"' in pathlib.Path("/etc/os-release").read_text(encoding="utf-8"):
        run("./dev", "deb", "--test", cwd=source)
        made = source / ".build/deb"
    else:
        made = work / "debs" / name
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        tree = work / "exported"
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir()
        run("tar", "-x", "-f", *out.glob("*.tar.gz"), "-C", tree, "--strip-components=1")
        system = bare.System(name, work / "chroots", build_depends(source))
        done = system.run("sh", "-c", BUILD, bind={tree: "/source"}, out={made: "/out"})
        if done.returncode:
            log = made / "build.log"
            sys.exit(f"release: the packages for Debian {release} cannot be built: {done.stdout}"
                     f"{log.read_text(encoding='utf-8')[-3000:] if log.exists() else ''}")
    to = out / f"debian{release}"
    to.mkdir()
    for package in made.glob("*.deb"):
        if "-dbgsym" not in package.name:
            shutil.copy(package, to)
    run(sys.executable, source / "tests/package/test_debs.py", to, name, work / "chroots")


def sums(out):
    files = sorted(path for path in out.rglob("*") if path.is_file())
    (out / "SHA256SUMS").write_text("".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n" for path in files))


def main(work, out, architectures):
    work, out = pathlib.Path(work).resolve(), pathlib.Path(out).resolve()
    source = work / "source"
    work.mkdir(parents=True, exist_ok=True)
    clone(source)
    found = list(faults(source))
    if found:
        sys.exit("\n".join(f"release: {fault}" for fault in found))
    version = version_of(source)
    tell_tag(version)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    run("./dev", "abi", cwd=source)
    run("./dev", "docs", cwd=source)
    archive(source, f"dloaderd-{version}", out)
    for release in DEBIANS:
        debs(source, release, work, out)
    # After them: their dlctl is what the wheel's digests are compared with.
    wheels(source, architectures, work, out)
    newest = list(DEBIANS)[-1]
    run(sys.executable, source / "tests/package/test_image.py", out / f"debian{newest}", DEBIANS[newest],
        work / "chroots")
    sums(out)
    run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=out)
    tell_tag(version)
    say(f"the release: {out}")
    run("ls", "-R", out)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: release.py WORK OUT ARCHITECTURE...")
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
