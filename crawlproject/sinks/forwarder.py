"""Events in Kafka, each at least once: read from the streams, put down as read when the broker has them."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from crawlproject.errors import KafkaUnavailable
from crawlproject.kafka import Kafka
from crawlproject.sinks.entries import event_of, json_of
from crawlproject.sinks.sink import Sink
from crawlproject.state.client import State
from crawlproject.streams.readers import StreamReader
from crawlproject.streams.streams import EventEntry

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

READER = "kafka"  # its name among the readers of the streams, unless it is given another
HEADER = "id"  # of each message: stream and entry, the same however often it is sent

_POLL_S = 0.2
_GRACE_S = 5.0  # that a batch gets at a stop to be acknowledged


class Forwarder(Sink):
    """Sends the events of all streams to the topics of their names.

    Where it stands is in Redis alone, and moves on when the broker has acknowledged a whole batch: nothing
    that Kafka does not have is trimmed, and leasing pauses when too much of that piles up. What was sent
    between two such moves is sent again by the next process if this one dies: see docs/kafka.md. One process
    sends at a time, the one that has the reader's lease.
    """

    def __init__(
        self, state: State, kafka: Kafka, stopping: Callable[[], bool] = lambda: False, name: str = READER
    ) -> None:
        super().__init__()
        self.kafka = kafka
        self.stopping = stopping
        self.streams = StreamReader(state, name, f"Kafka at {kafka.brokers}")
        self._unacknowledged = 0
        self._unnoted = False  # whether Redis does not know yet where the reader is
        self._given_up = math.inf  # when a batch is, that a stop met on its way
        self._refused: tuple[KafkaError, str] | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Reach Kafka, take the reader's lease and go on from where the events in Kafka end."""
        self.producer: Producer = await asyncio.to_thread(self.kafka.producer)
        async with self.streams.held() as (stood, _):
            self.streams.last |= stood
            await self.streams.note()
            try:
                yield
            finally:
                self.producer.purge()
                self.producer.poll(0)

    async def drain(self, block_s: float = 0.0) -> int:
        """Send what is new."""
        before = self.written
        while not self.stopping():
            await self._note()
            entries = await self.streams.read(block_s)
            self.producer.poll(0)  # librdkafka reports its errors here while there is nothing to send
            if not entries or not await self._send(entries):
                break
            self.streams.last |= {entry.stream: entry.id for entry in entries}
            self._unnoted = True
            await self._note()
            block_s = 0.0
        return self.written - before

    async def _note(self) -> None:
        if self._unnoted:
            await self.streams.note()
            self._unnoted = False

    async def _send(self, entries: list[EventEntry]) -> bool:
        """Send a batch; return False if a stop came before all were acknowledged."""
        events = [(entry, event_of(entry)) for entry in entries]
        for entry, event in events:
            if event is not None and not await self._produce(entry, json_of(entry, event), _key(event)):
                return False
        while self._unacknowledged:
            if not await self._wait():
                return False
        count = sum(event is not None for _, event in events)
        self.written += count
        self.skipped += len(events) - count
        if count:
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
