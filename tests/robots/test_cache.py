"""robots.txt shared by workers: which fetches it, which wait, how long it is valid, and what it costs."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from scrapy.http import Response

from crawlproject.controls import expire_copies
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.middlewares.gate import TokenMiddleware
from crawlproject.politeness.robots_txt import Verdict
from crawlproject.state.client import State
from tests.robots_copies import copy_of, keep_copy, run_out, set_copy, unpacked
from tests.state.calls.calls import change_packed, db, lead, rule, slot_of
from tests.waiting import PATIENCE_S, until_async

URL, FORBIDDEN = "http://museum.example/a.jpg", "http://museum.example/p/a.jpg"
ORIGIN = "http://museum.example/robots.txt"
NONE_OF_P = b"User-agent: *\nDisallow: /p/\n"


# --- how often ---------------------------------------------------------------------------------------------------


async def test_every_source_on_a_site_learns_its_delay_whichever_fetched_it(state: State) -> None:
    async def asked_at() -> list[float | None]:
        for source in ("first", "second"):
            await looked(state, "worker", source=source)
        return [standing.robots_delay for standing in await state.scripts.inspect(["first", "second"])]

    assert await asked_at() == [None, None]
    assert await keep_copy(state, ORIGIN, "first", delay=7)
    assert await asked_at() == [7, 7]
    assert not await keep_copy(state, ORIGIN, "second", delay=7)
    assert not await keep_copy(state, ORIGIN, "second", delay=0)
    assert await asked_at() == [None, None]


async def test_a_look_without_a_token_changes_nothing(state: State) -> None:
    async def looked() -> tuple[str, bytes, Any, str]:
        before = await copy_of(state, ORIGIN)
        reply = await state.scripts.look_robots(None, ORIGIN, "museum")
        assert await copy_of(state, ORIGIN) == before
        [status] = await state.scripts.inspect(["museum"])
        assert status.robots_delay is None
        return reply.what, reply.body, round(reply.seconds), reply.reason

    assert await looked() == ("wait", b"", 0, "")
    await keep_copy(state, ORIGIN, "gallery", kind="unreachable", reason="status 503", retry=90.0)
    assert await looked() == ("unreachable", b"", pytest.approx(90, abs=30), "status 503")
    await set_copy(state, ORIGIN, retry=0)  # due to be fetched again: it still holds
    assert await looked() == ("unreachable", b"", 0, "status 503")
    await set_copy(state, ORIGIN, since=0)  # for more than 30 days
    assert await looked() == ("none", b"", 0, "status 503")
    await keep_copy(state, ORIGIN, "gallery", body=b"x", ttl=60.0, delay=5.0)
    assert await looked() == ("rules", b"x", pytest.approx(60, abs=30), "")
    await run_out(state, ORIGIN)  # run out: it serves until there is another
    assert await looked() == ("rules", b"x", 0, "")
    reply = await state.scripts.look_robots("worker", ORIGIN, "museum")
    assert (reply.what, reply.body, reply.fetch) == ("rules", b"x", ORIGIN)


async def test_a_delay_binds_its_source_as_long_as_its_host_is_crawled(state: State) -> None:
    redis: Any = state.redis
    slow, other = "http://slow.example/robots.txt", "http://other.example/robots.txt"

    async def asked(*origins: str) -> float | None:
        for origin in origins:
            await state.scripts.look_robots("worker", origin, "museum")
        [standing] = await state.scripts.inspect(["museum"])
        return standing.robots_delay

    async def not_requested_for(seconds: int) -> None:
        now, _ = await redis.time()
        score = 50_000 * 2**26 + (now - seconds) // 60
        await redis.zadd(state.keys.robots_delays_of + "museum", {slow: score})

    for origin, delay in ((slow, 50.0), (other, 2.0)):
        await keep_copy(state, origin, "museum", delay=delay)
    assert await asked(other) == 50
    await not_requested_for(600)
    assert await asked(other) == 50  # ten minutes and its own delay
    await not_requested_for(800)
    assert await asked(other) == 2
    [standing] = await state.scripts.inspect(["museum"])
    assert standing.next_slot <= standing.now + 2
    reply = await state.scripts.look_robots("worker", slow, "museum")  # before the next request to it
    assert reply.slower
    assert await asked(other) == 50
    await not_requested_for(800)
    assert await asked(slow) == 50
    assert await asked(other) == 50


# --- fetched by one, for all -------------------------------------------------------------------------------------

PAUSES: Any = {"retry": 60.0, "retry_max": 3600.0}


async def looked(state: State, token: str, origin: str = ORIGIN, source: str = "museum") -> tuple[str, str]:
    """Return what a look-up is told, and about which URL: "fetch" if it is to fetch that."""
    reply = await state.scripts.look_robots(token, origin, source)
    return ("fetch", reply.fetch) if reply.fetch else (reply.what, reply.url)


async def redirect(state: State, url: str, target: str) -> None:
    """Have a copy say that `url` redirects to `target`."""
    await keep_copy(state, url, "museum", kind="redirect", body=target.encode())


async def test_a_look_up_whose_reply_was_lost_fetches_and_others_wait(state: State) -> None:
    assert await looked(state, "w 1") == ("fetch", ORIGIN)
    assert await looked(state, "w 1") == ("fetch", ORIGIN)
    assert await looked(state, "w 2") == ("wait", ORIGIN)
    assert not (await state.scripts.look_robots("w 1", ORIGIN, "museum", fetches=False)).fetch


async def test_what_comes_after_the_lock_was_lost_is_not_kept(state: State) -> None:
    keep = state.scripts.keep_robots
    assert await looked(state, "late") == ("fetch", ORIGIN)
    await set_copy(state, ORIGIN, locked=0)  # its time is over
    assert await looked(state, "next") == ("fetch", ORIGIN)
    assert not await keep("late", ORIGIN, kind="rules", body=b"old", ttl=60, **PAUSES)
    assert await looked(state, "third") == ("wait", ORIGIN)
    assert await keep("next", ORIGIN, kind="rules", body=b"new", ttl=60, **PAUSES)
    assert not await keep("late", ORIGIN, kind="unreachable", **PAUSES)
    reply = await state.scripts.look_robots("third", ORIGIN, "museum")
    assert (reply.what, reply.body) == ("rules", b"new")


async def test_all_who_are_redirected_to_one_url_share_what_is_found_there(state: State) -> None:
    hosts = [f"http://parked{n}.example/robots.txt" for n in range(3)]
    target = "http://parking.example/robots.txt"
    for number, host in enumerate(hosts):
        source = f"parked{number}"
        assert await looked(state, source, host, source) == ("fetch", host)
        await redirect(state, host, target)
    assert await looked(state, "first", hosts[0], "parked0") == ("fetch", target)
    assert await looked(state, "second", hosts[1], "parked1") == ("wait", target)
    assert await state.scripts.keep_robots("first", target, kind="rules", body=b"x", ttl=60, delay=7, **PAUSES)
    for number, host in enumerate(hosts):
        reply = await state.scripts.look_robots("any", host, f"parked{number}")
        assert (reply.what, reply.body, reply.url) == ("rules", b"x", target)
        assert 30 < reply.seconds <= 60
    delays = await state.scripts.inspect(["parked0", "parked2", "parking.example"])
    assert [standing.robots_delay for standing in delays] == [7, 7, None]  # it binds those who are sent there

    await run_out(state, target)  # it has run out: it serves until there is another
    assert await looked(state, "third", hosts[2], "parked2") == ("fetch", target)
    assert await looked(state, "second", hosts[1], "parked1") == ("rules", target)
    assert await state.scripts.keep_robots("third", target, kind="unreachable", reason="status 503", **PAUSES)
    assert await looked(state, "second", hosts[1], "parked1") == ("rules", target)

    await expire_copies(state, "parked0")  # what it leads to as well
    first, second = [(await copy_of(state, host))["fresh"] for host in hosts[:2]]
    assert first < second - 3_000_000_000
    assert await looked(state, "first", hosts[0], "parked0") == ("fetch", hosts[0])
    await expire_copies(state, "parked0")  # whoever fetches it keeps its turn
    assert await looked(state, "second", hosts[0], "parked0") == ("rules", target)
    assert await state.scripts.keep_robots("first", hosts[0], kind="none", ttl=60, **PAUSES)


@pytest.mark.parametrize(("redirects", "what"), [(5, "rules"), (6, "none")])
async def test_five_redirects_are_followed(state: State, redirects: int, what: str) -> None:
    urls = [ORIGIN, *(f"http://hop{n}.example/robots.txt" for n in range(redirects))]
    for url, target in pairwise(urls):
        assert (await looked(state, "w"))[0] == "fetch"
        await redirect(state, url, target)
    await keep_copy(state, urls[-1], "other", body=b"x")
    assert (await looked(state, "w"))[0] == what


# --- slots, one by one -------------------------------------------------------------------------------------------


class Downloader:
    """The engine's downloader with the gate before it, and a site that gives `answer` at once."""

    def __init__(self, scheduler: FrontierScheduler, missed: int, takes: float, **answer: Any) -> None:
        self.gate = TokenMiddleware(scheduler.crawler)
        self.missed = missed
        self.takes = takes
        self.answer = {"body": NONE_OF_P} | answer
        self.tries = 0

    async def __call__(self, request: Any) -> Response:
        self.tries += 1
        if self.tries <= self.missed:
            time.sleep(0.3)  # a busy worker: the slot passes
        await self.gate.process_request(request)
        await asyncio.sleep(self.takes)
        return Response(request.url, request=request, **self.answer)


def download(scheduler: FrontierScheduler, missed: int = 0, takes: float = 0.0, **answer: Any) -> Downloader:
    made = Downloader(scheduler, missed, takes, **answer)
    scheduler.crawler.engine.download_async = made  # type: ignore[method-assign]
    return made


async def verdict_of(scheduler: FrontierScheduler, url: str = URL, **patience: float) -> Verdict:
    """Look up whether a URL may be fetched."""
    verdict = await scheduler.robots.look_up(url, "museum", **patience)
    assert verdict is not None
    return verdict


async def test_hosts_that_hang_take_a_quarter_of_the_worker_and_a_stopping_worker_abandons_them(
    scheduler: FrontierScheduler,
) -> None:
    await rule(scheduler.state, ("museum", 50))
    downloader = download(scheduler, takes=60.0)
    most = scheduler.crawler.settings.getint("CONCURRENT_REQUESTS") // 4
    robots = scheduler.robots
    robots.fetcher.under_way = most
    assert await robots.look_up(URL, "museum", patience=0.5) is None
    assert downloader.tries == 0
    robots.fetcher.under_way = most - 1
    looking = asyncio.create_task(robots.look_up(URL, "museum"))
    await until_async(lambda: downloader.tries)
    slot: Any = scheduler.crawler.engine._slot
    slot.closing = True
    assert await asyncio.wait_for(looking, PATIENCE_S) is None
    await until_async(lambda: robots.under_way == most - 1)
    slot.closing = None
    assert "token" not in await copy_of(scheduler.state, ORIGIN)


async def test_a_slot_that_a_busy_worker_misses_is_not_the_fault_of_the_site(scheduler: FrontierScheduler) -> None:
    await rule(scheduler.state, ("museum", 20))
    downloader = download(scheduler, missed=2)
    assert (await verdict_of(scheduler)).allowed
    assert downloader.tries >= 3
    assert not (await verdict_of(scheduler, FORBIDDEN)).allowed


async def test_a_robots_txt_waits_for_its_slot_without_keeping_anything_from_others(
    scheduler: FrontierScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawlproject.robots.cache._SOON_S", 0.2)
    await rule(scheduler.state, ("museum", 0.4))
    download(scheduler)
    first = await slot_of(scheduler.state, source="museum")  # the next slot is 2.5 s ahead
    assert await scheduler.robots.look_up(URL, "museum", patience=0.3) is None
    assert not await copy_of(scheduler.state, ORIGIN)
    [standing] = await scheduler.state.scripts.inspect(["museum"])
    assert standing.next_slot - standing.now < 2.5  # none was reserved
    assert scheduler.robots.put_off(URL, "museum") > scheduler.robots.put_off(
        "http://other.example/a.jpg", "museum"
    )
    assert (await verdict_of(scheduler)).allowed
    assert asyncio.get_running_loop().time() > first.moment + 2.4


async def test_a_robots_txt_is_fetched_soon_after_the_operator_ends_a_hold(
    scheduler: FrontierScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawlproject.robots.cache._LOOK_MAX_S", 0.3)
    await rule(scheduler.state, ("museum", 50))
    client, circuit = db(scheduler.state), scheduler.state.keys.circuit_of + "museum"
    await change_packed(client, circuit, hold=int((time.time() + 3600) * 1e6))
    download(scheduler)
    assert await scheduler.robots.look_up(URL, "museum", patience=0.5) is None
    await change_packed(client, circuit, hold=0)
    assert (await verdict_of(scheduler, patience=60)).allowed


async def test_an_old_copy_serves_while_there_is_no_slot_to_fetch_another(scheduler: FrontierScheduler) -> None:
    await rule(scheduler.state, ("museum", 0))
    await keep_copy(scheduler.state, ORIGIN, "museum", body=NONE_OF_P)
    await run_out(scheduler.state, ORIGIN)
    before = await copy_of(scheduler.state, ORIGIN)
    assert (await verdict_of(scheduler, FORBIDDEN, patience=10)).reason == "line 2, Disallow: /p/"
    await rule(scheduler.state, ("museum", 50))
    download(scheduler)

    async def is_fresh() -> bool:
        return bool((await copy_of(scheduler.state, ORIGIN))["fresh"] > before["fresh"])

    await until_async(is_fresh)


@pytest.mark.parametrize(("line", "delay"), [("Request-rate: 4/2s", 0.5), ("Crawl-delay: 300", 60.0)])
async def test_the_delay_that_a_site_asks_for_binds_its_source_up_to_the_bound(
    scheduler: FrontierScheduler, line: str, delay: float
) -> None:
    await rule(scheduler.state, ("museum", 50))
    download(scheduler, body=f"User-agent: *\n{line}\n".encode())
    await verdict_of(scheduler)
    [standing] = await scheduler.state.scripts.inspect(["museum"])
    assert (standing.robots_delay, standing.effective) == (delay, 1 / delay)


# --- memory ---------------------------------------------------------------------------------------------------

OVERHEAD = 350  # bytes of a copy beside its text


def origin(number: int) -> str:
    return f"https://site{number}.org/robots.txt"


def noise(length: int) -> bytes:
    """Return a text that cannot be compressed."""
    return Random(0).randbytes(length)


async def texts(state: State) -> list[int]:
    """Return the lengths of all texts that are stored, in the order of their sites."""
    redis: Any = state.redis
    keys = sorted([key async for key in redis.scan_iter(match="crawl:robots:*")])
    return [len(unpacked(await redis.get(key)).get("body", b"")) for key in keys]


async def size(state: State) -> int:
    return int(await state.redis.zscore(state.keys.robots_stored, "") or 0)


async def kept(state: State, count: int) -> list[int]:
    """Return of which of the first sites there is a copy."""
    keys = state.keys.robots_of
    return [number for number in range(count) if await state.redis.exists(keys + origin(number))]


async def leave(state: State, room: int) -> None:
    """Have other copies take all of the memory that copies may take, but for `room` bytes."""
    await state.redis.zincrby(state.keys.robots_stored, 2**30 - room - await size(state), "")


async def test_the_oldest_copies_go_when_all_are_too_large(state: State) -> None:
    body = noise(10_000)
    for number in range(6):
        await keep_copy(state, origin(number), "museum", body=body)
        await state.redis.zincrby(state.keys.robots_stored, -3600 * 2**20, origin(number))  # an hour ago
    sizes = await texts(state)
    assert await size(state) == sum(length + OVERHEAD for length in sizes)
    assert len(sizes) == 6
    await leave(state, -2 * (sizes[0] + OVERHEAD))
    await keep_copy(state, origin(9), "museum", body=body)
    assert await texts(state) == [sizes[0]] * 4
    assert (await state.scripts.look_robots("w", origin(9), "museum")).what == "rules"
    gone = set(range(6)) - {*await kept(state, 6)}
    assert len(gone) == 3
    assert (await state.scripts.look_robots("w", origin(gone.pop()), "museum")).fetch


async def test_a_copy_that_is_stored_anew_is_the_youngest_and_counts_once(state: State) -> None:
    for number in range(3):
        await keep_copy(state, origin(number), "museum", body=noise(1000))
        await state.redis.zincrby(state.keys.robots_stored, (number - 9) * 3600 * 2**20, origin(number))
    await keep_copy(state, origin(0), "museum", body=noise(1200))
    sizes = await texts(state)
    assert await size(state) == sum(sizes) + 3 * OVERHEAD
    await leave(state, 0)
    await keep_copy(state, origin(3), "museum", body=noise(1000))
    assert await kept(state, 4) == [0, 2, 3]


async def test_a_delay_outlives_the_copy_that_asked_for_it(state: State) -> None:
    await keep_copy(state, origin(1), "museum", body=noise(1000), delay=7.0)
    await state.redis.zincrby(state.keys.robots_stored, -3600 * 2**20, origin(1))
    await leave(state, 0)
    await keep_copy(state, origin(2), "museum", body=noise(1000))
    assert (await state.scripts.inspect(["museum"]))[0].robots_delay == 7.0
    assert (await state.scripts.look_robots("w", origin(1), "museum")).what == "wait"


async def test_what_has_expired_counts_no_more(state: State) -> None:
    fence = await lead(state)
    for number in range(3):
        await keep_copy(state, origin(number), "museum", body=noise(1000))
    for number in range(2):
        await state.redis.zincrby(state.keys.robots_stored, -5 * 86400 * 2**20, origin(number))
        await state.redis.delete(state.keys.robots_of + origin(number))
    await state.scripts.trim(fence, maxlen=100)
    [length] = await texts(state)
    assert await size(state) == length + OVERHEAD
    assert await state.redis.zrange(state.keys.robots_stored, 0, -1) == [b"", origin(2).encode()]
