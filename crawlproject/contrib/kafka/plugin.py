"""Seeds from Kafka, and events to Kafka."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from crawlproject import config
from crawlproject.config.parsers import listed
from crawlproject.plugins import Plugin


def _broker(name: str) -> str:
    if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}", name):
        raise ValueError(name)
    return name


_brokers = listed("brokers such as kafka1.example:9092, separated by commas", _broker)


# Options that the guarantees of README.md depend on, or that have a setting or command option of their own.
_FIXED = {
    "bootstrap.servers", "metadata.broker.list", "group.id", "enable.auto.commit", "enable.auto.offset.store",
    "enable.idempotence", "acks", "request.required.acks", "transactional.id", "enable.partition.eof",
    "message.timeout.ms", "delivery.timeout.ms",
}  # fmt: skip


def _options(value: Any) -> tuple[tuple[str, str], ...]:
    try:
        options = dict(json.loads(value or "{}") if isinstance(value, str) else value)
    except (TypeError, ValueError, RecursionError):
        options = {"": None}
    if not all(isinstance(name, str) and isinstance(o, str | int | float) for name, o in options.items()):
        raise ValueError('a JSON object such as {"security.protocol": "SSL"}, of strings, numbers, true and false')
    if taken := sorted(_FIXED & options.keys()):
        raise ValueError(
            f"a JSON object without {', '.join(taken)}: delivery guarantees or other settings determine those"
        )
    texts = {True: "true", False: "false"}
    return tuple((name, texts[o] if isinstance(o, bool) else str(o)) for name, o in options.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaSettings:
    """Where Kafka is."""

    PREFIX: ClassVar[str] = "CRAWL_KAFKA_"

    brokers: tuple[str, ...] = config.setting(
        (),
        _brokers,
        "Kafka's brokers, as `host:port`, for `--kafka` of `feed` and `events`",
    )
    options: tuple[tuple[str, str], ...] = config.setting(
        (),
        _options,
        "further options for librdkafka, a JSON object; never shown",
        secret=True,
    )


PLUGIN = Plugin(
    settings=KafkaSettings,
    readers={"kafka": "crawlproject.contrib.kafka.forwarder.Kafkas"},
    feeders={"kafka": "crawlproject.contrib.kafka.topic.SeedTopic"},
)
