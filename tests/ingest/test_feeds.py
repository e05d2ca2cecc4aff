"""Feeds of files: how far each is, in the step that feeds it, and what holds it back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from crawlproject import config
from crawlproject.errors import BadInput
from crawlproject.frontier import seed_list
from crawlproject.ingest.feeds import Feed, Position, feed_name, why_held
from crawlproject.ingest.seed_files import SeedFile
from crawlproject.ingest.seed_rows import Columns, Reading
from crawlproject.state.client import State
from tests.state.calls.calls import db

KEY = "crawl:images:feed:f"


async def begun(state: State, name: str, *, resume: bool) -> Feed:
    feed = Feed(state, name)
    await feed.begin(resume=resume)
    return feed


async def push(feed: Feed, position: str, *seeds: str) -> None:
    await feed.push(seeds, position)


async def waiting(state: State) -> list[bytes]:
    """Return the seeds in the order in which they are read."""
    seeds: list[bytes] = await db(state).lrange(state.keys.seeds, 0, -1)
    return seeds[::-1]


async def test_a_feed_is_resumed_behind_its_last_seeds(state: State) -> None:
    feed = await begun(state, "f", resume=True)
    assert feed.position == ""
    await push(feed, "2", "a", "b")
    await push(feed, "3", "c")
    await push(feed, "end")
    assert await waiting(state) == [b"a", b"b", b"c"]
    assert (await begun(state, "f", resume=True)).position == "end"
    assert (await begun(state, "other", resume=True)).position == ""
    assert (await begun(state, "f", resume=False)).position == ""
    assert (await begun(state, "f", resume=True)).position == ""
    assert 29 * 86_400 < await db(state).ttl(KEY) <= 30 * 86_400


async def test_a_call_whose_reply_was_lost_puts_nothing_twice(state: State) -> None:
    feed = await begun(state, "f", resume=False)
    await push(feed, "1", "a")
    await push(feed, "1", "a")
    assert await waiting(state) == [b"a"]


@pytest.mark.parametrize("resume", [True, False])
async def test_of_two_feeds_of_the_same_files_the_later_goes_on(state: State, resume: bool) -> None:
    first = await begun(state, "f", resume=False)
    await push(first, "1", "a")
    second = await begun(state, "f", resume=resume)
    assert second.position == ("1" if resume else "")
    with pytest.raises(BadInput, match="another scrapy feed of the same files"):
        await push(first, "2", "b")
    await push(second, "2", "b")
    assert await waiting(state) == [b"a", b"b"]


ONE, TWO, THREE = (SeedFile(f"/seeds/{number}.csv", number * 100, number) for number in (1, 2, 3))


@pytest.mark.parametrize("position", [Position(), Position(0, 5), Position(1, 7), Position(2), Position(1, 7, 2)])
def test_it_comes_back_as_it_was(position: Position) -> None:
    assert Position.of_text(position.text([ONE, TWO]), [ONE, TWO]) == position


def test_files_behind_it_may_come_and_change() -> None:
    text = Position(0, 7).text([ONE, TWO])
    assert Position.of_text(text, [ONE, THREE, TWO]) == Position(0, 7)


@pytest.mark.parametrize(
    "files",
    [
        [ONE],
        [TWO, ONE],
        [THREE, ONE, TWO],
        [ONE, SeedFile(TWO.name, TWO.size, TWO.modified + 1)],
        [SeedFile(ONE.name, 5, ONE.modified), TWO],
    ],
)
def test_other_files_up_to_it_are_refused(files: list[SeedFile]) -> None:
    text = Position(1, 7).text([ONE, TWO])
    with pytest.raises(BadInput, match="behind row 7 of it: some have changed, come or gone; feed them without"):
        Position.of_text(text, files)


def test_of_a_feed_of_some_files_all_must_stay_and_more_may_come() -> None:
    text = Position(0, 7, 2).text([ONE, TWO])
    assert Position.of_text(text, [ONE, TWO, THREE]) == Position(0, 7, 2)
    for files in ([ONE], [ONE, THREE, TWO]):
        with pytest.raises(BadInput, match="begin without --resume, which feeds all rows again"):
            Position.of_text(text, files)


@pytest.mark.parametrize("text", ["", "[1]", '["a", 1, ""]', "[" * 100_000])
def test_what_others_wrote_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        Position.of_text(text, [ONE])


def test_a_feed_is_known_by_its_files_wherever_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = feed_name([str(tmp_path / "a*.csv"), "s3://b/*"], Columns())
    monkeypatch.chdir(tmp_path)
    assert feed_name(["a*.csv", "s3://b/*"], Columns()) == name
    monkeypatch.chdir("/")
    assert feed_name(["a*.csv", "s3://b/*"], Columns()) != name


class Other(Reading):
    name = ("other", True)


def test_other_options_are_another_feed() -> None:
    pairs = [(None, None), ("url=URL", None), ("url=LINK", None), ("url=URL", "TEXT"), (None, "TEXT")]
    pairs.append((None, "url=URL"))
    columns = [Columns.of_options(one, two, how) for how in (Reading(), Other()) for one, two in pairs]
    assert len({feed_name(["a.csv"], one) for one in columns}) == len(columns)
    one, other = (Columns.of_options(*pair) for pair in (("url=U,uuid=K", "A,B"), ("uuid=K, url=U", "B,A")))
    assert feed_name(["a.csv"], one) == feed_name(["a.csv"], other)


MUSEUM, ARCHIVE = "http://img.museum.org/a.jpg", "http://archive.org/a.jpg"
NAMED = json.dumps({"url": ARCHIVE, "source": "museum"})


@pytest_asyncio.fixture
async def bounded(redis_url: str) -> AsyncIterator[State]:
    """A frontier in which up to ten seeds wait beyond their sources' shares."""
    one = State(config.load({"REDIS_URL": redis_url, "CRAWL_OVERFLOW_MAXLEN": 10}), "images")
    await one.open()
    await db(one).hset(one.keys.hosts, "museum.org", "museum")
    await db(one).hset(one.keys.catalogue, "museum", "5")
    yield one
    await one.close()


async def overflow(bounded: State, **sources: int) -> None:
    for source, count in sources.items():
        for number in range(count):
            await db(bounded).rpush(f"{bounded.keys.overflow_of}{number % 5}:{source}", "x")
    await db(bounded).hincrby(bounded.keys.counters, "overflow", sum(sources.values()))


async def test_seeds_of_a_source_that_has_half_of_the_overflow_are_held_back(bounded: State) -> None:
    await overflow(bounded, museum=4)
    assert await why_held(bounded, [MUSEUM]) == ""
    await overflow(bounded, museum=1)
    held = "museum has enough seeds waiting: see scrapy sources museum"
    assert await why_held(bounded, [MUSEUM, "nonsense"]) == held
    assert await why_held(bounded, [NAMED]) == held
    assert await why_held(bounded, [ARCHIVE]) == ""
    assert await why_held(bounded, [MUSEUM, ARCHIVE]) == ""  # others' sake
    await overflow(bounded, **{"archive.org": 5})
    assert (await why_held(bounded, [MUSEUM, ARCHIVE])).startswith(
        "archive.org and museum have enough seeds waiting"
    )


async def test_a_list_that_is_full_holds_everything_back(bounded: State) -> None:
    await db(bounded).lpush(bounded.keys.seeds, *["x"] * 100_001)
    assert (await why_held(bounded, [ARCHIVE])).endswith("or see scrapy stats (seeds_waiting, outstanding)")


async def test_what_to_look_at_names_the_spider_that_is_fed(bounded: State) -> None:
    pages = bounded.beside("pages")
    await overflow(pages, museum=5)
    assert (await why_held(pages, [MUSEUM])).endswith("see scrapy sources --spider=pages museum")
    await db(pages).lpush(pages.keys.seeds, *["x"] * 100_001)
    assert "see scrapy stats --spider=pages (" in await why_held(pages, [ARCHIVE])


async def test_with_overflows_at_their_bound_a_topic_has_no_room(bounded: State) -> None:
    await overflow(bounded, museum=9)
    assert await seed_list.has_room(bounded)
    await overflow(bounded, museum=1)
    assert not await seed_list.has_room(bounded)
