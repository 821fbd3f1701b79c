"""Files of every kind that datasets are read from, made with the standard library alone, the same
bytes in every run.
"""

import io
import json
import random
import struct
import tarfile
import zlib


def png(name, width, height):
    """A picture in the format's simplest form: RGB, no filters."""
    rng = random.Random(name)
    rows = b"".join(b"\0" + rng.randbytes(3 * width) for _ in range(height))

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def pictures(folder, count, classes=3):
    """A folder of images: folder/class<c>/<i>.png, of many shapes."""
    for i in range(count):
        directory = folder / f"class{i % classes}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{i:04}.png").write_bytes(png(f"{folder.name}{i}", 20 + i % 13, 18 + i % 7))


def words(name, count):
    """Lines of 0 to 11 words, some of them not ASCII."""
    rng = random.Random(name)
    some = "the of a loader würde données λόγος token batch".split()
    return [" ".join(rng.choices(some, k=rng.randrange(12))) for _ in range(count)]


def shard(path, first, count):
    """A WebDataset shard: samples first..first+count-1 of many kinds of field."""
    with tarfile.open(path, "w") as tar:
        for i in range(first, first + count):
            rng = random.Random(i)
            fields = {"cls": str(i).encode(), "txt": words(str(i), 1)[0].encode(),
                      "bin": rng.randbytes(rng.randrange(50)), "png": png(str(i), 16 + i % 5, 17),
                      "json": json.dumps({"i": i, "half": i / 2, "tags": ["a" * (i % 4), "b"]}).encode()}
            for extension, data in fields.items():
                info = tarfile.TarInfo(f"{i:05}.{extension}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def csv(count):
    return "name,price\n" + "".join(f"thing {i},{i / 4}\n" for i in range(count))


def fasta(name, count):
    rng = random.Random(name)
    return "".join(f">r{i}\n{''.join(rng.choices('ACGTN', k=rng.randrange(5, 60)))}\n"
                   for i in range(count))
