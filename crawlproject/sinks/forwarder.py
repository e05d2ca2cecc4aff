"""Events in Kafka, each at least once: read from the streams, put down as read when the broker has them."""

from __future__ import annotations

import functools
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from redis import RedisError

from crawlproject.errors import CrawlprojectError, KafkaUnavailable
from crawlproject.kafka import Kafka
from crawlproject.state.client import BlockingState
from crawlproject.state.streams import Entry, StreamReader, event_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

READER = "kafka"  # its name among the readers of the streams: a namespace's events go to one Kafka
HEADER = "id"  # of each message: stream and entry, the same however often it is sent

_POLL_S = 0.2
_RENEW_S = 1.0  # between renewals of the turn while a broker keeps us waiting
_GRACE_S = 5.0  # that a batch gets at a stop to be acknowledged


class TurnTaken(CrawlprojectError):
    """Another process sends the events."""


class Forwarder:
    """Sends the events of all streams to the topics of their names.

    Where it stands is in Redis alone, and moves on when the broker has acknowledged a whole batch: nothing
    that Kafka does not have is trimmed, and leasing pauses when too much of that piles up. What was sent
    between two such moves is sent again by the next process if this one dies: see docs/kafka.md. One process
    sends at a time, the one whose turn it is.
    """

    def __init__(self, state: BlockingState, kafka: Kafka, stopping: Callable[[], bool] = lambda: False) -> None:
        self.kafka = kafka
        self.stopping = stopping
        self.streams = StreamReader(state, READER)
        self.sent = 0  # events, acknowledged
        self.skipped = 0  # entries that are no events: not written by us
        self.token = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._unacknowledged = 0
        self._given_up = math.inf  # when a batch is, that a stop met on its way
        self._renewed = 0.0
        self._refused: tuple[KafkaError, str] | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Reach Kafka, take the turn and go on from where the events in Kafka end.

        Raises:
            TurnTaken: another process has it; a process that died has it for ten seconds more.
            KafkaUnavailable, ConfigError: see Kafka.producer.

        """
        self.producer: Producer = self.kafka.producer()
        self._take_turn()
        try:
            self.streams.resume()
            self._put_down()
            yield
        finally:
            self.producer.purge()
            self.producer.poll(0)
            with suppress(RedisError):  # it ends by itself
                self.streams.give_turn_back(self.token)

    def drain(self, block_s: float = 0.0) -> int:
        """Send what is new, and return the number of events; wait up to `block_s` for the first.

        Raises:
            KafkaUnavailable: Kafka refuses an event for good.
            TurnTaken: another process has the turn; this one must have slept.
            RedisError: what was sent is not forgotten: call it again.

        """
        sent = 0
        while not self.stopping():
            self._put_down()
            entries = self.streams.read(block_s)
            count = self._send(entries)
            self.producer.poll(0)  # librdkafka reports its errors here while there is nothing to send
            if not entries or count is None:
                break
            sent += count
            self.sent += count
            for entry in entries:
                self.streams.last[entry.stream] = entry.id
            self._put_down()
            block_s = 0.0
        return sent

    def _send(self, entries: list[Entry]) -> int | None:
        """Send a batch and return how many events it held, None if a stop came before all were acknowledged."""
        count = 0
        self._renewed = time.monotonic()
        for entry in entries:
            event = event_of(entry)
            if event is None:
                self.skipped += 1
                continue
            count += 1
            if not self._produce(entry, _key(event)):
                return None
        while self._unacknowledged:
            if not self._wait():
                return None
        if count:
            self.kafka.answered()
        return count

    def _produce(self, entry: Entry, key: str | None) -> bool:
        from confluent_kafka import KafkaException

        place = f"{entry.stream}/{entry.id}"
        delivered = functools.partial(self._delivered, place)
        while True:
            try:
                self.producer.produce(
                    entry.name, entry.event, key, headers=[(HEADER, place.encode())], on_delivery=delivered
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
            with suppress(RedisError):  # trouble that lasts comes up when the batch is put down
                self._put_down()
        return True

    # The turn

    def _take_turn(self) -> None:
        if holder := self.streams.take_turn(self.token):
            raise TurnTaken(
                f"another scrapy events --kafka sends the events ({holder.rpartition(':')[0]}): stop it; "
                "if it died, wait ten seconds"
            )

    def _put_down(self) -> None:
        """Note where this reader stands, and keep the turn, in one step; with the turn of another do neither.

        A turn that has run out, as when Redis was away, is taken again: nobody has sent anything since, or
        it is sent twice.
        """
        if self.streams.announce_in_turn(self.token):
            raise TurnTaken("another scrapy events --kafka has taken over: this one did not run for ten seconds")


def _key(event: dict[str, Any]) -> str | None:
    """Return what keeps the events of one picture, or of one source's circuit, in one partition, in order."""
    key = event.get("identifier", event.get("source"))
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
