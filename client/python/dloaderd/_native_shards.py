"""URLs of webdataset's shards: which of them the daemon's fetcher reads as webdataset's gopen() would.

gopen() runs a program for each: curl for https://, gsutil for gs://, whatever stands behind pipe:. Here these are
read as URLs, where the program does no more than get the URL, with keys that the fetcher looks for in the same
places. A shard that C cannot get is webdataset's to open (_native_tar.py).
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import _native_urls

# webdataset's function for each scheme that is read.
_OPENERS = {"https": "gopen_curl", "http": "gopen_curl", "gs": "gopen_gsutil", "hf": "gopen_hf", "pipe": "gopen_pipe"}
# What curl and gsutil take for a pattern.
_PATTERN = re.compile(r"[\[\]{}*?\s]")
# What a shell would do something with.
_SHELL = re.compile(r"[$`|;&<>()\\\n~#!*\[\]{}]")
# Options that do not change which bytes come; those of curl with a value.
_CURL = {"-s", "--silent", "-S", "--show-error", "-f", "--fail", "--compressed"}
_CURL_FOLLOWS = {"-L", "--location"}
_CURL_VALUES = {"--retry", "--retry-delay", "--retry-max-time", "--connect-timeout", "-m", "--max-time"}
_AWS = {"--quiet", "--only-show-errors", "--no-progress"}


class Read(NamedTuple):
    """url: what C reads. why: if it is None, why the shard is webdataset's to open."""

    url: str | None
    why: str | None = None


def _curl(words: list[str]) -> Read:
    urls, follows, rest = [], False, iter(words)
    for word in rest:
        letters = {f"-{one}" for one in word[1:]} if re.fullmatch(r"-[A-Za-z]{2,}", word) else {word}
        if letters <= _CURL | _CURL_FOLLOWS:
            follows = follows or bool(letters & _CURL_FOLLOWS)
        elif word in _CURL_VALUES:
            next(rest, None)
        elif word.startswith("-"):
            return Read(None, f"pipe: curl's option {word} is not recognised")
        else:
            urls.append(word)
    if len(urls) != 1 or not urls[0].startswith(("https://", "http://")):
        return Read(None, "pipe: curl is not given one URL of https:// or http://")
    return Read(urls[0]) if follows else Read(None, "pipe: curl follows no redirects without -L")


def _aws(words: list[str]) -> Read:
    rest = [word for word in words if word not in _AWS]
    others = [word for word in rest[2:] if word.startswith("--")]
    if rest[:2] != ["s3", "cp"] or others:
        return Read(None, f"pipe: aws's option {others[0].partition('=')[0]} is not recognised" if others else
                    "pipe: of aws only s3 cp is known")
    if len(rest) != 4 or rest[3] != "-" or not rest[2].startswith("s3://"):
        return Read(None, "pipe: aws s3 cp is not given s3://… and -")
    return Read(rest[2])


def _pipe(command: str) -> Read:
    if _SHELL.search(command):
        return Read(None, "pipe: the command has more for a shell than words")
    try:
        words = shlex.split(command)
    except ValueError:
        return Read(None, "pipe: the command has a quote that does not end")
    name, rest = (words[0], words[1:]) if words else ("", [])
    if name == "curl":
        return _curl(rest)
    if name == "aws":
        return _aws(rest)
    if name == "gsutil" and len(rest) == 2 and rest[0] == "cat" and rest[1].startswith("gs://"):
        return Read(rest[1])
    return Read(None, f"pipe: {name} is not one of curl, aws s3 cp and gsutil cat")


def read_as(shard: Any) -> Read | None:
    """Of a shard's name; None: it is a file of this machine, or nothing that anybody could know."""
    gopen = sys.modules["webdataset.gopen"]
    if not isinstance(shard, str):
        return None
    scheme = "pipe" if shard.startswith("pipe:") else _native_urls.scheme_of(shard)
    if scheme in ("", "file"):
        return None
    opener = gopen.gopen_schemes.get(scheme)
    known = _OPENERS.get(scheme)
    if known is None or opener is not getattr(gopen, known):
        return Read(None, f"{scheme}: it is opened by {getattr(opener, '__name__', 'gopen_error')}")
    if "GOPEN_REWRITE" in os.environ:
        return Read(None, "GOPEN_REWRITE changes the URLs")
    if scheme == "pipe":
        if sys.modules["webdataset.utils"].enforce_security:
            return Read(None, "pipe: webdataset refuses it, since enforce_security is set")
        return _pipe(shard.removeprefix("pipe:").strip())
    path = shard.partition("?")[0] if scheme in ("http", "https") else shard
    if _PATTERN.search(path):
        return Read(None, f"{_native_urls.shown(shard)} is a pattern")
    return Read(shard)


def _listed(stages: list[Any]) -> Iterator[str]:
    """The shards of a pipeline that its first stage lists, as those of WebDataset() do."""
    lists = sys.modules["webdataset.shardlists"]
    kinds = tuple(getattr(lists, name) for name in ("SimpleShardList", "ResampledShards") if hasattr(lists, name))
    if stages and type(stages[0]) in kinds:
        yield from stages[0].urls


class Shards(NamedTuple):
    """Of a pipeline's list. first: the first URL that C reads, or None; many: how many there are of such; why: the
    first reason why one is webdataset's to open, or None.
    """

    first: str | None
    many: int
    why: str | None


def of_pipeline(stages: list[Any]) -> Shards:
    found = [read for read in map(read_as, _listed(stages)) if read is not None]
    urls = [read.url for read in found if read.url is not None]
    return Shards(urls[0] if urls else None, len(urls), next((read.why for read in found if read.why), None))
