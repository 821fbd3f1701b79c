"""Debian's packages for another processor or of another release, beside those of this machine.

apt gets them with lists, caches and a status of its own: what is installed here, and apt's
settings here, stay what they are.
"""

import os
import pathlib
import subprocess

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # Debian's names of processors
# What a package says of itself, by dpkg's names; SHOW has dpkg-query and dpkg-deb print them, a line each.
FIELDS = {"package": "Package", "source": "source:Package", "version": "Version", "architecture": "Architecture"}
SHOW = "".join(f"${{{field}}}\\n" for field in FIELDS.values())
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"

SETTINGS = """\
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "";
APT::Install-Recommends "false";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
"""


class Impossible(Exception):
    """What keeps this machine from having such packages."""


def archive():
    """Where apt gets this machine's own Debian from, and the release's name."""
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Origin: Debian",
                           "Created-By: Packages"], capture_output=True, text=True, check=False)
    found = done.stdout.split()
    if not found:
        raise Impossible("apt is configured for no archive of Debian")
    return found[0], found[1]


class Packages:
    """Of one release for one processor; `folder` keeps what was fetched."""

    def __init__(self, folder, machine, release=None):
        self.folder = pathlib.Path(folder).resolve()
        address, own = archive()
        for made in ("state/lists/partial", "cache/archives/partial"):
            (self.folder / made).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources.list").write_text(f"deb [signed-by={KEYS}] {address} {release or own} main\n",
                                                  encoding="ascii")
        (self.folder / "apt.conf").write_text(
            SETTINGS.format(architecture=ARCHITECTURES[machine], folder=self.folder), encoding="ascii")
        self.apt("update")

    def apt(self, *words):
        done = subprocess.run(["apt-get", "-q", "-y", *words], text=True, cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env={**os.environ, "APT_CONFIG": str(self.folder / "apt.conf"), "LC_ALL": "C"})
        if done.returncode:
            raise Impossible(f"apt-get {' '.join(words)}: {done.stdout[-500:]}")

    def has(self, name):
        done = subprocess.run(["apt-cache", "show", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env={**os.environ, "APT_CONFIG": str(self.folder / "apt.conf")}, check=False)
        return done.returncode == 0

    def unpack(self, name, folder):
        """The files of this package alone."""
        for old in self.folder.glob(f"{name}_*.deb"):
            old.unlink()
        self.apt("download", name)
        extract(next(self.folder.glob(f"{name}_*.deb")), folder)

    def describe(self, name):
        """FIELDS of the package that was unpacked."""
        file = next(self.folder.glob(f"{name}_*.deb"))
        return fields_of(["dpkg-deb", "--show", "--showformat", SHOW, file])

    def unpack_all(self, names, folder):
        """Their files, and those of all that they depend on; nothing is set up."""
        for old in (self.folder / "cache/archives").glob("*.deb"):
            old.unlink()
        self.apt("install", "--download-only", *names)
        # Where Debian's programs look for what is in /usr now.
        for link in ("bin", "lib", "sbin"):
            pathlib.Path(folder, "usr", link).mkdir(parents=True, exist_ok=True)
            pathlib.Path(folder, link).symlink_to(f"usr/{link}")
        for package in sorted((self.folder / "cache/archives").glob("*.deb")):
            extract(package, folder)


def fields_of(command):
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(zip(FIELDS, told.split("\n")))


def extract(package, folder):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as files:
        subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", str(folder)], stdin=files.stdout, check=True)
    if files.returncode:
        raise Impossible(f"{package} is damaged")
