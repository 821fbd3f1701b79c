"""Debian's folder, systemd/debian, agrees with what it packages, and a build without its libraries
says how to get them; nothing is built here.

Environment: UNITS: the source's folder systemd; VERSION: the project's.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SYSTEMD = pathlib.Path(os.environ["UNITS"])
DEBIAN = SYSTEMD / "debian"
DEV = SYSTEMD.parent / "dev"

sys.path.insert(0, str(SYSTEMD.parent / "client/python"))
import debian_packages  # noqa: E402
import sbom  # noqa: E402

# Every Debian system that builds packages has these, or they come with another one.
IMPLIED = {"gcc", "libc6-dev"}


def build_depends():
    """The names of all packages that may be there to build with."""
    text = (DEBIAN / "control").read_text(encoding="utf-8")
    listed = re.search(r"^Build-Depends:\n((?: .*\n)+)", text, re.MULTILINE).group(1)
    return set(re.findall(r"(?:^ |\| )([a-z0-9][a-z0-9+.-]*)", listed, re.MULTILINE))


def list_of_dev(name):
    listed = re.search(rf"^{name}=\(([^)]*)\)", DEV.read_text(encoding="utf-8"), re.MULTILINE)
    return set(listed.group(1).split())


class Packaging(unittest.TestCase):
    def test_the_version_is_the_projects(self):
        first = (DEBIAN / "changelog").read_text(encoding="utf-8").splitlines()[0]
        self.assertRegex(first, rf"^dloaderd \({re.escape(os.environ['VERSION'])}-\d+\) ")

    def test_what_dev_builds_with_is_depended_on(self):
        wanted = list_of_dev("build_packages") - IMPLIED
        self.assertIn("libuv1-dev", wanted)
        self.assertEqual(wanted - build_depends(), set())

    def test_what_is_depended_on_is_what_dev_installs(self):
        told = {"debhelper-compat": "debhelper", "dh-sequence-python3": "dh-python",
                "dh-sequence-installsysusers": "debhelper", "systemd-dev": "systemd"}
        installed = list_of_dev("build_packages") | list_of_dev("deb_packages")
        self.assertEqual({told.get(name, name) for name in build_depends()} - installed, set())

    def test_the_image_has_packages_of_the_projects(self):
        control = (DEBIAN / "control").read_text(encoding="utf-8")
        wanted = re.findall(r"/tmp/packages/([\w-]+)_", (SYSTEMD / "Containerfile").read_text(encoding="utf-8"))
        self.assertEqual(len(wanted), 4)
        self.assertLessEqual(set(wanted), set(re.findall(r"^Package: (\S+)", control, re.MULTILINE)))

    def test_the_licence_of_all_that_a_wheel_takes_is_known(self):
        builder = (SYSTEMD.parent / "client/python/build_wheel.py").read_text(encoding="utf-8")
        taken = {name for lists in re.findall(r"^(?:LINKED|HEADERS|FOUND) = (\[[^\]]*\])", builder, re.MULTILINE)
                 for name in re.findall(r'"([^"]+)"', lists)}
        self.assertGreater(len(taken), 15)
        self.assertEqual(set(sbom.LICENCES), taken)
        said = {"source": "xz", "version": "1:5.4+dfsg-1", "architecture": "arm64", "use": "linked statically"}
        one, other = (sbom.document("0.2.0", [{"package": name, **said} for name in names])
                      for names in (taken, sorted(taken)))
        self.assertEqual(one, other)
        told = json.loads(one)
        self.assertEqual(told["components"][0]["purl"],
                         "pkg:deb/debian/libcurl4-openssl-dev@1%3A5.4%2Bdfsg-1?arch=arm64")
        self.assertEqual(told["dependencies"], [{"ref": "dloaderd", "dependsOn": sorted(taken)}])

    def test_a_fetched_package_tells_its_version(self):
        with tempfile.TemporaryDirectory(prefix="dloader-package-") as folder:
            tree = pathlib.Path(folder, "tree/DEBIAN")
            tree.mkdir(parents=True)
            (tree / "control").write_text("Package: libx-dev\nSource: x (2:1.0)\nVersion: 2:1.0+b1\n"
                                          "Architecture: arm64\nMaintainer: x <x@x>\nDescription: x\n")
            told = pathlib.Path(folder, "libx-dev_1.0_arm64.deb")
            subprocess.run(["dpkg-deb", "--build", tree.parent, told], check=True, stdout=subprocess.DEVNULL)
            self.assertEqual(debian_packages.fields_of(
                ["dpkg-deb", "--show", "--showformat", debian_packages.SHOW, told]),
                {"package": "libx-dev", "source": "x", "version": "2:1.0+b1", "architecture": "arm64"})

    def test_the_symbols_are_of_the_maps_version(self):
        symbols = (DEBIAN / "libdlclient0.symbols").read_text(encoding="utf-8")
        nodes = re.findall(r"^(\w+) \{", (SYSTEMD.parent / "client/dlclient.map").read_text(
            encoding="utf-8"), re.MULTILINE)
        self.assertEqual(re.findall(r"^ \(symver\)(\w+) ", symbols, re.MULTILINE), nodes)


class Missing(unittest.TestCase):
    """What the build says on a machine that has a compiler and no more."""

    @classmethod
    def setUpClass(cls):
        if shutil.which("meson") is None:
            raise unittest.SkipTest("there is no meson to ask")
        with tempfile.TemporaryDirectory(prefix="dloader-missing-") as folder:
            # No library is found, and so neither is any that meson itself knows how to look for.
            done = subprocess.run(
                ["meson", "setup", folder, SYSTEMD.parent, "-Dtests=false", "-Dpython=enabled",
                 "-Dsentencepiece=disabled"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                env={**os.environ, "PKG_CONFIG_LIBDIR": folder}, check=False)
        cls.status, cls.told = done.returncode, done.stdout

    def line(self, beginning):
        found = re.search(rf"^ *{beginning} (.*)$", self.told, re.MULTILINE)
        self.assertIsNotNone(found, self.told)
        return set(found.group(1).split())

    def test_it_is_refused(self):
        self.assertNotEqual(self.status, 0, self.told)

    def test_debians_packages_are_named_at_once(self):
        told = self.line("Debian, Ubuntu: apt install")
        self.assertLessEqual({"libuv1-dev", "libcurl4-openssl-dev"}, told)
        # Those of an option that nobody has asked for, or that is off, are not.
        self.assertEqual(told & {"libmicrohttpd-dev", "libsentencepiece-dev"}, set())
        self.assertEqual(told - list_of_dev("build_packages"), set())

    def test_fedoras_packages_are_named_at_once(self):
        told = self.line("Fedora: +dnf install")
        self.assertLessEqual({"libuv-devel", "libcurl-devel"}, told)
        self.assertEqual(len(told), len(self.line("Debian, Ubuntu: apt install")))

    def test_the_libraries_are_named(self):
        self.assertRegex(self.told, r"missing: .*libcurl >= 7\.85, .*libuv")


if __name__ == "__main__":
    unittest.main()
