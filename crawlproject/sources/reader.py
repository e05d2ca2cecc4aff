"""Reads the catalogue from the file or URL in `CRAWL_SOURCES`."""

from __future__ import annotations

import http.client
import urllib.request
from pathlib import Path

from crawlproject.errors import CatalogueError
from crawlproject.sources.catalogue import Catalogue, parse_catalogue
from crawlproject.texts import without_userinfo

_MAX_CATALOGUE = 256 * 1024 * 1024  # bytes


def read_catalogue(place: str) -> Catalogue:
    """Read the catalogue from a file or an HTTP URL. Blocks.

    Raises:
        CatalogueError: it cannot be read, or is invalid.

    """
    try:
        if place.startswith(("http://", "https://")):
            request = urllib.request.Request(place, headers={"Accept": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as response:
                text = response.read(_MAX_CATALOGUE + 1)
        else:
            with Path(place.removeprefix("file://")).open("rb") as file:
                text = file.read(_MAX_CATALOGUE + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise CatalogueError(
            f"CRAWL_SOURCES={without_userinfo(place)} cannot be read: {without_userinfo(str(error))}"
        ) from None
    if len(text) > _MAX_CATALOGUE:
        raise CatalogueError(f"CRAWL_SOURCES={without_userinfo(place)} is larger than {_MAX_CATALOGUE} bytes")
    try:
        return parse_catalogue(text)
    except CatalogueError as error:
        raise CatalogueError(f"CRAWL_SOURCES={without_userinfo(place)}: {error}") from None
