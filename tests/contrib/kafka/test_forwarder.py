"""Events in Kafka: each at least once, whatever happens to broker and sender, and twice under one id alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import KafkaError

from crawlproject import config
from crawlproject.contrib.kafka.connection import Kafka, KafkaUnavailable
from crawlproject.contrib.kafka.forwarder import READER, Forwarder
from crawlproject.contrib.kafka.plugin import KafkaSettings
from crawlproject.errors import ConfigError
from crawlproject.state.client import State
from crawlproject.state.keys import Keys
from tests.conftest import ROOT, Scrapy
from tests.contrib.kafka.broker import PRODUCE, Broker
from tests.following import following
from tests.sinks.running import ends_before, has_died, run
from tests.streams.records import record, write
from tests.waiting import PATIENCE_S, until

KEYS = Keys("crawl", "images")
IMAGES = "image_metadata_updates"
TRACED = (
    "crawlproject/contrib/kafka/forwarder.py",
    "crawlproject/streams/streams.py",
    "crawlproject/streams/readers.py",
)


def emit(client: redis.Redis, *numbers: int, stream: str = KEYS.image_events) -> None:
    with client.pipeline(transaction=False) as pipe:
        for number in numbers:
            pipe.xadd(stream, {"event": json.dumps({"identifier": str(number), "url": "http://m/"})})
        pipe.execute()


def kafka(broker: Broker | str, **options: str) -> Kafka:
    address = broker if isinstance(broker, str) else broker.address
    given = {"CRAWL_KAFKA_BROKERS": address, "CRAWL_KAFKA_OPTIONS": {"linger.ms": "0", **options}}
    return Kafka(config.read(KafkaSettings, given), lambda _: None)


def drain(client: redis.Redis, broker: Broker | str) -> int:
    async def drained(state: State) -> int:
        forwarder = Forwarder(state, kafka(broker))
        async with forwarder.opened():
            return await forwarder.drain()

    return run(client, drained)


def sent(broker: Broker) -> list[tuple[int, bytes]]:
    """Return number and id of each message, sorted."""
    found = []
    for message in broker.messages(IMAGES):
        headers: Any = dict(message.headers() or ())
        found.append((int(json.loads(message.value() or b"")["identifier"]), headers["id"]))
    return sorted(found)


def check_at_least_once(messages: list[tuple[int, bytes]], numbers: range) -> int:
    """See that all are there, and return how many came again: under the id that they had."""
    assert sorted({number for number, _ in messages}) == list(numbers)
    assert len(set(messages)) == len(numbers)
    assert len({at for _, at in messages}) == len(numbers)
    return len(messages) - len(numbers)


def position(client: redis.Redis, stream: str = KEYS.image_events) -> str | None:
    return record(client, READER, KEYS).last.get(stream)


def newest(client: redis.Redis) -> str:
    ((at, _),) = client.xrevrange(KEYS.image_events, count=1)  # type: ignore[misc]
    return at.decode()  # type: ignore[union-attr]


def forwarding(environment: dict[str, str], broker: Broker) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run `scrapy events --kafka --follow`."""
    return following(environment | {"CRAWL_KAFKA_BROKERS": broker.address}, "--kafka")


async def test_each_event_goes_to_the_topic_of_its_name_with_key_and_id(
    state: State, client: redis.Redis, broker: Broker
) -> None:
    emit(client, 1, 2)
    client.xadd(KEYS.halted_events, {"event": '{"event":"crawl_halted","source":"museum"}'}, id="5-1")
    for text in ("", "[]", "{", '{"event":"link_rot"}', b"\xff"):
        client.xadd(KEYS.image_events, {"event": text})
    forwarder = Forwarder(state, kafka(broker))
    async with forwarder.opened():
        assert await forwarder.drain() == 3
        assert await forwarder.drain() == 0
    assert forwarder.skipped == 5
    (halted,) = broker.messages("crawl_halted")
    assert (halted.key(), halted.value()) == (b"museum", b'{"event":"crawl_halted","source":"museum"}')
    assert halted.headers() == [("id", b"crawl:crawl_halted/5-1")]
    assert [message.key() for message in sorted(broker.messages(IMAGES), key=lambda m: m.key() or b"")] == [
        b"1",
        b"2",
    ]
    assert position(client) == newest(client)
    assert position(client, KEYS.halted_events) == "5-1"


def test_a_process_that_dies_anywhere_costs_no_event(redis_url: str, client: redis.Redis, broker: Broker) -> None:
    program = (
        "import sys; from tests.contrib.kafka.test_forwarder import die_everywhere as die; die(*sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, redis_url, broker.address],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=150,
    )
    deaths = int(done.stdout)
    assert deaths > 4
    emit(client, deaths + 1)
    drain(client, broker)
    again = check_at_least_once(sent(broker), range(deaths + 2))
    assert again < deaths  # those that died between the acknowledgement and the position


def die_everywhere(redis_url: str, address: str) -> None:
    """Emit an event and have a child send it that dies before a line of the code that sends; print how many did.

    In a process of its own, which may be forked: librdkafka has no threads in it.
    """
    deaths = 0
    with redis.Redis.from_url(redis_url) as client:
        emit(client, 0)
        while has_died(redis_url, ends_before(TRACED, deaths * 48, lambda own: drain(own, address))):
            write(client, READER, KEYS, until=None)  # as if five seconds had passed
            assert not has_died(redis_url, lambda own: drain(own, address))
            deaths += 1
            emit(client, deaths)
    print(deaths)


def test_while_the_broker_is_away_all_is_kept_and_the_crawl_pauses(
    environment: dict[str, str], client: redis.Redis, broker: Broker
) -> None:
    emit(client, *range(10))
    with forwarding(environment, broker) as follower:
        until(lambda: position(client) == newest(client))
        stood = position(client)
        broker.tell("down")
        emit(client, *range(10, 200))
        assert follower.stderr is not None
        away = follower.stderr.readline()
        assert position(client) == stood
        broker.tell("up")
        until(lambda: position(client) == newest(client))
        back = follower.stderr.readline()
        follower.send_signal(signal.SIGTERM)
        out, err = follower.communicate(timeout=PATIENCE_S)
    assert (follower.returncode, out, err) == (0, "200 events sent to Kafka\n", "")
    assert away.startswith(f"scrapy events: Kafka at {broker.address} does not answer (")
    assert back == f"scrapy events: Kafka at {broker.address} answers again\n"
    assert check_at_least_once(sent(broker), range(200)) == 0  # idempotent: sent once, however often it was tried


def test_an_event_that_kafka_refuses_ends_it_with_the_remedy_and_stays(
    scrapy: Scrapy, client: redis.Redis, broker: Broker
) -> None:
    emit(client, 1)
    drain(client, broker)
    stood = position(client)
    emit(client, 2)
    broker.tell("refuse", PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED, 1)
    done = scrapy("events", "--kafka", CRAWL_KAFKA_BROKERS=broker.address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"scrapy events: Kafka refuses event {KEYS.image_events}/{newest(client)} in the topic of its name "
        "(Broker: Topic authorization failed): allow this user to write to it, and start again; nothing is lost\n"
    )
    assert position(client) == stood
    done = scrapy("events", "--kafka", "--json", CRAWL_KAFKA_BROKERS=broker.address)
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"events": 1, "skipped": 0}\n', "")


def test_an_event_that_is_too_large_is_named(client: redis.Redis, broker: Broker) -> None:
    client.xadd(KEYS.image_events, {"event": json.dumps({"identifier": "1", "url": "x" * 2_000_000})})
    with pytest.raises(KafkaUnavailable, match=r"too large.*raise its max\.message\.bytes"):
        drain(client, broker)
    assert position(client) == "0-0"


async def test_a_full_queue_of_librdkafka_is_waited_for(state: State, client: redis.Redis, broker: Broker) -> None:
    emit(client, *range(300))
    forwarder = Forwarder(state, kafka(broker, **{"queue.buffering.max.messages": "10"}))
    async with forwarder.opened():
        assert await forwarder.drain() == 300
    assert check_at_least_once(sent(broker), range(300)) == 0


def test_nothing_can_be_sent_without_brokers_extra_or_good_options(
    scrapy: Scrapy, broker: Broker, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="CRAWL_KAFKA_BROKERS is empty: name"):
        Kafka(KafkaSettings(brokers=(), options=()), print)
    with pytest.raises(ConfigError, match=r'^CRAWL_KAFKA_OPTIONS: No such configuration property: "x.y"$'):
        kafka(broker, **{"x.y": "z"}).producer()
    (tmp_path / "confluent_kafka.py").write_text("raise ImportError('none here')")
    done = scrapy("events", "--kafka", CRAWL_KAFKA_BROKERS=broker.address, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        "scrapy events: Kafka needs confluent-kafka (none here): pip install 'crawlproject[kafka]'\n"
    )
    assert scrapy("events", "x.jsonl", "--kafka").returncode == 2


def test_kafka_that_is_not_there_at_the_start_is_reported_without_secrets(scrapy: Scrapy) -> None:
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    options |= {"sasl.username": "agnes", "sasl.password": "127.0.0.1:1"}  # as if it came up in a message
    done = scrapy("events", "--kafka", CRAWL_KAFKA_BROKERS="127.0.0.1:1", CRAWL_KAFKA_OPTIONS=json.dumps(options))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("scrapy events: Kafka at 127.0.0.1:1 does not answer (")
    assert "Connection refused" in line
    assert "***" in line
    assert "correct CRAWL_KAFKA_BROKERS" in line
