"""Scrapy's own images pipeline as a peer."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers import Seed, Start


class Stock:
    """A Scrapy project as the documentation of the images pipeline would have it (folder `gallery`)."""

    def __init__(self, *, full: bool = True) -> None:
        self.full = full
        self.name = "stock" if full else "stock, thumbnails only"
        self.about = (
            "Scrapy's ImagesPipeline with IMAGES_THUMBS; stores the full picture as JPEG, too"
            if full
            else "the same with code changed: makes and stores nothing but the thumbnail"
        )
        self.extra: dict[str, float] = {}

    @contextmanager
    def prepared(self, seeds: Sequence[Seed], home: Path) -> Iterator[Start]:
        """Write the URLs; items go to a file of JSON lines, as its users have it."""
        urls = home / "urls.txt"
        urls.write_text("".join(f"{seed.url}\n" for seed in seeds))
        scrapy = [sys.executable, "-m", "scrapy", "crawl", "pictures", "-a", f"urls={urls}"]
        files = ["-o", str(home / "items.jsonl"), "--logfile", str(home / "scrapy.log")]
        settings = {"IMAGES_STORE": str(home / "images"), "STOCK_FULL": "1" if self.full else "0"}
        yield Start([*scrapy, *files], Path(__file__).parent, {**os.environ, **settings})

    def thumbnails(self, seeds: Sequence[Seed], home: Path) -> dict[str, Path]:
        """Return the thumbnails by identifier; Scrapy names them by the SHA-1 of the URL."""
        folder = home / "images" / "thumbs" / "big"
        found = {
            seed.identifier: folder / f"{hashlib.sha1(seed.url.encode(), usedforsecurity=False).hexdigest()}.jpg"
            for seed in seeds
        }
        return {identifier: path for identifier, path in found.items() if path.exists()}
