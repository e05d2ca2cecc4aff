"""Where the catalogue comes from, and what the one who leads makes of it."""

from __future__ import annotations

import asyncio
import json
import logging
import socketserver
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crawlproject import config
from crawlproject import leader as leaders
from crawlproject.errors import CatalogueError
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.leader import Leader
from crawlproject.program import as_called
from crawlproject.sources import catalogue_reader
from crawlproject.sources.catalogue_reader import read_catalogue
from crawlproject.state import source_table
from tests.waiting import until_async, until_equal

ROWS = json.dumps([{"source_name": "museum", "image_count": 5_000}]).encode()


def limits(place: str) -> dict[str, float]:
    """Read the catalogue there; return the rate of each source."""
    with read_catalogue(place) as found:
        return {row.source: row.rate for rows in found.rows(10) for row in rows}


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Serve `answer`, byte for byte, to whoever asks."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/catalogue"
        finally:
            server.shutdown()
            thread.join()


def test_over_http() -> None:
    with answering(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + ROWS) as url:
        assert limits(url) == {"museum": 0.2}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.0 404 Not Found\r\n\r\n" + ROWS,
        b"HTTP/1.0 302 Found\r\nLocation: /catalogue\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5000\r\n\r\n" + ROWS[:-1],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + ROWS,
        b"HTTP/1.0 200 OK\r\n\r\n[{}]",
    ],
)
def test_whatever_a_server_answers_the_fault_is_reported_with_its_place(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(CatalogueError) as caught:
        read_catalogue(url)
    assert str(caught.value).startswith(f"CRAWL_SOURCES={url}")


@pytest.mark.parametrize(
    "place",
    ["/nowhere/catalogue.json", "/", "ftp://127.0.0.1/c", "http://[::1/", "http://127.0.0.1:1/c", "a\x00b"],
)
def test_a_place_that_cannot_be_read_is_reported(place: str) -> None:
    with pytest.raises(CatalogueError) as caught:
        read_catalogue(place)
    assert str(caught.value).startswith(f"CRAWL_SOURCES={place} cannot be read: ")


def test_a_catalogue_is_not_read_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "catalogue.json"
    path.write_bytes(ROWS)
    monkeypatch.setattr(catalogue_reader, "_MAX_CATALOGUE", len(ROWS))
    assert limits(str(path))
    monkeypatch.setattr(catalogue_reader, "_MAX_CATALOGUE", len(ROWS) - 1)
    with pytest.raises(CatalogueError, match="larger than"):
        read_catalogue(str(path))


# The leader


async def test_what_is_deleted_of_the_catalogue_is_written_again_at_once(
    scheduler: FrontierScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis, keys = scheduler.state.redis, scheduler.state.keys
    derived = (keys.catalogue, keys.hosts, keys.rates)
    async with leading(scheduler, catalogue(tmp_path / "c", museum=500_000_000)):
        monkeypatch.setattr(leaders, "_REFRESH_S", 1800.0)
        for key in derived:
            await until_equal(lambda: redis.exists(*derived), 3)
            await asyncio.sleep(0.2)  # it waits for the next reading
            await redis.delete(key)
            await until_equal(lambda: redis.exists(*derived), 3)


async def test_a_bad_row_changes_nothing_for_its_source_and_nothing_for_others(
    scheduler: FrontierScheduler, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    redis, keys = scheduler.state.redis, scheduler.state.keys
    path = catalogue(tmp_path / "c", museum=500_000_000, flickr=5_000)
    async with leading(scheduler, path):
        await until_async(lambda: redis.hexists(keys.hosts, "museum.org"))
        rows = [{"source_name": "museum", "image_count": -1}, {"source_name": "louvre", "image_count": 1}]
        path.write_text(json.dumps([*rows, *({"image_count": 1} for _ in range(30))]))
        await until_async(lambda: redis.hexists(keys.catalogue, "louvre"))
        await until_equal(lambda: redis.hexists(keys.catalogue, "flickr"), False)
        await asyncio.sleep(0.1)  # a few readings more
        assert await rates_by_size(redis, keys) == {b"museum": b"200.0", b"louvre": b"0.2"}
        assert await redis.hget(keys.rates, "museum") == b"200.0"
        assert await redis.hgetall(keys.hosts) == {b"museum.org": b"museum"}
    said = [record.message for record in caplog.records if "left out" in record.message]
    assert said[0] == (
        f"CRAWL_SOURCES={path}: row 1 is left out: image_count of museum must be a whole number from 0, not -1"
    )
    assert said[10] == f"CRAWL_SOURCES={path}: 21 more rows are left out"


@asynccontextmanager
async def leading(
    scheduler: FrontierScheduler, sources: Path | None = None, **settings: Any
) -> AsyncIterator[Leader]:
    loaded = config.load(scheduler.crawler.settings)
    changed = replace(loaded, sources=None if sources is None else str(sources), **settings)
    one = Leader(changed, scheduler.state)
    one.start()
    try:
        yield one
    finally:
        await one.stop()


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TICK_S", "_REFRESH_S", "_REFRESH_SOON_S"):
        monkeypatch.setattr(leaders, name, 0.02)


def catalogue(path: Path, **sizes: int) -> Path:
    rows = [{"source_name": name, "image_count": size, "hosts": [f"{name}.org"]} for name, size in sizes.items()]
    part = path.with_suffix(".part")
    part.write_text(json.dumps(rows))
    return part.replace(path)


async def rates_by_size(redis: Any, keys: Any) -> dict[bytes, bytes]:
    return {source: row.split(b"\t")[0] for source, row in (await redis.hgetall(keys.catalogue)).items()}


async def test_the_leader_sets_rates_by_size_and_follows_the_catalogue(
    scheduler: FrontierScheduler, tmp_path: Path
) -> None:
    redis, keys = scheduler.state.redis, scheduler.state.keys
    path = catalogue(tmp_path / "c", museum=5_000, flickr=500_000_000)
    async with leading(scheduler, path):
        await until_async(lambda: redis.get(keys.pulse))
        assert await redis.hgetall(keys.rates) == {b"museum": b"0.2", b"flickr": b"200.0"}
        assert await rates_by_size(redis, keys) == {b"museum": b"0.2", b"flickr": b"200.0"}
        assert await redis.hgetall(keys.hosts) == {b"museum.org": b"museum", b"flickr.org": b"flickr"}
        catalogue(path, museum=500_000_000, louvre=1)
        await until_async(lambda: redis.hexists(keys.hosts, "louvre.org"))
        wanted = {b"museum": b"200.0", b"louvre": b"0.2", b"flickr": b"0.2"}  # flickr: the minimum from now on
        await until_equal(lambda: redis.hgetall(keys.rates), wanted)
        await until_equal(lambda: redis.hkeys(keys.catalogue), [b"museum", b"louvre"])
        owners = {b"museum.org": b"museum", b"louvre.org": b"louvre"}
        await until_equal(lambda: redis.hgetall(keys.hosts), owners)
    assert await redis.get(keys.leader) is None  # free for another at once


async def test_a_source_that_was_dropped_falls_to_the_minimum_though_redis_fails_meanwhile(
    scheduler: FrontierScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis, keys, scripts = scheduler.state.redis, scheduler.state.keys, scheduler.state.scripts
    path = catalogue(tmp_path / "c", museum=5_000, flickr=500_000_000)
    failing = ["set_rates", "forget"]

    async with leading(scheduler, path):
        await until_async(lambda: redis.get(keys.pulse))
        for name in list(failing):
            do = getattr(scripts, name)

            async def fail_once(*args: Any, name: str = name, do: Any = do) -> Any:
                if name in failing:
                    failing.remove(name)
                    raise ConnectionError(name)
                return await do(*args)

            monkeypatch.setattr(scripts, name, fail_once)
        catalogue(path, museum=5_000)
        await until_equal(lambda: redis.hgetall(keys.rates), {b"museum": b"0.2", b"flickr": b"0.2"})
        await until_async(lambda: not failing)
        await until_equal(lambda: redis.hkeys(keys.catalogue), [b"museum"])


async def test_an_override_holds_as_long_as_it_stands_and_makes_sense(
    scheduler: FrontierScheduler, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    redis, keys = scheduler.state.redis, scheduler.state.keys
    caplog.set_level(logging.INFO)

    async def rate(wanted: bytes) -> None:
        await until_equal(lambda: redis.hget(keys.rates, "museum"), wanted)

    async with leading(scheduler, catalogue(tmp_path / "c", museum=5_000)):
        await rate(b"0.2")
        for value, expected in [
            ("5", b"5.0"),
            ("5 over-robots", b"5.0 over-robots"),
            ("0.05", b"0.05"),
            ("0", b"0.0"),
            ("5 over robots", b"0.2"),
            ("7", b"7.0"),
        ]:
            await redis.set(keys.override_rate_of + "museum", value)
            await rate(expected)
            assert await rates_by_size(redis, keys) == {b"museum": b"0.2"}
        await redis.delete(keys.override_rate_of + "museum")
        await rate(b"0.2")
    [said] = [record.message for record in caplog.records if "museum" in record.message]
    assert "not a rate in requests a second" in said  # once, though it was looked at all the time


async def test_an_order_without_the_prefix_is_told_once_with_the_key_that_is_meant(
    scheduler: FrontierScheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    redis, keys = scheduler.state.redis, scheduler.state.keys
    monkeypatch.setattr(leaders, "_UNREAD_S", 0.01)
    looks = []

    async def looked(*args: Any, look: Any = source_table.unread_keys) -> Any:
        looks.append(await look(*args))
        return looks[-1]

    monkeypatch.setattr(source_table, "unread_keys", looked)

    async def found(count: int) -> bool:
        return [len(look) for look in looks].count(count) > 2

    async with leading(scheduler):
        await redis.set("override_rate:elsewhere", "5")  # of no source that is known
        await redis.hset(keys.rates, "museum", "0.2")
        await until_async(lambda: found(0))
        assert not caplog.records
        await redis.set("override_rate:museum", "5")
        await redis.sadd("halted", "museum")
        await redis.lpush("statuslast50req:museum", 200)
        await until_async(lambda: found(3))
    said = " ".join(record.message for record in caplog.records)
    for written, order in [
        ("override_rate:museum", "rate museum RPS"),
        ("halted", "halt SOURCE"),
        ("statuslast50req:museum", "explain museum"),
    ]:
        assert said.count(f" {written} (meant: crawl:{written}, or {as_called(f'scrapy {order}')})") == 1


async def test_without_a_catalogue_that_was_promised_nothing_goes_out(
    scheduler: FrontierScheduler, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    redis, keys = scheduler.state.redis, scheduler.state.keys
    path = tmp_path / "c"
    async with leading(scheduler, path):
        await until_async(lambda: "nothing is leased yet" in caplog.text)
        assert await redis.get(keys.leader)
        assert await redis.get(keys.pulse) is None
        catalogue(path, museum=1)
        await until_async(lambda: redis.get(keys.pulse))
        # once there are rates, they stay
        path.write_text("[{}]")
        caplog.clear()
        await until_async(lambda: "the last rates stay" in caplog.text)
        await redis.delete(keys.pulse)
        await until_async(lambda: redis.get(keys.pulse))
        assert await redis.hget(keys.rates, "museum") == b"0.2"


async def test_one_leads_and_another_takes_over_when_it_is_gone(
    scheduler: FrontierScheduler, redis_url: str
) -> None:
    redis, keys = scheduler.state.redis, scheduler.state.keys
    began = asyncio.get_running_loop().time()
    await redis.set(keys.leader, "somebody else", px=300)
    await redis.set(keys.fence, 7)
    async with leading(scheduler):
        await until_async(lambda: redis.get(keys.pulse))
        assert asyncio.get_running_loop().time() - began > 0.3
        assert await redis.get(keys.leader) == scheduler.state.worker_id.encode()
        assert await redis.get(keys.fence) == b"8"


async def test_what_else_the_catalogue_says_of_sources_goes_along_and_goes_again(
    scheduler: FrontierScheduler, tmp_path: Path
) -> None:
    redis, keys = scheduler.state.redis, scheduler.state.keys
    path = tmp_path / "c"
    plain = {"source_name": "museum", "image_count": 1}
    more = {"robots": "ignore", "circuit": {"errors": 0.5, "open": 2}, "hosts": ["img.museum.org"]}
    others = [
        {"source_name": "photos", "image_count": 1, "source_url": "https://www.photos.org/"},
        {"source_name": "nowhere", "image_count": 1},
    ]
    options = {"circuit": {"errors": 0.5, "open": 2_000_000}, "robots": "ignore", "hosts": ["img.museum.org"]}
    for trust, bound in (
        ("hosts", {"museum": " museum.org ", "photos": " photos.org ", "nowhere": " "}),
        ("catalogue", {"museum": " museum.org ", "photos": "", "nowhere": ""}),
    ):
        path.write_text(json.dumps([plain | more, *others]))

        async def as_said(bound: dict[str, str] = bound) -> bool:
            found: Any = await redis.hgetall(keys.catalogue)
            rows = {name.decode(): row.decode().split("\t") for name, row in found.items()}
            said = {name: domains for name, (_, domains, _) in rows.items()} == bound
            return said and json.loads(rows["museum"][2]) == options

        async with leading(scheduler, path, source_trust=trust):
            await until_async(as_said)
            path.write_text(json.dumps([plain]))

            async def gone() -> bool:
                stored: Any = await redis.hgetall(keys.catalogue)
                return {name: row.split(b"\t")[2] for name, row in stored.items()} == {b"museum": b""}

            await until_async(gone)
