"""What a dataset of events costs: time, memory and bytes of `scrapy events`, beside img2dataset's own writers.

    python -m benchmarks.datasets [--events N] [--pictures N] [--img2dataset PYTHON]

Each writer runs in a process of its own, one after the other, over the same streams of an embedded Redis: all
events into JSON lines and Parquet, then `--pictures` of them, with a thumbnail each, into WebDataset's shards.
With `--img2dataset`, the interpreter of an environment that has it, its writers (1.47) write the same rows in its
own columns, and the same pictures, too: from the file of JSON lines and out of memory, with no stream or store to
read and no position to keep. Peak memory is the writer's own; CPU is user and system, without that of Redis.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from random import Random
from typing import Any

import redis

from crawlproject import config
from crawlproject.state import embedded
from crawlproject.state.client import State
from crawlproject.state.keys import Keys

KEYS = Keys("crawl", "images")
FORMS = ("jsonl", "parquet", "webdataset")
_AT_ONCE = 5_000
_DIFFERENT = 200  # pictures
_SIZES = 20_000, 40_000  # bytes of a picture, from and to

# What img2dataset's worker does with each result; its ParquetSampleWriter without pictures, as ours has none.
_IMG2DATASET = """
import json, re, sys, pyarrow as pa
from pathlib import Path
from img2dataset.writer import ParquetSampleWriter, WebDatasetSampleWriter
form, lines, folder, pictures = sys.argv[1:]
kinds = dict(identifier=pa.string(), url=pa.string(), caption=pa.string(), key=pa.string(), status=pa.string(),
             error_message=pa.string(), width=pa.int32(), height=pa.int32(),
             original_width=pa.int32(), original_height=pa.int32(),
             exif=pa.string(), sha256=pa.string())
schema = pa.schema(list(kinds.items()))
stored = [path.read_bytes() for path in sorted(Path(pictures).glob("*.bytes"))]
kind = ParquetSampleWriter if form == "parquet" else WebDatasetSampleWriter
writer = None
for number, line in enumerate(open(lines)):
    if number % 10_000 == 0:
        if writer is not None:
            writer.close()
        writer = kind(number // 10_000, folder, form != "parquet", 5, schema, "jpg")
    event, key = json.loads(line), f"{number:09d}"
    caption = event["extra"]["TEXT"]
    writer.write(stored[number % len(stored)] if stored else None, key, caption, dict(
        identifier=event["identifier"], url=event["url"], caption=caption, key=key, status="success",
        error_message=None, width=640, height=480, original_width=event["width"], original_height=event["height"],
        exif=json.dumps(event.get("exif", {})), sha256=event["sha256"]))
writer.close()
print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def main() -> int:
    """Fill the streams, write them with each writer, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--img2dataset", metavar="PYTHON")
    parser.add_argument("--write", nargs=3, metavar=("FORM", "URL", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(*options.write)
        return 0
    print(f"{'':24}{'s':>8}{'CPU s':>8}{'us each':>9}{'peak MiB':>10}{'MB':>9}{'bytes each':>12}", flush=True)
    with tempfile.TemporaryDirectory(prefix="datasets-") as name:
        home = Path(name)
        url = embedded.ensure(home / "redis")
        try:
            with redis.Redis.from_url(url) as client:
                compare(client, url, home / "rows", options.events, FORMS[:2], options.img2dataset)
                client.flushall()
                pictures = home / "samples" / "thumbnails"
                store(pictures, options.pictures)
                size = sum(path.stat().st_size for path in pictures.rglob("*.jpg"))
                print(f"{options.pictures:,} thumbnails have {size / 1e6:.1f} MB")
                forms = ("jsonl", "webdataset")
                compare(client, url, home / "samples", options.pictures, forms, options.img2dataset)
        finally:
            embedded.stop(home / "redis")
    return 0


def compare(
    client: redis.Redis, url: str, home: Path, count: int, forms: tuple[str, ...], img2dataset: str | None
) -> None:
    """Measure our forms, and the last of them with img2dataset."""
    fill(client, count)
    for form in forms:
        (home / form).mkdir(parents=True)
        me = [sys.executable, "-m", "benchmarks.datasets", "--write", form, url, str(home / form)]
        measure(form, me, home / form, count)
    if img2dataset is None:
        return
    out = home / "img2dataset"
    out.mkdir()
    arguments = [forms[-1], str(home / "jsonl" / "events.jsonl"), str(out), str(home / "thumbnails")]
    measure(f"{forms[-1]}, img2dataset", [img2dataset, "-c", _IMG2DATASET, *arguments], out, count)


def image(number: int) -> dict[str, Any]:
    """Return the event of an image, such as the crawl of a photo platform has."""
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    identifier = str(uuid.UUID(digest[:32]))
    url = f"https://live{number % 60}.staticphotos.example/{number % 65535}/{number}_{digest[:10]}_b.jpg"
    thumbnail = f"{digest[:2]}/{identifier}.jpg"
    return {
        "event": "image_metadata_updates", "identifier": identifier, "url": url, "source": f"source{number % 30}",
        "width": 1024, "height": 600 + number % 300, "filesize": 90_000 + number % 300_000,
        "compression_quality": 80 + number % 19, "format": "JPEG", "content_type": "image/jpeg", "sha256": digest,
        "thumbnail": thumbnail, "fetched_at": "2026-11-22T06:44:34.200+00:00",
        "status": 200, "final_url": url, "redirects": 0, "attempts": 1, "opt_out": [],
        "fetch_s": 0.1 + number % 900 / 1000,
        **({"exif": {"0x10f": "Canon", "0x110": f"EOS {number % 90}D", "0x112": 1}} if number % 3 == 0 else {}),
        "thumbnails": [{"name": thumbnail, "width": 640, "height": 480}],
        "extra": {"TEXT": f"A boat on the river {number % 5000}, seen from bridge {digest[10:14]}"},
    }  # fmt: skip


def fill(client: redis.Redis, count: int) -> None:
    """Add the events of images to the stream."""
    for first in range(0, count, _AT_ONCE):
        with client.pipeline(transaction=False) as pipe:
            for number in range(first, min(first + _AT_ONCE, count)):
                pipe.xadd(KEYS.image_events, {"event": json.dumps(image(number))})
            pipe.execute()


def store(folder: Path, count: int) -> None:
    """Store the thumbnails of the first events; each of the different ones is there as `N.bytes`, too."""
    chance = Random(1)
    folder.mkdir(parents=True)
    different = [chance.randbytes(chance.randint(*_SIZES)) for _ in range(_DIFFERENT)]
    for number, data in enumerate(different):
        (folder / f"{number:03d}.bytes").write_bytes(data)
    for number in range(count):
        path = folder / image(number)["thumbnail"]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(different[number % _DIFFERENT])


def write(form: str, url: str, folder: str) -> None:
    """Write all events, in this process; print its peak memory (KiB)."""
    from scrapy.settings import Settings

    from crawlproject.sinks.dataset import Dataset
    from crawlproject.sinks.jsonlines import EventFile
    from crawlproject.sinks.parquet import ParquetForm
    from crawlproject.sinks.webdataset import WebDatasetForm
    from crawlproject.storage.blobs import lookup_of
    from crawlproject.storage.parts import FolderParts

    async def written() -> None:
        state = State(config.load({"REDIS_URL": url}), "images")
        await state.open()
        if form == "jsonl":
            file = EventFile(Path(folder) / "events.jsonl", state)
            async with file.opened():
                await file.drain()
        else:
            parts = FolderParts(Path(folder))
            thumbnails = lookup_of(str(Path(folder).parent / "thumbnails"), Settings())
            shards = WebDatasetForm(parts, thumbnails, 50_000, 10_000, "TEXT")
            dataset = Dataset(state, parts, ParquetForm(parts, 50_000) if form == "parquet" else shards, every=600)
            async with dataset.opened():
                await dataset.drain()
                await dataset.finish()
        await state.close()

    asyncio.run(written())
    # Not ru_maxrss, which has the parent's, too.
    peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    assert peak is not None
    print(peak[1])


def measure(name: str, command: list[str], folder: Path, count: int) -> None:
    """Run a writer, and print its time, CPU time, peak memory, and the bytes that it has left."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    cpu = used.ru_utime + used.ru_stime
    peak = int(said.split()[-1]) / 1024
    each = f"{cpu / count * 1e6:9.1f}{peak:10.0f}{size / 1e6:9.1f}{size / count:12.1f}"
    print(f"{name:24}{seconds:8.1f}{cpu:8.1f}{each}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
