"""How fast seeds are read from a file, in how much memory, by its format.

    python -m benchmarks.feeding [ROWS]
    python -m benchmarks.feeding --domains [DOMAINS]

The same rows, with an identifier and a caption, as Parquet (with captions kept, and without), TSV and JSON lines,
each read in a process of its own; nothing is put into Redis. The first line makes no seeds.

With --domains, `scrapy feed --spider pages` of a file of bare domains, into a Redis of its own, while this process
does what a worker does with seeds: each becomes a request of a source that is new. Nothing is crawled.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import redis
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.test import get_crawler

from benchmarks.redis_servers import Server
from crawlproject import config
from crawlproject.frontier.dupefilter import SeenFilter
from crawlproject.frontier.seeds import SeedReader, requests_of
from crawlproject.spiders.pages import PagesSpider
from crawlproject.state.client import State

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


_EVERY = 100_000


def _peak_mib(process: int) -> float:
    """Return the most memory that a process has had; 0 when it has ended."""
    try:
        found = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


async def _read_all(state: State, server: redis.Redis, count: int, feeder: int) -> float:
    """Move `count` seeds into the frontier as they come; return the peak memory of the process that feeds, MiB."""
    stats = MemoryStatsCollector(get_crawler())
    spider = PagesSpider()
    reader = SeedReader(state, spider, requests_of(spider), SeenFilter(), stats, lambda: None)
    began = last = time.monotonic()
    done, peak = 0, 0.0
    empty = server.info("memory")["used_memory"]
    while done < count:
        await asyncio.sleep(await reader.read())
        peak = max(peak, _peak_mib(feeder))
        admitted = stats.get_value("frontier/seeds_admitted", 0)
        if admitted // _EVERY > done // _EVERY:
            now = time.monotonic()
            each = (server.info("memory")["used_memory"] - empty) / admitted
            print(f"{admitted:9} domains  {now - last:6.1f} s for these {_EVERY}  Redis {each:6.0f} B each")
            last = now
        done = admitted
    print(f"{done:9} domains  {time.monotonic() - began:6.1f} s in all; {stats.get_stats()}")
    return peak


async def _feed_domains(address: str, folder: Path, count: int) -> None:
    file = folder / "domains.txt"
    file.write_text("".join(f"museum-{number * 7919 % 10_000_019:x}.example\n" for number in range(count)))
    state = State(config.load({"REDIS_URL": address}), "pages")
    await state.open()
    with redis.Redis.from_url(address) as server:
        fence = await state.scripts.lead("leader", ready=True)
        assert fence is not None
        server.persist(state.keys.pulse)
        await state.scripts.heartbeat(state.worker_id, join=True, timeout=1e6, max_deliveries=3)
        feeder = subprocess.Popen(
            [sys.executable, "-m", "scrapy", "feed", "--spider", "pages", str(file)],
            env=os.environ | {"REDIS_URL": address},
        )
        peak = await _read_all(state, server, count, feeder.pid)
        _, status, used = os.wait4(feeder.pid, 0)
        seconds = used.ru_utime + used.ru_stime
        print(f"feeder: status {status}, {seconds / count * 1e6:.1f} us of CPU a domain, peak {peak:.0f} MiB")
        cpu = server.info("cpu")
        took = cpu["used_cpu_user"] + cpu["used_cpu_sys"]
        read = time.process_time()
        print(f"reading, Redis: {read / count * 1e6:.1f}, {took / count * 1e6:.1f} us of CPU a domain")
    await state.close()


def feed_domains(count: int) -> None:
    """Print how long a feed of bare domains takes, and what it takes of memory."""
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name))
        try:
            asyncio.run(_feed_domains(server.url, Path(name), count))
        finally:
            server.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--domains"]:
        feed_domains(int(sys.argv[2]) if len(sys.argv) > 2 else 300_000)
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
