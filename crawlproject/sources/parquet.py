"""The rows of a catalogue in a Parquet file, as JSON lines: the program of a process beside, and who starts it.

    python -m crawlproject.sources.parquet FILE

pyarrow takes some 100 MB, and parts of a second in which nothing else runs: neither is a worker's to have. The
process ends when the file does, or when its reader has enough.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from crawlproject.errors import CatalogueError
from crawlproject.texts import without_pyarrow

MAGIC = b"PAR1"  # what such a file begins with

_CHUNK = 65_536  # bytes
_BATCH = 1000  # rows
_COLUMNS = ("source_name", "image_count", "media_count", "source_url", "hosts", "circuit", "robots", "gone")
_LONGEST_COMPLAINT = 1000  # characters


def json_lines(path: str) -> Iterator[bytes]:
    """Yield the rows of a file as JSON lines, in chunks. Blocks.

    Raises:
        CatalogueError: it cannot be read, or pyarrow is not installed.

    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=environment,
        )
        try:
            assert process.stdout is not None
            while chunk := process.stdout.read(_CHUNK):
                yield chunk
            code = process.wait()
        finally:
            process.kill()
            process.communicate()
        if code:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip()[-_LONGEST_COMPLAINT:]
            raise CatalogueError(said or f"the process that reads Parquet ended with {code}")


def main(path: str) -> None:
    """Write the rows of a file to stdout; end with a sentence when it cannot be read."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        sys.exit(without_pyarrow("a catalogue in Parquet", error))
    try:
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # it keeps less: 20 MB at a million rows
        # Page by page, not a whole group of rows, which may be the whole file.
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=_CHUNK) as file:
            names = file.schema_arrow.names
            if "source_name" not in names:
                sys.exit(f"it has no column source_name, only {', '.join(names)}"[:_LONGEST_COMPLAINT])
            columns = [name for name in _COLUMNS if name in names]
            for batch in file.iter_batches(_BATCH, columns=columns, use_threads=False):
                lines = (json.dumps(_without_nulls(row), default=str) for row in batch.to_pylist())
                sys.stdout.write("".join(f"{line}\n" for line in lines))
    except (pyarrow.ArrowException, OSError) as error:
        sys.exit(f"not a Parquet file that can be read: {error}")


def _without_nulls(value: Any) -> Any:
    """Return a row, or what is in it, without the keys that it has only because other rows do."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return value


if __name__ == "__main__":
    main(sys.argv[1])
