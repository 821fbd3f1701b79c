"""The Debian packages in a bare system of a release of Debian: installed, used, and removed.

    test_debs.py FOLDER RELEASE CHROOTS    FOLDER: with the packages; CHROOTS: keeps bare systems

test_package.py has more of it, on this machine, with systemd.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import bare
import test_wheel

FOLDER, SYSTEM = pathlib.Path(), None  # set by the command line
NAMES = ["dlctl", "dloaderd", "libdlclient-dev", "libdlclient0", "python3-dloaderd"]
# In order; what it prints is told.
LIFE = r"""
set -e
export DEBIAN_FRONTEND=noninteractive
find / -xdev -path /proc -prune -o -path /tmp -prune -o -print | sort >/tmp/before
dpkg --install /packages/*.deb >/tmp/installed 2>&1 || { cat /tmp/installed; exit 1; }
[ -z "$(dpkg --audit)" ]
dlctl --version
dloaderd --socket /tmp/socket >/tmp/log 2>&1 &
while ! dlctl ready --socket /tmp/socket >/dev/null 2>&1; do sleep 0.1; done
for spec in /data/*.yaml; do
    name=$(basename "$spec" .yaml)
    echo "$name $(dlctl check "$spec" --digest --json | sed 's/.*"digest": *"\([^"]*\)".*/\1/') \
$(dlctl run "$spec" --socket /tmp/socket --digest --json | sed 's/.*"digest": *"\([^"]*\)".*/\1/')"
done
python3 -c 'import sys, dloaderd
with dloaderd.Loader(sys.argv[1], as_="numpy") as loader:
    print("python", dloaderd.__version__, sum(len(batch["x"]) for batch in loader))' /data/rows.yaml
kill $!
wait $! || true
dpkg --purge NAMES >/tmp/purged 2>&1 || { cat /tmp/purged; exit 1; }
find / -xdev -path /proc -prune -o -path /tmp -prune -o -print | sort >/tmp/after
comm -13 /tmp/before /tmp/after | grep -vE \
    '^/var/(cache|log|lib/(dpkg|systemd))(/|$)|^/etc/(ld\.so\.cache|\.pwd\.lock|(passwd|group|shadow|gshadow)-?)$' | \
    sed 's/^/left /'
"""


def depends():
    """Packages that those in FOLDER depend on, but for one another."""
    found = set()
    for package in FOLDER.glob("*.deb"):
        told = subprocess.run(["dpkg-deb", "-f", package, "Depends"], stdout=subprocess.PIPE, text=True, check=True)
        found |= {re.match(r"[a-z0-9.+-]+", one.strip())[0] for one in told.stdout.split(",")}
    return sorted(found - set(NAMES))


class Debs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory(prefix="dloader-debs-test-") as folder:
            data = pathlib.Path(folder)
            test_wheel.make_data(data)
            done = SYSTEM.run("sh", "-c", LIFE.replace("NAMES", " ".join(NAMES)),
                              bind={FOLDER: "/packages", data: "/data"})
        if done.returncode:
            raise AssertionError(done.stdout)
        cls.told = [line.split() for line in done.stdout.splitlines()]
        print(done.stdout, file=sys.stderr)

    def test_the_version_is_the_packages(self):
        version = re.search(r"dlctl_([\d.]+)-", next(FOLDER.glob("dlctl_*")).name)[1]
        self.assertEqual(self.told[0], ["dlctl", version])
        self.assertIn(["python", version, "1000"], self.told)

    def test_daemon_and_process_give_the_same(self):
        digests = {words[0]: words[1:] for words in self.told if words[0] in test_wheel.SPECS}
        self.assertEqual(set(digests), set(test_wheel.SPECS))
        for spec, (one, other) in digests.items():
            self.assertRegex(one, "^[0-9a-f]{16,}$", spec)
            self.assertEqual(one, other, spec)

    def test_nothing_is_left(self):
        self.assertEqual([words for words in self.told if words[0] == "left"], [])


if __name__ == "__main__":
    FOLDER = pathlib.Path(sys.argv[1]).resolve()
    try:
        SYSTEM = bare.System(sys.argv[2], sys.argv[3], depends())
    except bare.Impossible as why:
        sys.exit(f"no bare system: {why}")
    unittest.main(argv=sys.argv[:1], verbosity=2)
