"""Which of a package's URLs the daemon's fetcher reads as that package does.

It reads s3://, gs://, hf://, https:// and http:// by the environment that the daemon was started with, which a
worker compares with its program's (proto/shared/remote_environment.h). What a package is told beside the URL
(keys, an endpoint, options) the fetcher does not know: then the package reads it.
"""

from __future__ import annotations

import os
import warnings

from ._native_transforms import Unknown

SCHEMES = ("s3", "gs", "hf", "https", "http")


def scheme_of(path: str) -> str:
    """"": it is a path of this machine."""
    return path.partition("://")[0] if "://" in path else ""


def is_read(path: str) -> bool:
    return scheme_of(path) in SCHEMES


def shown(url: str) -> str:
    """A presigned URL's query is a secret."""
    before, mark, _ = url.partition("?")
    return f"{before}{mark}{'*' if mark else ''}"


def check_endpoint(given: str | None, what: str) -> None:
    """Unknown: it is not the one of s3:// that the fetcher asks. what: what says so."""
    ours = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if given and (ours is None or given.rstrip("/") != ours.rstrip("/")):
        raise Unknown(f"{what} is {given}, which the daemon does not know; set AWS_ENDPOINT_URL to it, too")


def tell_called(url: str, why: object, by: str) -> None:
    """In a worker, which cannot have what the fetcher reads."""
    warnings.warn(f"C does not read {shown(url)}, so {by} does: {why}", stacklevel=2)
