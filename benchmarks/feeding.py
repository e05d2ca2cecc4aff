"""How fast seeds are read from a file, in how much memory, by its format.

    python -m benchmarks.feeding [ROWS]

The same rows, with an identifier and a caption, as Parquet (with captions kept, and without), TSV and JSON lines,
each read in a process of its own; nothing is put into Redis. The first line makes no seeds.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

_READ = r"""
import re, sys, time
from pathlib import Path
from crawlproject.ingest.files import read
from crawlproject.ingest.seed_rows import Columns
from crawlproject.ingest.seed_files import SeedFile
keep = sys.argv[2]
began = time.process_time()
if keep == "-":
    from pyarrow.parquet import ParquetFile
    table = ParquetFile(sys.argv[1], pre_buffer=False, buffer_size=2**20)
    batches = table.iter_batches(4096, columns=["URL", "key"], use_threads=False)
    count = sum(len(batch.column(0).to_pylist()) for batch in batches)
else:
    columns = Columns.of_options("url=URL,uuid=key", keep)
    count = sum(line.seed is not None for line in read(SeedFile(sys.argv[1]), lambda _: None, columns=columns))
took = time.process_time() - began
peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())  # ru_maxrss has a parent's, too
print(count, took, int(peak[1]) / 1024)
"""


def write(folder: Path, count: int) -> None:
    """Write the same rows in each format."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    chance = random.Random(7)
    words = ("boat", "house", "old", "red", "river", "with", "view", "of", "from", "street", "people", "light")
    rows = {
        "URL": [f"https://images.museum{n % 500}.example/{chance.randrange(1 << 40):x}.jpg" for n in range(count)],
        "key": [str(uuid.UUID(int=chance.getrandbits(128))) for _ in range(count)],
        "TEXT": [" ".join(chance.choices(words, k=12)) for _ in range(count)],
    }
    pq.write_table(pa.table(rows), folder / "seeds.parquet")
    with (folder / "seeds.tsv").open("w") as tsv, (folder / "seeds.jsonl").open("w") as jsonl:
        tsv.write("URL\tkey\tTEXT\n")
        for row in zip(*rows.values(), strict=True):
            tsv.write("\t".join(row) + "\n")
            jsonl.write(json.dumps(dict(zip(rows, row, strict=True))) + "\n")


def main(count: int) -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, count)
        print("file           kept   seeds       CPU s   us a seed   peak MiB")
        for file, keep in (
            ("seeds.parquet", "-"),
            ("seeds.parquet", ""),
            ("seeds.parquet", "TEXT"),
            ("seeds.tsv", "TEXT"),
            ("seeds.jsonl", "TEXT"),
        ):
            command = [sys.executable, "-c", _READ, str(folder / file), keep]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            seeds, seconds, peak = map(float, done.stdout.split())
            print(f"{file:13}  {keep:5}  {seeds:9.0f}  {seconds:6.1f}  {seconds / seeds * 1e6:9.1f}  {peak:9.0f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
