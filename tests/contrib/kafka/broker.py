"""A Kafka broker of the tests' own: librdkafka's mock cluster, which listens on loopback, in a process of its own.

It keeps what it is sent in memory, and knows groups and idempotent producers, but no aborted transactions, no
access control and no retention. This file, run as a program, says where it listens, and obeys the lines of
its stdin: `down`, `up`, `slow MS`, `topic NAME PARTITIONS`, `refuse API CODE COUNT`.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

PRODUCE = 0  # an API key of Kafka's protocol


class Broker:
    """The broker, as a test sees it: told what to do, fed and read by clients of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, *words: object) -> None:
        """Have it do something, and wait until it has."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        assert self._line() == "done"

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()

    def send(self, topic: str, values: list[str | bytes | None]) -> None:
        """Put messages into a topic."""
        producer = Producer({"bootstrap.servers": self.address, "message.max.bytes": 4_000_000})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(20) == 0

    def messages(self, topic: str) -> list[Message]:
        """Return all that a topic holds."""
        return [message for message in self._messages(topic) if message.error() is None]

    def _messages(self, topic: str) -> Iterator[Message]:
        with self._consumer("of the tests") as consumer:
            partitions = consumer.list_topics(topic, 10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            left = set(partitions)
            deadline = time.monotonic() + 60
            while left:
                assert time.monotonic() < deadline, f"{topic} could not be read"
                for message in consumer.consume(10_000, 0.1):
                    error = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
                    yield message

    def committed(self, topic: str, group: str) -> int:
        """Return how many messages of a topic a group has done with."""
        with self._consumer(group) as consumer:
            partitions = consumer.list_topics(topic, 10).topics[topic].partitions
            asked = [TopicPartition(topic, number) for number in partitions]
            return sum(max(at.offset, 0) for at in consumer.committed(asked, 10))

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": group,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()


def _main() -> None:
    package = Path(confluent_kafka.__file__).parent
    (path,) = (package.parent / "confluent_kafka.libs").glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    for name in ("rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    error = ctypes.create_string_buffer(512)
    handle = library.rd_kafka_new(0, None, error, ctypes.c_size_t(512))
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(ctypes.c_void_p(handle), 1))
    library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 200)
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "down":
            library.rd_kafka_mock_broker_set_down(cluster, 1)
        elif word == "up":
            library.rd_kafka_mock_broker_set_up(cluster, 1)
        elif word == "slow":
            library.rd_kafka_mock_broker_set_rtt(cluster, 1, int(rest[0]))
        elif word == "topic":
            library.rd_kafka_mock_topic_create(cluster, rest[0].encode(), int(rest[1]), 1)
        elif word == "refuse":
            api, code, count = map(int, rest)
            codes = (ctypes.c_int * count)(*[code] * count)
            library.rd_kafka_mock_push_request_errors_array(
                cluster, ctypes.c_int16(api), ctypes.c_size_t(count), codes
            )
        print("done", flush=True)


if __name__ == "__main__":
    _main()
