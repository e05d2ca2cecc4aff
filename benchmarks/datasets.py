"""What a dataset of events costs: time, memory and bytes of `scrapy events FOLDER:parquet`, and of JSON lines.

    python -m benchmarks.datasets --events 1000000 [--img2dataset PYTHON]

Each writer runs in a process of its own, one after the other, over the same streams of an embedded Redis. With
`--img2dataset`, the interpreter of an environment that has it, its own Parquet writer writes as many rows of its
own columns, without pictures, too: from memory, with no stream to read and no position to keep.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import redis

from crawlproject import config
from crawlproject.state import embedded
from crawlproject.state.client import BlockingState
from crawlproject.state.keys import Keys

KEYS = Keys("crawl", "images")
_AT_ONCE = 5_000

# What img2dataset's worker does with a result whose picture is not stored (its ParquetSampleWriter, version 1.47).
_IMG2DATASET = """
import json, resource, sys, time, pyarrow as pa
from img2dataset.writer import ParquetSampleWriter
count, folder = int(sys.argv[1]), sys.argv[2]
kinds = dict(identifier=pa.string(), url=pa.string(), key=pa.string(), status=pa.string(),
             error_message=pa.string(), width=pa.int32(), height=pa.int32(),
             original_width=pa.int32(), original_height=pa.int32(),
             exif=pa.string(), sha256=pa.string())
schema = pa.schema(list(kinds.items()))
for shard in range(0, count, 10_000):
    writer = ParquetSampleWriter(shard // 10_000, folder, False, 5, schema, "jpg")
    for number in range(shard, min(shard + 10_000, count)):
        key = f"{number:09d}"
        writer.write(None, key, None, dict(
            identifier=f"id.{number}", url=f"http://a.org/{number}.jpg", key=key, status="success",
            error_message=None, width=640, height=480, original_width=1600, original_height=1200 + number,
            exif='{"0x13b":"Ansel"}', sha256=f"{number:064x}"))
    writer.close()
"""


def main() -> int:
    """Fill the streams, write them with each writer, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--img2dataset", metavar="PYTHON")
    parser.add_argument("--write", nargs=3, metavar=("FORM", "SOCKET", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(*options.write)
        return 0
    with tempfile.TemporaryDirectory(prefix="datasets-") as name:
        home = Path(name)
        url = embedded.ensure(home / "redis")
        try:
            with redis.Redis.from_url(url) as client:
                fill(client, options.events)
            me = [sys.executable, "-m", "benchmarks.datasets", "--write"]
            for form in ("jsonl", "parquet"):
                measure(form, [*me, form, url, str(home / form)], home / form, options.events)
            if options.img2dataset:
                (home / "img2dataset").mkdir()
                command = [options.img2dataset, "-c", _IMG2DATASET, str(options.events), str(home / "img2dataset")]
                measure("img2dataset", command, home / "img2dataset", options.events)
        finally:
            embedded.stop(home / "redis")
    return 0


def image(number: int) -> dict[str, Any]:
    """Return the event of an image, such as the crawl of a photo platform has."""
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    identifier = str(uuid.UUID(digest[:32]))
    url = f"https://live{number % 60}.staticphotos.example/{number % 65535}/{number}_{digest[:10]}_b.jpg"
    return {
        "event": "image_metadata_updates", "identifier": identifier, "url": url, "source": f"source{number % 30}",
        "width": 1024, "height": 600 + number % 300, "filesize": 90_000 + number % 300_000,
        "compression_quality": 80 + number % 19, "format": "JPEG", "content_type": "image/jpeg", "sha256": digest,
        "thumbnail": f"{digest[:2]}/{identifier}.jpg", "fetched_at": "2026-11-22T06:44:34.200+00:00",
        "status": 200, "final_url": url, "redirects": 0, "attempts": 1, "opt_out": [],
        "fetch_s": 0.1 + number % 900 / 1000,
        **({"exif": {"0x10f": "Canon", "0x110": f"EOS {number % 90}D", "0x112": 1}} if number % 3 == 0 else {}),
    }  # fmt: skip


def fill(client: redis.Redis, count: int) -> None:
    """Add the events of images to the stream."""
    for first in range(0, count, _AT_ONCE):
        with client.pipeline(transaction=False) as pipe:
            for number in range(first, min(first + _AT_ONCE, count)):
                pipe.xadd(KEYS.image_events, {"event": json.dumps(image(number))})
            pipe.execute()


def write(form: str, url: str, folder: str) -> None:
    """Write all events, in this process."""
    from crawlproject.sinks.dataset import Dataset
    from crawlproject.sinks.jsonlines import EventFile
    from crawlproject.sinks.parquet import ParquetForm
    from crawlproject.storage.parts import FolderParts

    with redis.Redis.from_url(url, socket_timeout=60) as client:
        state = BlockingState(config.load({}), client, KEYS)
        if form == "jsonl":
            file = EventFile(Path(folder) / "events.jsonl", state)
            with file.opened():
                file.drain()
            return
        parts = FolderParts(Path(folder))
        dataset = Dataset(state, parts, ParquetForm(parts, 50_000), every=600)
        with dataset.opened():
            dataset.drain()
            dataset.commit()


def measure(name: str, command: list[str], folder: Path, count: int) -> None:
    """Run a writer, and print its time, CPU time, peak memory, and the bytes that it has left."""
    began = time.monotonic()
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    cpu = used.ru_utime + used.ru_stime
    print(
        f"{name:12} {count:,} events: {time.monotonic() - began:.1f} s, {cpu:.1f} s of CPU "
        f"({cpu / count * 1e6:.1f} us an event), peak {used.ru_maxrss / 1024:.0f} MiB, "
        f"{size / 1e6:.1f} MB ({size / count:.1f} bytes an event)",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
