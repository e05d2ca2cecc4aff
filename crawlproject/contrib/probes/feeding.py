"""Seeds of `scrapy feed --probe`. With `--again` they come from our datasets, with the facts in their rows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from scrapy.exceptions import UsageError

from crawlproject.contrib.probes.again import Latest
from crawlproject.contrib.probes.known import PROBE
from crawlproject.frontier import codec
from crawlproject.ingest.seed_files import SeedFile, is_stream
from crawlproject.ingest.seed_rows import Reading
from crawlproject.models import AGAIN, EXTRA, OF_FOUND

_KNOWN = ("etag", "last_modified", "final_url", "filesize")  # columns of our datasets: what a probe knows


class Probes(Reading):
    """Makes each seed a probe. With `--again` it reads the latest row of each image in a dataset."""

    about = "fetch only the beginning of each image, and make no thumbnails"
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "again": {
            "action": "store_true",
            "help": "with --probe: check the images of a dataset (scrapy events FOLDER:parquet), if not gone",
        }
    }

    def __init__(self, files: Sequence[str], opts: argparse.Namespace) -> None:
        if opts.spider != "images":
            raise UsageError(f"--probe is for the spider images: {opts.spider} fetches no images")
        if opts.again and any(map(is_stream, files)):
            raise UsageError("--again goes with --probe and with the folder or files of a dataset")
        self.name = (PROBE, opts.again)
        self.are_fixed = opts.again  # what comes meanwhile is of this check's own probes
        self.columns = (*_KNOWN, EXTRA, "status") if opts.again else ()
        self._latest: Latest | None = None

    def begin(self, files: Sequence[SeedFile]) -> None:
        """Read which rows are the latest."""
        self._latest = Latest(files) if self.are_fixed else None

    def has(self, file: int, row: int) -> bool:
        """Tell whether a row is read."""
        return self._latest is None or self._latest.has(file, row)

    def add(self, data: dict[str, Any], row: Mapping[str, Any]) -> None:
        """Add what a row of a dataset tells."""
        said = dict(row)
        extra, status = said.pop(EXTRA, None), said.pop("status", None)
        if extra is not None:
            data[EXTRA] = _fed(extra, status) | data.get(EXTRA, {})
        if said.get("final_url") == data.get("url"):
            said.pop("final_url", None)
        data[PROBE] = {name: value for name, value in said.items() if value}

    def mark(self, data: dict[str, Any]) -> None:
        """Make it a probe."""
        data[PROBE] = data.get(PROBE) or True
        if self.are_fixed:
            data[AGAIN] = True


def _fed(text: str, status: str) -> dict[str, Any]:
    """Return the `extra` of a seed from the column `extra` of a row of our datasets with this status.

    What was fed has room there. What a page said may stand beside it: that is left out if it is too much. So is
    the line of the seed, which stands beside it in some failures.

    Raises:
        ValueError: it is no JSON object.

    """
    try:
        extra = dict(json.loads(text))
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"its extra is not a JSON object: {text!r:.80}") from None
    if status == "failed":
        extra.pop("seed", None)
    if codec.extra_fault(extra):
        extra = {name: value for name, value in extra.items() if name not in OF_FOUND}
    return extra
