"""The connection of one process to Kafka: librdkafka, its configuration, and reports of its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from crawlproject.contrib.kafka.plugin import KafkaSettings
from crawlproject.errors import ConfigError, CrawlprojectError
from crawlproject.texts import missing

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer

_PATIENCE_S = 5.0  # how long Kafka has to answer at the start

# Defaults that operators may override by CRAWL_KAFKA_OPTIONS.
_COMMON: Mapping[str, Any] = {
    "client.id": "crawlproject",
    "log_level": 0,  # librdkafka would write a line to stderr for each try; `say` reports each change once
}
_PRODUCER: Mapping[str, Any] = {"compression.type": "lz4", "partitioner": "murmur2_random"}
_CONSUMER: Mapping[str, Any] = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 1000}


class KafkaUnavailable(CrawlprojectError):
    """Kafka cannot be reached, or refuses a request."""


class Kafka:
    """Where Kafka is, and whether it answers: `say` is called when it stops answering, and when it resumes."""

    def __init__(self, settings: KafkaSettings, say: Callable[[str], None]) -> None:
        if not settings.brokers:
            raise ConfigError("CRAWL_KAFKA_BROKERS is empty: name at least one broker, as in kafka1.example:9092")
        self.brokers = ",".join(settings.brokers)
        self.options = dict(settings.options)
        self.say = say
        self._down = True  # until it has been reached
        self._last = ""  # the last error that librdkafka reported

    def producer(self) -> Producer:
        """Return an idempotent producer that has reached Kafka: a message sent again is stored once.

        Raises:
            KafkaUnavailable: Kafka does not answer, or the extra is not installed.
            ConfigError: the options are invalid.

        """
        # No time-out for messages: however long Kafka is down, the producer's session stays the same.
        fixed = {"enable.idempotence": True, "acks": "all", "message.timeout.ms": 0}
        producer: Producer = self._client("Producer", {**_PRODUCER, **self.options, **fixed})
        self._reach(producer)
        return producer

    def consumer(self, group: str, topic: str) -> Consumer:
        """Return a consumer that has reached Kafka and found `topic`. It commits only explicitly stored offsets.

        Raises:
            KafkaUnavailable: Kafka does not answer, has no such topic, or the extra is not installed.
            ConfigError: the options are invalid.

        """
        fixed = {"group.id": group, "enable.auto.commit": True, "enable.auto.offset.store": False}
        consumer: Consumer = self._client("Consumer", {**_CONSUMER, **self.options, **fixed})
        try:
            found = self._reach(consumer, topic).topics[topic].error
            if found is not None:
                raise KafkaUnavailable(
                    f"Kafka at {self.brokers} does not serve topic {topic} ({found.str()}): create it, "
                    "allow this user to read it, or name another"
                )
        except KafkaUnavailable:
            consumer.close()
            raise
        return consumer

    def _client(self, kind: str, options: Mapping[str, Any]) -> Any:
        try:
            import confluent_kafka
        except ImportError as error:
            raise KafkaUnavailable(missing("Kafka", "confluent-kafka", error, "kafka")) from None
        connection = {"bootstrap.servers": self.brokers, "error_cb": self.failed}
        try:
            return getattr(confluent_kafka, kind)({**_COMMON, **options, **connection})
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"CRAWL_KAFKA_OPTIONS: {self.without_secrets(_text(error))}") from None

    def without_secrets(self, text: str) -> str:
        """Return `text` without the values of secret options."""
        for name, value in self.options.items():
            if (
                any(word in name for word in ("password", "secret", "pem", "username", "config"))
                and len(str(value)) > 2
            ):
                text = text.replace(str(value), "***")
        return text

    def _reach(self, client: Producer | Consumer, topic: str | None = None) -> Any:
        from confluent_kafka import KafkaException

        try:
            found = client.list_topics(topic, _PATIENCE_S) if topic else client.list_topics(timeout=_PATIENCE_S)
        except KafkaException as error:
            client.poll(0)  # calls `failed`, with the reason
            what = self.without_secrets(self._last or _text(error))
            raise KafkaUnavailable(
                f"Kafka at {self.brokers} does not answer ({what}): start it, or correct CRAWL_KAFKA_BROKERS "
                "or CRAWL_KAFKA_OPTIONS"
            ) from None
        self._down = False
        return found

    def failed(self, error: KafkaError) -> None:
        """Note an error that librdkafka reports; librdkafka goes on trying."""
        from confluent_kafka import KafkaError

        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last = error.str()
        # A _TRANSPORT error may concern one broker of several.
        if error.code() != KafkaError._TRANSPORT and not self._down:
            self._down = True
            self.say(
                f"Kafka at {self.brokers} does not answer ({self.without_secrets(error.str())}); trying again"
            )

    def answered(self) -> None:
        """Note that Kafka has answered."""
        self._last = ""
        if self._down:
            self._down = False
            self.say(f"Kafka at {self.brokers} answers again")


def _text(error: Exception) -> str:
    what = error.args[0] if error.args else error
    return str(what.str()) if hasattr(what, "str") else str(what)
