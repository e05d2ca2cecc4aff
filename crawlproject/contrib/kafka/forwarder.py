"""Events in Kafka, each at least once: read from the streams, put down as read when the broker has them."""

from __future__ import annotations

import argparse
import asyncio
import functools
import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from scrapy.settings import BaseSettings

from crawlproject import cli, config
from crawlproject.contrib.kafka.connection import Kafka, KafkaUnavailable
from crawlproject.contrib.kafka.plugin import KafkaSettings
from crawlproject.program import as_called
from crawlproject.sinks.sink import BatchSink, Target, json_of
from crawlproject.state.client import State
from crawlproject.streams.streams import EventEntry

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

READER = "kafka"  # its name among the readers of the streams, unless it is given another
HEADER = "id"  # of each message: stream and entry, the same however often it is sent

_POLL_S = 0.2
_GRACE_S = 5.0  # that a batch gets at a stop to be acknowledged


class Kafkas(Target):
    """`scrapy events --kafka`."""

    needs_place = False
    about = "send them to Kafka, at CRAWL_KAFKA_BROKERS"

    def __init__(self, state: State, where: str, opts: argparse.Namespace, settings: BaseSettings) -> None:
        super().__init__(state, where, opts, settings)
        self.what = "sent to Kafka"
        self._kafka = Kafka(config.read(KafkaSettings, settings), _say)

    def sink(self, shard: State, stopping: Callable[[], bool]) -> Forwarder:
        """Return what sends the events of a shard."""
        return Forwarder(shard, self._kafka, stopping, self.opts.reader or READER)


def _say(text: str) -> None:
    cli.show(as_called(f"scrapy events: {text}"), sys.stderr)


class Forwarder(BatchSink):
    """Sends the events of all streams to the topics of their names, and waits for the broker to have a batch."""

    def __init__(
        self, state: State, kafka: Kafka, stopping: Callable[[], bool] = lambda: False, name: str = READER
    ) -> None:
        super().__init__(state, name, f"Kafka at {kafka.brokers}", stopping)
        self.kafka = kafka
        self._unacknowledged = 0
        self._given_up = math.inf  # when a batch is, that a stop met on its way
        self._refused: tuple[KafkaError, str] | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Reach Kafka, take the reader's lease and go on from where the events in Kafka end."""
        self.producer: Producer = await asyncio.to_thread(self.kafka.producer)
        async with super().opened():
            try:
                yield
            finally:
                self.producer.purge()
                self.producer.poll(0)

    async def take(self, events: Sequence[tuple[EventEntry, dict[str, Any]]]) -> bool:
        """Send a batch."""
        self.producer.poll(0)  # librdkafka reports its errors here while there is nothing to send
        for entry, event in events:
            if not await self._produce(entry, json_of(entry, event), _key(event)):
                return False
        while self._unacknowledged:
            if not await self._wait():
                return False
        if events:
            self.kafka.answered()
        return True

    async def _produce(self, entry: EventEntry, text: bytes, key: str | None) -> bool:
        from confluent_kafka import KafkaException

        place = f"{entry.stream}/{entry.id}"
        delivered = functools.partial(self._delivered, place)
        while True:
            try:
                self.producer.produce(
                    entry.name, text, key, headers=[(HEADER, place.encode())], on_delivery=delivered
                )
            except BufferError:  # librdkafka's queue is full
                if not await self._wait():
                    return False
            except KafkaException as error:
                raise _refusal(error.args[0], place) from None
            else:
                self._unacknowledged += 1
                return True

    def _delivered(self, place: str, error: KafkaError | None, _: Message) -> None:
        self._unacknowledged -= 1
        if error is not None and self._refused is None:
            self._refused = error, place

    async def _wait(self) -> bool:
        """Wait a moment for acknowledgements; return False when there is no time left for them."""
        await asyncio.to_thread(self.producer.poll, _POLL_S)
        if self._refused is not None:
            raise _refusal(*self._refused)
        now = time.monotonic()
        if self.stopping():
            self._given_up = min(self._given_up, now + _GRACE_S)
        return now < self._given_up


def _key(event: dict[str, Any]) -> str | None:
    """Return what keeps the events of one picture, page or circuit in one partition, in order."""
    key = event.get("identifier") or event.get("url") or event.get("source")
    return key if isinstance(key, str) else None


def _refusal(error: KafkaError, place: str) -> KafkaUnavailable:
    from confluent_kafka import KafkaError

    remedies = {
        KafkaError.MSG_SIZE_TOO_LARGE: "raise its max.message.bytes, and message.max.bytes in CRAWL_KAFKA_OPTIONS",
        KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow this user to write to it",
        KafkaError.UNKNOWN_TOPIC_OR_PART: "create it",
        KafkaError._UNKNOWN_TOPIC: "create it",
    }
    remedy = remedies.get(error.code(), "correct that in Kafka")
    return KafkaUnavailable(
        f"Kafka refuses event {place} in the topic of its name ({error.str()}): {remedy}, and start again; "
        "nothing is lost"
    )
