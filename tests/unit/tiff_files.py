"""TIFF files as Pillow does not write them: tiles, planes, both byte orders, BigTIFF, any tags (TIFF 6.0)."""

import struct
import zlib

import numpy as np

_CODES = {3: "H", 4: "I", 16: "Q"}


def _packed(block, bits, order):
    """Samples [height, width, n] as a strip or a tile has them: rows begin at whole bytes."""
    if bits == 16:
        return block.astype(f"{order}u2").tobytes()
    if bits == 8:
        return block.astype(np.uint8).tobytes()
    rows = []
    for row in block.reshape(block.shape[0], -1):
        digits = "".join(f"{int(v):0{bits}b}" for v in row)
        digits += "0" * (-len(digits) % 8)
        rows.append(int(digits, 2).to_bytes(len(digits) // 8, "big"))
    return b"".join(rows)


def _blocks(samples, tile, rows):
    height, width = samples.shape[:2]
    if tile is None:
        return [samples[y:y + rows] for y in range(0, height, rows)]
    padded = np.zeros((-(-height // tile[0]) * tile[0], -(-width // tile[1]) * tile[1], samples.shape[2]),
                      samples.dtype)
    padded[:height, :width] = samples
    return [padded[y:y + tile[0], x:x + tile[1]] for y in range(0, padded.shape[0], tile[0])
            for x in range(0, padded.shape[1], tile[1])]


def tiff(samples, photometric, bits=8, order="<", big=False, tile=None, rows=None, planar=1, deflate=False,
         extra=None, colours=None, **tags):
    """samples: numbers [height, width, n]. tile: (height, width), multiples of 16; else strips of `rows`. colours: a
    palette [3, 2 ** bits] of 16 bits. tags: by number, as t274=6, in their places or instead of others."""
    height, width, n = samples.shape
    planes = [samples[:, :, i:i + 1] for i in range(n)] if planar == 2 else [samples]
    blocks = [_packed(block, bits, order) for plane in planes for block in _blocks(plane, tile, rows or height)]
    if deflate:
        blocks = [zlib.compress(block) for block in blocks]
    at, body = (16 if big else 8), b""
    offsets = []
    for block in blocks:
        offsets.append(at + len(body))
        body += block + b"\0" * (len(block) % 2)
    wide = 16 if big else 4
    entries = {256: (4, [width]), 257: (4, [height]), 258: (3, [bits] * n), 259: (3, [8 if deflate else 1]),
               262: (3, [photometric]), 277: (3, [n]), 284: (3, [planar])}
    if tile is None:
        entries |= {273: (wide, offsets), 278: (4, [rows or height]), 279: (wide, [len(b) for b in blocks])}
    else:
        entries |= {322: (4, [tile[1]]), 323: (4, [tile[0]]), 324: (wide, offsets),
                    325: (wide, [len(b) for b in blocks])}
    if extra is not None:
        entries[338] = (3, list(extra))
    if colours is not None:
        entries[320] = (3, [int(v) for v in np.asarray(colours).flatten()])
    entries |= {int(tag[1:]): (3, value if isinstance(value, list) else [value]) for tag, value in tags.items()}
    return _written(entries, body, order, big)


def _written(entries, body, order, big):
    word, count, room = ("Q", "Q", 8) if big else ("I", "H", 4)
    start = (16 if big else 8) + len(body)
    entry = 20 if big else 12
    after = start + struct.calcsize("<" + count) + entry * len(entries) + room
    directory, more = struct.pack(order + count, len(entries)), b""
    for tag, (kind, values) in sorted(entries.items()):
        data = struct.pack(f"{order}{len(values)}{_CODES[kind]}", *values)
        directory += struct.pack(f"{order}HH{word}", tag, kind, len(values))
        if len(data) > room:
            directory += struct.pack(order + word, after + len(more))
            more += data + b"\0" * (len(data) % 2)
        else:
            directory += data.ljust(room, b"\0")
    mark = b"II" if order == "<" else b"MM"
    head = struct.pack(f"{order}HHHQ", 43, 8, 0, start) if big else struct.pack(f"{order}HI", 42, start)
    return mark + head + body + directory + struct.pack(order + word, 0) + more
