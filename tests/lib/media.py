"""Files of every kind that datasets are read from, made with the standard library alone, the same
bytes in every run.
"""

import gzip
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


def megatron(prefix, count):
    """Megatron-LM's PREFIX.bin and PREFIX.idx: documents of 1 to 40 tokens of 16 bits. Returns the
    documents.
    """
    rng = random.Random("megatron")
    documents = [[rng.randrange(1 << 16) for _ in range(rng.randrange(1, 41))] for _ in range(count)]
    lengths = [len(tokens) for tokens in documents]
    offsets = [2 * sum(lengths[:i]) for i in range(count)]
    with open(f"{prefix}.bin", "xb") as file:
        file.write(b"".join(struct.pack(f"<{len(tokens)}H", *tokens) for tokens in documents))
    with open(f"{prefix}.idx", "xb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1)
                   + struct.pack(f"<{count}i", *lengths) + struct.pack(f"<{count}q", *offsets)
                   + struct.pack(f"<{count + 1}q", *range(count + 1)))
    return documents


def mds(folder, count, shards=3):
    """An MDS dataset of columns of several encodings; the last shard is compressed alone. Returns
    the samples as (id, text, array).
    """
    columns = [("array", "ndarray:int16:2,2", 8), ("id", "int", 8), ("picture", "png", None),
               ("text", "str", None)]
    samples, index = [], []
    folder.mkdir()
    for shard in range(shards):
        own = list(range(count * shard // shards, count * (shard + 1) // shards))
        bodies = []
        for i in own:
            text, array = words(str(i), 1)[0], [i, -i, 7, i * i % 1000]
            picture, encoded = png(f"mds{i}", 16 + i % 5, 17), text.encode()
            samples.append((i, text, array))
            bodies.append(struct.pack("<II", len(picture), len(encoded)) + struct.pack("<4h", *array)
                          + struct.pack("<q", i) + picture + encoded)
        name, at = f"shard.{shard:05}.mds", 4 * (len(own) + 2)
        table = [len(own), at]
        for body in bodies:
            table.append(table[-1] + len(body))
        data = struct.pack(f"<{len(table)}I", *table) + b"".join(bodies)
        packed = shard == shards - 1
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(data, mtime=0) if packed else data)
        index.append({
            "column_encodings": [encoding for _, encoding, _ in columns],
            "column_names": [column for column, _, _ in columns],
            "column_sizes": [size for _, _, size in columns],
            "compression": "gz" if packed else None, "format": "mds", "hashes": [],
            "raw_data": {"basename": name, "bytes": len(data), "hashes": {}}, "samples": len(own),
            "size_limit": 1 << 26, "version": 2,
            "zip_data": {"basename": f"{name}.gz", "bytes": 0, "hashes": {}} if packed else None})
    (folder / "index.json").write_text(json.dumps({"shards": index, "version": 2}))
    return samples


def crc32c(data):
    """Bit by bit, as RFC 3720 has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def tfrecord(path, first, count):
    """A TFRecord file of Examples: text, picture, label, and floats of several lengths."""
    def masked(data):
        crc = crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    def varint(n):
        out = b""
        while n >= 128:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])

    def field(number, data):
        return varint(number << 3 | 2) + varint(len(data)) + data

    with open(path, "xb") as file:
        for i in range(first, first + count):
            rng = random.Random(i)
            lists = {"text": (1, field(1, words(str(i), 1)[0].encode())),
                     "picture": (1, field(1, png(f"record{i}", 9 + i % 3, 8))),
                     "label": (3, field(1, varint(i))),
                     "floats": (2, field(1, struct.pack(f"<{i % 4}f", *range(i % 4))))}
            order = rng.sample(sorted(lists), 4)  # a hash table's, as TensorFlow's
            example = field(1, b"".join(
                field(1, field(1, name.encode()) + field(2, field(*lists[name]))) for name in order))
            head = struct.pack("<Q", len(example))
            file.write(head + masked(head) + example + masked(example))
