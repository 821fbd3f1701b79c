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

import arrow_files


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


def wav(samples, channels, rate):
    """A WAV file of 16 bits; the samples of each frame's channels one after another."""
    data = struct.pack(f"<{len(samples)}h", *samples)
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, channels, rate,
                       2 * channels * rate, 2 * channels, 16, b"data", len(data))
    return head + data


def _crc(data, polynomial, bits):
    rest = 0
    for byte in data:
        rest ^= byte << bits - 8
        for _ in range(8):
            rest = (rest << 1 ^ (polynomial if rest >> bits - 1 else 0)) & (1 << bits) - 1
    return rest.to_bytes(bits // 8, "big")


def flac(samples, channels, rate, block=1024):
    """A FLAC file (RFC 9639) of 16 bits, likewise: in frames that are not compressed."""
    frames = len(samples) // channels
    numbers = rate << 44 | channels - 1 << 41 | 15 << 36 | frames
    info = struct.pack(">HH6x", block, block) + numbers.to_bytes(8, "big") + bytes(16)
    out = b"fLaC" + struct.pack(">I", 0x80000000 | len(info)) + info
    for number, first in enumerate(range(0, frames, block)):
        count = min(block, frames - first)
        head = b"\xff\xf8\x70" + bytes([channels - 1 << 4 | 8, number]) + struct.pack(">H", count - 1)
        frame = head + _crc(head, 0x07, 8)
        for channel in range(channels):
            own = samples[first * channels + channel:(first + count) * channels:channels]
            frame += b"\x02" + struct.pack(f">{count}h", *own)
        out += frame + _crc(frame, 0x8005, 16)
    return out


def sound(name, i):
    """(ending, bytes) of a WAV or FLAC file, of one of several rates, numbers of channels and lengths."""
    rng = random.Random(f"{name}{i}")
    channels, rate = 1 + i % 2, (8000, 11025, 16000)[i // 2 % 3]
    samples = [rng.randrange(-32768, 32768) for _ in range(channels * (100 + 37 * i))]
    return ("wav", wav(samples, channels, rate)) if i % 5 else ("flac", flac(samples, channels, rate))


def sounds(folder, count, classes=3):
    """A folder of sounds: folder/class<c>/<i>.wav or .flac."""
    for i in range(count):
        directory = folder / f"class{i % classes}"
        directory.mkdir(parents=True, exist_ok=True)
        ending, data = sound(folder.name, i)
        (directory / f"{i:04}.{ending}").write_bytes(data)


def sound_shard(path, count):
    """A WebDataset shard of sounds and their numbers."""
    with tarfile.open(path, "w") as tar:
        for i in range(count):
            ending, data = sound("shard", i)
            for extension, content in ((ending, data), ("cls", str(i).encode())):
                info = tarfile.TarInfo(f"{i:05}.{extension}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def sound_columns(folder, count):
    """The same as columns speech and id: arrow.arrow, of structs of bytes and path, and
    parquet.parquet, of bytes."""
    files = [sound("shard", i)[1] for i in range(count)]
    folder.mkdir()
    parquet(folder / "parquet.parquet", {"speech": files, "id": list(range(count))}, 7)
    rows = [((data, None), i) for i, data in enumerate(files)]
    columns = [("speech", ("struct", [("bytes", "binary"), ("path", "string")])), ("id", "int64")]
    arrow_files.write(folder / "arrow.arrow", columns, [rows[at:at + 9] for at in range(0, count, 9)])


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


def litdata_item(leaves):
    """An item of litData's: bytes of each leaf, and these."""
    return struct.pack(f"<{len(leaves)}I", *map(len, leaves)) + b"".join(leaves)


def litdata_chunk(items):
    at = 4 * (len(items) + 2)
    table = [len(items), at]
    for item in items:
        table.append(table[-1] + len(item))
    return struct.pack(f"<{len(table)}I", *table) + b"".join(items)


def litdata_index(folder, keys, formats, chunks, **config):
    """index.json of samples {key: leaf}, or of bare leaves where there are no keys. `chunks`: of each its
    name, bytes, items, and tokens or None."""
    def spec(kind, context, children):
        return {"type": kind, "context": context, "children_spec": children}

    leaf = spec(None, None, [])
    tree = spec("builtins.dict", json.dumps(keys), [leaf] * len(keys)) if keys else leaf
    (folder / "index.json").write_text(json.dumps({
        "chunks": [{"chunk_bytes": size, "chunk_size": items, "dim": tokens, "filename": name}
                   for name, size, items, tokens in chunks],
        "config": {"chunk_bytes": 1 << 26, "chunk_size": None, "compression": None, "data_format": formats,
                   "data_spec": json.dumps([1, tree]), "encryption": None,
                   "item_loader": "PyTreeLoader", **config}}))


def litdata(folder, count, chunks=3):
    """What litData's optimize() writes of leaves of several formats. Returns the samples as
    (id, half, text, ids, matrix)."""
    formats = {"id": "int", "half": "float", "even": "bool", "text": "str", "ids": "no_header_tensor:14",
               "matrix": "tensor", "picture": "jpeg", "raw": "pil"}
    samples, index = [], []
    folder.mkdir()
    for chunk in range(chunks):
        items = []
        for i in range(count * chunk // chunks, count * (chunk + 1) // chunks):
            text, ids, matrix = words(str(i), 1)[0], list(range(i % 7)), [i, -i, 7, i * i % 1000, 0, 1]
            samples.append((i, i / 2, text, ids, matrix))
            items.append(litdata_item([
                struct.pack("<q", i), struct.pack("<d", i / 2), bytes([i % 2 == 0]), text.encode(),
                struct.pack(f"<{len(ids)}h", *ids), struct.pack(">IIII", 15, 2, 2, 3) + struct.pack("<6i", *matrix),
                png(f"lit{i}", 16 + i % 5, 17), struct.pack("<III", 2, 1, 1) + b"L" + bytes([i % 256, 3])]))
        data, name = litdata_chunk(items), f"chunk-0-{chunk}.bin"
        (folder / name).write_bytes(data)
        index.append((name, len(data), len(items), None))
    litdata_index(folder, list(formats), list(formats.values()), index)
    return samples


def litdata_tokens(folder, lengths):
    """What it writes for a TokensLoader: documents of uint16, so many tokens in each chunk. Returns these."""
    rng, tokens, index = random.Random("litdata"), [], []
    folder.mkdir()
    for chunk, length in enumerate(lengths):
        own, items = [rng.randrange(1 << 16) for _ in range(length)], []
        while sum(map(len, items)) < length:
            at = sum(map(len, items))
            items.append(own[at:at + rng.randrange(1, 41)])
        data, name = litdata_chunk([struct.pack(f"<{len(item)}H", *item) for item in items]), f"chunk-0-{chunk}.bin"
        (folder / name).write_bytes(data)
        tokens.append(own)
        index.append((name, len(data), len(items), length))
    litdata_index(folder, [], ["no_header_numpy:5"], index, item_loader="TokensLoader")
    return tokens


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


class Thrift:
    """What Parquet's headers and footers are written in: a struct of the compact protocol."""

    def __init__(self):
        self.data, self.last = b"", 0

    @staticmethod
    def varint(n):
        out = b""
        while n >= 128:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])

    def head(self, number, kind):
        self.data += bytes([number - self.last << 4 | kind])
        self.last = number

    def int(self, number, value, kind=5):
        self.head(number, kind)
        self.data += self.varint(value << 1 if value >= 0 else (-value << 1) - 1)
        return self

    def text(self, number, value):
        self.head(number, 8)
        self.data += self.varint(len(value)) + value
        return self

    def struct(self, number, value):
        self.head(number, 12)
        self.data += value.end()
        return self

    def list(self, number, kind, items):
        self.head(number, 9)
        self.data += bytes([0xF0 | kind]) + self.varint(len(items)) + b"".join(items)
        return self

    def end(self):
        return self.data + b"\0"


def parquet(path, columns, group, paged=0, gap=0):
    """A Parquet file of plain pages, `group` rows in each row group. Columns are lists of int, float,
    str or bytes, or of lists of int. `paged`: so many rows in each page, with an index of them, which
    is so many bytes before the file's end."""
    sorts = {int: (2, "q"), float: (5, "d"), str: (6, None), bytes: (6, None), list: (2, "q")}

    def plain(values):
        _, letter = sorts[type(values[0])] if values else (2, "q")
        if letter:
            return struct.pack(f"<{len(values)}{letter}", *values)
        raw = [value.encode() if isinstance(value, str) else value for value in values]
        return b"".join(struct.pack("<I", len(value)) + value for value in raw)

    def levels(ones):
        """One bit for each, in a run of bits behind its length."""
        bits = [sum(bit << k for k, bit in enumerate(ones[i:i + 8])) for i in range(0, len(ones), 8)]
        run = Thrift.varint(len(bits) << 1 | 1) + bytes(bits)
        return struct.pack("<I", len(run)) + run

    def page(values):
        if not isinstance(values[0], list):
            return len(values), plain(values)
        slots = [(k > 0, 1) for row in values for k in range(len(row))] if all(values) else [
            slot for row in values for slot in ([(k > 0, 1) for k in range(len(row))] or [(False, 0)])]
        flat = [item for row in values for item in row]
        return len(slots), levels([rep for rep, _ in slots]) + levels([d for _, d in slots]) + plain(flat)

    schema = [Thrift().text(4, b"schema").int(5, len(columns)).end()]
    for name, values in columns.items():
        kind = type(values[0])
        element = Thrift().int(1, sorts[kind][0]).int(3, 2 if kind is list else 0).text(4, name.encode())
        schema.append((element.int(6, 0) if kind is str else element).end())
    rows, out, groups = len(next(iter(columns.values()))), bytearray(b"PAR1"), []
    for first in range(0, rows, group):
        chunks, end = [], min(first + group, rows)
        for name, values in columns.items():
            begin, total, places = len(out), 0, []
            for row in range(first, end, paged or group):
                n, body = page(values[row:min(row + (paged or group), end)])
                head = Thrift().int(1, 0).int(2, len(body)).int(3, len(body)).struct(
                    5, Thrift().int(1, n).int(2, 0).int(3, 3).int(4, 3)).end()
                places.append(Thrift().int(1, len(out), 6).int(2, len(head + body)).int(3, row - first, 6).end())
                total += n
                out += head + body
            size = len(out) - begin
            meta = Thrift().int(1, sorts[type(values[0])][0]).list(2, 5, [b"\0"]).list(
                3, 8, [Thrift.varint(len(name)) + name.encode()]).int(4, 0).int(5, total, 6).int(
                    6, size, 6).int(7, size, 6).int(9, begin, 6)
            chunks.append((Thrift().int(2, begin, 6).struct(3, meta), Thrift().list(1, 12, places).end()))
        groups.append((chunks, end - first))
    for i, (chunks, count) in enumerate(groups):
        for k, (chunk, index) in enumerate(chunks):
            if paged:
                chunk.int(4, len(out), 6).int(5, len(index))
                out += index
            chunks[k] = chunk.end()
        groups[i] = Thrift().list(1, 12, chunks).int(2, 0, 6).int(3, count, 6).end()
    out += bytes(gap)
    footer = Thrift().int(1, 1).list(2, 12, schema).int(3, rows, 6).list(4, 12, groups).end()
    with open(path, "xb") as file:
        file.write(out + footer + struct.pack("<I", len(footer)) + b"PAR1")


def arrow(folder, count, shards=2):
    """What Dataset.save_to_disk() of Hugging Face writes: numbers, a fixed list, tokens of several
    lengths, texts of which some are null, and pictures. Returns (tokens, text) of each row."""
    columns = [("id", "int64"), ("pair", ("fixed", 2, "float32")), ("tokens", ("list", "int64")),
               ("text", "string"), ("picture", ("struct", [("bytes", "binary"), ("path", "string")]))]
    rows = [(i, (i / 2, -i), [7 * i + k for k in range(1 + i % 9)], words(str(i), 1)[0] if i % 4 else None,
             (png(f"arrow{i}", 9 + i % 3, 8), None)) for i in range(count)]
    names = [f"data-{shard:05}-of-{shards:05}.arrow" for shard in range(shards)]
    folder.mkdir()
    for shard, name in enumerate(names):
        own = rows[shard * count // shards:(shard + 1) * count // shards]
        arrow_files.write(folder / name, columns, [own[at:at + 7] for at in range(0, len(own), 7)],
                          {"picture": {"_type": "Image"}})
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    return [(row[2], row[3]) for row in rows]


def lmdb(folder, records, page=4096):
    """An LMDB environment of the records, a dict of bytes, as data.mdb of the folder: leaves,
    branches, and pages of their own for what is larger than a third of a page.
    """
    pages, level = [b"", b""], []

    def add(kind, nodes):
        offsets, body, at = b"", b"", page
        for node in nodes:
            at -= len(node)
            offsets, body = offsets + struct.pack("<H", at), node + body
        head = struct.pack("<QHHHH", len(pages), 0, kind, 16 + len(offsets), at)
        pages.append((head + offsets).ljust(at, b"\0") + body)
        return len(pages) - 1

    def pack(kind, nodes):
        """Pages of the nodes, (key, node) each; returns (key of the first, number) of each page."""
        made, own, room = [], [], page - 16
        for key, node in [*nodes, (None, None)]:
            if key is None or len(node) + 2 > room:
                made.append((own[0][0], add(kind, [one for _, one in own])))
                own, room = [], page - 16
            if key is not None:
                own.append((key, node))
                room -= len(node) + 2
        return made

    def node(head, key, value=b""):
        return (head + struct.pack("<H", len(key)) + key + value).ljust(8 + len(key + value) + 1 & ~1, b"\0")

    for key, value in sorted(records.items()):
        flags, stored = 0, value
        if len(key + value) > page // 3:
            flags, stored, count = 1, struct.pack("<Q", len(pages)), -(-(len(value) + 16) // page)
            body = struct.pack("<QHHI", len(pages), 0, 4, count) + value
            body = body.ljust(count * page, b"\0")
            pages.extend(body[i * page:(i + 1) * page] for i in range(count))
        level.append((key, node(struct.pack("<IH", len(value), flags), key, stored)))
    level, depth = pack(2, level), 1
    while len(level) > 1:
        heads = [(key if i else b"", number) for i, (key, number) in enumerate(level)]
        level = pack(1, [(key, node(struct.pack("<IH", number & 0xFFFFFFFF, number >> 32), key))
                         for key, number in heads])
        depth += 1
    for k in range(2):
        head = struct.pack("<QHHI", k, 0, 8, 0) + struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, page * len(pages))
        free = struct.pack("<IHHQQQQQ", page, 0, 0, 0, 0, 0, 0, (1 << 64) - 1)
        main = struct.pack("<IHHQQQQQ", 0, 0, depth, 0, 0, 0, len(records), level[0][1])
        pages[k] = (head + free + main + struct.pack("<QQ", len(pages) - 1, k)).ljust(page, b"\0")
    folder.mkdir()
    (folder / "data.mdb").write_bytes(b"".join(pages))
