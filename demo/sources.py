"""The demo's sources: what each claims to hold, what it serves, and the files that the crawler is given.

`build` makes the gallery's folder:

    catalogue.json        CRAWL_SOURCES
    <source>/<files>      what the gallery serves for this source
    seeds.tsv             what `scrapy feed` reads; by `write_seeds`, once the gallery's URLs are known
"""

from __future__ import annotations

import csv
import json
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from demo import pictures

CATALOGUE = "catalogue.json"
SEEDS = "seeds.tsv"

UNREADABLE = ("truncated.jpg", "not-a-picture.jpg", "bomb.png")


@dataclass(frozen=True)
class Source:
    """A source of the demo and how its seeds must end."""

    name: str
    display_name: str
    image_count: int  # what the catalogue claims; the source's rate follows from it
    pictures: int  # seeds that end as images
    longest: int  # longer side of the largest picture, in pixels
    missing: int = 0  # seeds that answer 404
    gone: int = 0  # seeds that answer 410
    unreadable: tuple[str, ...] = ()  # seeds that end as dead letters: files of these names

    @property
    def link_rot(self) -> int:
        """Return how many seeds end as link rot."""
        return self.missing + self.gone

    @property
    def seeds(self) -> int:
        """Return how many URLs of this source are fed to the crawler."""
        return self.pictures + self.link_rot + len(self.unreadable)


# At their computed rates of 180, 24, 5 and 0.2 requests a second these take 2, 6, 12 and 25 s. The
# pictures of the fast source are small, so that politeness, and not the processor, sets the pace.
SOURCES: tuple[Source, ...] = (
    Source("openphotos", "Open Photos", 450_000_000, 350, 1000, missing=4, gone=1, unreadable=UNREADABLE[:1]),
    Source("naturearchive", "Nature Archive", 60_000_000, 150, 2000, missing=2, unreadable=UNREADABLE[1:]),
    Source("citymuseum", "City Museum", 12_000_000, 60, 2000, gone=1),
    Source("villagemuseum", "Village Museum", 4_000, 6, 1200),
)


def build(root: Path) -> None:
    """Write the sources' folders and the catalogue into `root`, in place of what an earlier run left."""
    rng = Random(20)
    pool = pictures.scenes(rng)
    odd_files = dict(
        zip(
            UNREADABLE,
            (
                pictures.truncated_jpeg(pictures.variation(rng, pool, 1000)),
                pictures.html_page(),
                pictures.decompression_bomb(),
            ),
            strict=True,
        )
    )
    root.mkdir(parents=True, exist_ok=True)
    (root / SEEDS).unlink(missing_ok=True)
    for source in SOURCES:
        folder = root / source.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for number in range(source.pictures):
            kind = pictures.KINDS[number % len(pictures.KINDS)]
            picture = pictures.variation(rng, pool, min(kind.longest, source.longest))
            (folder / f"picture-{number:04}{kind.suffix}").write_bytes(kind.encode(picture, rng))
        for name in source.unreadable:
            (folder / name).write_bytes(odd_files[name])
    rows = [
        {
            "source_name": source.name,
            "image_count": source.image_count,
            "display_name": source.display_name,
            "source_url": f"https://{source.name}.example/",
        }
        for source in SOURCES
    ]
    (root / CATALOGUE).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def write_seeds(root: Path, urls: Mapping[str, str]) -> Path:
    """Write `seeds.tsv` for the gallery that serves `root` at these base URLs (by source); return its path.

    Every seed of every source is in it once, shuffled as a real list would be. A picture's identifier does
    not depend on the port it happens to be served from.
    """
    rows: list[tuple[str, str, str]] = []
    for source in SOURCES:
        names = sorted(path.name for path in (root / source.name).iterdir())
        names += [f"missing-{number}.jpg" for number in range(source.missing)]
        names += [f"removed-{number}.gone" for number in range(source.gone)]
        for name in names:
            identifier = uuid.uuid5(uuid.NAMESPACE_URL, f"https://{source.name}.example/{name}")
            rows.append((str(identifier), f"{urls[source.name]}/{name}", source.name))
    Random(20).shuffle(rows)
    path = root / SEEDS
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("identifier", "url", "source"))
        writer.writerows(rows)
    return path
