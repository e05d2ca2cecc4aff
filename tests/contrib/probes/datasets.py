"""Parts of a dataset, as far as a check of it reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet as pq

_WORDS = ("identifier", "url", "final_url", "source", "status", "etag", "last_modified", "extra")
_SCHEMA = pa.schema(
    [*((name, pa.string()) for name in _WORDS), ("filesize", pa.int64()), ("at", pa.timestamp("ms", tz="UTC"))]
)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), path)
