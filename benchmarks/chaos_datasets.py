"""What chaos.py does with `--datasets`: seeds with captions out of Parquet files, datasets, and their account.

The files are fed one after the other by `scrapy feed --resume`, each feed killed once at some moment. The datasets
are written by `scrapy events out/:parquet` and `shards/:webdataset`, readers like others, in small parts, so that
many are being put while readers die. Afterwards they are read back by pyarrow, DuckDB and webdataset.
"""

from __future__ import annotations

import io
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from PIL import Image

from benchmarks.arrivals import size_of
from benchmarks.ours import ROOT, SCRAPY, Crawl

FORMS: Mapping[str, Sequence[str]] = {
    "parquet": ("--rows", "400", "--every", "3"),
    "webdataset": ("--samples", "300", "--every", "3", "--caption", "TEXT"),
}
_MOST_SEEDS = 1_000  # of a file
_FEWEST_FILES = 4
_KILLED_S = (0.3, 2.5)  # after its start
_MOST_STARTS = 50  # of one feed: then something is wrong


def caption_of(source: str, number: int) -> str | None:
    """Return the caption of a picture; one in seven has none."""
    return f'"{source}" {number},\t馬 and boats' if number % 7 else None


class Feeds:
    """Parquet files of seeds, and the process that feeds one of them."""

    def __init__(self, crawl: Crawl, lines: Sequence[str], rng: Random) -> None:
        self.killed = 0
        self._crawl = crawl
        self._rng = rng
        self._process: subprocess.Popen[bytes] | None = None
        self._until: float | None = None  # when the process is killed
        self._starts = 0
        folder = crawl.home / "seeds"
        folder.mkdir()
        size = min(_MOST_SEEDS, len(lines) // _FEWEST_FILES)
        self._files = [
            _written(folder / f"{first:06d}.parquet", [json.loads(line) for line in lines[first : first + size]])
            for first in range(0, len(lines), size)
        ]
        self.count = len(self._files)

    @property
    def is_done(self) -> bool:
        """Whether all is fed."""
        return not self._files

    def go_on(self, *, has_room: bool) -> None:
        """Begin with a file, if there is room for its seeds; or look after the feed that is under way.

        Raises:
            RuntimeError: it fails again and again.

        """
        if self._process is None:
            if has_room and self._files:
                self._start()
            return
        status = self._process.poll()
        if status is None:
            if self._until is not None and time.monotonic() > self._until:
                self._process.kill()
                self.killed += 1
                self._until = None
        elif status == 0:
            self._process, self._starts = None, 0
            del self._files[0]
        elif self._starts < _MOST_STARTS:
            time.sleep(0.2)
            self._start()
        else:
            raise RuntimeError(f"{self._files[0]} cannot be fed: see feed.log")

    def stop(self) -> None:
        """End what runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        command = [*SCRAPY, "feed", str(self._files[0]), "--resume"]
        command += ["--columns", "url=URL,uuid=key", "--keep", "TEXT"]
        with (self._crawl.home / "feed.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self._crawl.environment, stdout=log, stderr=log
            )
        is_first, self._starts = self._starts == 0, self._starts + 1
        self._until = time.monotonic() + self._rng.uniform(*_KILLED_S) if is_first else None


def _written(path: Path, seeds: Sequence[Mapping[str, Any]]) -> Path:
    import pyarrow as pa
    from pyarrow import parquet as pq

    columns = {
        "URL": [seed["url"] for seed in seeds],
        "key": [seed["uuid"] for seed in seeds],
        "source": [seed["source"] for seed in seeds],
        "TEXT": [seed["extra"].get("TEXT") for seed in seeds],
    }
    pq.write_table(pa.table(columns), path, row_group_size=300)
    return path


# The account


def finish(crawl: Crawl, folders: Mapping[str, Path]) -> None:
    """Write what no part has yet."""
    for form, folder in folders.items():
        crawl.scrapy("events", f"{folder}:{form}", *FORMS[form])


def faults_in(
    folders: Mapping[str, Path],
    numbers: Mapping[str, tuple[str, int]],
    statuses: Mapping[str, Counter[str]],
) -> Iterator[str]:
    """Yield what is wrong with the datasets.

    `numbers`: source and number of each seed, by its identifier. `statuses`: the identifiers of the events in the
    streams, by the status of their rows.
    """
    emitted = Counter({(name, status): n for status, some in statuses.items() for name, n in some.items()})
    for form, folder in folders.items():
        rows = _rows(folder)
        found = Counter((row["identifier"], row["status"]) for row in rows)
        if found != emitted:
            lacks, more = (emitted - found).total(), (found - emitted).total()
            yield f"the rows of {form} lack {lacks} events and have {more} more"
        ends = Counter(row["identifier"] for row in rows)
        if lost := numbers.keys() - ends.keys():
            yield f"{form} has no row of {len(lost)} seeds, such as {min(lost)}"
        if doubled := [name for name, count in ends.items() if count > 1]:
            yield f"{form} has several rows of {len(doubled)} seeds, such as {min(doubled)}"
        wrong = [row for row in rows if _extra_of(row) != caption_of(*numbers[row["identifier"]])]
        if wrong:
            yield f"{form} has {len(wrong)} rows with another caption, such as {wrong[0]}"
        if (counts := _by_duckdb(folder)) != (len(rows), len(ends), statuses["ok"].total()):
            yield f"DuckDB counts {counts} rows, identifiers and images in {form}"
        if left := [path.name for path in folder.rglob("*.part")]:
            yield f"{form} has unfinished files: {left}"
    if "webdataset" in folders:
        yield from _wrong_samples(folders["webdataset"], numbers, statuses["ok"])


def counts_of(folders: Mapping[str, Path]) -> Iterator[str]:
    """Yield what is in the datasets."""
    for form, folder in folders.items():
        rows = _rows(folder)
        samples = f", {sum(row['key'] is not None for row in rows)} samples" if form == "webdataset" else ""
        yield f"{form}: {len(rows)} rows{samples} in {len(list(folder.rglob('*.parquet')))} parts"


def _rows(folder: Path) -> list[dict[str, Any]]:
    from pyarrow import parquet as pq

    return [row for path in sorted(folder.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def _extra_of(row: Mapping[str, Any]) -> str | None:
    extra = json.loads(row["extra"] or "{}")
    text: str | None = extra.get("TEXT")
    return text


def _by_duckdb(folder: Path) -> tuple[int, ...]:
    import duckdb

    found = duckdb.sql(
        "SELECT count(*), count(DISTINCT identifier), count(*) FILTER (WHERE status = 'ok') "
        f"FROM '{folder}/**/*.parquet'"
    )
    assert found is not None
    return tuple(map(int, found.fetchall()[0]))


def _wrong_samples(folder: Path, numbers: Mapping[str, tuple[str, int]], images: Counter[str]) -> Iterator[str]:
    """Yield where a shard differs from its Parquet file, and where a sample is not that of its seed."""
    import webdataset
    from pyarrow import parquet as pq

    tars = {path.with_suffix("") for path in folder.rglob("*.tar")}
    if alone := tars ^ {path.with_suffix("") for path in folder.rglob("*.parquet")}:
        yield f"shards without tar or Parquet file: {sorted(map(str, alone))}"
    samples: Counter[str] = Counter()
    for name in sorted(tars):
        found = list(webdataset.WebDataset(f"{name}.tar", shardshuffle=False, empty_check=False))
        rows = [row for row in pq.read_table(f"{name}.parquet").to_pylist() if row["key"] is not None]
        facts = [json.loads(sample["json"]) for sample in found]
        if [(row["key"], row["identifier"], row["caption"]) for row in rows] != [
            (sample["__key__"], fact["identifier"], fact.get("caption"))
            for sample, fact in zip(found, facts, strict=True)
        ]:
            yield f"{name}.tar has other samples than {name}.parquet"
        for sample, fact in zip(found, facts, strict=True):
            identifier = fact["identifier"]
            samples[identifier] += 1
            source, number = numbers[identifier]
            if sample["txt"].decode() != (caption_of(source, number) or ""):
                yield f"the sample of {identifier} has the caption {sample['txt']!r}"
            with Image.open(io.BytesIO(sample["jpg"])) as image:
                if image.size != size_of(number):
                    yield f"the sample of {identifier} shows another picture"
    if samples != images:
        lacks, more = (images - samples).total(), (samples - images).total()
        yield f"the samples lack {lacks} images and have {more} more"
