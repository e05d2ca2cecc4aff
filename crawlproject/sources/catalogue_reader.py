"""Reads the catalogue from the file or URL in `CRAWL_SOURCES`."""

from __future__ import annotations

import http.client
import tempfile
import urllib.request
from collections.abc import Generator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

from crawlproject.errors import CatalogueError
from crawlproject.sources import parquet
from crawlproject.sources.catalogue import Catalogue, parse_catalogue
from crawlproject.texts import without_secrets

_MAX_CATALOGUE = 1024 * 1024 * 1024  # bytes
_CHUNK = 65_536  # bytes
_CHECKED = 1000  # rows that a start looks at


def read_catalogue(place: str, most: int | None = None) -> Catalogue:
    """Read the catalogue, JSON or Parquet, from a file or an HTTP URL, or its first `most` rows. Blocks.

    Raises:
        CatalogueError: it cannot be read, or is invalid.

    """
    shown = without_secrets(place)
    try:
        with closing(_chunks(place)) as chunks:
            return parse_catalogue(chunks, most)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise CatalogueError(f"CRAWL_SOURCES={shown} cannot be read: {without_secrets(str(error))}") from None
    except CatalogueError as error:
        raise CatalogueError(f"CRAWL_SOURCES={shown}: {error}") from None


def check_catalogue(place: str) -> None:
    """Look at the beginning of the catalogue in a file; the leader reads all of it. What a URL serves may change.

    Raises:
        CatalogueError: it cannot be read, or is invalid.

    """
    if not _is_url(place):
        read_catalogue(place, _CHECKED).close()


def _chunks(place: str) -> Generator[bytes]:
    """Yield what `parse_catalogue` reads; of a Parquet file, its rows as JSON lines."""
    with closing(_content(place)) as content:
        first = next(content, b"")
        if not first.startswith(parquet.MAGIC):
            yield from chain([first], content)
        elif _is_url(place):
            with tempfile.NamedTemporaryFile(prefix="catalogue-") as copy:
                copy.writelines(chain([first], content))
                copy.flush()
                yield from parquet.json_lines(copy.name)
        else:
            yield from parquet.json_lines(str(_path(place)))


def _content(place: str) -> Generator[bytes]:
    read = 0
    with _opened(place) as file:
        while chunk := file.read(_CHUNK):
            read += len(chunk)
            if read > _MAX_CATALOGUE:
                raise CatalogueError(f"larger than {_MAX_CATALOGUE} bytes")
            yield chunk
        if missing := getattr(file, "length", 0):  # of an HTTP response, by its Content-Length
            raise OSError(f"the connection was closed {missing} bytes before the end")


def _opened(place: str) -> Any:
    if _is_url(place):
        request = urllib.request.Request(place, headers={"Accept": "application/json, */*;q=0.5"})
        return urllib.request.urlopen(request, timeout=30)
    return _path(place).open("rb")


def _path(place: str) -> Path:
    return Path(place.removeprefix("file://"))


def _is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))
