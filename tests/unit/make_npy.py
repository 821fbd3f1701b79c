"""Writes .npy files with NumPy and has check_npy read them: every dtype, every version.

Usage: make_npy.py CHECK_NPY. Exit status 77: no NumPy here.
"""

import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy cannot be imported (Debian: python3-numpy)")
    sys.exit(77)

DTYPES = {
    "bool": "?", "uint8": "u1", "int8": "i1", "uint16": "<u2", "int16": "<i2", "uint32": "<u4",
    "int32": "<i4", "uint64": "<u8", "int64": "<i8", "float16": "<f2", "float32": "<f4",
    "float64": "<f8", "complex64": "<c8", "complex128": "<c16",
}
# How NumPy may have an array in a file; what is read of it is the same.
LAYOUTS = {
    "plain": lambda array: array, "big": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "fortran": np.asfortranarray, "both": lambda array: np.asfortranarray(array.astype(array.dtype.newbyteorder(">"))),
}
SHAPES = [(5,), (1,), (0,), (3, 4), (7, 1), (2, 3, 4), (0, 3), (3, 0), (2, 1, 1, 1, 1, 1, 1, 2)]


def contents(dtype, shape):
    count = int(np.prod(shape))
    raw = np.random.default_rng(count).integers(0, 256, count * np.dtype(dtype).itemsize, np.uint8)
    if dtype == "?":
        raw &= 1
    return raw.view(dtype).reshape(shape)


def write(path, array, version):
    with open(path, "wb") as file:
        np.lib.format.write_array(file, array, version=version, allow_pickle=True)


def accepted(folder):
    for name, dtype in DTYPES.items():
        for shape in SHAPES:
            for layout, version in [*((layout, (1, 0)) for layout in LAYOUTS), ("plain", (2, 0)), ("plain", (3, 0))]:
                array = contents(dtype, shape)
                place = f"{'x'.join(map(str, shape))}-{layout}-{version[0]}"
                path = os.path.join(folder, f"ok-{name}-{place}.npy")
                write(path, LAYOUTS[layout](array), version)
                with open(path + ".raw", "wb") as file:
                    file.write(array.tobytes())
                yield f"ok {path} {name} {len(shape)} {' '.join(map(str, shape))}"


def refused(folder):
    cases = {
        "scalar": (np.array(3.5), "holds a single number"),
        "structured": (np.zeros(3, [("x", "<f4"), ("y", "<i4")]), "holds a structured dtype"),
        "object": (np.array([None, 1], object), "its dtype '|O' is not"),
        "text": (np.array(["ab", "c"]), "its dtype '<U2' is not"),
        "bytes": (np.array([b"ab", b"c"]), "its dtype '|S2' is not"),
        "time": (np.array(["2020-01-01"], "<M8[s]"), "its dtype '<M8[s]' is not"),
        "longdouble": (np.ones(3, np.longdouble), "is not a number type that tensors have"),
        "nine": (np.ones((1,) * 9), "has more than 8 dimensions"),
    }
    for name, (array, message) in cases.items():
        path = os.path.join(folder, f"bad-{name}.npy")
        write(path, array, None)
        yield f"refused {path} {message}"
    path = os.path.join(folder, "bad.npz")
    np.savez(path, a=np.ones(3))
    yield f"refused {path} is a zip archive (.npz)"


def main():
    with tempfile.TemporaryDirectory() as folder:
        lines = [*accepted(folder), *refused(folder)]
        done = subprocess.run([sys.argv[1]], input="\n".join(lines) + "\n", text=True, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
