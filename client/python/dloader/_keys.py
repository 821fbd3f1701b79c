"""Keys of samples as the words that are fed to the daemon: numbers as they are, all else pickled."""

from __future__ import annotations

import array
import pickle
import sys
import zlib
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


def _pickled(keys: list) -> bytes:
    data = pickle.dumps(keys, protocol=5)
    if len(data) <= 8 * (MAX_WORDS - 2):
        return data
    return pickle.dumps(_Deflated(data), protocol=5)


def pickled_words(keys: list) -> array.array:
    """mark, number of bytes, the pickle of the list in as many words as it takes, padded with 0."""
    try:
        data = _pickled(keys)
    except Exception as error:
        raise TypeError(f"the sampler's keys {keys!r:.200} cannot be sent to the workers: {error}; "
                        "let it give integers or strings") from error
    words = array.array("q", (KEYS_MARK_SIGNED, len(data)))
    padded = array.array("q", data + bytes(-len(data) % 8))
    if sys.byteorder == "big":
        padded.byteswap()
    words.extend(padded)
    if len(words) > MAX_WORDS:
        raise ValueError(f"the keys of one batch take {len(data)} bytes, above {8 * (MAX_WORDS - 2)}; let "
                         "the sampler return integers")
    return words


def words(keys: Any) -> Any:
    """What Epoch.feed_batch() takes for a list of keys: the list itself if they are integers."""
    if type(keys) is memoryview:  # of _blocks
        return keys
    if type(keys) is not list:
        keys = list(keys)
    if 0 < len(keys) <= MAX_WORDS and all(type(key) is int for key in keys) and KEYS_MARK_SIGNED not in keys[:1]:
        try:
            return array.array("q", keys)
        except OverflowError:
            pass  # beyond 64 bits: a dict may have such a key
    return pickled_words(keys)
