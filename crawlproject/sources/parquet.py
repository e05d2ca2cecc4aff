"""The rows of a catalogue in a Parquet file, as JSON lines: the program of a process beside, and who starts it.

    python -m crawlproject.sources.parquet FILE

pyarrow takes some 100 MB, and parts of a second in which nothing else runs: neither is a worker's to have. The
process ends when the file does, or when its reader has enough.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from crawlproject.errors import CatalogueError
from crawlproject.texts import missing

MAGIC = b"PAR1"  # what such a file begins with

_CHUNK = 65_536  # bytes
_BATCH = 1000  # rows
_MOST_MEMORY = 320 * 2**20  # bytes that reading a file may take: some hundred bytes may stand for gigabytes
_COLUMNS = ("source_name", "image_count", "media_count", "source_url", "hosts", "circuit", "robots", "gone")
_LONGEST_COMPLAINT = 1000  # characters

# How pyarrow is to allocate, for who imports it first: its own allocators reserve a gigabyte, beyond any bound.
ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system"}

T = TypeVar("T")


def in_bounds(groups: Iterable[int], rows_of: Callable[[int], Iterator[T]]) -> Iterator[T]:
    """Yield what `rows_of` yields of each row group, each step with `_MOST_MEMORY` more at most. Blocks.

    Nothing in a file says before it is read how much that takes: a page may claim anything, and a value may be
    repeated at will. So the kernel refuses the memory, where it can (Linux).

    Raises:
        MemoryError: a row group takes more; the message gives its number, from 0.

    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    for group in groups:
        rows, step = rows_of(group), None
        while True:
            if sys.platform == "linux":
                pages = int(Path("/proc/self/statm").read_text().split()[5])  # of data, and of stacks
                most = pages * resource.getpagesize() + _MOST_MEMORY
                resource.setrlimit(
                    resource.RLIMIT_DATA, (most if soft == resource.RLIM_INFINITY else min(most, soft), hard)
                )
            try:
                step = next(rows, None)
            except MemoryError:
                raise MemoryError(
                    f"row group {group} takes more than {_MOST_MEMORY >> 20} MiB of memory: write the file with "
                    "smaller row groups and shorter values"
                ) from None
            finally:
                resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
            if step is None:
                break
            yield step


def json_lines(path: str) -> Iterator[bytes]:
    """Yield the rows of a file as JSON lines, in chunks. Blocks.

    Raises:
        CatalogueError: it cannot be read, or pyarrow is not installed.

    """
    environment = os.environ | ALLOCATOR | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
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
        sys.exit(missing("a catalogue in Parquet", "pyarrow", error, "parquet"))
    try:
        # Page by page, not a whole group of rows, which may be the whole file.
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=_CHUNK) as file:
            names = file.schema_arrow.names
            if "source_name" not in names:
                sys.exit(f"it has no column source_name, only {', '.join(names)}"[:_LONGEST_COMPLAINT])
            columns = [name for name in _COLUMNS if name in names]

            def lines_of(group: int) -> Iterator[str]:
                for batch in file.iter_batches(_BATCH, row_groups=[group], columns=columns, use_threads=False):
                    rows = (json.dumps(_without_nulls(row), default=str) for row in batch.to_pylist())
                    yield "".join(f"{row}\n" for row in rows)

            for lines in in_bounds(range(file.num_row_groups), lines_of):
                sys.stdout.write(lines)
    except (pyarrow.ArrowException, MemoryError, OSError) as error:
        sys.exit(f"not a Parquet file that can be read: {error}")


def _without_nulls(value: Any) -> Any:
    """Return a row, or what is in it, without the keys that it has only because other rows do."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return value


if __name__ == "__main__":
    main(sys.argv[1])
