"""Seeds from a Kafka topic: each in Redis before its offset is committed, and no more than there is room for."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from crawlproject import config
from crawlproject.contrib.kafka.connection import Kafka, KafkaUnavailable
from crawlproject.contrib.kafka.plugin import KafkaSettings
from crawlproject.ingest.files import LONGEST_LINE
from crawlproject.ingest.seed_rows import TOO_LONG
from crawlproject.ingest.seed_stream import SeedList, SeedStream

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_BATCH = 1000
_WAIT_S = 0.5  # for messages
_GRACE_S = 5.0  # that Kafka has to take the last offsets


class SeedTopic(SeedStream):
    """A member of a consumer group that takes seeds from a topic.

    A message's offset is stored when its seed is in Redis, and committed in the second that follows, before its
    partition goes to another member, and at the end. What a process that is killed leaves uncommitted is pushed
    again.
    """

    about = "read a topic of Kafka, at CRAWL_KAFKA_BROKERS"
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "topic": {"help": "the topic (default: inbound_SPIDER)"},
        "group": {"help": "the consumer group to join (default: NAMESPACE-SPIDER)"},
    }

    def __init__(self, seeds: SeedList, opts: argparse.Namespace, settings: Mapping[str, Any]) -> None:
        super().__init__(seeds, opts, settings)
        self.kafka = Kafka(config.read(KafkaSettings, settings), seeds.say)
        self.topic: str = opts.topic or f"inbound_{opts.spider}"
        self.group: str = opts.group or f"{config.load(settings).namespace}-{opts.spider}"
        self._batch: list[Message] = []  # taken from Kafka, and perhaps not in Redis yet

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Join the group, and leave it with everything committed.

        Raises:
            KafkaUnavailable, ConfigError: see Kafka.consumer.

        """
        self.consumer: Consumer = self.kafka.consumer(self.group, self.topic)
        try:
            self.consumer.subscribe([self.topic], on_assign=self._assigned)
            yield
        finally:
            self._close()

    def feed(self) -> int:
        """Move a batch of seeds, if one comes within half a second, and return its size.

        Raises:
            KafkaUnavailable: Kafka refuses to deliver the topic, or to store an offset.
            RedisError: the batch is kept: call it again.

        """
        if not self._batch:
            self._pause_or_resume()
            # Also while paused: Kafka expels a member that does not poll.
            for message in self.consumer.consume(1 if self.full else _BATCH, _WAIT_S):
                error = message.error()
                if error is None:
                    self._batch.append(message)
                    self._reject_if_long(message)
                else:
                    self._failed(error)
        if not self._batch:
            return 0
        self.kafka.answered()
        values = [value for message in self._batch if len(value := message.value() or b"") <= LONGEST_LINE]
        if values:
            self.seeds.push(values)
        self._store()
        return len(values)

    def lag(self) -> int | None:
        """Return about how many messages of its partitions are not in Redis; None where that is not known yet.

        While there is no room nothing is fetched, and what comes to the topic meanwhile is not heard of. While the
        group divides its partitions anew, nobody has any.
        """
        assigned = self.consumer.assignment()
        if not assigned:
            return None
        total = len(self._batch)
        for at in self.consumer.position(assigned):
            _, end = self.consumer.get_watermark_offsets(at, cached=True)
            if end < 0 or at.offset < 0:
                return None
            total += max(end - at.offset, 0)
        return total

    def _close(self) -> None:
        """Commit and leave. With a hanging broker librdkafka would wait for ever: give up after a while."""
        leaving = threading.Thread(target=self.consumer.close, daemon=True)
        leaving.start()
        leaving.join(_GRACE_S)
        if leaving.is_alive():
            self.kafka.say("Kafka did not answer at shutdown: the seeds fed last will be fed once more")

    def _pause_or_resume(self) -> None:
        full = not self.seeds.has_room()
        if full != self.full:
            self.full = full
            assigned = self.consumer.assignment()
            (self.consumer.pause if full else self.consumer.resume)(assigned)

    def _reject_if_long(self, message: Message) -> None:
        """Report a message too long to be a seed: a broker limits its compressed size only."""
        if len(message.value() or b"") > LONGEST_LINE:
            self.rejected += 1
            place = f"{message.topic()}, partition {message.partition()}, offset {message.offset()}"
            self.kafka.say(f"{place}: {TOO_LONG}")

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.full = False  # partitions come unpaused

    def _store(self) -> None:
        from confluent_kafka import KafkaException

        last = {message.partition(): message for message in self._batch}
        self._batch = []
        for message in last.values():
            # The partition may have gone to another member, who begins at what was committed: seeds come twice.
            try:
                self.consumer.store_offsets(message)
            except KafkaException as error:
                if error.args[0].code() != error.args[0]._STATE:
                    raise KafkaUnavailable(
                        f"Kafka did not store the offset ({error.args[0].str()}): start again"
                    ) from None

    def _failed(self, error: KafkaError) -> None:
        refused = {
            error.TOPIC_AUTHORIZATION_FAILED: "allow this user to read it",
            error.GROUP_AUTHORIZATION_FAILED: f"allow this user to join consumer group {self.group}",
            error.UNKNOWN_TOPIC_OR_PART: "create it, or name another",
            error._AUTO_OFFSET_RESET: f"set the offsets of consumer group {self.group}",
        }
        if error.code() in refused or error.fatal():
            remedy = refused.get(error.code(), "start again")
            raise KafkaUnavailable(f"Kafka refuses to deliver topic {self.topic} ({error.str()}): {remedy}")
        if error.code() != error._MAX_POLL_EXCEEDED:  # Redis was away for long; the group is joined again
            self.kafka.failed(error)
