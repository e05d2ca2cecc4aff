"""The seed list: which lines are valid, why others are refused, and how it is read while there is room."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlproject.errors import BadSeed
from crawlproject.frontier import contents, seeds
from crawlproject.frontier.seeds import LONGEST_IDENTIFIER, SeedReader, parse_seed, requests_of
from crawlproject.models import Seed
from crawlproject.spiders.images import ImagesSpider
from crawlproject.state import functions
from crawlproject.state.calls import UsersSeedsScripts
from crawlproject.state.client import State
from crawlproject.state.keys import Keys
from crawlproject.texts import LONGEST_URL
from tests.state.calls.calls import db, join, rule, waiting
from tests.state.servers import opened

URL = "https://museum.org/a.jpg"
SPIDER = ImagesSpider()


def id_of(url: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, url))


@pytest.mark.parametrize(
    ("line", "url"),
    [
        (URL, URL),
        (f"  {URL}\r\n", URL),
        ("HTTP://Museum.ORG:8080/A?b=c&d#e", "HTTP://Museum.ORG:8080/A?b=c&d#e"),
        ("http://bücher.de/ä.jpg", "http://xn--bcher-kva.de/ä.jpg"),
        ("http://a/" + "x" * (LONGEST_URL - 9), "http://a/" + "x" * (LONGEST_URL - 9)),
    ],
)
def test_a_plain_url(line: str, url: str) -> None:
    expected = Seed(url, id_of(line.strip()), source=None, priority=None, again=False)
    assert parse_seed(line) == expected
    assert parse_seed(line.encode()) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, {}),
        ({"uuid": "6f1c"}, {"identifier": "6f1c"}),
        ({"uuid": "", "identifier": "b"}, {"identifier": "b"}),
        ({"uuid": "a/../b ~\n馬"}, {"identifier": "a/../b ~\n馬"}),
        ({"uuid": "x" * LONGEST_IDENTIFIER}, {"identifier": "x" * LONGEST_IDENTIFIER}),
        ({"extra": {"TEXT": "ž", "n": [1, {}]}}, {"extra": {"TEXT": "ž", "n": [1, {}]}}),
        ({"source": "Flickr"}, {"source": "flickr"}),
        ({"priority": 5}, {"priority": 4}),
        ({"again": True}, {"again": True}),
        ({"depth": 10**30}, {"depth": 20}),
        ({"scope": "host"}, {"scope": "host:museum.org"}),
        ({"scope": "https://museum.org/a*"}, {"scope": "pattern:museum.org/a*"}),
        ({"title": "x", "meta": {"lease": 1}, "callback": "parse", "method": "POST"}, {}),
    ],
)
def test_a_json_seed(data: dict[str, Any], expected: dict[str, Any]) -> None:
    whole = {"identifier": id_of(URL), "source": None, "priority": None, "again": False} | expected
    assert parse_seed(json.dumps({"url": URL} | data)) == Seed(url=URL, **whole)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        # plain lines
        ("   \n", "no URL"),
        (b"\xff\xfe", "UTF-8"),
        ("ftp://museum.org/a.jpg", "must begin with http"),
        ("http://./a.jpg", "without a host"),
        ("http://user@/", "a user name or password"),
        *(
            (f"http://{host}/", "an invalid host name")
            for host in ["*", "%6c%00", "\u200d", "a\u2028b", "ü" * 70, "ü..de", "．．"]
        ),
        ("http://museum.org\\a.jpg", "an invalid host name"),
        ("http://museum.org:0/", "port 0"),
        ("http://[::1/", "invalid URL"),
        ("http://museum.org/\r\nHost: x", "spaces"),
        ("http://a/" + "x" * (LONGEST_URL - 8), f"more than {LONGEST_URL}"),
        ("http://a/\ud800", "invalid URL"),
        # not an object
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('["http://a/"]', "not an object"),
        # an object without a valid URL
        ('{"uri": "http://a/"}', "no URL"),
        # an invalid value besides the URL
        ('{"url": "http://a/", "uuid": "\\ud800"}', "uuid"),
        ('{"url": "http://a/", "source": "Museum of X"}', "source 'Museum of X' must be 1 to 128 letters, digits"),
        # a host whose source would have such a name
        ("http://-rf/", "invalid host '-rf': "),
        ('{"url": "http://b.-a.com/", "source": "x"}', "invalid host 'b.-a.com': "),
        ('{"url": "http://a/", "priority": true}', "priority"),
        ('{"url": "http://a/", "again": 1}', "again"),
        ('{"url": "http://a/", "extra": "x"}', "extra must be a JSON object: 'x'"),
        (
            '{"url": "http://a/", "extra": ["http://me:secret@a/"]}',
            "extra must be a JSON object: ['http://***@a/']",
        ),
        ('{"url": "http://a/", "extra": {"a": NaN}}', "extra that cannot be stored"),
        ('{"url": "http://a/", "extra": {"a": ' + "[" * 900 + "]" * 900 + "}}", "extra that cannot be stored"),
    ],
)
def test_an_invalid_line(line: str | bytes, reason: str) -> None:
    with pytest.raises(BadSeed) as caught:
        parse_seed(line)
    words = str(caught.value)
    assert reason in words
    assert len(words) < 250
    words.encode()  # it goes into Redis


@pytest.mark.parametrize(
    "url",
    [
        "http://user:S3CRET@museum.org/",
        "http://museum.org\\S3CRET@x/",
        "http://user:S3CRET/x@museum.org/",
        "http://user:S3CRET@[::1/",
        "http://user:S3CRET@museum.org/a b",
    ],
)
def test_a_user_name_or_password_is_refused_and_never_repeated(url: str) -> None:
    for line in (
        url,
        json.dumps({"url": url}),
        json.dumps({"url": [url]}),
        json.dumps({"url": "x", "uuid": {url: 1}}),
    ):
        with pytest.raises(BadSeed) as caught:
            parse_seed(line)
        assert "S3CRET" not in str(caught.value)


# Whatever comes, quickly

GOOD = json.dumps(
    {"url": "https://museum.org/a.jpg", "uuid": "1", "source": "museum", "priority": 2, "again": True}
)


def understood(line: bytes | str) -> None:
    """Turn a line into what the enqueue script takes, or a dead letter; anything else is an error."""
    began = time.thread_time()
    try:
        parse_seed(line)
    except BadSeed as error:
        str(error).encode()
    spider = ImagesSpider()
    reader = SeedReader(None, spider, requests_of(spider), None, lambda: None)  # type: ignore[arg-type]
    packed = reader._item(line if isinstance(line, bytes) else line.encode(errors="surrogatepass"))
    functions.packed({"items": [packed]})
    assert time.thread_time() - began < 1


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_mutated_seed_is_a_seed_or_a_dead_letter(data: st.DataObject) -> None:
    line = bytearray(GOOD.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(line)))
        line[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    understood(bytes(line))


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=30),
    st.sampled_from(["http://{}/", "https://a/{}", "http://a:{}/", "http://{}@a/", "{}://a/"]),
)
def test_a_url_of_any_kind_is_a_seed_or_a_dead_letter(text: str, form: str) -> None:
    understood(form.format(text))


@pytest.mark.parametrize(
    "line",
    [
        "[" * 1_000_000,
        "http://a/" + "x" * 1_000_000,
        '{"url": "http://a/", "uuid": ' + "9" * 1_000_000 + "}",
        "http://[" + ":" * 1_000 + "]/",
        b"\xff\xfe" + GOOD.encode("utf-16-le"),
    ],
)
def test_large_deep_or_odd_seeds_are_parsed_quickly(line: bytes | str) -> None:
    understood(line)


# Reading, while there is room


@pytest_asyncio.fixture
async def crawl(redis_url: str) -> AsyncIterator[State]:
    """A crawl of small bounds, with this process as a registered worker, and a pulse."""
    state = await opened(redis_url, CRAWL_FRONTIER_HIGH_WATER=400, CRAWL_OVERFLOW_MAXLEN=1000)
    await rule(state, ("museum", 20), ("archive", 20))
    await join(state, state.worker_id)
    yield state
    await state.close()


def lines(source: str, count: int, first: int = 0) -> list[str]:
    urls = (f"http://{source}.org/{number}.jpg" for number in range(first, first + count))
    return [json.dumps({"url": url, "source": source}) for url in urls]


def reader_of(state: State) -> SeedReader:
    stats: Any = SimpleNamespace(inc_value=lambda *_: None)
    return SeedReader(state, SPIDER, requests_of(SPIDER), stats, lambda: None)


async def test_seeds_of_a_halted_source_keep_nobody_elses_back(crawl: State) -> None:
    redis = db(crawl)
    await redis.sadd(crawl.keys.halted, "museum")
    await redis.lpush(crawl.keys.seeds, *lines("museum", 900), *lines("archive", 50))
    reader = reader_of(crawl)
    while await redis.llen(crawl.keys.seeds):
        await reader.read()
    assert await redis.llen(crawl.keys.queue_of + "0:museum") == 100
    assert await redis.llen(crawl.keys.overflow_of + "0:museum") == 800
    assert await redis.llen(crawl.keys.queue_of + "0:archive") == 50


async def changes(state: State) -> int:
    return int((await db(state).info("persistence"))["rdb_changes_since_last_save"])


async def test_nothing_moves_while_nothing_has_room(crawl: State) -> None:
    await db(crawl).lpush(crawl.keys.seeds, *lines("museum", 1500))
    readers = [reader_of(crawl) for _ in range(2)]
    for reader in readers * 5:
        await reader.read()
    assert await db(crawl).hget(crawl.keys.counters, "overflow") == b"1000"
    assert [line.decode() for line in await waiting(crawl)] == lines("museum", 400, first=1100)
    before = await changes(crawl)
    for reader in readers * 10:
        assert await reader.read() > 0  # a pause, and no busy loop
    assert await changes(crawl) == before


async def test_a_line_beyond_a_mebibyte_is_a_dead_letter_and_keeps_no_seed_back(crawl: State) -> None:
    redis = db(crawl)
    first, second = lines("archive", 2)
    await redis.lpush(crawl.keys.seeds, first, b"x" * 2_000_000, b"\0junk", second)
    reader = reader_of(crawl)
    while await redis.llen(crawl.keys.seeds):
        await reader.read()
    assert await redis.llen(crawl.keys.queue_of + "0:archive") == 2
    reasons = [letter[b"reason"].decode()[:12] for _, letter in await redis.xrange(crawl.keys.dead)]
    assert reasons == ["a line of 2.", "URL with spa"]


async def test_no_more_seeds_are_taken_than_the_frontier_has_room_for(crawl: State) -> None:
    redis = db(crawl)
    await redis.hset(crawl.keys.counters, "outstanding", 397)
    await redis.lpush(crawl.keys.seeds, *lines("archive", 20))
    reader = reader_of(crawl)
    assert await reader.read() > 0  # so that room for more than a few comes together
    assert await redis.llen(crawl.keys.seeds) == 17
    before = await changes(crawl)
    for _ in range(3):
        assert await reader.read() > 0
    assert await changes(crawl) - before <= 1  # the first wait's
    await redis.hset(crawl.keys.counters, "outstanding", 390)
    await reader.read()
    assert await redis.llen(crawl.keys.seeds) == 7


def test_a_value_that_a_mode_fails_on_is_a_fault_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    half = SimpleNamespace(stored=lambda value: {"from": value.start})  # of a plug-in
    monkeypatch.setattr(seeds, "modes", lambda: {"half": half})
    with pytest.raises(BadSeed, match=r"half: AttributeError: 'dict' object has no attribute 'start'"):
        parse_seed(json.dumps({"url": URL, "half": {"a": 1}}))


async def test_waiting_moves_no_seed(state: State) -> None:
    redis = db(state)
    await redis.lpush(state.keys.seeds, "a", "b", "c")
    assert await seeds.await_seed(state.redis, state.keys.seeds)
    assert await redis.lrange(state.keys.seeds, 0, -1) == [b"c", b"b", b"a"]
    assert await redis.keys("*") == [state.keys.seeds.encode()]


async def test_room_is_what_the_settings_leave(state: State) -> None:
    assert await contents.room(state) == (1_000_000, 1_000_000)
    await db(state).hset(state.keys.counters, mapping={"outstanding": 1_000_001, "overflow": 999_999})
    assert await contents.room(state) == (0, 1)


Taker = Callable[[State], Awaitable[list[bytes]]]
USERS = Keys("{images:start_urls}", "images", "crawl")


async def by_the_worker(state: State) -> list[bytes]:
    await join(state)
    taken = await state.scripts.take_seeds("w", 200)
    await db(state).delete(state.keys.processing_of + "w")
    return taken


async def to_a_shard(state: State) -> list[bytes]:
    users = UsersSeedsScripts(state.redis, USERS, state.clock, shard=0, shards=2)
    if some := await users.peek_seeds("w", 500):
        assert await users.split_seeds(some, [1] * len(some))
    batch = await users.batch(1, count=500)
    if batch is None:
        return []
    await users.forget_batch(1, batch)
    return [msgpack.unpackb(entry, raw=True)[b"seed"] for entry in batch.entries]


@pytest.mark.parametrize("take", [by_the_worker, to_a_shard])
async def test_a_call_takes_one_long_line_at_most_and_keeps_its_length_alone(state: State, take: Taker) -> None:
    place = state.keys.seeds if take is by_the_worker else USERS.users_seeds
    long, large, short = b"x" * 10_000_000, b"y" * 1_048_576, b"http://a/"
    pushed = [short] * 250 + [long] * 9 + [large] * 9 + [short, long]
    for seed in pushed:
        await db(state).lpush(place, seed)
    taken: list[bytes] = []
    while some := await take(state):
        sizes = [int(seed[1:]) if seed[:1] == b"\0" else len(seed) for seed in some]
        assert sum(sizes[:-1]) < 1_048_576  # so no call holds Redis for longer than it took to push such a line
        taken += some
    assert taken == [seed if seed is not long else b"\0%d" % len(long) for seed in pushed]
