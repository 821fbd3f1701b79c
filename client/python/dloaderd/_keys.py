"""Keys of samples as the words that are fed to the daemon: numbers as they are, all else pickled."""

from __future__ import annotations

import array
import os
import pickle
import sys
import zlib
from collections.abc import Callable
from typing import Any

# First word of a step whose keys are no integers; no dataset has such an index.
KEYS_MARK = 0x80646C6B65797300
KEYS_MARK_SIGNED = KEYS_MARK - (1 << 64)

# Words of one step that can be fed at most.
MAX_WORDS = 65536


class _Deflated:
    """A list of keys whose pickle is small; unpickled it is that list."""

    def __init__(self, data: bytes) -> None:
        self.data = zlib.compress(data, 1)

    def __reduce__(self) -> tuple:
        return _inflated, (self.data,)


def _inflated(data: bytes) -> list:
    return pickle.loads(zlib.decompress(data))


class _Filed:
    """A list of keys whose pickle is in a file without a name; unpickled it is that list."""

    def __init__(self, data: bytes) -> None:
        self._fd = os.memfd_create("dloader-keys", os.MFD_CLOEXEC)
        with open(os.dup(self._fd), "wb") as file:
            file.write(data)

    def __reduce__(self) -> tuple:
        return _read, (f"/proc/{os.getpid()}/fd/{self._fd}",)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._fd)


def _read(path: str) -> list:
    with open(path, "rb") as file:
        return pickle.load(file)


def _pickled(keys: list) -> tuple[bytes, _Filed | None]:
    """And what must be kept until the pickle has been read."""
    data, most = pickle.dumps(keys, protocol=5), 8 * (MAX_WORDS - 2)
    if len(data) <= most:
        return data, None
    deflated = pickle.dumps(_Deflated(data), protocol=5)
    if len(deflated) <= most:
        return deflated, None
    filed = _Filed(data)
    return pickle.dumps(filed, protocol=5), filed


def pickled_words(keys: list) -> tuple[array.array, Any]:
    """mark, number of bytes, the pickle of the list in as many words as it takes, padded with 0. And what must
    be kept until it has been read.
    """
    try:
        data, kept = _pickled(keys)
    except Exception as error:
        raise TypeError(f"the sampler's keys {keys!r:.200} cannot be sent to the workers: {error}; "
                        "let it give integers or strings") from error
    words = array.array("q", (KEYS_MARK_SIGNED, len(data)))
    padded = array.array("q", data + bytes(-len(data) % 8))
    if sys.byteorder == "big":
        padded.byteswap()
    words.extend(padded)
    return words, kept


def words(keys: Any, most: int) -> tuple[Any, Any]:
    """What Epoch.feed_batch() takes for a list of keys: up to `most` integers as they are, all else pickled.
    And what must be kept until the batch is there.
    """
    if type(keys) is memoryview:  # of _blocks
        if len(keys) <= most:
            return keys, None
        keys = keys.tolist()
    if 0 < len(keys) <= most and all(type(key) is int for key in keys) and KEYS_MARK_SIGNED not in keys[:1]:
        try:
            return array.array("q", keys), None
        except OverflowError:
            pass  # beyond 64 bits: a dict may have such a key
    return pickled_words(keys)
