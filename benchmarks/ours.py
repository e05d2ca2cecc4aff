"""A crawl with crawlproject, as its users run one: catalogue, `scrapy feed`, workers, `scrapy events`.

It has a Redis of its own, started and stopped with the context, unless it is given one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, cast

import trustme

from crawlproject.config import SETTINGS
from crawlproject.sources.rates import LARGE, MAXIMUM_RATE, MINIMUM_RATE, SMALL
from crawlproject.state import embedded
from demo.redis_servers import client_of

ROOT = Path(__file__).resolve().parents[1]
SCRAPY = [sys.executable, "-m", "scrapy"]
MIB = 1 << 20


class Crawl:
    """One crawl of the sources in `sizes` (name to the number of images it claims), its files in `home`.

    `more` returns what else the catalogue says of a source. `redis_url` is that of a Redis that runs already.
    """

    def __init__(
        self,
        home: Path,
        sizes: Mapping[str, int],
        settings: Mapping[str, object],
        redis_url: str | None = None,
        more: Callable[[str], Mapping[str, object]] = lambda name: {},
    ) -> None:
        self.more = more
        self.home = home.resolve()
        self.sizes = sizes
        self.settings = settings
        self._given_url = redis_url

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True)
        rows = [{"source_name": name, "image_count": size, **self.more(name)} for name, size in self.sizes.items()]
        (self.home / "catalogue.json").write_text(json.dumps(rows))
        self.redis_url = self._given_url or embedded.ensure(self.home / "redis")
        self.redis = client_of(self.redis_url)
        return self

    def __exit__(self, *_: object) -> None:
        self.redis.close()
        if not self._given_url:
            embedded.stop(self.home / "redis")

    def keep_in(self, folder: Path) -> None:
        """Copy logs and events into a new folder."""
        shutil.copytree(self.home, folder, ignore=shutil.ignore_patterns("redis", "thumbnails"))

    @property
    def thumbnails(self) -> Path:
        """The folder of the thumbnails."""
        return self.home / "thumbnails"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every command of this crawl."""
        inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
        settings = {
            "REDIS_URL": self.redis_url,
            "CRAWL_SOURCES": self.home / "catalogue.json",
            "CRAWL_CONTACT": "mailto:benchmark@example.org",
            "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
            "IMAGES_STORE": self.thumbnails,
            "MAX_IDLE_TIME_BEFORE_CLOSE": 1,
            **self.settings,
        }
        return inherited | {name: str(value) for name, value in settings.items()}

    def worker_command(self, number: int, spider: str = "images") -> list[str]:
        """Return the command of a worker; it logs to `worker-<number>.log`."""
        modules = "SPIDER_MODULES=crawlproject.spiders,benchmarks.second_spider"
        where = [] if spider == "images" else ["-s", modules]
        return [*SCRAPY, "crawl", spider, *where, "--logfile", str(self.home / f"worker-{number}.log")]

    def worker(self, number: int, spider: str = "images") -> subprocess.Popen[bytes]:
        """Start a worker."""
        return subprocess.Popen(self.worker_command(number, spider), cwd=ROOT, env=self.environment)

    def scrapy(self, *arguments: str, patience: float | None = None) -> str:
        """Run a command to its end; return what it prints.

        Raises:
            subprocess.SubprocessError: it failed, or has not ended within `patience` seconds.

        """
        return subprocess.run(
            [*SCRAPY, *arguments],
            cwd=ROOT,
            env=self.environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=patience,
        ).stdout

    def dead_letters(self, spider: str = "images") -> list[dict[str, Any]]:
        """Return the dead letters, as `scrapy dead list --json` shows them."""
        listed = self.scrapy("dead", "list", "--json", "--spider", spider)
        return cast("list[dict[str, Any]]", json.loads(listed))

    def totals(self, spider: str = "images") -> dict[str, Any]:
        """Return what `scrapy stats` prints."""
        return cast("dict[str, Any]", json.loads(self.scrapy("stats", "--spider", spider)))


def options(
    program: str, description: str | None, parts: Collection[str] = (), part: str = "NAME"
) -> argparse.ArgumentParser:
    """Return a parser of a benchmark's options; where it has `parts`, with `--only` some of them and `--keep DIR`.

    From now on this process clears up when it is told to end.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    prog = f"python -m benchmarks.{program}"
    parser = argparse.ArgumentParser(prog=prog, description=(description or "").partition("\n")[0])
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, metavar=part, help=", ".join(parts))
        parser.add_argument(
            "--keep", type=Path, metavar="DIR", help="leave logs and arrivals in DIR, a new folder"
        )
    return parser


def event_files(path: Path) -> list[Path]:
    """Return the files of events that `scrapy events PATH` has written: one, or one for each shard."""
    return [path] if path.exists() else sorted(path.parent.glob(f"{path.stem}.[0-9][0-9]{path.suffix}"))


def events_in(path: Path) -> list[dict[str, Any]]:
    """Return the events that `scrapy events PATH` has written."""
    return [json.loads(line) for file in event_files(path) for line in file.read_text().splitlines()]


def until(what: str, patience: float, condition: Callable[[], object]) -> None:
    """Wait until `condition` holds.

    Raises:
        TimeoutError: it does not within `patience` seconds.

    """
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {patience:g} s still not true: {what}")
        time.sleep(0.01)


def stop(process: subprocess.Popen[Any], patience: float) -> None:
    """Tell a process to end, and kill it if it has not within `patience` seconds."""
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def issue_certificate(folder: Path, hosts: Iterable[str]) -> tuple[Path, Path]:
    """Write a key and certificate for `hosts`, and the certificate of its authority; return both paths."""
    authority = trustme.CA()
    issued, trusted = folder / "site.pem", folder / "authority.pem"
    authority.issue_cert(*hosts).private_key_and_cert_chain_pem.write_to_path(str(issued))
    authority.cert_pem.write_to_path(str(trusted))
    return issued, trusted


def size_for(rate: float) -> int:
    """Return a number of images that gives (very nearly) this rate."""
    if rate <= MINIMUM_RATE:
        return 0
    return round((rate - MINIMUM_RATE) / (MAXIMUM_RATE - MINIMUM_RATE) * (LARGE - SMALL))


def resident(pid: int) -> int:
    """Return the bytes of memory that a process and those it has started have at present."""
    total = 0
    with suppress(FileNotFoundError, ProcessLookupError):  # just gone
        total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            total += sum(resident(int(child)) for child in task.read_text().split())
    return total
