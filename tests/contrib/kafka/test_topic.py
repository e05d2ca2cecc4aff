"""`scrapy feed --kafka`: seeds of a topic into the seed list; none lost, and no more than there is room for."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlproject.ingest.files import LONGEST_LINE
from crawlproject.state.keys import Keys
from tests.conftest import Scrapy
from tests.contrib.kafka.broker import Broker
from tests.following import running
from tests.state.servers import Server
from tests.waiting import PATIENCE_S, until

KEYS = Keys("crawl", "images")
TOPIC = "inbound_images"
GROUP = "crawl-images"


def urls(first: int, last: int) -> list[str | bytes | None]:
    return [f"http://museum.org/{number}.jpg" for number in range(first, last)]


def fed(client: redis.Redis) -> list[bytes]:
    """Return the seeds in the order in which they are read."""
    found: Any = client.lrange(KEYS.seeds, 0, -1)
    return list(reversed(found))


def numbers(client: redis.Redis) -> Counter[int]:
    return Counter(int(seed.rpartition(b"/")[2].partition(b".")[0]) for seed in fed(client))


Feed = subprocess.Popen[str]
Start = Callable[..., Feed]


@pytest.fixture
def start(environment: dict[str, str], broker: Broker) -> Iterator[Start]:
    """Start `scrapy feed --kafka ARGS`; a member that dies is missed after a second and a half."""
    options = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}
    given = {"CRAWL_KAFKA_BROKERS": broker.address, "CRAWL_KAFKA_OPTIONS": json.dumps(options)}
    with ExitStack() as stack:

        def one(*args: str, **environ: str) -> Feed:
            return stack.enter_context(running(environment | given | environ, "feed", "--kafka", *args))

        yield one


def stopped(feed: Feed, by: signal.Signals = signal.SIGTERM) -> tuple[str, str]:
    """Stop in good order and return what it said."""
    feed.send_signal(by)
    out, err = feed.communicate(timeout=PATIENCE_S)
    assert feed.returncode == 0, err
    return out, err


def next_line(feed: Feed) -> str:
    """Return the next line of what it says, when it says it."""
    assert feed.stderr is not None
    return feed.stderr.readline()


@contextmanager
def held(client: redis.Redis, count: int) -> Iterator[None]:
    """Have the frontier hold so many requests."""
    client.hset(KEYS.counters, "outstanding", count)
    yield
    client.hdel(KEYS.counters, "outstanding")


def test_seeds_go_into_the_list_as_they_came_and_their_offsets_are_committed(
    client: redis.Redis, broker: Broker, start: Start
) -> None:
    values: list[str | bytes | None] = [
        "http://museum.org/a.jpg",
        '{"url": "http://museum.org/b.jpg", "uuid": "b", "source": "museum"}',
        b"\xff\x00",
        None,
        "nonsense {",
    ]
    broker.tell("topic", TOPIC, 1)
    broker.send(TOPIC, values)
    feed = start()
    until(lambda: len(fed(client)) == 5)
    assert stopped(feed) == ("5 seeds fed, 0 rejected\n", "")
    expected = [value.encode() if isinstance(value, str) else value or b"" for value in values]
    assert fed(client) == expected
    assert broker.committed(TOPIC, GROUP) == 5

    broker.send(TOPIC, ["http://museum.org/c.jpg"])
    feed = start("--json")
    until(lambda: len(fed(client)) == 6)
    assert stopped(feed, signal.SIGINT) == ('{"fed": 1, "rejected": 0}\n', "")
    assert fed(client)[5] == b"http://museum.org/c.jpg"

    feed = start("--group", "others")  # who have seen none of them
    until(lambda: len(fed(client)) == 12)
    stopped(feed)


def test_a_message_longer_than_a_mebibyte_is_reported_and_left_out(
    client: redis.Redis, broker: Broker, start: Start
) -> None:
    longest = "http://museum.org/?".ljust(LONGEST_LINE, "x")
    broker.tell("topic", TOPIC, 1)
    broker.send(TOPIC, ["http://museum.org/a.jpg", longest + "x", longest, "http://museum.org/b.jpg"])
    feed = start("--json")
    until(lambda: len(fed(client)) == 3)
    said = f"scrapy feed: {TOPIC}, partition 0, offset 1: longer than 1 MiB\n"
    assert stopped(feed, signal.SIGINT) == ('{"fed": 3, "rejected": 1}\n', said)
    assert fed(client) == [b"http://museum.org/a.jpg", longest.encode(), b"http://museum.org/b.jpg"]
    assert broker.committed(TOPIC, GROUP) == 4


def test_with_no_room_seeds_wait_in_kafka(client: redis.Redis, broker: Broker, start: Start) -> None:
    broker.tell("topic", TOPIC, 2)
    broker.send(TOPIC, urls(0, 5000))
    with held(client, 50):
        feed = start(CRAWL_FRONTIER_HIGH_WATER="50")
        time.sleep(4)  # longer than a member may be silent
        # What came with the assignment, before it was paused.
        assert len(fed(client)) <= 2
        assert feed.poll() is None
    until(lambda: len(numbers(client)) == 5000)
    with held(client, 50):
        time.sleep(1)
        broker.send(TOPIC, urls(5000, 5100))
        time.sleep(2)
        assert len(numbers(client)) <= 5002
    until(lambda: len(numbers(client)) == 5100)
    assert stopped(feed) == ("5100 seeds fed, 0 rejected\n", "")
    assert numbers(client) == Counter(range(5100))  # paused and resumed, and none came twice


def test_members_come_and_go_and_nothing_is_lost(client: redis.Redis, broker: Broker, start: Start) -> None:
    broker.tell("topic", TOPIC, 4)
    broker.tell("slow", 20)
    broker.send(TOPIC, urls(0, 10_000))
    first = start()
    until(lambda: client.llen(KEYS.seeds))  # a SIGTERM ends a process that still begins
    second, third = start(), start()
    broker.send(TOPIC, urls(10_000, 20_000))
    until(lambda: client.llen(KEYS.seeds) > 10_000)
    stopped(first)
    second.kill()
    broker.send(TOPIC, urls(20_000, 30_000))
    until(lambda: len(numbers(client)) == 30_000)
    until(lambda: broker.committed(TOPIC, GROUP) == 30_000)
    stopped(third)
    assert sorted(numbers(client)) == list(range(30_000))


def test_a_broker_that_goes_away_is_reported_and_waited_for(
    client: redis.Redis, broker: Broker, start: Start
) -> None:
    broker.send(TOPIC, urls(0, 10))
    feed = start()
    until(lambda: client.llen(KEYS.seeds) == 10)
    broker.tell("down")
    away = next_line(feed)
    broker.tell("up")
    broker.send(TOPIC, urls(10, 20))
    until(lambda: len(numbers(client)) == 20)
    back = next_line(feed)
    out, err = stopped(feed)
    assert out.endswith(" seeds fed, 0 rejected\n")
    assert away.startswith(f"scrapy feed: Kafka at {broker.address} does not answer (")
    assert back == f"scrapy feed: Kafka at {broker.address} answers again\n"
    assert err == ""


def test_a_stop_ends_though_the_broker_hangs(client: redis.Redis, broker: Broker, start: Start) -> None:
    broker.send(TOPIC, urls(0, 10))
    feed = start()
    until(lambda: broker.committed(TOPIC, GROUP) == 10)
    broker.process.send_signal(signal.SIGSTOP)
    time.sleep(1)
    out, _ = stopped(feed)
    assert out == "10 seeds fed, 0 rejected\n"


def test_a_redis_that_goes_away_is_reported_and_waited_for(broker: Broker, start: Start, tmp_path: Path) -> None:
    server = Server(tmp_path, appendfsync="always")
    try:
        broker.send(TOPIC, urls(0, 10))
        feed = start(REDIS_URL=server.url)
        until(lambda: server.client.llen(KEYS.seeds) == 10)
        server.process.kill()
        server.process.wait()
        broker.send(TOPIC, urls(10, 30))
        first = next_line(feed)
        assert broker.committed(TOPIC, GROUP) <= 10
        server.start()
        until(lambda: broker.committed(TOPIC, GROUP) == 30)
        out, err = stopped(feed)
        assert sorted(numbers(server.client)) == list(range(30))
    finally:
        server.process.kill()
        server.process.wait()
    assert out == "30 seeds fed, 0 rejected\n"
    assert first.endswith("trying again\n")
    assert len(err.splitlines()) <= 1


def test_what_cannot_work_is_reported_in_a_sentence(scrapy: Scrapy, broker: Broker) -> None:
    done = scrapy("feed", "--kafka", "--topic", "nowhere", CRAWL_KAFKA_BROKERS=broker.address)
    assert (done.returncode, done.stdout) == (1, "0 seeds fed, 0 rejected\n")
    assert done.stderr == (
        f"scrapy feed: Kafka at {broker.address} does not serve topic nowhere "
        "(Broker: Unknown topic or partition): create it, allow this user to read it, or name another\n"
    )
    assert scrapy("feed", "--kafka", "x.tsv").returncode == 2
    assert scrapy("feed", "x.tsv", "--topic", "x").returncode == 2
    done = scrapy("feed", "--kafka", "--resume")
    assert "--columns, --keep, --resume" in done.stderr
    assert "need FILEs" in done.stderr
