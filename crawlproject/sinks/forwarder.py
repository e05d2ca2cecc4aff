"""Events in Kafka, each at least once: read from the streams, put down as read when the broker has them."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from redis import RedisError

from crawlproject.errors import KafkaUnavailable
from crawlproject.kafka import Kafka
from crawlproject.sinks.entries import event_of, json_of
from crawlproject.state.client import BlockingState
from crawlproject.state.readers import StreamReader
from crawlproject.state.shard_readers import ShardReaders
from crawlproject.state.streams import EventEntry

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

READER = "kafka"  # its name among the readers of the streams, unless it is given another
HEADER = "id"  # of each message: stream and entry, the same however often it is sent

_POLL_S = 0.2
_RENEW_S = 1.0  # between renewals of the lease while a broker keeps us waiting
_GRACE_S = 5.0  # that a batch gets at a stop to be acknowledged


class Forwarder:
    """Sends the events of all streams to the topics of their names.

    Where it stands is in Redis alone, and moves on when the broker has acknowledged a whole batch: nothing
    that Kafka does not have is trimmed, and leasing pauses when too much of that piles up. What was sent
    between two such moves is sent again by the next process if this one dies: see docs/kafka.md. One process
    sends at a time, the one that has the reader's lease.
    """

    def __init__(
        self,
        state: BlockingState,
        kafka: Kafka,
        stopping: Callable[[], bool] = lambda: False,
        name: str = READER,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.kafka = kafka
        self.stopping = stopping
        self.streams = ShardReaders(state, name, f"Kafka at {kafka.brokers}", say=say, before=_note)
        self.sent = 0  # events, acknowledged
        self.skipped = 0  # entries that are not events: not written by us
        self._unacknowledged = 0
        self._given_up = math.inf  # when a batch is, that a stop met on its way
        self._renewed = 0.0
        self._refused: tuple[KafkaError, str] | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Reach Kafka, take the reader's lease and go on from where the events in Kafka end.

        Raises:
            ReaderTaken: another process has it.
            KafkaUnavailable, ConfigError: see Kafka.producer.

        """
        self.producer: Producer = self.kafka.producer()
        with self.streams.opened(self._join):
            try:
                yield
            finally:
                self.producer.purge()
                self.producer.poll(0)

    def _join(self, reader: StreamReader, stood: Mapping[str, str], _: int | None) -> None:
        reader.last |= stood
        self.streams.for_each(_note, [reader])

    def drain(self, block_s: float = 0.0) -> int:
        """Send what is new, and return the number of events; wait up to `block_s` for the first.

        Raises:
            KafkaUnavailable: Kafka permanently refuses an event.
            Overtaken: another process has the lease; this one must have hung.
            RedisError: what was sent is not forgotten: call it again.

        """
        sent, is_following = 0, block_s > 0
        while not self.stopping():
            batches = self.streams.gather(block_s, is_following=is_following)
            for reader, entries in batches:
                # What was read while somebody else took over is theirs.
                if not self.streams.for_each(lambda reader: reader.renew(), [reader]):
                    continue
                count = self._send(entries)
                if count is None:
                    return sent
                sent += count
                self.sent += count
                for entry in entries:
                    reader.last[entry.stream] = entry.id
                self.streams.for_each(_note, [reader])
            self.producer.poll(0)  # librdkafka reports its errors here while there is nothing to send
            if not batches:
                break
            block_s = 0.0
        if not is_following:
            self.streams.check()
        return sent

    def _send(self, entries: list[EventEntry]) -> int | None:
        """Send a batch and return how many events it held, None if a stop came before all were acknowledged."""
        count = 0
        self._renewed = time.monotonic()
        for entry in entries:
            event = event_of(entry)
            if event is None:
                self.skipped += 1
                continue
            count += 1
            if not self._produce(entry, json_of(entry, event), _key(event)):
                return None
        while self._unacknowledged:
            if not self._wait():
                return None
        if count:
            self.kafka.answered()
        return count

    def _produce(self, entry: EventEntry, text: bytes, key: str | None) -> bool:
        from confluent_kafka import KafkaException

        place = f"{entry.stream}/{entry.id}"
        delivered = functools.partial(self._delivered, place)
        while True:
            try:
                self.producer.produce(
                    entry.name, text, key, headers=[(HEADER, place.encode())], on_delivery=delivered
                )
            except BufferError:  # librdkafka's queue is full
                if not self._wait():
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

    def _wait(self) -> bool:
        """Wait a moment for acknowledgements; return False when there is no time left for them."""
        self.producer.poll(_POLL_S)
        if self._refused is not None:
            raise _refusal(*self._refused)
        now = time.monotonic()
        if self.stopping():
            self._given_up = min(self._given_up, now + _GRACE_S)
        if now >= self._given_up:
            return False
        if now >= self._renewed + _RENEW_S:
            self._renewed = now
            with suppress(RedisError):  # trouble that lasts comes up when the batch is noted
                self.streams.for_each(_note)
        return True


def _note(reader: StreamReader) -> None:
    reader.note()


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
