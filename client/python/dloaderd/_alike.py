"""python -m dloaderd._alike [--code] OBJECT...: what two machines have to have in common to make the same samples.

A line for each: the interpreter, packages, and the code of the modules that objects, "module:name", are of. With
--code the code alone. Two machines run it, and one compares; see daemon/helper/alike.h.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import platform
import sys

PACKAGES = ("numpy", "torch", "torchvision", "Pillow")


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def code_of(module: str) -> str:
    """Of its own file: what that imports is not looked at."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return "none"
    if not spec.has_location or spec.origin is None:
        return "built-in"
    with open(spec.origin, "rb") as file:
        return hashlib.blake2b(file.read(), digest_size=8).hexdigest()


def lines(objects: list[str], code_alone: bool) -> list[str]:
    told = []
    if not code_alone:
        told.append(f"{platform.python_implementation()} {platform.python_version()}")
        told += [f"{package} {version_of(package)}" for package in PACKAGES]
        told.append(f"bytecode {sys.implementation.cache_tag}")
    modules = dict.fromkeys(name.partition(":")[0] for name in objects)
    return told + [f"code of {module} {code_of(module)}" for module in modules]


if __name__ == "__main__":
    print("\n".join(lines([name for name in sys.argv[1:] if name != "--code"], "--code" in sys.argv[1:])))
