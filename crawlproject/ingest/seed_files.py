"""Where files of seeds are: paths, folders and patterns, here, in S3 and in Google Cloud Storage."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from crawlproject.errors import BadInput
from crawlproject.sources.parquet import ALLOCATOR
from crawlproject.texts import missing

STDIN = "-"
REMOTE = ("s3://", "gs://")

_PATTERN = re.compile(r"[*?\[]")
_OF_SEEDS = re.compile(r"(?i)\.(parquet|(csv|tsv|txt|jsonl|ndjson)(\.gz)?)$")  # in a folder
_GOOGLE_PATIENCE = timedelta(seconds=30)
_BUFFER = 4 * 2**20  # bytes of a remote file that are asked for at a time


@dataclass(frozen=True, slots=True)
class SeedFile:
    """A file of seeds by its name, as in messages: a path, a URI, or `-` for stdin.

    `size` in bytes, `modified` in nanoseconds since 1970. A remote one is `path` in `filesystem`, of pyarrow's.
    """

    name: str
    size: int = 0
    modified: int = 0
    filesystem: Any = None
    path: str = ""

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open it for reading from the beginning to the end."""
        if self.name == STDIN:
            yield sys.stdin.buffer
        elif self.filesystem is None:
            with Path(self.name).open("rb") as stream:
                yield stream
        else:
            options = {"compression": None, "buffer_size": _BUFFER}  # gzip is known by its bytes (files.py)
            with self.filesystem.open_input_stream(self.path, **options) as stream:
                yield stream

    @contextmanager
    def opened_at_random(self) -> Iterator[Any]:
        """Give it to pyarrow, which reads it here and there: its path, or an open file of pyarrow's."""
        if self.filesystem is None:
            yield self.name
        else:
            with self.filesystem.open_input_file(self.path) as stream:
                yield stream


def is_stream(name: str) -> bool:
    """Tell whether what an argument names can be read but once, as stdin and pipes."""
    path = Path(name)
    return name == STDIN or (path.exists() and not path.is_file() and not path.is_dir())


@contextmanager
def needs_pyarrow(name: str) -> Iterator[None]:
    """Say of an import of pyarrow that fails what `name` needs it for.

    Raises:
        BadInput: pyarrow is not installed.

    """
    os.environ.update(ALLOCATOR)
    try:
        yield
    except ImportError as error:
        raise BadInput(missing(f"{name:.200}", "pyarrow", error, "parquet")) from None


def find(names: Sequence[str], settings: Any) -> list[SeedFile]:
    """Return the files that the arguments of a command name, those of each folder and pattern in their order.

    A folder stands for the files of seeds in it and below, by their endings; hidden ones are left out. In a
    pattern, `**` stands for any number of folders. `settings` are Scrapy's, for `AWS_*`; Google's storage goes by
    Google's own defaults (GOOGLE_APPLICATION_CREDENTIALS).

    Raises:
        BadInput: there are none for one of the arguments; or pyarrow is needed and missing.
        OSError: the storage does not answer.

    """
    found: list[SeedFile] = []
    for name in names:
        if name == STDIN:
            found.append(SeedFile(STDIN))
        elif name.startswith(REMOTE):
            found += _remote(name, settings)
        elif "://" in name:
            raise BadInput(f"{name:.200}: files are read from folders, s3:// and gs://, not from there")
        else:
            found += _local(name)
    return found


def absolute(name: str) -> str:
    """Return an argument as it is understood in any working folder."""
    return name if name == STDIN or name.startswith(REMOTE) else str(Path(name).absolute())


def _local(name: str) -> list[SeedFile]:
    path = Path(name)
    if path.is_dir():
        inside = sorted(path.rglob("*"))
        paths = [one for one in inside if one.is_file() and _is_of_seeds(str(one.relative_to(path)))]
        if not paths:
            raise BadInput(_EMPTY.format(name=name))
    elif _PATTERN.search(name) and not path.exists():
        paths = [Path(one) for one in sorted(glob.glob(name, recursive=True)) if Path(one).is_file()]  # noqa: PTH207
        if not paths:
            raise BadInput(f"{name}: no files match")
    else:
        if not path.exists():
            raise BadInput(f"{name}: no such file")
        paths = [path]
    return [SeedFile(str(one), (info := one.stat()).st_size, info.st_mtime_ns) for one in paths]


_EMPTY = "{name}: no file in this folder ends in .parquet, .csv, .tsv, .txt or .jsonl (these also with .gz)"


def _is_of_seeds(path: str) -> bool:
    hidden = any(part.startswith((".", "_")) for part in path.split("/"))
    return not hidden and _OF_SEEDS.search(path) is not None


def _remote(uri: str, settings: Any) -> list[SeedFile]:
    with needs_pyarrow(uri):
        from pyarrow import fs

    scheme, path = uri[:5], uri[5:].rstrip("/")
    bucket = path.partition("/")[0]
    if not bucket or _PATTERN.search(bucket):
        raise BadInput(f"{uri:.200}: name a bucket, as in {scheme}bucket/folder/*.parquet")
    # Without credentials, or an answer, Google's client would try for a quarter of an hour.
    filesystem = (
        _s3(fs, bucket, settings) if scheme == "s3://" else fs.GcsFileSystem(retry_time_limit=_GOOGLE_PATIENCE)
    )
    if first := _PATTERN.search(path):
        fixed = path[: first.start()].rpartition("/")[0]
        deep = "/" in path[len(fixed) + 1 :]
        selector = fs.FileSelector(fixed, recursive=deep)
        there = (info for info in filesystem.get_file_info(selector) if info.is_file)
        infos = [info for info in there if _matches(info.path.split("/"), path.split("/"))]
        if not infos:
            raise BadInput(f"{uri:.200}: no files match")
    else:
        info = filesystem.get_file_info(path)
        if info.is_file:
            infos = [info]
        elif info.type is fs.FileType.Directory:
            inside = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
            infos = [one for one in inside if one.is_file and _is_of_seeds(one.path[len(path) + 1 :])]
            if not infos:
                raise BadInput(_EMPTY.format(name=uri[:200]))
        else:
            raise BadInput(f"{uri:.200} is not there")
    return [
        SeedFile(scheme + info.path, info.size, info.mtime_ns or 0, filesystem, info.path)
        for info in sorted(infos, key=lambda info: info.path)
    ]


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Tell whether the parts of a path match those of a pattern; `**` stands for any number of folders."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_matches(path[skipped:], pattern[1:]) for skipped in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _matches(path[1:], pattern[1:])


def _s3(fs: Any, bucket: str, settings: Any) -> Any:
    """Return S3 by Scrapy's `AWS_*` settings; by the AWS SDK's own defaults where they are unset."""
    endpoint = settings.get("AWS_ENDPOINT_URL")
    region = settings.get("AWS_REGION_NAME")
    given = {
        "access_key": settings.get("AWS_ACCESS_KEY_ID"),
        "secret_key": settings.get("AWS_SECRET_ACCESS_KEY"),
        "session_token": settings.get("AWS_SESSION_TOKEN"),
        "region": region or (None if endpoint else fs.resolve_s3_region(bucket)),
        "endpoint_override": endpoint,
        "scheme": "http"
        if settings.get("AWS_USE_SSL") is not None and not settings.getbool("AWS_USE_SSL")
        else None,
        # A dead endpoint shall be told of soon: by default it is asked for minutes.
        "connect_timeout": 5,
        "request_timeout": 30,
    }
    return fs.S3FileSystem(**{name: value for name, value in given.items() if value is not None})
