"""Photographs that are kept decoded (dataset.cache): batches a second with none, half and all of them kept.

    PYTHON cached_pictures.py --build BUILD [--epochs N] [--rounds N] [--large]

PYTHON has Pillow, which makes the photographs, as photos.py has them. RandomResizedCrop(224) and a flip, to
uint8, 2 workers; --large: fewer photographs, of 3 megapixels. A daemon of its own; each run's first epochs fill
the memory, and later ones are measured. Runs take turns; printed are medians, and ratios of the same turns;
processor time is what other programs of the machine change least.

Bars: half: processor time within 10 % of the mean of the other two; all >= 5 x none. With AVX-512, beside a load
of 18, half takes 1.00 of the mean, and all is 5.17 x none, 5.75 x by processor time: 0.131 of 0.754 ms are left
without decoding, of which perf finds half in the two passes of resizing, 12 % in writing the batch, 10 % in waiting
for kept pixels and 7 % in the weights.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import photos

COUNT, LARGE_COUNT, LARGE = 320, 48, (2000, 1500)
LINGER = 2  # seconds; loaders of one folder share what the first of them has
FILL = 3  # epochs before those that are measured
MIB = 1 << 20


def decoded_bytes(folder):
    sizes = [photos.Image.open(path).size for path in folder.rglob("*.jpg")]
    return sum(64 + -(-3 * w * h // 64) * 64 for w, h in sizes)


def spec(folder, name, cache):
    dataset = {"kind": "imagefolder", "paths": str(folder), "layout": "chw",
               "transforms": [{"kind": "RandomResizedCrop", "size": 224}, "RandomHorizontalFlip"]}
    if cache:
        dataset["cache"] = cache
    return {"name": name, "dataset": dataset, "sampler": {"kind": "random"}, "seed": 1,
            "batch": {"size": 32}, "workers": {"count": 2}}


class Runs:
    def __init__(self, build, directory, count):
        self.count = count
        self.dlctl = build / "client/dlctl/dlctl"
        self.directory = directory
        self.env = {**os.environ, "DLOADER_SOCKET": str(directory / "socket")}
        config = directory / "dloaderd.conf"
        config.write_text(json.dumps({"worker": str(build / "daemon/dloader-worker"), "linger": f"{LINGER}s"}))
        self.daemon = subprocess.Popen([build / "daemon/dloaderd", "--socket", directory / "socket",
                                        "--config", config], stderr=subprocess.DEVNULL)
        while not (directory / "socket").exists():
            time.sleep(0.05)

    def run(self, name, cache, epochs):
        path = self.directory / f"{name}.yaml"
        path.write_text(json.dumps(spec(self.directory / "photos", name, cache)))
        text = subprocess.run([self.dlctl, "run", path, "--socket", self.directory / "socket", "--epochs",
                               str(epochs), "--json"], check=True, env=self.env, stdout=subprocess.PIPE,
                              text=True).stdout
        return json.loads(text)

    def busy(self, name):
        """Processor time that the loader's workers have used, in seconds."""
        text = subprocess.run([self.dlctl, "workers", "--socket", self.directory / "socket", "--json"],
                              check=True, stdout=subprocess.PIPE, text=True).stdout
        return sum(row["cpu_s"] for row in json.loads(text) if row["loader"] == name)

    def measure(self, name, cache, epochs):
        """(batches a second, ms of a processor for one picture) of epochs after the first ones, while the
        loader lingers."""
        self.run(name, cache, FILL)
        busy, begin = self.busy(name), time.perf_counter()
        batches = self.run(name, cache, epochs)["batches"]
        took = time.perf_counter() - begin
        busy = self.busy(name) - busy
        time.sleep(LINGER + 1)
        return batches / took, 1000 * busy / (epochs * self.count)


def report(runs):
    for name, of in runs.items():
        rate, busy = (statistics.median(run[i] for run in of) for i in range(2))
        times = [statistics.median(a[0] / b[0] for a, b in zip(of, runs["none"])),
                 statistics.median(b[1] / a[1] for a, b in zip(of, runs["none"]))]
        print(f"{name:6} {rate:8.1f} batches/s, {times[0]:.2f} x none; "
              f"{busy:6.3f} ms of a processor a picture, 1 / {times[1]:.2f}")
    half = statistics.median(2 * h[1] / (n[1] + a[1])
                             for h, n, a in zip(runs["half"], runs["none"], runs["all"]))
    print(f"half takes {half:.2f} of the mean of none and all, of a processor")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    if not photos.can_make():
        sys.exit(f"{sys.executable} has no Pillow, which makes the photographs; name another interpreter")
    with tempfile.TemporaryDirectory(prefix="bench-cached-") as name:
        directory = pathlib.Path(name)
        (directory / "photos").mkdir()
        if args.large:
            photos.SIZES = (LARGE,)
        count = LARGE_COUNT if args.large else COUNT
        photos.make(str(directory / "photos"), count)
        whole = decoded_bytes(directory / "photos")
        time.sleep(0.2)  # what was written just now is not kept
        sizes = {"none": 0, "half": int(whole / 2 * 1.01), "all": int(whole * 1.05) + MIB}
        print(f"load {os.getloadavg()[0]:.2f} at the start; {count} pictures, {whole / MIB:.0f} MiB decoded")
        runs = Runs(args.build.resolve(), directory, count)
        rates = {name: [] for name in sizes}
        try:
            for turn in range(args.rounds):
                for name, cache in sizes.items():
                    rates[name].append(runs.measure(f"{name}{turn}", cache, args.epochs))
        finally:
            runs.daemon.terminate()
            runs.daemon.wait()
    report(rates)


if __name__ == "__main__":
    main()
