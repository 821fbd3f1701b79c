"""What pictures that a dataset's own code opens cost it, beside Pillow alone: kinds of files by ways of using them.

    PYTHON picture_access.py --build BUILD [--runs N] [--least RATIO] [USE ...]

In one process, whose Pillow is by turns as it is and as in a worker: processor time of a picture, the least of N runs
of several, so that a busy machine changes little. Printed is Pillow's time and its ratio to ours; below RATIO (0.98) it
is marked, and the exit status is 1.
"""

import argparse
import io
import os
import pathlib
import sys
import time

SIZES = (16, 16), (48, 64), (150, 200), (375, 500), (768, 1024)
MODES = "RGB", "L", "CMYK"
RUN_S = 0.0015


def uses(numpy, transforms, ops):
    return {
        "load": lambda p: p.load()[0, 0],
        "RGB load": lambda p: p.convert("RGB").load()[0, 0],
        "getpixel": lambda p: p.getpixel((0, 0)),
        "RGB getpixel": lambda p: p.convert("RGB").getpixel((0, 0)),
        "size": lambda p: p.size,
        "tobytes": lambda p: p.tobytes(),
        "asarray": lambda p: numpy.asarray(p),
        "RGB asarray": lambda p: numpy.asarray(p.convert("RGB")),
        "L asarray": lambda p: numpy.asarray(p.convert("L")),
        "RGB to_tensor": lambda p: transforms.to_tensor(p.convert("RGB")),
        "histogram": lambda p: p.histogram(),
        "split": lambda p: p.split(),
        "rotate": lambda p: p.convert("RGB").rotate(33),
        "loaded, histogram": lambda p: (p.load(), p.histogram()),
        "crop load": lambda p: p.convert("RGB").crop((0, 0, 12, 12)).load()[0, 0],
        "resize load": lambda p: p.convert("RGB").resize((12, 12)).load()[0, 0],
        "autocontrast": lambda p: ops.autocontrast(p.convert("RGB")),
        "exif_transpose": lambda p: ops.exif_transpose(p).load()[0, 0],
    }


def timed(opener, data, use):
    """Seconds of a processor for one."""
    n, begin = 0, time.process_time()
    while (spent := time.process_time() - begin) < RUN_S:
        use(opener(io.BytesIO(data)))
        n += 1
    return spent / n


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--least", type=float, default=0.98)
    parser.add_argument("uses", nargs="*", metavar="USE")
    args = parser.parse_args()
    here = pathlib.Path(__file__).resolve().parent
    sys.path[:0] = [str(args.build.resolve() / "client/python"), str(here.parent / "python"), str(here.parent / "lib")]
    import numpy
    from PIL import ImageOps
    from torchvision.transforms import functional
    from dloaderd import _lazy
    from pillow_files import openers, paint, saved

    print(f"load {os.getloadavg()[0]:.2f}; Pillow's microseconds, and so many times as fast")
    everything, slow = uses(numpy, functional, ImageOps), 0
    for name in args.uses or everything:
        for mode in MODES:
            cells = []
            for size in SIZES:
                data = saved(paint(*size, seed=1).convert(mode))
                best = {}
                for _ in range(args.runs):
                    for opener in openers():
                        took = timed(opener, data, everything[name])
                        best[opener] = min(best.get(opener, took), took)
                theirs, ours = best[_lazy._open], best[_lazy.open_lazily]
                slow += theirs / ours < args.least
                cells.append(f"{theirs * 1e6:6.0f} {theirs / ours:5.2f}{'!' if theirs / ours < args.least else ' '}")
            print(f"{name:18} {mode:5} {'  '.join(cells)}", flush=True)
    sys.exit(slow > 0)


if __name__ == "__main__":
    main()
